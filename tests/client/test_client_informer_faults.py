"""Whatever the server and the network do, the informer ends up with the server's objects and correct notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from client_fake_server import FakeServer, View, key_of, status_item, version_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubesched.api.kinds import NODES
from kubesched.api.tombstone import final_state
from kubesched.api.wire import ApiError, Item, WatchEvent
from kubesched.client.informer import Informer
from kubesched.client.reflector import Reflector
from kubesched.lab.simulate.run.virtual_time import run_virtual

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
UNREADABLE = {"spec": {"taints": 3}}
ERRORS = [
    None,
    ConnectionResetError("reset"),
    ApiError(410, "Gone", "gone"),
    ApiError(429, "TooManyRequests", "later"),
    ApiError(500, "InternalError", "oops"),
    ApiError(403, "Forbidden", "no"),
    ValueError("not a thing a transport should raise"),
]
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("put unreadable"), NAMES),
    st.tuples(st.just("replay"), NAMES),
    st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.0015, 0.7, 45.0])),
    st.tuples(st.just("cut"), st.sampled_from(ERRORS)),
    st.tuples(st.just("list fails"), st.sampled_from(ERRORS[1:])),
    st.tuples(st.just("watch fails"), st.sampled_from(ERRORS[1:])),
    st.tuples(st.just("stream fails"), st.sampled_from(ERRORS[1:])),
    st.tuples(st.just("streamed list is cut"), st.sampled_from(ERRORS)),
    st.tuples(st.just("error event"), st.sampled_from([error for error in ERRORS if isinstance(error, ApiError)])),
    st.tuples(st.just("compact"), st.none()),
)


async def act(server: FakeServer, step: tuple[str, Any]) -> None:
    match step:
        case ("put", name):
            server.put(name)
        case ("put unreadable", name):
            server.put(name, UNREADABLE)
        case ("remove", name):
            server.remove(name)
        case ("replay", name):
            await asyncio.sleep(0.002)  # so that there is something to repeat
            server.replay(name)
        case ("sleep", seconds):
            await asyncio.sleep(seconds)
        case ("cut", error):
            server.cut(error)
        case ("list fails", error):
            server.list_failures.append(error)
        case ("watch fails", error):
            server.watch_failures.append(error)
        case ("stream fails", error):
            server.stream_failures.append(error)
        case ("streamed list is cut", error):
            server.streams_cut.append(error)
        case ("error event", error):
            server.inject(WatchEvent("ERROR", status_item(NODES, error)))
        case ("compact", _):
            server.compact()


def expect_order_per_object(received: list[tuple[str, str, int]]) -> None:
    last: dict[str, int] = {}
    for what, key, version in received:
        if what == "tombstone":
            assert version == last[key]
        else:
            assert version > last.get(key, 0), (what, key, version)
            last[key] = version


def expect_nothing_lost(server: FakeServer, received: list[tuple[str, str, int]], listed: int) -> None:
    """With a single list, every later change is delivered exactly once, object by object."""
    seen: dict[str, list[int]] = {}
    for what, key, version in received:
        if what != "initial":
            seen.setdefault(key, []).append(version)
    happened: dict[str, list[int]] = {}
    for version, event in server.log:
        if version > listed:
            happened.setdefault(event.item.key, []).append(version)
    assert seen == happened


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=40), st.integers(0, 3), st.booleans(), st.sampled_from([1, 2, 500]), st.booleans())
def test_the_store_equals_the_server_and_the_handlers_view(
    steps: list[tuple[str, Any]], initial: int, shuffle: bool, page_size: int, watch_list: bool
) -> None:
    server = FakeServer(seed=len(steps))
    server.shuffle = shuffle
    for name in "abc"[:initial]:
        server.put(name)
    view = View()
    informer = Informer(server, NODES, rng=Random(5), page_size=page_size, watch_list=watch_list)
    informer.add_handler(view)

    async def main() -> None:
        task = asyncio.create_task(informer.run())
        for step in steps:
            await act(server, step)
        server.list_failures.clear()
        server.watch_failures.clear()
        server.stream_failures.clear()
        server.streams_cut.clear()
        await asyncio.sleep(300)
        informer.stop()
        await task

    run_virtual(main())
    expected = {key: item.resource_version for key, item in server.objects.items() if b'"taints":3' not in item.raw}
    assert {key_of(obj): version_of(obj) for obj in informer.values()} == expected
    assert sorted(informer.keys()) == sorted(expected)
    assert {key: version_of(obj) for key, obj in view.objects.items()} == expected
    assert informer.statistics().handler_errors == 0
    expect_order_per_object(view.received)


@pytest.mark.parametrize("method", ["replace", "upsert", "remove"])
def test_a_defect_of_the_sink_ends_the_reflector(method: str) -> None:
    """Also when it looks like trouble with the network: a new list would not repeat what the sink has stored."""

    class Sink:
        async def replace(self, items: list[Item], version: int) -> None:
            self._call("replace")

        def upsert(self, item: Item) -> None:
            self._call("upsert")

        def remove(self, items: Sequence[Item]) -> None:
            self._call("remove")

        def _call(self, what: str) -> None:
            if what == method:
                raise ConnectionResetError("a defect")

    server = FakeServer()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(Reflector(server, NODES, Sink(), rng=Random(5)).run())
            await asyncio.sleep(0.1)
            server.put("a")
            server.remove("a")

    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(main())
    [error] = caught.value.exceptions
    assert repr(error) == "ConnectionResetError('a defect')"


def test_a_new_list_after_a_restart_does_not_wait_for_the_tries_that_failed_before() -> None:
    """A restarted API server has forgotten its history: each watch is refused with 410 as soon as it answers again."""
    server = FakeServer()
    server.put("a")
    met: list[tuple[float, Exception]] = []
    listed: list[float] = []

    class Noting(View):
        def on_add(self, obj: Any, is_initial: bool) -> None:
            listed.append(asyncio.get_running_loop().time())

    async def main() -> None:
        loop = asyncio.get_running_loop()
        informer = Informer(server, NODES, rng=Random(5), on_error=lambda error: met.append((loop.time(), error)))
        informer.add_handler(Noting())
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        for number in range(2):
            await asyncio.sleep(0.1)  # a watch is open now
            server.watch_failures.append(ConnectionRefusedError("down"))
            server.cut(ConnectionResetError("reset"))
            await asyncio.sleep(0.1)  # and now none is
            server.put(f"new-{number}")
            server.compact()
            await asyncio.sleep(60.0)
        task.cancel()

    run_virtual(main())
    expired = [time for time, error in met if isinstance(error, ApiError)]
    waited = [after - before for before, after in zip(expired, listed[1:], strict=True)]
    for seconds, base in zip(waited, (0.8, 1.6), strict=True):
        assert base <= seconds <= 2 * base + 0.1


class Flaky:
    """A handler that keeps a copy of the objects, and fails by lot: before it has done its work, or after."""

    def __init__(self, lots: list[str]) -> None:
        self.lots = lots
        self.objects: dict[str, Any] = {}
        self.taken: dict[str, Any] = {}  # what it has taken without failing

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._set(None, key_of(obj), obj)

    def on_update(self, old: Any, new: Any) -> None:
        self._set(old, key_of(new), new)

    def on_delete(self, obj: Any) -> None:
        self._set(obj, key_of(final_state(obj)), None)

    def _set(self, old: Any, key: str, new: Any) -> None:
        if old is not None and new is not None:
            assert self.taken.get(key) is old or old.metadata.uid != new.metadata.uid
        lot = self.lots.pop() if self.lots else "work"
        if lot == "fail before":
            raise ValueError("before")
        if new is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = new
        if lot == "fail after":
            raise ValueError("after")
        if new is None:
            self.taken.pop(key, None)
        else:
            self.taken[key] = new


LOTS = st.lists(st.sampled_from(["work", "fail before", "fail after"]), max_size=30)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=40), LOTS, st.integers(0, 3))
def test_a_handler_that_fails_now_and_then_is_in_step_in_the_end_and_disturbs_no_other(
    steps: list[tuple[str, Any]], lots: list[str], initial: int
) -> None:
    server = FakeServer(seed=len(steps))
    for name in "abc"[:initial]:
        server.put(name)
    informer = Informer(server, NODES, rng=Random(5))
    flaky, view = Flaky(lots), View()
    informer.add_handler(flaky)
    informer.add_handler(view)
    left = len(lots)

    async def main() -> None:
        task = asyncio.create_task(informer.run())
        for step in steps:
            await act(server, step)
        server.list_failures.clear()
        server.watch_failures.clear()
        await asyncio.sleep(3600)
        statistics = informer.statistics()
        assert statistics.behind == 0
        assert (statistics.recovered > 0) is (statistics.handler_errors > 0)
        assert statistics.handler_errors <= left
        informer.stop()
        await task

    run_virtual(main())
    known = {key_of(obj): version_of(obj) for obj in informer.values()}
    assert {key: version_of(obj) for key, obj in flaky.objects.items()} == known
    assert {key: version_of(obj) for key, obj in view.objects.items()} == known
    expect_order_per_object(view.received)


class Together:
    """A handler that takes deletions that come together; three times it does not if one of the objects is ``bad``."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.calls: list[list[str]] = []
        self.failures = 0

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self.names.add(key_of(obj))

    def on_update(self, old: Any, new: Any) -> None:
        raise AssertionError("no object changes")

    def on_delete(self, obj: Any) -> None:
        self.on_delete_all([obj])

    def on_delete_all(self, objs: Sequence[Any]) -> None:
        names = [key_of(final_state(obj)) for obj in objs]
        self.calls.append(names)
        if "bad" in names and self.failures < 3:
            self.failures += 1
            raise ValueError("bad")
        self.names.difference_update(names)


@pytest.mark.parametrize("handlers", [1, 2])
def test_deletions_together_are_one_call_and_one_that_fails_costs_no_other(
    handlers: int, caplog: pytest.LogCaptureFixture
) -> None:
    server, together = FakeServer(), Together()
    for name in ("a", "b", "bad", "c"):
        server.put(name)
    informer = Informer(server, NODES, rng=Random(5))
    for handler in (together, View())[:handlers]:
        informer.add_handler(handler)

    async def main() -> None:
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        await asyncio.sleep(1)
        for name in ("a", "bad", "b"):
            server.remove(name)
        server.put("d")
        server.remove("c")
        await asyncio.sleep(0.1)
        assert together.names == {"bad", "d"}
        await asyncio.sleep(60)
        assert together.names == {"d"}
        informer.stop()
        await task

    run_virtual(main())
    first = [["a", "bad", "b"]] if handlers == 1 else []
    again = [["bad"]] * (3 - len(first))
    assert together.calls == [*first, ["a"], ["bad"], ["b"], ["c"], *again]
    statistics = informer.statistics()
    assert (statistics.deletes, statistics.behind, statistics.handler_errors) == (4, 0, 3)
    assert ("failed on 3 deletions, each is delivered by itself" in caplog.text) is (handlers == 1)


CHANGES = st.one_of(
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("replay"), NAMES),
    st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.0015, 1.5])),
    st.tuples(st.just("cut"), st.just(ConnectionResetError("reset"))),
    st.tuples(st.just("watch fails"), st.sampled_from([ConnectionRefusedError("no"), ApiError(429, "TooMany", "x")])),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(CHANGES, max_size=40), st.booleans())
def test_without_a_new_list_no_change_is_lost_or_delivered_twice(steps: list[tuple[str, Any]], shuffle: bool) -> None:
    server = FakeServer()
    server.shuffle = shuffle
    view = View()
    informer = Informer(server, NODES, rng=Random(5))
    informer.add_handler(view)

    async def main() -> None:
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        for step in steps:
            await act(server, step)
        server.watch_failures.clear()
        await asyncio.sleep(300)
        informer.stop()
        await task

    run_virtual(main())
    assert informer.statistics().lists == 1
    expect_nothing_lost(server, view.received, listed=10)
    expect_order_per_object(view.received)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_history_goes_through_in_large_batches(seed: int) -> None:
    rng = Random(seed)
    server = FakeServer(seed)
    server.shuffle = True
    view = View()
    informer = Informer(server, NODES, rng=Random(seed))
    informer.add_handler(view)

    async def main() -> None:
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        await asyncio.sleep(0.1)
        for number in range(6000):
            name = f"n{rng.randrange(300)}"
            if rng.random() < 0.4:
                server.remove(name)
            else:
                server.put(name)
            if number % 2000 == 0:
                await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        informer.stop()
        await task

    run_virtual(main())
    assert sorted(informer.keys()) == sorted(server.objects)
    expect_nothing_lost(server, view.received, listed=10)
