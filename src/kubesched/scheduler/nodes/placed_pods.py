"""Columns of the pods on nodes, one entry per pod, in no particular order.

They serve questions about many pods at once, for example the possible victims of a preemption on thousands of nodes.
The node table writes them together with its rows; what-if changes are not written. The numbers are in plain arrays,
because entries are written one at a time; readers get NumPy copies.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from typing import Final

import numpy as np
import numpy.typing as npt

from kubesched.api.quantity import INT64_MAX
from kubesched.base.change_log import ChangeLog
from kubesched.base.times import cached_time

from .podinfo import PodInfo

__all__ = [
    "CPU_AT",
    "EPHEMERAL_AT",
    "KIND_AT",
    "MEMORY_AT",
    "NUMBER_AT",
    "PRIORITY_AT",
    "ROW_AT",
    "Kind",
    "KindNumbers",
    "PlacedPods",
]

#: Kind of a pod: its namespace and labels. Label selectors cannot distinguish pods of one kind.
Kind = tuple[str, frozenset[tuple[str, str]]]

#: Indexes of the columns. NUMBER grows with every pod that is added, so it orders a node's pods. KIND is a number of
#: ``kinds``.
ROW_AT: Final = 0
PRIORITY_AT: Final = 1
NUMBER_AT: Final = 2
CPU_AT: Final = 3
MEMORY_AT: Final = 4
EPHEMERAL_AT: Final = 5
KIND_AT: Final = 6

_COLUMNS: Final = 7
#: Fewest and most entries that are added when none is free. Between these bounds, a quarter of the present number is
#: added. The upper bound keeps the pause short: adding a quarter of 800,000 would take 78 ms.
_LEAST: Final = 64
_MOST: Final = 1 << 14
#: Priority of a free entry; it is below no priority.
_FREE: Final = INT64_MAX
#: Entries that the log of restarted pods keeps, at least.
_KEPT_CHANGES: Final = 1 << 14


class KindNumbers:
    """Numbers of the kinds of pods. When the last pod of a kind is gone, its number is free for another kind.

    ``version`` grows when a kind gets a number.
    """

    __slots__ = ("_counts", "_free", "_kinds", "_numbers", "version")

    def __init__(self) -> None:
        self._numbers: dict[Kind, int] = {}
        #: Kind by number; the next list has the number of pods by number of their kind.
        self._kinds: list[Kind] = []
        self._counts: list[int] = []
        self._free: list[int] = []
        self.version = 0

    def __len__(self) -> int:
        """Return one more than the greatest number."""
        return len(self._kinds)

    def get(self, kind: Kind) -> int | None:
        """Return the number of a kind; None when there is no pod of the kind."""
        return self._numbers.get(kind)

    def counts(self) -> dict[Kind, int]:
        """Return the number of pods by kind; for the checker."""
        return {kind: self._counts[number] for kind, number in self._numbers.items()}

    def add(self, kind: Kind) -> int:
        """Count one more pod of a kind. Return the kind's number."""
        number = self._numbers.get(kind)
        if number is not None:
            self._counts[number] += 1
            return number
        self.version += 1
        if self._free:
            number = self._free.pop()
            self._kinds[number], self._counts[number] = kind, 1
        else:
            number = len(self._kinds)
            self._kinds.append(kind)
            self._counts.append(1)
        self._numbers[kind] = number
        return number

    def remove(self, number: int) -> None:
        """Count one pod less of the kind with this number."""
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._numbers[self._kinds[number]]
            self._free.append(number)


class PlacedPods:
    """Columns of all pods on nodes.

    Attributes:
        restarted: log of the rows of pods whose start time changed; the table's journal does not have these changes.
        kinds: numbers of the kinds of pods on nodes.
    """

    __slots__ = (
        "_columns",
        "_count",
        "_free",
        "_of_priority",
        "_places",
        "_scalars",
        "_starts",
        "kinds",
        "restarted",
    )

    def __init__(self) -> None:
        self._columns = tuple(array("q") for _ in range(_COLUMNS))
        self._starts = array("d")
        #: Row to the entries of its pods by UID. One dictionary of all pods would cause a long pause when it grows.
        self._places: dict[int, dict[str, int]] = {}
        self._free: list[int] = []
        self._count = 0
        #: Priority to number of pods.
        self._of_priority: Counter[int] = Counter()
        #: Entry to pod, for pods that request scalar resources.
        self._scalars: dict[int, PodInfo] = {}
        self.restarted: ChangeLog[int] = ChangeLog(_KEPT_CHANGES)
        self.kinds = KindNumbers()

    def __len__(self) -> int:
        return len(self._starts) - len(self._free)

    def add(self, row: int, pod: PodInfo, kind: Kind) -> None:
        """Add the entry of a pod of this kind on a row."""
        if not self._free:
            self._grow()
        place = self._free.pop()
        rows, priorities, numbers, cpu, memory, ephemeral, kinds = self._columns
        spec, requests, text = pod.pod.spec, pod.requests, pod.pod.status.start_time
        self._count += 1
        rows[place], priorities[place], numbers[place] = row, spec.priority or 0, self._count
        self._of_priority[priorities[place]] += 1
        kinds[place] = self.kinds.add(kind)
        try:
            cpu[place], memory[place] = requests.milli_cpu, requests.memory
            ephemeral[place] = requests.ephemeral_storage
        except OverflowError:  # a number beyond 64 bits
            cpu[place], memory[place] = min(requests.milli_cpu, INT64_MAX), min(requests.memory, INT64_MAX)
            ephemeral[place] = min(requests.ephemeral_storage, INT64_MAX)
        self._starts[place] = _start(text) if text else math.inf
        places = self._places.get(row)
        if places is None:
            places = self._places[row] = {}
        places[pod.pod.metadata.uid] = place
        if requests.scalars:
            self._scalars[place] = pod

    def _grow(self) -> None:
        size = len(self._starts)
        more = min(max(_LEAST, size // 4), _MOST)
        for column in self._columns:
            column.frombytes(bytes(8 * more))
        self._starts.frombytes(bytes(8 * more))
        self._columns[PRIORITY_AT][size:] = array("q", [_FREE]) * more
        self._free.extend(range(size + more - 1, size - 1, -1))

    def remove(self, row: int, uid: str) -> None:
        """Remove the entry of a pod that left its row."""
        places = self._places[row]
        place = places.pop(uid)
        if not places:
            del self._places[row]
        priorities, counts = self._columns[PRIORITY_AT], self._of_priority
        counts[priorities[place]] -= 1
        if not counts[priorities[place]]:
            del counts[priorities[place]]
        priorities[place] = _FREE
        self.kinds.remove(self._columns[KIND_AT][place])
        self._free.append(place)
        self._scalars.pop(place, None)

    def replace(self, row: int, pod: PodInfo) -> None:
        """Update the entry of a pod from another version of the pod, with equal requests and priority."""
        text, place = pod.pod.status.start_time, self._places[row][pod.uid]
        start = _start(text) if text else math.inf
        if start != self._starts[place]:
            self._starts[place] = start
            self.restarted.append(row)

    def has_below(self, priority: int) -> bool:
        """Return True if any pod has a lower priority."""
        return any(one < priority for one in self._of_priority)

    def below(self, priority: int, on: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.intp]:
        """Return the entries of pods of lower priority, intp[n]. ``on`` (bool[capacity]): only pods on these rows."""
        found = np.frombuffer(self._columns[PRIORITY_AT], np.int64) < priority
        if on is not None:
            found &= on[np.frombuffer(self._columns[ROW_AT], np.int64)]
        return np.flatnonzero(found)

    def rows_of(self, kinds: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Return the row of each pod of these kinds (bool[kinds]), int64[n]."""
        alive = np.frombuffer(self._columns[PRIORITY_AT], np.int64) != _FREE
        alive &= kinds[np.frombuffer(self._columns[KIND_AT], np.int64)]
        rows: npt.NDArray[np.int64] = np.frombuffer(self._columns[ROW_AT], np.int64)
        found: npt.NDArray[np.int64] = rows[alive]
        return found

    def numbers(self, column: int, places: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Return a column's numbers at some entries, int64[len(places)]; a copy."""
        return np.frombuffer(self._columns[column], np.int64)[places]

    def starts(self, places: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return start times in seconds at some entries, float64[len(places)]; infinite for pods that did not start."""
        return np.frombuffer(self._starts, np.float64)[places]

    def with_scalars_below(self, priority: int) -> list[tuple[int, PodInfo]]:
        """Return (row, pod) for each pod of lower priority that requests scalar resources."""
        rows, priorities = self._columns[ROW_AT], self._columns[PRIORITY_AT]
        return [(rows[place], pod) for place, pod in self._scalars.items() if priorities[place] < priority]

    def entry(self, row: int, uid: str) -> tuple[list[int], float] | None:
        """Return the numbers and the start time of a pod on a row, or None; for the checker."""
        place = self._places.get(row, {}).get(uid)
        return None if place is None else ([column[place] for column in self._columns], self._starts[place])

    def uids(self) -> list[str]:
        """Return the UIDs of the pods that have an entry; for the checker."""
        return [uid for places in self._places.values() for uid in places]


def _start(text: str) -> float:
    started = cached_time(text)
    return math.inf if started is None else started
