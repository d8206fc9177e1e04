"""Events of controllers and kubelets: core/v1, with upstream's words, counted and combined."""

from __future__ import annotations

import asyncio
from typing import Any

from controllers_world import (
    CLAIMS,
    DEPLOYMENTS,
    JOBS,
    QUOTAS,
    REPLICA_SETS,
    World,
    job,
    kind,
    play,
    workload,
)

from kubesched.api.kinds import NODES, PODS
from kubesched.cluster.http.cells import read_job_state

EVENTS = kind("events")


def events(world: World, about: str, source: str = "") -> list[dict[str, Any]]:
    found = [item.data() for item in world.store.list(EVENTS, "default").items]
    return [
        one
        for one in found
        if one["involvedObject"]["name"] == about and source in ("", (one.get("source") or {}).get("component"))
    ]


def said(world: World, about: str, source: str = "") -> list[tuple[str, str, str]]:
    return [(one["type"], one["reason"], one["message"]) for one in events(world, about, source)]


def test_a_deployment_records_how_its_sets_are_scaled() -> None:
    async def scenario(world: World) -> None:
        made = world.create(DEPLOYMENTS, workload("web", 3))
        await world.settle()
        name = world.names(REPLICA_SETS)[0]
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}})
        await world.settle()
        assert said(world, "web", "deployment-controller") == [
            ("Normal", "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to 3"),
            ("Normal", "ScalingReplicaSet", f"Scaled down replica set {name} from 3 to 1"),
        ]
        assert events(world, "web")[0]["involvedObject"]["uid"] == made["metadata"]["uid"]
        reasons = [reason for _, reason, _ in said(world, name, "replicaset-controller")]
        assert sorted(reasons) == ["SuccessfulCreate"] * 3 + ["SuccessfulDelete"] * 2

    play(scenario)


def test_many_pods_of_one_set_are_combined_and_few_events_are_written() -> None:
    async def scenario(world: World) -> None:
        world.create(REPLICA_SETS, workload("big", 60))
        await world.settle()
        found = events(world, "big")
        assert len(found) == 10
        combined = [one for one in found if one["message"].startswith("(combined from similar events): Created pod: ")]
        assert [one["count"] for one in combined] == [16], "25 writes in all, nine of them alone"

    play(scenario)


def test_a_quota_that_is_used_up_is_reported() -> None:
    async def scenario(world: World) -> None:
        world.create(QUOTAS, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}})
        await asyncio.sleep(1)
        world.create(REPLICA_SETS, workload("web", 2))
        await asyncio.sleep(30)
        refused = [one for one in said(world, "web") if one[1] == "FailedCreate"]
        assert refused[0][0] == "Warning"
        assert refused[0][2].startswith("Error creating: pods ")
        assert "exceeded quota: few" in refused[0][2]
        world.patch(REPLICA_SETS, "web", {"spec": {"replicas": 1}})

    play(scenario)


def test_jobs_record_their_end_and_indexed_pods_have_their_index() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, job("good", completions=2, parallelism=2, completionMode="Indexed"))
        world.create(JOBS, job("bad", result="Failed", backoffLimit=0))
        await asyncio.sleep(5)
        pod = next(pod for pod in world.pods() if pod.name.startswith("good-1-"))
        spec = world.get(PODS, pod.name)["spec"]
        assert spec["hostname"] == "good-1"
        path = "metadata.labels['batch.kubernetes.io/job-completion-index']"
        variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        assert spec["containers"][0]["env"] == [variable]
        await world.settle()
        assert said(world, "good")[-1] == ("Normal", "Completed", "Job completed")
        text = "Job has reached the specified backoff limit"
        assert said(world, "bad")[-1] == ("Warning", "BackoffLimitExceeded", text)
        assert read_job_state(world.get(JOBS, "bad"), 0.0) == "Failed"

    play(scenario)


def test_claims_nodes_and_evicted_pods_have_their_events() -> None:
    async def scenario(world: World) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        world.create(CLAIMS, {"metadata": {"name": "alone"}, "spec": {**spec, "storageClassName": ""}})
        world.create(REPLICA_SETS, workload("web", 1))
        await world.settle()
        text = "no persistent volumes available for this claim and no storage class is set"
        assert said(world, "alone") == [("Normal", "FailedBinding", text)]
        pod = world.pods()[0]
        world.kubelets.fail_node(pod.spec.node_name)
        await asyncio.sleep(60)
        node = pod.spec.node_name
        assert ("Normal", "NodeNotReady", f"Node {node} status is now: NodeNotReady") in said(world, node)
        assert ("Warning", "NodeNotReady", "Node is not ready") in said(world, pod.name)
        await asyncio.sleep(320)
        marked = ("Normal", "TaintManagerEviction", f"Marking for deletion Pod default/{pod.name}")
        assert marked in said(world, pod.name, "taint-eviction-controller")
        assert world.get(NODES, node)["spec"]["taints"]
        world.kubelets.recover_node(node)

    play(scenario)


def test_annotations_that_cannot_be_read_are_reported_on_the_pod() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, job("odd", seconds="1s", result="1"))
        world.create(JOBS, job("endless", seconds="1"))
        await asyncio.sleep(20)
        found = {
            pod.split("-")[0]: [
                text for _, reason, text in said(world, pod, "kubelet") if reason == "InvalidAnnotation"
            ]
            for pod in world.names(PODS)
        }
        odd = "annotation kubesched.io/exit: '1' is no phase of a finished pod; write Succeeded or Failed; it counts as Succeeded"
        assert found["odd"] == [odd]
        assert len(found["endless"]) == 1
        assert found["endless"][0].startswith("annotation kubesched.io/duration: '1' is not a duration; write numbers")

    play(scenario)
