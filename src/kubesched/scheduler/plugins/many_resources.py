"""Verdicts of NodeResourcesFit for pods that ask for more resources than a verdict has bits for.

A verdict is then the number of an outcome: which resources are lacking, as one bit each. The nodes are compared column by
column, and in parts of bounded size, because a pod may name tens of thousands of resources.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import compress
from typing import Final

import numpy as np

from ..framework.question import RowArray, VerdictArray
from ..framework.status import Code, Status
from ..nodes import NodeInfo, NodeTable
from ..nodes.columns import BoolArray

__all__ = ["ManyAmounts"]

#: Most amounts that are compared at once: 8 MB for each array.
_MOST_AT_ONCE: Final = 1 << 20


class ManyAmounts:
    """Amounts of many resources, and the outcomes on nodes that were met so far."""

    def __init__(self, amounts: Sequence[tuple[str, int]], delegated: Collection[str], pods_row: int) -> None:
        """``amounts`` are (resource, amount). A ``delegated`` resource is not lacking on a node that does not list it.

        ``pods_row`` is the row of the number of pods in the table's amounts.
        """
        self._amounts = amounts
        self._delegated = np.array([name in delegated for name, _ in amounts], np.bool_)
        self._pods_row = pods_row
        self._texts = ["Too many pods", *(f"Insufficient {name}" for name, _ in amounts)]
        #: Numbers of the outcomes, from 1, by the bits: too many pods and each lacking resource, and in the last bit if one
        #: of these amounts is more than the node has in all.
        self._numbers: dict[bytes, int] = {}
        self._outcomes: list[bytes] = []

    def verdicts(self, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        """The verdicts on the nodes of these rows."""
        columns = [nodes.column(name) for name, _ in self._amounts]
        known = np.array([index is not None for index in columns], np.bool_)
        indices = np.array([index for index in columns if index is not None], np.intp)
        wanted = np.array(
            [amount for (_, amount), index in zip(self._amounts, columns, strict=True) if index is not None], np.int64
        )
        base = np.zeros(len(self._texts) + 1, np.bool_)
        # No node has a resource without a column.
        base[1:-1] = ~known & ~self._delegated
        base[-1] = base[1:-1].any()
        verdicts = np.zeros(len(rows), np.uint64)
        step = max(1, _MOST_AT_ONCE // max(1, len(indices)))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            verdicts[start : start + step] = self._compared(nodes, part, known, indices, wanted, base)
        return verdicts

    def _compared(
        self, nodes: NodeTable, rows: RowArray, known: BoolArray, indices: RowArray, wanted: RowArray, base: BoolArray
    ) -> VerdictArray:
        """Compare the amounts ``wanted`` with the columns ``indices``; ``base`` has the bits that are equal on all nodes."""
        here = np.ix_(indices, rows)
        capacity, asked = nodes.allocatable[here], wanted[:, None]
        lacking = asked > capacity - nodes.requested[here]
        lacking &= ~self._delegated[known][:, None] | (capacity != 0)
        full = nodes.requested[self._pods_row, rows] >= nodes.allocatable[self._pods_row, rows]
        over = (lacking & (asked > capacity)).any(axis=0)
        places = np.flatnonzero(known) + 1
        numbers: dict[bytes, int] = {}
        found = []
        bits = np.packbits(np.vstack((full, over, lacking)), axis=0).T.copy()
        for place, key in enumerate(map(bytes, bits)):
            number = numbers.get(key)
            if number is None:
                outcome = base.copy()
                outcome[places] = lacking[:, place]
                outcome[0], outcome[-1] = full[place], outcome[-1] | over[place]
                number = numbers[key] = self._number(outcome)
            found.append(number)
        return np.array(found, np.uint64)

    def verdict(self, node: NodeInfo) -> int:
        """The verdict on one node."""
        allocatable, requested = node.allocatable, node.requested
        outcome = np.zeros(len(self._texts) + 1, np.bool_)
        outcome[0] = len(node.pods) >= allocatable.allowed_pods
        for place, (name, amount) in enumerate(self._amounts):
            capacity = allocatable.get(name)
            if amount > capacity - requested.get(name) and (capacity or not self._delegated[place]):
                outcome[place + 1] = True
                outcome[-1] |= amount > capacity
        return self._number(outcome)

    def _number(self, outcome: BoolArray) -> int:
        if not outcome.any():
            return 0
        key = np.packbits(outcome).tobytes()
        number = self._numbers.get(key)
        if number is None:
            self._outcomes.append(key)
            number = self._numbers[key] = len(self._outcomes)
        return number

    def why(self, verdict: int) -> Status:
        """The status of a verdict."""
        packed = np.frombuffer(self._outcomes[verdict - 1], np.uint8)
        *lacking, over = np.unpackbits(packed, count=len(self._texts) + 1).tolist()
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if over else Code.UNSCHEDULABLE
        return Status(code, *compress(self._texts, lacking))
