"""One line for a state of the connection, however many requests and kinds of objects meet it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from client_fake_server import FakeServer

from kubesched.api.kinds import KINDS, NODES
from kubesched.api.wire import ApiError, ListPage, NotLeaderError
from kubesched.client.access import ClusterAccess
from kubesched.client.connection_log import REMIND_SECONDS, ConnectionLog, connection_failure
from kubesched.client.http import HttpTransport
from kubesched.client.http_reading import AnswerTooLongError
from kubesched.client.informer import Informer
from kubesched.client.port import ApiPort
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual


def caused(error: OSError, cause: Exception) -> OSError:
    error.__cause__ = cause
    return error


REFUSED = ApiError(401, "Unauthorized", "Unauthorized")
OWN_CAUSE = ConnectionResetError("its own cause")
OWN_CAUSE.__cause__ = OWN_CAUSE
STATES: dict[str, Exception] = {
    "the credentials are refused": REFUSED,
    "the TLS connection fails": caused(ConnectionError("certificate verify failed"), ssl.SSLError()),
    "the name of the server is unknown": caused(ConnectionError("no such host"), socket.gaierror()),
    "nothing accepts connections": ConnectionRefusedError("refused"),
    "the connection is lost": ConnectionResetError("reset"),
}
OTHERS = (
    ApiError(403, "Forbidden", "no"),
    ApiError(500, "InternalError", "oh"),
    AnswerTooLongError(5),
    NotLeaderError(),
    ValueError("x"),
)


def test_an_error_that_is_its_own_cause(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        assert ConnectionLog().failed(OWN_CAUSE)

    virtually(main)
    assert "the connection is lost: its own cause" in lines(caplog)[0]


def test_an_error_without_words_is_named() -> None:
    assert connection_failure("here", TimeoutError()) == "here: the connection is lost: timed out"
    assert connection_failure("here", ConnectionResetError()) == "here: the connection is lost: ConnectionResetError()"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname in ("INFO", "WARNING", "ERROR")]


def virtually(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main())


@pytest.mark.parametrize("state", STATES)
def test_a_state_is_said_once_then_rarely_and_again_when_it_has_changed(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kubesched.client")

    async def main() -> None:
        log = ConnectionLog("https://there")
        for _ in range(100):
            assert log.failed(STATES[state])
            await asyncio.sleep(1.0)
        [line] = lines(caplog)
        assert line.startswith(f"API server https://there: {state}: ")
        await asyncio.sleep(REMIND_SECONDS)
        log.failed(STATES[state])
        assert "it is tried again (99 more failures since the last line)" in lines(caplog)[1]
        log.worked()
        log.worked()
        assert lines(caplog)[2:] == ["API server https://there: the connection works"]
        await asyncio.sleep(11.0)
        log.failed(STATES[state])
        assert len(lines(caplog)) == 4

    virtually(main)


def test_a_connection_that_comes_and_goes_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        log = ConnectionLog()
        for _ in range(1000):
            log.failed(REFUSED)
            log.failed(STATES["nothing accepts connections"])
            log.worked()
            await asyncio.sleep(0.01)

    virtually(main)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) <= 4


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_what_concerns_one_request_is_left_to_the_caller(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        assert not ConnectionLog().failed(error)

    virtually(main)
    assert lines(caplog) == []


class _Refusing:
    async def list(self, *args: Any, **options: Any) -> Any:
        raise REFUSED

    async def watch(self, *args: Any, **options: Any) -> Any:
        raise REFUSED
        yield


@pytest.mark.parametrize("watch_list", [False, True])
def test_informers_of_all_kinds_say_it_once(watch_list: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        transport: Any = _Refusing()
        clock = VirtualClock(asyncio.get_running_loop())
        port = ApiPort(transport, clock=clock, rng=Random(1), watch_list=watch_list)
        informers = [port.informer(kind) for kind in list(KINDS)[:18]]
        tasks = [asyncio.create_task(informer.run()) for informer in informers]
        await asyncio.sleep(200.0)
        assert min(informer.statistics().errors for informer in informers) > 3
        for informer in informers:
            informer.stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    virtually(main)
    assert len(lines(caplog)) == 1


def test_a_stream_from_before_does_not_show_that_requests_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    """A watch outlives the token that opened it."""
    caplog.set_level("INFO", "kubesched.client")

    async def main() -> None:
        server, log = FakeServer(), ConnectionLog("https://there")
        server.connection_log = log
        informer = Informer(server, NODES, rng=Random(1))
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        server.put("a")
        await asyncio.sleep(1.0)
        log.failed(REFUSED)
        server.put("b")
        await asyncio.sleep(1.0)
        assert not any("the connection works" in line for line in lines(caplog))
        server.cut(None)  # the next watch is a new request
        await asyncio.sleep(1.0)
        server.put("c")
        await asyncio.sleep(1.0)
        assert lines(caplog)[-1].endswith("the connection works")
        informer.stop()
        await task

    virtually(main)


class _WithoutStreams(_Refusing):
    async def list(self, *args: Any, **options: Any) -> Any:
        return ListPage([], "1")

    async def watch(self, *args: Any, **options: Any) -> Any:
        if options.get("send_initial_events"):
            raise ApiError(422, "Invalid", "sendInitialEvents is forbidden for watch")
        await asyncio.sleep(1000.0)
        yield []


def test_a_server_that_streams_no_lists_is_named_once_for_all_kinds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kubesched.client")

    async def main() -> None:
        transport: Any = _WithoutStreams()
        clock = VirtualClock(asyncio.get_running_loop())
        transport.connection_log = ConnectionLog("https://there")
        port = ApiPort(transport, clock=clock, rng=Random(1), watch_list=True)
        informers = [port.informer(kind) for kind in list(KINDS)[:18]]
        tasks = [asyncio.create_task(informer.run()) for informer in informers]
        await asyncio.gather(*(informer.wait_synced() for informer in informers))
        for informer in informers:
            informer.stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    virtually(main)
    text = "does not stream lists, they come in pages: sendInitialEvents is forbidden for watch"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"API server https://there {text}")
    ]


def resolver(error: OSError | None, port: int) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def resolve(*arguments: Any, **options: Any) -> Any:
        if error is not None:
            raise error
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    return resolve


@pytest.mark.parametrize("way", ["read", "watch", "write"])
@pytest.mark.parametrize(
    ("scheme", "state"),
    [
        ("http", "the name of the server is unknown"),
        ("http", "nothing accepts connections"),
        ("https", "the TLS connection fails"),
    ],
)
def test_what_a_real_connection_meets(scheme: str, state: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's text about TLS settings and the number of the error are left out."""

    async def main() -> str:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"no TLS here")
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if "accepts" in state:
            server.close()
            await server.wait_closed()
        error = socket.gaierror(-2, "Name or service not known") if "name" in state else None
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver(error, port))
        address = f"{scheme}://api.example:{port}"
        try:
            async with HttpTransport.connect(ClusterAccess(address)) as client:
                with pytest.raises(OSError) as failed:  # noqa: PT011 - its text is what is asserted below
                    await CALLS[way](client)
            return connection_failure(f"API server {address}", failed.value).replace(address, "URL")
        finally:
            server.close()

    text = asyncio.run(main())
    assert text.startswith(f"API server URL: {state}: cannot connect to api.example:"), text
    assert "ssl:" not in text
    assert "SSLContext" not in text
    assert "Errno" not in text


async def first_of_watch(client: HttpTransport) -> None:
    async for _ in client.watch(NODES, resource_version="1"):
        return


CALLS: dict[str, Callable[[HttpTransport], Coroutine[Any, Any, Any]]] = {
    "read": lambda client: client.list(NODES),
    "watch": first_of_watch,
    "write": lambda client: client.create(NODES, "", {"metadata": {"name": "n"}}),
}
