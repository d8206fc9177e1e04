"""Hollow nodes as objects: their manifests, and the conditions and images that their kubelets report.

Callers: the command line, simulations and benchmarks; :mod:`.hollow` runs the pods on the nodes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any, Final

from kubesched.api.kinds import NODES
from kubesched.api.types import Pod
from kubesched.api.wire import MERGE_PATCH, ApiError, Transport

__all__ = ["NodeImages", "kubelet_conditions", "make_nodes", "node_template", "zone_names"]

_HOSTNAME = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"
#: Start of the address range of nodes, which has a million addresses.
_NETWORK: Final = IPv4Address("172.16.0.0")
#: Conditions of a healthy node: type, status, reason, message.
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
    """Return a Node manifest without a name.

    ``extended`` adds resources; ``gpus`` is a number of ``nvidia.com/gpu``. ``images`` are present from the start, by
    name and size in bytes.
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
    """Return a node's conditions as its kubelet reports them at a timestamp.

    Given conditions stay and get the timestamps that they lack. Missing conditions are added as healthy.
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


def zone_names(count: int) -> list[str]:
    """Return names for a number of zones: ``zone-a`` to ``zone-z``, then ``zone-aa`` and so on."""
    names = []
    for number in range(1, count + 1):
        letters, left = "", number
        while left:
            left, letter = divmod(left - 1, 26)
            letters = chr(ord("a") + letter) + letters
        names.append(f"zone-{letters}")
    return names


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
    """Yield Node manifests from a template: ``hollow-00000``, ``hollow-00001``, …

    Every node gets its host name label and an address; ``zones`` are dealt out in turn. A template without pod capacity
    gets 110, as a kubelet would report. With ``now``, a timestamp, every node has all conditions of its kubelet since
    then.
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
    """Images in the status of nodes: those that pods have run there.

    ``sizes`` are bytes by image name; others get a size derived from their name. ``note`` receives problems.
    """

    def __init__(self, client: Transport, sizes: Mapping[str, int], note: Callable[[str], None]) -> None:
        self._client = client
        self._sizes = dict(sizes)
        self._note = note

    async def add(self, node: str, pod: Pod) -> None:
        """Add a pod's new images to its node. After a failure the next pod with these images tries again."""
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
    """Return an image with its tag, by default ``latest``."""
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


def _made_up_size(image: str) -> int:
    """Return a size of 20 MB to 1 GB, derived from the name."""
    return 20_000_000 + zlib.crc32(image.encode()) % 980_000_000
