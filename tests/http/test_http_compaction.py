"""Watches over HTTP that outlive the history they were following: 410, and a new list, end to end.

Nothing is expired explicitly here: the history is short, connections are cut or left unread, and the store forgets by
itself what happens meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from http_full import full_cluster
from http_world import a_deployment, a_node, a_pod, a_store, run, served

from kubesched.api.kinds import NODES, PODS, kind_by_plural
from kubesched.api.tombstone import DeletedFinalStateUnknown, final_state
from kubesched.api.wire import ApiError
from kubesched.client.http import HttpTransport
from kubesched.client.informer import Informer
from kubesched.cluster.http import write_kubeconfig
from kubesched.cluster.store import Store

HISTORY = 20


class Wire:
    """A TCP relay that can be cut, kept cut, and left unread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_cut = False
        self.flows = asyncio.Event()
        self.flows.set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, far_writer}
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(
                self._relay(reader, far_writer, paused=False), self._relay(far_reader, writer, paused=True)
            )

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, paused: bool) -> None:
        try:
            while data := await reader.read(65536):
                if paused:
                    await self.flows.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    def cut(self) -> None:
        """End every connection and refuse new ones until ``is_cut`` is taken back."""
        self.is_cut = True
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@asynccontextmanager
async def _wired(store: Store) -> AsyncIterator[tuple[Wire, HttpTransport]]:
    """A served store, and a client at the other end of a wire."""
    async with served(store) as api:
        wire = Wire(int(api.server.url.rpartition(":")[2]))
        relay = await asyncio.start_server(wire, "127.0.0.1", 0)
        port = relay.sockets[0].getsockname()[1]
        try:
            async with relay, HttpTransport(f"http://127.0.0.1:{port}") as client:
                yield wire, client
        finally:
            wire.cut()


class Book:
    """Record of the deletions that a handler received, in order, and of the objects that exist by its calls."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.known: dict[str, int] = {}

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self.known[_name(obj)] = _version(obj)

    def on_update(self, old: Any, new: Any) -> None:
        self.known[_name(new)] = _version(new)

    def on_delete(self, obj: Any) -> None:
        missed = isinstance(obj, DeletedFinalStateUnknown)
        inner = final_state(obj)
        self.received.append(f"{'missed' if missed else 'seen'} {_name(inner)}")
        del self.known[_name(inner)]


def _meta(obj: Any) -> Any:
    return obj["metadata"] if isinstance(obj, dict) else obj.metadata


def _name(obj: Any) -> str:
    meta = _meta(obj)
    return str(meta["name"] if isinstance(meta, dict) else meta.name)


def _version(obj: Any) -> int:
    meta = _meta(obj)
    return int(meta["resourceVersion"] if isinstance(meta, dict) else meta.resource_version)


def _truth(store: Store) -> dict[str, int]:
    return {item.name: item.resource_version for item in store.list(PODS).items}


async def _eventually(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


def _overwrite_history(store: Store) -> None:
    """Far more changes than are remembered: a pod goes, others come, one changes all the time."""
    store.delete(PODS, "default", "p0")
    store.delete(PODS, "default", "p1")
    store.create(PODS, "default", a_pod("p1", labels={"life": "second"}))
    for index in range(400):
        store.patch(PODS, "default", "p2", {"metadata": {"labels": {"turn": str(index)}}})
    store.create(PODS, "default", a_pod("p9"))


def test_an_informer_cut_off_until_its_version_is_forgotten_lists_again() -> None:
    async def main() -> None:
        store = a_store(history=HISTORY)
        for index in range(4):
            store.create(PODS, "default", a_pod(f"p{index}"))
        async with _wired(store) as (wire, client):
            informer, book = Informer(client, PODS, rng=Random(1)), Book()
            informer.add_handler(book)
            task = asyncio.create_task(informer.run())
            try:
                await informer.wait_synced()
                store.delete(PODS, "default", "p3")
                await _eventually(lambda: book.known == _truth(store))
                seen = informer.statistics().resource_version
                lists = informer.statistics().lists
                wire.cut()
                _overwrite_history(store)
                with pytest.raises(ApiError, match="too old resource version"):
                    store.watch(PODS, resource_version=str(seen))  # the history is really gone
                wire.is_cut = False
                await _eventually(lambda: book.known == _truth(store))
                assert informer.statistics().lists == lists + 1
                assert book.received == ["seen p3", "missed p0"]
                # And it follows the present again.
                store.delete(PODS, "default", "p9")
                await _eventually(lambda: book.known == _truth(store))
                assert book.received[-1] == "seen p9"
                assert informer.statistics().lists == lists + 1
            finally:
                informer.stop()
                wire.is_cut = False
                await task

    run(main())


def test_a_watch_that_is_not_read_gets_410_and_blocks_no_other() -> None:
    async def main() -> None:
        store = a_store(history=HISTORY, backlog=100)
        async with _wired(store) as (wire, client):
            version = store.resource_version
            names: list[str] = []

            async def follow() -> None:
                async for batch in client.watch(PODS, resource_version=str(version)):
                    names.extend(event.item.name for event in batch)

            task = asyncio.create_task(follow())
            store.create(PODS, "default", a_pod("first"))
            await _eventually(lambda: names == ["first"])
            wire.flows.clear()
            # More than all buffers on the way hold, in steps so that the server has its turns.
            for index in range(1500):
                store.create(PODS, "default", a_pod(f"p{index}", annotations={"fill": "x" * 20_000}))
                if index % 10 == 0:
                    await asyncio.sleep(0)
            wire.flows.set()
            with pytest.raises(ApiError, match="too old resource version") as caught:
                await asyncio.wait_for(task, 60)
            assert (caught.value.code, caught.value.reason) == (410, "Expired")
            got = names[1:]
            assert got == [f"p{index}" for index in range(len(got))], "what comes before is whole and in order"
            assert len(got) < 1500
            assert (await client.list(PODS)).resource_version == str(store.resource_version)

    run(main())


def test_kinds_without_a_type_are_followed_too() -> None:
    deployments = kind_by_plural("apps", "deployments")
    assert deployments is not None

    async def main() -> None:
        store = a_store()
        store.create(deployments, "default", a_deployment("old"))
        async with _wired(store) as (_, client):
            informer, book = Informer(client, deployments, rng=Random(1)), Book()
            informer.add_handler(book)
            task = asyncio.create_task(informer.run())
            try:
                await informer.wait_synced()
                lists = informer.statistics().lists
                store.delete(deployments, "default", "old")
                store.create(deployments, "default", a_deployment("new"))
                await _eventually(lambda: list(book.known) == ["new"])
                assert book.received == ["seen old"]
                assert informer.statistics().lists == lists
            finally:
                informer.stop()
                await task

    run(main())


def test_the_official_client_lists_again_after_a_410(tmp_path: Path) -> None:
    """The loop its users write: list, watch from there, and again from the list when that version is gone."""
    kubernetes = pytest.importorskip("kubernetes", reason="the official client is not installed")
    with full_cluster() as cluster:
        path = write_kubeconfig(tmp_path / "config", cluster.server.url)
        with kubernetes.config.new_client_from_config(str(path)) as client:
            core = kubernetes.client.CoreV1Api(client)
            known: dict[str, str] = {}
            lists = 0
            forget, done = threading.Event(), threading.Event()

            def relist() -> str:
                nonlocal lists
                lists += 1
                page = core.list_node()
                known.clear()
                known.update({node.metadata.name: node.metadata.labels.get("turn", "") for node in page.items})
                return str(page.metadata.resource_version)

            def follow() -> None:
                version = relist()
                paused = False
                while not done.is_set():
                    watch = kubernetes.watch.Watch()
                    try:
                        # An own loop from a fixed version: the library's hidden restarts are not what is tested.
                        for event in watch.stream(core.list_node, resource_version=version, timeout_seconds=1):
                            meta = event["object"].metadata
                            version = meta.resource_version
                            if event["type"] == "DELETED":
                                known.pop(meta.name, None)
                            else:
                                known[meta.name] = meta.labels.get("turn", "")
                            if known.get("n0") == "pause" and not paused:
                                paused = True
                                break
                    except kubernetes.client.ApiException as error:
                        if error.status != 410:
                            raise
                        version = relist()
                    if paused:
                        assert forget.wait(30)

            follower = threading.Thread(target=follow)
            follower.start()
            try:
                _blocking(lambda: len(known) == 3)
                cluster.call(lambda store: store.patch(NODES, "", "n0", _turn("pause")))
                _blocking(lambda: known.get("n0") == "pause")

                def overwrite(store: Store) -> None:
                    store.delete(NODES, "", "n1")
                    for index in range(30):
                        store.patch(NODES, "", "n0", _turn(str(index)))
                    store.create(NODES, "", a_node("n7"))
                    store.compact()

                cluster.call(overwrite)
                forget.set()
                _blocking(lambda: sorted(known) == ["n0", "n2", "n7"] and known["n0"] == "29")
                assert lists == 2
                cluster.call(lambda store: store.patch(NODES, "", "n7", _turn("last")))
                _blocking(lambda: known["n7"] == "last")
                assert lists == 2
            finally:
                done.set()
                forget.set()
                follower.join(30)


def _turn(text: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"turn": text}}}


def _blocking(condition: Any) -> None:
    wait = threading.Event()
    for _ in range(3000):
        if condition():
            return
        wait.wait(0.01)
    raise AssertionError("it did not come about")
