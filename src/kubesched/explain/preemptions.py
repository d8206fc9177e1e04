"""Preemptions as reports: victims, node and preemptor, and why other nodes were not chosen."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final

from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.preemption import Candidate, Preemption
from kubesched.scheduler.plugins.preemption.choose import criteria
from kubesched.scheduler.scheduler import Scheduler

from .records.preempted import FirstOfSecond
from .report import Criteria, LostCandidate, PreemptionReport

__all__ = ["PreemptionMemory", "preemption_report"]

#: Most lost candidates that are listed, except that each kind of reason is listed at least once.
_MOST: Final = 8


def preemption_report(preemption: Preemption, at: float, now: float, *, brief: bool = False) -> PreemptionReport:
    """Return the report of a preemption: ``at`` is its time in the report, ``now`` the scheduler's time.

    A ``brief`` report leaves out the other nodes. Call it when the preemption is reported: it reads data that exists
    only then.
    """
    lost = [] if brief else list(preemption.others())
    kinds = {why: place for place, (_, why) in reversed(list(enumerate(lost)))}
    shown = sorted({*kinds.values(), *range(min(_MOST, len(lost)))})
    rejected = {} if brief else preemption.rejected()
    reasons = Counter(reason for status in rejected.values() for reason in status.reasons())
    chosen = preemption.chosen
    return PreemptionReport(
        pod=preemption.pod.key,
        priority=preemption.pod.priority,
        node=chosen.node_name,
        victims=[pod.key for pod in chosen.victims.pods],
        budget_violations=chosen.victims.pdb_violations,
        at=at,
        criteria=_criteria(chosen, now),
        budgets=list(preemption.budgets()) if chosen.victims.pdb_violations else [],
        candidates=1 + len(lost),
        lost=[
            LostCandidate(
                node=candidate.node_name,
                victims=[pod.key for pod in candidate.victims.pods],
                budget_violations=candidate.victims.pdb_violations,
                why=why,
                criteria=_criteria(candidate, now),
            )
            for candidate, why in (lost[place] for place in shown)
        ],
        not_helpful=dict(sorted(reasons.items())),
    )


def _criteria(candidate: Candidate, now: float) -> Criteria:
    violations, highest, priorities, victims, start = criteria(candidate, now)
    return Criteria(
        budget_violations=violations,
        highest_priority=highest,
        priority_sum=priorities,
        victims=victims,
        earliest_start=start,
    )


class PreemptionMemory(AttemptObserver):
    """Memory of the last preemptions, as reports; only the :class:`FirstOfSecond` list the nodes that lost."""

    def __init__(self, capacity: int = 1000) -> None:
        """The oldest of ``capacity`` reports makes room for a new one."""
        self._now: Callable[[], float] = lambda: 0.0
        self._kept: deque[PreemptionReport] = deque(maxlen=capacity)
        self._first = FirstOfSecond()

    def attach(self, scheduler: Scheduler) -> None:
        """Tell the time by a scheduler's clock. Call it before the scheduler starts."""
        self._now = scheduler.clock.now

    def preempted(self, preemption: Preemption) -> None:
        now = self._now()
        self._kept.append(preemption_report(preemption, now, now, brief=not self._first.take(now)))

    def __iter__(self) -> Iterator[PreemptionReport]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)
