"""Columns of node labels and taints, encoded as small integers.

A code stays valid while any node has its value. When the last such node is removed, the code is free for another value,
so the columns do not grow in a cluster whose nodes come and go. ``-1`` means absent.

Used by :mod:`.node_table`; column plugins read them through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kubesched.api.selectors import Operator, Requirement, parse_int64
from kubesched.api.types import Labels, Taint

__all__ = [
    "ABSENT",
    "NO_ROWS",
    "BoolArray",
    "IntArray",
    "IntpArray",
    "LabelColumn",
    "LabelColumns",
    "RowArray",
    "TaintSets",
    "equal_places",
    "joined",
]

ABSENT: Final = -1

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
#: Row numbers, int32 or int64.
RowArray = npt.NDArray[np.integer]
IntpArray = npt.NDArray[np.intp]

#: Most distinct numbers that are searched for one by one. With more numbers, sorting is quicker.
_FEW_DISTINCT: Final = 8

NO_ROWS: Final[IntpArray] = np.zeros(0, np.intp)

#: Most arrays of rows for which a column keeps the codes.
_KEPT_GATHERS: Final = 4

#: Most rows of a code that are sliced anew at each call; the array of more rows is kept.
_SMALL_PART: Final = 8

#: Most label keys that have a column. With more keys, the least recently used column is dropped, and built again when
#: needed.
_MAX_COLUMNS: Final = 256


def joined(parts: Sequence[RowArray]) -> RowArray:
    """Join arrays of rows into one, in which a row may occur several times."""
    if not parts:
        return NO_ROWS
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def equal_places(numbers: npt.NDArray[Any]) -> Iterator[tuple[int, IntpArray]]:
    """Yield each distinct number with its positions, ascending. For few distinct numbers it beats ``np.unique``."""
    places = np.arange(len(numbers))
    for _ in range(_FEW_DISTINCT):
        if not len(numbers):
            return
        least = numbers.min()
        same = numbers == least
        if same.all():
            yield int(least), places
            return
        yield int(least), places[same]
        numbers, places = numbers[~same], places[~same]
    order = np.argsort(numbers, kind="stable")
    numbers, places = numbers[order], places[order]
    cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    for first, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(numbers)], strict=True):
        if first < end:
            yield int(numbers[first]), places[first:end]


class LabelColumn:
    """Column of one label key: ``codes`` is int32[capacity], -1 where the label is absent."""

    __slots__ = ("_counts", "_free", "_gathered", "_parts", "_sorted", "_sorted_version", "_starts", "code_of", "codes", "is_kept", "values", "version")  # fmt: skip

    def __init__(self, capacity: int) -> None:
        self.codes = np.full(capacity, ABSENT, np.int32)
        #: False once the column was dropped; it is no longer updated then.
        self.is_kept = True
        self.code_of: dict[str, int] = {}
        #: Code to value; a free code keeps its last value until it is used again.
        self.values: list[str] = []
        self._counts: list[int] = []
        self._free: list[int] = []
        #: Grows when the code of any row changes.
        self.version = 0
        self._gathered: list[tuple[RowArray, int, IntpArray]] = []
        #: All rows sorted by code, and the index at which each code's rows begin; valid for ``_sorted_version``.
        self._sorted: IntpArray = np.zeros(0, np.intp)
        self._starts: list[int] = []
        self._sorted_version = -1
        #: Rows by code, for codes that many rows have.
        self._parts: dict[int, IntpArray] = {}

    def grow(self, capacity: int) -> None:
        grown = np.full(capacity, ABSENT, np.int32)
        grown[: len(self.codes)] = self.codes
        self.codes = grown

    def set(self, row: int, value: str | None) -> None:
        """Set a row's value (None: absent)."""
        old = int(self.codes[row])
        if old != ABSENT:
            if self.values[old] == value:
                return
            self._counts[old] -= 1
            if self._counts[old] == 0:
                del self.code_of[self.values[old]]
                self._free.append(old)
        elif value is None:
            return
        self.version += 1
        self.codes[row] = ABSENT if value is None else self._acquire(value)

    def at(self, rows: RowArray) -> IntpArray:
        """Return the codes of rows, intp[len(rows)].

        The result for a read-only array is kept, by the array's identity; nobody may write to such an array.
        """
        for kept, version, codes in self._gathered:
            if kept is rows and version == self.version:
                return codes
        codes = self.codes[rows].astype(np.intp)
        if not rows.flags.writeable:
            self._gathered = [(rows, self.version, codes), *self._gathered[: _KEPT_GATHERS - 1]]
        return codes

    def rows_of(self, code: int) -> IntpArray:
        """Return the rows with a code, intp[n], ascending, read-only.

        If the rows are many, the array is the same until the code of any row changes.
        """
        if self._sorted_version != self.version:
            self._sorted = np.argsort(self.codes, kind="stable")
            self._sorted.flags.writeable = False
            codes = np.arange(len(self.values) + 1)
            self._starts = np.searchsorted(self.codes, codes, sorter=self._sorted).tolist()
            self._sorted_version = self.version
            self._parts.clear()
        part = self._parts.get(code)
        if part is None:
            part = self._sorted[self._starts[code] : self._starts[code + 1]]
            if len(part) > _SMALL_PART:
                self._parts[code] = part
        return part

    def _acquire(self, value: str) -> int:
        code = self.code_of.get(value)
        if code is None:
            if self._free:
                code = self._free.pop()
                self.values[code] = value
            else:
                code = len(self.values)
                self.values.append(value)
                self._counts.append(0)
            self.code_of[value] = code
        self._counts[code] += 1
        return code

    def lookup(self, requirement: Requirement) -> BoolArray:
        """Evaluate a requirement once per value: bool[codes + 1], True where it is met.

        The last element is for "absent". Index the result with ``codes``: -1 reads the last element.
        """
        table = np.zeros(len(self.values) + 1, np.bool_)
        match requirement.operator:
            case Operator.IN:
                table[[self.code_of[value] for value in requirement.values if value in self.code_of]] = True
            case Operator.NOT_IN:
                table[:] = True
                table[[self.code_of[value] for value in requirement.values if value in self.code_of]] = False
            case Operator.EXISTS:
                table[:-1] = True
            case Operator.DOES_NOT_EXIST:
                table[-1] = True
            case Operator.GT | Operator.LT:
                above = requirement.operator is Operator.GT
                for code, value in enumerate(self.values):
                    number = parse_int64(value)
                    if number is not None:
                        table[code] = number > requirement.number if above else number < requirement.number
        return table


class LabelColumns:
    """Label columns by key. A column is built when a selector first needs its key, and updated from then on."""

    def __init__(self, capacity: int, scan: Callable[[], Iterable[tuple[int, Labels]]]) -> None:
        """``scan`` yields (row, labels) of every node."""
        self._capacity = capacity
        self._scan = scan
        self._columns: dict[str, LabelColumn] = {}
        #: Every key that a node has, and some that nodes had; None until it is needed.
        self._keys: set[str] | None = None
        self._most_keys = 0

    def column(self, key: str) -> LabelColumn:
        """Return the column of a label key."""
        column = self._columns.pop(key, None)
        if column is None:
            column = LabelColumn(self._capacity)
            # A pod may ask for thousands of keys that no node has, more than there are columns, at every attempt.
            for row, labels in self._scan() if self._may_have(key) else ():
                value = labels.get(key)
                if value is not None:
                    column.set(row, value)
            if len(self._columns) >= _MAX_COLUMNS:
                self._columns.pop(next(iter(self._columns))).is_kept = False
        # The last entry of the dict is the most recently used.
        self._columns[key] = column
        return column

    def _may_have(self, key: str) -> bool:
        """Return False if no node has the label key."""
        if self._keys is None:
            self._keys = {each for _, labels in self._scan() for each in labels}
            self._most_keys = 2 * len(self._keys) + _MAX_COLUMNS
        return key in self._keys

    def set_row(self, row: int, labels: Labels) -> None:
        for key, column in self._columns.items():
            column.set(row, labels.get(key))
        if self._keys is not None:
            self._keys.update(labels)
            if len(self._keys) > self._most_keys:
                self._keys = None  # most of them are of nodes that are gone

    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        for column in self._columns.values():
            column.grow(capacity)

    def items(self) -> Iterable[tuple[str, LabelColumn]]:
        return self._columns.items()

    def matches(self, requirements: Iterable[Requirement], rows: RowArray) -> BoolArray:
        """Return bool[len(rows)]: True for rows that meet all requirements."""
        result = np.ones(len(rows), np.bool_)
        for requirement in requirements:
            column = self.column(requirement.key)
            result &= column.lookup(requirement)[column.codes[rows]]
            if not result.any():
                break  # a selector may have thousands of keys, and each needs a column
        return result


class TaintSets:
    """Column of taints: ``codes`` is int32[capacity], a code per distinct tuple of taints.

    Tolerations are evaluated once per distinct tuple.
    """

    __slots__ = ("_counts", "_free", "_ids", "codes", "sets")

    def __init__(self, capacity: int) -> None:
        self.codes = np.zeros(capacity, np.int32)
        #: Code to taints; code 0 is "no taints".
        self.sets: list[tuple[Taint, ...]] = [()]
        self._ids: dict[tuple[Taint, ...], int] = {(): 0}
        self._counts: list[int] = [1]
        self._free: list[int] = []

    def grow(self, capacity: int) -> None:
        grown = np.zeros(capacity, np.int32)
        grown[: len(self.codes)] = self.codes
        self.codes = grown

    def set(self, row: int, taints: tuple[Taint, ...]) -> None:
        """Set a row's taints."""
        old = int(self.codes[row])
        if self.sets[old] == taints:
            return
        if old:
            self._counts[old] -= 1
            if self._counts[old] == 0:
                del self._ids[self.sets[old]]
                self.sets[old] = ()
                self._free.append(old)
        code = self._ids.get(taints)
        if code is None:
            if self._free:
                code = self._free.pop()
                self.sets[code] = taints
                self._counts[code] = 0
            else:
                code = len(self.sets)
                self.sets.append(taints)
                self._counts.append(0)
            self._ids[taints] = code
        if code:
            self._counts[code] += 1
        self.codes[row] = code

    def gather(self, answer: Callable[[tuple[Taint, ...]], int], rows: RowArray) -> IntArray:
        """Return ``answer`` for each row's taints, int64[len(rows)]; it is called once per distinct tuple."""
        table = np.fromiter((answer(taints) for taints in self.sets), np.int64, len(self.sets))
        result: IntArray = table[self.codes[rows]]
        return result
