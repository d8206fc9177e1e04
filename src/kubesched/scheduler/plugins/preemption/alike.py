"""Memory of fast dry runs, by row, for preemptors that are alike: equal priority, equal amounts.

A row is kept until its node, pods or nominations change. A preemption changes one row, so the next preemptor finds all
other rows as they were. Used by :mod:`.outcomes`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kubesched.base.change_log import Follower

from ...framework.preemption import Victims
from ...nodes import NodeTable
from ...nodes.columns import RowArray
from ...nodes.lower_priority import LowerPriorityColumns
from ...nodes.node_table import PODS_ROW
from ...nodes.nominated_rows import NominatedPods, requested_by
from ...nodes.podinfo import PodInfo
from .budgets import Budgets
from .importance import importance
from .reprieve import CRITERIA, MEASURES, Measures, by_importance, measures_of, needs_of, reprieve_row, reprieve_rows

__all__ = ["HUGE", "Alike", "Amounts"]

#: (resource index, amount) of everything that a preemptor needs.
Amounts = tuple[tuple[int, int], ...]

#: Greatest quantity whose sums are certain to be exact in 64 bits. Greater quantities are left to the plain procedure.
HUGE: Final = 1 << 60
#: Most rows for which plain integers beat columns.
_FEW: Final = 8
#: Fewest rows whose victims are found all at once.
_MANY: Final = 24


class Alike:
    """Rows as seen by preemptors of one priority that need the same amounts.

    Attributes:
        spare: int64[amounts, capacity]; amounts that are free if all pods of lower priority left and the preemptor
            came.
        fits: bool[capacity]; True if the row has pods of lower priority and no negative amount in ``spare``.
        exact: True if all quantities are small enough for exact sums.
        measures: float64[capacity, 6]; :data:`.reprieve.Measures` by row; valid for rows that were evaluated.
        nominated: the nominations that count for the priority.
        needless: True if on some evaluated row no pod has to leave.
    """

    def __init__(self, table: NodeTable, priority: int, amounts: Amounts, nominated: NominatedPods) -> None:
        self._table = table
        self._priority = priority
        self._amounts = amounts
        self._indexes = [index for index, _ in amounts]
        self._needs = needs_of(self._indexes, table)
        self._at = np.array(self._indexes, np.intp)[:, None]
        self._needed = np.array([[amount] for _, amount in amounts], np.int64)
        self._journal, self._restarted = Follower(table.journal), Follower(table.placed.restarted)
        self._renominated = Follower(nominated.log)
        self.nominated = nominated
        self._budgets = Budgets()
        self._victims: dict[int, Victims] = {}
        self._known = np.zeros(0, np.bool_)
        #: Rows to forget at the next refresh.
        self._volatile: set[int] = set()
        self.exact = True
        self.spare = np.zeros((len(amounts), 0), np.int64)
        self.fits = np.zeros(0, np.bool_)
        self.measures: Measures = np.zeros((0, MEASURES))
        self.needless = False

    # -- catching up -----------------------------------------------------------------------------------

    def refresh(self, pod: PodInfo, lower: LowerPriorityColumns, budgets: Budgets) -> None:
        """Catch up with nodes, pods, nominations and budgets, for this preemptor."""
        table, nominated, self._lower = self._table, self.nominated, lower
        capacity = table.capacity
        if len(self.fits) != capacity:
            self._journal.restart()
            self.spare = np.zeros((len(self._amounts), capacity), np.int64)
            self.fits, self._known = np.zeros(capacity, np.bool_), np.zeros(capacity, np.bool_)
            self.measures = np.zeros((capacity, MEASURES))
        changed, renominated, moved = self._journal.read(), self._renominated.read(), self._restarted.read()
        if changed is None or renominated is None or moved is None:
            rows = np.flatnonzero(table.alive)
            self.fits[:] = self._known[:] = False
            self.exact = True
        else:
            found = {entry >> 1 for entry in changed}
            found.update(renominated, moved, self._volatile)
            rows = np.fromiter(found, np.intp, len(found))
            self._known[rows] = False
        self._volatile.clear()
        if budgets is not self._budgets:  # the victims that are remembered were found with other budgets
            self._known[budgets.changed_rows(self._budgets, table)] = False
            self._budgets = budgets
        if len(rows):
            self._measure(rows, nominated)
        own = nominated.row_of.get(pod.uid)
        if own is not None:
            self._measure_own(pod, own, nominated)

    def _measure(self, rows: RowArray, nominated: NominatedPods) -> None:
        if len(rows) <= _FEW:
            for row in rows.tolist():
                self._measure_row(row, nominated)
            return
        table, lower, at = self._table, self._lower.amounts, (self._at, rows)
        capacity, used = table.allocatable[at], table.requested[at]
        left = capacity - used
        used |= capacity  # the requested sums include the pods that leave, so their amounts are bounded, too
        left += lower[at]
        if nominated.pods:
            coming = nominated.amounts()[at]
            left -= coming
            used |= coming
        left -= self._needed
        self.exact = self.exact and int(used.max()) < HUGE
        self.spare[:, rows] = left
        self.fits[rows] = table.alive[rows] & (lower[PODS_ROW, rows] > 0) & (left >= 0).all(axis=0)

    def _measure_row(self, row: int, nominated: NominatedPods) -> None:
        """Measure one row as :meth:`_measure`, in plain integers."""
        table, lower = self._table, self._lower.amounts
        allocatable, requested, spare = table.allocatable, table.requested, self.spare
        others = nominated.pods.get(row)
        coming = requested_by(others, table) if others else None
        fits = table.alive.item(row) and lower.item(PODS_ROW, row) > 0
        for number, (index, amount) in enumerate(self._amounts):
            capacity, used = allocatable.item(index, row), requested.item(index, row)
            left = capacity - used + lower.item(index, row) - amount
            if coming is not None:
                left -= coming[index]
                used = max(used, coming[index])
            self.exact = self.exact and max(used, capacity) < HUGE  # as in _measure
            spare[number, row] = left if self.exact else 0
            fits = fits and left >= 0
        self.fits[row] = fits

    def _measure_own(self, pod: PodInfo, row: int, nominated: NominatedPods) -> None:
        """Add back the amounts of the preemptor's own nomination, which must not count against it."""
        mine = requested_by([each for each in nominated.pods.get(row, ()) if each.uid == pod.uid], self._table)
        self.spare[:, row] += [mine[index] for index in self._indexes]
        self.fits[row] = (
            bool(self._table.alive[row]) and self._lower.amounts[PODS_ROW, row] > 0 and (self.spare[:, row] >= 0).all()
        )
        self._known[row] = False
        self._volatile.add(row)

    # -- victims ---------------------------------------------------------------------------------------

    def evaluate(self, rows: RowArray, now: float) -> None:
        """Fill in the measures by which candidates are compared, for rows that fit."""
        rows = rows[~self._known[rows]]
        if not len(rows):
            return
        self._known[rows] = True
        for row in rows.tolist():
            self._victims.pop(row, None)
        if len(rows) >= _MANY:
            single = self._budgets.counted_rows(self._table)[rows]
            many, budgets = rows[~single], self._budgets
            measures = reprieve_rows(
                self._table, many, self._priority, self._indexes, self.spare[:, many], budgets, now
            )
            if measures is not None:
                self._note(many, measures)
                rows = rows[single]
                if not len(rows):
                    return
        self._note(rows, np.array([measures_of(self._find_victims(row, now)) for row in rows.tolist()]))

    def _note(self, rows: RowArray, measures: Measures) -> None:
        self.measures[rows] = measures
        self.needless = self.needless or not measures[:, CRITERIA - 1].all()

    def victims(self, row: int, now: float) -> Victims:
        """Return the victims on a row that was evaluated."""
        found = self._victims.get(row)
        if found is None:
            found = self._find_victims(row, now)
        # The writes to victims start from their newest versions.
        pods = self._table.info(row).pods
        return Victims(tuple([pods[pod.pod.metadata.uid] for pod in found.pods]), found.pdb_violations)

    def _find_victims(self, row: int, now: float) -> Victims:
        ordered, latest = self._lower.pods(row, by_importance)
        if latest > now:
            ordered = sorted(ordered, key=lambda each: importance(each, now))
            self._volatile.add(row)
        found = reprieve_row(ordered, self.spare[:, row].tolist(), self._needs, self._budgets, now)
        self._victims[row] = found
        return found
