"""The greatest of many totals, when a few of them change at a time.

Up to some thousands the rows with the greatest total are kept in a list, which follows as single totals change; when none
of them is left, a pass over all totals finds the next. Beyond, totals are kept in blocks, with the maximum of each block
and how many have it: a changed total costs one block, the best one a pass over the blocks. Both begin when
single totals are put; totals that are replaced as a whole every time never pay for them.

Used by :mod:`.layers`.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Collection
from typing import Final

import numpy as np

from kubesched.cache.columns import RowArray
from kubesched.framework.interface import IntArray

__all__ = ["INFEASIBLE", "BestRows", "Ranking", "pick_uniformly"]

#: The total of a row that no pod may go to.
INFEASIBLE: Final = -1

#: Up to this many totals there are no blocks.
_FLAT: Final = 1 << 14
_BLOCK: Final = 128
#: A pass over all totals takes as long as a list of so many rows.
_WORTH_A_LIST: Final = 400
#: When more than this part of the blocks changed, all are measured in one pass.
_MANY: Final = 1 / 8


def pick_uniformly(rng: random.Random, totals: IntArray) -> int:
    """The position of a greatest element, each with the same chance."""
    best = _best_rows(totals)
    return int(best[rng.randrange(len(best))]) if len(best) > 1 else int(best[0])


def _best_rows(totals: RowArray) -> RowArray:
    """The positions of the greatest elements, ascending."""
    rows: RowArray = (totals == np.maximum.reduce(totals)).nonzero()[0]
    return rows


class BestRows:
    """The rows with the greatest of some totals, following single changes.

    Attributes:
        rows: ascending; empty when they are not known.
        total: theirs.
    """

    __slots__ = ("rows", "total")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.total = 0

    def replace(self, rows: RowArray, totals: RowArray) -> None:
        """Find them among these rows, which are ascending, and their totals."""
        best = _best_rows(totals)
        self.rows, self.total = rows[best].tolist(), totals.item(best[0])

    def put(self, row: int, total: int) -> None:
        """One of the rows has this total now."""
        rows = self.rows
        if not rows:
            return
        if total > self.total:
            self.rows, self.total = [row], total
            return
        place = bisect_left(rows, row)
        is_listed = place < len(rows) and rows[place] == row
        if total == self.total:
            if not is_listed:
                rows.insert(place, row)
        elif is_listed:
            del rows[place]

    def drop(self, row: int) -> None:
        """A row is none of them any more."""
        self.put(row, INFEASIBLE)


class Ranking:
    """Totals by row.

    Attributes:
        total: int32 or int64[n], INFEASIBLE where no pod may go. Read it; write through the methods.
    """

    __slots__ = ("_best", "_block_count", "_block_max", "_choices", "_measured", "total")

    def __init__(self, most: int) -> None:
        """``most``: the greatest total there can be."""
        self.total: RowArray = np.zeros(0, np.int32 if most < 1 << 31 else np.int64)
        self._measured = False
        self._best = BestRows()
        #: How often the best row was chosen since many totals changed.
        self._choices = 0
        self._block_max: RowArray = self.total
        self._block_count: RowArray = self.total

    @property
    def nbytes(self) -> int:
        return self.total.nbytes

    def replace(self, total: RowArray) -> None:
        """Replace all totals; the array may be the ranking's from now on."""
        self.total = total.astype(self.total.dtype, copy=False)
        self._measured = False
        self._forget()

    def grow(self, size: int) -> None:
        """More rows, infeasible ones."""
        total = np.full(size, INFEASIBLE, self.total.dtype)
        total[: len(self.total)] = self.total
        self.replace(total)

    def put(self, rows: RowArray | int, totals: RowArray | int) -> None:
        """New totals of some rows. :meth:`settle` has to follow, once for all that were put."""
        self.total[rows] = totals
        best = self._best
        if not isinstance(rows, int) or not isinstance(totals, int):
            self._forget()
        elif best.rows:
            best.put(rows, totals)
            if not best.rows:
                self._choices = 0

    def _forget(self) -> None:
        self._best.rows = []
        self._choices = 0

    def settle(self, rows: Collection[int] | RowArray) -> None:
        """Measure the blocks of rows that were put."""
        if len(self.total) <= _FLAT:
            return
        if not self._measured:
            self._measure_all()
            return
        blocks = np.unique(rows // _BLOCK).tolist() if isinstance(rows, np.ndarray) else {row // _BLOCK for row in rows}
        if len(blocks) > max(1, len(self._block_max) * _MANY):
            self._measure_all()
            return
        for block in blocks:
            part = self.total[block * _BLOCK : (block + 1) * _BLOCK]
            best = np.maximum.reduce(part)
            self._block_max[block] = best
            self._block_count[block] = np.count_nonzero(part == best)

    def _measure_all(self) -> None:
        size = len(self.total)
        padded = -(-size // _BLOCK) * _BLOCK
        if padded != size:
            total = np.full(padded, INFEASIBLE, self.total.dtype)
            total[:size] = self.total
        else:
            total = self.total
        blocks = total.reshape(-1, _BLOCK)
        self._block_max = blocks.max(axis=1)
        self._block_count = (blocks == self._block_max[:, None]).sum(axis=1)
        self._measured = True

    def best(self, rng: random.Random) -> int:
        """A row with the greatest total, each with the same chance. There must be a feasible row."""
        if not self._measured:
            best: RowArray | list[int] = self._best.rows
            if not best:
                best = _best_rows(self.total)
                if len(best) < self._choices * _WORTH_A_LIST and len(self.total) <= _FLAT:
                    self._best.rows, self._best.total = best.tolist(), self.total.item(best[0])
                self._choices += 1
            return int(best[rng.randrange(len(best))] if len(best) > 1 else best[0])
        block_max = self._block_max
        best = np.maximum.reduce(block_max)
        blocks = (block_max == best).nonzero()[0]
        if len(blocks) == 1:
            block = int(blocks[0])
            ties = int(self._block_count[block])
            pick = rng.randrange(ties) if ties > 1 else 0
        else:
            ends = self._block_count[blocks].cumsum()
            pick = rng.randrange(int(ends[-1]))
            index = int(ends.searchsorted(pick, side="right"))
            block = int(blocks[index])
            pick -= int(ends[index - 1]) if index else 0
        start = block * _BLOCK
        part = self.total[start : start + _BLOCK]
        return start + int((part == best).nonzero()[0][pick])
