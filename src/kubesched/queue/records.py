"""Queue records of pods: made when a pod appears, refreshed when it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping

from kubesched.api.times import Clock
from kubesched.api.types import Pod
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.queued import QueuedPodInfo

__all__ = ["Records", "Signers"]

_log = logging.getLogger("kubesched.queue")

#: Scheduler name -> function that signs a pod.
Signers = Mapping[str, Callable[[PodInfo], Hashable | None]]


class Records:
    """Makes records. Without ``signers`` pods carry no signature."""

    __slots__ = ("_clock", "_signers")

    def __init__(self, clock: Clock, signers: Signers | None) -> None:
        self._clock = clock
        self._signers = signers

    def new(self, pod: Pod) -> QueuedPodInfo:
        """A record for a pod without history.

        Raises:
            QuantityError: when a request of the pod is malformed.
        """
        info = PodInfo(pod)
        return QueuedPodInfo(info, self._clock.now(), pod_signature=self._sign(info))

    def refresh(self, record: QueuedPodInfo, info: PodInfo) -> None:
        """Put a newer version of the pod in its record."""
        record.pod_info = info
        record.pod_signature = self._sign(info)

    def _sign(self, info: PodInfo) -> Hashable | None:
        if self._signers is None:
            return None
        signer = self._signers.get(info.pod.spec.scheduler_name)
        if signer is None:
            _log.error("No signer for scheduler %r of pod %s", info.pod.spec.scheduler_name, info.key)
            return None
        try:
            return signer(info)
        except (Exception, SystemExit):
            _log.exception("Signing pod %s failed; it has no signature", info.key)
            return None
