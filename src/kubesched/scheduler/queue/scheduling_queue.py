"""Scheduling queue: it decides which pod is tried next, and when a rejected pod is tried again.

Event handlers add, update and delete pods, and report cluster events. The scheduling cycle pops pods from the active
queue. The failure handler gives pods back. Source: rules/queue.

    add ──▶ active ──pop──▶ in flight ──done──▶ (bound, or gone)
              ▲  ▲              │ add_unschedulable_if_not_present
              │  └── backoff ◀──┤
              └── unschedulable ◀┘      events move pods from unschedulable to backoff or active

Only :meth:`SchedulingQueue.wait_pop` and :meth:`SchedulingQueue.run` await, so each operation is atomic. An operation
that concerns very many pods is done in slices, and operations that come meanwhile wait behind it. PreEnqueue and hint
functions run inside these operations and must not call the queue.

The queue consists of parts with one idea each:

    :mod:`.sub_queues`        places where pods wait
    :mod:`.moves`             moves of a single pod between them
    :mod:`.event_moves`       moves because of events
    :mod:`.queueing_hints`    pods that an event may help
    :mod:`.in_flight`         pods being scheduled, and the events meanwhile
    :mod:`.nominator`         nominations
    :mod:`.flushing`          moves at fixed times
    :mod:`.leftovers`         pods that have waited too long for an event
    :mod:`.split_heap`        pods that are popped apart, for extenders
    :mod:`.slices`            long operations
    :mod:`.views`             reading without changing
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kubesched.api.types import Pod
from kubesched.base.times import Clock
from kubesched.base.turns import Steps

from ..framework.events import ASSIGNED_POD_DELETE, FORCE_ACTIVATE, UNSCHEDULABLE_TIMEOUT, ClusterEvent, pod_events
from ..framework.holding import Holder
from ..framework.metrics import SchedulerMetrics
from ..framework.queued import QueuedPodInfo
from ..nodes.nominating import nominated_to
from ..nodes.templates import PodTemplates
from .event_moves import EventMoves
from .flushing import FlushLoops
from .in_flight import InFlight
from .leftovers import KindOf, Leftovers
from .moves import POD_ADD, POD_UPDATE, SCHEDULE_ATTEMPT_FAILURE, Moves
from .nominator import Nominator
from .order import Order
from .pre_enqueue import PreEnqueue, PreEnqueuePlugins
from .queueing_hints import Hints, Registrations, Strategy, pod_keys
from .slices import Slices
from .split_heap import IsApart
from .sub_queues import SubQueues
from .views import QueueViews
from .waiters import Waiters

__all__ = ["QueueError", "SchedulingQueue"]

_log = logging.getLogger("kubesched.scheduler.queue")


class QueueError(Exception):
    """A pod given back to the queue is in the queue already."""


class SchedulingQueue:
    """Scheduling queue: active, backoff and unschedulable pods, pods in flight, and the nominator.

    Pods are identified by ``namespace/name`` while they wait, and by UID while they are in flight.

    Args:
        clock: seconds since the epoch; backoff ends at whole seconds of it.
        order: sort key of the active queue. The pod with the smallest key is popped first; among equal keys, the pod
            that came first. The key is taken when a pod enters and when it is updated.
        pre_enqueue: scheduler name -> plugin name -> function, in order.
        queueing_hints: scheduler name -> registered event -> (plugin, hint function), in order.
        pod_lister: returns the live pod of a (namespace, name), for the nominator.
        initial_backoff, max_backoff: seconds; a maximum of 0 turns backoff off.
        max_in_unschedulable: seconds after which a pod is tried again without any event.
        is_apart: returns True for pods apart, which are popped only by callers that ask for them; by default no pod is
            apart.
        pop_from_backoff: when no pod is active, the pod whose backoff ends first is taken early (gate
            SchedulerPopFromBackoffQ).
        kind_of: returns a key of all that the filters know of a pod, or None if no key says so much. Of pods with equal keys that
            have waited too long, a part is tried at once. By default each pod is tried.
        groups: members of pod groups always wait for the end of their backoff (gate GenericWorkload).
        holders: scheduler name -> plugin that knows the deletions that cannot help a waiting pod.
        slice_time: returns the event loop's time in seconds; by it, long operations are divided while :meth:`run` runs.
            By default this time stands still, as in virtual time, and no operation is divided.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        order: Order,
        pre_enqueue: PreEnqueuePlugins,
        queueing_hints: Registrations,
        pod_lister: Callable[[str, str], Pod | None] | None = None,
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        max_in_unschedulable: float = 300.0,
        metrics: SchedulerMetrics | None = None,
        is_apart: IsApart | None = None,
        holders: Mapping[str, Holder] | None = None,
        slice_time: Callable[[], float] = lambda: 0.0,
        pop_from_backoff: bool = True,
        groups: bool = False,
        kind_of: KindOf = lambda pod: None,
    ) -> None:
        metrics = metrics if metrics is not None else SchedulerMetrics()
        self._clock = clock
        self._queues = queues = SubQueues(
            order,
            initial_backoff=initial_backoff,
            max_backoff=max_backoff,
            known_schedulers=queueing_hints,
            metrics=metrics,
            is_apart=is_apart,
            holders=holders,
            pod_keys=pod_keys(queueing_hints),
            pop_from_backoff=pop_from_backoff,
            groups=groups,
        )
        self._in_flight = InFlight(metrics.inflight_events)
        self._hints = Hints(queueing_hints, clock, metrics)
        self._templates = PodTemplates()
        self.nominator = Nominator(pod_lister, queues.pod_info, self._in_flight.pod_info)
        gates = PreEnqueue(pre_enqueue, self._hints.events_of, clock, metrics)
        self._waiters = Waiters()
        self._slices = Slices(slice_time, self._waiters.notify)
        flushes = {"flush_backoff": self.flush_backoff_completed, "flush_leftover": self.flush_unschedulable_leftover}
        self._loops = FlushLoops(clock, queues, max_in_unschedulable, self._slices, **flushes)
        self._moves = Moves(
            queues, gates, self.nominator, clock, metrics, self._loops.resume, pop_from_backoff=pop_from_backoff
        )
        self._leftovers = Leftovers(
            queues, self._in_flight, self.nominator, max_in_unschedulable, kind_of, self._moves.count_rejectors
        )
        self._event_moves = EventMoves(
            queues, self._moves, self._hints, self.nominator, self._in_flight, self._waiters.notify
        )
        self._scheduling_cycle = 0
        self._closed = False
        #: Read access: places of pods, lists of pods, the checker.
        self.views = QueueViews(
            queues, self._in_flight, self.nominator, metrics.unschedulable_pods, self._slices, max_in_unschedulable
        )

    # -- what event handlers call ----------------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        """Add a pod without a node. It replaces a stale pod of the same name.

        Raises:
            QuantityError: when a request of the pod is malformed; the queue is unchanged.
        """
        if self._slices.busy:
            self._templates.info(pod)
            self._slices.defer(partial(self.add, pod))
            return
        record, key = self._new(pod), pod.key
        self._enter(key, record, POD_ADD, self._queues.get(key))

    def add_or_update(self, pod: Pod) -> None:
        """Add a pod without a node; or update it, if it waits here or is in flight.

        Raises:
            QuantityError: when a request of the pod is malformed; the queue is unchanged.
        """
        key, uid = pod.key, pod.uid
        if uid in self._in_flight:
            self.update(None, pod)
            return
        if self._slices.busy:
            self._templates.info(pod)
            self._slices.defer(partial(self.add_or_update, pod))
            return
        known = self._queues.get(key)
        if known is not None and known.uid == uid:
            self.update(None, pod)
        else:
            self._enter(key, self._new(pod), POD_ADD, known)

    def update(self, old: Pod | None, new: Pod) -> None:
        """Update a pod that has changed; ``old`` is None when its last state is unknown.

        A waiting pod is tried again if the change may have made it schedulable. For a pod in flight the change is only
        recorded: the pod comes back with the informer's version. An unknown pod is added.

        Raises:
            QuantityError: when a request of the pod is malformed; the queue is unchanged.
        """
        old = old if old is not None else new
        if self._slices.busy:
            if new.uid not in self._in_flight:
                self._templates.info(new)
            self._slices.defer(partial(self.update, old, new))
            return
        if new.uid in self._in_flight:
            for event in pod_events(old, new):
                self._in_flight.record(self._hints.plan(event), old, new)
            return
        key, queues = new.key, self._queues
        if (record := queues.active.get(key)) is not None:
            self._refresh(record, old, new)
            queues.active.put(key, record)
        elif (record := queues.backoff.get(key)) is not None:
            self._refresh(record, old, new)
            queues.backoff.update(key, record)
        elif (record := queues.unschedulable.get(key)) is not None:
            events = pod_events(old, new)
            self._refresh(record, old, new)
            queues.unschedulable.put(key, record)
            for event in events:
                plan = self._hints.plan(event)
                strategy = self._hints.strategy(record, plan, old, new)
                # After Skip the pod stays where it is; it is not put in again.
                if strategy is not Strategy.SKIP and self._moves.requeue(key, record, strategy, plan.label):
                    self._waiters.notify()
                    break
        else:
            self._enter(key, self._new(new), POD_UPDATE, None)

    def delete(self, pod: Pod) -> None:
        """Remove a pod that was deleted, or bound. A pod in flight stays until :meth:`done`."""
        if self._slices.busy:
            self._slices.defer(partial(self.delete, pod))
            return
        self.nominator.delete(pod)
        self._moves.leave(pod.key)

    def _new(self, pod: Pod) -> QueuedPodInfo:
        """Return the record of a pod that has no history."""
        return QueuedPodInfo(self._templates.info(pod), self._clock.now())

    def _enter(self, key: str, record: QueuedPodInfo, label: str, stale: QueuedPodInfo | None) -> None:
        if self._moves.enter(key, record, label, stale):
            self._waiters.notify()

    def _refresh(self, record: QueuedPodInfo, old: Pod, new: Pod) -> None:
        info = self._templates.info(new)  # raises before anything is changed
        self.nominator.update(old, new)
        record.pod_info = info

    def move_all_to_active_or_backoff_queue(
        self, event: ClusterEvent, old: Any, new: Any, pre_check: Callable[[Pod], bool] | None = None
    ) -> None:
        """Requeue the unschedulable pods that a cluster event may help.

        ``old`` is None for additions, ``new`` for deletions. With ``pre_check``, only pods that it accepts are
        evaluated. The event is also recorded for the pods in flight. An event that no plugin registered for has no
        effect at all.
        """
        if event == ASSIGNED_POD_DELETE and isinstance(old, Pod):
            self.move_after_deletions((old,), pre_check)
            return
        plan = self._hints.plan(event)
        if not plan.interesting:
            return
        if self._slices.busy:
            self._slices.defer(partial(self.move_all_to_active_or_backoff_queue, event, old, new, pre_check))
            return
        if len(self._queues.unschedulable) and (pairs := self._event_moves.candidates(plan, old, new)):
            self._slices.begin(self._event_moves.event(pairs, plan, old, new, pre_check))
        elif len(self._in_flight):
            self._in_flight.record(plan, old, new)

    def move_after_deletions(self, pods: Sequence[Pod], pre_check: Callable[[Pod], bool] | None = None) -> None:
        """Requeue the unschedulable pods that deletions of pods may help. The deletions came together, in this order.

        There is an event for each deletion. Held pods (see :mod:`.unschedulable`) wait for the last of several
        deletions in a row on one node. They are evaluated for it first, and for the earlier deletions only if it does
        not help them.
        """
        plan = self._hints.plan(ASSIGNED_POD_DELETE)
        if not plan.interesting:
            return
        if self._slices.busy:
            self._slices.defer(partial(self.move_after_deletions, pods, pre_check))
            return
        if len(self._queues.unschedulable):
            self._slices.begin(self._event_moves.deletions(pods, plan, pre_check))
        elif len(self._in_flight):
            for pod in pods:
                self._in_flight.record(plan, pod, None)

    def end_nomination(self, pod: Pod) -> None:
        """Forget a pod's nomination while it waits. A held pod may be held no longer after that."""
        self.nominator.delete(pod)
        if self._slices.busy:
            self._slices.defer(partial(self._queues.unschedulable.file_again, pod.key))
        else:
            self._queues.unschedulable.file_again(pod.key)

    def offer_room(self, pod: Pod, node_name: str) -> None:
        """Requeue the pods that a pod's nomination, which has ended, kept away from a node.

        The nominated pod itself is left out: its own nomination never kept it from a node. Upstream includes the nominated
        pod. There, a pod is tried without a pause if each attempt nominates it and the next attempt rejects it. Upstream
        requeues no pod if the pod was bound, or is to be bound, to another node, or if the nomination was in memory only.
        """
        priority, uid = pod.priority, pod.uid
        freed = nominated_to(pod, node_name)  # the hint functions read the status
        self.move_after_deletions((freed,), lambda other: other.priority <= priority and other.uid != uid)

    def activate(self, pods: Mapping[str, Pod]) -> None:
        """Move these pods to the active queue at once, even if they are in backoff. PreEnqueue may still gate them.

        For a pod in flight the request is recorded, so that the pod is tried again if it is rejected.
        """
        if self._slices.busy:
            self._slices.defer(partial(self.activate, dict(pods)))
        else:
            self._slices.begin(self._activate(list(pods.values())))

    def _activate(self, pods: list[Pod]) -> Steps[None]:
        activated = False
        for pod in pods:
            if self._moves.activate(pod.key):
                activated = True
            elif pod.uid in self._in_flight:
                self._in_flight.record(self._hints.plan(FORCE_ACTIVATE), None, pod)
            yield
        if activated:
            self._waiters.notify()

    # -- what the cycle calls --------------------------------------------------------------------------

    def pop_nowait(self, *, apart: bool = False) -> QueuedPodInfo | None:
        """Pop the first pod and mark it in flight; None when no pod can be popped now.

        When no pod is active, the pod whose backoff ends first is taken early. A pod after an error is never taken
        early. ``apart``: pop one of the pods apart, which other calls never pop. No pod can be popped while a long
        operation is under way.
        """
        if self._slices.moving:
            return None
        while True:
            record = self._queues.active.pop(apart=apart) or self._moves.pop_early(apart=apart)
            if record is None or self._mark_in_flight(record):
                return record

    async def wait_pop(self, *, apart: bool = False) -> QueuedPodInfo | None:
        """Like :meth:`pop_nowait`, but wait for a pod; None only when the queue is closed and has no pod left."""
        while True:
            record = self.pop_nowait(apart=apart)
            if record is not None or self._closed:
                return record
            await self._waiters.wait()

    def pop_specific(self, pod: Pod) -> QueuedPodInfo | None:
        """Activate and pop this very pod; None when it is unknown, gated or in flight already."""
        self._slices.settle()
        key = pod.key
        self._moves.activate(key)
        record = self._queues.active.remove(key)
        if record is None:
            return None
        return record if self._mark_in_flight(record) else None

    def _mark_in_flight(self, record: QueuedPodInfo) -> bool:
        record.attempts += 1
        if record.has_rejectors:
            self._moves.count_rejectors(record, -1)
        if not self._in_flight.add(record.uid, record):
            _log.error(
                "Discarding the popped pod: the same pod is tracked in multiple places in the scheduler: %s", record.key
            )
            return False
        self._scheduling_cycle += 1
        return True

    def is_in_flight(self, uid: str) -> bool:
        """Return True if the pod was popped and its attempt is not over."""
        return uid in self._in_flight

    def done(self, uid: str) -> None:
        """Note that the attempt for a pod is over and the pod is not given back. A repeated call has no effect."""
        if self._slices.busy:
            self._slices.defer(partial(self._in_flight.done, uid))
        else:
            self._in_flight.done(uid)

    def add_unschedulable_if_not_present(self, queued: QueuedPodInfo, pod_scheduling_cycle: int) -> None:
        """Give back a pod whose attempt failed, with the plugins that rejected it filled in.

        The events since its Pop decide its sub-queue. ``pod_scheduling_cycle`` is part of upstream's signature; with
        queueing hints it decides nothing. In any case the pod is no longer in flight afterwards.

        Raises:
            QueueError: when the pod's name is queued already; nothing else has changed then. If the call has to wait
                for an operation that is under way, the error is logged instead of raised.
        """
        if self._slices.busy:
            self._slices.defer(partial(self.add_unschedulable_if_not_present, queued, pod_scheduling_cycle))
            return
        key, uid = queued.key, queued.uid
        requeued = False
        try:
            if place := self._queues.place_of(key):
                raise QueueError(f"Pod {key} is already present in {place}")
            if queued.has_rejectors:
                queued.unschedulable_count += 1
                queued.consecutive_errors_count = 0
            else:
                queued.consecutive_errors_count += 1
            queued.timestamp = self._clock.now()
            queued.backoff_expiration = None
            queued.was_flushed_from_unschedulable = False
            self._moves.count_rejectors(queued, 1)
            strategy = self._strategy_of_returning(queued, uid)
            requeued = self._moves.requeue(key, queued, strategy, SCHEDULE_ATTEMPT_FAILURE)
        finally:
            self._in_flight.done(uid)
        if requeued:
            self._waiters.notify()

    def _strategy_of_returning(self, record: QueuedPodInfo, uid: str) -> Strategy:
        """Return the strategy for a pod after the events since its Pop (rules/queue §8.3)."""
        if not record.has_rejectors:
            return Strategy.AFTER_BACKOFF
        if uid not in self._in_flight:
            _log.error("Pod %s was given back but was not in flight", record.key)
            return Strategy.AFTER_BACKOFF
        return self._hints.strategy_after(record, self._in_flight.events_since_pop(uid))

    @property
    def scheduling_cycle(self) -> int:
        """Number of pods that were popped so far."""
        return self._scheduling_cycle

    # -- time ------------------------------------------------------------------------------------------

    def flush_backoff_completed(self) -> None:
        """Move pods whose backoff is over to the active queue. To be called each whole second."""
        if self._slices.busy:
            self._slices.defer(self.flush_backoff_completed)
        else:
            self._slices.begin(self._complete_backoff())

    def _complete_backoff(self) -> Steps[None]:
        moved = False
        for _ in self._moves.complete_backoff():
            moved = True
            yield
        if moved:
            self._waiters.notify()

    def flush_unschedulable_leftover(self) -> None:
        """Requeue pods that have waited too long for an event, a part if they are many; gated pods stay.

        To be called every 30 seconds, and soon again while such pods are left.
        """
        if self._slices.busy:
            self._slices.defer(self.flush_unschedulable_leftover)
            return
        pairs = self._leftovers.take(self._clock.now())
        if not pairs:
            return
        for _, record in pairs:
            record.was_flushed_from_unschedulable = True
        self._slices.begin(self._event_moves.timeout(pairs, self._hints.plan(UNSCHEDULABLE_TIMEOUT)))

    async def run(self) -> None:
        """Run both flush loops, and operations in slices, until :meth:`close`."""
        if not self._closed:
            await self._loops.run()

    def next_timer(self) -> float | None:
        """Return the next time at which a flush could move a pod: see :meth:`.flushing.FlushLoops.next_timer`."""
        return self._loops.next_timer()

    def close(self) -> None:
        """Stop the flush loops, forget the pods in flight, and wake every waiter. A second call has no effect.

        Pods that are still in the queue can be popped.
        """
        if self._closed:
            return
        self._slices.end()
        self._closed = True
        self._loops.cancel()
        for uid in self._in_flight.uids():
            self._in_flight.done(uid)
        self._waiters.notify()
