"""Pods in flight (pods that are being scheduled), and the events that happened meanwhile.

Upstream keeps one linked list of pod markers and events. Here the events are a list, and each pod remembers how many
events had been recorded when it was popped. Events at the front of the list are dropped as soon as all pods in flight
were popped after them. With no pod in flight nothing is kept.

Source: rules/queue §8.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

from ..framework.metrics import Gauge
from ..framework.queued import QueuedPodInfo
from ..nodes.podinfo import PodInfo
from .queueing_hints import EventPlan

__all__ = ["POD_POPPED", "InFlight", "RecordedEvent"]

#: Label of pods in the in-flight metric.
POD_POPPED: Final = "PodPopped"

#: Most dropped events that stay at the front of the list before it is cut.
_SLACK: Final = 256


class RecordedEvent(NamedTuple):
    plan: EventPlan
    old: Any
    new: Any


class InFlight:
    """Pods in flight by UID, in the order they were popped, and the events that concern them.

    The metric is written at once: a scrape sees the current state, not one up to a second old.
    """

    __slots__ = ("_base", "_events", "_gauge", "_head", "_markers", "_pods")

    def __init__(self, gauge: Gauge) -> None:
        #: UID to (absolute number of the first event that concerns the pod, the pod).
        self._pods: OrderedDict[str, tuple[int, QueuedPodInfo]] = OrderedDict()
        self._events: list[RecordedEvent | None] = []
        self._base = 0  # absolute number of _events[0]
        self._head = 0  # index of the first event that still counts
        self._gauge = gauge
        self._markers = gauge.labels(POD_POPPED)

    def add(self, uid: str, record: QueuedPodInfo) -> bool:
        """Mark a pod in flight; False, without effect, if its UID is in flight already."""
        if uid in self._pods:
            return False
        self._pods[uid] = (self._base + len(self._events), record)
        self._markers.value += 1
        return True

    def record(self, plan: EventPlan, old: Any, new: Any) -> None:
        """Keep an event for every pod in flight. At least one pod must be in flight."""
        self._events.append(RecordedEvent(plan, old, new))
        self._gauge.labels(plan.label).value += 1

    def events_since_pop(self, uid: str) -> list[RecordedEvent]:
        """Return the events that were recorded after the pod was popped, in order.

        Raises:
            KeyError: when the pod is not in flight.
        """
        # Entries at or after a live pod's position have never been cleared.
        return self._events[self._pods[uid][0] - self._base :]  # type: ignore[return-value]

    def done(self, uid: str) -> None:
        """Forget a pod and every event that concerns no other pod in flight. Unknown pods are ignored."""
        if self._pods.pop(uid, None) is None:
            return
        self._markers.value -= 1
        events = self._events
        keep_from = next(iter(self._pods.values()))[0] - self._base if self._pods else len(events)
        if keep_from == self._head:
            return
        for at in range(self._head, keep_from):
            event = events[at]
            if event is not None:
                self._gauge.labels(event.plan.label).value -= 1
                events[at] = None  # release the objects even before the list is cut
        self._head = keep_from
        if keep_from == len(events) or (keep_from > _SLACK and 2 * keep_from > len(events)):
            del events[:keep_from]
            self._base += keep_from
            self._head = 0

    def pod_info(self, uid: str) -> PodInfo | None:
        """Return the pod as it was popped; None when it is not in flight."""
        entry = self._pods.get(uid)
        return None if entry is None else entry[1].pod_info

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def uids(self) -> list[str]:
        return list(self._pods)

    def records(self) -> list[QueuedPodInfo]:
        return [record for _, record in self._pods.values()]

    @property
    def event_count(self) -> int:
        """Number of events kept."""
        return len(self._events) - self._head

    def trace(self) -> list[str]:
        """Return upstream's list, oldest first: UIDs of pods and labels of events."""
        lines: list[tuple[int, int, str]] = []
        for order, (uid, (position, _)) in enumerate(self._pods.items()):
            lines.append((position, order, uid))
        after = len(self._pods)
        for at in range(self._head, len(self._events)):
            event = self._events[at]
            if event is not None:
                lines.append((self._base + at, after, event.plan.label))
        return [text for _, _, text in sorted(lines)]

    def check(self) -> list[str]:
        problems = []
        positions = [position for position, _ in self._pods.values()]
        first = self._base + self._head
        if positions != sorted(positions):
            problems.append("in flight: pods are not in the order of their positions")
        if positions and positions[0] != first:
            problems.append(f"in flight: events from {first} are kept, the oldest pod needs them from {positions[0]}")
        if not positions and self._events:
            problems.append(f"in flight: {self.event_count} events are kept for no pod")
        if any(event is None for event in self._events[self._head :]):
            problems.append("in flight: a needed event was cleared")
        if self._markers.value != len(self._pods):
            problems.append(f"in flight: {len(self._pods)} pods, the metric says {self._markers.value:g}")
        return problems
