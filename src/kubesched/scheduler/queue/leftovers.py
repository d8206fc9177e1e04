"""Leftover pods: they have waited too long for an event, and are tried without one, as a safety net.

Upstream tries all of them every five minutes. When 100,000 equal pods wait, that is one attempt in vain after the other, and
a pod that just came stands behind them. Here a part of them is tried at once. Two pods are *alike* if deletions can help
only both of them (:mod:`..framework.holding`), and if all filters know the same of them. Then an attempt ends for both in
the same way. So when a pod of that part is back, rejected, a pod that is alike need not be tried:

* It takes over the time of the attempt, and the plugins whose events may help it.
* It is tried itself when it has its turn, so that its condition and its event do not grow old. About 30 pods have their
  turns in a second.

If the first pod found a node or is gone, or if deletions may help it otherwise, the others are tried as fast as before.

Used by :class:`.scheduling_queue.SchedulingQueue`. Source: rules/queue §7; differences are declared in ``docs/differences.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Final

from ..framework.queued import QueuedPodInfo
from ..nodes.podinfo import PodInfo
from .in_flight import InFlight
from .nominator import Nominator
from .sub_queues import SubQueues
from .unschedulable import Parked

__all__ = ["MOST_AT_ONCE", "PART_PERIOD", "KindOf", "Leftovers"]

#: Function that returns a key of all that the filters know of a pod; None if no key says so much.
KindOf = Callable[[PodInfo], Hashable | None]

#: Most pods that are tried at once; they come before pods that arrived later.
MOST_AT_ONCE: Final = 500
#: Seconds until the next part is tried.
PART_PERIOD: Final = 0.5
#: Most pods at whose place a part looks, so that the event loop is not held.
_LOOKED_AT: Final = 2_000
#: Most pods in a part that only have their turn, because a pod that just came waits for them; more if very many wait.
_TURNS_AT_ONCE: Final = 20
_WAITING_PER_TURN: Final = 4_000
#: Seconds between two turns, at most.
_TURN: Final = 1 / 30
#: Seconds in which each pod has a turn. The API server forgets its event after an hour.
_ROUND: Final = 3_000.0
#: Seconds for which a pod waits for the result of a pod that is alike.
_AWAIT: Final = 30.0
#: Seconds for which a pod is overdue that is left for the next part. Others that are overdue come before it.
_OVERDUE: Final = 0.001
#: Most kinds of pods that are remembered; at this number all are forgotten.
_MOST_KINDS: Final = 4_096


class Leftovers:
    """Choice of the leftover pods that are tried now."""

    def __init__(
        self,
        queues: SubQueues,
        in_flight: InFlight,
        nominator: Nominator,
        limit: float,
        kind_of: KindOf,
        count_rejectors: Callable[[QueuedPodInfo, int], None],
    ) -> None:
        """``limit``: seconds without an event after which a pod is left over.

        ``count_rejectors`` counts the plugins that rejected a pod in a metric, or counts them no longer (:meth:`.Moves.count_rejectors`).
        """
        self._count_rejectors = count_rejectors
        self._queues = queues
        self._in_flight = in_flight
        self._nominator = nominator
        self._limit = limit
        self._kind_of = kind_of
        #: Pod of each kind that was tried last.
        self._tried: dict[Hashable, QueuedPodInfo] = {}
        #: Results of pods that were tried, by kind, within one call.
        self._results: dict[Hashable, Parked | float] = {}
        self._next_turn = 0.0

    def take(self, now: float) -> list[tuple[str, QueuedPodInfo]]:
        """Return the pods to be tried now, in order of arrival. The others that are left over wait on."""
        waiting = self._queues.unschedulable
        chosen: list[Parked] = []
        left: list[Parked] = []
        tried: dict[Hashable, QueuedPodInfo] = {}
        self._results.clear()
        turns = max(_TURNS_AT_ONCE, len(waiting) // _WAITING_PER_TURN)
        for parked in islice(waiting.overdue(now, self._limit), _LOOKED_AT):
            if turns <= 0 and parked.turn is not None and parked.turn <= now:
                left.append(parked)
                continue
            kind = self._kind(parked)
            wait = self._wait(parked, kind, now)
            if wait > 0.0:
                waiting.postpone(parked, now + wait - self._limit)
            else:
                turns -= parked.turn is not None
                chosen.append(parked)
                tried[kind] = parked.record
            if len(chosen) == MOST_AT_ONCE:
                break
        for parked in chosen:
            waiting.postpone(parked, parked.since)  # it is here until it is moved
        for parked in left:
            waiting.postpone(parked, now - self._limit - _OVERDUE)
        tried.pop(None, None)
        if len(self._tried) + len(tried) > _MOST_KINDS:
            self._tried.clear()
        self._tried.update(tried)
        return waiting.in_order([*chosen, *waiting.gated_older_than(now, self._limit)])

    def _kind(self, parked: Parked) -> Hashable | None:
        """Return a key that is equal for pods that are alike; None if an attempt may end in another way for any other pod."""
        record = parked.record
        if parked.held is None or self._nominator.node_of(record.uid):
            return None
        kind = self._kind_of(record.pod_info)
        return None if kind is None else (parked.held[:2], kind)

    def _wait(self, parked: Parked, kind: Hashable | None, now: float) -> float:
        """Return for how many seconds a pod waits on; 0 to try it now. Its ``turn`` is None if its attempt may end in any way."""
        if kind not in self._results:
            self._results[kind] = self._result(kind, now)
        rejected = self._results[kind]
        if isinstance(rejected, float):
            parked.turn = parked.turn if rejected else None
            return rejected
        if parked.turn is None:
            spacing = min(_TURN, _ROUND / len(self._queues.unschedulable))
            self._next_turn = parked.turn = max(self._next_turn, now) + spacing
        if parked.turn <= now:
            return 0.0
        self._take_over(parked, rejected)
        return min(parked.turn - now, self._limit)

    def _result(self, kind: Hashable | None, now: float) -> Parked | float:
        """Return the rejected pod whose result holds for all pods of a kind now; or the seconds to wait for it, 0 if there is none."""
        other = self._tried.get(kind)
        if other is None:
            return 0.0
        rejected = self._queues.unschedulable.parked(other)
        if rejected is None:
            return _AWAIT if self._is_under_way(other) else 0.0
        is_old = now - rejected.record.timestamp > self._limit
        return 0.0 if is_old or self._kind(rejected) != kind else rejected

    def _take_over(self, parked: Parked, rejected: Parked) -> None:
        """Give a pod the result of an attempt of a pod that is alike."""
        record, other = parked.record, rejected.record
        parked.stamp = record.timestamp = max(record.timestamp, other.timestamp)
        if parked.held != rejected.held:
            self._count_rejectors(record, -1)
            record.unschedulable_plugins = set(other.unschedulable_plugins)
            self._count_rejectors(record, 1)
            self._queues.unschedulable.file_again(parked.key)

    def _is_under_way(self, record: QueuedPodInfo) -> bool:
        """True if the attempt of a pod that was chosen is still to come, or not over."""
        return record.uid in self._in_flight or self._queues.get(record.key) is record
