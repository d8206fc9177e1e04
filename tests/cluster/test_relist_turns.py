"""A list that is read again lets others have their turn, whether or not anything in it has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kubesched.api.kinds import PODS
from kubesched.api.wire import Item
from kubesched.base.turns import in_batches
from kubesched.client.informer import Informer
from kubesched.client.reflector import YIELD_INTERVAL
from kubesched.cluster.kubelets import Problems, WatchCache
from kubesched.cluster.schema import Stored, encode
from kubesched.cluster.store import InProcessClient, Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

COUNT = 3 * YIELD_INTERVAL


def pods(count: int, version: int) -> list[Item]:
    """Items as a list has them."""
    found: list[Item] = []
    for number in range(count):
        metadata = {"name": f"p{number}", "namespace": "default", "uid": f"u{number}", "resourceVersion": str(version)}
        found.append(Stored(PODS, encode({"metadata": metadata, "spec": {"containers": []}}), metadata, version))
    return found


async def turns_of(work: Any) -> int:
    """Count how often another task ran while this one did."""
    task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
    count = 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    task.result()
    return count


def an_informer(client: InProcessClient) -> tuple[Any, Callable[[], int]]:
    informer = Informer(client, PODS, rng=Random(1))
    informer.keep_documents(lambda pod: True)
    return informer, lambda: sum(informer.document(f"default/p{number}") is not None for number in range(COUNT))


def a_watch_cache(client: InProcessClient) -> tuple[Any, Callable[[], int]]:
    cache = WatchCache(client, PODS, Problems("test", "test", ""), Random(1))
    return cache, lambda: len(cache)


@pytest.mark.parametrize("make", [an_informer, a_watch_cache])
def test_a_list_is_adopted_in_turns(make: Callable[[InProcessClient], tuple[Any, Callable[[], int]]]) -> None:
    async def main() -> None:
        store = Store(VirtualClock(asyncio.get_running_loop()), random=Random(1))
        sink, known = make(InProcessClient(store))
        assert await turns_of(sink.replace(pods(COUNT, 5), 5)) > 3
        assert known() == COUNT
        assert await turns_of(sink.replace(pods(COUNT, 5), 6)) > 6  # nothing is new
        assert known() == COUNT
        assert await turns_of(sink.replace(pods(1, 5), 7)) > 3  # nearly all are gone
        assert known() == 1

    run_virtual(main())


def test_batches_have_every_item_and_a_turn_between_two() -> None:
    async def main(count: int) -> list[list[int]]:
        return [batch async for batch in in_batches(range(count), 3)]

    async def turns(count: int) -> int:
        async def read() -> None:
            async for _ in in_batches(range(count), 3):
                pass

        return await turns_of(read())

    assert [run_virtual(main(count)) for count in (0, 2, 3, 7)] == [
        [],
        [[0, 1]],
        [[0, 1, 2]],
        [[0, 1, 2], [3, 4, 5], [6]],
    ]
    assert run_virtual(turns(7)) - run_virtual(turns(1)) == 2
