"""Counting of events: which are repetitions, which are sent, and the fields that say so.

* :class:`Series`: events.k8s.io, upstream's ``tools/events`` (rules/metrics-and-client §5.3);
* :class:`Counts`: core/v1, upstream's ``tools/record``, ``events_cache.go`` (rules/metrics-and-client §5.5).

Caller: :mod:`.event_writer`, which keeps the events and sends them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec.structs import astuple, replace

from kubesched.api.event_record import EventRecord
from kubesched.api.groups import PodGroup
from kubesched.api.kinds import CORE_EVENTS, EVENTS, POD_GROUPS, Kind
from kubesched.api.types import Node, ObjectReference, Pod
from kubesched.api.wire import Item
from kubesched.base.times import micro_time, timestamp

__all__ = ["LEAST_RECENT", "Counting", "Counts", "Entry", "Key", "Referable", "Reference", "Series", "head"]

#: Number of the first message that is combined, among different messages of one type and reason.
_COMBINE_FROM: Final = 10
_COMBINE_SECONDS: Final = 600.0
_COMBINED: Final = "(combined from similar events): "
_BURST: Final = 25.0
_REFILL_SECONDS: Final = 300.0
#: Seconds without an event after which an object has all its tokens again, and no messages are combined.
_FRESH_SECONDS: Final = max(_BURST * _REFILL_SECONDS, _COMBINE_SECONDS)
#: Most events that a writer keeps unless it is told otherwise, and most objects whose floods are limited at one time. Upstream's
#: recorders of core/v1 events have these bounds.
LEAST_RECENT: Final = 4096

_REFERENCE_FIELDS: Final = ("apiVersion", "kind", "namespace", "name", "uid", "resourceVersion")

#: Objects that an event can be about.
Referable: TypeAlias = Pod | Node | PodGroup | ObjectReference | Item


class Reference(msgspec.Struct, frozen=True, gc=False):
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str

    @classmethod
    def to(cls, obj: Referable) -> Reference:
        if isinstance(obj, Pod):  # first, and alone: a test against a union would build the union each time
            meta = obj.metadata
            return cls("v1", "Pod", meta.namespace, meta.name, meta.uid, meta.resource_version)
        if isinstance(obj, Node):
            meta = obj.metadata
            return cls("v1", "Node", meta.namespace, meta.name, meta.uid, meta.resource_version)
        if isinstance(obj, PodGroup):
            meta = obj.metadata
            return cls(
                POD_GROUPS.api_version, POD_GROUPS.kind, meta.namespace, meta.name, meta.uid, meta.resource_version
            )
        of = obj.kind if isinstance(obj, Item) else obj
        return cls(of.api_version, of.kind, obj.namespace, obj.name, obj.uid, str(obj.resource_version))

    def to_wire(self) -> dict[str, str]:
        return {name: value for name, value in zip(_REFERENCE_FIELDS, astuple(self), strict=True) if value}


class Key(msgspec.Struct, frozen=True, gc=False):
    """Identity of an event: events with equal keys are repetitions. ``text`` is the note if it counts, else empty."""

    type: str
    action: str
    reason: str
    controller: str
    instance: str
    regarding: Reference
    related: Reference | None = None
    text: str = ""


class Entry(msgspec.Struct, eq=False, gc=False):
    """Event that has been recorded at least once. ``name`` is empty until it is sent for the first time."""

    key: Key
    regarding: Reference
    note: str
    time: float
    last: float  # clock time of the last repetition
    seen: float  # time of the last count, by the clock of :meth:`EventWriter.expire`
    count: int = 0
    name: str = ""
    posted: bool = False  # the server has the event, as far as is known
    sending: bool = False  # a request about it is under way
    again: bool = False  # the count is to be sent after that request

    @property
    def namespace(self) -> str:
        return self.regarding.namespace or "default"


class Counting(ABC):
    """A way of counting repetitions, in the API group of ``kind``."""

    kind: ClassVar[Kind]
    #: True if a repetition replaces the note and the version of the object.
    newest: ClassVar[bool] = False
    #: True if the final count is sent when an event leaves the cache.
    closes: ClassVar[bool] = False
    #: True if an event whose name is taken gets another name. If False, a taken name means that an earlier request has
    #: created this event.
    renames: ClassVar[bool] = False
    #: Codes of refusals that are normal and not reported.
    expected: ClassVar[frozenset[int]] = frozenset()

    @abstractmethod
    def identify(self, event: Key, note: str, time: float) -> tuple[Key, str]:
        """Return the key that makes an event a repetition, and the note to show. ``event`` has the object's version."""

    @abstractmethod
    def is_due(self, entry: Entry, time: float) -> bool:
        """True if an event that was just counted is to be sent now."""

    @abstractmethod
    def fields(self, entry: Entry) -> dict[str, Any]:
        """Return the fields that only this group's events have."""

    @abstractmethod
    def repetition(self, entry: Entry) -> dict[str, Any]:
        """Return the fields that a repetition changes."""

    def record(self, entry: Entry) -> EventRecord | None:
        """Return the event as a record, to be made into an object when it is read. None: make the object at once."""
        return None


class Series(Counting):
    """Series of equal events. First: POST. Second: PATCH of ``series``.

    From the third event on, only the count in memory grows.
    """

    kind = EVENTS
    closes = True

    def identify(self, event: Key, note: str, time: float) -> tuple[Key, str]:
        return event, note

    def is_due(self, entry: Entry, time: float) -> bool:
        return entry.count <= 2

    def fields(self, entry: Entry) -> dict[str, Any]:
        return {**_first(entry.key, entry.note), **(self.repetition(entry) if entry.count > 1 else {})}

    def record(self, entry: Entry) -> EventRecord | None:
        if entry.count > 1 or not _is_plain(entry):
            return None
        return _Recorded(entry.namespace, entry.name, entry.key, entry.note, entry.time)

    def repetition(self, entry: Entry) -> dict[str, Any]:
        return {"series": {"count": entry.count, "lastObservedTime": micro_time(entry.last)}}


def _first(key: Key, note: str) -> dict[str, Any]:
    return {
        "reportingController": key.controller,
        "action": key.action,
        "regarding": key.regarding.to_wire(),
        "note": note,
        **({"related": key.related.to_wire()} if key.related is not None else {}),
    }


def head(kind: Kind, key: Key, namespace: str, name: str, time: float) -> dict[str, Any]:
    """Return the fields that the events of both groups have."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace},
        "type": key.type,
        "reason": key.reason,
        # Upstream's core/v1 recorder leaves eventTime out; client models refuse events.k8s.io without it.
        "eventTime": micro_time(time),
        "reportingInstance": key.instance,
    }


def _is_plain(entry: Entry) -> bool:
    """True if all parts of an event are text that JSON can hold. Recorders may be given anything."""
    key = entry.key
    words = key.type, key.action, key.reason, key.controller, key.instance, entry.note, *astuple(key.regarding)
    if key.related is not None:
        words += astuple(key.related)
    try:
        return "".join(words).isascii()
    except TypeError:
        return False


class _Recorded(msgspec.Struct, frozen=True, gc=False):
    """The first event of a series."""

    namespace: str
    name: str
    key: Key
    note: str
    time: float

    def make(self) -> dict[str, Any]:
        return {**head(EVENTS, self.key, self.namespace, self.name, self.time), **_first(self.key, self.note)}


@dataclass(slots=True)
class _Subject:
    """Record of one component's events about one object."""

    at: float = 0.0
    tokens: float = _BURST
    #: Time of the last event, also of one that was not sent.
    used: float = 0.0
    #: For each type and reason: the time of the last event, and the messages that were not combined.
    groups: dict[tuple[str, str], tuple[float, set[str]]] = field(default_factory=dict)


class Counts(Counting):
    """Counting of core/v1 events: each repetition raises ``count``, and floods are cut short.

    Each writer has its own Counts.

    From the tenth different message of one type and reason on, further messages go into one event ``(combined from
    similar events)``; ten minutes without a message start over. An object gets 25 writes at once, then one every five
    minutes. This limit keeps a ReplicaSet of thousands of pods cheap: an event above it is neither built nor sent.
    """

    kind = CORE_EVENTS
    newest = True
    renames = True
    #: Refusals by a namespace that is being deleted, or has been deleted: no event can be written to it.
    expected = frozenset({403, 404})

    def __init__(self) -> None:
        #: By component and UID, the least recently used first. A forgotten subject begins with all its tokens again.
        self._subjects: OrderedDict[tuple[str, str], _Subject] = OrderedDict()

    def _subject(self, event: Key, time: float) -> _Subject:
        """Return the subject of an event. Forget subjects whose limits are back at their beginning, or that are too many."""
        subjects, key = self._subjects, (event.controller, event.regarding.uid)
        subject = subjects.get(key)
        if subject is None:
            subject = subjects[key] = _Subject()
        else:
            subjects.move_to_end(key)
        subject.used = time
        while len(subjects) > LEAST_RECENT or time - next(iter(subjects.values())).used > _FRESH_SECONDS:
            subjects.popitem(last=False)
        return subject

    def identify(self, event: Key, note: str, time: float) -> tuple[Key, str]:
        groups = self._subject(event, time).groups
        last, messages = groups.get((event.type, event.reason), (time, set()))
        if time - last > _COMBINE_SECONDS:
            messages = set()
        groups[event.type, event.reason] = time, messages
        text = note
        if note in messages or len(messages) < _COMBINE_FROM - 1:
            messages.add(note)
        else:
            text, note = _COMBINED, _COMBINED + note
        return replace(event, regarding=replace(event.regarding, resource_version=""), text=text), note

    def is_due(self, entry: Entry, time: float) -> bool:
        subject = self._subject(entry.key, time)
        subject.tokens = min(_BURST, subject.tokens + max(0.0, time - subject.at) / _REFILL_SECONDS)
        subject.at = time
        if subject.tokens < 1.0:
            return False
        subject.tokens -= 1.0
        return True

    def fields(self, entry: Entry) -> dict[str, Any]:
        component, host = entry.key.controller, entry.key.instance
        return {
            "reportingComponent": component,
            "source": {"component": component, **({"host": host} if host else {})},
            "involvedObject": entry.regarding.to_wire(),
            "firstTimestamp": timestamp(entry.time),
            **self.repetition(entry),
        }

    def repetition(self, entry: Entry) -> dict[str, Any]:
        return {"count": entry.count, "message": entry.note, "lastTimestamp": timestamp(entry.last)}
