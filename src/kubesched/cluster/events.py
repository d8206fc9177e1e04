"""Two faces of one object: Events are stored as core/v1 and served as events.k8s.io/v1 too.

As in a real cluster, an event recorded through the new group shows up in the old one, which is where ``kubectl``
looks. Only some fields have other names. Caller: ``store``, for requests about events.k8s.io.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..api.kinds import Kind, kind_by_plural
from ..api.wire import Item, WatchEvent
from .objects import Stored, encode

__all__ = ["EVENTS", "NEW_EVENTS", "EventExpiry", "as_core", "as_new", "new_item", "new_watch_event"]


def _kind(group: str) -> Kind:
    kind = kind_by_plural(group, "events")
    assert kind is not None
    return kind


EVENTS: Final = _kind("")
NEW_EVENTS: Final = _kind("events.k8s.io")

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


def as_core(data: Mapping[str, Any]) -> dict[str, Any]:
    """The core/v1 form of an events.k8s.io/v1 object."""
    renamed = {_CORE_NAMES.get(key, key): value for key, value in data.items()}
    return {**renamed, "apiVersion": EVENTS.api_version, "kind": EVENTS.kind}


def as_new(data: Mapping[str, Any]) -> dict[str, Any]:
    """The events.k8s.io/v1 form of a core/v1 object."""
    renamed = {_NEW_NAMES.get(key, key): value for key, value in data.items()}
    return {**renamed, "apiVersion": NEW_EVENTS.api_version, "kind": NEW_EVENTS.kind}


def new_item(item: Item) -> Stored:
    """A stored event as the new group shows it."""
    data = as_new(item.data())
    return Stored(NEW_EVENTS, encode(data), data["metadata"], item.resource_version)


def new_watch_event(event: WatchEvent) -> WatchEvent:
    """A watch event as the new group shows it."""
    if event.type == "BOOKMARK":
        data = as_new(event.item.data())
        return WatchEvent(event.type, Item(NEW_EVENTS, encode(data), "", "", "", event.item.resource_version))
    return WatchEvent(event.type, new_item(event.item))


class EventExpiry:
    """Which events have had their time; without it a busy cluster would keep every event for ever."""

    def __init__(self) -> None:
        self._born: deque[tuple[float, str, str]] = deque()

    def born(self, now: float, item: Stored) -> None:
        self._born.append((now, item.namespace, item.name))

    def due(self, now: float) -> Iterator[tuple[str, str]]:
        """Namespace and name of events older than an hour, oldest first; each is told once."""
        while self._born and self._born[0][0] <= now - EVENT_TTL:
            _, namespace, name = self._born.popleft()
            yield namespace, name
