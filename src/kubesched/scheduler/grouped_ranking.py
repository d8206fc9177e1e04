"""Totals of rows that fall into a few groups, each with one score: a changed score costs a group, not its rows.

Rules between pods often score by zone: a pod more in a zone changes the score of each of its nodes. The total of a row is
then that of the base layer and the score of its group. So each group keeps its rows with the greatest base total, and
the best row is found by comparing the groups.

Used by :mod:`.layers`.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from typing import Final

import numpy as np
import numpy.typing as npt

from kubesched.cache.columns import RowArray
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.entries import ScoreEntry
from kubesched.framework.interface import IntArray
from kubesched.framework.podinfo import PodInfo

from .ranking import INFEASIBLE, BestRows, Ranking

__all__ = ["MOST_GROUPS", "GroupedRanking"]

#: With more groups it is quicker to score the rows.
MOST_GROUPS: Final = 64
_NO_GROUP: Final = -1
#: So many rows from each group are sorted to find the one at a place.
_NEAR: Final = 8


class GroupedRanking:
    """Totals by row: those of a base, plus the scores of one plugin.

    Attributes:
        entry: the plugin, whose raw scores depend on the group alone.
    """

    __slots__ = ("_base", "_best", "_group", "_scored", "_sizes", "entry")

    def __init__(self, base: Ranking, entry: ScoreEntry) -> None:
        self._base = base
        self.entry = entry
        #: int8[size]; _NO_GROUP where no pod may go.
        self._group: npt.NDArray[np.int8] = np.zeros(0, np.int8)
        #: By group: the number of rows, and those with the greatest base total.
        self._sizes: list[int] = []
        self._best: list[BestRows] = []
        #: The groups with rows, and the final score of each.
        self._scored: list[tuple[int, int]] = []

    @property
    def nbytes(self) -> int:
        return self._group.nbytes

    @property
    def total(self) -> IntArray:
        """int64[size]: all totals, INFEASIBLE where no pod may go; computed."""
        final = np.zeros(len(self._sizes) + 1, np.int64)  # no group, -1, reads the end
        for group, score in self._scored:
            final[group] = score
        return np.where(self._group == _NO_GROUP, INFEASIBLE, self._base.total + final[self._group])

    # -- writing; :meth:`rescore` has to follow ---------------------------------------------------------

    def replace(self, size: int, rows: RowArray, groups: RowArray) -> None:
        """All rows again: the feasible ones, and the group of each."""
        self._group = np.full(size, _NO_GROUP, np.int8)
        self._group[rows] = groups
        self._sizes = np.bincount(groups).tolist()
        self._best = [BestRows() for _ in self._sizes]

    def grow(self, size: int) -> None:
        """More rows, infeasible ones."""
        group = np.full(size, _NO_GROUP, np.int8)
        group[: len(self._group)] = self._group
        self._group = group

    def put(self, row: int, group: int = _NO_GROUP) -> None:
        """The group of one row, whose base total may be another, too; _NO_GROUP when it is infeasible."""
        old = self._group.item(row)
        if old != group:
            if old != _NO_GROUP:
                self._sizes[old] -= 1
                self._best[old].drop(row)
            self._group[row] = group
            if group == _NO_GROUP:
                return
            while group >= len(self._sizes):
                self._sizes.append(0)
                self._best.append(BestRows())
            self._sizes[group] += 1
        if group != _NO_GROUP:
            self._best[group].put(row, self._base.total.item(row))

    def rescore(self, state: CycleState, pod: PodInfo) -> None:
        """Score the groups again.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        groups = [group for group, size in enumerate(self._sizes) if size]
        self._scored = list(zip(groups, self.entry.final_of_groups(state, pod, groups), strict=True))

    # -- reading ---------------------------------------------------------------------------------------

    def best(self, rng: random.Random) -> int:
        """A row with the greatest total, each with the same chance. There must be a feasible row."""
        most = INFEASIBLE
        found: list[BestRows] = []
        for group, score in self._scored:
            best = self._best[group]
            if not best.rows:
                rows = np.flatnonzero(self._group == group)
                best.replace(rows, self._base.total[rows])
            total = best.total + score
            if total > most:
                most, found = total, [best]
            elif total == most:
                found.append(best)
        count = sum([len(best.rows) for best in found])
        pick = rng.randrange(count) if count > 1 else 0
        return found[0].rows[pick] if len(found) == 1 else self._merged(found, pick, count)

    def _merged(self, found: list[BestRows], place: int, count: int) -> int:
        """The row at a place of several ascending lists of ``count`` rows together, if they were one."""
        lists = [best.rows for best in found]
        low, high = 0, len(self._group) - 1
        middle = high * place // count  # rows mostly lie evenly, so this is near; then by halves
        while True:
            ends = [bisect_right(rows, middle) for rows in lists]
            beyond = sum(ends) - place
            if 0 < beyond <= _NEAR:
                return sorted(
                    [row for rows, end in zip(lists, ends, strict=True) for row in rows[max(0, end - beyond) : end]]
                )[-beyond]
            if -_NEAR < beyond <= 0:
                return sorted(
                    [row for rows, end in zip(lists, ends, strict=True) for row in rows[end : end + 1 - beyond]]
                )[-beyond]
            if beyond > 0:
                high = middle
            else:
                low = middle + 1
            middle = (low + high) // 2
