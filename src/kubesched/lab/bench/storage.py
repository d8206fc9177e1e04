"""Storage of workloads: a bound claim and volume for each pod, and the CSINodes of nodes.

Source: rules/benchmark-format §6.1, §6.2. Caller: :mod:`.execute`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubesched.api.kinds import CLAIMS, VOLUMES
from kubesched.api.wire import Transport

from .workloads import AllocatableNodes, WorkloadError

__all__ = ["create_bound_claim", "csi_node", "pod_with_claim"]

#: Name of the pod's one volume.
_VOLUME: Final = "vol"
_MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"


def csi_node(name: str, strategy: AllocatableNodes) -> dict[str, Any]:
    """Return the CSINode of a node: a driver for each count, and the in-tree plugins that are migrated there.

    ``status.allocatable`` stays as it is, as on a server that ignores a status written to the main resource.
    """
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": {"count": limit.count}}
        for driver, limit in strategy.csi_node_allocatable.items()
    ]
    annotations = {_MIGRATED: ",".join(strategy.migrated_plugins)}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": drivers}}


async def create_bound_claim(
    client: Transport, namespace: str, index: int, claim: Mapping[str, Any], volume: Mapping[str, Any]
) -> None:
    """Create a claim and its volume, bound to each other, in upstream's order: claim, its status, volume, its status.

    Raises:
        WorkloadError: when the volume template is neither CSI nor AWS EBS, the only types with a handle to fill in.
    """
    claim_name, volume_name = f"pvc-{index}", f"{namespace}-vol-{index}"
    made = {**claim, "metadata": {**(claim.get("metadata") or {}), "name": claim_name, "namespace": namespace}}
    made["spec"] = {**made["spec"], "volumeName": volume_name}
    item = await client.create(CLAIMS, namespace, made)
    await client.update(CLAIMS, namespace, claim_name, {**item.data(), "status": _BOUND}, subresource="status")
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace, "name": claim_name}
    spec = {**volume["spec"], "claimRef": reference}
    if "csi" in spec:
        spec["csi"] = {**spec["csi"], "volumeHandle": volume_name}
    elif "awsElasticBlockStore" in spec:
        spec["awsElasticBlockStore"] = {**spec["awsElasticBlockStore"], "volumeID": f"vol-{index}"}
    else:
        raise WorkloadError("a template of persistent volumes needs spec.csi or spec.awsElasticBlockStore")
    metadata = {**(volume.get("metadata") or {}), "name": volume_name}
    item = await client.create(VOLUMES, "", {**volume, "metadata": metadata, "spec": spec})
    await client.update(VOLUMES, "", volume_name, {**item.data(), "status": _BOUND}, subresource="status")


_BOUND: Final = {"phase": "Bound"}


def pod_with_claim(pod: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return the pod with a single volume on its claim, in place of its own volumes."""
    volume = {"name": _VOLUME, "persistentVolumeClaim": {"claimName": f"pvc-{index}"}}
    return {**pod, "spec": {**pod["spec"], "volumes": [volume]}}
