"""Column of one score plugin: raw scores by row, their bounds, and the final scores that follow from both.

Normalisation depends on the least and the greatest raw score of all feasible rows. The column keeps both up to date as
single scores change. So it knows when a changed score also changes the final scores of all other rows. The arithmetic
is in :class:`~kubesched.scheduler.framework.entries.ScoreEntry`, one implementation for one row and for many.

Types are narrow because thousands of layers may be kept: one byte for raw scores that are final, four bytes for other
scores while they fit.

Used by :mod:`.layers`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ..framework.entries import ScoreEntry
from ..framework.interface import NOT_SCORED, IntArray
from ..framework.normalize import bounds
from ..nodes.columns import RowArray

__all__ = ["ScoreColumn"]

#: Most different raw scores between the bounds for which final scores are looked up in a table.
_TABLE: Final = 1024
#: Type of raw scores while they fit. The least integer of the type represents NOT_SCORED.
_NARROW: Final = np.int32


class ScoreColumn:
    """Column of a score plugin's raw scores, by row.

    Attributes:
        entry: the score plugin.
        low, high: the least and the greatest raw score of the feasible rows, as of the last :meth:`settle`.
        level: the final score that all feasible rows have; None if they differ or if this is not known.
    """

    __slots__ = ("_absent", "_is_stale", "_is_written", "_listed", "_raw", "_table", "_used", "entry", "high", "level", "low")  # fmt: skip

    def __init__(self, entry: ScoreEntry, size: int) -> None:
        self.entry = entry
        #: int8, _NARROW or int64[size]. Infeasible rows, and rows that the plugin left out, have _absent. If raw scores
        #: are final, an infeasible row may have any score in 0…100 instead.
        self._raw: npt.NDArray[np.signedinteger] = np.zeros(0, np.int8 if entry.is_raw else _NARROW)
        self._absent = 0 if entry.is_raw else int(np.iinfo(_NARROW).min)
        self._fill(size)
        self.low, self.high = 0, -1
        self.level: int | None = None
        #: Bounds at the last call of settle.
        self._used = (0, -1)
        #: The first is True if a score was written since then. The second is True if the bounds are stale, because a
        #: score was written beyond a bound or in place of one.
        self._is_written = self._is_stale = False
        #: Final score of every raw score from low to high, with a 0 before and behind. The array serves many rows, the
        #: list one row; each is made at its first use.
        self._table: IntArray | None = None
        self._listed: list[int] | None = None

    @property
    def nbytes(self) -> int:
        return self._raw.nbytes

    def _fill(self, size: int) -> None:
        self._raw = np.full(size, self._absent, self._raw.dtype)

    def grow(self, size: int) -> None:
        """Extend the column to ``size`` rows; the new rows are infeasible."""
        old = self._raw
        self._fill(size)
        self._raw[: len(old)] = old

    def _widen(self) -> None:
        self._raw = self._wide(self._raw)
        self._absent = NOT_SCORED

    def _wide(self, raw: npt.NDArray[np.signedinteger]) -> IntArray:
        """Return raw scores of this column as plugins give them, int64[len(raw)]; possibly the given array."""
        wide = raw.astype(np.int64, copy=False)
        if self._absent != NOT_SCORED and not self.entry.is_raw:
            wide[raw == self._absent] = NOT_SCORED
        return wide

    def _fits(self, low: int, high: int) -> bool:
        return self._raw.itemsize == 8 or (self._absent < low and high < -self._absent)

    # -- writing ---------------------------------------------------------------------------------------

    def replace(self, rows: RowArray, scores: IntArray) -> None:
        """Replace all raw scores. ``rows`` are the feasible rows, ascending, and ``scores`` theirs."""
        if len(rows) == len(self._raw):
            self.put_many(slice(None), scores)
            return
        self._fill(len(self._raw))
        self.put_many(rows, scores)

    def put_many(self, rows: RowArray | slice, scores: IntArray) -> None:
        """Write new raw scores of some rows."""
        if not self.entry.is_raw:
            if not self._fits(*bounds(scores)):
                self._widen()
            if self._absent != NOT_SCORED and len(scores) and int(scores.min()) == NOT_SCORED:
                scores = np.where(scores == NOT_SCORED, self._absent, scores)
            self._is_written = self._is_stale = True
        self._raw[rows] = scores.astype(
            self._raw.dtype, copy=False
        )  # writing with another type takes three times as long

    def drop(self, rows: RowArray) -> None:
        """Drop the scores of rows that are infeasible now."""
        if not self.entry.is_raw:
            self._raw[rows] = self._absent
            self._is_written = self._is_stale = True

    def put(self, row: int, new: int) -> None:
        """Write one row's new raw score; NOT_SCORED when the row is infeasible or the plugin left it out."""
        raw = self._raw
        if self.entry.is_raw:
            if new != NOT_SCORED:
                raw[row] = new
            return
        if new == NOT_SCORED:
            new = self._absent
        elif not self._fits(new, new):
            self._widen()
            raw = self._raw
        old = raw.item(row)
        if old != new:
            raw[row] = new
            self._is_written = True
            if not self.low < old < self.high or not self.low <= new <= self.high:
                self._is_stale = True

    def settle(self, feasible: int) -> bool:
        """Bring the bounds up to date after writing; True if final scores of rows that were not written changed.

        ``feasible`` is the number of feasible rows.
        """
        if not self._is_written or self.entry.is_raw:
            return False
        self._is_written = False
        if self._is_stale:
            self._is_stale = False
            self.low, self.high = self.entry.bounds(self._raw)
        before, limits = self.level, (self.low, self.high)
        moved = limits != self._used
        if moved:
            self._used = limits
            self._table = self._listed = None
        same = self.low == self.high and int(np.count_nonzero(self._raw == self.low)) == feasible
        self.level = self._final_one(self.low) if same else None
        return moved and (before is None or before != self.level)

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def is_flat(self) -> bool:
        """True if final scores do not depend on which rows are feasible."""
        return self.entry.is_raw or self.low >= self.high

    def holds(self, rows: RowArray) -> bool:
        """Return True if final scores stay valid when only these ``rows``, all feasible, are left to choose from."""
        return self.entry.bounds(self._raw[rows]) == (self.low, self.high)

    def raw(self, rows: RowArray) -> IntArray:
        """Return the raw scores of feasible rows, int64[len(rows)]; NOT_SCORED where the plugin left a row out."""
        return self._wide(self._raw[rows])

    def final(self, at: RowArray | slice) -> IntArray:
        """Return the final scores of these rows, weighted, int64[n]; 0 where a row is not scored.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        raw = self._raw[at]
        if self.entry.is_raw:
            weighted: IntArray = np.multiply(raw, self.entry.weight, dtype=np.int64)
            return weighted
        if self.high - self.low >= _TABLE:
            return self.entry.final_or_zero(self._wide(raw), self.low, self.high)
        # The index of an absent score lies far outside the table, and is clipped to one of the zeros at its ends.
        scores: IntArray = self._by_score().take(raw.astype(np.int64, copy=False) - (self.low - 1), mode="clip")
        return scores

    def final_at(self, row: int) -> int:
        """Return the final score of one row, weighted; 0 if the row is not scored."""
        raw = self._raw.item(row)
        if self.entry.is_raw:
            return raw * self.entry.weight
        if raw == self._absent:
            return 0
        listed = self._listed
        return listed[raw - self.low + 1] if listed is not None else self._final_one(raw)

    def _final_one(self, raw: int) -> int:
        """Return the final score, weighted, of one raw score."""
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
