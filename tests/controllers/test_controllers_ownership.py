"""Adoption of objects without a controller, and release of those that match no more."""

from __future__ import annotations

from typing import Any

import pytest
from controllers_world import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Data,
    World,
    kind,
    play,
    pod_template,
    workload,
)

from kubesched.api.kinds import PODS, Kind

CONTROLLERS, REVISIONS = kind("replicationcontrollers"), kind("controllerrevisions", "apps")


def bare(name: str, app: str) -> Data:
    template = pod_template(app)
    return {"metadata": {"name": name, **template["metadata"]}, "spec": template["spec"]}


def owner(world: World, kind: Kind, name: str) -> Any:
    references = world.get(kind, name)["metadata"].get("ownerReferences") or []
    return [(one["kind"], one["name"], one["controller"], one["blockOwnerDeletion"]) for one in references]


@pytest.mark.parametrize("kind", [REPLICA_SETS, CONTROLLERS], ids=["replicaset", "replicationcontroller"])
def test_a_set_adopts_a_matching_pod_and_replaces_one_that_matches_no_more(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        world.create(PODS, bare("before", "web"))
        world.create(PODS, bare("other", "db"))
        body = workload("web", 2)
        if kind is CONTROLLERS:
            body["spec"]["selector"] = {"app": "web"}
        world.create(kind, body)
        await world.settle()
        assert owner(world, PODS, "before") == [(kind.kind, "web", True, True)]
        assert owner(world, PODS, "other") == []
        assert len(world.pods(app="web")) == 2
        world.patch(PODS, "before", {"metadata": {"labels": {"app": "debug"}}})
        await world.settle()
        assert owner(world, PODS, "before") == []
        assert len(world.pods(app="web")) == 2, "a new one took its place"
        world.create(PODS, bare("late", "web"))
        await world.settle()
        assert len(world.pods(app="web")) == 2, "it was adopted, and one is too many"

    play(scenario)


def test_a_new_deployment_adopts_the_sets_that_an_orphaning_deletion_left() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 2))
        await world.settle()
        [name] = world.names(REPLICA_SETS)
        pods = {pod.name for pod in world.pods()}
        world.store.delete(DEPLOYMENTS, "default", "web", propagation_policy="Orphan")
        await world.settle()
        assert owner(world, REPLICA_SETS, name) == []
        again = workload("again", 2)
        again["spec"] = workload("web", 2)["spec"]
        world.create(DEPLOYMENTS, again)
        await world.settle()
        assert owner(world, REPLICA_SETS, name) == [("Deployment", "again", True, True)]
        assert world.names(REPLICA_SETS) == [name]
        assert {pod.name for pod in world.pods()} == pods
        world.patch(REPLICA_SETS, name, {"metadata": {"labels": {"app": "other"}}})
        await world.settle()
        assert owner(world, REPLICA_SETS, name) == []
        assert len(world.names(REPLICA_SETS)) == 2

    play(scenario)


def test_a_job_adopts_and_releases_with_its_finalizer() -> None:
    async def scenario(world: World) -> None:
        spec = {"parallelism": 1, "completions": 3, "manualSelector": True, "selector": {"matchLabels": {"app": "j"}}}
        template = pod_template("j", restartPolicy="Never")
        world.create(PODS, bare("mine", "j"))
        world.create(JOBS, {"metadata": {"name": "j"}, "spec": {**spec, "template": template}})
        await world.settle()
        assert owner(world, PODS, "mine") == [("Job", "j", True, True)]
        assert world.get(PODS, "mine")["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
        assert [pod.name for pod in world.pods(app="j")] == ["mine"]
        world.patch(PODS, "mine", {"metadata": {"labels": {"app": "debug"}}})
        await world.settle()
        assert owner(world, PODS, "mine") == []
        assert "finalizers" not in world.get(PODS, "mine")["metadata"]
        assert len(world.pods(app="j")) == 1

    play(scenario)


def test_a_stateful_set_adopts_pods_that_have_its_names_and_lets_go_those_that_match_no_more() -> None:
    async def scenario(world: World) -> None:
        world.create(PODS, bare("web-0", "web"))
        world.create(PODS, bare("stray", "web"))
        world.create(STATEFUL_SETS, workload("web", 2))
        await world.settle()
        assert owner(world, PODS, "web-0") == [("StatefulSet", "web", True, True)]
        assert owner(world, PODS, "stray") == [], "it has no ordinal"
        world.patch(PODS, "web-1", {"metadata": {"labels": {"app": "debug"}}})
        await world.settle()
        assert owner(world, PODS, "web-1") == []
        world.patch(PODS, "web-1", {"metadata": {"labels": {"app": "web"}}})
        await world.settle()
        assert owner(world, PODS, "web-1") == [("StatefulSet", "web", True, True)]

    play(scenario)


def test_a_daemon_set_adopts_the_pod_of_a_node_and_replaces_one_that_it_released() -> None:
    async def scenario(world: World) -> None:
        body = workload("agent", 1)
        del body["spec"]["replicas"]
        world.create(DAEMON_SETS, body)
        await world.settle()
        first, second = (pod.name for pod in world.pods(app="agent"))
        world.patch(PODS, first, {"metadata": {"labels": {"app": "debug"}}})
        await world.settle()
        assert owner(world, PODS, first) == []
        [made] = {pod.name for pod in world.pods(app="agent")} - {second}
        world.patch(PODS, first, {"metadata": {"labels": {"app": "agent"}}})
        await world.settle()
        assert {pod.name for pod in world.pods(app="agent")} == {first, second}, (
            f"{made} is the younger one of its node"
        )

    play(scenario, nodes=2)


@pytest.mark.parametrize("kind", [STATEFUL_SETS, DAEMON_SETS], ids=["statefulset", "daemonset"])
def test_pods_and_revisions_that_an_orphaning_deletion_left_are_taken_over(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        body = workload("web", 2)
        if kind is DAEMON_SETS:
            del body["spec"]["replicas"]
        world.create(kind, body)
        await world.settle()
        before, [revision] = {pod.metadata.uid for pod in world.pods()}, world.names(REVISIONS)
        world.store.delete(kind, "default", "web", propagation_policy="Orphan")
        await world.settle()
        assert owner(world, REVISIONS, revision) == []
        world.create(kind, body)
        await world.settle()
        assert owner(world, REVISIONS, revision) == [(kind.kind, "web", True, True)]
        assert world.names(REVISIONS) == [revision]
        assert {pod.metadata.uid for pod in world.pods()} == before
        assert all(owner(world, PODS, pod.name) == [(kind.kind, "web", True, True)] for pod in world.pods())

    play(scenario, nodes=2)
