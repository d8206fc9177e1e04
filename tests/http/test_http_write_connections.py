"""Writes over HTTP: answers read from pieces, connections used again, and what happens when they break."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from http_world import a_pod, a_store, run

from kubesched.api.kinds import PODS
from kubesched.api.wire import ApiError, NotLeaderError
from kubesched.client.http import HttpTransport
from kubesched.client.http_answer import Answer, AnswerReader, UnreadableAnswerError
from kubesched.client.write_connections import WriteConnections
from kubesched.cluster.http import HttpServer, make_certificates

ANSWERS: list[tuple[str, bytes, int, bytes, bool]] = [
    ("with a length", b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", 201, b"{}", False),
    ("without a reason", b"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", 200, b"", False),
    ("no content", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", False),
    ("the last one", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 200, b"x", True),
    ("of HTTP/1.0", b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x", True),
    ("after interim ones", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x", False),
    ("in chunks", b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n00A;x=y\r\n0123456789\r\n0\r\n\r\n", 409, b"abc0123456789", False),
    ("in chunks with trailers", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nSum: 1\r\nX: 2\r\n\r\n", 200, b"a", False),
]  # fmt: skip


@pytest.mark.parametrize("step", [1, 2, 7, 10_000])
@pytest.mark.parametrize(("raw", "status", "body", "last"), [case[1:] for case in ANSWERS], ids=[c[0] for c in ANSWERS])
def test_an_answer_is_read_in_pieces_of_any_size(raw: bytes, status: int, body: bytes, last: bool, step: int) -> None:
    reader = AnswerReader()
    for at in range(0, len(raw), step):
        answer = reader.feed(raw[at : at + step])
        assert (answer is not None) is (at + step >= len(raw)), raw[: at + step]
    assert answer is not None
    assert (answer.status, answer.body, answer.is_last) == (status, body, last)
    assert reader.feed(b"") == answer


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    reader = AnswerReader()
    assert reader.end() is None
    assert reader.feed(b"HTTP/1.1 200 OK\r\nRetry-After: 3\r\nretry-after: 4\r\n\r\nab") is None
    assert reader.feed(b"c") is None
    assert reader.end() == Answer(200, {"retry-after": "3, 4"}, b"abc", True)


def test_bytes_after_an_answer_end_the_use_of_the_connection() -> None:
    for raw in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nHTTP",
    ):
        answer = AnswerReader().feed(raw)
        assert answer is not None
        assert (answer.body, answer.is_last) == (b"x", True)


UNREADABLE: list[tuple[str, bytes, str]] = [
    ("another protocol", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", r"did not answer in HTTP/1\.1: .*b'SSH-2.0"),
    ("HTTP/2", b"HTTP/2 200\r\n\r\n", "did not answer in HTTP/1.1"),
    ("no code", b"HTTP/1.1 OK\r\n\r\n", "did not answer in HTTP/1.1"),
    ("no colon", b"HTTP/1.1 200 OK\r\nlength 3\r\n\r\n", "did not answer in HTTP/1.1: .*length 3"),
    ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "Content-Length"),
    ("a negative length", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length"),
    ("a huge length", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "has more than 67108864 bytes"),
    ("compressed", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "the transfer encoding 'gzip, chunked'"),
    ("no chunk size", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "chunk size"),
    ("a negative chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "chunk size"),
    ("a long chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", "chunk data"),
    ("another connection", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "another protocol"),
    ("endless headers", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000, "more than 65536 bytes of headers"),
    ("an endless header", b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000, "more than 65536 bytes of headers"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "message"), [case[1:] for case in UNREADABLE], ids=[c[0] for c in UNREADABLE])
def test_what_is_no_answer_is_an_error(raw: bytes, message: str) -> None:
    with pytest.raises(UnreadableAnswerError, match=message):
        AnswerReader().feed(raw)


@pytest.mark.parametrize("head", [b"Transfer-Encoding: chunked\r\n\r\n5\r\n", b"\r\n"], ids=["in chunks", "to the end"])
def test_the_size_of_an_answer_without_a_length_is_limited(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    monkeypatch.setattr("kubesched.client.http_answer._MOST_BODY", 4)
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n" + head + b"abcd") is None
    with pytest.raises(UnreadableAnswerError, match="more than 4 bytes"):
        reader.feed(b"e")


# -- connections -------------------------------------------------------------------------------------------

OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:"))
    return head + await reader.readexactly(length)


class _Server:
    """A raw server: ``serve`` handles each connection. Knows the connections there were."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.connections = 0
        self.accepted = asyncio.Event()
        self._handlers: set[asyncio.Task[None] | None] = set()

    async def __aenter__(self) -> _Server:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        if handlers := [task for task in self._handlers if task is not None]:
            await asyncio.wait(handlers)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._handlers.add(asyncio.current_task())
        self.connections += 1
        self.accepted.set()
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _always(*answers: bytes) -> Serve:
    """Every connection gets these answers, one for each request, and the last one again and again."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = list(answers)
        while True:
            await _read_request(reader)
            writer.write(left.pop(0) if len(left) > 1 else left[0])

    return serve


def test_one_connection_serves_one_request_after_the_other() -> None:
    async def main() -> None:
        seen: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                seen.append(await _read_request(reader))
                writer.write(OK)

        async with _Server(serve) as server:
            connections = WriteConnections(f"{server.url}/clusters/x")
            for number in range(3):
                body = b"%d" % number
                answer = await connections.request("POST", "/api/v1/pods?dryRun=All", {"Accept": "a/b"}, body)
                assert answer == Answer(201, {"content-length": "2"}, b"{}", False)
            assert server.connections == 1
            host = server.url.removeprefix("http://")
            assert seen[2].decode() == (
                f"POST /clusters/x/api/v1/pods?dryRun=All HTTP/1.1\r\nHost: {host}\r\nAccept: a/b\r\nContent-Length: 1\r\n\r\n2"
            )
            await asyncio.gather(*(connections.request("POST", "/", {}, b"") for _ in range(5)))
            assert server.connections == 5  # four more: a connection has one request at a time
            await connections.close()

    run(main())


def test_a_connection_that_was_closed_or_idle_for_long_is_not_used_again() -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _read_request(reader)
            writer.write(OK)
            if await reader.read() == b"":
                ended.set()

        async with _Server(serve) as server:
            connections = WriteConnections(server.url, keep=0.01)
            await connections.request("POST", "/", {}, b"")
            await asyncio.wait_for(ended.wait(), 20)  # closed by the client, unused
            await connections.request("POST", "/", {}, b"")
            assert server.connections == 2
            await connections.close()
        async with _Server(_always(OK.replace(b"Content", b"Connection: close\r\nContent"))) as server:
            connections = WriteConnections(server.url)
            for _ in range(2):
                await connections.request("POST", "/", {}, b"")
            assert server.connections == 2
            await connections.close()

    run(main())


def test_connections_that_break_are_os_errors() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_request(reader)
        writer.write(OK[:-1])

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """End as a server that was killed does."""
        await _read_request(reader)
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with _Server(cut) as server:
            connections = WriteConnections(server.url)
            with pytest.raises(ConnectionResetError, match="the server closed the connection"):
                await connections.request("POST", "/", {}, b"")
        with pytest.raises(ConnectionRefusedError, match=f"cannot connect to 127.0.0.1:{server.url[17:]}"):
            await connections.request("POST", "/", {}, b"")
        async with _Server(reset) as server:
            with pytest.raises(ConnectionResetError) as caught:
                await WriteConnections(server.url).request("POST", "/", {}, b"")
            assert str(caught.value).count("Errno") == 1
        async with _Server(silent) as server:
            with pytest.raises(TimeoutError, match="did not answer in time"):
                await WriteConnections(server.url, timeout=0.05).request("POST", "/", {}, b"")
            for is_connected in (True, False):
                connections = WriteConnections(server.url)
                server.accepted.clear()
                waiting = asyncio.create_task(connections.request("POST", "/", {}, b""))
                await (server.accepted.wait() if is_connected else asyncio.sleep(0))
                await connections.close()
                with pytest.raises(ConnectionResetError):
                    await waiting
        async with _Server(_always(b"220 mail\r\n\r\n")) as server:
            with pytest.raises(ConnectionError, match=r"did not answer in HTTP/1\.1: .*b'220 mail"):
                await WriteConnections(server.url).request("POST", "/", {}, b"")

    run(main())


def test_a_cancelled_request_takes_its_connection_with_it() -> None:
    async def main() -> None:
        answer = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _read_request(reader)
            await answer.wait()
            writer.write(OK)

        async with _Server(serve) as server:
            connections = WriteConnections(server.url)
            waiting = asyncio.create_task(connections.request("POST", "/first", {}, b""))
            await server.accepted.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            answer.set()
            assert (await connections.request("POST", "/second", {}, b"")).status == 201
            assert server.connections == 2
            await connections.close()

    run(main())


def test_nothing_is_written_without_the_lease_even_on_a_new_connection() -> None:
    async def main() -> None:
        async with _Server(_always(OK)) as server:
            connections = WriteConnections(server.url)
            looks = iter([True, False, False])
            connections.may_write = lambda: next(looks)
            with pytest.raises(NotLeaderError):  # lost while the connection was made
                await connections.request("POST", "/", {}, b"")
            with pytest.raises(NotLeaderError):
                await connections.request("POST", "/", {}, b"")
            connections.may_write = None
            assert (await connections.request("POST", "/", {}, b"")).status == 201
            assert server.connections == 1
            await connections.close()

    run(main())


def test_a_header_cannot_bring_others_along() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="the header Authorization has a line break"):
            await WriteConnections("http://127.0.0.1:1").request("POST", "/", {"Authorization": "a\r\nX: y"}, b"")

    run(main())


def test_a_refusal_and_a_redirect_are_api_errors() -> None:
    busy = b"HTTP/1.1 429 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
    moved = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"

    async def main() -> None:
        async with _Server(_always(busy, OK, moved)) as server, HttpTransport(server.url) as client:
            await client.bind("default", "p", "u", "n")
            with pytest.raises(ApiError, match="the server answered 307") as caught:
                await client.bind("default", "p", "u", "n")
            assert caught.value.code == 307
            assert server.connections == 1

    run(main())


class _Now:
    """The real time: certificates are checked against it."""

    def now(self) -> float:
        return time.time()


def test_writes_over_tls(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

    async def main() -> None:
        files = make_certificates(tmp_path, _Now())
        async with HttpServer(a_store(), tls_cert=files.cert, tls_key=files.key, token="secret") as server:
            trusting = ssl.create_default_context(cafile=str(files.ca))
            async with HttpTransport(server.url, token="secret", context=trusting) as client:
                created = [(await client.create(PODS, "default", a_pod(f"p{index}"))).name for index in range(3)]
                assert created == ["p0", "p1", "p2"]
            async with HttpTransport(server.url, token="secret", context=trusting, server_name="other.org") as client:
                with pytest.raises(ConnectionError, match="certificate"):
                    await client.create(PODS, "default", a_pod("p4"))
            async with HttpTransport(server.url, token="secret") as client:
                with pytest.raises(ConnectionError, match="certificate"):
                    await client.create(PODS, "default", a_pod("p4"))

    run(main())
