"""Drain of one node: its pods are evicted as disruption budgets allow, as by ``kubectl drain``.

Caller: :class:`.happenings.Happenings`, which cordons the node first.
"""

from __future__ import annotations

import math
from typing import Final

from kubesched.api.types import Pod
from kubesched.api.wire import ApiError

from ..embedded import Embedded
from ..results.pod_times import FINISHED
from ..results.result import BlockedPod, DrainReport

__all__ = ["Drain"]

#: Seconds between tries, as kubectl waits.
_RETRY_SECONDS: Final = 5.0
_MIRROR: Final = "kubernetes.io/config.mirror"
_MOST_NAMED: Final = 3


class Drain:
    """Drain of a node that began at ``now``, in virtual seconds since the start.

    Pods of DaemonSets, mirror pods and finished pods stay, as with kubectl. Pods without a controller block the drain
    unless ``force`` is true. ``timeout`` are the seconds after which it gives up; None for never.
    """

    def __init__(self, node: str, now: float, *, force: bool = False, timeout: float | None = None) -> None:
        self.node = node
        self.next_try = now
        self.is_active = True
        #: True if the last try evicted nothing while nothing else moved.
        self.is_stuck = False
        self._began = now
        self._force = force
        self._deadline = math.inf if timeout is None else now + timeout
        self._finished: float | None = None
        self._evicted: dict[str, str] = {}
        self._blocked: dict[str, str] = {}

    def end(self) -> None:
        """Give up."""
        self.is_active = False

    def step(self, embedded: Embedded, now: float, *, at_rest: bool) -> bool:
        """Try to evict all pods that are left. True if any was evicted."""
        before = len(self._evicted)
        left = self._left(embedded)
        self._blocked.clear()
        for pod in left:
            self._evict(embedded, pod)
        if not left:
            self._finished, self.is_active = now, False
        elif now >= self._deadline:
            self.is_active = False
        evicted = len(self._evicted) > before
        self.is_stuck = at_rest and not evicted
        self.next_try = min(now + _RETRY_SECONDS, max(self._deadline, now + 1e-3))
        return evicted

    def _left(self, embedded: Embedded) -> list[Pod]:
        info = embedded.scheduler.cache.table.get(self.node)
        pods = [one.pod for one in info.pods.values()] if info is not None else []
        return sorted((pod for pod in pods if _is_to_go(pod)), key=lambda pod: pod.key)

    def _evict(self, embedded: Embedded, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            self._blocked[pod.key] = "is being deleted, and has not stopped"
            return
        if not self._force and not any(one.controller for one in pod.metadata.owner_references):
            self._blocked[pod.key] = "has no controller that would replace it; force: true evicts it"
            return
        try:
            embedded.store.evict(pod.namespace, pod.name, uid=pod.uid)
        except ApiError as error:
            if error.code not in (404, 409):  # gone, or replaced by another pod
                self._blocked[pod.key] = _cause(error)
        else:
            self._evicted[pod.uid] = pod.key
            self._blocked[pod.key] = "is being deleted, and has not stopped"

    def report(self) -> DrainReport:
        """Return the state of the drain."""
        return DrainReport(
            node=self.node,
            finished=self._finished,
            evicted=list(self._evicted.values()),
            blocked=[]
            if self._finished is not None
            else [BlockedPod(pod=pod, why=why) for pod, why in self._blocked.items()],
        )

    def remarks(self) -> list[str]:
        """Return a remark if the drain has not finished: the pods that block it, and why."""
        if self._finished is not None:
            return []
        named = [f"{pod} {why}" for pod, why in list(self._blocked.items())[:_MOST_NAMED]]
        more = f"; and {len(self._blocked) - _MOST_NAMED:,} more pods" if len(self._blocked) > _MOST_NAMED else ""
        return [
            f"the drain of node {self.node}, begun after {self._began:g} s, did not finish: {'; '.join(named)}{more}"
        ]


def _is_to_go(pod: Pod) -> bool:
    is_daemon = any(one.controller and one.kind == "DaemonSet" for one in pod.metadata.owner_references)
    return not is_daemon and _MIRROR not in pod.metadata.annotations and pod.status.phase not in FINISHED


def _cause(error: ApiError) -> str:
    """Return why an eviction was refused: the words about the budget, if there are any."""
    causes = (error.details or {}).get("causes") or ()
    texts = [str(one.get("message")) for one in causes if one.get("message")]
    return f"is blocked: {'; '.join(texts) or error}"
