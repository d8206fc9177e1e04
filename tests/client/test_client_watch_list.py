"""A list that comes as the beginning of a watch: what is asked, what is taken, and when it comes in pages after all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random
from typing import Any

import pytest
from client_fake_server import FakeServer, View, end_marker, make_item, status_item

from kubesched.api.kinds import NODES
from kubesched.api.wire import ApiError, Item, WatchEvent, ends_initial_events
from kubesched.client.informer import Informer
from kubesched.client.watch_list import OpenWatch, read_initial_events
from kubesched.cluster.store.inprocess import InProcessClient
from kubesched.cluster.store.store import Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

Script = Callable[[FakeServer, Informer, View], Awaitable[None]]
TOO_LARGE = ApiError(504, "Timeout", "Too large resource version: 99, current: 10")
GONE = ApiError(410, "Expired", "too old")


def play(script: Script, server: FakeServer | None = None) -> tuple[list[tuple[Any, ...]], Informer, View]:
    """Run an informer with streamed lists while ``script`` goes on; the reads that it made, without the timeouts."""
    server = server or FakeServer()
    for name in ("a", "b"):
        server.put(name)
    view = View()
    informer = Informer(server, NODES, rng=Random(1), watch_list=True)
    informer.add_handler(view)

    async def main() -> None:
        task = asyncio.create_task(informer.run())
        assert await informer.wait_synced()
        await script(server, informer, view)
        informer.stop()
        await task

    run_virtual(main())
    return [call[:2] if call[0] != "list" else (call[0], call[3]) for call in server.calls], informer, view


async def nothing(server: FakeServer, informer: Informer, view: View) -> None:
    await asyncio.sleep(0.1)


def test_the_list_is_streamed_and_the_same_stream_goes_on() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        assert view.received == [("initial", "a", 11), ("initial", "b", 12)]
        server.put("a")
        server.remove("b")
        await asyncio.sleep(0.1)
        assert view.received[2:] == [("update", "a", 13), ("delete", "b", 14)]

    reads, informer, _ = play(script)
    assert reads == [("stream", "")]
    statistics = informer.statistics()
    assert (statistics.lists, statistics.watches, statistics.resource_version) == (1, 1, 14)


def test_a_stream_that_ends_later_is_an_ordinary_watch() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await asyncio.sleep(2)
        server.cut(None)
        await asyncio.sleep(0.1)
        server.put("c")
        await asyncio.sleep(0.1)
        assert view.received[2:] == [("add", "c", 13)]

    assert play(script)[0] == [("stream", ""), ("watch", "12")]


def test_after_410_the_list_is_streamed_not_older_than_what_is_known() -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await asyncio.sleep(2)
        server.remove("a")
        server.compact()
        server.cut(GONE)
        await asyncio.sleep(10)
        assert view.received[2:] == [("tombstone", "a", 11)]

    assert play(script)[0] == [("stream", ""), ("stream", "12")]


#: What goes wrong with a streamed list, and the reads that follow; "12" is known by then.
FIRST = [
    ("a server without the feature", [ApiError(400, "BadRequest", "unknown")], [], ["stream ", "list 0", "watch 12"]),
    ("validation fails", [ApiError(422, "Invalid", "forbidden")], [], ["stream ", "list 0", "watch 12"]),
    ("a broken connection", [ConnectionResetError("reset")], [], ["stream ", "list 0", "watch 12"]),
    ("nobody listens", [ConnectionRefusedError("no")], [], ["stream ", "stream "]),
    ("too many requests", [ApiError(429, "TooManyRequests", "later")], [], ["stream ", "stream "]),
    ("expired without a version", [GONE], [], ["stream ", "list 0", "watch 12"]),
    ("the stream ends in the middle", [], [None], ["stream ", "stream "]),
    ("the stream is refused in the middle", [], [ApiError(429, "TooManyRequests", "x")], ["stream ", "stream "]),
    ("the stream breaks in the middle", [], [ConnectionResetError("x")], ["stream ", "list 0", "watch 12"]),
]


@pytest.mark.parametrize(("failures", "cuts", "reads"), [case[1:] for case in FIRST], ids=[case[0] for case in FIRST])
def test_a_first_list_that_cannot_be_streamed(
    failures: list[Exception], cuts: list[Exception | None], reads: list[str]
) -> None:
    server = FakeServer()
    server.stream_failures += failures
    server.streams_cut += cuts
    made, _, view = play(nothing, server)
    assert [" ".join(read) for read in made] == reads
    assert view.received == [("initial", "a", 11), ("initial", "b", 12)]


@pytest.mark.parametrize("error", [GONE, TOO_LARGE], ids=["expired", "too large"])
def test_a_version_that_the_server_does_not_have_is_forgotten(error: ApiError) -> None:
    async def script(server: FakeServer, informer: Informer, view: View) -> None:
        await asyncio.sleep(2)
        server.stream_failures.append(error)
        server.cut(GONE)
        await asyncio.sleep(10)
        assert view.received[2:] == []

    assert play(script)[0] == [("stream", ""), ("stream", "12"), ("stream", "")]


def test_a_stream_that_ends_at_once_without_an_event_is_not_repeated() -> None:
    class Empty(FakeServer):
        async def watch(self, *args: Any, **options: Any) -> AsyncIterator[Sequence[WatchEvent]]:
            stream = super().watch(*args, **options)
            if not options.get("send_initial_events"):
                async for batch in stream:
                    yield batch
            else:
                self._call("stream", options["resource_version"])

    assert play(nothing, Empty())[0] == [("stream", ""), ("list", "0"), ("watch", "12")]


def added(name: str, version: int) -> WatchEvent:
    return WatchEvent("ADDED", make_item(NODES, "", name, version))


def deleted(name: str, version: int) -> WatchEvent:
    return WatchEvent("DELETED", make_item(NODES, "", name, version))


def modified(name: str, version: int) -> WatchEvent:
    return WatchEvent("MODIFIED", make_item(NODES, "", name, version))


MARKER = WatchEvent("BOOKMARK", end_marker(30))
PLAIN = WatchEvent("BOOKMARK", make_item(NODES, "", "", 29))


async def collected(*batches: list[WatchEvent], pause: float = 0.0) -> tuple[list[tuple[str, int]], int, int] | None:
    async def stream() -> AsyncIterator[Sequence[WatchEvent]]:
        for batch in batches:
            await asyncio.sleep(pause)
            yield batch

    found = await read_initial_events(OpenWatch(stream(), None), "nodes", lambda count: None)
    if found is None:
        return None
    return [(item.name, item.resource_version) for item in found.items], found.version, len(found.rest)


def test_changes_before_the_end_marker_belong_to_the_list_and_later_ones_do_not() -> None:
    first = [added("a", 3), added("b", 2), PLAIN, deleted("b", 20), modified("a", 21), added("", 5)]
    found = run_virtual(collected(first, [added("c", 22), MARKER, deleted("a", 31)]))
    assert found == ([("a", 21), ("c", 22)], 30, 1)


def test_without_the_end_marker_there_is_no_list() -> None:
    assert run_virtual(collected([added("a", 3)], [PLAIN])) is None


def test_an_error_event_is_raised() -> None:
    with pytest.raises(ApiError, match="too old"):
        run_virtual(collected([added("a", 3), WatchEvent("ERROR", status_item(NODES, GONE))]))


def test_a_list_that_takes_long_is_logged_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kubesched.client"):
        run_virtual(collected([added("a", 1)], [MARKER], pause=12.5))
    assert [record.getMessage() for record in caplog.records] == [
        "nodes: the list has been streamed for 10 s and has not ended",
        "nodes: the list has been streamed for 20 s and has not ended",
    ]


def test_the_time_of_a_watch_is_counted_from_its_beginning() -> None:
    async def main() -> float:
        async def stream() -> AsyncIterator[Sequence[WatchEvent]]:
            while True:
                await asyncio.sleep(4)
                yield [added("a", 1)]

        watch = OpenWatch(stream(), 10)
        while await watch.next_batch() is not None:
            pass
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(10)


def test_the_embedded_cluster_streams_lists() -> None:
    async def main() -> list[str]:
        store = Store(VirtualClock(asyncio.get_running_loop()), random=Random(1))
        for name in ("a", "b"):
            store.create(NODES, "", {"metadata": {"name": name}})
        informer = Informer(InProcessClient(store), NODES, rng=Random(1), watch_list=True)
        task = asyncio.create_task(informer.run())
        assert await informer.wait_synced()
        store.create(NODES, "", {"metadata": {"name": "c"}})
        await asyncio.sleep(0.1)
        statistics = informer.statistics()
        assert (statistics.lists, statistics.watches, statistics.errors) == (1, 1, 0)
        informer.stop()
        await task
        return informer.keys()

    assert run_virtual(main()) == ["a", "b", "c"]


def test_only_the_marked_bookmark_ends_the_list() -> None:
    other = Item(NODES, b'{"metadata":{"annotations":{"k8s.io/initial-events-end":"false"}}}', "", "", "", 1)
    events = [MARKER, PLAIN, WatchEvent("BOOKMARK", other), WatchEvent("ADDED", MARKER.item)]
    assert [ends_initial_events(event) for event in events] == [True, False, False, False]
