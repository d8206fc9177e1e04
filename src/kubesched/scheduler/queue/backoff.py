"""Backoff queue: pods that wait for some time after a failed attempt.

It has two heaps. One is for pods that a plugin rejected; Pop may take such a pod early when no pod is active. The other
is for pods whose attempt ended in an error, and for members of pod groups. They always wait: an attempt for a group
costs as much as an attempt for each member. The scheduling queue fills and empties both.

Source: rules/queue §4.
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

#: Time of expiry of a pod that has no backoff.
NEVER: Final = -math.inf

_NANOSECONDS: Final = 1_000_000_000


class BackoffQueue:
    """Backoff queue: ``pods`` holds rejected pods, ``errors`` pods after an error. Times are seconds of the clock.

    Args:
        initial: backoff after the first failure; it doubles with each further failure.
        maximum: longest backoff; 0 turns backoff off.
        sort_key: the active queue's order; it decides between pods whose backoff ends in the same second.
        gauge: counts the pods of both heaps.
        is_apart: returns True for rejected pods that are popped apart.
        whole_seconds: backoff ends at a whole second. If False (gate SchedulerPopFromBackoffQ off), it ends at its
            exact time, and pods are ordered by that time alone.
        groups: members of pod groups are never taken early.
    """

    __slots__ = ("_gauge", "_groups", "_initial", "_maximum", "_whole_seconds", "errors", "pods")

    def __init__(
        self,
        initial: float,
        maximum: float,
        sort_key: Callable[[QueuedPodInfo], Any],
        gauge: GaugeValue | None = None,
        is_apart: IsApart | None = None,
        *,
        whole_seconds: bool = True,
        groups: bool = False,
    ) -> None:
        self._groups = groups
        self._whole_seconds = whole_seconds
        self._gauge = gauge = gauge if gauge is not None else GaugeValue()
        self._initial = round(initial * _NANOSECONDS)
        self._maximum = round(maximum * _NANOSECONDS)
        order = (lambda record: (self.expiry(record), sort_key(record))) if whole_seconds else self.expiry
        self.pods = SplitHeap(order, gauge, is_apart)
        self.errors: KeyedHeap[QueuedPodInfo] = KeyedHeap(self.expiry, gauge)

    def duration(self, count: int) -> float:
        """Return the backoff after the ``count``-th failure in a row, in seconds."""
        if count <= 0 or self._maximum == 0:
            return 0.0
        shift = count - 1
        if self._initial > self._maximum >> shift:
            return self._maximum / _NANOSECONDS
        return (self._initial << shift) / _NANOSECONDS

    def expiry(self, record: QueuedPodInfo) -> float:
        """Return the time when a pod's backoff ends, and keep it in the record; :data:`NEVER` without backoff.

        With ``whole_seconds`` the time is rounded down to a whole second.
        """
        count = record.consecutive_errors_count or record.unschedulable_count
        if count == 0 or self._maximum == 0:
            return NEVER
        if record.backoff_expiration is None:
            end = record.timestamp + self.duration(count)
            record.backoff_expiration = float(math.floor(end)) if self._whole_seconds else end
        return record.backoff_expiration

    def backing_off(self, record: QueuedPodInfo, now: float) -> bool:
        """Return True if the pod must still wait; with ``whole_seconds``, also during the second of its expiry."""
        return self.expiry(record) >= (math.floor(now) if self._whole_seconds else now)

    def put(self, key: str, record: QueuedPodInfo) -> bool:
        """Put a pod into its heap. Return True if the pod was in neither heap, so that it counts as incoming."""
        heap: SplitHeap | KeyedHeap[QueuedPodInfo]
        other: SplitHeap | KeyedHeap[QueuedPodInfo]
        waits = not record.has_rejectors or (self._groups and record.pod_info.pod.spec.scheduling_group is not None)
        heap, other = (self.errors, self.pods) if waits else (self.pods, self.errors)
        new = heap.put(key, record)
        if other.remove(key) is not None:
            _log.error("Pod %s was in the other backoff queue as well", key)
            return False
        return new

    def update(self, key: str, record: QueuedPodInfo) -> None:
        """Give a changed pod its new place in its present heap."""
        if key in self.pods:
            self.pods.put(key, record)
        else:
            self.errors.put(key, record)

    def get(self, key: str) -> QueuedPodInfo | None:
        return (self.pods.get(key) or self.errors.get(key)) if self._gauge.value else None

    def remove(self, key: str) -> QueuedPodInfo | None:
        return (self.pods.remove(key) or self.errors.remove(key)) if self._gauge.value else None

    def pop_completed(self, now: float) -> Iterator[QueuedPodInfo]:
        """Remove and yield every pod whose backoff is over: rejected pods first, then pods after an error."""
        for heap in self._heaps():
            while (head := heap.peek()) is not None and not self.backing_off(head, now):
                heap.pop()
                yield head

    def next_completion(self) -> float | None:
        """Return the time of the first flush that will find a pod to move, or None. A flush runs each whole second."""
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
