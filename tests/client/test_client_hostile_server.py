"""An API server that says anything: answers without end, waits of years, nonsense in errors."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import ssl
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from certificate_kit import Authority
from kubesched.api.kinds import PODS
from kubesched.api.wire import ApiError, ListPage, NotLeaderError
from kubesched.client import http, http_reading
from kubesched.client.backoff import MOST_RETRY_AFTER, retry_after
from kubesched.client.bodies import AnswerTooLongError
from kubesched.client.http import HttpTransport
from kubesched.client.http_reading import read_events, read_item, status_error
from kubesched.client.informer import Informer
from kubesched.client.reflector import Reflector
from kubesched.client.store import version_of
from kubesched.scheduler.core.failure import is_fenced

HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n%s\r\n"


class Endless:
    """Sends a piece again and again, until the client has had enough; ``sent`` counts the bytes."""

    def __init__(self, piece: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> None:
        self.piece = piece
        self.head = HEAD % (status, headers)
        self.sent = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.head)
        try:
            while self.sent < 200_000_000:
                writer.write(b"%x\r\n%s\r\n" % (len(self.piece), self.piece))
                self.sent += len(self.piece)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def client_of(script: Callable[..., Any]) -> AsyncIterator[HttpTransport]:
    server = await asyncio.start_server(script, "127.0.0.1", 0)
    async with server, HttpTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        yield client


async def _watch(client: HttpTransport) -> None:
    async for _ in client.watch(PODS, resource_version="1"):
        pass


async def _list(client: HttpTransport) -> None:
    await client.list(PODS)


async def _get(client: HttpTransport) -> None:
    await client.get(PODS, "default", "p")


async def _create(client: HttpTransport) -> None:
    await client.create(PODS, "default", {"metadata": {"name": "p"}})


@pytest.mark.parametrize(
    ("ask", "status", "message"),
    [
        (_list, b"200 OK", "longer than 1000000 bytes, which is the limit"),
        (_list, b"500 Oh", "longer than 50000 bytes, which is the limit"),
        (_watch, b"200 OK", "an event is longer than 1000000 bytes"),
        (_watch, b"403 No", "longer than 50000 bytes, which is the limit"),
        (_create, b"201 Created", "more than"),
    ],
    ids=["list", "refused list", "watch", "refused watch", "write"],
)
def test_an_answer_without_end_is_given_up(
    ask: Callable[..., Any], status: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MOST_LIST", 1_000_000)
    monkeypatch.setattr(http, "MOST_REFUSAL", 50_000)
    monkeypatch.setattr(http_reading, "_LINE_LIMIT", 1_000_000)
    monkeypatch.setattr("kubesched.client.http_answer._MOST_BODY", 1_000_000)

    async def main() -> None:
        script = Endless(b"x" * 65_536, status)
        async with client_of(script) as client, asyncio.timeout(30):
            with pytest.raises(OSError, match=message):
                await ask(client)
            assert script.sent < 50_000_000  # what lies in buffers

    asyncio.run(main())


def _largest_variable(error: BaseException | None) -> int:
    """The bytes of the largest one that grows, in the frames that an error keeps."""
    assert error is not None
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return max(len(value) for frame in frames for value in frame.f_locals.values() if isinstance(value, bytearray))


def test_answers_without_end_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds are listed at one time."""
    limit = 1_000_000
    monkeypatch.setattr(http, "MOST_LIST", limit)
    monkeypatch.setattr(http, "RESET_DELAY", 0.0)
    halves = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (limit - 1) + b" " * (limit // 2))
        await writer.drain()
        await halves.wait()
        writer.close()

    async def main() -> None:
        async with client_of(answer) as client:
            lists = [asyncio.create_task(client.list(PODS)) for _ in range(3)]
            done, _ = await asyncio.wait(lists, return_when=asyncio.FIRST_COMPLETED, timeout=30)
            assert [type(one.exception()) for one in done] == [AnswerTooLongError]
            assert all(_largest_variable(one.exception()) == 0 for one in done), "the error keeps what was read"
            halves.set()
            await asyncio.gather(*lists, return_exceptions=True)

    asyncio.run(main())


def test_bytes_count_after_decompression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_LIST", 1_000_000)
    bomb = gzip.compress(b" " * 100_000_000)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
        writer.write(head + bomb)
        writer.close()

    async def main() -> None:
        async with client_of(answer) as client:
            with pytest.raises(AnswerTooLongError):
                await client.list(PODS)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        ("99999999", MOST_RETRY_AFTER),
        ("9" * 5000, MOST_RETRY_AFTER),
        ("-1", None),
        ("1.5", None),
        ("nan", None),
        ("²", None),
        ("Wed, 21 Oct 2099 07:28:00 GMT", None),
        (3, 3.0),
        (1e308, MOST_RETRY_AFTER),
        (10**400, MOST_RETRY_AFTER),
        (float("nan"), None),
        (float("inf"), MOST_RETRY_AFTER),
        (-5, None),
        (True, None),
        (None, None),
        ({}, None),
    ],
)
def test_waits_that_a_server_asks_for_have_a_limit(value: Any, seconds: float | None) -> None:
    assert retry_after(value) == seconds


@pytest.mark.parametrize("after", [b"99999999", b"9" * 5000])
def test_a_request_is_repeated_after_a_minute_at_most(after: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def skip(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    body = b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}'
    answers = [
        b"HTTP/1.1 429 Busy\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n" % after,
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body),
    ]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answers.pop(0))
        writer.close()

    async def main() -> None:
        async with client_of(answer) as client:
            monkeypatch.setattr("kubesched.client.http.asyncio.sleep", skip)
            monkeypatch.setattr("kubesched.client.pace.MOST_PAUSE", 0.0)
            assert (await client.list(PODS)).resource_version == "7"

    asyncio.run(main())
    assert max(slept) == MOST_RETRY_AFTER


def test_a_write_that_is_not_repeated_for_want_of_the_lease_ends_as_its_first_answer_did() -> None:
    may_write = True

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal may_write
        await reader.readuntil(b"\r\n\r\n")
        may_write = False
        writer.write(b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def main() -> None:
        async with client_of(answer) as client:
            client.may_write = lambda: may_write
            with pytest.raises(ApiError) as caught:
                await client.bind("default", "p", "", "n")
            assert (caught.value.code, is_fenced(caught.value)) == (503, False)
            with pytest.raises(NotLeaderError):
                await client.bind("default", "p", "", "n")

    asyncio.run(main())


@pytest.mark.parametrize("retry", ["refused", "429", "401", "403"])
def test_a_write_whose_repetition_is_turned_away_ends_as_its_first_answer_did(retry: str) -> None:
    answers = [b"503 Busy", f"{retry} No".encode()]
    stop_listening: Any = None

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        after = b"Retry-After: 0\r\n" if answers[0].startswith(b"503") else b""
        writer.write(b"HTTP/1.1 %s\r\n%sContent-Length: 0\r\n\r\n" % (answers.pop(0), after))
        writer.close()
        if retry == "refused":
            stop_listening()

    async def main() -> None:
        nonlocal stop_listening
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        stop_listening = server.close
        async with HttpTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
            with pytest.raises(ApiError) as caught:
                await client.bind("default", "p", "", "n")
            assert caught.value.code == 503
        server.close()

    asyncio.run(main())


class _Refusing:
    """A transport that answers everything with 429 and years to wait."""

    async def list(self, *args: Any, **options: Any) -> Any:
        raise ApiError(429, "TooManyRequests", "busy", {"retryAfterSeconds": 99_999_999})


def test_a_watch_stops_for_a_minute_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def skip(seconds: float) -> None:
        slept.append(seconds)
        raise asyncio.CancelledError

    monkeypatch.setattr("kubesched.client.reflector.asyncio.sleep", skip)
    transport: Any = _Refusing()
    sink: Any = None
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Reflector(transport, PODS, sink, rng=Random(1)).run())
    assert slept == [MOST_RETRY_AFTER]


VERSIONS = ("abc", "-1", "\N{SUPERSCRIPT TWO}", "9" * 5000)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_list_of_a_version_that_is_no_number_is_one_clear_line(
    version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Listing:
        async def list(self, *args: Any, **options: Any) -> ListPage:
            return ListPage([], version)

    async def stop(seconds: float) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr("kubesched.client.reflector.asyncio.sleep", stop)
    transport: Any = Listing()
    sink: Any = None
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Reflector(transport, PODS, sink, rng=Random(1)).run())
    (line,) = caplog.records
    assert line.exc_info is None
    assert (
        f"list of pods: the server's answer cannot be read: resourceVersion '{version[:40]}' is no number"
        in line.message
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_an_object_of_a_version_that_is_no_number_is_older_than_all(version: str) -> None:
    item = read_item(PODS, json.dumps({"metadata": {"name": "p", "resourceVersion": version}}).encode())
    assert item.resource_version == version_of(item.typed) == 0


@pytest.mark.parametrize(
    "raw",
    [
        b'{"kind":"Status","code":"abc","reason":7,"message":["x"],"details":"y"}',
        b'{"kind":"Status","code":1e400}',
        b'{"kind":"Status","code":{}}',
        b"[" * 100_000,
        b'{"kind":"Status","message":"\xff"}',
    ],
)
def test_an_error_that_makes_no_sense_is_still_the_error_of_its_code(raw: bytes) -> None:
    error = status_error(raw, 503)
    assert (error.code, error.reason) == (503, "ServiceUnavailable")

    async def lines() -> AsyncIterator[bytes]:
        yield b'{"type":"ERROR","object":' + raw + b"}\n"

    async def main() -> None:
        with pytest.raises(ApiError):
            async for _ in read_events(PODS, lines()):
                pass

    asyncio.run(main())


async def _no_hand_shake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def _half_an_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
    writer.close()


async def _no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"\0\1\2 no\r\n\r\n")
    writer.close()


@pytest.mark.parametrize("ask", [_list, _watch, _create])
@pytest.mark.parametrize("script", [_no_hand_shake, _half_an_answer, _no_http])
def test_a_connection_that_failed_leaves_none_of_its_buffers_in_cycles(
    ask: Callable[..., Any], script: Callable[..., Any], tmp_path: Path
) -> None:
    """Each would keep 256 KiB for hours, and a server that is down for long is tried again and again."""
    authority = Authority()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(*authority.write(tmp_path, "server", "server", hosts=("127.0.0.1",)))
    trusting = ssl.create_default_context(cadata=authority.pem.decode())

    async def main() -> int:
        context = None if script is _no_hand_shake else serving
        server = await asyncio.start_server(script, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, HttpTransport(url, context=trusting, max_retries=0) as client:
            for number in range(22):
                with pytest.raises(OSError, match=r"\w"):
                    await ask(client)
                if number == 1:
                    gc.collect()
                    gc.disable()
                    tracemalloc.start()
            await asyncio.sleep(0.1)
            return tracemalloc.get_traced_memory()[0]

    try:
        assert asyncio.run(main()) < 20 * 50 * 1024
    finally:
        tracemalloc.stop()
        gc.enable()


def _pods(count: int, first: int = 0) -> bytes:
    return b",".join(b'{"metadata":{"name":"p%d","uid":"u%d"}}' % (first + n, first + n) for n in range(count))


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Read a request. At the end of the connection close it, and return False."""
    try:
        await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        writer.close()
        return False
    return True


async def _first_error(transport: HttpTransport, *, watch_list: bool) -> str:
    """Run an informer until it has met an error. Return its text."""
    errors: asyncio.Queue[Exception] = asyncio.Queue()
    informer = Informer(transport, PODS, rng=Random(1), watch_list=watch_list, on_error=errors.put_nowait)
    task = asyncio.create_task(informer.run())
    text = str(await errors.get())
    informer.stop()
    await task
    return text


def test_a_streamed_list_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_LIST", 100_000)
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        request = await reader.readuntil(b"\r\n\r\n")
        try:
            if b"sendInitialEvents" not in request:
                writer.write(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
                return
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while sent < 40_000_000:
                writer.write(
                    b'{"type":"ADDED","object":{"metadata":{"name":"p%d","uid":"%s"}}}\n' % (sent, b"u" * 50_000)
                )
                sent += 50_000
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def main() -> None:
        async with client_of(answer) as client, asyncio.timeout(30):
            await _first_error(client, watch_list=True)
            with client.held.share() as charge:
                charge(100_000)  # all was given back

    asyncio.run(main())
    assert sent < 20_000_000  # what lies in buffers


def test_pages_without_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_LIST", 100_000)
    pages = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal pages
        while await _asked(reader, writer):
            pages += 1
            body = b'{"metadata":{"continue":"t%d"},"items":[%s]}' % (pages, _pods(100, 100 * pages))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    async def main() -> None:
        async with client_of(answer) as client, asyncio.timeout(30):
            text = await _first_error(client, watch_list=False)
            assert "the answer is longer than 100000 bytes, which is the limit" in text

    asyncio.run(main())
    assert pages < 30


def test_empty_pages_without_end_are_given_up() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b'{"metadata":{"continue":"t"},"items":[]}'
        while await _asked(reader, writer):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    async def main() -> None:
        async with client_of(answer) as client, asyncio.timeout(30):
            text = await _first_error(client, watch_list=False)
            assert text == "list of pods: 101 pages without an object, and each has a token for another page"

    asyncio.run(main())


def test_the_words_of_a_refusal_are_cut() -> None:
    error = status_error(b'{"kind":"Status","message":"%s","reason":"%s"}' % (b"m" * 400_000, b"r" * 400_000), 500)
    assert (error.message, error.reason) == ("m" * 1_000, "r" * 1_000)


@pytest.mark.parametrize("ask", [_list, _get], ids=["list", "get"])
def test_a_page_for_people_is_named(ask: Callable[..., Any]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await _asked(reader, writer):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n<html>Please log in</html>")
            writer.close()

    async def main() -> None:
        async with client_of(answer) as client:
            with pytest.raises(
                ApiError, match=r"begins with b'<html>Please log in</html>'\. This looks like a page for people: check"
            ):
                await ask(client)

    asyncio.run(main())
