"""Hollow nodes and the pods they run, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from cluster_world import a_node, a_pod, a_store, in_virtual_time

from builders import create_nodes
from kubesched.api.kinds import NODES, PODS
from kubesched.cluster.kubelets import HollowKubelets, default_stages, make_nodes, node_template
from kubesched.cluster.kubelets.hollow import DURATION, EXIT
from kubesched.cluster.store import Faults, InProcessClient, Store
from kubesched.cluster.store.faults import connection_lost, server_error
from kubesched.lab.simulate.run.virtual_time import VirtualClock

Scenario = Callable[[Store, HollowKubelets], Awaitable[None]]


@asynccontextmanager
async def kubelets(
    store: Store, clock: VirtualClock, faults: Faults | None = None, **options: Any
) -> AsyncIterator[HollowKubelets]:
    hollow = HollowKubelets(InProcessClient(store, faults=faults), clock, **options)
    task = asyncio.create_task(hollow.run())
    for _ in range(5):
        await asyncio.sleep(0)  # let them list and begin to watch
    try:
        yield hollow
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def play(scenario: Scenario, *, faults: Faults | None = None, **options: Any) -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock, random=Random(1))
        store.create(NODES, "", next(make_nodes(1, prefix="n", width=1, start=1)))
        async with kubelets(store, clock, faults, **options) as hollow:
            await scenario(store, hollow)

    in_virtual_time(main)


def bound(store: Store, name: str = "p", node: str = "n1", **spec: Any) -> None:
    pod = store.create(PODS, "default", a_pod(name, **spec))
    store.bind("default", name, pod.uid, node)


def phase(store: Store, name: str = "p") -> str:
    item = store.table(PODS).objects.get(("default", name))
    return "gone" if item is None else str(item.data()["status"]["phase"])


def test_a_bound_pod_runs_after_the_startup_delay() -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        store.create(PODS, "default", a_pod("waiting"))
        bound(store)
        await asyncio.sleep(1.9)
        assert phase(store) == "Pending"
        await asyncio.sleep(0.2)
        status = store.get(PODS, "default", "p").data()["status"]
        assert status["phase"] == "Running"
        assert {item["type"]: item["status"] for item in status["conditions"]} == {
            "PodScheduled": "True",
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "ContainersReady": "True",
            "Ready": "True",
        }
        assert status["containerStatuses"][0]["state"]["running"]["startedAt"] == status["startTime"]
        assert (status["podIP"], status["hostIP"]) == ("10.0.0.1", "172.16.0.2")
        assert phase(store, "waiting") == "Pending"
        assert hollow.next_timer() is None

    play(scenario, stages=default_stages(2.0))


@pytest.mark.parametrize(("exit_", "want", "code"), [("", "Succeeded", 0), ("Failed", "Failed", 1)])
def test_a_pod_with_a_duration_finishes(exit_: str, want: str, code: int) -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, annotations={DURATION: "1m30s", EXIT: exit_})
        await asyncio.sleep(2)
        assert phase(store) == "Running"
        assert hollow.next_timer() == pytest.approx(91)
        await asyncio.sleep(88)
        assert phase(store) == "Running"
        await asyncio.sleep(2)
        status = store.get(PODS, "default", "p").data()["status"]
        assert status["phase"] == want
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code
        assert hollow.next_timer() is None

    play(scenario)


def test_a_duration_that_cannot_be_read_is_noted_and_the_pod_runs_on() -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, annotations={DURATION: "soon"})
        await asyncio.sleep(50)
        assert phase(store) == "Running"
        assert "'soon' is not a duration" in hollow.problems[0]

    play(scenario)


def test_deletion_takes_the_grace_period() -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, terminationGracePeriodSeconds=20)
        await asyncio.sleep(5)
        store.delete(PODS, "default", "p")
        await asyncio.sleep(19.5)
        assert phase(store) == "Running"
        await asyncio.sleep(1)
        assert phase(store) == "gone"

    play(scenario)


def test_a_hurried_deletion_and_a_stop_delay_shorten_it() -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, terminationGracePeriodSeconds=600)
        await asyncio.sleep(5)
        store.delete(PODS, "default", "p")
        await asyncio.sleep(5)
        store.delete(PODS, "default", "p", grace_period_seconds=3)
        await asyncio.sleep(2.9)
        assert phase(store) == "Running"
        await asyncio.sleep(0.2)
        assert phase(store) == "gone"

    play(scenario)

    async def quick(store: Store, hollow: HollowKubelets) -> None:
        bound(store, terminationGracePeriodSeconds=600)
        store.delete(PODS, "default", "p")
        await asyncio.sleep(1.5)
        assert phase(store) == "gone"

    play(quick, stages=default_stages(stop_delay=1.0))


def test_pods_on_missing_nodes_wait_for_the_node() -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, node="ghost")
        bound(store, "q")
        store.delete(NODES, "", "n1")
        await asyncio.sleep(100)
        assert (phase(store), phase(store, "q")) == ("Pending", "Pending")
        assert hollow.next_timer() is None
        store.create(NODES, "", a_node("ghost"))
        store.create(NODES, "", a_node("n1"))
        await asyncio.sleep(2)
        assert (phase(store), phase(store, "q")) == ("Running", "Running")

    play(scenario)


def test_a_pod_created_again_under_the_same_name_starts_afresh() -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, annotations={DURATION: "10s"})
        await asyncio.sleep(5)
        store.delete(PODS, "default", "p", grace_period_seconds=0)
        bound(store, annotations={DURATION: "10s"})
        await asyncio.sleep(8)
        assert phase(store) == "Running"
        await asyncio.sleep(4)
        assert phase(store) == "Succeeded"

    play(scenario)


def test_lost_answers_errors_and_expired_watches_are_survived() -> None:
    faults = Faults(Random(3))
    faults.fail("patch", error=connection_lost, when="after", nth=1)
    faults.fail("patch", error=server_error, nth=2)
    faults.fail("delete", error=server_error, fraction=0.5, times=20)
    faults.fail("list", error=connection_lost, nth=1)
    faults.disturb("stale", fraction=0.3)
    faults.disturb("duplicate", fraction=0.3)

    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        for index in range(20):
            bound(store, f"p{index}", annotations={DURATION: "30s"}, terminationGracePeriodSeconds=1)
        await asyncio.sleep(10)
        assert {phase(store, f"p{index}") for index in range(20)} == {"Running"}
        assert faults.expire_watches() == 3
        await asyncio.sleep(5)
        store.delete(PODS, "default", "p0")
        assert faults.drop_watches(PODS) == 1
        await asyncio.sleep(60)
        assert phase(store, "p0") == "gone"
        assert {phase(store, f"p{index}") for index in range(1, 20)} == {"Succeeded"}
        assert hollow.problems
        assert hollow.next_timer() is None

    play(scenario, faults=faults)


def test_late_copies_of_a_pod_do_not_start_it_again() -> None:
    faults = Faults(Random(3))
    faults.disturb("stale", kind=PODS)

    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, annotations={DURATION: "30s"})
        await asyncio.sleep(5)
        version = store.resource_version
        assert phase(store) == "Running"
        assert hollow.next_timer() == pytest.approx(31)
        await asyncio.sleep(20)
        assert store.resource_version == version
        await asyncio.sleep(7)
        assert phase(store) == "Succeeded"

    play(scenario, faults=faults)


def test_a_lost_deletion_does_not_hide_the_pod_created_after_it() -> None:
    faults = Faults(Random(3))

    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store)
        await asyncio.sleep(5)
        faults.disturb("lose", kind=PODS, times=1)
        store.delete(PODS, "default", "p", grace_period_seconds=0)
        await asyncio.sleep(1)
        bound(store)
        await asyncio.sleep(5)
        assert phase(store) == "Running"

    play(scenario, faults=faults)


# -- nodes -------------------------------------------------------------------------------------------------


def test_nodes_come_from_a_template() -> None:
    store = a_store()
    taint = {"key": "gpu", "effect": "NoSchedule"}
    template = node_template(cpu=16, extended={"nvidia.com/gpu": 8}, labels={"pool": "a"}, taints=[taint])
    nodes = create_nodes(store, 5, template, zones=["z1", "z2"])
    assert [item.name for item in nodes] == [f"hollow-{index:05d}" for index in range(5)]
    first, second = nodes[0].data(), nodes[1].data()
    assert first["metadata"]["labels"] == {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "hollow",
        "pool": "a",
        "kubernetes.io/hostname": "hollow-00000",
        "topology.kubernetes.io/zone": "z1",
    }
    assert second["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z2"
    assert first["status"]["allocatable"] == {
        "cpu": "16",
        "memory": "32Gi",
        "pods": "110",
        "ephemeral-storage": "100Gi",
        "nvidia.com/gpu": "8",
    }
    assert first["spec"]["taints"] == [taint]
    addresses = {item.data()["status"]["addresses"][0]["address"] for item in nodes}
    assert len(addresses) == 5


def test_a_manifest_template_keeps_what_it_says_and_gets_a_pod_limit() -> None:
    template: dict[str, Any] = {
        "metadata": {"generateName": "x-", "labels": {"a": "b"}},
        "status": {"capacity": {"cpu": "1"}},
    }
    node = next(make_nodes(1, template, prefix="node-", start=7, width=3))
    assert node["metadata"] == {"name": "node-007", "labels": {"a": "b", "kubernetes.io/hostname": "node-007"}}
    assert node["status"]["capacity"] == {"pods": "110", "cpu": "1"}
    assert template["metadata"]["labels"] == {"a": "b"}
