"""Moves of waiting pods because of events, in steps (see :mod:`.slices`).

An event is evaluated for each pod that it may help, in the pods' order of arrival. The pods that the event helps are
requeued. The queue is consistent between two steps.

Used by :class:`.scheduling_queue.SchedulingQueue`. Source: rules/queue §7, §10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from kubesched.api.types import Node, Pod
from kubesched.base.turns import Steps

from ..framework.queued import QueuedPodInfo
from .in_flight import InFlight
from .moves import Moves
from .nominator import Nominator
from .queueing_hints import EventPlan, Hints, Strategy
from .sub_queues import SubQueues

__all__ = ["EventMoves"]

#: (key, record) of pods, in the order of their arrival.
_Pairs: TypeAlias = Iterable[tuple[str, QueuedPodInfo]]
_PreCheck: TypeAlias = Callable[[Pod], bool] | None

#: Pods that are evaluated in one step.
_STEP: Final = 16


class EventMoves:
    """Moves of waiting pods because of events. ``notify`` is called when a moved pod can be popped, now or later."""

    __slots__ = ("_hints", "_in_flight", "_moves", "_nominator", "_notify", "_waiting")

    def __init__(
        self,
        queues: SubQueues,
        moves: Moves,
        hints: Hints,
        nominator: Nominator,
        in_flight: InFlight,
        notify: Callable[[], None],
    ) -> None:
        self._waiting = queues.unschedulable
        self._moves = moves
        self._hints = hints
        self._nominator = nominator
        self._in_flight = in_flight
        self._notify = notify

    def candidates(self, plan: EventPlan, old: Any, new: Any) -> list[tuple[str, QueuedPodInfo]]:
        """Return the pods that an event may help."""
        waiting, keys = self._waiting, partial(plan.keys, old, new)
        if plan.wildcard:
            return waiting.pairs()
        if isinstance(new, Node):
            name = new.metadata.name
            return waiting.candidates_on_node(plan.rejectors, name, self._nominator.nominated_keys(name), keys)
        return waiting.candidates(plan.rejectors, keys)

    def event(self, pairs: _Pairs, plan: EventPlan, old: Any, new: Any, pre_check: _PreCheck = None) -> Steps[None]:
        """Requeue the pods among ``pairs`` that an event helps, and record the event for pods in flight."""
        yield from self._move(pairs, plan, old, new, pre_check)
        if len(self._in_flight):
            self._in_flight.record(plan, old, new)

    def timeout(self, pairs: _Pairs, plan: EventPlan) -> Steps[None]:
        """Requeue pods that have waited too long, and record that as an event."""
        yield from self._move(pairs, plan, None, None)
        if len(self._in_flight):
            self._in_flight.record(plan, None, None)

    def deletions(self, pods: Sequence[Pod], plan: EventPlan, pre_check: _PreCheck) -> Steps[None]:
        """Requeue the pods that deletions of pods help.

        :meth:`.scheduling_queue.SchedulingQueue.move_after_deletions` has the rules.
        """
        waiting, in_flight = self._waiting, self._in_flight
        same_node: list[Pod] = []
        for pod, following in zip_longest(pods, pods[1:]):
            yield
            node = pod.spec.node_name
            is_last = following is None or following.spec.node_name != node
            same_node.append(pod)
            if len(waiting):
                if node and is_last:
                    yield from self._after_last(same_node, plan, pre_check)
                else:
                    find = waiting.candidates_not_held if node else waiting.candidates
                    if pairs := find(plan.rejectors, partial(plan.keys, pod, None)):
                        yield from self._move(pairs, plan, pod, None, pre_check)
            if is_last:
                same_node.clear()
            if len(in_flight):
                in_flight.record(plan, pod, None)

    def _after_last(self, pods: Sequence[Pod], plan: EventPlan, pre_check: _PreCheck) -> Steps[None]:
        """Requeue the pods that the last of several deletions on one node helps.

        The earlier deletions were evaluated for all pods except held ones. Held pods are first evaluated for the last
        deletion. If it does not help them, they are evaluated for the earlier deletions.
        """
        *others, last = pods
        waiting, node = self._waiting, last.spec.node_name
        nominated = self._nominator.nominated_keys(node)
        held = waiting.held(nominated) if others else {}
        pairs = waiting.candidates_on_node(plan.rejectors, node, nominated, partial(plan.keys, last, None))
        if others:
            still = waiting.held(nominated)
            held = {key: record for key, record in held.items() if key not in still}
            held |= waiting.held([key for key, _ in pairs])
        if pairs:
            yield from self._move(pairs, plan, last, None, pre_check)
        for other in others:
            if not (left := [(key, record) for key, record in held.items() if waiting.get(key) is record]):
                break
            yield from self._move(left, plan, other, None, pre_check)

    def _move(self, pairs: _Pairs, plan: EventPlan, old: Any, new: Any, pre_check: _PreCheck = None) -> Steps[None]:
        """Requeue the pods among ``pairs`` for which the hint functions say so. ``pre_check`` False skips a pod."""
        waiting, strategy_of, requeue = self._waiting, self._hints.strategy, self._moves.requeue
        label, plugins = plan.label, plan.plugins
        moved, left = False, _STEP
        for key, record in pairs:
            left -= 1
            if not left:
                yield
                left = _STEP
            if pre_check is not None and not pre_check(record.pod_info.pod):
                continue
            if record.gating_plugin and record.gating_plugin not in plugins:
                continue
            strategy = strategy_of(record, plan, old, new)
            if strategy is not Strategy.SKIP:
                waiting.remove(key)
                moved |= requeue(key, record, strategy, label)
        if moved:
            self._notify()
