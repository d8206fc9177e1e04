"""CSINode objects of hollow nodes: every CSIDriver of the cluster, with its topology label and its limit.

    CSIDriver annotation  kubesched.io/volumes-per-node: "25"                      on every node
    Node annotation       kubesched.io/volumes-per-node: fast.example=10,usb.example=none   there; none: no such driver

A real kubelet writes its CSINode itself. One that anyone else has made stays as it is: ours carry an annotation. Clusters
without a CSIDriver have none. Next: the scheduler counts by them.
"""

from __future__ import annotations

from collections.abc import Iterator
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
        if new is not None and (old is None or _limit(old) != _limit(new)) and len(self._drivers):
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
        spec = {"drivers": list(self._wanted(node))}
        if item is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
            annotations = {_HOLLOW: "true", MIGRATED_PLUGINS: _MIGRATED}
            metadata = {"name": node.name, "annotations": annotations, "ownerReferences": [owner]}
            await self.context.create(CSI_NODES, "", {"metadata": metadata, "spec": spec})
        elif item.data().get("spec") != spec:
            await self.context.patch(item, {"spec": spec})

    def _wanted(self, node: Item) -> Iterator[Data]:
        """The drivers of a node, as its CSINode lists them."""
        own: dict[str, str] = {}
        for part in filter(None, map(str.strip, _limit(node).split(","))):
            driver, given, text = part.partition("=")
            if given and driver:
                own[driver] = text
            else:
                self._complain(node, part)
        for item in sorted(self._drivers.values(), key=lambda item: item.name):
            text = own.get(item.name, _limit(item))
            if text == _NONE:
                continue
            entry: Data = {"name": item.name, "nodeID": node.name}
            if key := topology_key(item):
                entry["topologyKeys"] = [key]
            if text.isascii() and text.isdigit():
                entry["allocatable"] = {"count": min(int(text), (1 << 31) - 1)}
            elif text:
                self._complain(node if item.name in own else item, text)
            yield entry

    def _complain(self, item: Item, text: str) -> None:
        want = "a number, on a node DRIVER=NUMBER or DRIVER=none, with commas between them"
        where = f"{item.kind.kind} {item.name}: annotation {VOLUMES_PER_NODE}"
        self.context.warn(f"{where}: {text!r} is not {want}; no limit is set")


def _limit(item: Item) -> str:
    """What a driver or a node says of how many volumes a node may have."""
    return annotations_of(item).get(VOLUMES_PER_NODE, "")
