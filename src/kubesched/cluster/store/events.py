"""Two faces of one object: Events are stored as core/v1 and served as events.k8s.io/v1 too.

As in a real cluster, an event recorded through the new group shows up in the old one, which is where ``kubectl``
looks. Only some fields have other names. Caller: ``store``, for requests about events.k8s.io.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubesched.api.event_record import EventRecord
from kubesched.api.kinds import CORE_EVENTS, EVENTS, Kind
from kubesched.api.wire import Item
from kubesched.base.times import parse_time

from ..admission import Causes, new_metadata
from ..schema import NO_LABELS, Document, Stored, check_form, decode_document, encode, encode_clean, open_section

__all__ = ["EventExpiry", "RecordedEvent", "check_event", "event_as", "event_sections", "new_item"]

#: Events are kept for an hour (seconds), upstream's default.
EVENT_TTL: Final = 3600.0

#: The members that have other names in the new group.
_CORE_NAMES: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NAMES: Final = {CORE_EVENTS: _CORE_NAMES, EVENTS: {core: new for new, core in _CORE_NAMES.items()}}


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


def event_as(kind: Kind, data: Mapping[str, Any]) -> Document:
    """An event of one group in the form of the other."""
    names = _NAMES[kind]
    renamed = {names.get(key, key): value for key, value in data.items()}
    return {**renamed, "apiVersion": kind.api_version, "kind": kind.kind}


#: About the size of an event whose bytes are not made yet; texts of events have limits.
_LATE_SIZE: Final = 1024


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

    @property
    def size(self) -> int:
        return _LATE_SIZE if self._made_of is not None else len(self.raw)

    def _make(self) -> bytes:
        """As the new group shows a stored event."""
        return encode(event_as(EVENTS, self._made_of.data()))


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
        event = event_as(CORE_EVENTS, self._made_of.make())
        metadata = new_metadata(CORE_EVENTS, self.namespace, {}, self.name, self.uid, self._created)
        metadata["resourceVersion"] = str(self.resource_version)
        head = {"apiVersion": CORE_EVENTS.api_version, "kind": CORE_EVENTS.kind, "metadata": metadata}
        return encode({**head, **event, **head})


def new_item(item: Item) -> Stored:
    """A stored event as the new group shows it."""
    return _Late(EVENTS, item, item.uid, item.resource_version)


class EventExpiry:
    """Which events have expired; without it a busy cluster would keep every event.

    An event has an hour from when it was last written, as upstream's lease on the stored key.
    """

    def __init__(self, events: Mapping[tuple[str, str], Stored]) -> None:
        self._events = events
        #: Every time an event was written, the oldest first, with the version it got. A queue and no dictionary: that of a
        #: million events would be copied in one step when it grows.
        self._written: deque[tuple[float, int, str, str]] = deque()

    def written(self, now: float, item: Stored) -> None:
        """An event was created or changed. ``now`` never decreases from call to call."""
        self._written.append((now, item.resource_version, item.namespace, item.name))

    def resume(self) -> None:
        """Adopt the events of a saved cluster, with the last-written times that they contain."""
        items = self._events.values()
        self._written.extend(
            sorted((_last_seen(item), item.resource_version, item.namespace, item.name) for item in items)
        )

    def is_due(self, now: float, most: float) -> bool:
        """Whether :meth:`due` has anything to return."""
        if not self._written:
            return False
        return self._written[0][0] <= now - EVENT_TTL or len(self._events) > most

    def due(self, now: float, most: float) -> Iterator[Stored | None]:
        """Events not written for an hour, or beyond ``most``, oldest first; the caller removes each before it asks for the next.

        None where the event was written again later, or was deleted.
        """
        while self.is_due(now, most):
            _, version, namespace, name = self._written.popleft()
            item = self._events.get((namespace, name))
            yield item if item is not None and item.resource_version == version else None


def _last_seen(item: Stored) -> float:
    """Epoch seconds of the latest moment an event knows; 0 when it knows none."""
    event = item.data()
    latest = 0.0
    for holder, name in (
        (event["metadata"], "creationTimestamp"),
        (event, "eventTime"),
        (event, "firstTimestamp"),
        (event, "lastTimestamp"),
        (event.get("series") or {}, "lastObservedTime"),
    ):
        with contextlib.suppress(ValueError, TypeError, AttributeError):  # a saved event is not validated
            latest = max(latest, parse_time(holder.get(name) or ""))
    return latest
