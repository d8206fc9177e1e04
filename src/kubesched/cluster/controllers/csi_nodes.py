"""CSINode objects of hollow nodes: every CSIDriver of the cluster, with its topology label and its limit.

    CSIDriver annotation  kubesched.io/volumes-per-node: "25"                      on every node
    Node annotation       kubesched.io/volumes-per-node: fast.example=10,usb.example=none   there; none: no such driver

A real kubelet writes its CSINode itself. One that anyone else has made stays as it is: ours carry an annotation. Clusters
without a CSIDriver have none. Next: the scheduler counts by them.
"""

from __future__ import annotations

from typing import Final

from ...api.kinds import CSI_DRIVERS, CSI_NODES, NODES
from ...api.storage import MIGRATED_PLUGINS
from ...api.wire import Item
from .base import Controller
from .context import Context, Data
from .storage_pools import annotations_of, topology_key

__all__ = ["VOLUMES_PER_NODE", "CsiNodes"]

VOLUMES_PER_NODE: Final = "kubesched.io/volumes-per-node"
_HOLLOW: Final = "kubesched.io/hollow"
#: What every kubelet of 1.36 announces.
_PLUGINS: Final = ("aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume")
_MIGRATED: Final = ",".join(f"kubernetes.io/{name}" for name in _PLUGINS)
_NONE: Final = "none"


class CsiNodes(Controller):
    """Keys are nodes."""

    name = "csi-node"
    component = "kubelet"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = self.watch(NODES, self._node_changed)
        self._drivers = self.watch(CSI_DRIVERS, self._driver_changed)
        self._csi_nodes = self.watch(CSI_NODES, self._csi_node_changed)

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and (old is None or _limits(old) != _limits(new)) and len(self._drivers):
            self.queue.add(new.name)

    def _driver_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        for node in self._nodes.values():
            self.queue.add(node.name)

    def _csi_node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None and len(self._drivers):
            self.queue.add(item.name)

    async def reconcile(self, key: str) -> None:
        node, item = self._nodes.get(key), self._csi_nodes.get(key)
        if node is None or (item is not None and annotations_of(item).get(_HOLLOW) != "true"):
            return
        spec = {"drivers": self._wanted(node)}
        if item is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
            annotations = {_HOLLOW: "true", MIGRATED_PLUGINS: _MIGRATED}
            metadata = {"name": node.name, "annotations": annotations, "ownerReferences": [owner]}
            await self.context.create(CSI_NODES, "", {"metadata": metadata, "spec": spec})
        elif item.data().get("spec") != spec:
            await self.context.patch(item, {"spec": spec})

    def _wanted(self, node: Item) -> list[Data]:
        own = self._own_limits(node)
        drivers: list[Data] = []
        for driver in sorted(self._drivers.values(), key=lambda item: item.name):
            text = own.get(driver.name, annotations_of(driver).get(VOLUMES_PER_NODE, ""))
            if text == _NONE:
                continue
            entry: Data = {"name": driver.name, "nodeID": node.name}
            key = topology_key(driver)
            if key:
                entry["topologyKeys"] = [key]
            if text.isascii() and text.isdigit():
                entry["allocatable"] = {"count": min(int(text), (1 << 31) - 1)}
            elif text:
                self._complain(driver if driver.name not in own else node, text)
            drivers.append(entry)
        return drivers

    def _own_limits(self, node: Item) -> dict[str, str]:
        limits: dict[str, str] = {}
        for part in _limits(node).split(","):
            driver, given, text = part.strip().partition("=")
            if given and driver:
                limits[driver] = text
            elif part.strip():
                self._complain(node, part.strip())
        return limits

    def _complain(self, item: Item, text: str) -> None:
        want = "a number, on a node DRIVER=NUMBER or DRIVER=none, with commas between them"
        where = f"{item.kind.kind} {item.name}: annotation {VOLUMES_PER_NODE}"
        self.context.warn(f"{where}: {text!r} is not {want}; no limit is set")


def _limits(node: Item) -> str:
    return str(node.typed.metadata.annotations.get(VOLUMES_PER_NODE, ""))
