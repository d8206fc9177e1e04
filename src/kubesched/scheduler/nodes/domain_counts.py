"""Counts of the pods that a rule matches, per row and per domain of a topology key.

The term index updates a :class:`Counter` by one step for each pod that is added or removed; the counter logs its steps.
A :class:`DomainCounts` sums a counter by value of a node label, over all nodes or over the nodes of a :class:`RowMask`.
It keeps up by reading the log, so its cost grows with the number of pods that moved, not with the number of pods or
nodes. When labels change that it depends on, it sums again, in one vector operation over the rows.

A ``counts`` array is never changed once it was returned, because a cycle state may keep it; the next change makes a new
array. Readers that need only single domains (``count``) or a copy (``copied``) save that new array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from kubesched.api.selectors import RequiredNodeAffinity
from kubesched.api.types import Taint
from kubesched.base.change_log import ChangeLog, Follower

from .columns import ABSENT, BoolArray, IntArray, LabelColumn, LabelColumns, RowArray, TaintSets

__all__ = ["Counter", "DomainCounts", "NodeRows", "RowMask"]

#: Entries that a log of steps or of changed domains keeps: at least this many, at most twice as many.
_KEEP: Final = 1024
#: Most numbers for which plain Python is quicker than NumPy.
_FEW: Final = 16


class NodeRows(Protocol):
    """Node table as counting reads it: its rows, their labels and taints.

    Attributes:
        alive: bool[capacity]; True if the row has a node object.
        labels_version, taints_version: grow when any node's labels or taints change, or a node is added or removed.
        readers: every :class:`DomainCounts` in use, for the checker.
    """

    capacity: int
    alive: BoolArray
    labels: LabelColumns
    taints: TaintSets
    labels_version: int
    taints_version: int
    readers: WeakSet[DomainCounts]

    def matches_affinity(self, affinity: RequiredNodeAffinity, rows: RowArray) -> BoolArray: ...


class Counter:
    """Counter of the pods that a rule matches, per row.

    Attributes:
        by_row: row to number of pods, without rows that have none.
        total: number of all these pods.
        live: False once the index dropped the counter: its numbers are no longer updated.
        used: time of the last use, in ticks of the index.
        domains: topology key to the sums over all nodes, made on demand.
        log: steps: ``row`` for a row that gained a pod, ``~row`` for a row that lost one.
    """

    __slots__ = ("_dense", "by_row", "domains", "live", "log", "total", "used")

    def __init__(self) -> None:
        self.by_row: dict[int, int] = {}
        self.total = 0
        self.live = True
        self.used = 0
        self.domains: dict[str, DomainCounts] = {}
        self._dense: npt.NDArray[np.int32] | None = None
        self.log: ChangeLog[int] = ChangeLog(_KEEP)

    def bump(self, row: int, delta: int) -> None:
        """Count one pod more (``delta`` 1) or less (-1) on a row."""
        count = self.by_row.get(row, 0) + delta
        if count:
            self.by_row[row] = count
        else:
            del self.by_row[row]
        self.total += delta
        dense = self._dense
        if dense is None:
            return  # without an array nothing reads the log
        if row >= len(dense):
            self.rest()  # the table grew; the next read adds up again
            return
        dense[row] = count
        self.log.append(row if delta > 0 else ~row)

    def dense(self, capacity: int) -> npt.NDArray[np.int32]:
        """Return the pods per row, int32[capacity]. Do not keep the array: it is updated in place."""
        dense = self._dense
        if dense is None or len(dense) != capacity:
            dense = self._dense = np.zeros(capacity, np.int32)
            if self.by_row:
                rows = np.fromiter(self.by_row, np.intp, len(self.by_row))
                dense[rows] = np.fromiter(self.by_row.values(), np.int32, len(self.by_row))
        return dense

    def rest(self) -> None:
        """Release the arrays; the next read makes them again."""
        self._dense = None
        self.domains.clear()
        self.log.forget()


class RowMask:
    """Mask of the nodes that a pod's rule counts.

    These nodes have all label ``keys``, match a node affinity, and have only tolerated taints.
    """

    __slots__ = ("_affinity", "_keys", "_nodes", "_seen", "_tolerates", "rows", "version")

    def __init__(
        self,
        nodes: NodeRows,
        keys: tuple[str, ...],
        affinity: RequiredNodeAffinity | None = None,
        tolerates: Callable[[tuple[Taint, ...]], bool] | None = None,
    ) -> None:
        """An ``affinity`` or ``tolerates`` of None excludes no node."""
        self._nodes = nodes
        self._keys = keys
        self._affinity = affinity
        self._tolerates = tolerates
        self._seen = (-1, -1, -1)
        self.version = 0
        #: Mask of the counted rows, bool[capacity].
        self.rows: BoolArray = np.zeros(0, np.bool_)

    def sync(self) -> None:
        """Compute ``rows`` again, and raise ``version``, if node labels, taints or the set of nodes changed."""
        nodes = self._nodes
        seen = (nodes.labels_version, nodes.taints_version if self._tolerates else 0, nodes.capacity)
        if seen == self._seen:
            return
        self._seen = seen
        self.version += 1
        rows = np.flatnonzero(nodes.alive)
        keep = np.ones(len(rows), np.bool_)
        for key in self._keys:
            keep &= nodes.labels.column(key).codes[rows] != ABSENT
        if self._affinity is not None:
            keep &= nodes.matches_affinity(self._affinity, rows)
        tolerates = self._tolerates
        if tolerates is not None:
            keep &= nodes.taints.gather(tolerates, rows).astype(np.bool_)
        self.rows = np.zeros(nodes.capacity, np.bool_)
        self.rows[rows[keep]] = True


class DomainCounts:
    """Sums of a counter by value of a node label, over the counted nodes.

    Attributes, valid after :meth:`sync`:
        column: the label's column; its codes index ``counts``.
        present: bool[codes]; True for values that a counted node has.
        places: number of these values.
        total: number of counted pods.
        log: codes whose count changed.
    """

    __slots__ = (
        "__weakref__",
        "_counts",
        "_is_held",
        "_mask",
        "_mask_version",
        "_nodes",
        "_steps",
        "_version",
        "column",
        "counter",
        "key",
        "log",
        "places",
        "present",
        "total",
    )

    def __init__(self, nodes: NodeRows, counter: Counter | None, key: str, mask: RowMask | None = None) -> None:
        """A ``counter`` of None stands for a rule that matches no pod: each domain has 0 pods."""
        self._nodes = nodes
        self._mask = mask
        self._mask_version = 0
        self._version = -1
        self._steps = Follower(counter.log) if counter is not None else None
        self.log: ChangeLog[int] = ChangeLog(_KEEP)
        self.counter = counter
        self.key = key
        self.column: LabelColumn = nodes.labels.column(key)
        self._counts: IntArray = np.zeros(1, np.int64)
        #: True if the array was returned as a whole: a reader may keep it.
        self._is_held = False
        self.present: BoolArray = np.zeros(0, np.bool_)
        self.places = 0
        self.total = 0
        nodes.readers.add(self)

    def sync(self) -> None:
        """Catch up with labels, nodes and pods."""
        column, mask = self.column, self._mask
        if not column.is_kept:
            column = self._nodes.labels.column(self.key)
        if mask is not None:
            mask.sync()
        if (
            column is not self.column
            or column.version != self._version
            or (mask is not None and mask.version != self._mask_version)
        ):
            self._add_up(column)
            return
        if self._steps is None:
            return
        steps = self._steps.read()
        if steps is None or len(steps) > len(column.codes):
            self._add_up(column)
            return
        if not steps:
            return
        codes = column.codes
        if len(steps) > 64:
            logged = np.array(steps, np.int64)
            deltas = np.where(logged >= 0, 1, -1)
            rows = np.where(logged >= 0, logged, ~logged)
            hit = codes[rows] != ABSENT
            if mask is not None:
                hit &= mask.rows[rows]
            touched = codes[rows[hit]]
            np.add.at(self._own(), touched, deltas[hit])
            self.total += int(deltas[hit].sum())
            for code in np.unique(touched).tolist():
                self.log.append(code)
            return
        counts: IntArray | None = None
        for step in steps:
            row, delta = (step, 1) if step >= 0 else (~step, -1)
            if mask is not None and not mask.rows[row]:
                continue
            code = codes.item(row)
            if code != ABSENT:
                if counts is None:
                    counts = self._own()
                counts[code] += delta
                self.total += delta
                self.log.append(code)

    def _own(self) -> IntArray:
        """Return the array of counts for a change: a copy if a reader may keep the present one."""
        if self._is_held:
            self._counts, self._is_held = self._counts.copy(), False
        return self._counts

    @property
    def counts(self) -> IntArray:
        """Pods per label value, int64[codes + 1]; never changed. The last element, 0, is for "absent" (-1)."""
        self._is_held = True
        return self._counts

    def copied(self) -> IntArray:
        """Return a copy of ``counts``, which the caller may change."""
        return self._counts.copy()

    def count(self, code: int) -> int:
        """Return the number of pods of one label value."""
        return self._counts.item(code)

    def least(self, counts: IntArray | None = None) -> int:
        """Return the least count of the present values, 0 without any.

        ``counts`` is used instead of the object's own counts.
        """
        counts = self._counts if counts is None else counts
        if not self.places:
            return 0
        present = counts[:-1] if self.places == len(self.present) else counts[:-1][self.present]
        return min(present.tolist()) if self.places <= _FEW else int(np.minimum.reduce(present))

    def includes(self, row: int) -> bool:
        """Return True if the pods on a node are counted."""
        return bool(self.column.codes[row] != ABSENT) and (self._mask is None or bool(self._mask.rows[row]))

    def _add_up(self, column: LabelColumn) -> None:
        self.log.forget()
        self.column, self._version = column, column.version
        codes = column.codes
        rows = np.flatnonzero(codes != ABSENT)
        if self._mask is not None:
            self._mask_version = self._mask.version
            rows = rows[self._mask.rows[rows]]
        size = len(column.values)
        here = codes[rows]
        self.present = np.bincount(here, minlength=size) > 0
        self.places = int(self.present.sum())
        counts = np.zeros(size + 1, np.int64)
        if self.counter is not None and self._steps is not None:
            dense = self.counter.dense(self._nodes.capacity)
            counts[:size] = np.bincount(here, dense[rows], minlength=size)
            self._steps.skip()
        self._counts, self._is_held = counts, False
        self.total = int(counts.sum())
