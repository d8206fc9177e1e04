"""Clients that send half a request: others are served meanwhile, and the half-sent request ends at its time limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from http_world import PODS, Api, a_node, a_pod, run, served

from kubesched.api.kinds import NODES

HEAD = b"POST /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
ANNOUNCED = HEAD + b"Content-Length: 3000000\r\n\r\n{"
LATE: dict[str, Any] = {"head_seconds": 3600.0, "body_seconds": 3600.0}


@asynccontextmanager
async def connected(api: Api, raw: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which some bytes have been sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(api.server.url.rpartition(":")[2]))
    try:
        writer.write(raw)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()


async def _until_open(api: Api, count: int) -> None:
    while api.server.intake.waiting != count:  # noqa: ASYNC110 - the test as a whole has a time limit
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("raw", [CHUNKED, ANNOUNCED], ids=["in chunks", "of a length announced"])
def test_half_sent_bodies_do_not_use_up_the_allowance(raw: bytes) -> None:
    async def main() -> None:
        async with served(**LATE) as api:
            # Thirty times the largest body is far more than the allowance.
            clients = [connected(api, raw) for _ in range(30)]
            for client in clients:
                await client.__aenter__()
            await _until_open(api, 30)
            assert (await api.post("/api/v1/nodes", a_node())).status == 201
            for client in clients:
                await client.__aexit__(None, None, None)
            await _until_open(api, 0)

    run(main())


def test_what_has_arrived_counts_until_the_request_ends() -> None:
    async def main() -> None:
        async with served(max_body_bytes_in_flight=2000, **LATE) as api:
            half = HEAD + b"Content-Length: 3000\r\n\r\n" + b" " * 1900
            async with connected(api, half) as (reader, writer):
                await _until_open(api, 1)
                refused = await api.post("/api/v1/nodes", a_node())
                assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
                writer.write(b" " * 1100)
                assert b" 429 " in await reader.readline()
            await _until_open(api, 0)
            assert (await api.post("/api/v1/nodes", a_node())).status == 201

    run(main())


@pytest.mark.parametrize("raw", [CHUNKED, ANNOUNCED], ids=["in chunks", "of a length announced"])
def test_a_body_that_never_ends_is_408(raw: bytes) -> None:
    async def main() -> None:
        async with served(body_seconds=0.05) as api:
            async with connected(api, raw) as (reader, _):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                assert head.startswith("HTTP/1.1 408 ")
                length = next(line for line in head.lower().splitlines() if line.startswith("content-length:"))
                status = json.loads(await reader.readexactly(int(length.split(":")[1])))
                assert (status["kind"], status["reason"]) == ("Status", "Timeout")
                assert "not complete after 0.05 seconds" in status["message"]
            assert api.server.intake.waiting == 0
            assert (await api.get("/api/v1/nodes")).data["items"] == []

    run(main())


@pytest.mark.parametrize(
    "raw", [b"G", b"GET /api/v1/nodes HTTP/1.1\r\n", b"GET /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\nX: y"]
)
def test_a_head_that_never_ends_closes_the_connection(raw: bytes) -> None:
    async def main() -> None:
        async with served(head_seconds=0.05) as api, connected(api, raw) as (reader, _):
            assert await reader.read() == b""

    run(main())


def test_a_head_in_pieces_is_read_and_the_connection_lives_on() -> None:
    async def main() -> None:
        async with served(head_seconds=3600.0) as api, connected(api, b"") as (reader, writer):
            for _ in range(2):
                for piece in (b"GET /hea", b"lthz HTTP/1.1\r\n", b"Host: localhost\r\n", b"\r\n"):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK\r\n")

    run(main())


def test_the_time_for_a_head_does_not_end_a_watch_that_has_begun() -> None:
    async def main() -> None:
        async with served(head_seconds=0.05) as api, api.watch(PODS) as events:
            await asyncio.sleep(0.2)
            await api.post(PODS, a_pod())
            assert (await events.next())["type"] == "ADDED"

    run(main())


def test_a_closed_server_takes_no_watch_and_no_write_and_is_gone_soon() -> None:
    """Watchers reconnect all the time, one does not read, and a body is half sent: none of them holds up the end."""

    async def main() -> None:
        async with served(**LATE) as api:
            refused = 0

            async def follow() -> None:
                nonlocal refused
                while refused < 40:
                    try:
                        async with api.watch("/api/v1/nodes") as events:
                            refused += events.response.status == 503
                            await events.rest()
                    except aiohttp.ClientConnectionError:
                        refused += 1
                    await asyncio.sleep(0)

            unread = b"GET /api/v1/nodes?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n"
            body = json.dumps(a_node("late")).encode()
            half = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:20]
            async with connected(api, half) as (reader, writer), connected(api, unread):
                await _until_open(api, 1)
                followers = [asyncio.create_task(follow()) for _ in range(8)]
                while len(api.server.watches) < 9:  # noqa: ASYNC110 - the test as a whole has a time limit
                    await asyncio.sleep(0.01)
                for number in range(60):  # more than the sockets take
                    api.store.create(
                        NODES, "", {"metadata": {"name": f"n{number}", "annotations": {"a": "x" * 100_000}}}
                    )
                await api.server.close()
                await api.server.close()
                writer.write(body[20:])
                assert b" 503 " in await reader.readline()
                while refused < 40:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert "late" not in {item.name for item in api.store.list(NODES).items}
                begun = asyncio.get_running_loop().time()
                await api.server.stop()
                # The limit for what does not end by itself is a second in all.
                assert asyncio.get_running_loop().time() - begun < 10
                assert len(api.server.watches) == 0
            await asyncio.gather(*followers)

    run(main())
