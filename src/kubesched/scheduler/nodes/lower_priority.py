"""Columns of the amounts that pods below a priority request on each node, updated from the change journal.

Preemption needs them: one pass over these columns finds the nodes that could hold a pod if all pods below its priority
left. A row is read again when its pods changed; if many rows changed, all rows are read again. The pods of a row are
sorted only when they are read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from kubesched.api.quantity import INT64_MAX
from kubesched.base.change_log import Follower

from .node_table import CPU_ROW, EPHEMERAL_ROW, MEMORY_ROW, PODS_ROW, NodeTable
from .nominated_rows import requested_by
from .placed_pods import CPU_AT, EPHEMERAL_AT, MEMORY_AT, ROW_AT
from .podinfo import PodInfo

T = TypeVar("T")

__all__ = ["LowerPriority", "LowerPriorityColumns"]

#: Most priorities that are kept; the least recently used is dropped first.
_MOST: Final = 8
#: Cost of reading one changed row, as a number of pods in a pass over all pods.
_ROW_COST: Final = 200
#: Fixed cost of a pass over all pods, as a number of pods.
_FEW: Final = 5_000


class LowerPriorityColumns:
    """Columns of the pods whose priority is lower than a given one.

    Attributes:
        amounts: int64[R, capacity]; the sums that these pods request, by resource index and row of the node table.
            At the resource index ``PODS_ROW``, an amount is the number of these pods.
    """

    def __init__(self, table: NodeTable, priority: int) -> None:
        self._table = table
        self._priority = priority
        self._journal, self._restarted = Follower(table.journal), Follower(table.placed.restarted)
        self._pods: dict[int, Any] = {}
        self.amounts = np.zeros((0, 0), np.int64)

    def refresh(self) -> None:
        """Catch up with the node table."""
        table = self._table
        if self.amounts.shape != table.requested.shape:
            grown = np.zeros(table.requested.shape, np.int64)
            old = self.amounts
            grown[: old.shape[0], : old.shape[1]] = old
            self.amounts = grown
        entries, moved = self._journal.read(), self._restarted.read()
        if entries is None or moved is None or len(entries) * _ROW_COST > len(table.placed) + _FEW:
            self._read_all()
        else:
            for row in {entry >> 1 for entry in entries}:
                self._read(row)
            for row in moved:
                self._pods.pop(row, None)

    def _read_all(self) -> None:
        """Read all rows, from the columns of pods. A sum beyond 64 bits wraps around here; ``requested`` is limited."""
        table, amounts = self._table, self.amounts
        self._pods.clear()
        amounts[:] = 0
        placed = table.placed
        places = placed.below(self._priority)
        rows = placed.numbers(ROW_AT, places)
        for index, column in ((CPU_ROW, CPU_AT), (MEMORY_ROW, MEMORY_AT), (EPHEMERAL_ROW, EPHEMERAL_AT)):
            np.add.at(amounts[index], rows, placed.numbers(column, places))
        np.add.at(amounts[PODS_ROW], rows, 1)
        for row, pod in placed.with_scalars_below(self._priority):
            for name, amount in pod.requests.scalars.items():
                known = table.column(name)
                if known is not None:
                    amounts[known, row] += min(amount, INT64_MAX)

    def _read(self, row: int) -> None:
        column = self.amounts[:, row]
        column[:] = 0
        self._pods.pop(row, None)
        info = self._table.infos[row]
        if info is None:
            return
        priority = self._priority
        lower = [pod for pod in info.pods.values() if (pod.pod.spec.priority or 0) < priority]
        if lower:
            column[:] = requested_by(lower, self._table)

    def pods(self, row: int, ordered: Callable[[list[PodInfo]], T]) -> T:
        """Return the result of ``ordered`` for the row's pods below the priority; it is kept until they change."""
        found: T | None = self._pods.get(row)
        if found is None:
            priority = self._priority
            pods = self._table.info(row).pods.values()
            found = self._pods[row] = ordered([pod for pod in pods if (pod.pod.spec.priority or 0) < priority])
        return found


class LowerPriority:
    """Columns of pods below a priority, by priority; made at first use."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._kept: OrderedDict[int, LowerPriorityColumns] = OrderedDict()

    def of(self, priority: int) -> LowerPriorityColumns:
        """Return the columns of the pods below ``priority``, up to date."""
        columns = self._kept.get(priority)
        if columns is None:
            columns = self._kept[priority] = LowerPriorityColumns(self._table, priority)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(priority)
        columns.refresh()
        return columns
