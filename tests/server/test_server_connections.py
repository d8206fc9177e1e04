"""Connections to the HTTPS server that send nothing: they are few, they end, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import gc
import socket
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from server_kit import eventually, run, running, serving, trusting_all

from kubesched.base import connections
from kubesched.base.connections import Connection
from kubesched.scheduler.server import server


async def _connect(port: int, count: int) -> list[socket.socket]:
    sockets = []
    for _ in range(count):
        opened = socket.socket()
        sockets.append(opened)
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", port))
    return sockets


def _ended(opened: socket.socket) -> bool:
    try:
        return not opened.recv(1 << 16)
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "the beginning of a hand-shake"])
def test_unfinished_hand_shakes_are_few_and_end_and_probes_are_answered(
    first: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 20)
    monkeypatch.setattr(connections, "HAND_SHAKE_SECONDS", 1.0)

    async def main() -> None:
        async with running(serving(tmp_path)) as client:
            sockets = await _connect(client.server.port, 200)
            for opened in sockets:
                opened.send(first)
            ended: set[Any] = set()

            async def all_but(count: int) -> bool:
                ended.update(opened for opened in sockets if opened not in ended and _ended(opened))
                return len(ended) >= len(sockets) - count

            await eventually(lambda: all_but(20))
            assert client.server.connections is not None
            assert client.server.connections.open <= 20
            assert (await client("/livez")).status == 200
            await eventually(lambda: all_but(0))
            for opened in sockets:
                opened.close()
            await client.server.stop()

    run(main())


def test_a_client_that_shakes_hands_and_asks_nothing_is_closed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_READ_HEADER_SECONDS", 0.1)

    async def main() -> None:
        async with running(serving(tmp_path)) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port, ssl=trusting_all())
            assert await reader.read() == b""
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port, ssl=trusting_all())
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK")
            writer.write(b"GET /livez HTTP/1.1\r\nX")  # it never ends
            assert await reader.read() == b""
            writer.close()

    run(main())


def _answer_over_tls(port: int, request: bytes) -> bytes:
    with trusting_all().wrap_socket(socket.create_connection(("127.0.0.1", port))) as opened:
        opened.sendall(request)
        return opened.recv(1 << 16) if len(request) < 1 << 16 else b"not waited for"


@pytest.mark.parametrize(
    ("first", "over_tls"),
    [
        (b"", False),
        (b"\x16\x03\x01\x02\x00\x01", False),
        (b"GET / HTTP/1.1\r\n\r\n", False),
        (b"\0\1 / HT\r\n\r\n", True),
        (b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n\r\n", True),
    ],
    ids=["nothing", "the beginning of a hand-shake", "no hand-shake", "no request", "a long line"],
)  # fmt: skip
def test_a_connection_that_ended_leaves_none_of_its_buffers_in_cycles(
    first: bytes, over_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cycles are looked for rarely in a process that schedules: each would keep 256 KiB for hours."""
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 10)
    monkeypatch.setattr(connections, "HAND_SHAKE_SECONDS", 0.5)

    async def main() -> None:
        async with running(serving(tmp_path)) as client:
            gc.collect()
            gc.disable()
            tracemalloc.start()
            port = client.server.port
            opened = [] if over_tls else await _connect(port, 20)
            for one in opened:
                with suppress(OSError):  # it was one too many
                    one.send(first)
            for _ in range(20 if over_tls else 0):
                assert await asyncio.to_thread(_answer_over_tls, port, first)
            assert client.server.connections is not None
            taken = client.server.connections

            async def all_ended() -> bool:
                return taken.open == 0

            await eventually(all_ended)
            for one in opened:
                one.close()
            await asyncio.sleep(0.1)
            assert tracemalloc.get_traced_memory()[0] < 20 * 100 * 1024
            await client.server.stop()

    try:
        run(main())
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("limit", ["_MOST_LEFT", "_MOST_ENDED"])
def test_many_connections_that_ended_are_looked_for_in_cycles(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    monkeypatch.setattr(connections, limit, 10)
    monkeypatch.setattr(connections, "_LEFT_SECONDS", 0.05)
    monkeypatch.setattr(connections, "full_pass", lambda: passes.append(gc.collect()))
    if limit == "_MOST_LEFT":
        lost = Connection.connection_lost

        def lost_in_a_cycle(self: Any, error: BaseException | None) -> None:
            lost(self, error)
            self.itself = self

        monkeypatch.setattr(Connection, "connection_lost", lost_in_a_cycle)

    async def main() -> None:
        async with running(serving(tmp_path)) as client:
            gc.disable()
            for count in (9, 10):
                assert passes == []
                for opened in await _connect(client.server.port, count):
                    opened.close()
                await asyncio.sleep(0.5)

            async def one_pass() -> bool:
                return len(passes) == 1

            await eventually(one_pass)
            await client.server.stop()

    try:
        run(main())
    finally:
        gc.enable()
