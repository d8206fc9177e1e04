"""A handler of the scheduler's fails: cache and queue are in step with the cluster again soon after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness import World, a_node, a_pod, play

from kubesched.api.kinds import NAMESPACES
from kubesched.api.tombstone import final_state
from kubesched.scheduler.handlers import NamespaceHandler, NodeHandler, PodHandler

#: Where in a call the handler fails: before it did anything, or after it did everything.
PLACES = ("before", "after")
TIMES = (1, 3)


def break_handler(
    monkeypatch: pytest.MonkeyPatch,
    handler: type,
    method: str,
    place: str,
    times: int,
    matches: Callable[..., bool],
) -> list[str]:
    """The next so many calls of a method raise; the list grows by one for each."""
    real = getattr(handler, method)
    failed: list[str] = []

    def broken(self: Any, *arguments: Any) -> None:
        strikes = len(failed) < times and matches(*arguments)
        if strikes and place == "before":
            failed.append(method)
            raise ValueError(f"{method} fails")
        real(self, *arguments)
        if strikes:
            failed.append(method)
            raise ValueError(f"{method} fails")

    monkeypatch.setattr(handler, method, broken)
    return failed


def named(*names: str) -> Callable[..., bool]:
    return lambda *arguments: final_state(arguments[0]).metadata.name in names


def errors(handler: type, *also: str) -> list[str]:
    return [f"handler {handler.__name__} failed on", *also]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("place", PLACES)
def test_a_pod_whose_addition_fails_is_scheduled_once(place: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.nodes(2, "1")
        await world.settle()
        failed = break_handler(monkeypatch, PodHandler, "on_add", place, times, named("bad"))
        world.create(a_pod("bad"), a_pod("good"))
        await world.sleep(0.1)
        assert world.node_of("good")
        await world.settle()
        assert world.node_of("bad")
        assert len(world.binds) == 2
        assert failed

    play(scenario, expect_errors=errors(PodHandler))


@pytest.mark.parametrize("place", PLACES)
def test_a_pod_that_changes_before_its_addition_is_repeated_is_known_as_it_is_then(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        await world.settle()
        break_handler(monkeypatch, PodHandler, "on_add", place, 1, named("placed"))
        world.create(a_pod("placed", "500m", nodeName="n1"))
        await world.step()
        world.patch("placed", {"metadata": {"labels": {"a": "b"}}})
        await world.step()
        cached = world.scheduler.cache.get_pod(world.pod("placed").uid)
        assert cached is not None
        assert cached.pod.metadata.labels == {"a": "b"}
        world.create(a_pod("waits", "700m"))
        await world.settle()
        assert not world.node_of("waits")
        world.delete("placed", grace_period_seconds=0)
        await world.settle()
        assert world.node_of("waits") == "n1"

    play(scenario, expect_errors=errors(PodHandler))


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("place", PLACES)
def test_a_binding_whose_confirmation_fails_is_confirmed_later(
    place: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        bound = lambda old, new: not old.spec.node_name and bool(new.spec.node_name)  # noqa: E731 - one line
        failed = break_handler(monkeypatch, PodHandler, "on_update", place, times, bound)
        world.create(a_pod("p", "600m"), a_pod("q", "600m"))
        await world.settle()
        assert failed
        assert len(world.binds) == 1
        assert not world.scheduler.cache.assumed

    play(scenario, expect_errors=errors(PodHandler))


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("place", PLACES)
def test_capacity_that_a_failed_update_or_deletion_frees_is_used(
    place: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("old", "1"))
        await world.settle()
        world.create(a_pod("new", "1"))
        await world.settle()
        assert not world.node_of("new")
        failed = break_handler(monkeypatch, PodHandler, "on_delete", place, times, named("old"))
        world.delete("old", grace_period_seconds=0)
        await world.settle()
        assert world.node_of("new") == "n1"
        assert len(failed) == times

    play(scenario, expect_errors=errors(PodHandler, "?cannot remove pod"))


@pytest.mark.parametrize("place", PLACES)
def test_a_pod_made_again_while_its_deletion_is_not_taken_replaces_the_old_one(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("p", "1"))
        await world.settle()
        break_handler(monkeypatch, PodHandler, "on_delete", place, 1, named("p"))
        world.delete("p", grace_period_seconds=0)
        world.create(a_pod("p", "800m"))
        await world.settle()
        assert len(world.binds) == 2
        assert [pod.uid for pod in world.embedded.pods()] == list(world.scheduler.cache.pods)

    play(scenario, expect_errors=errors(PodHandler, "?cannot remove pod"))


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("method", ["on_add", "on_update", "on_delete"])
def test_nodes_are_as_the_cluster_has_them_after_a_failure(
    method: str, place: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "100m")
        world.create(a_pod("p", "1"))
        await world.settle()
        failed = break_handler(monkeypatch, NodeHandler, method, place, times, named("n1", "n2"))
        if method == "on_add":
            world.create(a_node("n2", "2"))
        elif method == "on_update":
            world.resize_node("n1", "2")
        else:
            world.delete_node("n1")
        await world.step()
        world.create(a_pod("other", "10m", nodeName="n3"))  # events of other kinds are delivered
        await world.settle()
        assert len(failed) == times
        table = world.scheduler.cache.table
        known = {info.name: info.allocatable.milli_cpu for info in table.all_infos() if info.node is not None}
        if method == "on_delete":
            assert known == {}
        else:
            assert world.node_of("p") == ("n2" if method == "on_add" else "n1")
            assert set(known.values()) == ({100, 2000} if method == "on_add" else {2000})

    play(scenario, expect_errors=errors(NodeHandler, "?cannot remove node"))


def test_a_handler_that_always_fails_costs_only_its_object(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.nodes(2)
        await world.settle()
        failed = break_handler(monkeypatch, PodHandler, "on_add", "before", 1000, named("bad"))
        world.create(a_pod("bad"))
        await world.sleep(600)
        world.create(a_pod("good"))
        await world.step()
        assert world.node_of("good")
        assert not world.node_of("bad")
        assert not world.embedded.is_settled  # a retry is pending
        assert 600 / 60 < len(failed) < 40  # doubling from 0.8 s to 30 s, and up to as much again
        assert world.scheduler.informers["pods"].behind == 1
        world.delete("bad", grace_period_seconds=0)
        await world.settle()
        assert world.scheduler.informers["pods"].behind == 0

    play(scenario, expect_errors=errors(PodHandler))


def test_namespaces_are_delivered_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        failed = break_handler(monkeypatch, NamespaceHandler, "on_add", "before", 2, named("team"))
        world.store.create(NAMESPACES, "", {"metadata": {"name": "team", "labels": {"a": "b"}}})
        await world.settle()
        assert len(failed) == 2
        assert world.scheduler.cache.table.terms.namespaces["team"]["a"] == "b"

    play(scenario, expect_errors=errors(NamespaceHandler))
