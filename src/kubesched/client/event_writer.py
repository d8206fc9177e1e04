"""Events: counting, building and sending them. Everything that records events uses this module.

An :class:`EventWriter` keeps recorded events by key, builds the API object and sends it: POST first, PATCH for a
repetition, POST again if the server has lost it. A :class:`Counting` decides which events are repetitions and which are
sent:

* :class:`Series`: events.k8s.io, upstream's ``tools/events`` (rules/metrics-and-client §5.3);
* :class:`Counts`: core/v1, upstream's ``tools/record``, ``events_cache.go`` (rules/metrics-and-client §5.5).

Callers: :mod:`.events`, which adds a queue and tasks for the scheduler. Controllers and hollow kubelets await
:meth:`EventWriter.record`.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random
from typing import Any, ClassVar, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import astuple, replace

from kubesched.api.event_record import EventRecord
from kubesched.api.groups import PodGroup
from kubesched.api.kinds import CORE_EVENTS, EVENTS, POD_GROUPS, Kind
from kubesched.api.types import Node, ObjectReference, Pod
from kubesched.api.wire import ApiError, Item, Transport
from kubesched.base.times import Clock, micro_time, timestamp

from .connection_log import reason_of

__all__ = ["NORMAL", "WARNING", "Counting", "Counts", "Entry", "EventWriter", "Key", "Referable", "Reference", "Series"]

logger = logging.getLogger("kubesched.client")

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

#: Most events that the scheduler keeps so that repetitions are recognised. The least recently recorded one goes first. Upstream's
#: series have no bound, but an event storm must not fill the memory.
CACHE_SIZE: Final = 20_000

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
_LEAST_RECENT: Final = 4096

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

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


def _head(kind: Kind, key: Key, namespace: str, name: str, time: float) -> dict[str, Any]:
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
        return {**_head(EVENTS, self.key, self.namespace, self.name, self.time), **_first(self.key, self.note)}


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
        while len(subjects) > _LEAST_RECENT or time - next(iter(subjects.values())).used > _FRESH_SECONDS:
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


class EventWriter:
    """Counts events and sends those that are due. Each event has at most one request under way.

    ``report`` receives a text about each event that is given up. ``retry`` receives an event and the number of tries
    made, after an error of the connection, or when the server already has the series that was to be created. It returns
    True if it will call :meth:`send` again. Without ``retry``, and after any other refusal, the event is given up until
    it is repeated.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        counting: Counting,
        *,
        rng: Random,
        report: Callable[[str], None],
        retry: Callable[[Entry, int], bool] | None = None,
        cache_size: int = _LEAST_RECENT,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._counting = counting
        self._rng = rng
        self._report = report
        self._retry = retry
        self._cache_size = cache_size
        self._entries: OrderedDict[Key, Entry] = OrderedDict()  # the least recently recorded first
        self._nanoseconds = 0
        self.posted = self.patched = self.absorbed = self.failed = 0

    def __len__(self) -> int:
        """Number of events that are kept so that repetitions are recognised."""
        return len(self._entries)

    async def record(
        self, about: Item, component: str, type_: str, reason: str, message: str, *, host: str = ""
    ) -> None:
        """Record an event about an object in the name of a component, now. Errors of the transport are not raised."""
        now = self._clock.now()
        await self.take(Key(type_, "", reason, component, host, Reference.to(about)), message, now, now)

    async def take(self, event: Key, note: str, time: float, seen: float) -> None:
        """Count an event recorded at ``time`` (epoch seconds) and send it if it is due.

        ``seen`` is the present time, by the clock that is passed to :meth:`expire`.
        """
        for entry in self.take_now(event, note, time, seen):
            await self.send(entry)

    def take_now(self, event: Key, note: str, time: float, seen: float) -> Sequence[Entry]:
        """Do the part of :meth:`take` that needs no waiting. Return the entries that are left for :meth:`send`."""
        key, note = self._counting.identify(event, note, time)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(key, event.regarding, note, time, time, seen)
        else:
            self._entries.move_to_end(key)
            if self._counting.newest:
                entry.regarding, entry.note = event.regarding, note
        entry.count += 1
        entry.last = time
        entry.seen = seen
        left: list[Entry] = []
        if not self._counting.is_due(entry, time):
            self.absorbed += 1
        elif not self._is_recorded(entry):
            left.append(entry)
        if len(self._entries) > self._cache_size:
            dropped = self._entries.popitem(last=False)[1]
            if self._closes(dropped):
                left.append(dropped)
        return left

    def _is_recorded(self, entry: Entry) -> bool:
        """Send an event for the first time, if that needs no waiting. Return False if it is left to :meth:`send`."""
        if entry.sending or entry.posted:
            return False
        entry.name = entry.name or self._name(entry.regarding.name, entry.time)
        record = self._counting.record(entry)
        if record is None:
            return False
        try:
            entry.posted = self._transport.record(record)
        except Exception as error:
            entry.posted = isinstance(error, ApiError) and error.reason == "AlreadyExists"
            self._failed(entry, error, 0)
            return True
        self.posted += entry.posted
        return entry.posted

    async def expire(self, seen: float, seconds: float) -> None:
        """Drop the events that were last counted ``seconds`` ago or earlier. The final count of a series is sent."""
        expired = list(takewhile(lambda entry: seen - entry.seen >= seconds, self._entries.values()))
        for entry in expired:
            del self._entries[entry.key]
        for entry in expired:
            if self._closes(entry):
                await self.send(entry)

    async def refresh(self) -> None:
        """Send the count of every event that was repeated, so that it does not expire at the server."""
        for entry in [entry for entry in self._entries.values() if entry.count > 1]:
            await self.send(entry)

    def _closes(self, entry: Entry) -> bool:
        """True if the count of an event has to be sent when the event is dropped."""
        return self._counting.closes and entry.count > 1

    async def send(self, entry: Entry, tries: int = 0) -> None:
        """Send an event or its count. If a request about it is under way, the count is sent after that."""
        if entry.sending:
            entry.again = True
            return
        entry.sending = True
        try:
            await self._try(entry, tries)
            while entry.again:
                entry.again = False
                await self._try(entry, 0)
        finally:
            entry.sending = entry.again = False

    async def _try(self, entry: Entry, tries: int) -> None:
        try:
            if entry.posted:
                await self._patch(entry)
            if not entry.posted:
                await self._post(entry, tries)
        except Exception as error:
            self._failed(entry, error, tries)

    def _failed(self, entry: Entry, error: Exception, tries: int) -> None:
        # A series that was to be created again exists: the next try is a PATCH.
        there = isinstance(error, ApiError) and error.reason == "AlreadyExists" and entry.count > 1
        passing = there or isinstance(error, OSError)
        if not (passing and self._retry is not None and self._retry(entry, tries + 1)):
            self._give_up(entry, error)

    async def _patch(self, entry: Entry) -> None:
        """Send the count. If the server does not know the event (any more), mark it as not posted."""
        counting = self._counting
        try:
            await self._transport.patch(counting.kind, entry.namespace, entry.name, counting.repetition(entry))
            self.patched += 1
        except ApiError as error:
            if error.code != 404:
                raise
            entry.posted = False

    async def _post(self, entry: Entry, tries: int) -> None:
        counting = self._counting
        while not entry.posted:
            entry.name = entry.name or self._name(entry.regarding.name, entry.time)
            try:
                await self._transport.create(counting.kind, entry.namespace, self._build(entry))
            except ApiError as error:
                taken = error.reason == "AlreadyExists"
                if taken and tries and entry.count == 1:  # an earlier try was carried out, and its answer was lost
                    entry.posted = True
                    self.posted += 1
                    return
                if not (taken and counting.renames):
                    entry.posted = taken
                    raise
                entry.name = ""  # another component recorded an event of this name in the same instant
            else:
                entry.posted = True
                self.posted += 1

    def _build(self, entry: Entry) -> dict[str, Any]:
        head = _head(self._counting.kind, entry.key, entry.namespace, entry.name, entry.time)
        return {**head, **self._counting.fields(entry)}

    def _name(self, regarding: str, time: float) -> str:
        """Return a new name ``REGARDING.HEX``. HEX is the time in nanoseconds, but always greater than the last one.

        If the object's name does not lead to a valid name, the result is random.
        """
        self._nanoseconds = max(int(time * 1e9), self._nanoseconds + 1)
        name = f"{regarding}.{self._nanoseconds:x}"
        if len(name) <= 253 and _SUBDOMAIN.fullmatch(name):
            return name
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    def _give_up(self, entry: Entry, error: Exception) -> None:
        self.failed += 1
        if isinstance(error, ApiError) and error.code in self._counting.expected:
            return
        if not isinstance(error, ApiError | OSError):  # this is a defect of this program, so the traceback is needed
            logger.error("event %s/%s could not be sent", entry.namespace, entry.name, exc_info=error)
        about, text = entry.regarding, reason_of(error)
        self._report(f"event {entry.key.reason} about {about.kind} {entry.namespace}/{about.name} given up: {text}")
