"""Hollow nodes as objects: a template and a count in, manifests of Nodes out.

Caller: the command line, simulations and benchmarks. What runs on them is in :mod:`.hollow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

__all__ = ["kubelet_conditions", "make_nodes", "node_template"]

_HOSTNAME = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"
#: What a kubelet reports of a healthy node: type, status, reason, message.
_HEALTHY: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def node_template(
    *,
    cpu: str | int = "8",
    memory: str = "32Gi",
    pods: str | int = "110",
    ephemeral_storage: str = "100Gi",
    instance_type: str = "hollow",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    extended: Mapping[str, str | int] | None = None,
    gpus: int = 0,
    images: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """A Node manifest without a name.

    ``extended`` adds resources; ``gpus`` is short for so many ``nvidia.com/gpu``. ``images`` are those the node has
    already, by name and size in bytes.
    """
    capacity: dict[str, Any] = {
        "cpu": str(cpu),
        "memory": memory,
        "pods": str(pods),
        "ephemeral-storage": ephemeral_storage,
        **{name: str(amount) for name, amount in (extended or {}).items()},
    }
    if gpus:
        capacity["nvidia.com/gpu"] = str(gpus)
    spec: dict[str, Any] = {"taints": [dict(taint) for taint in taints]} if taints else {}
    status: dict[str, Any] = {}
    if images:
        status["images"] = [{"names": [name], "sizeBytes": size} for name, size in images.items()]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": instance_type,
                **(labels or {}),
            }
        },
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "operatingSystem": "linux", "architecture": "amd64"},
            **status,
        },
    }


def kubelet_conditions(now: str, given: Iterable[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """A node's conditions as its kubelet reports them at a timestamp.

    Those that are given stay what they are and get the timestamps they lack; those that are missing are healthy.
    """
    known = {str(condition.get("type")): condition for condition in given}
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    reported = []
    for type_, status, reason, message in _HEALTHY:
        healthy = {"type": type_, "status": status, "reason": reason, "message": message}
        condition = known.pop(type_, healthy)
        as_healthy = healthy if (condition.get("status"), condition.get("reason", reason)) == (status, reason) else {}
        reported.append({**times, **as_healthy, **condition})
    return reported + [{**times, **condition} for condition in known.values()]


def make_nodes(
    count: int,
    template: Mapping[str, Any] | None = None,
    *,
    prefix: str = "hollow-",
    zones: Sequence[str] = (),
    start: int = 0,
    width: int = 5,
    now: str = "",
) -> Iterator[dict[str, Any]]:
    """Node manifests from a template: ``hollow-00000``, ``hollow-00001``, …

    Every node gets its host name label and an address; ``zones`` are dealt out in turn. A template that lists no
    pod capacity gets 110, as a kubelet would report. With ``now``, a timestamp, every node has all the conditions
    that its kubelet reports, since then.
    """
    base = dict(template) if template is not None else node_template()
    metadata, status = dict(base.get("metadata") or {}), dict(base.get("status") or {})
    metadata.pop("name", None)
    metadata.pop("generateName", None)
    for field in ("capacity", "allocatable"):
        if status.get(field):
            status[field] = {"pods": "110", **status[field]}
    if now:
        status["conditions"] = kubelet_conditions(now, status.get("conditions") or ())
    for index in range(start, start + count):
        name = f"{prefix}{index:0{width}d}"
        labels = {**(metadata.get("labels") or {}), _HOSTNAME: name}
        if zones:
            labels[_ZONE] = zones[(index - start) % len(zones)]
        addresses = [{"type": "InternalIP", "address": _address(index)}, {"type": "Hostname", "address": name}]
        yield {
            **base,
            "metadata": {**metadata, "name": name, "labels": labels},
            "status": {**status, "addresses": addresses},
        }


def _address(index: int) -> str:
    number = index + 1
    return f"172.{16 + (number >> 16) % 16}.{(number >> 8) & 255}.{number & 255}"
