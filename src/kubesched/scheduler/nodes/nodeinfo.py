"""Node info: a node, the pods on it, and the sums of their requests (upstream ``framework.NodeInfo``).

A plain plugin gets one node info per call. The cache owns the node infos. Its node table mirrors their numbers into
columns, and the checker of the cache compares the two.

Source: rules/cache-and-events §4.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from kubesched.api.requests import Resources
from kubesched.api.types import Labels, Node, Taint

from .disks import DiskUse
from .podinfo import WILDCARD_IP, HostPort, PodInfo

__all__ = ["NodeInfo", "PortTable"]

_Key = TypeVar("_Key")


class PortTable:
    """Host ports in use: IP to set of (protocol, port).

    Ports are in a set and not counted, as upstream: when one of two pods with the same port is removed, the port
    becomes free (rules/node-plugins §11 quirk 6).
    """

    __slots__ = ("by_ip",)

    def __init__(self) -> None:
        self.by_ip: dict[str, set[tuple[str, int]]] = {}

    def add(self, ports: Iterable[HostPort]) -> None:
        for ip, protocol, port in ports:
            self.by_ip.setdefault(ip, set()).add((protocol, port))

    def remove(self, ports: Iterable[HostPort]) -> None:
        for ip, protocol, port in ports:
            used = self.by_ip.get(ip)
            if used is not None:
                used.discard((protocol, port))
                if not used:
                    del self.by_ip[ip]

    def conflicts(self, wanted: HostPort) -> bool:
        """Return True if a wanted port is taken. A port on the wildcard IP conflicts on any IP; any other port
        conflicts on its own IP and on the wildcard IP.
        """
        if not self.by_ip:
            return False
        ip, protocol, port = wanted
        if ip == WILDCARD_IP:
            return any((protocol, port) in used for used in self.by_ip.values())
        return any((protocol, port) in self.by_ip.get(at, ()) for at in (ip, WILDCARD_IP))

    def __iter__(self) -> Iterator[HostPort]:
        for ip, used in self.by_ip.items():
            for protocol, port in used:
                yield ip, protocol, port

    def __bool__(self) -> bool:
        return bool(self.by_ip)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PortTable) and self.by_ip == other.by_ip

    __hash__ = None  # type: ignore[assignment]


def _release(counts: dict[_Key, int], key: _Key) -> None:
    """Lower a count by 1, and drop it at 0."""
    left = counts.get(key, 0) - 1
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)


class NodeInfo:
    """Node as plugins see it. Plugins must not change it.

    ``row`` is the node's row in the columns. ``node`` is None for an imaginary node (its pods arrived first) and for a
    ghost (the node left before its pods). Plugins see neither.
    """

    __slots__ = (
        "allocatable",
        "disk_counts",
        "image_names",
        "name",
        "node",
        "nonzero_cpu",
        "nonzero_memory",
        "pods",
        "pvc_counts",
        "requested",
        "row",
        "used_ports",
    )

    def __init__(self, name: str, row: int = -1, node: Node | None = None) -> None:
        self.name = name
        self.row = row
        self.node: Node | None = None
        #: UID to pod, in the order of arrival.
        self.pods: dict[str, PodInfo] = {}
        self.allocatable = Resources()
        self.requested = Resources()
        self.nonzero_cpu = 0
        self.nonzero_memory = 0
        self.used_ports = PortTable()
        #: ``namespace/claim`` to the number of volumes that use it.
        self.pvc_counts: dict[str, int] = {}
        #: Use of a disk that is named without a claim, to the number of volumes.
        self.disk_counts: dict[DiskUse, int] = {}
        self.image_names: frozenset[str] = frozenset()
        if node is not None:
            self.set_node(node)

    @property
    def labels(self) -> Labels:
        return self.node.metadata.labels if self.node is not None else {}

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.node.spec.taints if self.node is not None else ()

    @property
    def unschedulable(self) -> bool:
        return self.node is not None and self.node.spec.unschedulable

    def set_node(self, node: Node) -> None:
        """Replace the node object.

        Raises:
            QuantityError: when an allocatable amount is not a quantity; nothing is changed then.
        """
        self.allocatable = Resources.from_list(node.status.allocatable)
        self.node = node
        self.image_names = frozenset(name for image in node.status.images for name in image.names)

    def remove_node(self) -> None:
        """Forget the node object but keep the pods: the node becomes a ghost."""
        self.node = None

    def add_pod(self, pod: PodInfo) -> None:
        self.pods[pod.uid] = pod
        self._account(pod, 1)
        if pod.ports:
            self.used_ports.add(pod.ports)
        if pod.storage:
            for key in pod.pvcs:
                self.pvc_counts[key] = self.pvc_counts.get(key, 0) + 1
            for use in pod.disks:
                self.disk_counts[use] = self.disk_counts.get(use, 0) + 1

    def remove_pod(self, uid: str) -> PodInfo:
        """Remove a pod, and subtract the amounts that were added with it.

        Raises:
            KeyError: when the pod is not on the node.
        """
        pod = self.pods.pop(uid)
        self._account(pod, -1)
        if pod.ports:
            self.used_ports.remove(pod.ports)
        if pod.storage:
            for key in pod.pvcs:
                _release(self.pvc_counts, key)
            for use in pod.disks:
                _release(self.disk_counts, use)
        return pod

    def _account(self, pod: PodInfo, sign: int) -> None:
        requested, asked = self.requested, pod.requests
        requested.milli_cpu += sign * asked.milli_cpu
        requested.memory += sign * asked.memory
        requested.ephemeral_storage += sign * asked.ephemeral_storage
        if asked.scalars:
            scalars = requested.scalars
            for name, amount in asked.scalars.items():
                scalars[name] = scalars.get(name, 0) + sign * amount
        self.nonzero_cpu += sign * pod.nonzero_cpu
        self.nonzero_memory += sign * pod.nonzero_memory

    def __repr__(self) -> str:
        return f"<NodeInfo {self.name} row {self.row}, {len(self.pods)} pods>"
