"""The scheduling queue: which pod to try next, and when to try a rejected one again.

Source: spec "Scheduling queue". Event handlers add, update, delete and report cluster events; the cycle pops
pods and the failure handler gives them back. From the active queue a pod goes to the scheduling cycle.

    add ──▶ active ──pop──▶ in flight ──done──▶ (bound, or gone)
              ▲  ▲              │ add_unschedulable_if_not_present
              │  └── backoff ◀──┤
              └── unschedulable ◀┘      events move pods from unschedulable to backoff or active

Nothing here awaits but :meth:`SchedulingQueue.wait_pop` and :meth:`SchedulingQueue.run`, so each operation is
atomic. PreEnqueue and hint functions run inside these operations and must not call back into the queue.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
from collections.abc import Callable, Hashable, Mapping
from random import Random
from typing import Any, Final

from kubesched.api.times import Clock
from kubesched.api.types import Pod
from kubesched.framework.events import (
    FORCE_ACTIVATE,
    UNSCHEDULABLE_TIMEOUT,
    ClusterEvent,
    pod_events,
)
from kubesched.framework.metrics import SchedulerMetrics
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.queued import QueuedPodInfo

from .backoff import BackoffQueue
from .heap import KeyedHeap
from .hints import Hints, Registrations, Strategy
from .in_flight import InFlight
from .moves import POD_ADD, POD_UPDATE, PreCheck, QueueMoves
from .nominator import Nominator
from .pre_enqueue import PreEnqueue, PreEnqueuePlugins
from .unschedulable import UnschedulablePods

__all__ = ["QueueError", "SchedulingQueue"]

_log = logging.getLogger("kubesched.queue")

# Labels of moves that are no cluster events.
SCHEDULE_ATTEMPT_FAILURE: Final = "ScheduleAttemptFailure"
BACKOFF_COMPLETE: Final = "BackoffComplete"
POP_FROM_BACKOFF: Final = "PopFromBackoffQ"

#: Seconds between two looks at pods that have been unschedulable for too long.
_LEFTOVER_PERIOD: Final = 30.0


class QueueError(Exception):
    """A pod given back to the queue is in the queue already."""


class _LessOrder:
    """A heap order made of a ``less`` function, over a copy of the record that later updates do not change."""

    __slots__ = ("_less", "_record")

    def __init__(self, less: Callable[[QueuedPodInfo, QueuedPodInfo], bool], record: QueuedPodInfo) -> None:
        self._less = less
        self._record = copy.copy(record)

    def __lt__(self, other: _LessOrder) -> bool:
        return self._less(self._record, other._record)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _LessOrder):
            return NotImplemented
        return not (self._less(self._record, other._record) or self._less(other._record, self._record))

    __hash__ = None  # type: ignore[assignment]


class SchedulingQueue(QueueMoves):
    """Active, backoff and unschedulable pods, pods in flight, and the nominator.

    Pods are known by ``namespace/name`` while they wait and by UID while they are in flight.

    Args:
        clock: seconds since the epoch; backoff ends at whole seconds of it.
        sort_key: the order of the active queue: a smaller key comes first, equal keys first come first
            served. The key is taken when a pod enters and when it is updated.
        less: the order as a comparison, for QueueSort plugins without a key; slower.
        pre_enqueue: scheduler name -> plugin name -> function, in order.
        queueing_hints: scheduler name -> registered event -> (plugin, hint function) in order.
        signers: scheduler name -> function that signs a pod. None: pods carry no signature.
        pod_lister: the live pod of a (namespace, name), for the nominator.
        initial_backoff, max_backoff: seconds; a maximum of 0 turns backoff off.
        max_in_unschedulable: seconds after which a pod is tried again without any event.
        random: decides which plugin durations are recorded.

    Raises:
        ValueError: when neither ``sort_key`` nor ``less`` is given.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        sort_key: Callable[[QueuedPodInfo], Any] | None = None,
        less: Callable[[QueuedPodInfo, QueuedPodInfo], bool] | None = None,
        pre_enqueue: PreEnqueuePlugins,
        queueing_hints: Registrations,
        signers: Mapping[str, Callable[[PodInfo], Hashable | None]] | None = None,
        pod_lister: Callable[[str, str], Pod | None] | None = None,
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        max_in_unschedulable: float = 300.0,
        metrics: SchedulerMetrics | None = None,
        random: Random | None = None,
    ) -> None:
        order = sort_key
        if order is None:
            if less is None:
                raise ValueError("the queue needs a sort_key or a less function")
            order = _order_by(less)
        metrics = metrics if metrics is not None else SchedulerMetrics()
        random = random if random is not None else Random(0)
        self._clock = clock
        self._signers = signers
        self._max_in_unschedulable = max_in_unschedulable
        self._hints = Hints(queueing_hints, clock, metrics, random)
        self._pre_enqueue = PreEnqueue(pre_enqueue, self._hints.events_of, clock, metrics, random)
        pending = metrics.pending_pods
        self._active_gauge = pending.labels("active")
        self._backoff_gauge = pending.labels("backoff")
        self._incoming = metrics.queue_incoming_pods_total
        self._rejected_by = metrics.unschedulable_pods
        self._active: KeyedHeap[QueuedPodInfo] = KeyedHeap(order)
        self._backoff = BackoffQueue(initial_backoff, max_backoff, order)
        self._unschedulable = UnschedulablePods(
            queueing_hints, pending.labels("gated"), pending.labels("unschedulable")
        )
        self._in_flight = InFlight(metrics.inflight_events)
        self.nominator = Nominator(pod_lister, self._queued_pod_info)
        self._scheduling_cycle = 0
        self._closed = False
        self._waiters: list[asyncio.Future[None]] = []
        self._loops: list[asyncio.Task[None]] = []
        self._next_leftover_flush: float | None = None

    # -- what event handlers call ----------------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        """A pod without a node has appeared. A stale entry of the same name is replaced.

        Raises:
            QuantityError: when a request of the pod is malformed; the queue is unchanged.
        """
        self._enqueue(self._new_record(pod), POD_ADD)

    def update(self, old: Pod | None, new: Pod) -> None:
        """A pod has changed; ``old`` may be None when its last state is unknown.

        A pod in flight only has the change recorded: it will come back with the informer's version. A
        waiting pod is tried again if the change may have made it schedulable. An unknown pod is added.

        Raises:
            QuantityError: when a request of the pod is malformed; the queue is unchanged.
        """
        old = old if old is not None else new
        if new.uid in self._in_flight:
            for event in pod_events(old, new):
                self._in_flight.record(self._hints.plan(event), old, new)
            return
        key = new.key
        if (record := self._active.get(key)) is not None:
            self._refresh(record, PodInfo(new), old)
            self._active.put(key, record)
        elif (record := self._backoff.get(key)) is not None:
            self._refresh(record, PodInfo(new), old)
            self._backoff.update(key, record)
        elif (record := self._unschedulable.get(key)) is not None:
            events = pod_events(old, new)
            self._refresh(record, PodInfo(new), old)
            self._unschedulable.put(key, record)
            for event in events:
                plan = self._hints.plan(event)
                strategy = self._hints.strategy(record, plan, old, new)
                # Skip means that the pod stays where it is; it is not put in anew.
                if strategy is not Strategy.SKIP and self._requeue(key, record, strategy, plan.label):
                    self._wake()
                    break
        else:
            self._enqueue(self._new_record(new), POD_UPDATE)

    def delete(self, pod: Pod) -> None:
        """A pod is gone, or bound. What is in flight stays until :meth:`done`."""
        self.nominator.delete(pod)
        key = pod.key
        record = self._active.remove(key)
        if record is None:
            record = self._backoff.remove(key)
        if record is None:
            record = self._unschedulable.remove(key)
        if record is not None:
            # Upstream forgets this for active and backoff pods, and its gauge leaks.
            self._uncount_rejectors(record)
            self._set_gauges()

    def move_all_to_active_or_backoff_queue(
        self, event: ClusterEvent, old: Any, new: Any, pre_check: PreCheck | None = None
    ) -> None:
        """Something happened in the cluster: requeue the unschedulable pods it may help.

        ``old`` is None for additions and ``new`` for deletions. With ``pre_check`` only pods it accepts are
        looked at. An event that no plugin registered for is not even recorded for the pods in flight.
        """
        plan = self._hints.plan(event)
        if not plan.interesting:
            return
        if len(self._unschedulable):
            waiting = self._unschedulable
            pairs = waiting.pairs() if plan.wildcard else waiting.candidates(plan.rejectors)
            if pairs:
                self._move(pairs, plan, old, new, pre_check)
        if len(self._in_flight):
            self._in_flight.record(plan, old, new)

    def activate(self, pods: Mapping[str, Pod]) -> None:
        """Move these pods to the active queue at once, backoff or not; PreEnqueue may still hold them.

        For a pod in flight the wish is recorded, so that its rejection leads to another attempt.
        """
        activated = False
        for pod in pods.values():
            if self._activate(pod.key):
                activated = True
            elif pod.uid in self._in_flight:
                self._in_flight.record(self._hints.plan(FORCE_ACTIVATE), None, pod)
        if activated:
            self._wake()

    # -- what the cycle calls --------------------------------------------------------------------------

    def pop_nowait(self) -> QueuedPodInfo | None:
        """Take the best pod and mark it in flight; None when nothing can be popped now.

        With the active queue empty, the pod whose backoff ends first is taken early. Pods that failed by
        an error always wait for their backoff.
        """
        while True:
            record = self._active.pop()
            if record is not None:
                self._active_gauge.value = len(self._active)
            else:
                record = self._backoff.pods.pop()
                if record is None:
                    return None
                self._backoff_gauge.value = len(self._backoff)
                self._incoming.inc("active", POP_FROM_BACKOFF)
            if self._mark_in_flight(record):
                return record

    async def wait_pop(self) -> QueuedPodInfo | None:
        """Like :meth:`pop_nowait`, but wait for a pod; None only when the queue is closed and drained."""
        while True:
            record = self.pop_nowait()
            if record is not None or self._closed:
                return record
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def pop_specific(self, pod: Pod) -> QueuedPodInfo | None:
        """Activate and take this very pod; None when it is unknown, still gated or in flight already."""
        key = pod.key
        self._activate(key)
        record = self._active.remove(key)
        if record is None:
            return None
        self._active_gauge.value = len(self._active)
        return record if self._mark_in_flight(record) else None

    def done(self, uid: str) -> None:
        """The attempt for this pod is over and it is not given back. Harmless when repeated."""
        self._in_flight.done(uid)

    def add_unschedulable_if_not_present(self, queued: QueuedPodInfo, pod_scheduling_cycle: int) -> None:
        """Give back a pod whose attempt failed, its rejector plugins filled in.

        It goes where the events since its Pop send it. ``pod_scheduling_cycle`` is part of upstream's
        signature; with queueing hints it decides nothing. The pod is no longer in flight afterwards,
        whatever happens.

        Raises:
            QueueError: when the pod's name is queued already; nothing else has changed then.
        """
        key, uid = queued.key, queued.uid
        requeued = False
        try:
            self._refuse_present(key)
            if queued.has_rejectors:
                queued.unschedulable_count += 1
                queued.consecutive_errors_count = 0
            else:
                queued.consecutive_errors_count += 1
            queued.timestamp = self._clock.now()
            queued.backoff_expiration = None
            queued.was_flushed_from_unschedulable = False
            self._count_rejectors(queued, 1)
            strategy = self._strategy_of_returning(queued, uid)
            requeued = self._requeue(key, queued, strategy, SCHEDULE_ATTEMPT_FAILURE)
        finally:
            self._in_flight.done(uid)
        if requeued:
            self._wake()

    def _refuse_present(self, key: str) -> None:
        if key in self._unschedulable:
            raise QueueError(f"Pod {key} is already present in unschedulable queue")
        if key in self._active:
            raise QueueError(f"Pod {key} is already present in the active queue")
        if key in self._backoff:
            raise QueueError(f"Pod {key} is already present in the backoff queue")

    def _strategy_of_returning(self, record: QueuedPodInfo, uid: str) -> Strategy:
        """What the events since the pod's Pop mean for it (spec section 8.3)."""
        if not record.has_rejectors:
            return Strategy.AFTER_BACKOFF
        if uid not in self._in_flight:
            _log.error("Pod %s comes back but was not in flight", record.key)
            return Strategy.AFTER_BACKOFF
        best = Strategy.SKIP
        for plan, old, new in self._in_flight.events_since_pop(uid):
            strategy = self._hints.strategy(record, plan, old, new)
            if strategy is Strategy.IMMEDIATELY:
                return strategy
            if strategy is Strategy.AFTER_BACKOFF:
                if not record.pending_plugins:
                    return strategy
                best = strategy
        return best

    @property
    def scheduling_cycle(self) -> int:
        """Number of pods that have gone in flight so far."""
        return self._scheduling_cycle

    # -- time ------------------------------------------------------------------------------------------

    def flush_backoff_completed(self) -> None:
        """Move pods whose backoff is over to the active queue. Due each whole second."""
        completed = self._backoff.pop_completed(self._clock.now())
        for record in completed:
            self._to_active(record.key, record, BACKOFF_COMPLETE, from_backoff=True)
        if completed:
            self._set_gauges()
            self._wake()

    def flush_unschedulable_leftover(self) -> None:
        """Try pods again that have waited too long for an event. Due every 30 seconds; gated pods stay."""
        pairs = self._unschedulable.older_than(self._clock.now(), self._max_in_unschedulable)
        if not pairs:
            return
        for _, record in pairs:
            record.was_flushed_from_unschedulable = True
        plan = self._hints.plan(UNSCHEDULABLE_TIMEOUT)
        self._move(pairs, plan, None, None, None)
        if len(self._in_flight):
            self._in_flight.record(plan, None, None)

    async def run(self) -> None:
        """Both flush loops, until :meth:`close`."""
        if self._closed:
            return
        async with asyncio.TaskGroup() as group:
            self._loops = [
                group.create_task(self._flush_backoff_each_second(), name="queue-flush-backoff"),
                group.create_task(self._flush_leftover_regularly(), name="queue-flush-unschedulable"),
            ]

    async def _flush_backoff_each_second(self) -> None:
        while True:
            now = self._clock.now()
            await asyncio.sleep(math.floor(now) + 1 - now)
            self.flush_backoff_completed()

    async def _flush_leftover_regularly(self) -> None:
        while True:
            self.flush_unschedulable_leftover()
            self._next_leftover_flush = due = self._clock.now() + _LEFTOVER_PERIOD
            while (wait := due - self._clock.now()) > 0:  # noqa: ASYNC110 - a timer may fire early by the clock
                await asyncio.sleep(wait)

    def next_timer(self) -> float | None:
        """When a flush could next move a pod, in epoch seconds; None when no pod waits on time.

        A time in the past means that the flush is overdue. Before :meth:`run` has started, the timeout of
        unschedulable pods is taken to be checked at any moment.
        """
        times = []
        completion = self._backoff.next_completion()
        if completion is not None:
            times.append(completion)
        oldest = self._unschedulable.oldest()
        if oldest is not None:
            times.append(self._timeout_seen_at(oldest))
        return min(times) if times else None

    def _timeout_seen_at(self, timestamp: float) -> float:
        """The first flush at which a pod with this timestamp has waited strictly too long."""
        limit, flush = self._max_in_unschedulable, self._next_leftover_flush
        if flush is None:
            at = timestamp + limit
            while not at - timestamp > limit:
                at = math.nextafter(at, math.inf)
            return at
        while not flush - timestamp > limit:
            flush += _LEFTOVER_PERIOD
        return flush

    def close(self) -> None:
        """Stop the flush loops, forget what is in flight and let every waiter go. Closing again does nothing.

        Pods still in the queue can be popped.
        """
        if self._closed:
            return
        self._closed = True
        for loop in self._loops:
            loop.cancel()
        for uid in self._in_flight.uids():
            self._in_flight.done(uid)
        self._wake()


def _order_by(less: Callable[[QueuedPodInfo, QueuedPodInfo], bool]) -> Callable[[QueuedPodInfo], _LessOrder]:
    return lambda record: _LessOrder(less, record)
