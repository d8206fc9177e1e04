"""One scorer's raw scores by row, their bounds, and the final scores that follow from both.

Normalisation depends on the least and the greatest raw score of all feasible rows. Both are kept up to date as
single scores change, so that it is known when the final scores of all other rows change with them, and when not.
The arithmetic itself is that of :class:`~kubesched.framework.entries.ScoreEntry`, one implementation for one row
and for many.

Used by :mod:`.layers`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kubesched.cache.columns import RowArray
from kubesched.framework.entries import ScoreEntry
from kubesched.framework.interface import NOT_SCORED, IntArray

__all__ = ["ScoreColumn"]

#: Up to this many different raw scores between the bounds, the final score of each is looked up in a table.
_TABLE: Final = 1024


class ScoreColumn:
    """A score plugin's raw scores by row.

    Attributes:
        raw: int64[size]; NOT_SCORED where the row is infeasible or the plugin left it out. Of a plugin whose raw scores
            are final, anything in 0…100 where the row is infeasible.
        low, high: the bounds of the scores, as of :meth:`settle`.
        level: the final score of every feasible row, when it is one and the same; None when that is not known.
    """

    __slots__ = ("_is_stale", "_is_written", "_listed", "_table", "_used", "entry", "high", "level", "low", "raw")  # fmt: skip

    def __init__(self, entry: ScoreEntry, size: int) -> None:
        self.entry = entry
        self._fill(size)
        self.low, self.high = 0, -1
        self.level: int | None = None
        #: The bounds that final scores were last made with.
        self._used = (0, -1)
        #: Something was written; and perhaps beyond the bounds, or over one of them, so that they have to be measured.
        self._is_written = self._is_stale = False
        #: Final scores of every raw score from low to high, with a 0 before and behind: made once needed for many, for one.
        self._table: IntArray | None = None
        self._listed: list[int] | None = None

    def _fill(self, size: int) -> None:
        self.raw: IntArray = np.full(size, 0 if self.entry.is_raw else NOT_SCORED, np.int64)

    def grow(self, size: int) -> None:
        """More rows, infeasible ones."""
        old = self.raw
        self._fill(size)
        self.raw[: len(old)] = old

    # -- writing ---------------------------------------------------------------------------------------

    def replace(self, rows: RowArray, scores: IntArray) -> None:
        """All raw scores again: those of the feasible rows, which are ascending."""
        if len(rows) == len(self.raw):
            self.raw = scores.copy()
        else:
            self._fill(len(self.raw))
            self.raw[rows] = scores
        self._is_written = self._is_stale = True

    def put_many(self, rows: RowArray, scores: IntArray | int) -> None:
        """New raw scores of some rows."""
        self.raw[rows] = scores
        self._is_written = self._is_stale = True

    def drop(self, rows: RowArray) -> None:
        """Rows that are infeasible now."""
        if not self.entry.is_raw:
            self.put_many(rows, NOT_SCORED)

    def put(self, row: int, new: int) -> None:
        """One row's new raw score; NOT_SCORED when it is infeasible or left out."""
        raw, entry = self.raw, self.entry
        if entry.is_raw:
            if new != NOT_SCORED:
                raw[row] = new
            return
        old = raw.item(row)
        if old != new:
            raw[row] = new
            self._is_written = True
            if not self.low < old < self.high or not self.low <= new <= self.high:
                self._is_stale = True

    def settle(self, feasible: int) -> bool:
        """Bring the bounds up to date after writing; True when final scores of rows that were not written changed.

        ``feasible`` is the number of feasible rows.
        """
        if not self._is_written or self.entry.is_raw:
            return False
        self._is_written = False
        if self._is_stale:
            self._is_stale = False
            self.low, self.high = self.entry.bounds(self.raw)
        before, bounds = self.level, (self.low, self.high)
        moved = bounds != self._used
        if moved:
            self._used = bounds
            self._table = self._listed = None
        same = self.low == self.high and int(np.count_nonzero(self.raw == self.low)) == feasible
        self.level = self.final_one(self.low) if same else None
        return moved and (before is None or before != self.level)

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def is_flat(self) -> bool:
        """Whether final scores do not depend on which rows are feasible."""
        return self.entry.is_raw or self.low >= self.high

    def holds(self, rows: RowArray) -> bool:
        """Whether final scores stay what they are when only ``rows`` (feasible ones) are left to choose from."""
        return self.entry.bounds(self.raw[rows]) == (self.low, self.high)

    def final(self, raw: IntArray) -> IntArray:
        """int64[len(raw)]: final scores, weighted, of raw scores of this column; 0 for NOT_SCORED.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        if self.entry.is_raw or self.high - self.low >= _TABLE:
            return self.entry.final_or_zero(raw, self.low, self.high)
        # NOT_SCORED lands far outside the table on either side, and is clipped to one of the zeros there.
        scores: IntArray = self._by_score().take(raw - (self.low - 1), mode="clip")
        return scores

    def final_one(self, raw: int) -> int:
        """The same for one raw score."""
        if self.entry.is_raw:
            return raw * self.entry.weight
        if raw == NOT_SCORED:
            return 0
        if self.high - self.low >= _TABLE:
            return int(self.entry.final(np.array([raw]), self.low, self.high)[0])
        listed = self._listed
        if listed is None:
            if self.low == self.high:
                listed = [0, int(self.entry.final(np.array([self.low]), self.low, self.high)[0]), 0]
            else:
                listed = self._by_score().tolist()
            self._listed = listed
        return listed[raw - self.low + 1]

    def _by_score(self) -> IntArray:
        if self._table is None:
            table = np.zeros(self.high - self.low + 3, np.int64)
            if self.low <= self.high:
                scores = np.arange(self.low, self.high + 1)
                table[1:-1] = self.entry.final(scores, self.low, self.high)
            self._table = table
        return self._table
