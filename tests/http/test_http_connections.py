"""Clients that connect and send nothing, that do not read, and that are many: their number, memory and time have limits."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from http_world import PODS, TABLE, Api, a_node, run, served

from kubesched.api.kinds import NODES
from kubesched.base import connections
from kubesched.cluster.http import dispatch, reading, server


@asynccontextmanager
async def silent(api: Api, count: int, first: bytes = b"", *, buffer: int = 4096) -> AsyncIterator[list[socket.socket]]:
    """Connections of clients that send these bytes at most, and read nothing; their buffers are small."""
    loop, sockets = asyncio.get_running_loop(), []
    try:
        for _ in range(count):
            opened = socket.socket()
            sockets.append(opened)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            opened.setblocking(False)
            await loop.sock_connect(opened, ("127.0.0.1", int(api.server.url.rpartition(":")[2])))
            await loop.sock_sendall(opened, first)
        yield sockets
    finally:
        for opened in sockets:
            opened.close()


async def closed(sockets: list[socket.socket], count: int) -> None:
    """Wait until so many of the connections were closed by the server."""
    ended: set[socket.socket] = set()
    while len(ended) < count:
        for opened in sockets:
            try:
                if opened not in ended and not opened.recv(1 << 16):
                    ended.add(opened)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                ended.add(opened)
        await asyncio.sleep(0.01)


def test_new_clients_get_in_while_many_connections_send_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The ones that have waited the longest are closed for them, which is logged once."""
    monkeypatch.setattr(server, "_MORE_CONNECTIONS", 10)

    async def main() -> None:
        async with served(max_watches=10) as api, api.watch(PODS) as events, silent(api, 150) as sockets:
            await closed(sockets, 130)
            assert (await api.post("/api/v1/nodes", a_node())).status == 201
            assert api.server.connections is not None
            assert api.server.connections.open <= 20
            assert events.response.connection is not None  # a request is under way on it: it stays
            await api.post(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
            assert await events.take(1) == [("ADDED", "p")]

    run(main())
    lines = [record.getMessage() for record in caplog.records if "limit" in record.getMessage()]
    assert lines == ["there are 20 connections, which is the limit; one had to be closed"]


def test_a_connection_that_sends_nothing_is_closed_in_time() -> None:
    async def main() -> None:
        async with served(head_seconds=0.05) as api, silent(api, 5) as sockets:
            await closed(sockets, 5)

    run(main())


def test_when_all_connections_have_a_request_under_way_further_ones_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MORE_CONNECTIONS", 0)
    request = b"GET /api/v1/nodes?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def main() -> None:
        async with served(max_watches=5) as api, silent(api, 5, request):
            while len(api.server.watches) < 5:  # noqa: ASYNC110 - the test as a whole has a time limit
                await asyncio.sleep(0.01)
            async with silent(api, 3) as more:
                await closed(more, 3)
            assert len(api.server.watches) == 5

    run(main())


def test_watches_that_are_not_read_hold_little_and_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The objects have 20 MB in all, which was joined for each of the watches."""
    monkeypatch.setattr(connections, "STALL_SECONDS", 0.3)
    request = b"GET /api/v1/nodes?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def main() -> None:
        async with served() as api, silent(api, 10, request):
            while len(api.server.watches) < 10:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            for number in range(200):
                api.store.create(NODES, "", {"metadata": {"name": f"n{number}", "annotations": {"a": "x" * 100_000}}})
            most = 0
            found: Any = api.server.connections
            while len(api.server.watches):
                sizes = [
                    one.transport.get_write_buffer_size() for one in found.connections if one.transport is not None
                ]
                most = max(most, *sizes, 0)
                await asyncio.sleep(0.01)
            assert 0 < most <= 70_000

    run(main())


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@contextmanager
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


async def settled(api: Api, watches: int) -> int:
    """Return the traced bytes once so many watches are open and have sent what their sockets take."""
    while len(api.server.watches) != watches:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for _ in range(20):
        await asyncio.sleep(0.01)
    return tracemalloc.get_traced_memory()[0]


def test_watches_that_are_not_read_share_a_large_object() -> None:
    request = b"GET %b?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n" % CONFIG_MAPS.encode()

    async def main() -> None:
        async with served() as api:
            large = {"metadata": {"name": "large"}, "data": {"a": "x" * 1_000_000}}
            assert (await api.post(CONFIG_MAPS, large)).status == 201
            with traced():
                async with silent(api, 20, request):
                    assert await settled(api, 20) < 20 * 150_000
                    async with api.watch(CONFIG_MAPS) as events:
                        await events.response.content.readexactly(1_000_000)
                assert await settled(api, 0) < 1_500_000

    run(main())


def test_copies_of_large_objects_are_few_and_the_next_watch_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MOST_COPIES", 2)
    head = f"Host: localhost\r\nAccept: {TABLE}\r\n\r\n"
    request = f"GET {CONFIG_MAPS}?watch=true&includeObject=Object HTTP/1.1\r\n{head}".encode()

    async def main() -> None:
        async with served() as api:
            large = {"metadata": {"name": "large"}, "data": {"a": "x" * 1_000_000}}
            assert (await api.post(CONFIG_MAPS, large)).status == 201
            with traced():
                async with silent(api, 20, request), api.watch(CONFIG_MAPS) as plain:
                    await plain.response.content.readexactly(1_000_000)
                    assert await settled(api, 21) < 2 * 1_500_000 + 20 * 100_000
            async with api.watch(CONFIG_MAPS, accept=TABLE, includeObject="Object") as events:
                await events.response.content.readexactly(1_000_000)

    run(main())


def test_a_watch_that_is_read_slowly_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_SECONDS", 1.0)
    request = b"GET /api/v1/nodes?watch=true HTTP/1.0\r\n\r\n"

    async def main() -> None:
        async with served() as api, silent(api, 1, request, buffer=1 << 18) as [opened]:
            for number in range(60):
                api.store.create(NODES, "", {"metadata": {"name": f"n{number}", "annotations": {"a": "x" * 100_000}}})
            received = bytearray()
            while received.count(b"\n{") < 60:
                await asyncio.sleep(0.02)
                piece = await asyncio.get_running_loop().sock_recv(opened, 1 << 16)
                assert piece, len(received)
                received += piece
            assert len(api.server.watches) == 1

    run(main())


def test_lists_that_are_not_read_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_MOST_LISTS", 3)
    monkeypatch.setattr(connections, "STALL_SECONDS", 0.5)
    request = b"GET /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def main() -> None:
        async with served() as api:
            for number in range(100):
                api.store.create(NODES, "", {"metadata": {"name": f"n{number}", "annotations": {"a": "x" * 100_000}}})
            async with silent(api, 3, request):
                while (answer := await api.get("/api/v1/nodes", limit=1)).status != 429:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert (answer.reason, answer.headers["Retry-After"]) == ("TooManyRequests", "1")
                found: Any = api.server.connections
                sizes = [
                    one.transport.get_write_buffer_size() for one in found.connections if one.transport is not None
                ]
                assert max(sizes) < 4_000_000
                while (answer := await api.get("/api/v1/nodes")).status == 429:  # noqa: ASYNC110 - those clients are given up
                    await asyncio.sleep(0.05)
                assert len(answer.data["items"]) == 100

    run(main())


class NoDescriptors:
    """A listening socket whose connections cannot be accepted for a while."""

    def __init__(self, inner: socket.socket, times: int) -> None:
        self.inner = inner
        self.times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def accept(self) -> Any:
        if self.times:
            self.times -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self.inner.accept()


def test_a_lack_of_descriptors_is_logged_once_and_connections_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio would log each of some thousand attempts a second, with its traceback."""
    monkeypatch.setattr(connections, "_PAUSE", 0.001)
    bound = server._bound

    async def lacking(host: str, port: int) -> list[Any]:
        return [NoDescriptors(one, times=50) for one in await bound(host, port)]

    monkeypatch.setattr(server, "_bound", lacking)

    async def main() -> None:
        async with served() as api:
            assert (await api.get("/readyz")).status == 200

    run(main())
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert lines == ["no connection can be accepted: Too many open files"]


def test_what_is_logged_often_comes_in_one_line_with_its_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "_LOG_SECONDS", 0.01)

    async def main() -> None:
        rare = connections._RareLog(logging.getLogger("kubesched.tests"))
        for _ in range(1000):
            rare.warn("full")
        while len(caplog.records) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        rare.close()

    run(main())
    assert [record.getMessage() for record in caplog.records] == ["full", "full (999 times in 0.01 s)"]
