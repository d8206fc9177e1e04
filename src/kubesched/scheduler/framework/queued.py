"""Queued pod: a pod in the scheduling queue, with its history (upstream ``framework.QueuedPodInfo``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..nodes.podinfo import PodInfo

if TYPE_CHECKING:
    from .events import ClusterEvent

__all__ = ["QueuedPodInfo", "by_priority"]


@dataclass(slots=True, eq=False)
class QueuedPodInfo:
    """Pod in the scheduling queue, with its history (rules/queue §5). Times are seconds of the scheduler's clock.

    The plugins that rejected the pod are the union of ``unschedulable_plugins`` and ``pending_plugins``. Both survive
    Pop; the failure handler replaces them.
    """

    pod_info: PodInfo
    timestamp: float
    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors_count: int = 0
    backoff_expiration: float | None = None
    initial_attempt_timestamp: float | None = None
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    gating_plugin: str = ""
    gating_plugin_events: tuple[ClusterEvent, ...] = ()
    was_flushed_from_unschedulable: bool = False

    @property
    def key(self) -> str:
        return self.pod_info.pod.key

    @property
    def uid(self) -> str:
        return self.pod_info.pod.metadata.uid

    @property
    def gated(self) -> bool:
        return bool(self.gating_plugin)

    @property
    def has_rejectors(self) -> bool:
        return bool(self.unschedulable_plugins or self.pending_plugins)


def by_priority(queued: QueuedPodInfo) -> tuple[int, float]:
    """Return the sort key of upstream's default order: higher priority first, then the longer wait.

    A pod without a priority counts as one with priority 0.
    """
    return (-(queued.pod_info.pod.spec.priority or 0), queued.timestamp)
