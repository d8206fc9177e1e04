"""The scheduling queue once more, as plainly as in the specification: lists, and a scan for everything.

The yardstick of ``test_queue_model.py``. It shares no code with the queue but the events and their matching.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubesched.api.types import Pod
from kubesched.scheduler.framework.events import (
    FORCE_ACTIVATE,
    UNSCHEDULABLE_TIMEOUT,
    ClusterEvent,
    QueueingHint,
    pod_events,
)

Answer = Callable[[Pod, Any, Any], QueueingHint]


@dataclass
class Entry:
    pod: Pod
    timestamp: float
    attempts: int = 0
    count: int = 0
    errors: int = 0
    expiry: float | None = None
    unschedulable: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    gate: str = ""
    flushed: bool = False
    arrival: int = 0
    rank: Any = None

    @property
    def key(self) -> str:
        return self.pod.key

    @property
    def rejectors(self) -> set[str]:
        return self.unschedulable | self.pending


class RefusedError(Exception):
    pass


class Model:
    def __init__(
        self,
        now: Callable[[], float],
        gates: Mapping[str, Mapping[str, Callable[[Pod], bool]]],
        hints: Mapping[str, Mapping[ClusterEvent, Sequence[tuple[str, Answer | None]]]],
        maximum: float,
    ) -> None:
        self.now, self.gates, self.hints, self.maximum = now, gates, hints, maximum
        self.active: list[Entry] = []
        self.backoff: list[Entry] = []
        self.errors: list[Entry] = []
        self.unschedulable: list[Entry] = []
        self.log: list[tuple[str, Any, Any, Any]] = []  # (uid, None, None, None) or ("", event, old, new)
        self.cycle = 0
        self.arrivals = 0
        self.closed = False

    # helpers

    def find(self, heap: list[Entry], key: str) -> Entry | None:
        return next((entry for entry in heap if entry.key == key), None)

    def take(self, heap: list[Entry], key: str) -> Entry | None:
        entry = self.find(heap, key)
        if entry is not None:
            heap.remove(entry)
        return entry

    def put(self, heap: list[Entry], entry: Entry, rank: Any) -> None:
        old = self.find(heap, entry.key)
        if old is entry and entry.rank == rank:
            return
        if old is not None:
            heap[heap.index(old)] = entry
        else:
            heap.append(entry)
        self.arrivals += 1
        entry.arrival, entry.rank = self.arrivals, rank

    def priority_rank(self, entry: Entry) -> Any:
        return (-(entry.pod.spec.priority or 0), entry.timestamp)

    def expiry(self, entry: Entry) -> float:
        count = entry.errors if entry.errors > 0 else entry.count
        if count == 0 or self.maximum == 0:
            return -math.inf
        if entry.expiry is None:
            entry.expiry = math.floor(entry.timestamp + min(2.0 ** (count - 1), self.maximum))
        return entry.expiry

    def backing_off(self, entry: Entry) -> bool:
        return not self.expiry(entry) < math.floor(self.now())

    def head(self, heap: list[Entry]) -> Entry | None:
        return min(heap, key=lambda entry: (entry.rank, entry.arrival), default=None)

    def flying(self) -> list[str]:
        return [uid for uid, _, _, _ in self.log if uid]

    def trace(self) -> list[str]:
        return [uid or event.label for uid, event, _, _ in self.log]

    # rules/queue §6

    def run_gates(self, entry: Entry) -> None:
        plugins = dict(self.gates.get(entry.pod.spec.scheduler_name, {}))
        order = [entry.gate] if entry.gate in plugins else []
        order += [name for name in plugins if name != entry.gate]
        for name in order:
            if not plugins[name](entry.pod):
                entry.unschedulable.add(name)
                entry.gate = name
                return
        entry.gate = ""

    def park(self, entry: Entry) -> None:
        old = self.find(self.unschedulable, entry.key)
        if old is None:
            self.unschedulable.append(entry)
        else:
            self.unschedulable[self.unschedulable.index(old)] = entry

    def to_active(self, entry: Entry, from_backoff: bool = False) -> bool:
        if not from_backoff:
            self.run_gates(entry)
        if entry.gate:
            if not any(self.find(heap, entry.key) for heap in (self.active, self.backoff, self.errors)):
                self.park(entry)
            return False
        for heap in (self.unschedulable, self.backoff, self.errors):
            self.take(heap, entry.key)
        self.put(self.active, entry, self.priority_rank(entry))
        return True

    def to_backoff(self, entry: Entry) -> bool:
        self.run_gates(entry)
        if entry.gate:
            self.park(entry)
            return False
        self.take(self.unschedulable, entry.key)
        if entry.rejectors:
            self.put(self.backoff, entry, (self.expiry(entry), self.priority_rank(entry)))
        else:
            self.put(self.errors, entry, self.expiry(entry))
        return True

    def requeue(self, entry: Entry, strategy: int) -> bool:
        if strategy == 0:
            self.park(entry)
            return False
        if strategy == 1 and self.backing_off(entry):
            return self.to_backoff(entry)
        return self.to_active(entry)

    # rules/queue §10: 0 skip, 1 after backoff, 2 immediately

    def strategy(self, entry: Entry, event: ClusterEvent, old: Any, new: Any) -> int:
        if not entry.rejectors:
            return 1
        if event.is_wildcard:
            return 0 if new is not None and not (isinstance(new, Pod) and new.uid == entry.pod.uid) else 1
        registrations = self.hints.get(entry.pod.spec.scheduler_name)
        if registrations is None:
            return 1
        best = 0
        for registered, pairs in registrations.items():
            if not registered.matches(event):
                continue
            for plugin, hint in pairs:
                if plugin not in entry.rejectors:
                    continue
                try:
                    queue = hint is None or hint(entry.pod, old, new) is not QueueingHint.SKIP
                except ZeroDivisionError:
                    queue = True
                if queue:
                    best = max(best, 2 if plugin in entry.pending else 1)
        return best

    def interesting(self, event: ClusterEvent) -> bool:
        return event.is_wildcard or any(
            registered.matches(event) for registrations in self.hints.values() for registered in registrations
        )

    def gate_registered(self, gate: str, event: ClusterEvent) -> bool:
        return any(
            registered.matches(event) and plugin == gate
            for registrations in self.hints.values()
            for registered, pairs in registrations.items()
            for plugin, _ in pairs
        )

    # rules/queue §7

    def add(self, pod: Pod) -> None:
        self.to_active(Entry(pod, self.now()))

    def update(self, old: Pod, new: Pod) -> None:
        events = pod_events(old, new)
        if new.uid in self.flying():
            self.log += [("", event, old, new) for event in events]
            return
        if (entry := self.find(self.active, new.key)) is not None:
            entry.pod = new
            self.put(self.active, entry, self.priority_rank(entry))
        elif (entry := self.find(self.backoff, new.key)) is not None:
            entry.pod = new
            self.put(self.backoff, entry, (self.expiry(entry), self.priority_rank(entry)))
        elif (entry := self.find(self.errors, new.key)) is not None:
            entry.pod = new
        elif (entry := self.find(self.unschedulable, new.key)) is not None:
            entry.pod = new
            for event in events:
                if self.requeue(entry, self.strategy(entry, event, old, new)):
                    break
        else:
            self.add(new)

    def delete(self, pod: Pod) -> None:
        for heap in (self.active, self.backoff, self.errors, self.unschedulable):
            if self.take(heap, pod.key) is not None:
                return

    def fly(self, entry: Entry) -> bool:
        entry.attempts += 1
        if entry.pod.uid in self.flying():
            return False
        self.log.append((entry.pod.uid, None, None, None))
        self.cycle += 1
        return True

    def pop(self) -> Entry | None:
        while True:
            heap = self.active or self.backoff
            entry = self.head(heap)
            if entry is None:
                return None
            heap.remove(entry)
            if self.fly(entry):
                return entry

    def pop_specific(self, pod: Pod) -> Entry | None:
        self.activate_one(pod.key)
        entry = self.take(self.active, pod.key)
        return entry if entry is not None and self.fly(entry) else None

    def done(self, uid: str) -> None:
        if uid in self.flying():
            self.log.remove((uid, None, None, None))
            while self.log and not self.log[0][0]:
                self.log.pop(0)

    def activate_one(self, key: str) -> bool:
        if (entry := self.find(self.unschedulable, key)) is not None:
            return self.to_active(entry)
        for heap in (self.backoff, self.errors):
            if (entry := self.take(heap, key)) is not None:
                return self.to_active(entry, from_backoff=True)
        return False

    def activate(self, pod: Pod) -> None:
        if not self.activate_one(pod.key) and pod.uid in self.flying():
            self.log.append(("", FORCE_ACTIVATE, None, pod))

    def give_back(self, entry: Entry) -> None:
        uid = entry.pod.uid
        try:
            for heap in (self.unschedulable, self.active, self.backoff, self.errors):
                if self.find(heap, entry.key) is not None:
                    raise RefusedError
            if entry.rejectors:
                entry.count += 1
                entry.errors = 0
            else:
                entry.errors += 1
            entry.timestamp, entry.expiry, entry.flushed = self.now(), None, False
            self.requeue(entry, self.replay(entry))
        finally:
            self.done(uid)

    def replay(self, entry: Entry) -> int:
        uid = entry.pod.uid
        if not entry.rejectors or uid not in self.flying():
            return 1
        start = self.log.index((uid, None, None, None))
        best = 0
        for marker, event, old, new in self.log[start:]:
            if not marker:
                best = max(best, self.strategy(entry, event, old, new))
        return best

    def move_all(self, event: ClusterEvent, old: Any, new: Any, check: Callable[[Pod], bool] | None) -> None:
        if not self.interesting(event):
            return
        self.move([entry for entry in self.unschedulable if check is None or check(entry.pod)], event, old, new)

    def move(self, entries: list[Entry], event: ClusterEvent, old: Any, new: Any) -> None:
        for entry in entries:
            if entry.gate and not self.gate_registered(entry.gate, event):
                continue
            strategy = self.strategy(entry, event, old, new)
            if strategy:
                self.unschedulable.remove(entry)
                self.requeue(entry, strategy)
        if self.flying():
            self.log.append(("", event, old, new))

    def flush(self) -> None:
        for heap in (self.backoff, self.errors):
            while (entry := self.head(heap)) is not None and not self.backing_off(entry):
                heap.remove(entry)
                self.to_active(entry, from_backoff=True)

    def flush_leftover(self) -> None:
        old = [entry for entry in self.unschedulable if self.now() - entry.timestamp > 300]
        for entry in old:
            entry.flushed = True
        if old:
            self.move(old, UNSCHEDULABLE_TIMEOUT, None, None)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.log.clear()
