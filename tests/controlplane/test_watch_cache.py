"""Watch cache of the campaign: what an API server shows that is behind its store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from watch_cache import Past, WatchCache

from kubesched.api.kinds import NODES
from kubesched.api.wire import ApiError
from kubesched.base.turns import finish
from kubesched.cluster.store import Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

SECONDS = 5.0


class Behind:
    """Store with node ``a``, and since a second ago with ``b``, which the cache does not show yet."""

    def __init__(self) -> None:
        self.store = Store(VirtualClock(asyncio.get_running_loop()), random=Random(0))
        self.cache = WatchCache(self.store, Past(self.store))
        self.old = self.create("a")
        self.cache.lag(SECONDS)

    def create(self, name: str) -> int:
        self.store.create(NODES, "", {"metadata": {"name": name}})
        return self.store.resource_version

    def listed(self, version: str) -> list[str]:
        return [item.name for item in finish(self.cache.listing(NODES, resource_version=version)).items]

    def watch(self, version: int, *, initial: bool = False) -> Any:
        return finish(self.cache.watching(NODES, resource_version=str(version or ""), send_initial_events=initial))


def behind(scenario: Callable[[Behind, int], Awaitable[None]]) -> None:
    async def main() -> None:
        world = Behind()
        await asyncio.sleep(SECONDS)
        new = world.create("b")
        await asyncio.sleep(1)
        await scenario(world, new)

    run_virtual(main())


def test_only_a_list_at_version_0_may_be_old() -> None:
    async def scenario(world: Behind, new: int) -> None:
        assert world.listed("0") == world.listed(str(world.old)) == ["a"]
        assert world.listed("") == ["a", "b"]
        with pytest.raises(ApiError, match="Too large resource version") as error:
            world.listed(str(new))
        assert error.value.code == 504
        await asyncio.sleep(SECONDS)
        assert world.listed("0") == world.listed(str(new)) == ["a", "b"]

    behind(scenario)


def test_a_watch_shows_a_change_when_the_cache_has_seen_it() -> None:
    async def scenario(world: Behind, new: int) -> None:
        watch = world.watch(world.old)
        assert not await watch.wait(SECONDS - 1.5)
        assert (watch.drain(), watch.bookmark().item.resource_version) == ([], world.old)
        assert await watch.wait(1)
        assert [event.item.name for event in watch.drain()] == ["b"]
        watch.close()

    behind(scenario)


def test_a_watch_from_the_future_waits_and_leaves_out_what_the_client_has() -> None:
    async def scenario(world: Behind, new: int) -> None:
        watch = world.watch(new)
        world.create("c")
        assert not await watch.wait(SECONDS - 0.5)
        assert await watch.wait(1)
        assert [event.item.name for event in watch.drain()] == ["c"]
        watch.close()

    behind(scenario)


def test_a_streamed_list_is_as_new_as_the_store() -> None:
    async def scenario(world: Behind, new: int) -> None:
        watch = world.watch(0, initial=True)
        assert [event.item.name for event in watch.drain()] == ["a", "b", ""]
        assert not watch.pending
        watch.close()

    behind(scenario)


def test_a_restarted_cache_is_as_new_as_the_store_and_has_no_history() -> None:
    async def scenario(world: Behind, new: int) -> None:
        world.cache.restart()
        assert world.listed("0") == ["a", "b"]
        with pytest.raises(ApiError) as error:
            world.watch(world.old)
        assert error.value.code == 410

    behind(scenario)


def test_a_cache_never_goes_back() -> None:
    async def scenario(world: Behind, new: int) -> None:
        world.cache.lag(0.0)
        assert world.listed("0") == ["a", "b"]
        world.cache.lag(60.0, NODES)
        assert world.listed("0") == ["a", "b"]

    behind(scenario)
