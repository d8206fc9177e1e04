"""Informer: a current local copy of the objects of one kind, with handlers that receive every change.

The assembly makes informers (usually through :class:`~kubesched.client.port.ApiPort`), adds handlers, runs
``run()`` in a task, and waits for ``wait_synced()``. Handlers run in the event loop, one object after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from kubesched.api.decode import DecodeError
from kubesched.api.kinds import Kind
from kubesched.api.tombstone import DeletedFinalStateUnknown
from kubesched.api.wire import Item, Transport
from kubesched.base.tasks import Supervisor
from kubesched.base.turns import in_batches

from .delivery import Deliveries, ResourceEventHandler, uid_of
from .reflector import PAGE_SIZE, WATCH_TIMEOUT, YIELD_INTERVAL, Reflector
from .running import Background
from .store import IndexFunction, Store, version_of

__all__ = ["DeletedFinalStateUnknown", "Informer", "InformerStatistics", "ResourceEventHandler"]

logger = logging.getLogger("kubesched.client")


@dataclass(frozen=True, slots=True)
class InformerStatistics:
    """Snapshot of an informer's counters."""

    synced: bool
    objects: int
    resource_version: int
    lists: int
    watches: int
    events: int
    bookmarks: int
    adds: int
    updates: int
    deletes: int
    stale: int
    undecodable: int
    errors: int
    handler_errors: int
    #: ``behind``: objects for which a handler failed, and which wait to be delivered again; ``recovered``: objects that
    #: a handler took at a later call.
    behind: int
    recovered: int


class Informer(Background):
    """Current copy of the objects of ``kind`` that match the selectors.

    Stale and repeated events are dropped. An object that cannot be decoded is logged with its key and field path,
    counted, and treated as absent until a readable version arrives. With ``skip_ended`` handlers do not receive a
    change that arrives together with the object's deletion.
    """

    def __init__(
        self,
        transport: Transport,
        kind: Kind,
        *,
        rng: Random,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        page_size: int = PAGE_SIZE,
        watch_timeout: tuple[float, float] | None = WATCH_TIMEOUT,
        watch_list: bool = False,
        skip_ended: bool = False,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self._store = Store()
        self._deliveries = Deliveries(kind, rng, self.get_by_key)
        self._reflector = Reflector(
            transport,
            kind,
            self,
            rng=rng,
            namespace=namespace,
            field_selector=field_selector,
            label_selector=label_selector,
            page_size=page_size,
            watch_timeout=watch_timeout,
            watch_list=watch_list,
            skip_ended=skip_ended,
            on_error=on_error,
        )
        self._synced = False
        self._sync_or_end = asyncio.Event()
        self._stale = self._undecodable = 0
        self._documents: dict[str, bytes] | None = None
        self._wants_document: Callable[[Any], bool] = lambda obj: True
        self._view: Callable[[Any], Any] | None = None

    # -- reading -------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> Any:
        """Return the object, or None. Cluster-scoped objects have an empty namespace."""
        return self._store.objects.get(f"{namespace}/{name}" if namespace else name)

    def get_by_key(self, key: str) -> Any:
        """Return the object with this ``namespace/name``, or None."""
        return self._store.objects.get(key)

    def values(self) -> list[Any]:
        """Return all objects, as a new list."""
        return list(self._store.objects.values())

    def keys(self) -> list[str]:
        return list(self._store.objects)

    def __len__(self) -> int:
        return len(self._store.objects)

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Add an index: ``function(obj)`` returns the strings under which an object is found. It must be pure.

        Raises:
            ValueError: if the name is taken.
        """
        self._store.add_index(name, function)

    def by_index(self, name: str, value: str) -> list[Any]:
        """Return the objects with ``value`` in index ``name``.

        Raises:
            KeyError: if there is no such index.
        """
        return self._store.by_index(name, value)

    def show_as(self, view: Callable[[Any], Any]) -> None:
        """Store and deliver ``view(obj)`` in place of each object. Call it before :meth:`run`."""
        self._view = view

    def keep_documents(self, wanted: Callable[[Any], bool]) -> None:
        """Keep the JSON of objects for which ``wanted(obj)`` is true, with all fields. Call it before :meth:`run`."""
        self._documents = {}
        self._wants_document = wanted

    def document(self, key: str) -> bytes | None:
        """Return the JSON of an object as the API server wrote it; None if it is not kept."""
        return self._documents.get(key) if self._documents is not None else None

    # -- life ----------------------------------------------------------------------------------------------

    def add_handler(self, handler: ResourceEventHandler) -> None:
        """Add a handler. It receives every known object at once, as initial additions."""
        self._deliveries.register(handler, dict(self._store.objects))

    def remove_handler(self, handler: ResourceEventHandler) -> None:
        self._deliveries.unregister(handler)

    @property
    def behind(self) -> int:
        """Number of objects that wait to be delivered again, because a handler failed on them."""
        return self._deliveries.behind

    @property
    def has_synced(self) -> bool:
        """True if the first list is in the store and was delivered to every handler."""
        return self._synced

    async def wait_synced(self) -> bool:
        """Wait for the first list. Return False if the informer ended before it came."""
        await self._sync_or_end.wait()
        return self._synced

    def stop(self) -> None:
        self._deliveries.close()
        super().stop()

    def statistics(self) -> InformerStatistics:
        reflector, deliveries = self._reflector, self._deliveries
        return InformerStatistics(
            synced=self._synced,
            objects=len(self._store.objects),
            resource_version=reflector.version,
            lists=reflector.lists,
            watches=reflector.watches,
            events=reflector.events,
            bookmarks=reflector.bookmarks,
            adds=deliveries.adds,
            updates=deliveries.updates,
            deletes=deliveries.deletes,
            stale=self._stale,
            undecodable=self._undecodable,
            errors=reflector.errors,
            handler_errors=deliveries.errors,
            behind=deliveries.behind,
            recovered=deliveries.recovered,
        )

    async def _main(self) -> None:
        async with Supervisor(f"informer of {self.kind}") as tasks:
            tasks.spawn(self._deliveries.run(), f"redelivery-{self.kind.plural}")
            await self._reflector.run()

    def _ended(self) -> None:
        self._sync_or_end.set()

    # -- the reflector's side (Sink) -----------------------------------------------------------------------

    async def replace(self, items: list[Item], version: int) -> None:
        """Adopt a complete list: store first, then deletions as tombstones, then adds and updates in list order.

        Objects whose version did not change are not delivered again.
        """
        store = self._store
        before = store.objects
        objects: dict[str, Any] = {}
        documents: dict[str, bytes] = {}
        async for part in in_batches(items, YIELD_INTERVAL):
            for item in part:
                key = item.key
                obj = before.get(key)
                if obj is None or version_of(obj) != item.resource_version:
                    obj = self._decode(item)
                if obj is not None:
                    objects[key] = obj
                    if self._documents is not None and self._wants_document(obj):
                        documents[key] = item.raw
        store.replace(objects, version)
        if self._documents is not None:
            self._documents = documents

        # A handler that is added from here on receives the whole new store when it is added.
        deliveries = self._deliveries
        audience = deliveries.audience()
        async for gone in in_batches(before.items(), YIELD_INTERVAL):
            for key, old in gone:
                if self._stopped:
                    return
                if key not in objects:
                    deliveries.delete(key, DeletedFinalStateUnknown(key, old), audience)
        async for there in in_batches(objects.items(), YIELD_INTERVAL):
            for key, obj in there:
                if self._stopped:
                    return
                old = before.get(key)
                if old is None:
                    deliveries.add(key, obj, not self._synced, audience)
                elif old is not obj:
                    deliveries.update(key, old, obj, audience)
        self._synced = True
        self._sync_or_end.set()

    def upsert(self, item: Item) -> None:
        store = self._store
        key = item.key
        version = item.resource_version
        if self._stopped:
            return
        if store.is_stale(key, version):
            self._stale += 1
            return
        obj = self._decode(item)
        if obj is None:
            if (gone := self._vanish(key, version)) is not None:
                self._deliveries.delete(key, gone)
            return
        old = store.objects.get(key)
        store.put(key, obj)
        if self._documents is not None:
            self._keep_document(item, obj)
        if old is None:
            self._deliveries.add(key, obj, False)
        else:
            self._deliveries.update(key, old, obj)

    def remove(self, items: Sequence[Item]) -> None:
        if self._stopped:
            return
        finals = {item.key: final for item in items if (final := self._forget(item)) is not None}
        self._deliveries.delete_all(finals)

    def _forget(self, item: Item) -> Any:
        """Drop a deleted object from the store. Return the object or tombstone to deliver, or None."""
        store, key = self._store, item.key
        known = store.objects.get(key)
        # Not "<=", because some servers send the last version unchanged as the final state.
        if known is None or item.resource_version < version_of(known):
            self._stale += 1
            if known is None and not store.is_stale(key, item.resource_version):
                store.forget(key, item.resource_version)
            return None
        final = self._decode(item)
        if final is None:
            return self._vanish(key, item.resource_version)
        old = store.pop(key)
        self._drop_document(key)
        store.forget(key, item.resource_version)
        if uid_of(old) != item.uid:
            # The deleted object is an unseen successor of the same name. The deletion of the known object was missed.
            final = DeletedFinalStateUnknown(key, old)
        return final

    def _vanish(self, key: str, version: int) -> DeletedFinalStateUnknown | None:
        """Treat an object as absent, as its current state cannot be read. Return the tombstone to deliver, or None."""
        old = self._store.pop(key)
        self._drop_document(key)
        self._store.forget(key, version)
        return DeletedFinalStateUnknown(key, old) if old is not None else None

    def _keep_document(self, item: Item, obj: Any) -> None:
        if self._documents is not None:
            if self._wants_document(obj):
                self._documents[item.key] = item.raw
            else:
                self._documents.pop(item.key, None)

    def _drop_document(self, key: str) -> None:
        if self._documents is not None:
            self._documents.pop(key, None)

    def _decode(self, item: Item) -> Any:
        try:
            return item.typed if self._view is None else self._view(item.typed)
        except (DecodeError, msgspec.DecodeError) as error:
            self._undecodable += 1
            logger.error("%s %s (version %d) skipped: %s", self.kind, item.key, item.resource_version, error)
            return None
