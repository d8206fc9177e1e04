"""ReplicaSets and Deployments in a whole cluster: counts, choice of victims, rolling updates, status."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from controllers_world import DEPLOYMENTS, REPLICA_SETS, Data, World, condition, play, pod_template, workload

from kubesched.api.kinds import PODS
from kubesched.cluster.controllers.deployments import Rollout
from kubesched.cluster.controllers.pods import resolve_count


def test_a_replica_set_keeps_its_number_of_pods() -> None:
    async def scenario(world: World) -> None:
        world.create(REPLICA_SETS, workload("web", 5))
        await world.settle()
        assert len(world.pods(app="web")) == 5
        assert all(pod.spec.node_name for pod in world.pods(app="web"))
        status = world.get(REPLICA_SETS, "web")["status"]
        assert status == {
            "replicas": 5,
            "fullyLabeledReplicas": 5,
            "readyReplicas": 5,
            "availableReplicas": 5,
            "observedGeneration": 1,
        }
        world.store.delete(PODS, "default", world.pods()[0].name)
        await world.settle()
        assert len(world.pods(app="web")) == 5
        world.patch(REPLICA_SETS, "web", {"spec": {"replicas": 2}})
        await world.settle()
        assert len(world.pods(app="web")) == 2
        assert world.get(REPLICA_SETS, "web")["status"]["replicas"] == 2
        world.store.delete(REPLICA_SETS, "default", "web")
        await world.settle()
        assert world.pods() == []

    play(scenario)


def test_finished_pods_are_replaced_and_left_lying() -> None:
    async def scenario(world: World) -> None:
        template = pod_template("web", annotations={"kubesched.io/duration": "50s", "kubesched.io/exit": "Failed"})
        world.create(REPLICA_SETS, workload("web", 2, template))
        await asyncio.sleep(60)
        phases = Counter(pod.status.phase for pod in world.pods())
        assert phases == {"Failed": 2, "Running": 2}
        world.patch(REPLICA_SETS, "web", {"spec": {"replicas": 0}})
        await world.settle()
        assert Counter(pod.status.phase for pod in world.pods()) == {"Failed": 2}

    play(scenario)


@pytest.mark.parametrize(
    ("case", "costs", "survivor"),
    [
        ("the cheapest to delete goes first", {"n0": "100", "n1": "-5", "n2": "1"}, "n0"),
        ("a cost that is no number counts as none", {"n0": "dear", "n1": "1", "n2": "0"}, "n1"),
    ],
)
def test_deletion_costs_decide_who_goes(case: str, costs: dict[str, str], survivor: str) -> None:
    async def scenario(world: World) -> None:
        spread: Data = {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        }
        world.create(REPLICA_SETS, workload("web", 3, pod_template("web", **spread)))
        await world.settle()
        for pod in world.pods():
            cost = costs[pod.spec.node_name]
            world.patch(
                PODS, pod.name, {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}}
            )
        world.patch(REPLICA_SETS, "web", {"spec": {"replicas": 1}})
        await world.settle()
        assert world.nodes_used(app="web") == [survivor], case

    play(scenario, nodes=3)


def test_pods_without_a_node_go_before_pods_that_run() -> None:
    async def scenario(world: World) -> None:
        world.create(REPLICA_SETS, workload("web", 6, pod_template("web", cpu="3")))
        await world.settle()
        running = {pod.name for pod in world.pods() if pod.spec.node_name}
        assert len(running) == 4  # two nodes of 8 cpu hold two each
        world.patch(REPLICA_SETS, "web", {"spec": {"replicas": 4}})
        await world.settle()
        assert {pod.name for pod in world.pods()} == running

    play(scenario, nodes=2)


def test_deletions_that_come_together_are_one_reconcile() -> None:
    async def scenario(world: World) -> None:
        world.create(REPLICA_SETS, workload("web", 60))
        await world.settle()
        before = world.controllers.controllers["replicaset"].reconciles
        gone = world.pods(app="web")[:50]
        for pod in gone:
            world.store.delete(PODS, "default", pod.name)
            await asyncio.sleep(0.001)  # so the controller could work between two deletions
        await world.settle()
        left = world.pods(app="web")
        assert len(left) == 60
        assert not {pod.metadata.uid for pod in gone} & {pod.metadata.uid for pod in left}
        status = world.get(REPLICA_SETS, "web")["status"]
        assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (60, 60, 60)
        assert world.controllers.controllers["replicaset"].reconciles - before <= 10

    play(scenario, nodes=8)


# -- deployments -------------------------------------------------------------------------------------------


def rolled_out(data: Data) -> bool:
    """Return True if the condition holds that ``kubectl rollout status`` waits for."""
    status, wanted = data.get("status") or {}, data["spec"]["replicas"]
    return bool(
        status.get("observedGeneration") == data["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == wanted
        and status.get("replicas", 0) <= status.get("updatedReplicas", 0)
        and status.get("availableReplicas", 0) == status.get("updatedReplicas", 0)
    )


def test_a_deployment_rolls_out_its_first_template() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 4))
        await world.settle()
        data = world.get(DEPLOYMENTS, "web")
        assert rolled_out(data)
        assert data["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "1"}
        assert condition(data, "Available") == ("True", "MinimumReplicasAvailable")
        assert condition(data, "Progressing") == ("True", "NewReplicaSetAvailable")
        (name,) = world.names(REPLICA_SETS)
        digest = name.removeprefix("web-")
        assert {pod.metadata.labels["pod-template-hash"] for pod in world.pods()} == {digest}

    play(scenario)


@dataclass(frozen=True)
class Rolling:
    name: str
    strategy: dict[str, Any]
    most: int
    least: int


ROLLINGS = [
    Rolling("one more, none less", {"maxSurge": 1, "maxUnavailable": 0}, 11, 10),
    Rolling("none more, three less", {"maxSurge": 0, "maxUnavailable": 3}, 10, 7),
    Rolling("a quarter each way, as by default", {}, 13, 8),
    Rolling("twice as many", {"maxSurge": "100%", "maxUnavailable": 0}, 20, 10),
]


@pytest.mark.parametrize("case", ROLLINGS, ids=lambda case: case.name)
def test_a_rolling_update_stays_within_its_bounds(case: Rolling) -> None:
    async def scenario(world: World) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": case.strategy}
        world.create(DEPLOYMENTS, workload("web", 10, strategy=strategy))
        await world.settle()
        world.patch(DEPLOYMENTS, "web", {"spec": {"template": pod_template("web", image="app:2")}})
        highest, lowest = 0, 99
        for _ in range(2000):
            pods = [pod for pod in world.pods() if pod.status.phase in ("Pending", "Running")]
            ready = sum(any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions) for pod in pods)
            highest, lowest = max(highest, len(pods)), min(lowest, ready)
            if rolled_out(world.get(DEPLOYMENTS, "web")):
                break
            await asyncio.sleep(0.05)
        assert rolled_out(world.get(DEPLOYMENTS, "web"))
        assert (highest, lowest) == (case.most, case.least)
        await world.settle()
        assert {pod.spec.containers[0].image for pod in world.pods()} == {"app:2"}
        assert world.get(DEPLOYMENTS, "web")["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"

    play(scenario)


def test_recreate_waits_until_the_old_pods_are_gone() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 3, strategy={"type": "Recreate"}))
        await world.settle()
        world.patch(DEPLOYMENTS, "web", {"spec": {"template": pod_template("web", image="app:2")}})
        for _ in range(400):
            images = {item.typed.spec.containers[0].image for item in world.store.list(PODS, "default").items}
            assert len(images) <= 1, "old and new pods at the same time"
            await asyncio.sleep(0.05)
        assert rolled_out(world.get(DEPLOYMENTS, "web"))

    play(scenario)


def test_going_back_finds_the_old_replica_set_again() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 2))
        await world.settle()
        (first,) = world.names(REPLICA_SETS)
        for image in ("app:2", "app:1"):
            world.patch(DEPLOYMENTS, "web", {"spec": {"template": pod_template("web", image=image)}})
            await world.settle()
        assert len(world.names(REPLICA_SETS)) == 2
        data = world.get(REPLICA_SETS, first)
        assert data["spec"]["replicas"] == 2
        assert data["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"

    play(scenario)


def test_old_replica_sets_are_kept_up_to_the_history_limit() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 1, revisionHistoryLimit=2))
        for version in range(1, 6):
            world.patch(DEPLOYMENTS, "web", {"spec": {"template": pod_template("web", image=f"app:{version}")}})
            await world.settle()
        assert len(world.names(REPLICA_SETS)) == 3

    play(scenario)


def test_a_rollout_that_cannot_proceed_runs_out_of_time_and_keeps_serving() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 4, progressDeadlineSeconds=60))
        await world.settle()
        world.patch(DEPLOYMENTS, "web", {"spec": {"template": pod_template("web", cpu="99")}})
        await asyncio.sleep(90)
        data = world.get(DEPLOYMENTS, "web")
        assert condition(data, "Progressing") == ("False", "ProgressDeadlineExceeded")
        assert condition(data, "Available") == ("True", "MinimumReplicasAvailable")
        assert data["status"]["availableReplicas"] == 3
        assert data["status"]["unavailableReplicas"] == 2

    play(scenario)


def test_a_paused_deployment_scales_but_does_not_roll() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 2))
        await world.settle()
        template = pod_template("web", image="app:2")
        world.patch(DEPLOYMENTS, "web", {"spec": {"paused": True, "replicas": 5, "template": template}})
        await world.settle()
        assert Counter(pod.spec.containers[0].image for pod in world.pods()) == {"app:1": 5}
        assert condition(world.get(DEPLOYMENTS, "web"), "Progressing") == ("Unknown", "DeploymentPaused")
        world.patch(DEPLOYMENTS, "web", {"spec": {"paused": None}})
        await world.settle()
        assert condition(world.get(DEPLOYMENTS, "web"), "Progressing") == ("True", "NewReplicaSetAvailable")
        assert Counter(pod.spec.containers[0].image for pod in world.pods()) == {"app:2": 5}

    play(scenario)


def test_scaling_in_the_middle_of_a_rollout_is_shared_out() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 10, strategy={"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 2}}))
        await world.settle()
        world.patch(DEPLOYMENTS, "web", {"spec": {"template": pod_template("web", cpu="99")}})
        await world.settle()
        assert Counter(pod.spec.containers[0].resources.requests["cpu"] for pod in world.pods()) == {"100m": 8, "99": 4}
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 20}})
        await world.settle()
        counts = Counter(pod.spec.containers[0].resources.requests["cpu"] for pod in world.pods())
        assert counts.total() == 22
        assert counts["100m"] == 15  # 8 of 12, of the 22 that may be

    play(scenario)


def test_deleting_a_deployment_takes_everything_with_it() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 3))
        await world.settle()
        world.store.delete(DEPLOYMENTS, "default", "web", propagation_policy="Foreground")
        await world.settle()
        assert (world.names(REPLICA_SETS), world.names(PODS)) == ([], [])

    play(scenario)


@pytest.mark.parametrize(
    ("value", "total", "up", "want"),
    [(3, 10, True, 3), ("25%", 10, True, 3), ("25%", 10, False, 2), ("0%", 10, True, 0), ("x", 10, True, 0)],
)
def test_counts_may_be_percentages(value: Any, total: int, up: bool, want: int) -> None:
    assert resolve_count(value, total, up=up) == want


def test_a_strategy_that_allows_nothing_lets_one_pod_be_missing() -> None:
    rollout = Rollout({"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "10%"}}})
    assert (rollout.surge, rollout.unavailable) == (0, 1)
