"""Split heap: two keyed heaps that form one sub-queue, but are popped by different loops.

Pods that an extender is interested in are scheduled apart, one after the other, while other pods go on. They wait in
the same sub-queues as other pods, with the same order, events, updates and metrics. Only another loop pops them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..framework.metrics import GaugeValue
from ..framework.queued import QueuedPodInfo
from .heap import KeyedHeap

__all__ = ["IsApart", "SplitHeap"]

#: Function that returns True if a pod is popped by the loop for pods apart.
IsApart = Callable[[QueuedPodInfo], bool]


class SplitHeap:
    """Heap of queued pods, by key, in two parts: pods apart, and the usual pods.

    ``is_apart`` is called when a pod is put in, and again when it is replaced.
    """

    __slots__ = ("_is_apart", "apart", "usual")

    def __init__(
        self, order: Callable[[QueuedPodInfo], Any], gauge: GaugeValue | None = None, is_apart: IsApart | None = None
    ) -> None:
        """For ``order`` and ``gauge`` see :class:`.heap.KeyedHeap`. Without ``is_apart`` no pod is apart."""
        gauge = gauge if gauge is not None else GaugeValue()
        self._is_apart = is_apart
        self.usual: KeyedHeap[QueuedPodInfo] = KeyedHeap(order, gauge)
        self.apart: KeyedHeap[QueuedPodInfo] = KeyedHeap(order, gauge)

    def put(self, key: str, record: QueuedPodInfo) -> bool:
        """Insert or replace a pod; True if the key is new."""
        if self._is_apart is None:
            return self.usual.put(key, record)
        heap, other = (self.apart, self.usual) if self._is_apart(record) else (self.usual, self.apart)
        moved = other.remove(key) is not None
        return heap.put(key, record) and not moved

    def pop(self, *, apart: bool = False) -> QueuedPodInfo | None:
        """Remove and return the first of the pods apart, or of the usual pods; None when there is none."""
        return (self.apart if apart else self.usual).pop()

    def remove(self, key: str) -> QueuedPodInfo | None:
        found = self.usual.remove(key)
        return found if found is not None or self._is_apart is None else self.apart.remove(key)

    def get(self, key: str) -> QueuedPodInfo | None:
        found = self.usual.get(key)
        return found if found is not None or self._is_apart is None else self.apart.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self.usual or key in self.apart

    def __len__(self) -> int:
        return len(self.usual) + len(self.apart)

    def before(self, key: str) -> int:
        """Return the number of pods of the same part that are popped before the pod of a key."""
        return (self.usual if key in self.usual else self.apart).before(key)

    def items(self) -> list[QueuedPodInfo]:
        return self.usual.items() + self.apart.items()

    def check(self, name: str) -> list[str]:
        problems = self.usual.check(name) + self.apart.check(f"{name} (apart)")
        is_apart = self._is_apart
        for heap, expected in ((self.usual, False), (self.apart, True)):
            for record in heap.items():
                if (is_apart is not None and is_apart(record)) is not expected:
                    problems.append(
                        f"{name}: {record.key} should {'not be' if expected else 'be'} among the pods apart"
                    )
        return problems
