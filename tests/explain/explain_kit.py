"""Clusters of a few lines with all in-tree plugins, devices among them, and their explanations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from builders import a_pod
from kubesched.api.decode import from_builtins
from kubesched.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from kubesched.api.types import Node, Pod, PodResourceClaim
from kubesched.explain.pending import PendingExplanation, explain_pod
from kubesched.scheduler.nodes import PodInfo
from search_kit import SIGNING, House

DRIVER = "gpu.example.com"
PLUGINS = (
    *SIGNING,
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
)


_PLURALS: dict[type, str] = {
    ResourceClaim: "resourceclaims",
    DeviceClass: "deviceclasses",
    ResourceSlice: "resourceslices",
    PersistentVolume: "persistentvolumes",
    PersistentVolumeClaim: "persistentvolumeclaims",
    StorageClass: "storageclasses",
    CSINode: "csinodes",
}


def a_house(nodes: Iterable[Node], pods: Iterable[Pod] = (), objects: Iterable[Any] = (), **how: Any) -> House:
    """A house with all plugins, these pods on nodes, and these claims, classes and slices."""
    house = House(nodes, **{"plugins": PLUGINS, **how})
    for one in objects:
        meta = one.metadata
        house.objects.put(_PLURALS[type(one)], f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name, one)
    house.add(*pods)
    return house


def explained(house: House, pod: Pod) -> PendingExplanation:
    return explain_pod(house.framework, house.search, PodInfo(pod))


def a_class(name: str = "gpu", expression: str = "") -> DeviceClass:
    selectors = [{"cel": {"expression": expression}}] if expression else []
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    return from_builtins({"metadata": meta, "spec": {"selectors": selectors}}, DeviceClass)


def a_slice(node: str, devices: int | Sequence[Mapping[str, Any]] = 2, **spec: Any) -> ResourceSlice:
    """A slice of a node with so many devices, ``gpu-0`` and so on, or with these members of devices."""
    members: Sequence[Mapping[str, Any]] = [{}] * devices if isinstance(devices, int) else devices
    body = {
        "metadata": {"name": f"{node}-{DRIVER}", "uid": f"uid-{node}", "resourceVersion": "1"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": [{"name": f"gpu-{number}", **member} for number, member in enumerate(members)],
            **spec,
        },
    }
    return from_builtins(body, ResourceSlice)


def a_claim(
    name: str = "c",
    count: int = 1,
    *,
    constraints: Sequence[Mapping[str, Any]] = (),
    held: Sequence[str] = (),
    node: str = "n1",
    users: Sequence[str] = (),
    requests: Sequence[Mapping[str, Any]] | None = None,
    **exactly: Any,
) -> ResourceClaim:
    """A claim of the namespace ``ns``. ``held`` are its devices on a node, which ``users`` use."""
    exact = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **exactly}
    status: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": user, "uid": user} for user in users]}
    if held:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        status["allocation"] = {
            "devices": {
                "results": [{"request": "gpu", "driver": DRIVER, "pool": node, "device": device} for device in held]
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": {
            "devices": {"requests": requests or [{"name": "gpu", "exactly": exact}], "constraints": list(constraints)}
        },
        "status": status,
    }
    return from_builtins(body, ResourceClaim)


def uses(*claims: str, name: str = "p", **more: Any) -> Pod:
    """A pod that uses these claims."""
    listed = tuple(PodResourceClaim(name=claim, resource_claim_name=claim) for claim in claims)
    return a_pod(name, resource_claims=listed, **more)


def texts(found: PendingExplanation) -> list[str]:
    return [one.text for one in found.obstacles.found]


def helps(found: PendingExplanation) -> list[tuple[tuple[str, ...], int]]:
    return [(one.texts, len(one.rows)) for one in found.remedies]
