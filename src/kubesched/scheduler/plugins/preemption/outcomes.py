"""Fast dry run of preemption. It evaluates all nodes at once, and keeps its results for preemptors that are alike.

It applies when only the amounts of resources that pods request can change a filter's answer: the filters that read a
node's pods are inactive, or their questions give ``amounts``. Then

* columns show which nodes could hold the pod (and the nominated pods) if all pods of lower priority left;
* on the candidates, pods come back in the order of the plain procedure (:mod:`.reprieve`);
* the results are remembered by row (:mod:`.alike`).

The result equals that of the plain procedure (:mod:`.dry_run`), which serves all other cases, and gives the texts.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...framework.cycle_state import CycleState
from ...framework.entries import FilterEntry
from ...framework.failures import PluginFailedError
from ...framework.interface import Handle
from ...framework.preemption import Candidate
from ...framework.status import Status
from ...nodes import NodeTable
from ...nodes.columns import RowArray, equal_places
from ...nodes.lower_priority import LowerPriority, LowerPriorityColumns
from ...nodes.node_table import PODS_ROW
from ...nodes.nominated_rows import NominatedPods
from ...nodes.podinfo import PodInfo
from .alike import HUGE, Alike, Amounts
from .dry_run import NO_VICTIMS, DryRun
from .reprieve import CRITERIA, EARLIEST, UNSTARTED

__all__ = ["FastDryRuns", "FastFound", "FastTrial", "FastTrials", "TrialOrder"]

#: Most kinds of preemptors, and most sets of filters, that are remembered.
_MOST: Final = 16


class FastTrial(NamedTuple):
    """Pod and filters of one fast dry run.

    Attributes:
        amounts: amounts that the pod needs.
        others: filters whose verdict depends on the node alone, and which may reject one of the nodes.
    """

    state: CycleState
    pod: PodInfo
    amounts: Amounts
    others: Sequence[FilterEntry]


class _Filters(NamedTuple):
    """Filters of a fast trial: ``fits`` give amounts, ``others`` depend on the node alone."""

    fits: Sequence[FilterEntry]
    others: Sequence[FilterEntry]


class FastTrials:
    """Maker of the fast trials of one profile. It remembers the filters by those that a pod skips."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        #: Filters by (filters skipped, plugins that rejected); None for the plain procedure.
        self._filters: dict[tuple[AbstractSet[str], AbstractSet[str]], _Filters | None] = {}

    def of(self, state: CycleState, pod: PodInfo, rejecting: AbstractSet[str]) -> FastTrial | None:
        """Return the fast trial of a pod, or None when the plain procedure is needed.

        The ``rejecting`` plugins have just rejected the nodes, so all nodes have passed the filters that come before
        them.
        """
        key = state.skip_filter, rejecting
        if key not in self._filters:
            if len(self._filters) >= _MOST:
                self._filters.clear()
            self._filters[key] = self._find(state, rejecting)
        filters = self._filters[key]
        if filters is None:
            return None
        amounts: list[tuple[int, int]] = []
        for fit in filters.fits:
            wanted = fit.amounts(state, pod, self._handle.snapshot.table)
            if wanted is None:
                return None
            amounts += wanted
        if not amounts or any(amount >= HUGE for _, amount in amounts):
            return None
        return FastTrial(state, pod, tuple(amounts), filters.others)

    def _find(self, state: CycleState, rejecting: AbstractSet[str]) -> _Filters | None:
        framework = self._handle.framework
        if framework.has_active_extensions(state):
            return None
        places = {entry.name: entry.index for entry in framework.filters}
        passed = min([places.get(name, 0) for name in rejecting], default=0)
        fits: list[FilterEntry] = []
        others: list[FilterEntry] = []
        for entry in framework.filters:
            if entry.name in state.skip_filter:
                continue
            if not entry.is_local or entry.reads_pods:
                fits.append(entry)
            elif entry.index >= passed:
                others.append(entry)
        return _Filters(fits, others)


class TrialOrder:
    """Order in which nodes are tried: ``rows`` from the place ``first`` on, then the rows before it."""

    def __init__(self, rows: RowArray, first: int) -> None:
        self.rows = rows
        self.first = first

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, most: int) -> RowArray:
        """Return at most ``most`` rows of the order, from the place ``start`` on. The array is empty at the end."""
        place, rows = self.first + start, self.rows
        if place < len(rows):
            return rows[place : place + most]
        place -= len(rows)
        return rows[place : min(place + most, self.first)]

    def all(self) -> RowArray:
        """Return all rows, in order."""
        return np.concatenate((self.rows[self.first :], self.rows[: self.first]))


class _OpenRows:
    """Rows of an order that a mask includes, taken in parts. The mask is applied only to rows that are taken.

    Attributes:
        taken: number of rows taken so far.
    """

    def __init__(self, order: TrialOrder, mask: npt.NDArray[np.bool_]) -> None:
        self._order = order
        self._mask = mask
        self._start = 0
        self._left = order.rows[:0]
        self.taken = 0

    def take(self, wanted: int) -> RowArray:
        """Return the next ``wanted`` rows, or all that are left."""
        found = self._left
        while len(found) < wanted and self._start < len(self._order):
            part = self._order.part(self._start, 2 * (wanted - len(found)))
            self._start += len(part)
            part = part[self._mask[part]]
            found = np.concatenate((found, part)) if len(found) else part
        self._left = found[wanted:]
        found = found[:wanted]
        self.taken += len(found)
        return found


class FastDryRuns:
    """Fast dry runs of one profile."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        table = handle.snapshot.table
        self._table = table
        self._lower = LowerPriority(table)
        self._kept: OrderedDict[tuple[int, Amounts], Alike] = OrderedDict()

    def run(self, trial: FastTrial, order: TrialOrder, wanted: int, plain: DryRun) -> FastFound | None:
        """Try nodes in this order until ``wanted`` candidates are found. None when the plain procedure must be used."""
        if not wanted:
            return None
        nominated = self._handle.snapshot.nominated_rows(self._handle.nominations).of(trial.pod.priority)
        pod, priority, now, budgets = trial.pod, trial.pod.priority, self._handle.clock.now(), plain.budgets
        lower = self._lower.of(priority)
        alike = self._alike(priority, trial.amounts, nominated)
        alike.refresh(pod, lower, budgets)
        if not alike.exact:
            return None
        try:
            taken = self._candidates(trial, alike, order, wanted, bool(budgets), now)
            found = FastFound(self._table, trial, plain, lower, alike, order, taken, now)
            if not found:
                found.histogram()
        except PluginFailedError:
            return None  # the plain procedure meets the failure again, for this node and no other
        if alike.needless and not alike.measures[taken, CRITERIA - 1].all():
            return None  # no victim is needed: the plain procedure says what that means
        return found

    def _alike(self, priority: int, amounts: Amounts, nominated: NominatedPods) -> Alike:
        alike = self._kept.get((priority, amounts))
        if alike is None or alike.nominated is not nominated:
            alike = self._kept[priority, amounts] = Alike(self._table, priority, amounts, nominated)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end((priority, amounts))
        return alike

    def _candidates(
        self, trial: FastTrial, alike: Alike, order: TrialOrder, wanted: int, may_violate: bool, now: float
    ) -> RowArray:
        """Evaluate and return the rows of ``wanted`` candidates, in order. Go on until one of them violates no budget.

        Raises:
            PluginFailedError: when a filter fails.
        """
        open_ = _OpenRows(order, alike.fits)
        taken = self._passing(trial, open_.take(wanted))
        while len(taken) < wanted and len(part := open_.take(wanted - len(taken))):
            taken = np.concatenate((taken, self._passing(trial, part)))
        alike.evaluate(taken, now)
        if may_violate and len(taken) == wanted and alike.measures[taken, 0].all():
            # Take more each time: a pass has a fixed cost.
            while len(part := open_.take(3 * open_.taken)):
                part = self._passing(trial, part)
                alike.evaluate(part, now)
                clean = part[alike.measures[part, 0] == 0]
                if len(clean):
                    return np.concatenate((taken, clean[:1]))
        return taken

    def _passing(self, trial: FastTrial, rows: RowArray) -> RowArray:
        """Return the rows that pass the filters that depend on the node alone."""
        for entry in trial.others:
            if len(rows):
                rows = rows[entry.many(trial.state, trial.pod, self._table, rows) == 0]
        return rows


class FastFound:
    """Result of a fast dry run, like :class:`.candidates.Found`. Texts and objects are made when they are read.

    They have to be read within the attempt. ``rows`` are the candidates, in the order in which they were tried.
    ``trial`` is the trial that was run.
    """

    errors: Sequence[str] = ()

    def __init__(
        self,
        table: NodeTable,
        trial: FastTrial,
        plain: DryRun,
        lower: LowerPriorityColumns,
        alike: Alike,
        order: TrialOrder,
        rows: RowArray,
        now: float,
    ) -> None:
        self._table = table
        self.trial = trial
        self._plain = plain
        self._lower = lower
        self._alike = alike
        self._order = order
        self._now = now
        self._reasons: Counter[str] | None = None
        self.rows = rows

    def __bool__(self) -> bool:
        return len(self.rows) > 0

    # -- rejections ------------------------------------------------------------------------------------

    def _statuses(self) -> Iterator[tuple[Status, RowArray]]:
        """Yield, by reason, the rows where preemption does not help.

        The plain procedure tries one node of each kind.
        """
        tried = self._order.all()
        something = self._lower.amounts[PODS_ROW, tried] > 0
        if not something.all():
            yield NO_VICTIMS, tried[~something]
        for rows in self._failing(tried[something]):
            outcome = self._plain.node(self._table.info(int(rows[0])))
            if not isinstance(outcome, Status):
                raise TypeError(f"the plain dry run finds victims on {self._table.info(int(rows[0])).name}")
            yield outcome, rows

    def _failing(self, rows: RowArray) -> list[RowArray]:
        """Group the rows where the preemptor does not fit: rows of one group have the same reason."""
        capacity, trial = self._table.allocatable, self.trial
        ways = []
        for number, (index, amount) in enumerate(trial.amounts):
            short = self._alike.spare[number, rows] < 0
            ways.append(short.astype(np.uint64) + np.uint64(2) * (amount > capacity[index, rows]))
        ways += [entry.many(trial.state, trial.pod, self._table, rows) for entry in trial.others]
        failing = np.flatnonzero(np.any(ways, axis=0))
        parts = [failing]
        for way in ways:
            parts = [part[places] for part in parts for _, places in equal_places(way[part])]
        return [rows[part] for part in parts]

    def histogram(self) -> Counter[str]:
        """Count nodes by reason.

        Raises:
            PluginFailedError: when a filter fails.
        """
        if self._reasons is None:
            self._reasons = Counter()
            for status, rows in self._statuses():
                for reason in status.reasons():
                    self._reasons[reason] += len(rows)
        return Counter(self._reasons)

    @property
    def tried_in_vain(self) -> int:
        """Number of nodes that have a reason, when there are no candidates."""
        return len(self._order)

    def rejected(self) -> dict[str, Status]:
        """Return why preemption does not help, by node name."""
        info = self._table.info
        try:
            return {info(row).name: status for status, rows in self._statuses() for row in rows.tolist()}
        except PluginFailedError:  # a plugin fails on a node without a candidate
            outcomes = {info(row).name: self._plain.node(info(row)) for row in self._order.all().tolist()}
            return {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Status)}

    # -- candidates ------------------------------------------------------------------------------------

    def candidates(self) -> list[Candidate]:
        """Return the candidates, first those that violate no disruption budget."""
        found = [self._candidate(row) for row in self.rows.tolist()]
        return sorted(found, key=lambda candidate: candidate.victims.pdb_violations > 0)

    def _candidate(self, row: int) -> Candidate:
        return Candidate(self._table.info(row).name, self._alike.victims(row, self._now))

    def best(self, now: float) -> Candidate:
        """Return the candidate that :func:`.choose.choose` would take."""
        alike, rows = self._alike, self.rows
        values = alike.measures.take(rows, axis=0)
        text = values.tobytes()
        if text == text[: len(text) // len(rows)] * len(rows):
            return self._candidate(rows.item(0))  # the usual case: all candidates are equally good
        for number in range(CRITERIA):
            column = values[:, number]
            best = np.flatnonzero(column == column.min())
            rows, values = rows[best], values[best]
        starts = np.where(values[:, UNSTARTED] != 0, np.minimum(values[:, EARLIEST], now), values[:, EARLIEST])
        return self._candidate(rows.item(starts.argmax()))  # argmax takes the first of equal starts
