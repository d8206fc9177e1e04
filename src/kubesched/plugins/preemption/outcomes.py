"""The fast dry run: for all nodes at once, and remembered for preemptors that are alike.

It applies when nothing but the amounts of resources that pods request can change a filter's answer: the filters that
read a node's pods are inactive, or offer ``fit_amounts``. Then

* one vector pass says which nodes hold the pod when everything of lower priority has left, nominated pods counted;
* on the candidates, in the order of the plain procedure, pods come back in plain integers;
* victims, and what candidates are compared by, are kept by row until the row's pods or nominations change.

The result is that of the plain procedure (:mod:`.dry_run`), which is used for everything else, and for the texts.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kubesched.cache import NodeTable
from kubesched.cache.columns import IntpArray, RowArray
from kubesched.cache.lower_priority import LowerPriority, LowerPriorityColumns
from kubesched.cache.node_table import CPU_ROW, MEMORY_ROW, PODS_ROW
from kubesched.cache.nominated_rows import NominatedPods, NominatedRows, requested_by
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.entries import FilterEntry, PluginFailedError
from kubesched.framework.interface import Handle
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.preemption import Candidate, Victims
from kubesched.framework.status import Status

from .budgets import Budget, split_by_budgets
from .choose import PER_VICTIM
from .dry_run import NO_VICTIMS, DryRun
from .importance import importance, latest_start, start_of

__all__ = ["FastDryRuns", "Question"]

#: (resource index, amount): what the pod needs.
_Amounts = tuple[tuple[int, int], ...]

#: Beyond this, sums might not be exact in 64 bits: such quantities are left to the plain procedure.
_HUGE: Final = 1 << 60
#: So many kinds of preemptors are remembered.
_MOST: Final = 16


class Question:
    """One pod's dry run, where the fast way applies.

    Attributes:
        amounts: what the pod needs.
        others: the filters that depend on the node alone.
    """

    def __init__(self, state: CycleState, pod: PodInfo, amounts: _Amounts, others: Sequence[FilterEntry]) -> None:
        self.state = state
        self.pod = pod
        self.amounts = amounts
        self.others = others

    @classmethod
    def of(cls, handle: Handle, state: CycleState, pod: PodInfo) -> Question | None:
        """None when it takes the plain procedure."""
        framework, table = handle.framework, handle.snapshot.table
        if framework.has_active_extensions(state):
            return None
        amounts: list[tuple[int, int]] = []
        others = []
        for entry in framework.filters:
            if entry.name in state.skip_filter:
                continue
            if entry.can_sign and not entry.reads_pods:
                others.append(entry)
                continue
            fit = getattr(entry.plugin, "fit_amounts", None)
            wanted = fit(state, pod, table) if fit is not None else None
            if wanted is None:
                return None
            amounts += wanted
        if not amounts or any(amount >= _HUGE for _, amount in amounts):
            return None
        return cls(state, pod, tuple(amounts), others)


class _Outcomes:
    """What alike preemptors would do to each row.

    Attributes:
        known: bool[capacity]; the other columns hold.
        victims: by row.
        criteria: float64[4, capacity]; what candidates are compared by first, in order; the least wins.
        earliest: float64[capacity]; the earliest start of the most important victims that have started, else infinity.
        unstarted: bool[capacity]; one of them has not started, which counts as now.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._position: int | None = None
        self._nominated: int | None = None
        self.victims: dict[int, Victims] = {}
        self.known = np.zeros(0, np.bool_)
        self.criteria: npt.NDArray[np.float64] = np.zeros((4, 0))
        self.earliest: npt.NDArray[np.float64] = np.zeros(0)
        self.unstarted = np.zeros(0, np.bool_)
        #: Rows to forget the next time.
        self.volatile: list[int] = []

    def refresh(self, nominated: NominatedPods) -> None:
        """Forget the rows whose pods or nominations changed."""
        table = self._table
        if len(self.known) != table.capacity:
            self._position = None
            self.known = np.zeros(table.capacity, np.bool_)
            self.criteria = np.zeros((4, table.capacity))
            self.earliest = np.zeros(table.capacity)
            self.unstarted = np.zeros(table.capacity, np.bool_)
        changed = table.journal.since(self._position) if self._position is not None else None
        renominated = nominated.log.since(self._nominated) if self._nominated is not None else None
        self._position, self._nominated = table.journal.position, nominated.log.position
        if changed is None or renominated is None:
            self.known[:] = False
            self.victims.clear()
        else:
            if changed:
                self.known[[entry >> 1 for entry in changed]] = False
            if renominated:
                self.known[renominated] = False
            if self.volatile:
                self.known[self.volatile] = False
        self.volatile.clear()


class FastDryRuns:
    """Fast dry runs of one profile."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        table = handle.snapshot.table
        self._table = table
        self._lower = LowerPriority(table)
        self._nominated: NominatedRows | None = None
        self._kept: OrderedDict[Any, _Outcomes] = OrderedDict()

    def run(
        self, question: Question, rows: RowArray, wanted: int, budgets: Sequence[Budget], plain: DryRun
    ) -> FastFound | None:
        """Try ``rows`` in this order until ``wanted`` candidates are found; None when the plain procedure must be used."""
        if self._nominated is None:
            self._nominated = NominatedRows(self._table, self._handle.nominations)
        pod, priority = question.pod, question.pod.priority
        lower = self._lower.of(priority)
        nominated = self._nominated.of(priority)
        try:
            spare, reasons = self._spare(question, rows, lower, nominated)
        except PluginFailedError:
            return None  # the plain procedure meets it again, for this node and no other
        if spare is None:
            return None
        found = FastFound(self._table, plain)
        counts = lower.amounts[PODS_ROW, rows]
        fits = (counts > 0) & (reasons == 0)
        found.rows_without_victims = rows[counts == 0]
        failing = (counts > 0) & (reasons != 0)
        if failing.any():
            found.failing = (rows[failing], reasons[failing])
        where = np.flatnonzero(fits)
        if not len(where):
            return found
        # With budgets, the same row may have another outcome the next time: nothing is kept then.
        outcomes = self._outcomes(question, nominated) if not budgets else _fresh(self._table, nominated)
        own = nominated.row_of.get(pod.uid)  # where its own nomination does not count
        now = self._handle.clock.now()

        def evaluate(part: IntpArray) -> None:
            unknown = part[~outcomes.known[rows[part]]]
            if len(unknown):
                self._reprieve(outcomes, rows[unknown], question, spare[:, unknown].T.tolist(), lower, budgets, now)

        if own is not None:
            outcomes.known[own] = False
            outcomes.volatile.append(own)
        taken: IntpArray = where[:wanted]
        evaluate(taken)
        if budgets:
            taken = self._enough(outcomes, rows, where, wanted, evaluate)
        found.outcomes, found.rows = outcomes, rows[taken]
        return found

    def _outcomes(self, question: Question, nominated: NominatedPods) -> _Outcomes:
        key = (question.pod.priority, question.amounts)
        outcomes = self._kept.get(key)
        if outcomes is None:
            outcomes = self._kept[key] = _Outcomes(self._table)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        outcomes.refresh(nominated)
        return outcomes

    def _spare(
        self, question: Question, rows: RowArray, lower: LowerPriorityColumns, nominated: NominatedPods
    ) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64]]:
        """What is left on each row for each amount once everything lower has left and the pod has come.

        int64[amounts, rows]; and int64[rows]: 0 where it fits, else a number for the way in which it does not. The first
        is None when quantities are too large for this.
        """
        table = self._table
        spare = np.empty((len(question.amounts), len(rows)), np.int64)
        coming = nominated.amounts() if nominated.pods else None
        own = nominated.row_of.get(question.pod.uid)
        at_own = np.flatnonzero(rows == own) if own is not None else None
        mine = (
            requested_by([each for each in nominated.pods.get(own, ()) if each.uid == question.pod.uid], table)
            if own is not None
            else []
        )
        bits = np.zeros(len(rows), np.int64)
        for number, (index, amount) in enumerate(question.amounts):
            capacity, used = table.allocatable[index, rows], table.requested[index, rows]
            leaving = lower.amounts[index, rows]
            most = max(capacity.max(initial=0), used.max(initial=0), leaving.max(initial=0))
            if int(most) >= _HUGE or (coming is not None and int(coming[index].max(initial=0)) >= _HUGE):
                return None, bits
            left = spare[number]
            np.subtract(capacity, used, out=left)
            left += leaving
            if coming is not None:
                left -= coming[index, rows]
                if at_own is not None:
                    left[at_own] += mine[index]
            left -= amount
            bits |= (left < 0).astype(np.int64) << (2 * number)
            bits |= (amount > capacity).astype(np.int64) << (2 * number + 1)
        distinct = 2 * len(question.amounts)
        for entry in question.others:
            verdicts = entry.many(question.state, question.pod, table, rows)
            if verdicts.any():
                # Any way of failing gets a number of its own; the same numbers have the same text.
                _, codes = np.unique(verdicts, return_inverse=True)
                codes = np.where(verdicts != 0, codes.astype(np.int64) + 1, 0)
                width = int(codes.max()).bit_length()
                if distinct + width > 62:
                    return None, bits
                bits |= codes << distinct
                distinct += width
        return spare, bits

    def _reprieve(
        self,
        outcomes: _Outcomes,
        rows: RowArray,
        question: Question,
        spare: list[list[int]],
        lower: LowerPriorityColumns,
        budgets: Sequence[Budget],
        now: float,
    ) -> None:
        """On each row return pods, the most important first, while they fit; the rest are the victims.

        ``spare``: per row, what is left of each amount.
        """
        needs = _needs(question, list(self._table.resource_index))
        criteria: list[tuple[float, ...]] = []
        for row, left in zip(rows.tolist(), spare, strict=True):
            ordered, latest = lower.pods(row, _ordered)
            if latest > now:
                ordered = sorted(ordered, key=lambda each: importance(each, now))
                outcomes.volatile.append(row)
            violating, others = split_by_budgets(ordered, budgets) if budgets else ([], ordered)
            victims: list[PodInfo] = []
            violations = 0
            for group in (violating, others) if violating else (others,):
                for pod in group:
                    amounts = needs(pod)
                    for place, amount in enumerate(amounts):
                        if amount > left[place]:
                            victims.append(pod)
                            violations += group is violating
                            break
                    else:
                        for place, amount in enumerate(amounts):
                            left[place] -= amount
            if violating and others:
                victims.sort(key=lambda each: importance(each, now))
            outcomes.victims[row] = Victims(tuple(victims), violations)
            criteria.append(_criteria(victims, violations))
        found = np.array(criteria).T
        outcomes.criteria[:, rows] = found[:4]
        outcomes.earliest[rows] = found[4]
        outcomes.unstarted[rows] = found[5] != 0
        outcomes.known[rows] = True

    def _enough(self, outcomes: _Outcomes, rows: RowArray, where: IntpArray, wanted: int, evaluate: Any) -> IntpArray:
        """Go on beyond the first rows until a candidate violates no budget; what the plain procedure would have kept."""
        kept: list[int] = []
        clean = dirty = 0
        for place in where.tolist():
            if not outcomes.known[rows[place]]:
                evaluate(np.array([place], np.intp))
            if outcomes.victims[int(rows[place])].pdb_violations:
                if dirty < wanted:
                    dirty += 1
                    kept.append(place)
            else:
                clean += 1
                kept.append(place)
            if clean and clean + dirty >= wanted:
                break
        return np.array(kept, np.intp)


def _fresh(table: NodeTable, nominated: NominatedPods) -> _Outcomes:
    outcomes = _Outcomes(table)
    outcomes.refresh(nominated)
    return outcomes


def _ordered(pods: list[PodInfo]) -> tuple[list[PodInfo], float]:
    """By importance, as if pods that have not started were to start at the end of time.

    They start now. That is another order when some start is later: the second value is the latest such start, minus
    infinity when all have started.
    """
    ranked = sorted([(*importance(pod, math.inf), place) for place, pod in enumerate(pods)])
    latest = latest_start(pods) if any(rank[1] == math.inf for rank in ranked) else -math.inf
    return [pods[rank[2]] for rank in ranked], latest


def _needs(question: Question, names: Sequence[str]) -> Callable[[PodInfo], Sequence[int]]:
    """What a pod takes of the amounts in question."""
    indexes = [index for index, _ in question.amounts]
    if indexes == [PODS_ROW, CPU_ROW, MEMORY_ROW]:

        def common(pod: PodInfo) -> tuple[int, int, int]:
            requests = pod.requests
            return 1, requests.milli_cpu, requests.memory

        return common
    return lambda pod: [1 if index == PODS_ROW else pod.requests.get(names[index]) for index in indexes]


def _criteria(victims: Sequence[PodInfo], violations: int) -> tuple[float, ...]:
    """The criteria, the earliest start, and whether a foremost victim has not started; see :class:`_Outcomes`."""
    if not victims:
        return violations, 0, 0, 0, math.inf, 0
    highest, total = victims[0].priority, 0
    earliest, unstarted = math.inf, 0
    for pod in victims:
        priority = pod.pod.spec.priority or 0
        total += priority + PER_VICTIM
        if priority == highest:
            start = start_of(pod, math.inf)
            if start < earliest:
                earliest = start
            elif start == math.inf:
                unstarted = 1
    return violations, highest, total, len(victims), earliest, unstarted


class FastFound:
    """What a fast dry run found, like :class:`.candidates.Found`; texts and objects are made when they are read."""

    errors: Sequence[str] = ()

    def __init__(self, table: NodeTable, plain: DryRun) -> None:
        self._table = table
        self._plain = plain
        self.outcomes: _Outcomes | None = None
        #: The candidates, in the order in which they were tried.
        self.rows: RowArray = np.zeros(0, np.intp)
        self.rows_without_victims: RowArray = np.zeros(0, np.intp)
        self.failing: tuple[RowArray, npt.NDArray[np.int64]] | None = None

    def __bool__(self) -> bool:
        return len(self.rows) > 0

    def _statuses(self) -> list[tuple[Status, RowArray]]:
        """Why not, for the rows where preemption does not help; one node of each kind is tried by the plain procedure."""
        found: list[tuple[Status, RowArray]] = []
        if len(self.rows_without_victims):
            found.append((NO_VICTIMS, self.rows_without_victims))
        if self.failing is not None:
            rows, kinds = self.failing
            for kind in np.unique(kinds).tolist():
                alike = rows[kinds == kind]
                outcome = self._plain.node(self._table.info(int(alike[0])))
                if not isinstance(outcome, Status):
                    raise TypeError(f"the plain dry run finds victims on {self._table.info(int(alike[0])).name}")
                found.append((outcome, alike))
        return found

    def histogram(self) -> Counter[str]:
        """Reason to number of nodes."""
        counts: Counter[str] = Counter()
        for status, rows in self._statuses():
            for reason in status.reasons():
                counts[reason] += len(rows)
        return counts

    @property
    def tried_in_vain(self) -> int:
        """How many nodes have a reason."""
        return len(self.rows_without_victims) + (len(self.failing[0]) if self.failing is not None else 0)

    def rejected(self) -> dict[str, Status]:
        """Node name to why preemption does not help there."""
        info = self._table.info
        return {info(row).name: status for status, rows in self._statuses() for row in rows.tolist()}

    def candidates(self) -> list[Candidate]:
        """Those that violate no disruption budget first."""
        found = [self._candidate(row) for row in self.rows.tolist()]
        return sorted(found, key=lambda candidate: candidate.victims.pdb_violations > 0)

    def _candidate(self, row: int) -> Candidate:
        assert self.outcomes is not None
        return Candidate(self._table.info(row).name, self.outcomes.victims[row])

    def best(self, now: float) -> Candidate:
        """The one that :func:`.choose.choose` would take."""
        outcomes, rows = self.outcomes, self.rows
        assert outcomes is not None
        for criterion in outcomes.criteria:
            if len(rows) == 1:
                break
            values = criterion[rows]
            rows = rows[values == values.min()]
        if len(rows) > 1:
            starts = outcomes.earliest[rows]
            starts = np.where(outcomes.unstarted[rows], np.minimum(starts, now), starts)
            rows = rows[starts == starts.max()]
        return self._candidate(int(rows[0]))
