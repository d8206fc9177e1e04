"""Claims as the informer shows them, and as the scheduler has written them since (upstream ``assumecache``).

What a write returned is *assumed*: it counts at once, and an informer event with an older version does not undo it. All
changes of what counts are delivered to subscribers, in order; the scheduling queue and the index of allocated devices
subscribe here and not to the informer.

Source: spec "Scheduler cache and event handlers" section 17.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from kubesched.api.tombstone import DeletedFinalStateUnknown, final_state

__all__ = ["AssumeCache", "AssumeError", "Subscriber"]

_log = logging.getLogger("kubesched.plugins")


class AssumeError(LookupError):
    """An object that is not there, or that is older than what is."""


class Subscriber(Protocol):
    """Receives changes, as a handler of an informer does."""

    def on_add(self, obj: Any, is_initial: bool) -> None: ...
    def on_update(self, old: Any, new: Any) -> None: ...
    def on_delete(self, obj: Any) -> None: ...


class _Entry:
    __slots__ = ("api", "latest", "version")

    def __init__(self, obj: Any, version: int) -> None:
        self.latest = self.api = obj
        #: That of ``latest``.
        self.version = version


def _version(obj: Any) -> int | None:
    text = obj.metadata.resource_version
    try:
        return int(text or 0)
    except ValueError:
        _log.error("%s/%s: resource version %r is no number", obj.metadata.namespace, obj.metadata.name, text)
        return None


def _key(obj: Any) -> str:
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else str(meta.name)


class AssumeCache:
    """Objects of one kind by ``namespace/name``. A handler of the kind's informer."""

    def __init__(self, what: str) -> None:
        """``what`` is the kind, for error texts."""
        self._what: Final = what
        self._entries: dict[str, _Entry] = {}
        self._subscribers: list[Subscriber] = []
        self._undelivered: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_delivering = False

    # -- reading ---------------------------------------------------------------------------------------

    def get(self, key: str) -> Any:
        """What counts.

        Raises:
            AssumeError: when there is none.
        """
        return self._entry(key).latest

    def find(self, key: str) -> Any | None:
        """What counts, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry.latest

    def get_api(self, key: str) -> Any:
        """What the informer showed last.

        Raises:
            AssumeError: when there is none.
        """
        return self._entry(key).api

    def values(self) -> Iterator[Any]:
        return (entry.latest for entry in self._entries.values())

    def assumed(self) -> Iterator[str]:
        """The keys of objects that are not what the informer showed last."""
        return (key for key, entry in self._entries.items() if entry.latest is not entry.api)

    def __len__(self) -> int:
        return len(self._entries)

    def _entry(self, key: str) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            raise AssumeError(f'could not find {self._what} "{key}"')
        return entry

    # -- the scheduler's side --------------------------------------------------------------------------

    def assume(self, obj: Any) -> None:
        """Let ``obj`` count, which the API server returned for a write.

        Raises:
            AssumeError: when the object is not known, or newer.
        """
        key, version = _key(obj), _version(obj)
        entry = self._entry(key)
        if version is None or version < entry.version:
            stored = entry.latest.metadata.resource_version
            raise AssumeError(
                f'{self._what} "{key}" is out of sync (stored: {stored}, assume: {obj.metadata.resource_version})'
            )
        old = entry.latest
        entry.latest, entry.version = obj, version
        self._deliver("on_update", old, obj)

    def restore(self, key: str) -> None:
        """Let what the informer showed last count again."""
        entry = self._entries.get(key)
        if entry is None:
            _log.debug("%s %s is not there any more; nothing to restore", self._what, key)
        elif entry.latest is not entry.api:
            old = entry.latest
            entry.latest, entry.version = entry.api, _version(entry.api) or 0
            self._deliver("on_update", old, entry.api)

    # -- the informer's side ---------------------------------------------------------------------------

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._ingest(obj, is_initial)

    def on_update(self, old: Any, new: Any) -> None:
        self._ingest(new, False)

    def on_delete(self, obj: Any | DeletedFinalStateUnknown) -> None:
        entry = self._entries.pop(_key(final_state(obj)), None)
        if entry is not None:
            self._deliver("on_delete", entry.latest)

    def _ingest(self, obj: Any, is_initial: bool) -> None:
        key, version = _key(obj), _version(obj)
        if version is None:
            return
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(obj, version)
            self._deliver("on_add", obj, is_initial)
        elif version > entry.version:
            old = entry.latest
            entry.latest = entry.api = obj
            entry.version = version
            self._deliver("on_update", old, obj)
        elif version == entry.version:
            entry.api = entry.latest  # what was assumed has been shown: nothing older is restored any more

    # -- subscribers -----------------------------------------------------------------------------------

    def add_handler(self, handler: Subscriber) -> None:
        """Subscribe; all objects are delivered as additions first."""
        for entry in list(self._entries.values()):
            handler.on_add(entry.latest, True)
        self._subscribers.append(handler)

    def _deliver(self, method: str, *args: Any) -> None:
        """Deliver an event after those before it, also when a subscriber causes another one meanwhile."""
        self._undelivered.extend((getattr(subscriber, method), args) for subscriber in self._subscribers)
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._undelivered:
                receive, what = self._undelivered.popleft()
                try:
                    receive(*what)
                except Exception:
                    _log.exception("a handler of %s events failed", self._what)
        finally:
            self._is_delivering = False
