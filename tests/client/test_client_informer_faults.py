"""Whatever the server and the network do, the informer ends up with the server's objects and tells the truth."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from client_fake_server import FakeServer, View, key_of, status_item, version_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubesched.api.kinds import NODES
from kubesched.api.wire import ApiError, WatchEvent
from kubesched.client.informer import Informer
from kubesched.simulate.virtual_time import run_virtual

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
        case ("error event", error):
            server.inject(WatchEvent("ERROR", status_item(NODES, error)))
        case ("compact", _):
            server.compact()


def expect_order_per_object(told: list[tuple[str, str, int]]) -> None:
    last: dict[str, int] = {}
    for what, key, version in told:
        if what == "tombstone":
            assert version == last[key]
        else:
            assert version > last.get(key, 0), (what, key, version)
            last[key] = version


def expect_nothing_lost(server: FakeServer, told: list[tuple[str, str, int]], listed: int) -> None:
    """With a single list, every later change is told exactly once, object by object."""
    seen: dict[str, list[int]] = {}
    for what, key, version in told:
        if what != "initial":
            seen.setdefault(key, []).append(version)
    happened: dict[str, list[int]] = {}
    for version, event in server.log:
        if version > listed:
            happened.setdefault(event.item.key, []).append(version)
    assert seen == happened


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=40), st.integers(0, 3), st.booleans(), st.sampled_from([1, 2, 500]))
def test_the_store_equals_the_server_and_the_handlers_view(
    steps: list[tuple[str, Any]], initial: int, shuffle: bool, page_size: int
) -> None:
    server = FakeServer(seed=len(steps))
    server.shuffle = shuffle
    for name in "abc"[:initial]:
        server.put(name)
    view = View()
    informer = Informer(server, NODES, rng=Random(5), page_size=page_size)
    informer.add_handler(view)

    async def main() -> None:
        task = asyncio.create_task(informer.run())
        for step in steps:
            await act(server, step)
        server.list_failures.clear()
        server.watch_failures.clear()
        await asyncio.sleep(300)
        informer.stop()
        await task

    run_virtual(main())
    expected = {key: item.resource_version for key, item in server.objects.items() if b'"taints":3' not in item.raw}
    assert {key_of(obj): version_of(obj) for obj in informer.values()} == expected
    assert sorted(informer.keys()) == sorted(expected)
    assert {key: version_of(obj) for key, obj in view.objects.items()} == expected
    assert informer.statistics().handler_errors == 0
    expect_order_per_object(view.told)


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
def test_without_a_new_list_no_change_is_lost_or_told_twice(steps: list[tuple[str, Any]], shuffle: bool) -> None:
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
    expect_nothing_lost(server, view.told, listed=10)
    expect_order_per_object(view.told)


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
    expect_nothing_lost(server, view.told, listed=10)
