"""Claims, slices and classes for tests, in few words."""

from __future__ import annotations

from typing import Any

from kubesched.api.decode import from_builtins
from kubesched.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.api.types import Pod

JSON = dict[str, Any]

DRIVER = "gpu.example.com"


def results(*devices: str, pool: str = "n1", **more: Any) -> JSON:
    """The allocation of these devices."""
    return {
        "devices": {
            "results": [{"request": "gpu", "driver": DRIVER, "pool": pool, "device": name, **more} for name in devices]
        }
    }


def on_node(allocation: JSON, name: str) -> JSON:
    """The allocation, available on one node."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {**allocation, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}


def claim(
    name: str = "c",
    version: int = 1,
    *,
    uid: str = "",
    count: int = 1,
    class_name: str = "gpu",
    allocation: JSON | None = None,
    reserved: tuple[str, ...] = (),
    requests: list[JSON] | None = None,
    devices: list[JSON] | None = None,
    metadata: JSON | None = None,
) -> ResourceClaim:
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    status: JSON = {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved]}
    if allocation is not None:
        status["allocation"] = allocation
    if devices is not None:
        status["devices"] = devices
    body = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            **(metadata or {}),
        },
        "spec": {"devices": {"requests": requests or [{"name": "gpu", "exactly": exactly}]}},
        "status": status,
    }
    return from_builtins(body, ResourceClaim)


def device_class(name: str = "gpu", resource: str | None = None, created: str | None = None) -> DeviceClass:
    spec = {} if resource is None else {"extendedResourceName": resource}
    metadata: JSON = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    if created is not None:
        metadata["creationTimestamp"] = created
    return from_builtins({"metadata": metadata, "spec": spec}, DeviceClass)


def resource_slice(
    node: str = "n1", devices: int | list[JSON] = 2, *, driver: str = DRIVER, name: str = "", **spec: Any
) -> ResourceSlice:
    """A slice of a node with so many devices, ``gpu-0`` and so on, or with these."""
    listed = [{"name": f"gpu-{number}"} for number in range(devices)] if isinstance(devices, int) else devices
    body = {
        "metadata": {"name": name or f"{node}-{driver}", "uid": f"uid-{node}", "resourceVersion": "1"},
        "spec": {
            "driver": driver,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": listed,
            **spec,
        },
    }
    return from_builtins(body, ResourceSlice)


def pod(
    name: str = "p", *claims: str, uid: str = "", requests: JSON | None = None, status: JSON | None = None, **spec: Any
) -> Pod:
    """A pod that uses these claims, by name."""
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "app", "resources": {"requests": requests or {}}}],
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
            **spec,
        },
        "status": status or {},
    }
    return from_builtins(body, Pod)
