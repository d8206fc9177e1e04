"""Local copy of the objects of one kind, kept current by a reflector, with indexes and handlers.

All controllers of a manager share one cache per kind. A controller's own writes are noted at once, so it never acts on
a state without them. Callers: :mod:`.hollow` and the controllers; works on any transport.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

import msgspec

from kubesched.api.kinds import Kind
from kubesched.api.types import ObjectMeta
from kubesched.api.wire import Item, Transport
from kubesched.base.turns import in_batches
from kubesched.client.reflector import YIELD_INTERVAL, Reflector

__all__ = ["Handler", "Problems", "WatchCache"]

#: Handler of a change. Arguments: newest known version of the object, its version before the change (None before a
#: creation), its version after it (None after a removal).
Handler = Callable[[Item, Item | None, Item | None], None]

#: Errors of readers when data has other types than expected.
_UNREADABLE: Final = (TypeError, ValueError, AttributeError, LookupError, msgspec.DecodeError)
_NONE: Final[dict[str, Item]] = {}


class Problems(list[str]):
    """Problems that were survived, newest last; at most 1000.

    ``skipped`` ends the message about an object that cannot be read: the consequence of skipping it.
    """

    def __init__(self, logger: str, who: str, skipped: str) -> None:
        super().__init__()
        self._log = logging.getLogger(logger)
        self._who = who
        self.skipped = skipped
        #: Number of problems so far, also of those that are no longer kept.
        self.total = 0

    def note(self, text: str) -> None:
        self.total += 1
        self.append(text)
        if len(self) > 1000:
            del self[:500]

    def warn(self, text: str) -> None:
        """Log and note a problem that a person can fix."""
        self._log.warning("%s: %s", self._who, text)
        self.note(text)


class WatchCache:
    """Cache of the objects of one kind by key (``namespace/name``), in the order in which they came.

    Versions are compared as numbers: a late copy never replaces a newer one. ``problems`` receives errors, which are
    all tried again; ``rng`` is for the jitter of those tries. ``fields`` selects objects.
    """

    def __init__(self, client: Transport, kind: Kind, problems: Problems, rng: Random, fields: str = "") -> None:
        self.kind = kind
        self._problems = problems
        self._reflector = Reflector(
            client,
            kind,
            self,
            rng=rng,
            field_selector=fields,
            page_size=0,
            watch_timeout=None,
            on_error=lambda error: problems.note(f"watching {kind}: {error}"),
        )
        self._objects: dict[str, Item] = {}
        self._handlers: list[Handler] = []
        #: Indexes by name: the function that gives an object's values, and the objects by value and key.
        self._indexes: dict[str, tuple[Callable[[Item], Iterable[str]], defaultdict[str, dict[str, Item]]]] = {}
        self._reported: dict[str, int] = {}  # the versions of objects that could not be read
        self._seen = 0  # the newest version that the watch has shown
        self.synced = asyncio.Event()

    def get(self, key: str) -> Item | None:
        return self._objects.get(key)

    def values(self) -> list[Item]:
        return list(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def indexed(self, index: str, value: str) -> list[Item]:
        """Return the objects that an index has under a value."""
        return list(self._indexes[index][1].get(value, _NONE).values())

    def add_index(self, name: str, values: Callable[[Item], Iterable[str]]) -> None:
        """Add an index, before the cache runs. Adding the same name again changes nothing."""
        self._indexes.setdefault(name, (values, defaultdict(dict)))

    def add_handler(self, handler: Handler) -> None:
        """Call the handler for every change from now on."""
        self._handlers.append(handler)

    def note(self, item: Item) -> None:
        """Store the response of a write, unless the watch has delivered it or something newer.

        A write that takes the last finalizer from an object that is being deleted ends it. Its response is the object as
        it was last, which would stay here until the watch delivers the end, and be written again meanwhile.
        """
        if item.resource_version <= self._seen:
            return
        if _has_ended(item):
            self._remove_known(item)
        else:
            self._store(item)

    def _store(self, item: Item) -> None:
        key = item.key
        old = self._objects.get(key)
        if old is not None and old.resource_version >= item.resource_version:
            return
        if old is not None and old.uid != item.uid:
            self._remove(old)
            old = None
        self._objects[key] = item
        self._changed(item, old, item)

    def _remove(self, item: Item) -> None:
        old = self._objects.pop(item.key, None)
        if old is not None:
            self._changed(old, old, None)

    def _changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Update the indexes for a change, then call the handlers."""
        key = item.key
        for values, index in self._indexes.values():
            stale = self._values(values, old) if old is not None else ()
            fresh = self._values(values, new) if new is not None else ()
            if stale != fresh:
                for value in stale:
                    filed = index.get(value, {})
                    filed.pop(key, None)
                    if not filed:
                        index.pop(value, None)
            for value in fresh:
                index[value][key] = item
        for handler in self._handlers:
            try:
                handler(item, old, new)
            except _UNREADABLE as error:
                self._unreadable(item, error)

    def _values(self, values: Callable[[Item], Iterable[str]], item: Item) -> tuple[str, ...]:
        try:
            return tuple(values(item))
        except _UNREADABLE as error:
            self._unreadable(item, error)
            return ()

    def _unreadable(self, item: Item, error: Exception) -> None:
        """Skip an object that cannot be read, and report it once for each of its versions."""
        if self._reported.get(item.key) != item.resource_version:
            self._reported[item.key] = item.resource_version
            version = f"{self.kind.kind} {item.key} at resourceVersion {item.resource_version}"
            self._problems.warn(f"{version} {self._problems.skipped.format(error)}")

    async def run(self) -> None:
        """List, then watch, until cancelled."""
        await self._reflector.run()

    async def replace(self, items: list[Item], version: int) -> None:
        """Adopt a complete list. Objects that are not in it were deleted, unless they arrived after ``version``."""
        self._seen = max(self._seen, version)
        listed: dict[str, str] = {}
        async for part in in_batches(items, YIELD_INTERVAL):
            listed.update((item.key, item.uid) for item in part)
        async for batch in in_batches(self.values(), YIELD_INTERVAL):
            for known in batch:
                is_gone = listed.get(known.key) != known.uid and known.resource_version <= version
                if is_gone and self._objects.get(known.key) is known:
                    self._remove(known)
        async for part in in_batches(items, YIELD_INTERVAL):
            for item in part:
                self._store(item)
        self.synced.set()

    def upsert(self, item: Item) -> None:
        """Adopt an object that was added or modified."""
        if item.resource_version > self._seen:
            self._seen = item.resource_version
        self._store(item)

    def remove(self, items: Sequence[Item]) -> None:
        """Remove deleted objects."""
        for item in items:
            self._seen = max(self._seen, item.resource_version)
            self._remove_known(item)

    def _remove_known(self, item: Item) -> None:
        known = self._objects.get(item.key)
        if known is not None and known.uid == item.uid:
            self._remove(item)


def _has_ended(item: Item) -> bool:
    """Return True for the last version of a deleted object: nothing holds it back, and it has no time left."""
    if item.kind.type is None:
        return False
    try:
        metadata: ObjectMeta = item.typed.metadata
    except _UNREADABLE:
        return False
    return (
        metadata.deletion_timestamp is not None
        and not metadata.finalizers
        and not metadata.deletion_grace_period_seconds
    )
