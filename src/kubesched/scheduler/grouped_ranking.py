"""Totals of rows that fall into a few groups, each with one answer: what changes costs a group, not its rows.

Rules between pods often filter and score by zone: a pod more in a zone changes the answer about each of its nodes. The
total of a row is then that of the base layer and the score of its group, if its group passes. So each group keeps its
rows with the greatest base total, and the best row is found by comparing the groups. A group may be a zone, or a raw
score that many nodes have.

Used by :mod:`.layers`.
"""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import numpy.typing as npt

from kubesched.cache.columns import IntpArray, RowArray
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.entries import FilterEntry, ScoreEntry
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
    """Totals by row: those of a base, plus the scores of one plugin, or where one plugin's filter lets the row pass.

    Attributes:
        entry: the plugin, whose answers depend on the group alone.
    """

    __slots__ = ("_base", "_best", "_group", "_scored", "_sizes", "entry")

    def __init__(self, base: Ranking, entry: FilterEntry | ScoreEntry) -> None:
        self._base = base
        self.entry = entry
        #: int8[size]; _NO_GROUP where no pod may go.
        self._group: npt.NDArray[np.int8] = np.zeros(0, np.int8)
        #: By group: the number of rows, and those with the greatest base total.
        self._sizes: list[int] = []
        self._best: list[BestRows] = []
        #: The groups with rows that pass, and the final score of each.
        self._scored: list[tuple[int, int]] = []

    @property
    def nbytes(self) -> int:
        return self._group.nbytes

    @property
    def feasible(self) -> int:
        """The number of rows in groups that pass."""
        return sum([self._sizes[group] for group, _ in self._scored])

    def rows(self) -> IntpArray:
        """intp[feasible]: those rows, ascending."""
        return np.flatnonzero(self._scores() != INFEASIBLE)

    def _scores(self) -> IntArray:
        """int64[size]: the score of each row's group, INFEASIBLE where no pod may go."""
        final = np.full(len(self._sizes) + 1, INFEASIBLE, np.int64)  # no group, -1, reads the end
        for group, score in self._scored:
            final[group] = score
        scores: IntArray = final[self._group]
        return scores

    @property
    def total(self) -> IntArray:
        """int64[size]: all totals, INFEASIBLE where no pod may go; computed."""
        scores = self._scores()
        return np.where(scores == INFEASIBLE, INFEASIBLE, self._base.total + scores)

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
            if self._sizes[group] == 1:
                self._best[group].only(row, self._base.total.item(row))
                return
        if group != _NO_GROUP:
            self._best[group].put(row, self._base.total.item(row))

    def rescore(self, state: CycleState, pod: PodInfo) -> None:
        """Filter or score the groups again.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        groups = [group for group, size in enumerate(self._sizes) if size]
        self._scored = self.entry.score_of_groups(state, pod, groups) if groups else []

    # -- reading ---------------------------------------------------------------------------------------

    def best(self, rng: random.Random) -> int:
        """A row with the greatest total, each with the same chance. There must be a feasible row."""
        most = INFEASIBLE
        found: list[BestRows] = []
        for group, score in self._scored:
            best = self._best[group]
            if not best.count:
                rows = np.flatnonzero(self._group == group)
                totals = self._base.total[rows]
                most_of_group = totals.max()
                best.replace(rows[totals == most_of_group], int(most_of_group))
            total = best.total + score
            if total > most:
                most, found = total, [best]
            elif total == most:
                found.append(best)
        count = sum([best.count for best in found])
        pick = rng.randrange(count) if count > 1 else 0
        return found[0].at(pick) if len(found) == 1 else self._merged(found, pick, count)

    def _merged(self, found: list[BestRows], place: int, count: int) -> int:
        """The row at a place of several ascending lists of ``count`` rows together, if they were one."""
        low, high = 0, len(self._group) - 1
        middle = high * place // count  # rows mostly lie evenly, so this is near; then by halves
        while True:
            ends = [best.up_to(middle) for best in found]
            beyond = sum(ends) - place
            if 0 < beyond <= _NEAR:
                return sorted(
                    [row for best, end in zip(found, ends, strict=True) for row in best.between(end - beyond, end)]
                )[-beyond]
            if -_NEAR < beyond <= 0:
                return sorted(
                    [row for best, end in zip(found, ends, strict=True) for row in best.between(end, end + 1 - beyond)]
                )[-beyond]
            if beyond > 0:
                high = middle
            else:
                low = middle + 1
            middle = (low + high) // 2
