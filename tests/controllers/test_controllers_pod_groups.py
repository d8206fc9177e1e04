"""Pod groups in a whole cluster: protection while members run, groups of Jobs, and claims that members share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from controllers_world import JOBS, Data, World, play

from kubesched.api.kinds import (
    CORE_EVENTS,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    WORKLOADS,
)
from kubesched.api.wire import ApiError
from kubesched.cluster.controllers.job_groups import group_name, is_eligible, template_name, workload_name

ON = "AllPodGroups=true"
PROTECTION = "scheduling.k8s.io/podgroup-protection"
CLAIM_SPEC: Data = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
DRIVER = "gpu.example.com"


def a_group(name: str = "g", minimum: int = 0, **spec: Any) -> Data:
    policy = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy, **spec}}


def a_pod(name: str, group: str = "g", **spec: Any) -> Data:
    containers = [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}]
    member = {"schedulingGroup": {"podGroupName": group}} if group else {}
    return {
        "metadata": {"name": name},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **member, **spec},
    }


def a_job(name: str = "train", pods: int = 3, seconds: int = 60, **spec: Any) -> Data:
    template = {
        "metadata": {"annotations": {"kubesched.io/duration": f"{seconds}s"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app:1"}]},
    }
    numbers = {"completionMode": "Indexed", "completions": pods, "parallelism": pods}
    return {"metadata": {"name": name}, "spec": {"template": template, **numbers, **spec}}


# -- protection --------------------------------------------------------------------------------------------


def finalizers(world: World, name: str = "g") -> list[str]:
    return list(world.get(POD_GROUPS, name)["metadata"].get("finalizers") or ())


def test_a_group_outlives_its_members() -> None:
    async def scenario(world: World) -> None:
        world.create(POD_GROUPS, a_group(minimum=2))
        await world.settle()
        assert finalizers(world) == []
        world.create(PODS, a_pod("a"))
        world.create(PODS, a_pod("b"))
        await world.settle()
        assert [pod.spec.node_name != "" for pod in world.pods()] == [True, True]
        assert finalizers(world) == [PROTECTION]
        world.store.delete(POD_GROUPS, "default", "g")
        world.store.delete(PODS, "default", "a")
        await world.settle()
        assert finalizers(world) == [PROTECTION]
        world.patch(PODS, "b", {"status": {"phase": "Succeeded"}}, subresource="status")
        await world.settle()
        assert not world.exists(POD_GROUPS, "g")
        assert world.exists(PODS, "b")

    play(scenario, gates=ON)


def test_a_group_without_members_goes_at_once_and_other_finalizers_stay() -> None:
    async def scenario(world: World) -> None:
        world.create(POD_GROUPS, a_group("empty"))
        kept = a_group("kept")
        kept["metadata"]["finalizers"] = [PROTECTION, "example.com/mine"]
        world.create(POD_GROUPS, kept)
        await world.settle()
        for name in ("empty", "kept"):
            world.store.delete(POD_GROUPS, "default", name)
        await world.settle()
        assert world.names(POD_GROUPS) == ["kept"]
        assert finalizers(world, "kept") == ["example.com/mine"]

    play(scenario, gates=ON)


def test_without_the_gate_pods_have_no_group_and_groups_no_protection() -> None:
    async def scenario(world: World) -> None:
        world.create(POD_GROUPS, a_group(minimum=5))
        world.create(PODS, a_pod("a"))
        await world.settle()
        assert "schedulingGroup" not in world.get(PODS, "a")["spec"]
        assert world.pods()[0].spec.node_name
        assert finalizers(world) == []

    play(scenario)


# -- Jobs --------------------------------------------------------------------------------------------------


def test_an_indexed_job_runs_as_a_gang() -> None:
    async def scenario(world: World) -> None:
        job = world.create(JOBS, a_job(seconds=600))
        await asyncio.sleep(2)
        uid = job["metadata"]["uid"]
        (workload,) = world.names(WORKLOADS)
        made = world.get(WORKLOADS, workload)
        assert made["spec"] == {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "train"},
            "podGroupTemplates": [{"name": "train-pgt-0", "schedulingPolicy": {"gang": {"minCount": 3}}}],
        }
        (group,) = world.names(POD_GROUPS)
        spec = world.get(POD_GROUPS, group)["spec"]
        reference = {"workloadName": workload, "podGroupTemplateName": "train-pgt-0"}
        assert spec["podGroupTemplateRef"] == {"workload": reference}
        assert spec["schedulingPolicy"] == {"gang": {"minCount": 3}}
        owners = [
            (one["kind"], one["uid"] == uid, one.get("controller", False))
            for one in world.get(POD_GROUPS, group)["metadata"]["ownerReferences"]
        ]
        assert owners == [("Job", True, True), ("Workload", False, False)]
        assert {pod.spec.scheduling_group and pod.spec.scheduling_group.pod_group_name for pod in world.pods()} == {
            group
        }
        notes = [item.data()["message"] for item in world.store.list(CORE_EVENTS, "default").items]
        assert f"Created Workload {workload} for Job train" in notes
        with pytest.raises(ApiError, match="cannot change parallelism for a Job referencing gang-scheduled PodGroup"):
            world.patch(JOBS, "train", {"spec": {"parallelism": 2}})
        await world.settle()
        status = world.get(JOBS, "train")["status"]
        assert status["succeeded"] == 3
        world.store.delete(JOBS, "default", "train", propagation_policy="Foreground")
        await world.settle()
        assert world.names(POD_GROUPS) == world.names(WORKLOADS) == []

    play(scenario, gates=ON)


ELIGIBLE = a_job()["spec"]


@pytest.mark.parametrize(
    ("why", "change", "expected"),
    [
        ("an indexed job with all pods at once", {}, True),
        ("not indexed", {"completionMode": "NonIndexed"}, False),
        ("no completion mode", {"completionMode": None}, False),
        ("one pod", {"parallelism": 1, "completions": 1}, False),
        ("no parallelism", {"parallelism": None}, False),
        ("fewer at once", {"parallelism": 2}, False),
        ("no completions", {"completions": None}, False),
        ("a group of its own", {"template": {"spec": {"schedulingGroup": {"podGroupName": "mine"}}}}, False),
    ],
)
def test_eligible_jobs(why: str, change: Data, expected: bool) -> None:
    assert is_eligible({**ELIGIBLE, **change}) is expected, why


def test_a_suspended_job_gets_its_group_before_its_pods() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, a_job(suspend=True))
        await world.settle()
        assert len(world.names(WORKLOADS)) == len(world.names(POD_GROUPS)) == 1
        assert world.pods() == []
        world.patch(JOBS, "train", {"spec": {"suspend": False}})
        await world.settle()
        assert world.get(JOBS, "train")["status"]["succeeded"] == 3
        assert len(world.names(WORKLOADS)) == len(world.names(POD_GROUPS)) == 1

    play(scenario, gates=ON)


@pytest.mark.parametrize("what", ["two workloads", "a workload of another owner", "a group of another owner"])
def test_an_ambiguous_job_gets_ordinary_pods(what: str) -> None:
    async def scenario(world: World) -> None:
        reference = {"apiGroup": "batch", "kind": "Job", "name": "train"}
        template = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 3}}}
        body = {"spec": {"controllerRef": reference, "podGroupTemplates": [template]}}
        if what != "a group of another owner":
            for name in ("w1", "w2") if what == "two workloads" else ("w1",):
                world.create(WORKLOADS, {"metadata": {"name": name}, **body})
            world.create(JOBS, a_job())
        else:
            world.create(JOBS, a_job(suspend=True))
            await world.settle()
            (group,) = world.names(POD_GROUPS)
            world.store.delete(POD_GROUPS, "default", group)
            copy = {"workload": {"workloadName": world.names(WORKLOADS)[0], "podGroupTemplateName": "train-pgt-0"}}
            world.create(POD_GROUPS, a_group("other", podGroupTemplateRef=copy))
            world.patch(JOBS, "train", {"spec": {"suspend": False}})
        await world.settle()
        assert world.get(JOBS, "train")["status"]["succeeded"] == 3
        assert all(pod.spec.scheduling_group is None for pod in world.pods())

    play(scenario, gates=ON)


def test_names_of_workloads_and_groups_fit_and_differ() -> None:
    long = "job." * 70
    assert workload_name("train", "1") != workload_name("train", "2")
    assert workload_name("train", "1") == workload_name("train", "1")
    assert workload_name("train", "1").startswith("train-")
    assert len(workload_name(long, "1")) <= 253
    assert template_name("a.b") == "a-b-pgt-0"
    assert len(template_name(long)) <= 63
    assert group_name("w", "t").startswith("w-t-")
    assert len(group_name("w" * 253, "t" * 63)) == 253
    assert group_name("w" * 253, "t" * 63).count("t") >= 63
    assert group_name("wa", "b") != group_name("wb", "b")


# -- claims ------------------------------------------------------------------------------------------------


def a_template(name: str = "gpu") -> Data:
    return {"metadata": {"name": name}, "spec": {"spec": CLAIM_SPEC}}


SHARED: Data = {"name": "net", "resourceClaimTemplateName": "gpu"}
OWN: Data = {"name": "own", "resourceClaimTemplateName": "gpu"}


def member(name: str, *claims: Data, **spec: Any) -> Data:
    return a_pod(name, resourceClaims=list(claims), schedulingGates=[{"name": "wait"}], **spec)


def recorded(world: World, name: str) -> dict[str, str]:
    statuses = world.get(PODS, name)["status"].get("resourceClaimStatuses") or []
    return {one["name"]: one["resourceClaimName"] for one in statuses}


def reserve(world: World, claim: str, *consumers: Data) -> None:
    """Status that a scheduler writes: an allocation of a device of node n0, and reservations."""
    result = {"request": "gpu", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    world.patch(RESOURCE_CLAIMS, claim, {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}})
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": list(consumers)}
    world.patch(RESOURCE_CLAIMS, claim, {"status": status}, subresource="status")


def group_consumer(world: World, name: str = "g") -> Data:
    uid = world.get(POD_GROUPS, name)["metadata"]["uid"]
    return {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": name, "uid": uid}


def test_members_share_the_claim_of_their_group() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIM_TEMPLATES, a_template())
        world.create(PODS, member("early", SHARED, OWN))
        await world.settle()
        assert world.names(RESOURCE_CLAIMS) == []
        group = world.create(POD_GROUPS, a_group(resourceClaims=[SHARED]))
        world.create(PODS, member("late", SHARED))
        await world.settle()
        (status,) = world.get(POD_GROUPS, "g")["status"]["resourceClaimStatuses"]
        claim = world.get(RESOURCE_CLAIMS, status["resourceClaimName"])
        owner = claim["metadata"]["ownerReferences"][0]
        assert (owner["apiVersion"], owner["kind"], owner["uid"]) == (
            "scheduling.k8s.io/v1alpha2",
            "PodGroup",
            group["metadata"]["uid"],
        )
        assert claim["metadata"]["name"].startswith("g-net-")
        assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "net"}
        assert recorded(world, "early")["net"] == recorded(world, "late")["net"] == status["resourceClaimName"]
        assert recorded(world, "early")["own"] != status["resourceClaimName"]
        assert len(world.names(RESOURCE_CLAIMS)) == 2

    play(scenario, gates=ON)


def test_a_member_gets_claims_of_its_own_once_a_group_without_claims_is_there() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIM_TEMPLATES, a_template())
        world.create(PODS, member("early", OWN))
        await world.settle()
        assert world.names(RESOURCE_CLAIMS) == []
        world.create(POD_GROUPS, a_group())
        await world.settle()
        assert list(recorded(world, "early")) == ["own"]

    play(scenario, gates=ON)


def test_a_reservation_of_a_group_ends_with_the_group() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIMS, {"metadata": {"name": "shared"}, "spec": CLAIM_SPEC})
        by_name = {"name": "net", "resourceClaimName": "shared"}
        world.create(POD_GROUPS, a_group(resourceClaims=[by_name]))
        world.create(PODS, member("a", by_name))
        pod = {"resource": "pods", "name": "a", "uid": world.get(PODS, "a")["metadata"]["uid"]}
        reserve(world, "shared", group_consumer(world), pod)
        await world.settle()
        world.store.delete(PODS, "default", "a")
        await world.settle()
        claim = world.get(RESOURCE_CLAIMS, "shared")
        assert [one["resource"] for one in claim["status"]["reservedFor"]] == ["podgroups"]
        world.store.delete(POD_GROUPS, "default", "g")
        await world.settle()
        claim = world.get(RESOURCE_CLAIMS, "shared")
        assert not claim.get("status", {}).get("reservedFor")
        assert not claim.get("status", {}).get("allocation")

    play(scenario, gates=ON)


def test_without_the_gate_a_reservation_of_a_group_is_kept() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIMS, {"metadata": {"name": "shared"}, "spec": CLAIM_SPEC})
        gone = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "1"}
        reserve(world, "shared", gone)
        await world.settle()
        assert world.get(RESOURCE_CLAIMS, "shared")["status"]["reservedFor"] == [gone]

    play(scenario, gates="GenericWorkload=true")


def test_a_placed_member_reserves_the_claim_for_its_group() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIMS, {"metadata": {"name": "shared"}, "spec": CLAIM_SPEC})
        by_name = {"name": "net", "resourceClaimName": "shared"}
        world.create(POD_GROUPS, a_group(resourceClaims=[by_name]))
        reserve(world, "shared")
        placed = a_pod("a", resourceClaims=[by_name], nodeName="n0")
        world.create(PODS, placed)
        await world.settle()
        assert world.get(RESOURCE_CLAIMS, "shared")["status"]["reservedFor"] == [group_consumer(world)]
        assert world.get(PODS, "a")["status"]["phase"] == "Running"

    play(scenario, gates=ON)


def test_members_leave_a_tainted_device_of_their_group() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIMS, {"metadata": {"name": "shared"}, "spec": CLAIM_SPEC})
        by_name = {"name": "net", "resourceClaimName": "shared"}
        world.create(POD_GROUPS, a_group(resourceClaims=[by_name]))
        reserve(world, "shared", group_consumer(world))
        for name in ("a", "b"):
            world.create(PODS, a_pod(name, resourceClaims=[by_name], nodeName="n0"))
        world.create(PODS, a_pod("other", "", nodeName="n0"))
        await world.settle()
        assert len(world.pods()) == 3
        device = {"name": "gpu-0", "taints": [{"key": "broken", "effect": "NoExecute"}]}
        pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": "n0", "devices": [device]}
        world.create(RESOURCE_SLICES, {"metadata": {"name": "n0-gpus"}, "spec": spec})
        await world.settle()
        assert world.names(PODS) == ["other"]

    play(scenario, gates=ON)


def test_a_missing_template_is_reported_on_the_group_and_waited_for() -> None:
    async def scenario(world: World) -> None:
        world.create(POD_GROUPS, a_group(resourceClaims=[SHARED]))
        await world.settle()
        events = [item.data() for item in world.store.list(CORE_EVENTS, "default").items]
        (failed,) = [one for one in events if one["reason"] == "FailedResourceClaimCreation"]
        assert failed["involvedObject"]["kind"] == "PodGroup"
        assert failed["message"].startswith("PodGroupResourceClaim net: resource claim template")
        world.create(RESOURCE_CLAIM_TEMPLATES, a_template())
        await world.settle()
        assert len(world.get(POD_GROUPS, "g")["status"]["resourceClaimStatuses"]) == 1

    play(scenario, gates=ON)
