"""Node failure and recovery, taints and evictions, disruption budgets, collection of pods."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from controllers_world import (
    BUDGETS,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    REPLICA_SETS,
    STATEFUL_SETS,
    Data,
    World,
    condition,
    job,
    play,
    pod_template,
    workload,
)

from builders import create_nodes
from kubesched.api.kinds import NODES, PODS
from kubesched.api.types import Taint, Toleration
from kubesched.api.wire import ApiError
from kubesched.cluster.controllers import ControllerManager, ControllerSettings
from kubesched.cluster.controllers.taint_eviction import toleration_seconds
from kubesched.cluster.kubelets import HollowKubelets
from kubesched.cluster.store import InProcessClient, Store
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry


def taints(world: World, node: str) -> set[tuple[str, str]]:
    return {(item["key"], item["effect"]) for item in world.get(NODES, node)["spec"].get("taints") or ()}


UNREACHABLE = {("node.kubernetes.io/unreachable", "NoSchedule"), ("node.kubernetes.io/unreachable", "NoExecute")}


def test_pods_of_a_failed_node_come_back_elsewhere() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 6))
        await world.settle()
        assert "n1" in world.nodes_used(app="web")
        world.kubelets.fail_node("n1")
        await asyncio.sleep(39)
        assert condition(world.get(NODES, "n1"), "Ready") == ("True", "KubeletReady")
        await asyncio.sleep(2)
        assert condition(world.get(NODES, "n1"), "Ready") == ("Unknown", "NodeStatusUnknown")
        assert taints(world, "n1") == UNREACHABLE
        lost = [pod for pod in world.pods(app="web") if pod.spec.node_name == "n1"]
        assert lost
        assert all(c.status == "False" for pod in lost for c in pod.status.conditions if c.type == "Ready")
        assert world.get(DEPLOYMENTS, "web")["status"]["readyReplicas"] == 6 - len(lost)
        await asyncio.sleep(290)
        assert "n1" in world.nodes_used(app="web"), "pods tolerate 300 s"
        await world.settle()
        assert "n1" not in world.nodes_used(app="web")
        assert len(world.pods(app="web")) == 6
        assert len(world.names(PODS)) == 6 + len(lost), "nothing stops them on an unresponsive node"
        world.kubelets.recover_node("n1")
        await world.settle()
        assert taints(world, "n1") == set()
        assert condition(world.get(NODES, "n1"), "Ready")[0] == "True"
        assert len(world.names(PODS)) == 6
        assert world.names(LEASES, "kube-node-lease") == []

    play(scenario, nodes=3)


def test_a_node_that_recovers_in_time_keeps_its_pods() -> None:
    async def scenario(world: World) -> None:
        world.create(REPLICA_SETS, workload("web", 4))
        await world.settle()
        before = {pod.name: pod.spec.node_name for pod in world.pods()}
        world.kubelets.fail_node("n0")
        await asyncio.sleep(200)
        assert world.get(REPLICA_SETS, "web")["status"]["readyReplicas"] < 4
        world.kubelets.recover_node("n0")
        await world.settle()
        assert {pod.name: pod.spec.node_name for pod in world.pods()} == before
        assert world.get(REPLICA_SETS, "web")["status"]["readyReplicas"] == 4

    play(scenario, nodes=2)


def test_a_stateful_pod_waits_for_its_node_to_come_back_or_go() -> None:
    async def scenario(world: World) -> None:
        world.create(STATEFUL_SETS, workload("db", 1))
        await world.settle()
        node = world.pods()[0].spec.node_name
        world.kubelets.fail_node(node)
        await asyncio.sleep(600)
        assert world.pods() == [], "at most one pod of a name: none is made while the old one may run"
        world.store.delete(NODES, "", node)
        await asyncio.sleep(60)
        await world.settle()
        (pod,) = world.pods()
        assert pod.spec.node_name != node

    play(scenario, nodes=2)


def test_commands_about_unknown_nodes_are_refused() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ValueError, match="there is no node 'ghost'"):
            world.kubelets.fail_node("ghost")
        with pytest.raises(ValueError, match="has not failed"):
            world.kubelets.recover_node("n0")
        world.kubelets.fail_node("n0")
        assert world.kubelets.failed_nodes == {"n0"}

    play(scenario)


def test_with_real_heartbeats_silence_is_noticed_and_life_is_left_alone() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        store = Store(clock, random=Random(1))
        create_nodes(store, 25)
        kubelets = HollowKubelets(InProcessClient(store), clock, heartbeat_seconds=10)
        manager = ControllerManager(InProcessClient(store), clock, Random(1), ["nodelifecycle", "taint-eviction"])
        tasks = [asyncio.create_task(kubelets.run()), asyncio.create_task(manager.run())]
        await asyncio.sleep(100)
        assert len(store.list(LEASES).items) == 25
        assert not any(node.typed.spec.taints for node in store.list(NODES).items)
        assert manager.next_timer() is None, "heartbeats in time are no reason to go on"
        kubelets.fail_node("hollow-00007")
        assert kubelets.next_timer() is not None
        await asyncio.sleep(15)
        assert manager.next_timer() is not None
        await asyncio.sleep(40)
        tainted = [node.name for node in store.list(NODES).items if node.typed.spec.taints]
        assert tainted == ["hollow-00007"]
        kubelets.recover_node("hollow-00007")
        await asyncio.sleep(1)
        assert not any(node.typed.spec.taints for node in store.list(NODES).items)
        manager.stop()
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert tasks[1].exception() is None

    run_virtual(main())


@pytest.mark.parametrize(
    ("condition_", "status", "want"),
    [
        (
            "Ready",
            "False",
            {("node.kubernetes.io/not-ready", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoExecute")},
        ),
        ("MemoryPressure", "True", {("node.kubernetes.io/memory-pressure", "NoSchedule")}),
        ("DiskPressure", "True", {("node.kubernetes.io/disk-pressure", "NoSchedule")}),
        ("PIDPressure", "True", {("node.kubernetes.io/pid-pressure", "NoSchedule")}),
        ("NetworkUnavailable", "True", {("node.kubernetes.io/network-unavailable", "NoSchedule")}),
        ("MemoryPressure", "False", set()),
    ],
)
def test_conditions_become_taints_and_other_taints_stay(condition_: str, status: str, want: set[Any]) -> None:
    async def scenario(world: World) -> None:
        world.patch(NODES, "n0", {"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})
        change = {"status": {"conditions": [{"type": condition_, "status": status}]}}
        world.patch(NODES, "n0", change, subresource="status")
        await world.settle()
        assert taints(world, "n0") == want | {("mine", "NoSchedule")}
        world.patch(
            NODES, "n0", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status"
        )
        await world.settle()
        assert taints(world, "n0") == {("mine", "NoSchedule")}

    play(scenario)


def test_a_cordon_is_a_taint_too() -> None:
    async def scenario(world: World) -> None:
        world.patch(NODES, "n0", {"spec": {"unschedulable": True}})
        await world.settle()
        assert taints(world, "n0") == {("node.kubernetes.io/unschedulable", "NoSchedule")}
        world.patch(NODES, "n0", {"spec": {"unschedulable": None}})
        await world.settle()
        assert taints(world, "n0") == set()

    play(scenario)


EXISTS = Toleration(key="x", operator="Exists", effect="NoExecute")
FOR_60 = Toleration(key="x", operator="Exists", effect="NoExecute", toleration_seconds=60)
FOR_30 = Toleration(operator="Exists", toleration_seconds=30)


@pytest.mark.parametrize(
    ("case", "tolerations", "want"),
    [
        ("none: at once", (), 0.0),
        ("without limit", (EXISTS,), None),
        ("a while", (FOR_60,), 60.0),
        ("the shortest of several", (FOR_60, FOR_30, EXISTS), 30.0),
    ],
)
def test_how_long_a_pod_may_stay(case: str, tolerations: tuple[Toleration, ...], want: float | None) -> None:
    assert toleration_seconds(tolerations, [Taint(key="x", effect="NoExecute")]) == want, case


def test_a_taint_removed_in_time_evicts_no_pod() -> None:
    async def scenario(world: World) -> None:
        toleration = {"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 50}
        world.create(REPLICA_SETS, workload("web", 2, pod_template("web", tolerations=[toleration])))
        await world.settle()
        before = {pod.name for pod in world.pods()}
        for _ in range(2):
            world.patch(NODES, "n0", {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}})
            await asyncio.sleep(30)
            world.patch(NODES, "n0", {"spec": {"taints": None}})
            await asyncio.sleep(30)
        await world.settle()
        assert {pod.name for pod in world.pods()} == before

    play(scenario, nodes=1)


# -- disruption budgets ------------------------------------------------------------------------------------


def budget(app: str, **spec: Any) -> Data:
    return {"metadata": {"name": app}, "spec": {"selector": {"matchLabels": {"app": app}}, **spec}}


@pytest.mark.parametrize(
    ("case", "spec", "want"),
    [
        ("a number that must be there", {"minAvailable": 7}, (10, 10, 7, 3)),
        ("a share that must be there, rounded up", {"minAvailable": "75%"}, (10, 10, 8, 2)),
        ("a number that may be missing", {"maxUnavailable": 1}, (10, 10, 9, 1)),
        ("a share that may be missing, rounded up", {"maxUnavailable": "25%"}, (10, 10, 7, 3)),
        ("everything must be there", {"maxUnavailable": 0}, (10, 10, 10, 0)),
        ("more than there is", {"minAvailable": 20}, (10, 10, 20, 0)),
        ("an empty selector selects all pods", {"selector": {}, "minAvailable": 7}, (10, 10, 7, 3)),
        ("no selector selects none", {"selector": None, "minAvailable": 7}, (0, 0, 7, 0)),
    ],
)
def test_what_a_budget_allows(case: str, spec: Data, want: tuple[int, int, int, int]) -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 10))
        world.create(BUDGETS, budget("web", **spec))
        await world.settle()
        data = world.get(BUDGETS, "web")
        status = data["status"]
        fields = ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")
        assert tuple(status[field] for field in fields) == want, case
        assert status["observedGeneration"] == data["metadata"]["generation"]
        expected = ("True", "SufficientPods") if want[3] else ("False", "InsufficientPods")
        assert condition(data, "DisruptionAllowed") == expected

    play(scenario)


def test_evictions_never_take_more_than_the_budget_allows() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 6))
        world.create(BUDGETS, budget("web", maxUnavailable=2))
        await world.settle()
        refused = 0
        for pod in world.pods():
            try:
                world.store.evict("default", pod.name)
            except ApiError as error:
                refused += error.code == 429
        assert refused == 4
        assert len(world.pods()) == 4
        await world.settle()
        assert len(world.pods()) == 6
        assert world.get(BUDGETS, "web")["status"]["disruptionsAllowed"] == 2
        assert "disruptedPods" not in world.get(BUDGETS, "web")["status"]

    play(scenario)


# -- collection --------------------------------------------------------------------------------------------


def test_pods_of_a_node_that_is_gone_are_collected_and_replaced() -> None:
    async def scenario(world: World) -> None:
        world.create(REPLICA_SETS, workload("web", 4))
        world.create(JOBS, job("sum", "1h", parallelism=2, completions=2))
        await asyncio.sleep(5)
        world.store.delete(NODES, "", "n0")
        await asyncio.sleep(30)
        assert "n0" in world.nodes_used()
        await asyncio.sleep(30)
        used = {pod.spec.node_name for pod in world.pods()}
        assert used == {"n1"}
        assert len(world.pods(app="web")) == 4
        assert world.get(JOBS, "sum")["status"].get("failed", 0) + world.get(JOBS, "sum")["status"]["active"] >= 2
        world.store.delete(JOBS, "default", "sum")

    play(scenario, nodes=2)


def test_only_so_many_finished_pods_are_kept() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        store = Store(clock, random=Random(1))
        settings = ControllerSettings(terminated_pods=3)
        manager = ControllerManager(InProcessClient(store), clock, Random(1), ["podgc"], settings=settings)
        task = asyncio.create_task(manager.run())
        await asyncio.sleep(1)
        for index in range(6):
            pod = pod_template("x")
            pod["metadata"]["name"] = f"p{index}"
            store.create(PODS, "default", pod)
            store.patch(PODS, "default", f"p{index}", {"status": {"phase": "Succeeded"}}, subresource="status")
            await asyncio.sleep(1)
        assert [item.name for item in store.list(PODS).items] == ["p3", "p4", "p5"]
        manager.stop()
        await task

    run_virtual(main())


def test_a_new_node_is_tainted_until_its_kubelet_reports() -> None:
    """A Node without conditions takes no pod, whoever created it. Autoscalers rely on that."""

    async def main() -> None:
        embedded = Embedded(
            default_config(),
            in_tree_registry(),
            clock=VirtualClock(asyncio.get_running_loop()),
            controllers=True,
            kubelet_options={"heartbeat_seconds": 10.0},
            taint_new_nodes=True,
        )
        store = embedded.store
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        bare: dict[str, Any] = {
            "metadata": {"name": "bare"},
            "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "9"}},
        }
        assert store.create(NODES, "", bare).data()["spec"]["taints"] == [taint]
        ready = {**bare["status"], "conditions": [{"type": "Ready", "status": "True"}]}
        node = store.create(NODES, "", {"metadata": {"name": "ready"}, "status": ready}).data()
        assert "taints" not in (node.get("spec") or {})
        assert embedded.kubelets is not None
        async with embedded.running():
            await asyncio.sleep(5)
            assert "taints" not in store.get(NODES, "", "bare").data()["spec"]
            # Without a kubelet that reports it stays as it is.
            embedded.kubelets.fail_node("bare")
            store.delete(NODES, "", "bare")
            store.create(NODES, "", {"metadata": {"name": "dead", "annotations": {"kubesched.io/failed": "true"}}})
            await asyncio.sleep(5)
            assert store.get(NODES, "", "dead").data()["spec"]["taints"] == [taint]

    run_virtual(main())
