"""Events: stored as core/v1, and served as events.k8s.io/v1 too.

As in a real cluster, an event that is recorded through the new group also appears in the old group, where ``kubectl``
looks. The two forms differ only in the names of some fields. Caller: ``store``, for requests about events.k8s.io.
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

#: Time for which events are kept, in seconds: upstream's default.
EVENT_TTL: Final = 3600.0

#: Core names of members that have other names in the new group.
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
    """Return an event of a client, split at its top level, without metadata and status. Only its form is checked.

    Raises:
        ApiError: 400, when a field has the wrong type.
    """
    raw = encode_clean({key: value for key, value in obj.items() if key not in ("metadata", "status")})
    check_form(kind, raw)
    return decode_document(raw)


def check_event(namespace: str, event: Document, causes: Causes) -> None:
    """Check that an event is in the namespace of its object.

    Events about a cluster-scoped object may be in some namespaces.

    As upstream, a missing ``eventTime`` marks an event of the older API.
    """
    of = (open_section(event, "involvedObject") or {}).get("namespace") or ""
    is_new = bool(open_section(event, "eventTime"))
    without = ("default", "kube-system") if is_new else ("default",)
    if (of != namespace and not is_new) if of else namespace not in without:
        causes.invalid("involvedObject.namespace", of, "does not match event.namespace")


def event_as(kind: Kind, data: Mapping[str, Any]) -> Document:
    """Return an event of one group in the form of the other."""
    names = _NAMES[kind]
    renamed = {names.get(key, key): value for key, value in data.items()}
    return {**renamed, "apiVersion": kind.api_version, "kind": kind.kind}


#: Estimated bytes of an event that is not encoded yet. Its texts have limits.
_LATE_SIZE: Final = 1024


class _Late(Stored):
    """Stored event that is encoded when its bytes are read, which is rare."""

    __slots__ = ("_made_of",)

    def __init__(self, kind: Kind, source: Item | EventRecord, uid: str, resource_version: int) -> None:
        # Without calling Stored's initializer: ``raw`` stays unset, so that reading it calls __getattr__.
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
        return getattr(self._made_of, "size", _LATE_SIZE) if self._made_of is not None else len(self.raw)

    def _make(self) -> bytes:
        """Return the bytes in the form of the new group."""
        return encode(event_as(EVENTS, self._made_of.data()))


class RecordedEvent(_Late):
    """Event in the form in which its writer recorded it."""

    __slots__ = ("_created",)

    def __init__(self, record: EventRecord, uid: str, created: str, resource_version: int) -> None:
        super().__init__(CORE_EVENTS, record, uid, resource_version)
        self._created = created

    def at(self, resource_version: int) -> RecordedEvent | None:
        """Return the event with another version; None once its bytes have been made."""
        record = self._made_of
        return None if record is None else RecordedEvent(record, self.uid, self._created, resource_version)

    def _make(self) -> bytes:
        event = event_as(CORE_EVENTS, self._made_of.make())
        metadata = new_metadata(CORE_EVENTS, self.namespace, {}, self.name, self.uid, self._created)
        metadata["resourceVersion"] = str(self.resource_version)
        head = {"apiVersion": CORE_EVENTS.api_version, "kind": CORE_EVENTS.kind, "metadata": metadata}
        return encode({**head, **event, **head})


def new_item(item: Item) -> Stored:
    """Return a stored event in the form of the new group."""
    return _Late(EVENTS, item, item.uid, item.resource_version)


class EventExpiry:
    """Expiry of events. Without expiry, a busy cluster would keep every event.

    An event expires an hour after it was last written, as upstream's lease on the stored key.
    """

    def __init__(self, events: Mapping[tuple[str, str], Stored]) -> None:
        self._events = events
        #: Writes of events, the oldest first: time, version, namespace, name. A list in time order is used, because a
        #: growing dictionary with a million entries would be copied in one step.
        self._written: deque[tuple[float, int, str, str]] = deque()

    def written(self, now: float, item: Stored) -> None:
        """Note that an event was created or changed. ``now`` never decreases from call to call."""
        self._written.append((now, item.resource_version, item.namespace, item.name))

    def resume(self) -> None:
        """Adopt the events of a saved cluster, with the last-written times that they contain."""
        items = self._events.values()
        self._written.extend(
            sorted((_last_seen(item), item.resource_version, item.namespace, item.name) for item in items)
        )

    def is_due(self, now: float, most: float) -> bool:
        """True if :meth:`due` has anything to yield."""
        if not self._written:
            return False
        return self._written[0][0] <= now - EVENT_TTL or len(self._events) > most

    def due(self, now: float, most: float) -> Iterator[Stored | None]:
        """Yield events not written for an hour, or beyond ``most``, oldest first.

        The caller removes each before it asks for the next. Yields None for an event that was written again or deleted.
        """
        while self.is_due(now, most):
            _, version, namespace, name = self._written.popleft()
            item = self._events.get((namespace, name))
            yield item if item is not None and item.resource_version == version else None


def _last_seen(item: Stored) -> float:
    """Return the latest moment in an event, in epoch seconds; 0 when it has none."""
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
