"""Keyed heap: a heap whose items can be replaced and removed by key.

The queue uses it for active pods, for pods in backoff, and for the timeout of unschedulable pods.

An entry is ``(order, sequence, key, item)``. An entry that comes after all others, as most do, is appended to a sorted
*run*. Any other entry goes onto a ``heapq``. The first entry of the heap is the smaller one of the two heads. When an
item is removed or its order changes, its old entry stays, and is skipped when it comes up (lazy deletion). Run and
heapq are rebuilt when stale entries outnumber live ones, so memory is proportional to the number of items. Items of
equal order come out as they went in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, KeysView
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeVar

from ..framework.metrics import GaugeValue

__all__ = ["KeyedHeap"]

Item = TypeVar("Item")

#: Number of stale entries up to which the heap is never rebuilt.
_SLACK: Final = 64


class KeyedHeap(Generic[Item]):
    """Heap of items, by key; the smallest ``order(item)`` comes first (rules/queue §3).

    ``order`` is called when an item is put in; its result must not change afterwards. ``gauge`` counts the items; heaps
    may share a gauge.
    """

    __slots__ = ("_entries", "_gauge", "_heap", "_order", "_run", "_sequence")

    def __init__(self, order: Callable[[Item], Any], gauge: GaugeValue | None = None) -> None:
        self._order = order
        self._gauge = gauge if gauge is not None else GaugeValue()
        self._heap: list[tuple[Any, int, str, Item]] = []
        self._run: deque[tuple[Any, int, str, Item]] = deque()
        self._entries: dict[str, tuple[Any, int, str, Item]] = {}
        self._sequence = 0

    def put(self, key: str, item: Item) -> bool:
        """Insert an item, or replace the item of the key and give it its new place. True if the key is new.

        An item that is put again with an unchanged order keeps its place among items of equal order.
        """
        order = self._order(item)
        old = self._entries.get(key)
        if old is not None and old[3] is item and old[0] == order:
            return False
        self._sequence += 1
        entry = (order, self._sequence, key, item)
        if not self._run or self._run[-1] < entry:
            self._run.append(entry)
        else:
            heappush(self._heap, entry)
        self._entries[key] = entry
        if old is None:
            self._gauge.value += 1
        else:
            self._compact()
        return old is None

    def pop(self) -> Item | None:
        """Remove and return the first item; None when the heap is empty."""
        entries = self._entries
        while self._heap or self._run:
            entry = self._take()
            key = entry[2]
            if entries.get(key) is entry:
                del entries[key]
                self._gauge.value -= 1
                return entry[3]
        return None

    def peek(self) -> Item | None:
        """Return the first item; None when the heap is empty."""
        heap, run, entries = self._heap, self._run, self._entries
        while heap or run:
            entry = run[0] if not heap or (run and run[0] < heap[0]) else heap[0]
            if entries.get(entry[2]) is entry:
                return entry[3]
            self._take()
        return None

    def _take(self) -> tuple[Any, int, str, Item]:
        """Remove the first entry, stale or not."""
        heap, run = self._heap, self._run
        return run.popleft() if not heap or (run and run[0] < heap[0]) else heappop(heap)

    def remove(self, key: str) -> Item | None:
        """Remove and return the item of a key; None when there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._gauge.value -= 1
        self._compact()
        return entry[3]

    def get(self, key: str) -> Item | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[3]

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> KeysView[str]:
        return self._entries.keys()

    def items(self) -> list[Item]:
        """Return all items, in the order in which they were first put in."""
        return [entry[3] for entry in self._entries.values()]

    def before(self, key: str) -> int:
        """Return the number of items that come out before the item of a key; compares all of them."""
        mine = self._entries[key][:2]
        return sum(entry[:2] < mine for entry in self._entries.values())

    def _compact(self) -> None:
        live = len(self._entries)
        if len(self._heap) + len(self._run) > 2 * live + _SLACK:
            self._heap = list(self._entries.values())
            self._run.clear()
            heapify(self._heap)

    def check(self, name: str) -> list[str]:
        """Return the heap's inconsistencies as texts; ``name`` is the heap's name in them."""
        problems = []
        heap, run = self._heap, list(self._run)
        live = sum(1 for entry in heap + run if self._entries.get(entry[2]) is entry)
        if live != len(self._entries):
            problems.append(f"{name}: {len(self._entries)} items, {live} of them in the heap")
        if len(heap) + len(run) > 2 * len(self._entries) + _SLACK + 1:
            problems.append(f"{name}: {len(heap) + len(run)} entries for {len(self._entries)} items")
        problems += [
            f"{name}: entry {at} is not in order" for at in range(1, len(run)) if run[at][:2] < run[at - 1][:2]
        ]
        wrong = [at for at in range(1, len(heap)) if heap[at][:2] < heap[(at - 1) // 2][:2]]
        problems += [f"{name}: entry {at} is smaller than its parent" for at in wrong]
        for key, entry in self._entries.items():
            if entry[2] != key:
                problems.append(f"{name}: {entry[2]} is filed under {key}")
            elif entry[0] != self._order(entry[3]):
                problems.append(f"{name}: the order of {key} changed in place")
        return problems
