"""Connections to the HTTPS server that send nothing: they are few, they end, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from server_kit import eventually, run, running, serving, trusting_all

from kubesched.api import connections
from kubesched.server import server


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
