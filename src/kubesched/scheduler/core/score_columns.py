"""Columns of raw scores of a layer's score plugins, updated together.

Used by :mod:`.layers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..framework.cycle_state import CycleState
from ..framework.entries import ScoreEntry
from ..framework.interface import NOT_SCORED, IntArray
from ..nodes import NodeTable
from ..nodes.columns import RowArray
from ..nodes.podinfo import PodInfo
from .changed_rows import Many
from .score_column import ScoreColumn

__all__ = ["ScoreColumns"]


class ScoreColumns:
    """Score columns of a layer, one per plugin, in the profile's order.

    Writing and reading raise PluginFailedError when a plugin fails.
    """

    __slots__ = ("_all", "_bounded", "_of_pods", "names")

    def __init__(self, entries: Sequence[ScoreEntry] = (), size: int = 0) -> None:
        self._all = [ScoreColumn(entry, size) for entry in entries]
        #: The plugins of the columns.
        self.names = tuple([entry.name for entry in entries])
        #: Columns whose raw scores change with a node's pods; columns that are normalised.
        self._of_pods = [column for column in self._all if column.entry.reads_pods]
        self._bounded = [column for column in self._all if not column.entry.is_raw]

    def __len__(self) -> int:
        return len(self._all)

    @property
    def nbytes(self) -> int:
        return sum([column.nbytes for column in self._all])

    def grow(self, size: int) -> None:
        """Extend the columns to ``size`` rows; the new rows are infeasible."""
        for column in self._all:
            column.grow(size)

    # -- writing ---------------------------------------------------------------------------------------

    def replace(
        self, state: CycleState, pod: PodInfo, table: NodeTable, rows: RowArray, *, of_images: bool = False
    ) -> bool:
        """Score all feasible rows again; False only if it is certain that no final score changed.

        No final score changed if each plugin gives all rows the same final score, before and after. ``rows`` are
        ascending. ``of_images``: score only with plugins that read images.
        """
        columns = [column for column in self._all if column.entry.reads_images] if of_images else self._all
        levels = [column.level for column in columns]
        for column in columns:
            column.replace(rows, column.entry.many(state, pod, table, rows))
            column.settle(len(rows))
        return None in levels or levels != [column.level for column in columns]

    def rescore(
        self,
        state: CycleState,
        pod: PodInfo,
        table: NodeTable,
        rows: dict[int, bool] | Many,
        owner: npt.NDArray[np.uint8],
        feasible: int,
        same: bool,
    ) -> bool:
        """Score some rows again; True if this changed final scores of other rows.

        ``owner`` is the layer's array of owners, which is 0 where a row passes. ``feasible`` is the number of rows that
        pass. ``same``: the feasible rows did not change since the last call.
        """
        if isinstance(rows, dict):
            for row, whole in rows.items():
                node = None if owner.item(row) else table.info(row)  # an infeasible row may have no node any more
                for column in self._all if whole else self._of_pods:
                    score = column.entry.one(state, pod, table, node) if node is not None else NOT_SCORED
                    column.put(row, score)
        else:
            passing = owner[rows.rows] == 0
            left, gone = rows.rows[passing], rows.rows[~passing]
            for column in self._all if rows.whole or not same else self._of_pods:
                if len(gone):
                    column.drop(gone)
                if len(left):
                    column.put_many(left, column.entry.many(state, pod, table, left))
        return True in [column.settle(feasible) for column in self._bounded]  # a list: every column has to settle

    # -- reading ---------------------------------------------------------------------------------------

    def holds(self, rows: Callable[[], RowArray]) -> bool:
        """Return True if final scores stay valid when only these rows, all feasible, are left to choose from.

        ``rows`` is only called if the answer depends on the rows.
        """
        return all(column.is_flat or column.holds(rows()) for column in self._all)

    def finals(self, row: int) -> tuple[int, ...]:
        """Return the final scores of a row, weighted, by column."""
        return tuple([column.final_at(row) for column in self._all])

    def final_of(self, rows: RowArray, among: RowArray) -> list[IntArray]:
        """Return int64[len(rows)] by column: final scores, weighted, as if only the rows ``among`` existed."""
        finals = []
        for column in self._all:
            limits = column.entry.bounds(column.raw(among))
            finals.append(column.entry.final_or_zero(column.raw(rows), *limits))
        return finals

    def total(self, row: int) -> int:
        """Return the sum of a row's final scores, weighted."""
        total = 0
        for column in self._all:
            total += column.final_at(row)
        return total

    def totals(self, at: RowArray | slice) -> IntArray | int:
        """Return the sum of final scores, weighted, of each of these rows, int64[n]; the int 0 without plugins."""
        return sum([column.final(at) for column in self._all])

    def totals_of_only(self, rows: RowArray) -> IntArray:
        """Return the totals, int64[len(rows)], normalised as if only these ``rows``, all feasible, existed."""
        total = np.zeros(len(rows), np.int64)
        for column in self._all:
            raw = column.raw(rows)
            total += column.entry.final_or_zero(raw, *column.entry.bounds(raw))
        return total
