"""Two faces of one object: Events are stored as core/v1 and served as events.k8s.io/v1 too.

As in a real cluster, an event recorded through the new group shows up in the old one, which is where ``kubectl``
looks. Only some fields have other names. Caller: ``store``, for requests about events.k8s.io.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from ...api.event_record import EventRecord
from ...api.kinds import CORE_EVENTS, EVENTS, Kind
from ...api.times import parse_time
from ...api.wire import Item, WatchEvent
from ..admission import Causes, new_metadata
from ..schema import NO_LABELS, Document, Stored, check_form, decode_document, encode, encode_clean, open_section

__all__ = ["EventExpiry", "as_core", "as_new", "new_item", "new_watch_event"]


#: Events are kept for an hour (seconds), upstream's default.
EVENT_TTL: Final = 3600.0

_CORE_NAMES: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAMES: Final = {core: new for new, core in _CORE_NAMES.items()}


def event_sections(kind: Kind, obj: Mapping[str, Any]) -> Document:
    """An event that a client wrote, split at its top level, without metadata and status. Only its form has rules.

    Raises:
        ApiError: 400, when a field has the wrong type.
    """
    raw = encode_clean({key: value for key, value in obj.items() if key not in ("metadata", "status")})
    check_form(kind, raw)
    return decode_document(raw)


def check_event(namespace: str, event: Document, causes: Causes) -> None:
    """An event is in the namespace of what it is about; one about something without a namespace in one of some.

    Upstream knows by its time which API an event was written for: older ones have no ``eventTime``.
    """
    of = (open_section(event, "involvedObject") or {}).get("namespace") or ""
    is_new = bool(open_section(event, "eventTime"))
    without = ("default", "kube-system") if is_new else ("default",)
    if (of != namespace and not is_new) if of else namespace not in without:
        causes.invalid("involvedObject.namespace", of, "does not match event.namespace")


def as_core(data: Mapping[str, Any]) -> dict[str, Any]:
    """The core/v1 form of an events.k8s.io/v1 object."""
    renamed = {_CORE_NAMES.get(key, key): value for key, value in data.items()}
    return {**renamed, "apiVersion": CORE_EVENTS.api_version, "kind": CORE_EVENTS.kind}


def as_new(data: Mapping[str, Any]) -> dict[str, Any]:
    """The events.k8s.io/v1 form of a core/v1 object."""
    renamed = {_NEW_NAMES.get(key, key): value for key, value in data.items()}
    return {**renamed, "apiVersion": EVENTS.api_version, "kind": EVENTS.kind}


class _Late(Stored):
    """A stored event whose bytes are made when they are read, which is rare."""

    __slots__ = ("_made_of",)

    def __init__(self, kind: Kind, source: Item | EventRecord, uid: str, resource_version: int) -> None:
        # Not Stored's own: ``raw`` stays unset, so that its first reader ends in __getattr__.
        self.kind, self.namespace, self.name, self.uid = kind, source.namespace, source.name, uid
        self.resource_version = resource_version
        self.labels, self.owners = (source.labels, source.owners) if isinstance(source, Stored) else (NO_LABELS, ())
        self.fields = None
        self._key, self._typed = "", None
        self._made_of: Any = source

    def __getattr__(self, name: str) -> Any:
        if name != "raw" or self._made_of is None:
            raise AttributeError(name)
        self.raw = self._make()
        self._made_of = None
        return self.raw

    def _make(self) -> bytes:
        """As the new group shows a stored event."""
        return encode(as_new(self._made_of.data()))


class RecordedEvent(_Late):
    """An event from what its writer recorded."""

    __slots__ = ("_created",)

    def __init__(self, record: EventRecord, uid: str, created: str, resource_version: int) -> None:
        super().__init__(CORE_EVENTS, record, uid, resource_version)
        self._created = created

    def at(self, resource_version: int) -> RecordedEvent | None:
        """The event with another version; None where its bytes have been made."""
        record = self._made_of
        return None if record is None else RecordedEvent(record, self.uid, self._created, resource_version)

    def _make(self) -> bytes:
        event = as_core(self._made_of.make())
        metadata = new_metadata(CORE_EVENTS, self.namespace, {}, self.name, self.uid, self._created)
        metadata["resourceVersion"] = str(self.resource_version)
        head = {"apiVersion": CORE_EVENTS.api_version, "kind": CORE_EVENTS.kind, "metadata": metadata}
        return encode({**head, **event, **head})


def new_item(item: Item) -> Stored:
    """A stored event as the new group shows it."""
    return _Late(EVENTS, item, item.uid, item.resource_version)


def new_watch_event(event: WatchEvent) -> WatchEvent:
    """A watch event as the new group shows it."""
    if event.type == "BOOKMARK":
        data = as_new(event.item.data())
        return WatchEvent(event.type, Item(EVENTS, encode(data), "", "", "", event.item.resource_version))
    return WatchEvent(event.type, new_item(event.item))


class EventExpiry:
    """Which events have expired; without it a busy cluster would keep every event.

    An event has an hour from when it was last written, as upstream's lease on the stored key.
    """

    def __init__(self) -> None:
        #: When each was last written, the oldest first. One that was deleted stays until it is due.
        self._written: OrderedDict[tuple[str, str], float] = OrderedDict()
        #: None of them was written before.
        self._oldest = -math.inf

    def written(self, now: float, item: Stored) -> None:
        """An event was created or changed. ``now`` never decreases from call to call."""
        key, known = (item.namespace, item.name), len(self._written)
        self._written[key] = now
        if len(self._written) == known:
            self._written.move_to_end(key)

    def resume(self, items: Iterable[Stored]) -> None:
        """Adopt the events of a saved cluster, with the last-written times that they contain."""
        for written, key in sorted((_last_seen(item), (item.namespace, item.name)) for item in items):
            self._written[key] = written
        self._oldest = -math.inf

    def is_due(self, now: float, most: float) -> bool:
        """Whether :meth:`due` may have anything to return."""
        return self._oldest <= now - EVENT_TTL or len(self._written) > most

    def due(self, now: float, most: float) -> Iterator[tuple[str, str]]:
        """Namespace and name of events not written for an hour, or beyond ``most``, oldest first; each is returned once."""
        while self._written:
            key, written = next(iter(self._written.items()))
            if written > now - EVENT_TTL and len(self._written) <= most:
                self._oldest = written
                return
            del self._written[key]
            yield key
        self._oldest = now


class _Seen(msgspec.Struct):
    """Where an event says when something happened."""

    metadata: dict[str, Any]
    eventTime: Any = None  # noqa: N815 - the wire's names
    firstTimestamp: Any = None  # noqa: N815
    lastTimestamp: Any = None  # noqa: N815
    series: Any = None


_seen = msgspec.json.Decoder(_Seen).decode


def _last_seen(item: Stored) -> float:
    """Epoch seconds of the latest moment an event knows; 0 when it knows none."""
    event = _seen(item.raw)
    series = event.series if isinstance(event.series, dict) else {}
    texts = (
        event.metadata.get("creationTimestamp"),
        event.eventTime,
        event.firstTimestamp,
        event.lastTimestamp,
        series.get("lastObservedTime"),
    )
    latest = 0.0
    for text in texts:
        if isinstance(text, str) and text:
            with contextlib.suppress(ValueError):  # what clients write here is not validated
                latest = max(latest, parse_time(text))
    return latest
