"""Queue records of pods: made when a pod appears, refreshed when it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping

from kubesched.api.times import Clock
from kubesched.api.types import Pod
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.queued import QueuedPodInfo
from kubesched.framework.templates import PodTemplates

__all__ = ["Records", "Signers"]

_log = logging.getLogger("kubesched.queue")

#: Scheduler name -> function that signs a pod.
Signers = Mapping[str, Callable[[PodInfo], Hashable | None]]


class Records:
    """Makes records. Without ``signers`` pods carry no signature."""

    __slots__ = ("_clock", "_signers", "_templates")

    def __init__(self, clock: Clock, signers: Signers | None) -> None:
        self._clock = clock
        self._signers = signers
        self._templates = PodTemplates()

    def new(self, pod: Pod) -> QueuedPodInfo:
        """A record for a pod without history.

        Raises:
            QuantityError: when a request of the pod is malformed.
        """
        info = self._templates.info(pod)
        return QueuedPodInfo(info, self._clock.now(), pod_signature=self._sign(info))

    def info(self, pod: Pod) -> PodInfo:
        """What a record holds of a pod.

        Raises:
            QuantityError: when a request of the pod is malformed.
        """
        return self._templates.info(pod)

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
        except KeyboardInterrupt:
            raise
        except BaseException:
            _log.exception("Signing pod %s failed; it has no signature", info.key)
            return None
