"""Ring of the newest entries in memory, bounded in number and in bytes, and filters of records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from kubesched.base.turns import Steps, finish

from .entry import Entry
from .schema import Record

__all__ = ["RecordFilter", "Ring", "json_lines"]

#: Bytes that a ring may take, by default.
_MOST_BYTES: Final = 32 << 20
#: Entries that are looked at in one step.
_STEP: Final = 100


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Filter of records; a field that is empty or None lets all pass.

    Attributes:
        pod: name, or ``namespace/name``, or UID of a pod.
        node: node that was chosen, nominated, preempted on or among the best.
        plugin: plugin that rejected nodes or the pod, or that gave the best nodes different scores.
        outcome: end of the attempt.
        since, until: bounds of the time, in epoch seconds; the second is exclusive.
    """

    pod: str = ""
    node: str = ""
    plugin: str = ""
    outcome: str = ""
    since: float | None = None
    until: float | None = None

    def accepts(self, record: Record) -> bool:
        """Return True if a record passes."""
        return (
            (self.since is None or record.at >= self.since)
            and (self.until is None or record.at < self.until)
            and (not self.outcome or record.outcome == self.outcome)
            and (not self.pod or self.pod in (record.pod.name, record.pod.key, record.pod.uid))
            and (not self.node or self.node in _nodes_of(record))
            and (not self.plugin or self.plugin in _plugins_of(record))
        )


def _nodes_of(record: Record) -> Iterator[str]:
    yield record.node
    yield record.nominated_node
    if record.preemption is not None:
        yield record.preemption.node
    for one in record.top:
        yield one.node


def _plugins_of(record: Record) -> Iterator[str]:
    """Yield the plugins that rejected nodes, and those whose scores differ between the chosen node and the others."""
    for verdict in record.verdicts:
        yield verdict.plugin
    for other in record.top[1:]:
        for plugin, score in other.scores.items():
            if record.top[0].scores.get(plugin, 0) != score:
                yield plugin


class Ring:
    """Ring of the newest entries: at most ``most`` entries and about ``most_bytes`` bytes."""

    def __init__(self, most: int, most_bytes: int = _MOST_BYTES) -> None:
        """``most`` 0 keeps nothing.

        Raises:
            ValueError: if a bound is negative.
        """
        if most < 0 or most_bytes < 0:
            raise ValueError(f"a ring of {most} entries and {most_bytes} bytes: expected no negative number")
        self._most = most
        self._most_bytes = most_bytes
        self._entries: deque[Entry] = deque()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Add an entry that has ended; the oldest ones go if there is no room."""
        entries = self._entries
        entries.append(entry)
        self.nbytes += entry.size
        while len(entries) > self._most or (self.nbytes > self._most_bytes and entries):
            self.nbytes -= entries.popleft().size

    def records(self, wanted: RecordFilter | None = None, *, most: int | None = None) -> list[Record]:
        """Return the records that pass, oldest first; of more than ``most`` the newest."""
        return finish(self.finding(wanted, most=most))

    def finding(self, wanted: RecordFilter | None = None, *, most: int | None = None) -> Steps[list[Record]]:
        """Do the work of :meth:`records` in steps, between which entries may come and go."""
        found: list[Record] = []
        for looked, entry in enumerate(reversed(list(self._entries)), 1):
            if len(found) == most:
                break
            record = entry.record()
            if wanted is None or wanted.accepts(record):
                found.append(record)
            if looked % _STEP == 0:
                yield
        found.reverse()
        return found

    def last(self, uid: str) -> Record | None:
        """Return the newest record of a pod; None if there is none."""
        for entry in reversed(self._entries):
            if entry.row.uid == uid:
                return entry.record()
        return None

    def last_of(self, namespace: str, name: str) -> Record | None:
        """Return the newest record of a pod of this name, which may be gone; None if there is none."""
        for entry in reversed(self._entries):
            if (entry.row.namespace, entry.row.name) == (namespace, name):
                return entry.record()
        return None


_encoder: Final = msgspec.json.Encoder()


def json_lines(records: Iterable[Record]) -> Iterator[bytes]:
    """Yield each record as a line of JSON, with its end of line."""
    for record in records:
        yield _encoder.encode(record) + b"\n"
