"""A cluster that was saved and starts again: its clock, its nodes and pods, its events, and what nodes report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
from controllers_world import DEPLOYMENTS, LEASES, Data, World, condition, kind, workload

from kubesched.api.kinds import NODES, PODS
from kubesched.base.times import parse_time, timestamp
from kubesched.cluster.controllers import ControllerManager
from kubesched.cluster.files import import_dump, newest_moment, read, save
from kubesched.cluster.kubelets import make_nodes
from kubesched.cluster.kubelets.nodes import kubelet_conditions
from kubesched.cluster.schema import Stored
from kubesched.cluster.store import InProcessClient, Store
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

EVENTS = kind("events")
START = 1_760_000_000.0
YEAR = 365 * 86_400.0


def live(
    scenario: Callable[[World], Awaitable[None]],
    *,
    start: float = START,
    restore_from: Path | None = None,
    nodes: int = 0,
) -> None:
    """A scenario in a cluster as ``kubesched up`` runs it: with heartbeats, controllers and a scheduler."""

    async def main() -> None:
        embedded = Embedded(
            default_config(),
            in_tree_registry(),
            clock=VirtualClock(asyncio.get_running_loop()),
            controllers=True,
            kubelet_options={"heartbeat_seconds": 10.0},
        )
        if restore_from is not None:
            read(restore_from).load_into(embedded.store)
        for node in make_nodes(nodes, prefix="n", width=1, now=embedded.store.now()):
            embedded.store.create(NODES, "", node)
        await embedded.start()
        try:
            await scenario(World(embedded))
            assert embedded.check() == []
        finally:
            await embedded.stop()

    run_virtual(main(), start=start)


def ready(world: World, name: str) -> str:
    return condition(world.get(NODES, name), "Ready")[0]


def saved_time(path: Path) -> float:
    return read(path).time


@pytest.mark.parametrize("slept", [0.0, 45.0, 86_400.0], ids=["at once", "longer than the grace", "a day"])
def test_nodes_stay_ready_and_pods_run_on_however_long_the_cluster_slept(tmp_path: Path, slept: float) -> None:
    path = tmp_path / "c.jsonl"
    before: dict[str, str] = {}
    versions: list[int] = []

    async def first(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 6))
        await asyncio.sleep(3_600)
        before.update({pod.uid: pod.spec.node_name for pod in world.pods()})
        versions.append(world.store.resource_version)
        save(world.store, path)

    async def again(world: World) -> None:
        seen: set[str] = set()
        watch = world.store.watch(NODES, resource_version=str(world.store.resource_version))
        for _ in range(120):
            await asyncio.sleep(5)
            for event in watch.drain():
                seen.add(condition(event.item.data(), "Ready")[0])
        watch.close()
        assert seen <= {"True"}, "no node was marked NotReady in between"
        assert {pod.uid: pod.spec.node_name for pod in world.pods()} == before
        assert all(pod.status.phase == "Running" for pod in world.pods())
        assert world.store.resource_version > versions[0]
        world.kubelets.fail_node("n1")
        await asyncio.sleep(60)
        assert ready(world, "n1") == "Unknown", "missed heartbeats are noticed as before"

    live(first, nodes=3)
    live(again, start=saved_time(path) + slept, restore_from=path)


def test_silence_from_before_the_controllers_began_is_held_against_no_node() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        store = Store(clock, random=Random(1))
        for node in make_nodes(1, prefix="n", width=1, now=store.now()):
            store.create(NODES, "", node)
        lease = {"metadata": {"name": "n0"}, "spec": {"renewTime": "2024-01-01T00:00:00.000000Z"}}
        store.create(LEASES, "kube-node-lease", lease)
        manager = ControllerManager(InProcessClient(store), clock, Random(1))
        task = asyncio.create_task(manager.run())
        await asyncio.sleep(39)
        assert condition(store.get(NODES, "", "n0").data(), "Ready")[0] == "True"
        await asyncio.sleep(2)
        assert condition(store.get(NODES, "", "n0").data(), "Ready")[0] == "Unknown"
        manager.stop()
        await task

    run_virtual(main(), start=START)


def test_nothing_is_later_than_the_time_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"

    async def first(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 6))
        await asyncio.sleep(500)
        save(world.store, path)
        assert saved_time(path) == pytest.approx(world.store.clock.now(), abs=1e-5)

    live(first, nodes=3)
    snapshot = read(path)
    # The newest moment is rounded up: it is found to the second.
    assert snapshot.time - 12 < newest_moment(snapshot.items) <= snapshot.time + 1


def test_a_file_that_does_not_say_its_time_is_as_old_as_the_newest_thing_in_it(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"

    async def first(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 2))
        await asyncio.sleep(500)
        save(world.store, path)

    live(first, nodes=1)
    said = saved_time(path)
    lines = path.read_text().splitlines()
    header = json.loads(lines[0])
    del header["time"]
    path.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    assert said - 12 < saved_time(path) <= said + 1


def test_only_fields_with_past_times_give_the_time(tmp_path: Path) -> None:
    store = Store(VirtualEpoch(START), random=Random(1))
    far = timestamp(START + YEAR)
    annotations = {"until": far, "note": f'{{"creationTimestamp":"{far}"}}'}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    store.create(PODS, "default", {"metadata": {"name": "p", "annotations": annotations}, "spec": spec})
    items = [item for table in store.tables.values() for item in table.items()]
    assert newest_moment(items) == START + 1
    strange = Stored(LEASES, b'{"spec":{"renewTime":"2099-99-99T00:00:00.000000Z"}}', {"name": "l", "uid": "u"}, 1)
    assert newest_moment([*items, strange]) == START + 1, "what is no moment is none"
    store.create(LEASES, "default", {"metadata": {"name": "m"}, "spec": {"renewTime": f"{far[:-1]}.500000Z"}})
    items = [item for table in store.tables.values() for item in table.items()]
    assert newest_moment(items) == START + YEAR + 1
    assert newest_moment([]) == 0.0


class VirtualEpoch:
    def __init__(self, now: float) -> None:
        self.time = now

    def now(self) -> float:
        return self.time


def test_a_node_that_was_taken_for_dead_is_back_unless_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"

    async def first(world: World) -> None:
        world.kubelets.fail_node("n0")
        world.patch(NODES, "n1", {"metadata": {"annotations": {"kubesched.io/failed": "true"}}})
        await asyncio.sleep(60)
        assert [ready(world, f"n{index}") for index in range(3)] == ["Unknown", "Unknown", "True"]
        save(world.store, path)

    async def again(world: World) -> None:
        await asyncio.sleep(60)
        assert [ready(world, f"n{index}") for index in range(3)] == ["True", "Unknown", "True"]
        assert "taints" not in world.get(NODES, "n0")["spec"]
        world.patch(NODES, "n1", {"metadata": {"annotations": {"kubesched.io/failed": None}}})
        await asyncio.sleep(5)
        assert ready(world, "n1") == "True"

    live(first, nodes=3)
    live(again, start=saved_time(path), restore_from=path)


def test_an_unresponsive_node_of_a_real_cluster_is_a_failed_one_here(tmp_path: Path) -> None:
    def node(name: str, status: str) -> Data:
        condition_ = {"type": "Ready", "status": status, "reason": "R", "lastHeartbeatTime": "2024-01-01T00:00:00Z"}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": [condition_]}}

    dump, path = tmp_path / "dump.json", tmp_path / "c.jsonl"
    items = [node("lost", "Unknown"), node("well", "True")]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    store = Store(VirtualEpoch(START), random=Random(1))
    assert import_dump([dump]).store_in(store) == []
    save(store, path)

    async def again(world: World) -> None:
        await asyncio.sleep(300)
        assert ready(world, "lost") == "Unknown"
        assert ready(world, "well") == "True"
        world.patch(NODES, "lost", {"metadata": {"annotations": {"kubesched.io/failed": None}}})
        await asyncio.sleep(5)
        assert ready(world, "lost") == "True"

    live(again, start=START + YEAR, restore_from=path)


# -- events ---------------------------------------------------------------------------------------------------


FAR = "2222-02-02T02:02:02Z"


def an_event(name: str) -> Data:
    return {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "default"}, "reason": "R"}


def test_events_of_a_restored_cluster_expire_an_hour_after_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    clock = VirtualEpoch(START)
    store = Store(clock, random=Random(1))
    store.create(EVENTS, "default", an_event("old"))
    store.create(EVENTS, "default", {**an_event("again"), "count": 1})
    clock.time += 1800
    store.patch(EVENTS, "default", "again", {"count": 2, "lastTimestamp": timestamp(clock.time)})
    store.create(EVENTS, "default", an_event("young"))
    strange = {**an_event("strange"), "lastTimestamp": FAR, "series": {"count": 1, "lastObservedTime": FAR}}
    store.create(EVENTS, "default", strange)
    save(store, path)
    path.write_text(path.read_text().replace(FAR, "whenever"))

    later = VirtualEpoch(START + 3599)
    other = Store(later, random=Random(2))
    read(path).load_into(other)

    def names() -> list[str]:
        return [item.name for item in other.list(EVENTS, "default").items]

    other.expire_events()
    assert names() == ["again", "old", "strange", "young"]
    later.time += 1
    other.create(EVENTS, "default", an_event("new"))
    assert names() == ["again", "new", "strange", "young"], "a new one drives it out"
    later.time += 1799
    other.expire_events()
    assert names() == ["again", "new", "strange", "young"]
    later.time += 1
    other.expire_events()
    assert names() == ["new"]
    later.time += 3600
    other.expire_events()
    assert names() == []


def test_an_event_that_goes_on_lives_on(tmp_path: Path) -> None:
    clock = VirtualEpoch(START)
    store = Store(clock, random=Random(1))
    store.create(EVENTS, "default", an_event("series"))
    for count in range(2, 6):
        clock.time += 3000
        store.patch(EVENTS, "default", "series", {"count": count})
        store.expire_events()
        assert store.get(EVENTS, "default", "series").data()["count"] == count
    store.delete(EVENTS, "default", "series")
    store.create(EVENTS, "default", an_event("series"))
    clock.time += 3599
    store.expire_events()
    assert [item.name for item in store.list(EVENTS).items] == ["series"], "another one of the same name is another one"
    clock.time += 1
    store.expire_events()
    assert store.list(EVENTS).items == []


# -- what nodes report ----------------------------------------------------------------------------------------

KUBELETS = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]


def test_a_hollow_node_reports_its_conditions_and_when(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.store.create(NODES, "", {"metadata": {"name": "bare"}})
        pressed = {"type": "MemoryPressure", "status": "True", "reason": "Test"}
        other = {"type": "NetworkUnavailable", "status": "False", "lastTransitionTime": "2024-01-01T00:00:00Z"}
        world.store.create(NODES, "", {"metadata": {"name": "given"}, "status": {"conditions": [pressed, other]}})
        await asyncio.sleep(2)
        now = timestamp(START)
        for name in ("n0", "bare"):
            conditions = world.get(NODES, name)["status"]["conditions"]
            assert [one["type"] for one in conditions] == KUBELETS, name
            assert {one["lastHeartbeatTime"] for one in conditions} == {now}, name
            assert {one["lastTransitionTime"] for one in conditions} == {now}, name
            assert ready(world, name) == "True"
        found = {one["type"]: one for one in world.get(NODES, "given")["status"]["conditions"]}
        assert sorted(found) == sorted([*KUBELETS, "NetworkUnavailable"])
        assert (found["MemoryPressure"]["status"], found["MemoryPressure"]["reason"]) == ("True", "Test")
        assert found["NetworkUnavailable"]["lastTransitionTime"] == "2024-01-01T00:00:00Z"
        assert all(one["lastHeartbeatTime"] == now for one in found.values())

        await asyncio.sleep(998)
        world.kubelets.fail_node("n0")
        await asyncio.sleep(100)
        conditions = world.get(NODES, "n0")["status"]["conditions"]
        assert {one["status"] for one in conditions} == {"Unknown"}
        assert {one["lastHeartbeatTime"] for one in conditions} == {now}, "it has not reported since"
        assert all(parse_time(one["lastTransitionTime"]) >= START + 1000 for one in conditions)
        back = world.store.now()
        world.kubelets.recover_node("n0")
        await asyncio.sleep(1)
        conditions = world.get(NODES, "n0")["status"]["conditions"]
        assert [(one["type"], one["status"]) for one in conditions] == [
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", "True"),
        ]
        assert {one["lastHeartbeatTime"] for one in conditions} == {back}
        assert {one["lastTransitionTime"] for one in conditions} == {back}

    live(scenario, nodes=1)


def test_conditions_that_are_given_stay_what_they_are() -> None:
    given = [{"type": "Ready", "status": "False", "lastTransitionTime": "t0"}, {"type": "X", "status": "True"}]
    found = {one["type"]: one for one in kubelet_conditions("t1", given)}
    assert found["Ready"] == {
        "type": "Ready",
        "status": "False",
        "lastTransitionTime": "t0",
        "lastHeartbeatTime": "t1",
    }
    assert found["X"]["lastHeartbeatTime"] == "t1"
    short = kubelet_conditions("t1", [{"type": "Ready", "status": "True"}])[-1]
    assert (short["reason"], short["message"]) == ("KubeletReady", "kubelet is posting ready status")
    assert [one["type"] for one in kubelet_conditions("t1")] == KUBELETS


def test_addresses_of_restored_pods_are_not_given_to_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"

    async def before(world: World) -> None:
        world.create(DEPLOYMENTS, workload("a", 3))
        await asyncio.sleep(10)
        save(world.store, path)

    async def after(world: World) -> None:
        world.create(DEPLOYMENTS, workload("b", 3))
        await asyncio.sleep(10)
        addresses = [item.data()["status"]["podIP"] for item in world.store.list(PODS, "").items]
        assert len(set(addresses)) == len(addresses) == 6

    live(before, nodes=2)
    live(after, restore_from=path)
