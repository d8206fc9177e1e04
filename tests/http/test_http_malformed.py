"""Requests that cannot be read: every answer is a Status, and the log keeps quiet."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from http_world import Api, run, served

HOST = b"Host: localhost\r\n"
POST = b"POST /api/v1/namespaces HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST
GET = b"GET /api/v1/pods HTTP/1.1\r\n" + HOST

CASES = [
    ("an unknown method", b"FOO /api/v1/pods HTTP/1.1\r\n" + HOST + b"\r\n", 405, "MethodNotAllowed"),
    ("another, on a path of ours", b"BREW /healthz HTTP/1.1\r\n" + HOST + b"\r\n", 405, "MethodNotAllowed"),
    ("one from another protocol", b"PROPFIND /api/v1/pods HTTP/1.1\r\n" + HOST + b"\r\n", 405, "MethodNotAllowed"),
    ("TRACE", b"TRACE /api/v1/pods HTTP/1.1\r\n" + HOST + b"\r\n", 405, "MethodNotAllowed"),
    ("a method with a bracket", b"F(O /api HTTP/1.1\r\n" + HOST + b"\r\n", 400, "BadRequest"),
    ("no HTTP at all", b"\x00\x01\x02\r\n\r\n", 400, "BadRequest"),
    (
        "a long request line",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        431,
        "RequestHeaderFieldsTooLarge",
    ),
    ("a long header", GET + b"X: " + b"a" * 70_000 + b"\r\n\r\n", 431, "RequestHeaderFieldsTooLarge"),
    ("many headers", GET + b"".join(b"X%d: a\r\n" % n for n in range(1000)) + b"\r\n", 400, "BadRequest"),
    ("a header without a colon", GET + b"nothing\r\n\r\n", 400, "BadRequest"),
    ("a length that is none", POST + b"Content-Length: some\r\n\r\n", 400, "BadRequest"),
    ("two lengths", POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, "BadRequest"),
    ("a chunk of no size", POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n", 400, "BadRequest"),
    (
        "a body that is not compressed",
        POST + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        400,
        "BadRequest",
    ),
    ("a body that is too large", POST + b"Content-Length: 99999999\r\n\r\nabc", 413, "RequestEntityTooLarge"),
    (
        "chunks that are too large",
        POST + b"Transfer-Encoding: chunked\r\n\r\n400000\r\n" + b"a" * 0x400000 + b"\r\n0\r\n\r\n",
        413,
        "RequestEntityTooLarge",
    ),
    ("an address that is none", b"GET http://[::1/api HTTP/1.1\r\n" + HOST + b"\r\n", 400, "BadRequest"),
]


async def ask(api: Api, raw: bytes) -> tuple[int, str, Any]:
    """The code, type and data of the answer to some bytes."""
    port = int(api.server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length:"))
    body = await reader.readexactly(length)
    writer.close()
    kind = next(line.split(": ")[1] for line in head.splitlines() if line.lower().startswith("content-type:"))
    return int(head.split()[1]), kind, json.loads(body)


@pytest.mark.parametrize(("case", "raw", "code", "reason"), CASES, ids=[case[0] for case in CASES])
def test_what_cannot_be_read_is_refused_by_a_status(
    case: str, raw: bytes, code: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with served() as api:
            status, kind, data = await ask(api, raw)
            assert (status, kind) == (code, "application/json"), case
            assert (data["kind"], data["status"], data["code"]) == ("Status", "Failure", code)
            assert data["reason"] == reason
            assert data["message"]
            assert (await api.get("/healthz")).raw == b"ok", "others are served as ever"

    run(main())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info] == []


def test_https_on_a_port_of_http_is_reported() -> None:
    async def main() -> None:
        async with served() as api:
            _, _, data = await ask(api, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03rest\r\n\r\n")
            assert data["message"].endswith("use http://")

    run(main())


def test_a_client_that_goes_away_is_no_entry_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with served() as api:
            port = int(api.server.url.rpartition(":")[2])
            for raw in (
                POST + b"Content-Length: 100\r\n\r\nabc",
                GET[:30],
                b"GET /api/v1/pods?watch=1 HTTP/1.1\r\n" + HOST + b"\r\n",
            ):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(raw)
                await writer.drain()
                writer.transport.abort()
            await api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
            assert (await api.get("/healthz")).raw == b"ok"

    run(main())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info] == []
