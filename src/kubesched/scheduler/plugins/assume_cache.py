"""Cache of objects as the informer shows them, overlaid by the scheduler's own writes (upstream ``assumecache``).

An *assumed* object counts at once, in place of the informer's. An object that a write returned counts until the
informer shows this version or a newer one. An object that is still to be written counts until the informer shows a
version other than the one that the object was made from. Subscribers receive all changes of the objects that count, in
order.

Source: rules/cache-and-events §17, rules/volumes §2.2.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, Protocol, TypeVar

from kubesched.api.resource import ResourceClaim
from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim
from kubesched.api.tombstone import DeletedFinalStateUnknown, final_state

__all__ = ["AssumeCache", "AssumeError", "OnChange", "Subscriber"]

T = TypeVar("T", bound=PersistentVolume | PersistentVolumeClaim | ResourceClaim)

_log = logging.getLogger("kubesched.scheduler.plugins")


class AssumeError(LookupError):
    """The object to assume is unknown, or older than the one that counts."""


class Subscriber(Protocol):
    """Receiver of changes, like a handler of an informer."""

    def on_add(self, obj: Any, is_initial: bool) -> None: ...
    def on_update(self, old: Any, new: Any) -> None: ...
    def on_delete(self, obj: Any) -> None: ...


class OnChange:
    """Handler that receives an object's old and new state. None stands for an object that is not there."""

    def __init__(self, changed: Callable[[Any, Any], None]) -> None:
        self._changed: Final = changed

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._changed(None, obj)

    def on_update(self, old: Any, new: Any) -> None:
        self._changed(old, new)

    def on_delete(self, obj: Any) -> None:
        self._changed(final_state(obj), None)


class _Entry(Generic[T]):
    __slots__ = ("api", "is_written", "latest", "version")

    def __init__(self, obj: T, version: int) -> None:
        self.latest = self.api = obj
        #: Resource version of ``latest``, as a number.
        self.version = version
        #: True when the assumed object was written and ``latest`` is not the answer to that write.
        self.is_written = False


def _version(obj: Any) -> int | None:
    text = obj.metadata.resource_version
    try:
        return int(text or 0)
    except ValueError:
        _log.error("%s/%s: resource version %r is no number", obj.metadata.namespace, obj.metadata.name, text)
        return None


class AssumeCache(Generic[T]):
    """Cache of objects of one kind, by key. It is a handler of the kind's informer."""

    def __init__(
        self,
        what: str,
        missing: str = 'could not find {what} "{key}"',
        stale: str = '{what} "{key}" is out of sync (stored: {stored}, assume: {assumed})',
    ) -> None:
        """``what`` is the kind in error texts: ``missing`` for an unknown object, ``stale`` for an old one."""
        self._what: Final = what
        self._missing: Final = missing
        self._stale: Final = stale
        self._entries: dict[str, _Entry[T]] = {}
        self._subscribers: list[Subscriber] = []
        self._undelivered: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_delivering = False

    # -- reading ---------------------------------------------------------------------------------------

    def get(self, key: str) -> T:
        """Return the object that counts.

        Raises:
            AssumeError: when there is none.
        """
        return self._entry(key).latest

    def find(self, key: str) -> T | None:
        """Return the latest version of an object, assumed or from the API server; None if there is no such object."""
        entry = self._entries.get(key)
        return None if entry is None else entry.latest

    def find_api(self, key: str) -> T | None:
        """Return the object as the informer showed it last, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry.api

    @contextmanager
    def what_if(self, key: str, change: Callable[[T], T]) -> Iterator[None]:
        """Let a changed object count within the block. Subscribers do not hear of it, and nothing else may happen there.

        Raises:
            AssumeError: when there is no such object.
        """
        entry = self._entry(key)
        before, entry.latest = entry.latest, change(entry.latest)
        try:
            yield
        finally:
            entry.latest = before

    def keys(self) -> set[str]:
        return set(self._entries)

    def values(self) -> Iterator[T]:
        """Iterate over all objects that count."""
        return (entry.latest for entry in self._entries.values())

    def assumed(self, *, written: bool = True) -> dict[str, T]:
        """Assumed objects that the informer has not shown, by key. Without ``written``, only the objects that are not
        yet written.
        """
        return {
            key: entry.latest
            for key, entry in self._entries.items()
            if entry.latest is not entry.api and (written or not entry.is_written)
        }

    def __len__(self) -> int:
        return len(self._entries)

    def _entry(self, key: str) -> _Entry[T]:
        entry = self._entries.get(key)
        if entry is None:
            raise AssumeError(self._missing.format(what=self._what, key=key, name=key.rpartition("/")[2]))
        return entry

    # -- the scheduler's side --------------------------------------------------------------------------

    def assume(self, obj: T) -> None:
        """Make ``obj`` the object that counts.

        ``obj`` is the API server's answer to a write, or an object still to be written.

        If it is still to be written, it must be made from the object that counts now.

        Raises:
            AssumeError: when the object is unknown, or the one that counts is newer.
        """
        entry, version = self._entry(obj.key), _version(obj)
        if version is None or version < entry.version:
            stored, assumed = entry.latest.metadata.resource_version, obj.metadata.resource_version
            raise AssumeError(self._stale.format(what=self._what, key=obj.key, stored=stored, assumed=assumed))
        old = entry.latest
        entry.latest, entry.version, entry.is_written = obj, version, False
        self._deliver("on_update", old, obj)

    def written(self, obj: T) -> None:
        """Note that an assumed object was written: the next version that the informer shows ends the assumption."""
        entry = self._entries.get(obj.key)
        if entry is not None:
            entry.is_written = True

    def restore(self, key: str, version: str | None = None) -> None:
        """Let the informer's last object count again. With ``version``, do so only if the object that counts has that
        version.
        """
        entry = self._entries.get(key)
        if entry is None:
            _log.debug("%s %s is not there any more; nothing to restore", self._what, key)
        elif entry.latest is not entry.api and version in (None, entry.latest.metadata.resource_version):
            old = entry.latest
            self._entries[key] = _Entry(entry.api, _version(entry.api) or 0)
            self._deliver("on_update", old, entry.api)

    # -- the informer's side ---------------------------------------------------------------------------

    def on_add(self, obj: T, is_initial: bool) -> None:
        self._ingest(obj, is_initial)

    def on_update(self, old: T, new: T) -> None:
        self._ingest(new, False)

    def on_delete(self, obj: T | DeletedFinalStateUnknown) -> None:
        entry = self._entries.pop(final_state(obj).key, None)
        if entry is not None:
            self._deliver("on_delete", entry.latest)

    def _ingest(self, obj: T, is_initial: bool) -> None:
        version = _version(obj)
        if version is None:
            return
        entry = self._entries.get(obj.key)
        if entry is None:
            self._entries[obj.key] = _Entry(obj, version)
            self._deliver("on_add", obj, is_initial)
        elif version > entry.version:
            self._entries[obj.key] = _Entry(obj, version)
            self._deliver("on_update", entry.latest, obj)
        elif version == entry.version and _version(entry.api) != version:
            entry.api = entry.latest  # the informer has shown the written object, so no older object may be restored

    # -- subscribers -----------------------------------------------------------------------------------

    def add_handler(self, handler: Subscriber) -> None:
        """Subscribe a handler. All objects are delivered to it as additions first."""
        for entry in list(self._entries.values()):
            handler.on_add(entry.latest, True)
        self._subscribers.append(handler)

    def _deliver(self, method: str, *args: Any) -> None:
        """Deliver an event after all earlier events, even if a subscriber causes another event meanwhile."""
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
