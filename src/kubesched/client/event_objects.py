"""What an event is made of: whom it is about, what makes it a repetition, and how it is written.

Pure values for :mod:`kubesched.client.events`, which queues, counts and sends them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from kubesched.api.kinds import EVENTS
from kubesched.api.times import micro_time
from kubesched.api.types import Node, ObjectReference, Pod

__all__ = [
    "NOTE_LIMIT",
    "Entry",
    "EventNames",
    "Key",
    "Referable",
    "Reference",
    "limit_note",
    "reference_to",
]


#: Bytes of UTF-8 in a note.
NOTE_LIMIT = 1024

#: What an event can be about.
Referable: TypeAlias = Pod | Node | ObjectReference


def limit_note(note: str) -> str:
    """A note of at most 1024 bytes: a longer one keeps its first 1020 and ends in `` ...``."""
    encoded = note.encode("utf-8", "replace")
    if len(encoded) <= NOTE_LIMIT:
        return note
    # A character cut in half is dropped whole.
    return encoded[: NOTE_LIMIT - 4].decode("utf-8", "ignore") + " ..."


class Reference(NamedTuple):
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str

    def to_wire(self) -> dict[str, str]:
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {name: value for name, value in fields.items() if value}


def reference_to(obj: Referable) -> Reference:
    if isinstance(obj, ObjectReference):
        return Reference(obj.api_version, obj.kind, obj.namespace, obj.name, obj.uid, obj.resource_version)
    meta = obj.metadata
    kind = "Pod" if isinstance(obj, Pod) else "Node"
    return Reference("v1", kind, meta.namespace, meta.name, meta.uid, meta.resource_version)


class EventNames:
    """Names of the events of one component, no two alike.

    ``REGARDING.HEX`` of the time in nanoseconds, moved on when two events share an instant.
    """

    def __init__(self) -> None:
        self._nanoseconds = 0

    def next(self, regarding: str, time: float) -> str:
        """The name of an event at a time in epoch seconds; longer or other than names may be when ``regarding`` is."""
        self._nanoseconds = max(int(time * 1e9), self._nanoseconds + 1)
        return f"{regarding}.{self._nanoseconds:x}"


class Key(NamedTuple):
    """What makes two events the same. The note is not part of it."""

    type: str
    action: str
    reason: str
    controller: str
    instance: str
    regarding: Reference
    related: Reference | None


class Entry:
    """An event that has been recorded at least once, and its current series."""

    __slots__ = ("again", "count", "key", "last", "name", "namespace", "note", "seen", "sending", "time")

    def __init__(self, key: Key, note: str, time: float, name: str, seen: float) -> None:
        self.key = key
        self.note = note
        self.time = time
        self.name = name
        self.namespace = key.regarding.namespace or "default"
        self.count = 1
        self.last = time  # clock time of the last repetition
        self.seen = seen  # loop time of it
        self.sending = False  # a request about it is under way
        self.again = False  # and its count is to follow

    def series(self) -> dict[str, Any]:
        return {"count": self.count, "lastObservedTime": micro_time(self.last)}

    def to_wire(self) -> dict[str, Any]:
        key = self.key
        event: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "eventTime": micro_time(self.time),
            "reportingController": key.controller,
            "reportingInstance": key.instance,
            "action": key.action,
            "reason": key.reason,
            "regarding": key.regarding.to_wire(),
            "note": self.note,
            "type": key.type,
        }
        if key.related is not None:
            event["related"] = key.related.to_wire()
        if self.count > 1:
            event["series"] = self.series()
        return event
