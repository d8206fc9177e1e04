"""Scenarios about what a pod needs besides room: volumes, devices, and victims. The scheduler has the shipped role.

What a volume controller and a provisioner do is done here, so that each scenario runs with and without a
kube-controller-manager: both write the same values.
"""

from __future__ import annotations

from typing import Any

from scenario_world import World

from kubesched.api.kinds import (
    CLAIMS,
    DEVICE_CLASSES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    VOLUMES,
)

_SELECTED = "volume.kubernetes.io/selected-node"
_MERGE = "application/merge-patch+json"


def _volume(name: str, node: str, storage_class: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "local": {"path": "/mnt"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return {"metadata": {"name": name}, "spec": spec}


async def _complete(world: World, claim: str, volume: str) -> None:
    """Do the last step of the volume controller: the claim refers to its volume."""
    done = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": volume}}
    await world.client.patch(CLAIMS, "default", claim, done, patch_type=_MERGE)


async def volumes_wait_for_their_first_consumer(world: World) -> None:
    """A claim gets the local volume of a node, another is provisioned on the node that was chosen."""
    await world.nodes(3)
    for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("disk", "disk.example.com")):
        item = {
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await world.client.create(STORAGE_CLASSES, "", item)
        request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        spec = {**request, "storageClassName": name}
        await world.client.create(CLAIMS, "default", {"metadata": {"name": name}, "spec": spec})
    await world.client.create(VOLUMES, "", _volume("on-n2", "n2", "local"))
    scheduler = await world.scheduler("only")
    for name in ("local", "disk"):
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
        await world.create_pods([f"with-{name}"], volumes=volumes)
    found = await world.until_object(VOLUMES, "", "on-n2", lambda volume: "claimRef" in volume["spec"])
    assert (found["spec"]["claimRef"]["name"], found["spec"]["claimRef"]["namespace"]) == ("local", "default")
    await _complete(world, "local", "on-n2")
    claim = await world.until_object(
        CLAIMS, "default", "disk", lambda one: (one["metadata"].get("annotations") or {}).get(_SELECTED)
    )
    node = claim["metadata"]["annotations"][_SELECTED]
    made = _volume("made", node, "disk")
    made["spec"]["claimRef"] = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "disk",
        "uid": claim["metadata"]["uid"],
    }
    await world.client.create(VOLUMES, "", made)
    await _complete(world, "disk", "made")
    await world.all_bound(["with-local", "with-disk"])
    assert (world.node_of("with-local"), world.node_of("with-disk")) == ("n2", node)
    assert await scheduler.terminate() == 0


async def devices_are_allocated(world: World) -> None:
    """A claim is allocated and reserved; the next one finds no device."""
    await world.nodes(2)
    pool = {"name": "n2", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": "n2", "pool": pool, "devices": [{"name": "gpu-0"}]}
    await world.client.create(RESOURCE_SLICES, "", {"metadata": {"name": "n2"}, "spec": spec})
    await world.client.create(DEVICE_CLASSES, "", {"metadata": {"name": "gpu"}, "spec": {}})
    scheduler = await world.scheduler("only")
    for name in ("first", "second"):
        request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
        await world.client.create(RESOURCE_CLAIMS, "default", claim)
        await world.create_pods([name], resourceClaims=[{"name": "c", "resourceClaimName": name}])
        if name == "first":
            await world.all_bound([name])
    assert world.node_of("first") == "n2"
    found = await world.until_object(
        RESOURCE_CLAIMS, "default", "first", lambda one: (one.get("status") or {}).get("allocation")
    )
    (result,) = found["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"], result["device"]) == ("gpu.example.com", "n2", "gpu-0")
    (user,) = found["status"]["reservedFor"]
    assert (user["resource"], user["uid"]) == ("pods", world.pods.get("default", "first").uid)
    (event, *_) = await world.events("second", "FailedScheduling")
    assert "2 cannot allocate all claims" in event["message"]
    assert not world.node_of("second")
    assert await scheduler.terminate() == 0


async def a_victim_makes_room(world: World) -> None:
    """A pod of higher priority evicts one pod, not two, and is bound when it has left."""
    await world.nodes(1, cpu="2")
    await world.client.create(PRIORITY_CLASSES, "", {"metadata": {"name": "urgent"}, "value": 1000})
    scheduler = await world.scheduler("only")
    await world.create_pods(["low1", "low2"], cpu="1", terminationGracePeriodSeconds=1)
    await world.all_bound(["low1", "low2"])
    await world.create_pods(["urgent"], cpu="1", priorityClassName="urgent")
    await world.all_bound(["urgent"])
    assert world.node_of("urgent") == "n1"
    left = [pod.name for pod in world.pods.values() if pod.name.startswith("low")]
    assert len(left) == 1, left
    (victim,) = {"low1", "low2"} - set(left)
    (event, *_) = await world.events(victim, "Preempted")
    assert (event["type"], event["action"]) == ("Normal", "Preempting")
    assert (await world.client.get(PODS, "default", left[0])).typed.metadata.deletion_timestamp is None
    assert await scheduler.terminate() == 0
