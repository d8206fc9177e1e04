"""Hollow nodes as objects: their manifests, and the conditions and images that their kubelets report.

Callers: the command line, simulations and benchmarks; what runs on the nodes is in :mod:`.hollow`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any, Final

from kubesched.api.kinds import NODES
from kubesched.api.types import Pod
from kubesched.api.wire import MERGE_PATCH, ApiError, Transport

__all__ = ["NodeImages", "kubelet_conditions", "make_nodes", "node_template"]

_HOSTNAME = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"
#: Where nodes have their addresses; there are a million.
_NETWORK: Final = IPv4Address("172.16.0.0")
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
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": "100Gi", **(extended or {})}
    if gpus:
        amounts["nvidia.com/gpu"] = gpus
    capacity = {name: str(amount) for name, amount in amounts.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "hollow",
                **(labels or {}),
            }
        },
        "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "operatingSystem": "linux", "architecture": "amd64"},
            **({"images": _listed(images)} if images else {}),
        },
    }


def _listed(images: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"names": [name], "sizeBytes": size} for name, size in images.items()]


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
        address = str(_NETWORK + (index + 1) % 2**20)
        addresses = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
        yield {
            **base,
            "metadata": {**metadata, "name": name, "labels": labels},
            "status": {**status, "addresses": addresses},
        }


class NodeImages:
    """The images that nodes list: those that pods have run there.

    ``sizes`` are bytes by image name; others get a size derived from their name. ``note`` receives problems.
    """

    def __init__(self, client: Transport, sizes: Mapping[str, int], note: Callable[[str], None]) -> None:
        self._client = client
        self._sizes = dict(sizes)
        self._note = note

    async def add(self, node: str, pod: Pod) -> None:
        """List a pod's images on its node, those that are new there; if that fails, the next pod with them tries again."""
        wanted = {_full_name(item.image): None for item in (*pod.spec.init_containers, *pod.spec.containers)}
        try:
            listed = ((await self._client.get(NODES, "", node)).data().get("status") or {}).get("images") or []
            known = {name for image in listed for name in image.get("names") or ()}
            new = {name: self._sizes.get(name) or _made_up_size(name) for name in wanted if name not in known}
            if new:
                change = {"status": {"images": listed + _listed(new)}}
                await self._client.patch(NODES, "", node, change, patch_type=MERGE_PATCH, subresource="status")
        except (ApiError, OSError) as error:
            self._note(f"node {node}: images: {error}")


def _full_name(image: str) -> str:
    """An image with its tag: what no tag means is ``latest``."""
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


def _made_up_size(image: str) -> int:
    """20 MB to 1 GB, always the same for one name."""
    return 20_000_000 + zlib.crc32(image.encode()) % 980_000_000
