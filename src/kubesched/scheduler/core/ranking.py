"""The greatest of many totals, when a few of them change at a time.

The rows with the greatest total are kept in lists, which follow as single totals change; when none of them is left, the
next are found. Up to some thousands of totals that is a pass over all of them. Beyond, totals are in blocks, with the
maximum of each block and how many have it: only blocks with a changed total are measured again. Both begin when single
totals are put; totals that are replaced as a whole every time never pay for them.

Used by :mod:`.layers`.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from itertools import pairwise
from typing import Final

import numpy as np

from ..framework.interface import IntArray
from ..nodes.columns import RowArray

__all__ = ["INFEASIBLE", "Ranking", "pick_uniformly"]

#: The total of a row that no pod may go to.
INFEASIBLE: Final = -1

#: Up to this many totals there are no blocks.
_FLAT: Final = 1 << 14
_BLOCK: Final = 128
#: Of more totals than ``_FLAT``, fewer best rows are not listed: finding them is a pass over all.
_WORTH_A_LIST: Final = 16
#: When more than this part of the blocks changed, all are measured in one pass.
_MANY: Final = 1 / 8
#: Rows are listed in parts of so many, so that a change moves few.
_PART: Final = 1 << 13
#: Places within a part: the lists share their numbers.
_PLACES: Final = np.arange(_PART).astype(object)


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
        count: of these rows; 0 when they are not known.
        total: theirs.
    """

    __slots__ = ("_parts", "count", "total")

    def __init__(self) -> None:
        #: By part of the rows: ascending places within it.
        self._parts: list[list[int]] = []
        self.count = 0
        self.total = 0

    def replace(self, rows: RowArray, total: int) -> None:
        """They are these, ascending, from now on."""
        self.count, self.total = len(rows), total
        last = int(rows[-1]) // _PART
        if last == 0:
            self._parts = [_PLACES[rows].tolist()]
            return
        places = _PLACES[rows % _PART]
        ends = rows.searchsorted(np.arange(last + 2) * _PART).tolist()
        self._parts = [places[start:end].tolist() for start, end in pairwise(ends)]

    def only(self, row: int, total: int) -> None:
        """It is this one row from now on."""
        part, place = divmod(row, _PART)
        self._parts = [*([] for _ in range(part)), [place]]
        self.count, self.total = 1, total

    def forget(self) -> None:
        """They are not known from now on."""
        self.count = 0

    def put(self, row: int, total: int) -> None:
        """One of the rows has this total now."""
        if not self.count:
            return
        if total > self.total:
            self.only(row, total)
            return
        part, place = divmod(row, _PART)
        if part >= len(self._parts):
            self._parts.extend([] for _ in range(part + 1 - len(self._parts)))
        places = self._parts[part]
        at = bisect_left(places, place)
        is_listed = at < len(places) and places[at] == place
        if total == self.total:
            if not is_listed:
                places.insert(at, place)
                self.count += 1
        elif is_listed:
            del places[at]
            self.count -= 1

    def at(self, index: int) -> int:
        """The row at an index of them all, ascending."""
        first = 0
        for places in self._parts:
            if index < len(places):
                return first + places[index]
            index -= len(places)
            first += _PART
        raise IndexError(index)


class Ranking:
    """Totals by row.

    Attributes:
        total: int32 or int64[n], INFEASIBLE where no pod may go. Read it; write through the methods.
    """

    __slots__ = ("_best", "_block_count", "_block_max", "_changed", "_choices", "total")

    def __init__(self, most: int) -> None:
        """``most``: the greatest total there can be."""
        self.total: RowArray = np.zeros(0, np.int32 if most < 1 << 31 else np.int64)
        self._best = BestRows()
        #: How often the best row was chosen since many totals changed.
        self._choices = 0
        self._block_max: RowArray = self.total
        self._block_count: RowArray = self.total
        #: The blocks to measure again; None while there are no blocks.
        self._changed: set[int] | None = None

    @property
    def nbytes(self) -> int:
        return self.total.nbytes

    def replace(self, total: RowArray) -> None:
        """Replace all totals; the array may be the ranking's from now on."""
        self.total = total.astype(self.total.dtype, copy=False)
        self._changed = None
        self._forget()

    def grow(self, size: int) -> None:
        """More rows, infeasible ones."""
        total = np.full(size, INFEASIBLE, self.total.dtype)
        total[: len(self.total)] = self.total
        self.replace(total)

    def put(self, row: int, total: int) -> None:
        """A new total of one row."""
        self.total[row] = total
        best = self._best
        if best.count:
            best.put(row, total)
            if not best.count:
                self._choices = 0
        if self._changed is not None:
            self._changed.add(row // _BLOCK)
        elif len(self.total) > _FLAT:
            self._measure_all()

    def put_many(self, rows: RowArray, totals: RowArray) -> None:
        """New totals of some rows."""
        self.total[rows] = totals
        self._forget()
        if self._changed is not None:
            self._changed.update(np.unique(rows // _BLOCK).tolist())
        elif len(self.total) > _FLAT:
            self._measure_all()

    def _forget(self) -> None:
        self._best.forget()
        self._choices = 0

    def _measure(self, blocks: set[int]) -> None:
        """Measure these blocks."""
        if len(blocks) > max(1, len(self._block_max) * _MANY):
            self._measure_all()
            return
        for block in blocks:
            part = self.total[block * _BLOCK : (block + 1) * _BLOCK]
            best = np.maximum.reduce(part)
            self._block_max[block] = best
            self._block_count[block] = np.count_nonzero(part == best)
        blocks.clear()

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
        self._changed = set()

    def best(self, rng: random.Random) -> int:
        """A row with the greatest total, each with the same chance. There must be a feasible row."""
        best = self._best
        if best.count:
            return best.at(rng.randrange(best.count) if best.count > 1 else 0)
        self._choices += 1
        if self._changed is None:
            rows = _best_rows(self.total)
            if self._choices > 1:
                best.replace(rows, self.total.item(rows[0]))
            return int(rows[rng.randrange(len(rows))] if len(rows) > 1 else rows[0])
        self._measure(self._changed)
        total = np.maximum.reduce(self._block_max)
        blocks = (self._block_max == total).nonzero()[0]
        ends = self._block_count[blocks].cumsum()
        ties = int(ends[-1])
        pick = rng.randrange(ties) if ties > 1 else 0
        if self._choices > 1 and ties >= _WORTH_A_LIST:
            best.replace((self.total == total).nonzero()[0], int(total))
            return best.at(pick)
        index = int(ends.searchsorted(pick, side="right"))
        pick -= int(ends[index - 1]) if index else 0
        start = int(blocks[index]) * _BLOCK
        part = self.total[start : start + _BLOCK]
        return start + int((part == total).nonzero()[0][pick])
