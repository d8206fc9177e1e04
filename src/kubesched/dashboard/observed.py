"""Observer of a live scheduler's attempts, for the dashboard: bindings, preemptions, waits, and the lives of pods.

Everything is bounded. While no page is open, only counts, waits and the last events of pods are kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from kubesched.api.requests import Resources
from kubesched.scheduler.core.attempt import Attempt
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.preemption import Preemption
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nominating import NominatingInfo

__all__ = ["Observed", "PodEvent"]

#: Most bindings and preemptions that a change lists, and most victims of one preemption.
_MOST_BOUND: Final = 100
_MOST_PREEMPTED: Final = 50
_MOST_VICTIMS: Final = 20
#: Most waits of one second that percentiles are made of.
_MOST_WAITS: Final = 2000
#: Attempts whose requests are remembered.
_MOST_REQUESTS: Final = 1000
#: Most events of pods that are remembered.
_MOST_EVENTS: Final = 20_000
#: Events after which the nodes are others than before.
_LASTING: Final = ("bound", "preempts")


class PodEvent(NamedTuple):
    """Event of a pod. ``what`` is ``bound``, ``rejected``, ``failed`` or ``preempts``; ``pod`` is ``namespace/name``.

    ``by`` are the plugins that rejected it, or its victims.
    """

    uid: str
    pod: str
    at: float
    what: str
    node: str
    by: frozenset[str] | tuple[str, ...] = ()
    #: Number of the pod's attempts so far.
    attempt: int = 0


class Observed(AttemptObserver):
    """Events since the last looks.

    Attributes:
        listed: True while pages listen, so that bindings and preemptions are listed.
        bound, failed: numbers of attempts that ended so, ever.
    """

    def __init__(self) -> None:
        self._now: Callable[[], float] = lambda: 0.0
        self.listed = False
        self.bound = 0
        self.failed = 0
        self._bindings: list[tuple[str, str]] = []
        self._bound_count = 0
        self._preemptions: list[tuple[str, str, list[str]]] = []
        self._preempted_count = 0
        self._waits: list[float] = []
        #: Requests of the last attempts, for fragmentation.
        self._requests: deque[Resources] = deque(maxlen=_MOST_REQUESTS)
        self._events: deque[PodEvent] = deque(maxlen=_MOST_EVENTS)

    def attach(self, now: Callable[[], float]) -> None:
        """Tell the time by ``now``. Call it before the scheduler starts."""
        self._now = now

    # -- observing -----------------------------------------------------------------------------------------

    def preempted(self, preemption: Preemption) -> None:
        chosen, pod, now = preemption.chosen, preemption.pod, self._now()
        victims = tuple(victim.key for victim in chosen.victims.pods[:_MOST_VICTIMS])
        self._events.append(PodEvent(pod.uid, pod.key, now, "preempts", chosen.node_name, victims))
        if self.listed:
            self._preempted_count += 1
            if len(self._preemptions) < _MOST_PREEMPTED:
                self._preemptions.append((pod.key, chosen.node_name, list(victims)))

    def ended(self, attempt: Attempt, failure: Status | Rejection | None, nominating: NominatingInfo | None) -> None:
        queued, now = attempt.queued, self._now()
        self._requests.append(queued.pod_info.requests)
        pod = queued.pod_info.pod
        if failure is None:
            self.bound += 1
            self._events.append(
                PodEvent(pod.metadata.uid, pod.key, now, "bound", attempt.node_name, (), queued.attempts)
            )
            if len(self._waits) < _MOST_WAITS:
                first = queued.initial_attempt_timestamp
                since = queued.timestamp if queued.attempts <= 1 or first is None else first
                self._waits.append(now - since)
            if self.listed:
                self._bound_count += 1
                if len(self._bindings) < _MOST_BOUND:
                    self._bindings.append((pod.key, attempt.node_name))
            return
        self.failed += 1
        what, by = "failed", frozenset({getattr(failure, "plugin", "")})
        if isinstance(failure, Rejection):
            what, by = "rejected", failure.diagnosis.unschedulable_plugins | failure.diagnosis.pending_plugins
        self._events.append(PodEvent(pod.metadata.uid, pod.key, now, what, attempt.node_name, by, queued.attempts))

    # -- looking -------------------------------------------------------------------------------------------

    def take_listed(self) -> tuple[list[tuple[str, str]], int, list[tuple[str, str, list[str]]], int]:
        """Return the bindings as (pod, node) and their count, the preemptions as (pod, node, victims) and their count."""
        found = self._bindings, self._bound_count, self._preemptions, self._preempted_count
        self._bindings, self._bound_count, self._preemptions, self._preempted_count = [], 0, [], 0
        return found

    def take_waits(self) -> list[float]:
        """Return seconds from the queue to the binding, sorted."""
        waits, self._waits = self._waits, []
        return sorted(waits)

    def requests(self) -> Counter[tuple[int, int, int, tuple[tuple[str, int], ...]]]:
        """Return the requests of the last attempts, as :meth:`~kubesched.api.requests.Resources.as_tuple`, with their counts."""
        return Counter(one.as_tuple() for one in self._requests)

    def events_of(self, uid: str) -> list[PodEvent]:
        """Return what is remembered of a pod, in the order of time."""
        return [event for event in self._events if event.uid == uid]

    def between(self, start: float, end: float, most: int) -> list[PodEvent]:
        """Return the bindings and preemptions that are remembered of a time, in the order of time; the last ``most``."""
        wanted = (each for each in reversed(self._events) if start <= each.at <= end and each.what in _LASTING)
        return list(islice(wanted, most))[::-1]
