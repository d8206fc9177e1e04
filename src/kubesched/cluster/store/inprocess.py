"""Transport without sockets: calls go straight to the store, watches are read from it.

Implements :class:`kubesched.api.wire.Transport`. Nothing here waits except watches, and calls that a fault rule delays.
Callers: the scheduler's port, hollow kubelets and controllers in simulations and tests.
"""

from __future__ import annotations

import asyncio
import builtins
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from kubesched.api.event_record import EventRecord
from kubesched.api.kinds import PODS, Kind
from kubesched.api.wire import DeleteOptions, Item, ListOptions, ListPage, PatchOptions, WatchEvent, WatchOptions
from kubesched.base.turns import in_turns

from .faults import Faults, Verb, When
from .store import Store
from .table import Watch

__all__ = ["InProcessClient"]


class InProcessClient:
    """One client of a store. ``faults`` disturbs this client only.

    ``bookmark_seconds`` sends bookmarks on quiet watches; off by default, because a timer that never ends
    would keep a simulation alive. A watch with a timeout ends with a bookmark in any case.
    """

    def __init__(self, store: Store, *, faults: Faults | None = None, bookmark_seconds: float = math.inf) -> None:
        self.store = store
        self._faults = faults
        self._bookmark_seconds = bookmark_seconds

    @property
    def at_once(self) -> bool:
        """True if calls never wait: no fault rule can delay them."""
        return self._faults is None or not self._faults.strikes_calls

    async def _strike(self, when: When, verb: Verb, kind: Kind, name: str = "") -> None:
        if self._faults is not None and self._faults.strikes_calls:
            await self._faults.strike(when, verb, kind, name)

    async def _call(self, verb: Verb, kind: Kind, name: str, call: Callable[[], Any]) -> Any:
        """Make a call of the store, between the faults that strike before and after it."""
        if self._faults is None:
            return call()
        await self._strike("before", verb, kind, name)
        result = call()
        await self._strike("after", verb, kind, name)
        return result

    async def list(self, kind: Kind, namespace: str = "", **options: Unpack[ListOptions]) -> ListPage:
        await self._strike("before", "list", kind)
        page = await in_turns(self.store.listing(kind, namespace, **options))
        await self._strike("after", "list", kind)
        return page

    async def watch(
        self, kind: Kind, namespace: str = "", **options: Unpack[WatchOptions]
    ) -> AsyncIterator[Sequence[WatchEvent]]:
        """Yield the new events in one batch, each time that the watch wakes."""
        await self._strike("before", "watch", kind)
        watch = await in_turns(self.store.watching(kind, namespace, **options))
        if self._faults is not None:
            self._faults.opened(watch, kind)
        try:
            async for batch in self._read(watch, kind, options.get("timeout_seconds")):
                yield batch
        finally:
            watch.close()
            if self._faults is not None:
                self._faults.closed(watch)

    async def _read(
        self, watch: Watch, kind: Kind, timeout_seconds: float | None
    ) -> AsyncIterator[builtins.list[WatchEvent]]:
        loop = asyncio.get_running_loop()
        deadline = math.inf if timeout_seconds is None else loop.time() + timeout_seconds
        seen: dict[str, Item] = {}
        while not watch.closed:
            batch = watch.drain()
            if self._faults is not None and batch:
                batch = await self._faults.spoil(kind, batch, seen)
            if batch:
                yield batch
                # A reader that writes must not keep the loop busy with its own changes while other tasks wait.
                await asyncio.sleep(0)
            left = deadline - loop.time()
            if left <= 0 and not watch.begins:
                if not watch.pending:
                    yield [watch.bookmark()]
                return
            if not await watch.wait(min(left, self._bookmark_seconds)) and self._bookmark_seconds < left:
                yield [watch.bookmark()]

    def get(self, kind: Kind, namespace: str, name: str) -> Coroutine[Any, Any, Item]:
        return self._call("get", kind, name, lambda: self.store.get(kind, namespace, name))

    def create(
        self, kind: Kind, namespace: str, obj: Mapping[str, Any], *, dry_run: bool = False
    ) -> Coroutine[Any, Any, Item]:
        name = (obj.get("metadata") or {}).get("name") or ""
        return self._call("create", kind, name, lambda: self.store.create(kind, namespace, obj, dry_run=dry_run))

    def update(
        self, kind: Kind, namespace: str, name: str, obj: Mapping[str, Any], *, subresource: str = ""
    ) -> Coroutine[Any, Any, Item]:
        update = partial(self.store.update, kind, namespace, name, obj, subresource=subresource)
        return self._call("update", kind, name, update)

    def patch(
        self, kind: Kind, namespace: str, name: str, patch: Any, **options: Unpack[PatchOptions]
    ) -> Coroutine[Any, Any, Item]:
        return self._call("patch", kind, name, lambda: self.store.patch(kind, namespace, name, patch, **options))

    def delete(
        self, kind: Kind, namespace: str, name: str, **options: Unpack[DeleteOptions]
    ) -> Coroutine[Any, Any, None]:
        return self._call("delete", kind, name, lambda: self.store.delete(kind, namespace, name, **options))

    def bind(self, namespace: str, name: str, uid: str, node_name: str) -> Coroutine[Any, Any, None]:
        return self._call("bind", PODS, name, lambda: self.store.bind(namespace, name, uid, node_name))

    def evict(self, namespace: str, name: str, *, grace_period_seconds: int | None = None) -> Coroutine[Any, Any, None]:
        evict = partial(self.store.evict, namespace, name, grace_period_seconds=grace_period_seconds)
        return self._call("evict", PODS, name, evict)

    def record(self, event: EventRecord) -> bool:
        return self.at_once and self.store.record(event)
