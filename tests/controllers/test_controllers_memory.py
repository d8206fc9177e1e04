"""A cluster in which pods come and go for long needs no more memory than at first."""

from __future__ import annotations

import gc
import sys

import pytest
from controllers_world import World, play, pod_template

from kubesched.api.kinds import PODS
from kubesched.cli.memory import EVENT_CACHE, MOST_EVENTS, give_back
from kubesched.client import store as client_store
from kubesched.cluster.store import key_order


def test_pods_that_come_and_go_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are the blocks of memory that Python has given out.

    What has a bound is full after a round here: events, what their writer knows of the last ones, and the deletions that
    informers and the orders of keys remember. Histories are dropped.
    """
    monkeypatch.setattr(client_store, "FORGOTTEN_GENERATION", 20)
    monkeypatch.setattr(key_order, "_MOST_GONE", 20)
    blocks: list[int] = []

    async def rounds(world: World) -> None:
        store = world.store
        store.most_events = 100
        for turn in range(10):
            names = [f"r{turn}-p{number}" for number in range(100)]
            for name in names:
                store.create(PODS, "default", {**pod_template("a", cpu="1m"), "metadata": {"name": name}})
            await world.settle()
            assert all(item.typed.spec.node_name for item in store.list(PODS).items)
            for name in names:
                store.delete(PODS, "default", name, grace_period_seconds=0)
            await world.settle()
            assert not store.list(PODS).items
            store.expire_events()
            store.compact()
            give_back(store)
            gc.collect()
            blocks.append(sys.getallocatedblocks())

    play(rounds, nodes=4, event_cache_size=50, cpu=8)
    grown = blocks[-1] - blocks[1]
    # Caches of texts and of moments still fill a little; whatever keeps something of each pod takes one block or more.
    assert grown < 800, f"{grown} blocks more after 800 pods: {blocks}"


def test_what_is_kept_of_deleted_pods_is_bounded_from_the_first_round_on() -> None:
    """With the bounds of ``kubesched up``, and as many pods in a round as fill most of them."""
    blocks: list[int] = []

    async def rounds(world: World) -> None:
        store = world.store
        store.most_events = MOST_EVENTS
        for turn in range(3):
            names = [f"r{turn}-p{number}" for number in range(2_000)]
            for name in names:
                store.create(PODS, "default", {**pod_template("a", cpu="1m"), "metadata": {"name": name}})
            await world.settle()
            for name in names:
                store.delete(PODS, "default", name, grace_period_seconds=0)
            await world.settle()
            assert not store.list(PODS).items
            while store.expire_events():
                pass
            gc.collect()
            blocks.append(sys.getallocatedblocks())

    play(rounds, nodes=20, event_cache_size=EVENT_CACHE, cpu=8)
    assert blocks[-1] < 1.1 * blocks[0], blocks
