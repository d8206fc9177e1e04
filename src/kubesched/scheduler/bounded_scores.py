"""One scorer's raw scores for pods that are alike, and what normalisation makes of them.

Normalisation depends on the least and the greatest raw score of all feasible rows. Both are kept up as single
scores change, so that it is known when all others have to be looked at again, and when not.

Used by :mod:`.overlay`, which has a slot for each row.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kubesched.cache.columns import BoolArray
from kubesched.framework.entries import ScoreEntry
from kubesched.framework.interface import NOT_SCORED, IntArray

from .lanes import normalizing_failed, weighted

__all__ = ["BoundedScores"]

#: Up to this many different raw scores are normalised one each, and looked up by slot.
_TABLE: Final = 1024


class BoundedScores:
    """A score plugin's raw scores by slot, and their bounds.

    Attributes:
        raw: int64[slots], NOT_SCORED where the row is infeasible or takes no part.
        low, high: the least and the greatest among the others; 0 and -1 without any.
    """

    __slots__ = ("_at_high", "_at_low", "_has_unscored", "_table", "entry", "high", "low", "raw")

    def __init__(self, entry: ScoreEntry, raw: IntArray, passes: BoolArray | None) -> None:
        """See :meth:`replace`."""
        self.entry = entry
        self.replace(raw, passes)

    def replace(self, raw: IntArray, passes: BoolArray | None) -> None:
        """All raw scores anew: int64[slots], NOT_SCORED where the row is infeasible or takes no part."""
        self.raw = raw
        self.measure(passes)

    def measure(self, passes: BoolArray | None) -> None:
        """Find the bounds among the slots that pass (None: all)."""
        raw = self.raw if passes is None else self.raw[passes]
        self.low, self.high = (int(raw.min()), int(raw.max())) if len(raw) else (0, -1)
        self._has_unscored = self.low == NOT_SCORED
        if self._has_unscored:
            raw = raw[raw != NOT_SCORED]
            self.low, self.high = (int(raw.min()), int(raw.max())) if len(raw) else (0, -1)
        #: Slots at the bounds, counted when somebody first comes to one or leaves it.
        self._at_low = self._at_high = -1
        #: Normalised, checked and weighted: every score from low to high, once somebody asks.
        self._table: IntArray | None = None

    def append(self) -> None:
        """One more slot, infeasible as yet."""
        self.raw = np.append(self.raw, NOT_SCORED)

    def put(self, slot: int, new: int, passes: bool) -> tuple[bool, bool]:
        """A slot's new raw score: (bounds moved, they have to be measured)."""
        old = int(self.raw[slot])
        if passes and new == NOT_SCORED:
            self._has_unscored = True
        if old == new:
            return False, False
        low, high = self.low, self.high
        if self._at_low < 0 and (low in (old, new) or high in (old, new)):
            self._at_low = int(np.count_nonzero(self.raw == low))
            self._at_high = int(np.count_nonzero(self.raw == high))
        self.raw[slot] = new
        moved = False
        if new != NOT_SCORED and not low <= new <= high:
            moved = True
            self._table = None
            if high < low:
                self.low = self.high = new
                self._at_low = self._at_high = 1
            elif new > high:
                self.high, self._at_high = new, 1 if self._at_low >= 0 else -1
            else:
                self.low, self._at_low = new, 1 if self._at_high >= 0 else -1
        elif self._at_low >= 0:
            self._at_low += new == low
            self._at_high += new == high
        if self._at_low >= 0:
            self._at_low -= old == low == self.low
            self._at_high -= old == high == self.high
            if not self._at_low or not self._at_high:
                return True, True
        return moved, False

    @property
    def level(self) -> int | None:
        """What every score ends as when they are all the same; None when they are not."""
        return None if self.low != self.high or self._has_unscored else self.final_one(self.low)

    def final(self, raw: IntArray) -> IntArray:
        """Raw scores normalised within the bounds, checked and weighted; anything where the row is infeasible.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        if self.high < self.low:
            return np.zeros(len(raw), np.int64)
        if self.high - self.low >= _TABLE:
            unscored = raw == NOT_SCORED
            scores = self._normalized(np.where(unscored, self.low, raw))
            scores[unscored] = 0
            return scores
        scores = self._by_score().take(raw - self.low, mode="clip")
        return np.where(raw == NOT_SCORED, 0, scores) if self._has_unscored else scores

    def final_one(self, raw: int) -> int:
        """The same for one row, which is feasible."""
        if raw == NOT_SCORED:
            return 0
        if self.high - self.low >= _TABLE:
            return int(self._normalized(np.array([raw]))[0])
        return int(self._by_score()[raw - self.low])

    def _by_score(self) -> IntArray:
        if self._table is None:
            self._table = self._normalized(np.arange(self.low, self.high + 1))
        return self._table

    def _normalized(self, raw: IntArray) -> IntArray:
        entry = self.entry
        try:
            scores: IntArray = entry.plugin.normalize_within(raw, self.low, self.high)
        except Exception as error:
            raise normalizing_failed(entry, error) from error
        return weighted(entry, scores)
