"""Sub-queues of waiting pods: active, backoff and unschedulable.

:mod:`.moves` fills and empties them; :mod:`.views` and the nominator read them.

Source: rules/queue §2.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping

from kubesched.base.turns import Steps

from ..framework.holding import Holder
from ..framework.metrics import SchedulerMetrics
from ..framework.queued import QueuedPodInfo
from ..nodes.podinfo import PodInfo
from .backoff import BackoffQueue
from .order import Order
from .split_heap import IsApart, SplitHeap
from .unschedulable import PodKeys, RejectorKey, UnschedulablePods

__all__ = ["SubQueues"]


class SubQueues:
    """Sub-queues of pods, by ``namespace/name``; a pod is in one of them at most.

    Gated pods are among the unschedulable pods. Each sub-queue updates its gauge.
    """

    __slots__ = ("_active_gauge", "_backoff_gauge", "active", "backoff", "unschedulable")

    def __init__(
        self,
        order: Order,
        *,
        initial_backoff: float,
        max_backoff: float,
        known_schedulers: Iterable[str],
        metrics: SchedulerMetrics,
        is_apart: IsApart | None = None,
        holders: Mapping[str, Holder] | None = None,
        pod_keys: Mapping[RejectorKey, PodKeys] | None = None,
        pop_from_backoff: bool = True,
        groups: bool = False,
    ) -> None:
        """Make empty sub-queues. For other arguments see :class:`.scheduling_queue.SchedulingQueue`.

        ``known_schedulers`` are the names of the profiles with queueing hints. ``pod_keys``: rejector to the function
        that returns the hint keys of a pod.
        """
        pending = metrics.pending_pods
        self._active_gauge = pending.labels("active")
        self._backoff_gauge = pending.labels("backoff")
        self.active = SplitHeap(order, self._active_gauge, is_apart)
        self.backoff = BackoffQueue(
            initial_backoff,
            max_backoff,
            order,
            self._backoff_gauge,
            is_apart,
            whole_seconds=pop_from_backoff,
            groups=groups,
        )
        self.unschedulable = UnschedulablePods(
            known_schedulers, pending.labels("gated"), pending.labels("unschedulable"), holders, pod_keys
        )

    def get(self, key: str) -> QueuedPodInfo | None:
        # Most lookups are of nominated pods, and most of these are unschedulable: look there first.
        return self.unschedulable.get(key) or self.active.get(key) or self.backoff.get(key)

    def remove(self, key: str) -> QueuedPodInfo | None:
        """Remove a pod from its sub-queue; None when it is in none."""
        return self.active.remove(key) or self.backoff.remove(key) or self.unschedulable.remove(key)

    def pod_info(self, key: str) -> PodInfo | None:
        """Return the pod as it is queued, or None; for the nominator."""
        record = self.get(key)
        return None if record is None else record.pod_info

    def place_of(self, key: str) -> str:
        """Return the name of a pod's sub-queue for error messages; "" when the pod is in none."""
        if key in self.unschedulable:
            return "unschedulable queue"
        if key in self.active:
            return "the active queue"
        return "the backoff queue" if key in self.backoff else ""

    def keys(self) -> list[tuple[str, KeysView[str]]]:
        """Return (name, keys of pods) of each heap, and of the unschedulable pods."""
        pods = self.backoff.pods
        return [
            ("Active", self.active.usual.keys()),
            ("Active, apart", self.active.apart.keys()),
            ("Backoff", pods.usual.keys()),
            ("Backoff, apart", pods.apart.keys()),
            ("Backoff, after an error", self.backoff.errors.keys()),
            ("Unschedulable", self.unschedulable.keys()),
        ]

    def checking(self) -> Steps[list[str]]:
        """Return every violated invariant, in steps between which pods may move."""
        problems = self.active.check("activeQ") + self._check_gauges()
        yield
        problems += self.backoff.check()
        yield
        return problems + (yield from self.unschedulable.checking())

    def _check_gauges(self) -> list[str]:
        pods = [len(self.active), len(self.backoff)]
        if [self._active_gauge.value, self._backoff_gauge.value] != pods:
            return ["pending_pods: active or backoff is wrong"]
        return []
