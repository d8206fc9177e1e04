"""Ranking of rows by total: finds the greatest of many totals while a few of them change at a time.

Two structures save passes over all totals:

* A list of the rows with the greatest total. It is updated as single totals change. When no row is left in it, the rows
  with the next greatest total are searched for.
* With more than ``_FLAT`` totals, blocks: each block has its maximum, and the number of totals equal to it. Only
  blocks with a changed total are measured again.

The blocks are made when a part of the totals is written. The list is made at the second choice after a large change. So
neither is made for totals that are replaced as a whole every time.

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

#: Total of a row that the pods may not use.
INFEASIBLE: Final = -1

#: Most totals that are kept without blocks.
_FLAT: Final = 1 << 14
#: Totals in a block.
_BLOCK: Final = 128
#: Fewest best rows that are listed when there are blocks: making the list takes a pass over all totals.
_WORTH_A_LIST: Final = 16
#: Greatest part of the blocks that is measured block by block. If more blocks changed, all are measured in one pass.
_MANY: Final = 1 / 8
#: Rows near the top that are searched for at a time, and most totals that are written before the next search.
_NEAR: Final = 8
#: Rows in a part of the list of best rows: a change moves only the elements of one part.
_PART: Final = 1 << 13
#: Every place within a part as a Python int, made once: the lists share these objects.
_PLACES: Final = np.arange(_PART).astype(object)


def pick_uniformly(rng: random.Random, totals: IntArray) -> int:
    """Return the position of a greatest element. All positions of the greatest value have the same chance."""
    best = _best_rows(totals)
    return int(best[rng.randrange(len(best))]) if len(best) > 1 else int(best[0])


def _best_rows(totals: RowArray) -> RowArray:
    """Return the positions of the greatest elements, ascending."""
    rows: RowArray = (totals == np.maximum.reduce(totals)).nonzero()[0]
    return rows


class BestRows:
    """List of the rows with the greatest total, updated with single changes.

    Attributes:
        count: number of rows; 0 when the rows are not known.
        total: the total of these rows.
    """

    __slots__ = ("_parts", "count", "total")

    def __init__(self) -> None:
        #: By part (``row // _PART``): ascending places of its rows within the part.
        self._parts: list[list[int]] = []
        self.count = 0
        self.total = 0

    def replace(self, rows: RowArray, total: int) -> None:
        """Replace the list by these rows, ascending, which have this total."""
        self.count, self.total = len(rows), total
        last = int(rows[-1]) // _PART
        if last == 0:
            self._parts = [_PLACES[rows].tolist()]
            return
        places = _PLACES[rows % _PART]
        ends = rows.searchsorted(np.arange(last + 2) * _PART).tolist()
        self._parts = [places[start:end].tolist() for start, end in pairwise(ends)]

    def only(self, row: int, total: int) -> None:
        """Replace the list by one row, which has this total."""
        part, place = divmod(row, _PART)
        self._parts = [*([] for _ in range(part)), [place]]
        self.count, self.total = 1, total

    def forget(self) -> None:
        """Note that the rows are not known."""
        self.count = 0

    def put(self, row: int, total: int) -> None:
        """Note the new total of any row, while the rows are known."""
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
        """Return the row at an index of the list.

        Raises:
            IndexError: when the list is shorter.
        """
        first = 0
        for places in self._parts:
            if index < len(places):
                return first + places[index]
            index -= len(places)
            first += _PART
        raise IndexError(index)

    def first(self, count: int) -> list[int]:
        """Return the first rows of the list, which is not shorter."""
        places = self._parts[0]
        return places[:count] if len(places) >= count else [self.at(index) for index in range(count)]


class Ranking:
    """Ranking of rows by total.

    Attributes:
        total: int32[n] or int64[n]; INFEASIBLE where no pod may go. Read only; write through the methods.
        ties: number of rows among which the last :meth:`best` chose.
    """

    __slots__ = (
        "_best",
        "_block_count",
        "_block_max",
        "_changed",
        "_choices",
        "_floor",
        "_moved",
        "_near",
        "ties",
        "total",
    )

    def __init__(self, most: int) -> None:
        """``most`` is the greatest possible total."""
        self.total: RowArray = np.zeros(0, np.int32 if most < 1 << 31 else np.int64)
        self._best = BestRows()
        self.ties = 0
        #: Number of searches for the best rows since many totals changed; the second one makes the list.
        self._choices = 0
        self._block_max: RowArray = self.total
        self._block_count: RowArray = self.total
        #: Blocks to measure again; None while there are no blocks.
        self._changed: set[int] | None = None
        #: Some rows near the top, best first; empty if not known. Except for those whose total was written since, no
        #: other row has a total above the floor.
        self._near: list[int] = []
        self._moved: set[int] = set()
        self._floor = 0

    @property
    def nbytes(self) -> int:
        return self.total.nbytes

    def replace(self, total: RowArray) -> None:
        """Replace all totals. The caller must not change the array afterwards: the ranking may keep it."""
        self.total = total.astype(self.total.dtype, copy=False)
        self._changed = None
        self._forget()

    def grow(self, size: int) -> None:
        """Extend the ranking to ``size`` rows; the new rows are infeasible."""
        total = np.full(size, INFEASIBLE, self.total.dtype)
        total[: len(self.total)] = self.total
        self.replace(total)

    def put(self, row: int, total: int) -> None:
        """Write a new total of one row."""
        self.total[row] = total
        if self._near:
            self._moved.add(row)
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
        """Write new totals of some rows."""
        self.total[rows] = totals
        self._forget()
        if self._changed is not None:
            self._changed.update(np.unique(rows // _BLOCK).tolist())
        elif len(self.total) > _FLAT:
            self._measure_all()

    def _forget(self) -> None:
        self._near = []
        self._best.forget()
        self._choices = 0

    def _measure(self, blocks: set[int]) -> None:
        """Measure these blocks, and empty the set."""
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

    def top(self, count: int) -> list[int]:
        """Return the rows with the greatest totals, best first; fewer than ``count`` if fewer are feasible.

        It may only be called right after :meth:`best`.
        """
        if self._best.count >= count:
            return self._best.first(count)
        if len(self._moved) > _NEAR:
            self._near = []
        moved, near, floor, total = self._moved, self._near, self._floor, self.total.item
        rows = [row for row in near if row not in moved] + [row for row in moved if total(row) >= floor]
        if not near or len(rows) < count:
            rows = self._search_near(max(count, _NEAR))
        return sorted(rows, key=lambda row: (-total(row), row))[:count]

    def _search_near(self, count: int) -> list[int]:
        """Search for rows near the top: all of the greatest total, all of the next one, and so on, at most ``count``.

        A partition of the totals would do, but takes a thousand times as long if nearly all of them are equal.
        """
        total, near = self.total, list[int]()
        floor = int(np.maximum.reduce(total))
        while floor != INFEASIBLE:
            near += (total == floor).nonzero()[0][: count - len(near)].tolist()
            self._floor = floor
            if len(near) >= count:
                break
            floor = int(np.maximum.reduce(total, where=total < floor, initial=INFEASIBLE))
        else:
            self._floor = 0
        self._near, self._moved = near, set()
        return near

    def best(self, rng: random.Random) -> int:
        """Choose a row with the greatest total; all such rows have the same chance. There must be a feasible row."""
        best = self._best
        if best.count:
            self.ties = best.count
            return best.at(rng.randrange(best.count) if best.count > 1 else 0)
        self._choices += 1
        if self._changed is None:
            rows = _best_rows(self.total)
            self.ties = len(rows)
            if self._choices > 1:
                best.replace(rows, self.total.item(rows[0]))
            return int(rows[rng.randrange(len(rows))] if len(rows) > 1 else rows[0])
        self._measure(self._changed)
        total = np.maximum.reduce(self._block_max)
        blocks = (self._block_max == total).nonzero()[0]
        ends = self._block_count[blocks].cumsum()
        self.ties = ties = int(ends[-1])
        pick = rng.randrange(ties) if ties > 1 else 0
        if self._choices > 1 and ties >= _WORTH_A_LIST:
            best.replace((self.total == total).nonzero()[0], int(total))
            return best.at(pick)
        index = int(ends.searchsorted(pick, side="right"))
        pick -= int(ends[index - 1]) if index else 0
        start = int(blocks[index]) * _BLOCK
        part = self.total[start : start + _BLOCK]
        return start + int((part == total).nonzero()[0][pick])
