"""Hollow drivers: pools and capacity objects, provisioning that fails, CSINodes, attachments, protection."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from controllers_world import (
    ATTACHMENTS,
    CAPACITIES,
    CLAIMS,
    CSI_DRIVERS,
    CSI_NODES,
    STORAGE_CLASSES,
    VOLUMES,
    Data,
    World,
    play,
    pod_template,
)
from test_controllers_volumes import claim, storage_class, volume

from kubesched.api.kinds import CORE_EVENTS, NODES, PODS
from kubesched.cluster.files import import_dump, save

DRIVER = "hollow.example"
SELECTED = "volume.kubernetes.io/selected-node"
ZONE = "topology.kubernetes.io/zone"


def driver(name: str = DRIVER, spec: Data | None = None, **annotations: str) -> Data:
    given = {f"kubesched.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"metadata": {"name": name, "annotations": given}, "spec": spec or {"storageCapacity": True}}


def select(world: World, name: str, node: str) -> None:
    world.patch(CLAIMS, name, {"metadata": {"annotations": {SELECTED: node}}})


def capacities(world: World) -> dict[tuple[str, str], str]:
    found = {}
    for item in world.store.list(CAPACITIES).items:
        data = item.data()
        labels = (data.get("nodeTopology") or {}).get("matchLabels") or {}
        found[data["storageClassName"], next(iter(labels.values()), "")] = data["capacity"]
    return found


def reasons(world: World, name: str) -> list[str]:
    events = [item.data() for item in world.store.list(CORE_EVENTS, "default").items]
    return [event["reason"] for event in events if event["involvedObject"]["name"] == name]


def messages(world: World, name: str, reason: str) -> list[str]:
    events = [item.data() for item in world.store.list(CORE_EVENTS, "default").items]
    return [one["message"] for one in events if (one["involvedObject"]["name"], one["reason"]) == (name, reason)]


def user(name: str, claim_name: str, **spec: Any) -> Data:
    mount = {"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}
    return {"metadata": {"name": name}, "spec": {**pod_template(name, volumes=[mount])["spec"], **spec}}


# -- capacity ----------------------------------------------------------------------------------------------


def test_capacity_objects_follow_what_is_provisioned_and_given_back() -> None:
    async def scenario(world: World) -> None:
        world.create(CSI_DRIVERS, driver(capacity="a=10Gi,b=6Gi"))
        for name in ("fast", "slow"):
            world.create(STORAGE_CLASSES, storage_class(name, "WaitForFirstConsumer", DRIVER))
        own = storage_class("own", "WaitForFirstConsumer", DRIVER)
        own["metadata"]["annotations"] = {"kubesched.io/capacity": "3Gi"}
        world.create(STORAGE_CLASSES, own)
        await world.settle()
        full = {("fast", "a"): "10Gi", ("fast", "b"): "6Gi", ("slow", "a"): "10Gi", ("slow", "b"): "6Gi"}
        full |= {("own", "a"): "3Gi", ("own", "b"): "3Gi"}
        assert capacities(world) == full
        world.create(CLAIMS, claim("c", "4Gi", "fast"))
        select(world, "c", "n0")
        await world.settle()
        pv = world.get(VOLUMES, world.get(CLAIMS, "c")["spec"]["volumeName"])
        [term] = pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term == {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
        assert capacities(world) == full | {("fast", "a"): "6Gi", ("slow", "a"): "6Gi"}
        world.store.delete(CLAIMS, "default", "c")
        await world.settle()
        assert (world.names(VOLUMES), capacities(world)) == ([], full)
        world.store.delete(STORAGE_CLASSES, "", "slow")
        world.add_nodes(1, start=4, labels={})
        world.patch(NODES, "n4", {"metadata": {"labels": {ZONE: "c"}}})
        await world.settle()
        assert {key for key in capacities(world) if key[0] == "fast"} == {("fast", zone) for zone in "abc"}
        assert capacities(world)["fast", "c"] == "0"
        assert not [key for key in capacities(world) if key[0] == "slow"]

    play(scenario)


@pytest.mark.parametrize(("topology", "segment"), [("kubernetes.io/hostname", "n1"), ("", "")])
def test_the_topology_of_a_driver_is_its_annotation(topology: str, segment: str) -> None:
    async def scenario(world: World) -> None:
        world.create(CSI_DRIVERS, driver(topology=topology, capacity="5Gi"))
        world.create(STORAGE_CLASSES, storage_class("fast", "WaitForFirstConsumer", DRIVER))
        world.create(CLAIMS, claim("c", "4Gi", "fast"))
        select(world, "c", "n1")
        await world.settle()
        pv = world.get(VOLUMES, world.get(CLAIMS, "c")["spec"]["volumeName"])
        assert ("nodeAffinity" in pv["spec"]) is bool(topology)
        assert capacities(world)["fast", segment] == "1Gi"
        assert len(capacities(world)) == (4 if topology else 1)
        assert world.get(CSI_NODES, "n1")["spec"]["drivers"][0].get("topologyKeys") == (
            [topology] if topology else None
        )

    play(scenario)


def test_a_capacity_that_cannot_be_read_limits_nothing_and_is_reported() -> None:
    async def scenario(world: World) -> None:
        world.create(CSI_DRIVERS, driver(capacity="a=ten"))
        world.create(STORAGE_CLASSES, storage_class("fast", provisioner=DRIVER))
        world.create(CLAIMS, claim("c", "4Gi", "fast"))
        await world.settle()
        assert world.get(CLAIMS, "c")["status"]["phase"] == "Bound"
        assert capacities(world) == {}
        [problem] = [text for text in world.controllers.problems if "capacity" in text]
        assert problem.startswith(f"CSIDriver {DRIVER}: annotation kubesched.io/capacity: ")
        assert "write an amount such as 100Gi, or zone-a=100Gi,zone-b=20Gi" in problem

    play(scenario)


def test_an_immediate_volume_goes_where_there_is_space() -> None:
    async def scenario(world: World) -> None:
        world.create(CSI_DRIVERS, driver(capacity="a=1Gi,b=50Gi"))
        world.create(STORAGE_CLASSES, storage_class("fast", provisioner=DRIVER))
        for index in range(6):
            world.create(CLAIMS, claim(f"c{index}", "4Gi", "fast"))
        await world.settle()
        assert capacities(world) == {("fast", "a"): "1Gi", ("fast", "b"): "26Gi"}

    play(scenario)


# -- failures ----------------------------------------------------------------------------------------------


def test_without_space_the_selected_node_is_taken_back() -> None:
    async def scenario(world: World) -> None:
        world.create(CSI_DRIVERS, driver(capacity="a=3Gi"))
        world.create(STORAGE_CLASSES, storage_class("fast", "WaitForFirstConsumer", DRIVER))
        world.create(CLAIMS, claim("c", "4Gi", "fast"))
        select(world, "c", "n0")
        await world.settle()
        assert SELECTED not in world.get(CLAIMS, "c")["metadata"]["annotations"]
        [text] = messages(world, "c", "ProvisioningFailed")
        assert text == (
            'failed to provision volume with StorageClass "fast": rpc error: code = ResourceExhausted '
            "desc = 4Gi asked for, 3Gi free in a"
        )

    play(scenario)


def test_other_failures_are_tried_again_where_they_were_and_zones_differ() -> None:
    rules = f"""
stages:
- name: broken
  kind: PersistentVolumeClaim
  selector: {{storageClasses: [fast], nodeLabels: {{{ZONE}: b}}}}
  delay: {{seconds: 2}}
  failure: {{rate: 1, reason: Internal}}
- {{name: fine, kind: PersistentVolumeClaim, selector: {{nodeLabels: {{{ZONE}: a}}}}, delay: {{seconds: 2}}}}
"""

    async def scenario(world: World) -> None:
        world.create(STORAGE_CLASSES, storage_class("fast", "WaitForFirstConsumer", DRIVER))
        for name, node in (("good", "n0"), ("bad", "n1")):
            world.create(CLAIMS, claim(name, "4Gi", "fast"))
            select(world, name, node)
        await asyncio.sleep(1.9)
        assert world.names(VOLUMES) == []
        await asyncio.sleep(0.2)
        assert world.get(CLAIMS, "good")["status"]["phase"] == "Bound"
        await asyncio.sleep(27)  # after 2, 5, 9, 15 and 25 s
        assert world.get(CLAIMS, "bad")["metadata"]["annotations"][SELECTED] == "n1"
        failures = [item.data() for item in world.store.list(CORE_EVENTS).items]
        assert [one["count"] for one in failures if one["reason"] == "ProvisioningFailed"] == [5]
        world.store.delete(CLAIMS, "default", "bad")
        await world.settle()

    play(scenario, stages=rules)


def test_a_claim_deleted_while_its_volume_is_made_leaves_none() -> None:
    async def scenario(world: World) -> None:
        world.create(STORAGE_CLASSES, storage_class("fast", provisioner=DRIVER))
        world.create(CLAIMS, claim("c", "4Gi", "fast"))
        await asyncio.sleep(0.5)
        world.store.delete(CLAIMS, "default", "c")
        await world.settle()
        assert (world.names(CLAIMS), world.names(VOLUMES)) == ([], [])

    play(scenario)


# -- binding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "pv", "reason", "text"),
    [
        (
            "another's",
            {"claimRef": {"namespace": "default", "name": "x", "uid": "1"}},
            "FailedBinding",
            "already bound",
        ),
        ("small", {"capacity": {"storage": "1Mi"}}, "VolumeMismatch", "requested PV is too small"),
        ("of another class", {"storageClassName": "other"}, "VolumeMismatch", "storageClassName does not match"),
        ("a block device", {"volumeMode": "Block"}, "VolumeMismatch", "incompatible volumeMode"),
        ("read only", {"accessModes": ["ReadOnlyMany"]}, "VolumeMismatch", "incompatible accessMode"),
    ],
)
def test_a_claim_that_names_a_volume_it_cannot_have_waits(case: str, pv: Data, reason: str, text: str) -> None:
    async def scenario(world: World) -> None:
        world.create(CLAIMS, claim("x"))
        if "claimRef" in pv:
            pv["claimRef"]["uid"] = world.get(CLAIMS, "x")["metadata"]["uid"]
        world.create(VOLUMES, volume("v", **pv))
        world.create(CLAIMS, claim("c", volumeName="v"))
        await world.settle()
        assert world.get(CLAIMS, "c")["status"]["phase"] == "Pending", case
        [said] = messages(world, "c", reason)
        assert text in said

    play(scenario)


def test_a_volume_reserved_for_a_claim_that_has_another_is_given_back() -> None:
    async def scenario(world: World) -> None:
        world.create(VOLUMES, volume("v"))
        world.create(CLAIMS, claim("c"))
        await world.settle()
        data = world.get(CLAIMS, "c")
        reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c"}
        reference["uid"] = data["metadata"]["uid"]
        late = volume("late", claimRef=reference)
        late["metadata"]["annotations"] = {"pv.kubernetes.io/bound-by-controller": "yes"}
        world.create(VOLUMES, late)
        await world.settle()
        pv = world.get(VOLUMES, "late")
        assert (pv["status"]["phase"], "claimRef" in pv["spec"]) == ("Available", False)
        assert world.get(CLAIMS, "c")["spec"]["volumeName"] == "v"

    play(scenario)


def test_a_claim_in_use_and_a_bound_volume_go_when_they_are_released() -> None:
    async def scenario(world: World) -> None:
        world.create(VOLUMES, volume("v", persistentVolumeReclaimPolicy="Delete"))
        world.create(CLAIMS, claim("c"))
        world.create(PODS, user("p", "c"))
        await world.settle()
        world.store.delete(CLAIMS, "default", "c")
        world.store.delete(VOLUMES, "", "v")
        await world.settle()
        assert world.get(CLAIMS, "c")["metadata"]["deletionTimestamp"]
        assert world.get(VOLUMES, "v")["metadata"]["deletionTimestamp"]
        world.store.delete(PODS, "default", "p")
        await world.settle()
        assert (world.names(CLAIMS), world.names(VOLUMES)) == ([], [])

    play(scenario)


def test_a_claim_says_which_pod_it_waits_for() -> None:
    async def scenario(world: World) -> None:
        world.create(STORAGE_CLASSES, storage_class("late", "WaitForFirstConsumer", DRIVER))
        world.create(CLAIMS, claim("c", "4Gi", "late"))
        await asyncio.sleep(1)
        assert reasons(world, "c") == ["WaitForFirstConsumer"]
        world.create(PODS, user("p", "c", nodeSelector={"no": "where"}))
        await asyncio.sleep(1)
        assert messages(world, "c", "WaitForPodScheduled") == ["waiting for pod p to be scheduled"]
        world.store.delete(PODS, "default", "p")

    play(scenario)


# -- nodes and attachments ---------------------------------------------------------------------------------


def test_csi_nodes_list_the_drivers_with_their_limits() -> None:
    async def scenario(world: World) -> None:
        await world.settle()
        assert world.names(CSI_NODES) == [], "there is no driver"
        world.create(CSI_NODES, {"metadata": {"name": "n3"}, "spec": {"drivers": []}})
        world.create(CSI_DRIVERS, driver(volumes_per_node="25"))
        world.create(CSI_DRIVERS, driver("usb.example", topology="kubernetes.io/hostname"))
        limits = {"metadata": {"annotations": {"kubesched.io/volumes-per-node": f"{DRIVER}=0, usb.example=none"}}}
        world.patch(NODES, "n1", limits)
        await world.settle()
        node = world.get(CSI_NODES, "n0")
        assert (
            "kubernetes.io/aws-ebs" in node["metadata"]["annotations"]["storage.alpha.kubernetes.io/migrated-plugins"]
        )
        assert node["spec"]["drivers"] == [
            {"name": DRIVER, "nodeID": "n0", "topologyKeys": [ZONE], "allocatable": {"count": 25}},
            {"name": "usb.example", "nodeID": "n0", "topologyKeys": ["kubernetes.io/hostname"]},
        ]
        [only] = world.get(CSI_NODES, "n1")["spec"]["drivers"]
        assert (only["name"], only["allocatable"]) == (DRIVER, {"count": 0})
        assert world.get(CSI_NODES, "n3")["spec"]["drivers"] == [], "somebody else made it"
        world.store.delete(NODES, "", "n0")
        world.store.delete(CSI_DRIVERS, "", "usb.example")
        await world.settle()
        assert world.names(CSI_NODES) == ["n1", "n2", "n3"]
        assert [one["name"] for one in world.get(CSI_NODES, "n2")["spec"]["drivers"]] == [DRIVER]

    play(scenario)


@pytest.mark.parametrize("text", ["many", "-1", "1.5"])
def test_a_limit_that_cannot_be_read_is_none_and_is_reported(text: str) -> None:
    async def scenario(world: World) -> None:
        world.create(CSI_DRIVERS, driver(volumes_per_node=text))
        await world.settle()
        assert "allocatable" not in world.get(CSI_NODES, "n0")["spec"]["drivers"][0]
        assert any(f"{text!r} is not a number" in problem for problem in world.controllers.problems)

    play(scenario)


def test_volumes_are_attached_while_pods_use_them() -> None:
    rules = """
stages:
- {name: attach, kind: VolumeAttachment, selector: {deleted: false}, delay: {seconds: 3}}
- {name: detach, kind: VolumeAttachment, selector: {deleted: true}, delay: {seconds: 7}}
"""

    async def scenario(world: World) -> None:
        world.create(STORAGE_CLASSES, storage_class("fast", provisioner=DRIVER))
        world.create(CLAIMS, claim("c", "1Gi", "fast"))
        await world.settle()
        world.create(PODS, user("p", "c"))
        await asyncio.sleep(2.5)
        [name] = world.names(ATTACHMENTS)
        data = world.get(ATTACHMENTS, name)
        assert data["spec"]["attacher"] == DRIVER
        assert data["spec"]["nodeName"] == world.get(PODS, "p")["spec"]["nodeName"]
        assert data["spec"]["source"] == {"persistentVolumeName": world.get(CLAIMS, "c")["spec"]["volumeName"]}
        assert data["status"] == {"attached": False}
        await asyncio.sleep(1)
        assert world.get(ATTACHMENTS, name)["status"] == {"attached": True}
        assert world.get(PODS, "p")["status"]["phase"] == "Pending", "it begins to start now"
        await asyncio.sleep(1)
        assert world.get(PODS, "p")["status"]["phase"] == "Running"
        assert "SuccessfulAttachVolume" in reasons(world, "p")
        world.store.delete(PODS, "default", "p", grace_period_seconds=0)
        await asyncio.sleep(6.5)
        assert world.get(ATTACHMENTS, name)["metadata"]["deletionTimestamp"]
        await asyncio.sleep(1)
        assert world.names(ATTACHMENTS) == []

    play(scenario, stages=rules)


async def with_volumes(world: World, count: int) -> None:
    """Let pods p0, p1, … run, each with a claim of its own."""
    world.create(STORAGE_CLASSES, storage_class("fast", provisioner=DRIVER))
    for index in range(count):
        world.create(CLAIMS, claim(f"c{index}", "1Gi", "fast"))
        world.create(PODS, user(f"p{index}", f"c{index}"))
    await world.settle()


def test_a_volume_is_detached_once() -> None:
    """The answer to the write that ends an attachment is its last version, and not one more to detach."""

    async def scenario(world: World) -> None:
        await with_volumes(world, 5)
        assert len(world.names(ATTACHMENTS)) == 5
        for index in range(5):
            world.store.delete(PODS, "default", f"p{index}", grace_period_seconds=0)
        await world.settle()
        assert world.names(ATTACHMENTS) == []
        assert list(world.controllers.problems) == []

    play(scenario, stages="stages: [{name: detach, kind: VolumeAttachment, delay: {seconds: 7}}]")


def test_a_pod_whose_volume_is_never_attached_does_not_start() -> None:
    async def scenario(world: World) -> None:
        world.create(STORAGE_CLASSES, storage_class("fast", provisioner=DRIVER))
        world.create(CLAIMS, claim("c", "1Gi", "fast"))
        world.create(PODS, user("p", "c"))
        world.create(PODS, user("q", "none") | {"metadata": {"name": "q"}})
        await world.settle()
        phases = {name: world.get(PODS, name)["status"]["phase"] for name in ("p", "q")}
        assert phases == {"p": "Pending", "q": "Pending"}
        assert world.get(PODS, "p")["spec"]["nodeName"]
        [name] = world.names(ATTACHMENTS)
        world.patch(ATTACHMENTS, name, {"status": {"attached": True}}, subresource="status")
        await world.settle()
        assert world.get(PODS, "p")["status"]["phase"] == "Running"

    play(scenario, stages="stages: [{name: never, kind: VolumeAttachment, weight: 0}]")


def test_attaching_may_fail_and_is_tried_again() -> None:
    rules = "stages: [{name: loose, kind: VolumeAttachment, failure: {rate: 0.7, reason: Internal}}]"

    async def scenario(world: World) -> None:
        await with_volumes(world, 8)
        assert [world.get(ATTACHMENTS, name)["status"]["attached"] for name in world.names(ATTACHMENTS)] == [True] * 8
        failed = [text for index in range(8) for text in messages(world, f"p{index}", "FailedAttachVolume")]
        assert failed
        assert all(text.endswith("rpc error: code = Internal desc = stage rule loose") for text in failed)

    play(scenario, stages=rules)


def test_a_driver_that_needs_no_attaching_has_no_attachments() -> None:
    async def scenario(world: World) -> None:
        world.create(CSI_DRIVERS, driver(spec={"attachRequired": False}))
        world.create(STORAGE_CLASSES, storage_class("fast", provisioner=DRIVER))
        world.create(CLAIMS, claim("c", "1Gi", "fast"))
        world.create(PODS, user("p", "c"))
        await world.settle()
        assert world.get(CLAIMS, "c")["status"]["phase"] == "Bound"
        assert world.names(ATTACHMENTS) == []
        assert world.get(PODS, "p")["status"]["phase"] == "Running"

    play(scenario)


# -- saved and imported clusters ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["restored", "imported"])
def test_a_cluster_taken_along_keeps_its_storage(how: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.jsonl"
    kinds = (NODES, STORAGE_CLASSES, CSI_DRIVERS, CSI_NODES, CAPACITIES, CLAIMS, VOLUMES, ATTACHMENTS, PODS)
    before: dict[str, Any] = {}

    def state(world: World) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for one in (CLAIMS, VOLUMES, CSI_NODES, CAPACITIES, ATTACHMENTS):
            for item in world.store.list(one).items:
                data = item.data()
                found[f"{one.plural} {item.key}"] = (
                    item.uid,
                    data.get("spec"),
                    data.get("status"),
                    data.get("capacity"),
                )
        return found

    async def first(world: World) -> None:
        world.create(CSI_DRIVERS, driver(capacity="20Gi", volumes_per_node="3"))
        world.create(STORAGE_CLASSES, storage_class("fast", "WaitForFirstConsumer", DRIVER))
        for name in ("c", "d"):
            world.create(CLAIMS, claim(name, "4Gi", "fast"))
            world.create(PODS, user(f"p{name}", name))
        await world.settle()
        before.update(state(world))
        if how == "restored":
            save(world.store, path)
        else:
            items = [
                {"apiVersion": one.api_version, "kind": one.kind, **item.data()}
                for one in kinds
                for item in world.store.list(one).items
            ]
            path.with_suffix(".json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    async def again(world: World) -> None:
        if how == "imported":
            assert import_dump([path.with_suffix(".json")]).store_in(world.store) == []
        await world.settle()
        assert state(world) == before
        world.create(CLAIMS, claim("e", "16Gi", "fast"))
        world.create(PODS, user("pe", "e"))
        await world.settle()
        taken = world.get(NODES, world.get(PODS, "pc")["spec"]["nodeName"])["metadata"]["labels"][ZONE]
        other = world.get(PODS, "pe")["spec"].get("nodeName")
        assert other is None or world.get(NODES, other)["metadata"]["labels"][ZONE] != taken
        world.store.delete(PODS, "default", "pc")
        world.store.delete(CLAIMS, "default", "c")
        await world.settle()
        assert world.names(CLAIMS) == ["d", "e"]

    play(first)
    play(again, nodes=0, restore_from=path if how == "restored" else None)
