"""Pods that sit out a while after a failed attempt.

Source: rules/queue §4. Two heaps: pods that some plugin rejected, which Pop may take early
when nothing else is there, and pods whose attempt failed by an error, which always wait. Filled and emptied
by the scheduling queue.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..framework.metrics import GaugeValue
from ..framework.queued import QueuedPodInfo
from .heap import KeyedHeap
from .split_heap import IsApart, SplitHeap

__all__ = ["NEVER", "BackoffQueue"]

_log = logging.getLogger("kubesched.scheduler.queue")

#: The expiry of a pod that does not back off at all.
NEVER: Final = -math.inf

_NANOSECONDS: Final = 1_000_000_000


class BackoffQueue:
    """The pod and error backoff heaps. All times are seconds of the scheduler's clock.

    ``initial`` doubles with each failure up to ``maximum``; a maximum of 0 turns backoff off. ``sort_key``
    is the active queue's order: it ranks pods whose backoff ends in the same second. ``gauge`` counts the pods;
    ``is_apart`` names those of the rejected pods that are popped apart from the others. Without ``whole_seconds`` (gate
    SchedulerPopFromBackoffQ off) backoff ends exactly when it is over, and nothing ranks pods but that.
    """

    __slots__ = ("_gauge", "_initial", "_maximum", "_whole_seconds", "errors", "pods")

    def __init__(
        self,
        initial: float,
        maximum: float,
        sort_key: Callable[[QueuedPodInfo], Any],
        gauge: GaugeValue | None = None,
        is_apart: IsApart | None = None,
        *,
        whole_seconds: bool = True,
    ) -> None:
        self._whole_seconds = whole_seconds
        self._gauge = gauge = gauge if gauge is not None else GaugeValue()
        self._initial = round(initial * _NANOSECONDS)
        self._maximum = round(maximum * _NANOSECONDS)
        order = (lambda record: (self.expiry(record), sort_key(record))) if whole_seconds else self.expiry
        self.pods = SplitHeap(order, gauge, is_apart)
        self.errors: KeyedHeap[QueuedPodInfo] = KeyedHeap(self.expiry, gauge)

    def duration(self, count: int) -> float:
        """How long a pod waits after its ``count``-th failure in a row, in seconds."""
        if count <= 0 or self._maximum == 0:
            return 0.0
        shift = count - 1
        if self._initial > self._maximum >> shift:
            return self._maximum / _NANOSECONDS
        return (self._initial << shift) / _NANOSECONDS

    def expiry(self, record: QueuedPodInfo) -> float:
        """When the pod's backoff ends, floored to a whole second if so configured, kept in the record; or :data:`NEVER`."""
        count = record.consecutive_errors_count or record.unschedulable_count
        if count == 0 or self._maximum == 0:
            return NEVER
        if record.backoff_expiration is None:
            end = record.timestamp + self.duration(count)
            record.backoff_expiration = float(math.floor(end)) if self._whole_seconds else end
        return record.backoff_expiration

    def backing_off(self, record: QueuedPodInfo, now: float) -> bool:
        """Whether the pod must still wait; the second in which its backoff ends counts as waiting."""
        return self.expiry(record) >= (math.floor(now) if self._whole_seconds else now)

    def put(self, key: str, record: QueuedPodInfo) -> bool:
        """File a pod in the heap it belongs to. True when it was in neither (so it counts as incoming)."""
        heap: SplitHeap | KeyedHeap[QueuedPodInfo]
        other: SplitHeap | KeyedHeap[QueuedPodInfo]
        heap, other = (self.pods, self.errors) if record.has_rejectors else (self.errors, self.pods)
        new = heap.put(key, record)
        if other.remove(key) is not None:
            _log.error("Pod %s was in the other backoff queue as well", key)
            return False
        return new

    def update(self, key: str, record: QueuedPodInfo) -> None:
        """Give a changed pod its new place in the heap it is in."""
        if key in self.pods:
            self.pods.put(key, record)
        else:
            self.errors.put(key, record)

    def get(self, key: str) -> QueuedPodInfo | None:
        return (self.pods.get(key) or self.errors.get(key)) if self._gauge.value else None

    def remove(self, key: str) -> QueuedPodInfo | None:
        return (self.pods.remove(key) or self.errors.remove(key)) if self._gauge.value else None

    def pop_completed(self, now: float) -> Iterator[QueuedPodInfo]:
        """Take out every pod whose backoff is over, one by one: rejected pods first, then failed ones."""
        for heap in self._heaps():
            while (head := heap.peek()) is not None and not self.backing_off(head, now):
                heap.pop()
                yield head

    def next_completion(self) -> float | None:
        """The first time at which the flush, which runs each whole second, finds a pod to move."""
        ends = [self.expiry(head) for heap in self._heaps() if (head := heap.peek()) is not None]
        return math.floor(min(ends)) + 1.0 if ends else None

    def _heaps(self) -> tuple[KeyedHeap[QueuedPodInfo], ...]:
        return self.pods.usual, self.pods.apart, self.errors

    def items(self) -> list[QueuedPodInfo]:
        return self.pods.items() + self.errors.items()

    def __contains__(self, key: str) -> bool:
        return key in self.pods or key in self.errors

    def __len__(self) -> int:
        return len(self.pods) + len(self.errors)

    def check(self) -> list[str]:
        problems = self.pods.check("podBackoffQ") + self.errors.check("podErrorBackoffQ")
        both = [record.key for record in self.pods.items() if record.key in self.errors]
        problems += [f"{key} is in both backoff queues" for key in both]
        return problems
