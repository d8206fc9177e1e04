"""Claims and volumes: binding, provisioning, release."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from controllers_world import CLAIMS, STORAGE_CLASSES, VOLUMES, Data, World, play, pod_template

from kubesched.api.kinds import NODES, PODS

GI = 1 << 30


def volume(name: str, size: str = "1Gi", storage_class: str = "local", **spec: Any) -> Data:
    return {
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "hostPath": {"path": "/data"},
            **spec,
        },
    }


def claim(name: str, size: str = "1Gi", storage_class: str = "local", **spec: Any) -> Data:
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
            **spec,
        },
    }


def storage_class(name: str, mode: str = "Immediate", provisioner: str = "hollow.example", **more: Any) -> Data:
    return {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **more}


@pytest.mark.parametrize(
    ("case", "wanted", "want"),
    [
        ("the smallest that is large enough", claim("c", "2Gi"), "middle"),
        ("of the same class", claim("c", "2Gi", "other"), "foreign"),
        ("with all access modes", claim("c", accessModes=["ReadWriteMany"]), "shared"),
        ("with the labels asked for", claim("c", selector={"matchLabels": {"name": "large"}}), "large"),
        ("of the same mode", claim("c", volumeMode="Block"), "raw"),
        ("or none", claim("c", "99Gi"), ""),
    ],
)
def test_a_claim_takes_a_volume_that_suits(case: str, wanted: Data, want: str) -> None:
    async def scenario(world: World) -> None:
        for one in (
            volume("small"),
            volume("large", "9Gi"),
            volume("middle", "3Gi"),
            volume("foreign", "9Gi", "other"),
            volume("shared", "50Gi", accessModes=["ReadWriteMany", "ReadWriteOnce"]),
            volume("raw", "70Gi", volumeMode="Block"),
        ):
            world.create(VOLUMES, one)
        world.create(CLAIMS, wanted)
        await world.settle()
        data = world.get(CLAIMS, "c")
        assert data["spec"].get("volumeName", "") == want, case
        assert data["status"]["phase"] == ("Bound" if want else "Pending")
        if want:
            pv = world.get(VOLUMES, want)
            assert pv["status"]["phase"] == "Bound"
            assert pv["spec"]["claimRef"]["uid"] == data["metadata"]["uid"]
            assert data["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
            assert data["status"]["capacity"] == pv["spec"]["capacity"]

    play(scenario)


def test_a_volume_that_comes_later_is_taken_and_two_claims_never_share_one() -> None:
    async def scenario(world: World) -> None:
        for name in ("c1", "c2", "c3"):
            world.create(CLAIMS, claim(name))
        await world.settle()
        for name in ("v1", "v2"):
            world.create(VOLUMES, volume(name))
        await world.settle()
        bound = [world.get(CLAIMS, name)["spec"].get("volumeName") for name in ("c1", "c2", "c3")]
        assert sorted(filter(None, bound)) == ["v1", "v2"]

    play(scenario)


def test_an_immediate_class_provisions_at_once_and_deletes_with_the_claim() -> None:
    async def scenario(world: World) -> None:
        world.create(STORAGE_CLASSES, storage_class("fast"))
        world.create(CLAIMS, claim("c", "5Gi", "fast"))
        await asyncio.sleep(0.5)
        assert world.names(VOLUMES) == [], "that takes a second"
        await world.settle()
        data = world.get(CLAIMS, "c")
        name = f"pvc-{data['metadata']['uid']}"
        assert data["spec"]["volumeName"] == name
        pv = world.get(VOLUMES, name)
        assert pv["spec"]["capacity"] == {"storage": "5Gi"}
        assert pv["spec"]["csi"] == {"driver": "hollow.example", "volumeHandle": name}
        assert pv["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == "hollow.example"
        world.store.delete(CLAIMS, "default", "c")
        await world.settle()
        assert world.names(VOLUMES) == []

    play(scenario)


@pytest.mark.parametrize("case", ["no node chosen", "a node chosen", "no provisioner"])
def test_a_class_that_waits_provisions_where_the_scheduler_says(case: str) -> None:
    async def scenario(world: World) -> None:
        provisioner = "kubernetes.io/no-provisioner" if case == "no provisioner" else "hollow.example"
        world.create(STORAGE_CLASSES, storage_class("late", "WaitForFirstConsumer", provisioner))
        world.create(VOLUMES, volume("free", "9Gi", "late"))
        world.create(CLAIMS, claim("c", "5Gi", "late"))
        if case != "no node chosen":
            world.patch(CLAIMS, "c", {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}})
        await world.settle()
        data = world.get(CLAIMS, "c")
        if case != "a node chosen":
            assert data["status"]["phase"] == "Pending"
            return
        pv = world.get(VOLUMES, data["spec"]["volumeName"])
        assert pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] == [
            {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}
        ]

    play(scenario)


def test_a_volume_set_aside_by_the_scheduler_is_bound() -> None:
    async def scenario(world: World) -> None:
        world.create(STORAGE_CLASSES, storage_class("late", "WaitForFirstConsumer"))
        world.create(VOLUMES, volume("mine", "9Gi", "late"))
        data = world.create(CLAIMS, claim("c", "5Gi", "late"))
        reference = {"namespace": "default", "name": "c", "uid": data["metadata"]["uid"]}
        world.patch(VOLUMES, "mine", {"spec": {"claimRef": reference}})
        await world.settle()
        assert world.get(CLAIMS, "c")["spec"]["volumeName"] == "mine"
        assert world.get(CLAIMS, "c")["status"]["phase"] == "Bound"

    play(scenario)


def test_a_kept_volume_is_released_and_a_claim_without_its_volume_is_lost() -> None:
    async def scenario(world: World) -> None:
        for name in ("v1", "v2"):
            world.create(VOLUMES, volume(name))
        for name in ("c1", "c2"):
            world.create(CLAIMS, claim(name))
        await world.settle()
        first, second = (world.get(CLAIMS, name)["spec"]["volumeName"] for name in ("c1", "c2"))
        world.store.delete(CLAIMS, "default", "c1")
        world.store.delete(VOLUMES, "", second)
        await world.settle()
        assert world.get(VOLUMES, first)["status"]["phase"] == "Released"
        assert world.get(VOLUMES, second)["metadata"]["deletionTimestamp"], "it is in use"
        world.patch(VOLUMES, second, {"metadata": {"finalizers": None}})
        await world.settle()
        assert world.get(CLAIMS, "c2")["status"]["phase"] == "Lost"

    play(scenario)


def test_allowed_topologies_choose_the_zone_of_an_immediate_volume() -> None:
    async def scenario(world: World) -> None:
        topologies = [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a", "b"]}]}]
        world.create(STORAGE_CLASSES, storage_class("fast", allowedTopologies=topologies))
        for index in range(12):
            world.create(CLAIMS, claim(f"c{index}", "1Gi", "fast"))
        await world.settle()
        zones = set()
        for name in world.names(VOLUMES):
            (term,) = world.get(VOLUMES, name)["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            zones |= set(term["matchExpressions"][0]["values"])
        assert zones == {"a", "b"}

    play(scenario)


@pytest.mark.parametrize("provisioner", ["hollow.example", "kubernetes.io/no-provisioner"])
def test_a_claim_that_waits_is_bound_for_the_node_of_its_pod(provisioner: str) -> None:
    async def scenario(world: World) -> None:
        world.create(STORAGE_CLASSES, storage_class("late", "WaitForFirstConsumer", provisioner))
        if provisioner == "kubernetes.io/no-provisioner":
            for name in world.names(NODES):
                terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}]
                affinity = {"required": {"nodeSelectorTerms": terms}}
                world.create(VOLUMES, volume(f"on-{name}", "9Gi", "late", nodeAffinity=affinity))
        world.create(CLAIMS, claim("c", "5Gi", "late"))
        mount = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
        world.create(PODS, {"metadata": {"name": "p"}, "spec": pod_template("p", volumes=[mount])["spec"]})
        await world.settle()
        node, data = world.get(PODS, "p")["spec"]["nodeName"], world.get(CLAIMS, "c")
        assert data["status"]["phase"] == "Bound"
        if provisioner == "hollow.example":
            assert data["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == node
        else:
            assert data["spec"]["volumeName"] == f"on-{node}"

    play(scenario)


def test_an_ephemeral_volume_has_a_claim_that_lives_as_long_as_its_pod() -> None:
    async def scenario(world: World) -> None:
        world.create(STORAGE_CLASSES, storage_class("late", "WaitForFirstConsumer"))
        template = {"metadata": {"labels": {"of": "p"}}, "spec": claim("x", "2Gi", "late")["spec"]}
        mount = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
        pod = world.create(PODS, {"metadata": {"name": "p"}, "spec": pod_template("p", volumes=[mount])["spec"]})
        await world.settle()
        data = world.get(CLAIMS, "p-scratch")
        assert data["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
        assert (data["metadata"]["labels"], data["status"]["phase"]) == ({"of": "p"}, "Bound")
        world.store.delete(PODS, "default", "p")
        await world.settle()
        assert world.names(CLAIMS) == []

    play(scenario)
