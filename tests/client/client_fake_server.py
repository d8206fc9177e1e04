"""A tiny API server for the client's tests: one history per kind, and a box of faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from random import Random
from typing import Any, Unpack

import msgspec

from kubesched.api.event_record import EventRecord
from kubesched.api.kinds import NODES, Kind
from kubesched.api.wire import ApiError, DeleteOptions, Item, ListPage, WatchEvent
from kubesched.client.connection_log import ConnectionLog


def make_item(kind: Kind, namespace: str, name: str, version: int, body: Mapping[str, Any] | None = None) -> Item:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(version)}
    raw = msgspec.json.encode({"metadata": metadata, **(body or {})})
    return Item(kind, raw, namespace, name, f"uid-{name}", version)


def status_item(kind: Kind, error: ApiError) -> Item:
    return Item(kind, msgspec.json.encode(error.to_status()), "", "", "", 0)


def end_marker(version: int) -> Item:
    annotations = {"k8s.io/initial-events-end": "true"}
    raw = msgspec.json.encode({"metadata": {"resourceVersion": str(version), "annotations": annotations}})
    return Item(NODES, raw, "", "", "", version)


class FakeServer:
    """Implements the transport. Writes are plain methods; requests made are kept in ``calls``."""

    at_once = False

    def __init__(self, seed: int = 0) -> None:
        self.rng = Random(seed)
        self.connection_log = ConnectionLog()
        self.version = 10
        self.objects: dict[str, Item] = {}
        self.log: list[tuple[int, WatchEvent]] = []
        self.floor = 0
        self.calls: list[tuple[Any, ...]] = []
        self.failures: list[Exception] = []  # raised by the next requests, whichever they are
        self.list_failures: list[Exception] = []
        self.watch_failures: list[Exception] = []
        self.stream_failures: list[Exception] = []
        self.streams_cut: list[Exception | None] = []  # what ends the next streamed lists in the middle
        self.streams: set[Stream] = set()
        self.shuffle = False
        self.ends_quietly = False

    # -- the state of the world ----------------------------------------------------------------------------

    def put(self, name: str, body: Mapping[str, Any] | None = None, *, kind: Kind = NODES, namespace: str = "") -> Item:
        self.version += 1
        item = make_item(kind, namespace, name, self.version, body)
        self._append("MODIFIED" if item.key in self.objects else "ADDED", item)
        self.objects[item.key] = item
        return item

    def remove(self, key: str) -> None:
        old = self.objects.pop(key, None)
        if old is None:
            return
        self.version += 1
        self._append("DELETED", make_item(old.kind, old.namespace, old.name, self.version))

    def _append(self, event_type: str, item: Item) -> None:
        self.log.append((item.resource_version, WatchEvent(event_type, item)))
        for stream in self.streams:
            stream.ring()

    def compact(self) -> None:
        self.floor = self.version

    def replay(self, key: str) -> None:
        """Every open stream repeats an event about ``key`` that it has sent already."""
        for stream in self.streams:
            past = [event for version, event in self.log if event.item.key == key and version <= stream.version]
            if past:
                stream.extra.append(self.rng.choice(past))
                stream.ring()

    def inject(self, event: WatchEvent) -> None:
        for stream in self.streams:
            stream.extra.append(event)
            stream.ring()

    def cut(self, error: Exception | None) -> None:
        """End every open stream, with an error or quietly."""
        for stream in self.streams:
            stream.ended = True
            stream.error = error
            stream.ring()

    # -- the transport -------------------------------------------------------------------------------------

    def _call(self, *call: Any) -> None:
        self.calls.append(call)
        if self.failures:
            raise self.failures.pop(0)

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        self._call("list", limit, continue_token, resource_version)
        if self.list_failures:
            raise self.list_failures.pop(0)
        await asyncio.sleep(0.001)
        # Pages are live, not of one snapshot: harsher than a real server.
        keys = sorted(key for key in self.objects if key > continue_token)
        page = keys[:limit] if limit else keys
        return ListPage([self.objects[key] for key in page], str(self.version), page[-1] if page != keys else "")

    async def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float | None = None,
        send_initial_events: bool = False,
    ) -> AsyncIterator[Sequence[WatchEvent]]:
        self._call("stream" if send_initial_events else "watch", resource_version, timeout_seconds)
        failures = self.stream_failures if send_initial_events else self.watch_failures
        if failures:
            raise failures.pop(0)
        await asyncio.sleep(0.001)
        if not send_initial_events and int(resource_version) < self.floor:
            raise ApiError.expired(f"too old resource version: {resource_version}")
        stream = Stream(self, self.version if send_initial_events else int(resource_version))
        initial = [WatchEvent("ADDED", item) for item in self.objects.values()]
        marker = WatchEvent("BOOKMARK", end_marker(self.version))
        self.streams.add(stream)
        try:
            async with asyncio.timeout(timeout_seconds):
                if send_initial_events:
                    half = len(initial) // 2
                    if half:
                        yield initial[:half]
                        await asyncio.sleep(0.001)
                    if self.streams_cut:
                        error = self.streams_cut.pop(0)
                        if error is None:
                            return
                        raise error
                    yield [*initial[half:], marker]
                while True:
                    batch = await stream.next_batch()
                    if not batch:
                        return
                    yield batch
        except TimeoutError:
            return
        finally:
            self.streams.discard(stream)

    async def get(self, kind: Kind, namespace: str, name: str) -> Item:
        self._call("get", name)
        return make_item(kind, namespace, name, self.version)

    async def create(self, kind: Kind, namespace: str, obj: Mapping[str, Any], *, dry_run: bool = False) -> Item:
        self._call("create", namespace, obj)
        return make_item(kind, namespace, obj["metadata"]["name"], self.version)

    async def update(
        self, kind: Kind, namespace: str, name: str, obj: Mapping[str, Any], *, subresource: str = ""
    ) -> Item:
        self._call("update", namespace, name, obj)
        return make_item(kind, namespace, name, self.version)

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        *,
        patch_type: str = "application/strategic-merge-patch+json",
        subresource: str = "",
    ) -> Item:
        self._call("patch", namespace, name, patch, subresource)
        return make_item(kind, namespace, name, self.version)

    async def delete(self, kind: Kind, namespace: str, name: str, **options: Unpack[DeleteOptions]) -> None:
        self._call("delete", namespace, name)

    def record(self, event: EventRecord) -> bool:
        return False

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        self._call("bind", namespace, name, uid, node_name)

    async def evict(self, namespace: str, name: str, *, grace_period_seconds: int | None = None) -> None:
        self._call("evict", namespace, name)


class Stream:
    """One open watch."""

    def __init__(self, server: FakeServer, version: int) -> None:
        self.server = server
        self.version = version
        self.extra: list[WatchEvent] = []
        self.ended = False
        self.error: Exception | None = None
        self._bell = asyncio.Event()

    def ring(self) -> None:
        self._bell.set()

    async def next_batch(self) -> list[WatchEvent]:
        """The changes, extra events after them; empty when the stream is to end quietly."""
        while True:
            self._bell.clear()
            server = self.server
            batch = [event for version, event in server.log if version > self.version]
            if batch and not self.ended:
                self.version = batch[-1].item.resource_version
                if server.shuffle:
                    batch = _interleave(batch, server.rng)
            else:
                batch = []
            batch += self.extra
            self.extra = []
            if batch:
                return batch
            if self.ended:
                if self.error is not None:
                    raise self.error
                return []
            await self._bell.wait()


def _interleave(batch: list[WatchEvent], rng: Random) -> list[WatchEvent]:
    """Return the events in order for each object, in any order between objects."""
    queues: dict[str, list[WatchEvent]] = {}
    for event in batch:
        queues.setdefault(event.item.key, []).append(event)
    mixed = []
    while queues:
        key = rng.choice(sorted(queues))
        mixed.append(queues[key].pop(0))
        if not queues[key]:
            del queues[key]
    return mixed


class View:
    """A handler that applies what it receives; ``received`` keeps it all in order."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.received: list[tuple[str, str, int]] = []

    def on_add(self, obj: Any, is_initial: bool) -> None:
        key = key_of(obj)
        assert key not in self.objects
        self.objects[key] = obj
        self.received.append(("initial" if is_initial else "add", key, version_of(obj)))

    def on_update(self, old: Any, new: Any) -> None:
        key = key_of(new)
        assert self.objects[key] is old
        self.objects[key] = new
        self.received.append(("update", key, version_of(new)))

    def on_delete(self, obj: Any) -> None:
        from kubesched.api.tombstone import DeletedFinalStateUnknown, final_state

        tombstone = isinstance(obj, DeletedFinalStateUnknown)
        key = obj.key if tombstone else key_of(obj)
        old = self.objects.pop(key)
        if tombstone:
            assert obj.last_known is old
        self.received.append(("tombstone" if tombstone else "delete", key, version_of(final_state(obj))))


def key_of(obj: Any) -> str:
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else str(meta.name)


def version_of(obj: Any) -> int:
    return int(obj.metadata.resource_version)
