"""Moves of a single pod between the sub-queues.

The operations of the scheduling queue consist of these moves. Every entry into a sub-queue, and its metrics, is here.

Source: rules/queue §6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kubesched.base.times import Clock

from ..framework.events import FORCE_ACTIVATE, UNSCHEDULED_POD_ADD, UNSCHEDULED_POD_UPDATE
from ..framework.metrics import SchedulerMetrics
from ..framework.queued import QueuedPodInfo
from .nominator import Nominator
from .pre_enqueue import PreEnqueue
from .queueing_hints import Strategy
from .sub_queues import SubQueues

__all__ = ["BACKOFF_COMPLETE", "POD_ADD", "POD_UPDATE", "POP_FROM_BACKOFF", "SCHEDULE_ATTEMPT_FAILURE", "Moves"]

POD_ADD: Final = UNSCHEDULED_POD_ADD.label
POD_UPDATE: Final = UNSCHEDULED_POD_UPDATE.label
_FORCE_ACTIVATE: Final = FORCE_ACTIVATE.label

# Labels of moves that no cluster event causes.
SCHEDULE_ATTEMPT_FAILURE: Final = "ScheduleAttemptFailure"
BACKOFF_COMPLETE: Final = "BackoffComplete"
POP_FROM_BACKOFF: Final = "PopFromBackoffQ"


class Moves:
    """Primitive moves of a pod. A move returns True if the pod can be popped, now or later, without a further event."""

    __slots__ = (
        "_clock",
        "_incoming",
        "_nominator",
        "_on_wait",
        "_pops_early",
        "_pre_enqueue",
        "_queues",
        "_rejected_by",
    )

    def __init__(
        self,
        queues: SubQueues,
        pre_enqueue: PreEnqueue,
        nominator: Nominator,
        clock: Clock,
        metrics: SchedulerMetrics,
        on_wait: Callable[[], None] = lambda: None,
        *,
        pop_from_backoff: bool = True,
    ) -> None:
        """``on_wait`` is called when a pod begins to wait, in backoff or for an event.

        For ``pop_from_backoff`` see :class:`.scheduling_queue.SchedulingQueue`.
        """
        self._pops_early = pop_from_backoff
        self._on_wait = on_wait
        self._queues = queues
        self._pre_enqueue = pre_enqueue
        self._nominator = nominator
        self._clock = clock
        self._incoming = metrics.queue_incoming_pods_total
        self._rejected_by = metrics.unschedulable_pods

    def enter(self, key: str, record: QueuedPodInfo, label: str, stale: QueuedPodInfo | None) -> bool:
        """Bring in a new record. It replaces ``stale``, the queued record of the same name."""
        entered = self.to_active(key, record, label)
        if stale is not None:
            # A gated new record does not replace a record in the active or backoff queue. The new record is dropped
            # instead.
            kept = entered or self._queues.unschedulable.get(key) is record
            self.count_rejectors(stale if kept else record, -1)
        return entered

    def leave(self, key: str) -> None:
        """Remove a pod that was deleted; without effect if it is not queued."""
        record = self._queues.remove(key)
        if record is not None:
            # Upstream skips this step for active and backoff pods, so its gauge leaks (rules/queue §17 quirk 3).
            self.count_rejectors(record, -1)

    def pop_early(self, *, apart: bool = False) -> QueuedPodInfo | None:
        """Remove and return the rejected pod whose backoff ends first; None when no pod may be taken early.

        Call it when no pod is active. Pods after an error stay. ``apart``: take one of the pods apart.
        """
        if not self._pops_early:
            return None
        record = self._queues.backoff.pods.pop(apart=apart)
        if record is not None:
            self._incoming.inc("active", POP_FROM_BACKOFF)
        return record

    def to_active(self, key: str, record: QueuedPodInfo, label: str, *, from_backoff: bool = False) -> bool:
        """Put a pod into the active queue, unless PreEnqueue gates it.

        ``from_backoff``: the pod comes from backoff. If pods may be popped from there, PreEnqueue has run already.
        """
        queues = self._queues
        if not (from_backoff and self._pops_early):
            self._pre_enqueue.run(record)
            if record.gating_plugin:
                if key not in queues.active and key not in queues.backoff:
                    self.park(key, record, label)
                return False
        if record.initial_attempt_timestamp is None:
            record.initial_attempt_timestamp = self._clock.now()
        queues.unschedulable.remove(key)
        queues.backoff.remove(key)
        if queues.active.put(key, record):
            self._incoming.labels("active", label).value += 1
        if label in (POD_ADD, POD_UPDATE):
            self._nominator.add(record.pod_info.pod)
        return True

    def to_backoff(self, key: str, record: QueuedPodInfo, label: str) -> bool:
        """Put a pod into a backoff heap. If pods may be popped from there, PreEnqueue runs first and may gate it."""
        if self._pops_early:
            self._pre_enqueue.run(record)
            if record.gating_plugin:
                return self.park(key, record, label)
        self._queues.unschedulable.remove(key)
        if self._queues.backoff.put(key, record):
            self._incoming.labels("backoff", label).value += 1
            self._on_wait()
        return True

    def park(self, key: str, record: QueuedPodInfo, label: str) -> bool:
        """Put a pod among the unschedulable pods, where it waits for an event."""
        if self._queues.unschedulable.put(key, record):
            self._incoming.labels("unschedulable", label).value += 1
            self._on_wait()
        return False

    def requeue(self, key: str, record: QueuedPodInfo, strategy: Strategy, label: str) -> bool:
        """Put a pod into the sub-queue that the strategy demands."""
        if strategy is Strategy.SKIP:
            return self.park(key, record, label)
        if strategy is Strategy.AFTER_BACKOFF and self._queues.backoff.backing_off(record, self._clock.now()):
            return self.to_backoff(key, record, label)
        return self.to_active(key, record, label)

    def activate(self, key: str) -> bool:
        """Move a waiting pod to the active queue at once; False if it is gated or does not wait."""
        record = self._queues.unschedulable.get(key)
        if record is not None:
            return self.to_active(key, record, _FORCE_ACTIVATE)
        record = self._queues.backoff.remove(key)
        return record is not None and self.to_active(key, record, _FORCE_ACTIVATE, from_backoff=True)

    def complete_backoff(self) -> Iterator[QueuedPodInfo]:
        """Move pods whose backoff is over to the active queue, and yield each."""
        for record in self._queues.backoff.pop_completed(self._clock.now()):
            self.to_active(record.key, record, BACKOFF_COMPLETE, from_backoff=True)
            yield record

    def count_rejectors(self, record: QueuedPodInfo, by: int) -> None:
        """Add ``by`` (1 or -1) to the gauge of unschedulable pods, for each plugin that rejected the pod."""
        profile = record.pod_info.pod.spec.scheduler_name
        for plugin in record.unschedulable_plugins | record.pending_plugins:
            self._rejected_by.labels(plugin, profile).value += by
