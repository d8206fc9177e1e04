"""The pods on nodes as columns, one entry per pod, in no particular order.

For questions about many pods at once, such as which victims a preemption would find on each of thousands of nodes.
Written by the node table together with its rows; what-if changes leave no trace here. The numbers are kept in plain
arrays because entries are written one at a time; readers get copies as NumPy arrays.
"""

from __future__ import annotations

import math
from array import array
from typing import Final

import numpy as np
import numpy.typing as npt

from kubesched.api.quantity import INT64_MAX
from kubesched.api.times import cached_time
from kubesched.framework.podinfo import PodInfo

from .journal import Log

__all__ = ["CPU_AT", "EPHEMERAL_AT", "MEMORY_AT", "NUMBER_AT", "PRIORITY_AT", "ROW_AT", "PlacedPods"]

#: Places of the numbers of an entry. NUMBER grows with every pod that is added: the order of a node's pods.
ROW_AT: Final = 0
PRIORITY_AT: Final = 1
NUMBER_AT: Final = 2
CPU_AT: Final = 3
MEMORY_AT: Final = 4
EPHEMERAL_AT: Final = 5
_WIDTH: Final = 6

#: What a free entry holds; no pod is below any priority with it.
_FREE: Final = array("q", (-1, INT64_MAX, 0, 0, 0, 0))
_KEPT_CHANGES: Final = 1 << 14


class PlacedPods:
    """Entries of all pods on nodes, by UID.

    Attributes:
        restarted: the rows of pods whose start time changed; the table's journal does not have these.
    """

    __slots__ = ("_count", "_entry_of", "_free", "_numbers", "_scalars", "_starts", "restarted")

    def __init__(self) -> None:
        self._numbers = array("q")
        self._starts = array("d")
        self._entry_of: dict[str, int] = {}
        self._free: list[int] = []
        self._count = 0
        #: The pods that request more than CPU, memory and ephemeral storage, by entry.
        self._scalars: dict[int, PodInfo] = {}
        self.restarted = Log(_KEPT_CHANGES)

    def __len__(self) -> int:
        return len(self._entry_of)

    def add(self, row: int, pod: PodInfo) -> None:
        """A pod is on a row."""
        requests, count = pod.requests, self._count
        self._count = count + 1
        numbers = (
            row,
            pod.pod.spec.priority or 0,
            count,
            requests.milli_cpu,
            requests.memory,
            requests.ephemeral_storage,
        )
        try:
            entry = array("q", numbers)
        except OverflowError:
            entry = array("q", [min(number, INT64_MAX) for number in numbers])
        if self._free:
            place = self._free.pop()
            self._numbers[place * _WIDTH : (place + 1) * _WIDTH] = entry
            self._starts[place] = _start(pod)
        else:
            place = len(self._starts)
            self._numbers.extend(entry)
            self._starts.append(_start(pod))
        self._entry_of[pod.uid] = place
        if requests.scalars:
            self._scalars[place] = pod

    def remove(self, uid: str) -> None:
        """A pod left its row."""
        place = self._entry_of.pop(uid)
        self._numbers[place * _WIDTH : (place + 1) * _WIDTH] = _FREE
        self._free.append(place)
        self._scalars.pop(place, None)

    def replace(self, row: int, pod: PodInfo) -> None:
        """A pod has another version with the same requests and priority."""
        start, place = _start(pod), self._entry_of[pod.uid]
        if start != self._starts[place]:
            self._starts[place] = start
            self.restarted.append(row)

    def below(self, priority: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The entries of lower priority: int64[n, 6] numbers, and float64[n] start times, infinite for not started."""
        numbers = np.frombuffer(self._numbers, np.int64).reshape(-1, _WIDTH)
        found = np.flatnonzero(numbers[:, PRIORITY_AT] < priority)
        return numbers[found], np.frombuffer(self._starts, np.float64)[found]

    def with_scalars_below(self, priority: int) -> list[tuple[int, PodInfo]]:
        """(row, pod) of the pods of lower priority that request scalar resources."""
        numbers = self._numbers
        return [
            (numbers[place * _WIDTH], pod)
            for place, pod in self._scalars.items()
            if numbers[place * _WIDTH + PRIORITY_AT] < priority
        ]

    def entries(self) -> dict[str, tuple[list[int], float]]:
        """UID to (numbers, start time); for the checker."""
        return {
            uid: (list(self._numbers[place * _WIDTH : (place + 1) * _WIDTH]), self._starts[place])
            for uid, place in self._entry_of.items()
        }


def _start(pod: PodInfo) -> float:
    text = pod.pod.status.start_time
    started = cached_time(text) if text else None
    return math.inf if started is None else started
