"""Watches in trouble, several schedulers, restarts, the debugger, and the same seed twice."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from random import Random
from typing import Any

import pytest
from harness import NODES, PODS, World, a_config, a_node, a_pod, play, world
from recording import Answers, holder

from kubesched.api.storage import PersistentVolume
from kubesched.api.types import ObjectMeta
from kubesched.client.port import ApiPort
from kubesched.cluster.store import InProcessClient
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.plugins.volumes.volume_state import VolumeState
from kubesched.scheduler.scheduler import Scheduler

TROUBLES: list[Any] = ["drop", "expire", "stall", "lose", "duplicate", "stale", "reorder"]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_watch_trouble_is_overcome(trouble: Any) -> None:
    async def scenario(world: World) -> None:
        world.nodes(3, "1")
        world.create(*(a_pod(f"p{number}", "400m") for number in range(8)))
        await world.sleep(0.5)
        if trouble == "stall":
            world.faults.stall(45)
        elif trouble not in ("drop", "expire"):
            world.faults.disturb(trouble, fraction=0.5)
        for name in ("p0", "p1", "p2"):
            world.delete(name, grace_period_seconds=0)
            world.create(a_pod(name, "300m"))
        world.patch("p3", {"metadata": {"labels": {"a": "b"}}})
        world.delete_node("n3")
        world.create(a_node("n4", "2"))
        if trouble == "drop":
            world.faults.drop_watches()
        elif trouble == "expire":
            world.faults.expire_watches()
        await world.sleep(2)
        world.faults.clear()
        if trouble == "lose":
            world.faults.expire_watches()
        await world.settle()
        world.create(a_node("n5", "8"))
        await world.settle()
        assert all(pod.spec.node_name for pod in world.embedded.pods())

    play(scenario)


def test_the_end_of_a_pod_never_seen_ends_the_one_known_by_its_name() -> None:
    """Deleted, created again, deleted: the first two events are lost, and the last names an unknown pod."""

    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("p", "1"))
        await world.settle()
        world.faults.disturb("lose", kind=PODS, times=2)
        world.delete("p", grace_period_seconds=0)
        world.create(a_pod("p", "1", scheduler="other-scheduler"))
        await world.step()
        world.delete("p", grace_period_seconds=0)
        world.create(a_pod("q", "1"))
        await world.settle()
        assert world.node_of("q") == "n1"

    play(scenario)


def second_scheduler(found: World, seed: int = 99) -> tuple[Scheduler, ApiPort]:
    clock = VirtualClock(asyncio.get_running_loop())
    rng = Random(seed)
    port = ApiPort(InProcessClient(found.store), clock=clock, rng=rng)
    return Scheduler(a_config(), in_tree_registry(), port, clock=clock, rng=rng), port


async def run_both(found: World, other: Scheduler, port: ApiPort) -> list[asyncio.Task[None]]:
    events = asyncio.create_task(port.events.run())
    await other.start()
    return [events, asyncio.create_task(other.run())]


async def stop_other(other: Scheduler, port: ApiPort, tasks: list[asyncio.Task[None]]) -> None:
    await other.stop()
    port.events.stop()
    await asyncio.gather(*tasks)
    await asyncio.sleep(0)


def test_two_schedulers_that_race_bind_each_pod_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(found: World) -> None:
        found.overcommit_ok = True  # neither knows what the other is about to do
        other, port = second_scheduler(found)
        tasks = await run_both(found, other, port)
        found.faults.delay("bind", 0.01, fraction=0.5)
        found.nodes(5)
        found.create(*(a_pod(f"p{number}") for number in range(60)))
        await found.settle()
        assert len(found.binds) == 60
        assert len(found.tries) > 60
        assert {pod.spec.node_name for pod in found.embedded.pods()} <= {f"n{number}" for number in range(1, 6)}
        assert not other.cache.assumed
        await stop_other(other, port, tasks)

    play(scenario, expect_errors=["?cannot forget pod"])
    failed = [text for record in caplog.records if (text := record.getMessage()).startswith("scheduling pod ")]
    assert any(re.match(r"scheduling pod default/p\d+ failed, but it is on node n\d: ", text) for text in failed)


@pytest.mark.parametrize("when", [0.0, 0.005, 0.5, 3.0])
def test_a_scheduler_that_takes_over_in_the_middle_finishes_the_work(when: float) -> None:
    async def main() -> None:
        async with world(config=a_config(), settled=False) as found:
            found.faults.delay("bind", 1.0, fraction=0.5)
            found.nodes(3, "2")
            found.create(*(a_pod(f"p{number}", "300m") for number in range(18)))
            await found.sleep(when)
            await found.embedded.stop()
            other, port = second_scheduler(found)
            tasks = await run_both(found, other, port)
            await found.until(lambda: len(found.binds) == 18, "all pods", 30)
            await found.sleep(1)
            assert not found._overcommitted()
            assert not other.debugger.compare()
            await stop_other(other, port, tasks)

    run_virtual(main())


def test_stopping_twice_and_stopping_at_once_are_harmless() -> None:
    async def main() -> None:
        async with world(config=a_config(), settled=False) as found:
            await found.embedded.stop()
            await found.scheduler.stop()
        async with world(config=a_config(), settled=False, start=False) as found:
            await found.scheduler.stop()

    run_virtual(main())


# -- debugger ----------------------------------------------------------------------------------------------


def test_the_debugger_compares_and_dumps(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubesched.scheduler")

    async def scenario(found: World) -> None:
        found.nodes(2, "1")
        found.create(a_pod("p", "700m"), a_pod("big", "3"))
        await found.settle()
        found.patch("big", {"status": {"nominatedNodeName": "n1"}}, "status")
        await found.settle()
        caplog.clear()
        assert found.scheduler.debugger.compare() == []
        found.scheduler.debugger.dump()
        text = caplog.text
        uid = found.pod("p").uid
        for line in (
            "Dump of cached NodeInfo",
            "Node name: n1",
            "Deleted: false",
            "Requested Resources: cpu: 700m",
            "Allocatable Resources: cpu: 1000m, memory: 17179869184",
            f"name: p, namespace: default, uid: {uid}, phase: Pending, nominated node: ",
            "Nominated Pods(number: 1):",
            "Dump of scheduling queue: activeQ:0; backoffQ:0; unschedulablePods:1",
        ):
            assert line in text
        # What the cache has too much or too little of is reported.
        cache = found.scheduler.cache
        cache.remove_node("n2")
        pod = cache.get_pod(uid)
        assert pod is not None
        cache.remove_pod(pod.pod)
        caplog.clear()
        found.scheduler.debugger.run()
        assert f"Cache mismatch: missedPods=['{uid}'] redundantPods=[]" in caplog.text
        assert "Cache mismatch: missedNodes=['n2'] redundantNodes=[]" in caplog.text or found.node_of("p") == "n2"
        cache.add_pod(pod)
        cache.set_node(found.store.get(NODES, "", "n2").typed)

    play(scenario)


def test_the_debugger_checks_what_plugins_keep() -> None:
    async def scenario(found: World) -> None:
        found.nodes(1)
        await found.settle()
        assert found.scheduler.debugger.compare() == []
        binding: Any = next(iter(found.scheduler.frameworks.values())).plugins["VolumeBinding"]
        state = VolumeState.of(binding.handle)
        stale = PersistentVolume(metadata=ObjectMeta(name="v", resource_version="1"))
        state.cache.volumes.on_add(stale, False)
        assert found.scheduler.debugger.compare() == ["persistentvolumes v: in the assume cache, but gone"]
        state.cache.volumes.on_delete(stale)
        assert found.scheduler.debugger.compare() == []

    play(scenario)


def test_the_debugger_listens_for_the_signal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubesched.scheduler")
    built: list[Scheduler] = []

    async def build() -> None:
        async with world(config=a_config()) as found:
            built.append(found.scheduler)
            assert (
                found.scheduler.debugger.install(asyncio.get_running_loop()) is False
            )  # virtual time receives no signals

    run_virtual(build())

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert built[0].debugger.install(loop)
        signal.raise_signal(signal.SIGUSR2)
        for _ in range(3000):
            await asyncio.sleep(0.01)
            if "Dump of scheduling queue" in caplog.text:
                break
        loop.remove_signal_handler(signal.SIGUSR2)

    asyncio.run(main())
    assert "cache comparer finished: 0 problems" in caplog.text
    assert "Dump of scheduling queue" in caplog.text


# -- determinism -------------------------------------------------------------------------------------------


def story(seed: int) -> tuple[list[Any], list[Any]]:
    """Bindings and events of a small busy day."""
    diary = Answers()

    async def scenario(found: World) -> tuple[list[Any], list[Any]]:
        diary.answers["permit"] = lambda *_: (Status.wait(), 2.0) if diary.handle.random.random() < 0.1 else None
        found.overcommit_ok = True
        found.faults.fail("bind", fraction=0.2)
        found.faults.delay("patch", 0.3, fraction=0.3)
        found.faults.disturb("duplicate", fraction=0.2)
        found.nodes(8, "2")
        for number in range(40):
            found.create(a_pod(f"p{number}", "350m"))
            if number % 7 == 0:
                await found.sleep(0.7)
        found.delete_node("n3")
        await found.sleep(30)
        found.faults.clear()
        found.create(a_node("n9", "8"))
        await found.settle(permitted=True)
        names = {pod.uid: pod.name for pod in found.embedded.pods()}
        events = [
            (event["eventTime"], event["metadata"]["name"], event["reason"], event["note"]) for event in found.events()
        ]
        return [(when, names[uid], uid, node) for when, _, uid, node in found.binds], events

    plugin = holder(diary, "Sometimes", "permit")
    return play(scenario, seed=seed, plugins=[plugin], expect_errors=["?cannot forget", "?cannot patch"])


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = story(5), story(5)
    assert first == second
    assert len(first[0]) >= 40
    assert story(6) != first
