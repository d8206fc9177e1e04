"""Hollow CSI drivers: the amount, place and use of their storage, and the CSINodes of hollow nodes.

Annotations of a CSIDriver object describe the driver. They are the configuration of hollow storage::

    kubesched.io/topology: topology.kubernetes.io/zone          the node label that says which nodes reach a volume;
                                                                absent: the zone; empty: all nodes reach all volumes
    kubesched.io/capacity: 100Gi                                capacity of each segment (value of that label), or
    kubesched.io/capacity: zone-a=100Gi,zone-b=20Gi             by segment; segments that are not named have none
    kubesched.io/volumes-per-node: "25"                         the limit in CSINodes
    kubesched.io/volumes-per-node: a.example=10,b.example=none  on a Node: its own limits; none: the driver is not there

All classes of a driver share its pools. A StorageClass that is annotated with ``kubesched.io/capacity`` has pools of
its own. Without this annotation storage is unlimited. Used storage is the sum of the volumes that exist. Callers:
:mod:`.provisioner`, :mod:`.manager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kubesched.api.kinds import CSI_DRIVERS, CSI_NODES, NODES, STORAGE_CLASSES, VOLUMES, Kind
from kubesched.api.quantity import QuantityError, int_value
from kubesched.api.storage import MIGRATED_PLUGINS, PersistentVolumeSpec, StorageClass, class_of
from kubesched.api.wire import Item

from ..admission import show_amount
from .base import ObjectController
from .context import Context, Data, annotations_of, differ

__all__ = ["CsiNodes", "Pools", "Segment", "exact_bytes"]

TOPOLOGY: Final = "kubesched.io/topology"
CAPACITY: Final = "kubesched.io/capacity"
VOLUMES_PER_NODE: Final = "kubesched.io/volumes-per-node"
_HOLLOW: Final = "kubesched.io/hollow"
#: In-tree plugins that every kubelet of 1.36 announces.
_PLUGINS: Final = ("aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume")
_MIGRATED: Final = ",".join(f"kubernetes.io/{name}" for name in _PLUGINS)
_NO_LIMIT: Final = "is not a number, on a node DRIVER=NUMBER or DRIVER=none, with commas between them; no limit is set"
_ZONE: Final = "topology.kubernetes.io/zone"

#: Node label and its value; two empty texts for storage that every node reaches.
Segment = tuple[str, str]
#: Name of the driver, name of the class whose pool this is (empty for the shared pool), value of the segment.
_Pool = tuple[str, str, str]


def _topology_key(driver: Item | None) -> str:
    """Return the node label that a driver's volumes are bound to; empty for none."""
    return str(annotations_of(driver).get(TOPOLOGY, _ZONE))


def exact_bytes(count: int) -> str:
    """Return an amount of storage as text, with a binary suffix only where it is exact."""
    return show_amount("storage", count * 10**9)


class Pools:
    """Capacity and use of all pools.

    ``changed`` is called with names of classes whose free space may have changed, and the value of the segment (None:
    all segments).
    """

    def __init__(self, context: Context, changed: Callable[[set[str], str | None], None]) -> None:
        self._context = context
        self._changed = changed
        #: Bytes by segment, for each driver and class with a limit. The entry ``""`` is for all other segments.
        self._amounts: dict[tuple[Kind, str], Mapping[str, int]] = {}
        self._used: Counter[_Pool] = Counter()
        #: Values of the topology labels that were asked for.
        self._segments: dict[str, tuple[str, ...]] = {}
        self._drivers = context.watch(CSI_DRIVERS, self._description_changed)
        self._classes = context.watch(STORAGE_CLASSES, self._description_changed)
        self._nodes = context.watch(NODES, self._node_changed)
        self._volumes = context.watch(VOLUMES, self._volume_changed)

    def key_of(self, storage_class: Item) -> str:
        """Return the topology label of a class's driver."""
        return _topology_key(self._drivers.get(storage_class.typed.provisioner))

    def segments(self, storage_class: Item) -> list[Segment]:
        """Return the segments where a class may have volumes, by the labels of existing nodes; ordered."""
        key = self.key_of(storage_class)
        if not key:
            return [("", "")]
        if key not in self._segments:
            values = {item.typed.metadata.labels.get(key, "") for item in self._nodes.values()}
            self._segments[key] = tuple(sorted(values - {""}))
        return [(key, value) for value in self._segments[key] if _allowed(storage_class.typed, key, value)]

    def free(self, storage_class: Item, segment: str) -> int | None:
        """Return the free bytes of a segment; None without a limit."""
        driver: str = storage_class.typed.provisioner
        own = self._amounts.get((STORAGE_CLASSES, storage_class.name))
        amounts = own if own is not None else self._amounts.get((CSI_DRIVERS, driver))
        if amounts is None:
            return None
        taken = self._used[self._pool(driver, storage_class.name, segment)]
        return max(0, amounts.get(segment, amounts.get("", 0)) - taken)

    def _pool(self, driver: str, storage_class: str, segment: str) -> _Pool:
        """Return the pool of a class. Classes without a limit of their own, or deleted, share their driver's pool."""
        return driver, storage_class if (STORAGE_CLASSES, storage_class) in self._amounts else "", segment

    def _classes_of(self, driver: str) -> set[str]:
        return {item.name for item in self._classes.values() if item.typed.provisioner == driver}

    def _description_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Recount the use of pools after a driver or class changed."""
        self._amounts.pop((item.kind, item.name), None)
        if new is not None and (amounts := self._read(new)) is not None:
            self._amounts[item.kind, item.name] = amounts
        self._used.clear()
        for volume in self._volumes.values():
            self._used.update(self._use(volume))
        if item.kind == CSI_DRIVERS:
            self._changed(self._classes_of(item.name), None)
        else:
            self._changed({item.name} | self._classes_of(item.typed.provisioner), None)

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        before, after = (one.typed.metadata.labels if one is not None else {} for one in (old, new))
        keys = [key for key in self._segments if before.get(key) != after.get(key)]
        for key in keys:
            del self._segments[key]
        if keys:
            self._changed({one.name for one in self._classes.values() if self.key_of(one) in keys}, None)

    def _volume_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        before, after = self._use(old), self._use(new)
        if before != after:
            self._used.subtract(before)
            self._used.update(after)
            for driver, _, segment in (*before, *after):
                self._changed(self._classes_of(driver), segment)

    def _use(self, item: Item | None) -> dict[_Pool, int]:
        """Return the bytes that a volume takes from its pool."""
        spec: PersistentVolumeSpec | None = item.typed.spec if item is not None else None
        if item is None or spec is None or spec.csi is None:
            return {}
        segment = _segment_of(spec, _topology_key(self._drivers.get(spec.csi.driver)))
        try:
            size = int_value(spec.capacity.get("storage", "0"))
        except QuantityError:
            return {}
        return {self._pool(spec.csi.driver, class_of(item.typed), segment): size}

    def _read(self, item: Item) -> dict[str, int] | None:
        """Return the amounts in an annotation. An unreadable annotation sets no limit and is recorded as a problem."""
        text = annotations_of(item).get(CAPACITY)
        if text is None:
            return None
        amounts: dict[str, int] = {}
        try:
            for part in text.split(","):
                segment, given, amount = part.strip().rpartition("=")
                if given and not segment:
                    raise ValueError(f"{part.strip()!r} names no segment")
                amounts[segment] = int_value(amount)
        except ValueError as error:
            want = "write an amount such as 100Gi, or zone-a=100Gi,zone-b=20Gi; until then there is no limit"
            _complain(self._context, item, CAPACITY, f"{error}; {want}")
            return None
        return amounts


class CsiNodes(ObjectController):
    """Controller that keeps the CSINode of every hollow node.

    A real kubelet writes its CSINode itself. A CSINode without our annotation is left alone. Clusters without a
    CSIDriver have none. Next: the scheduler counts volumes by them.
    """

    name = "csi-node"
    component = "kubelet"
    kind = NODES

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._drivers = context.watch(CSI_DRIVERS, self._driver_changed)
        self._csi_nodes = context.watch(CSI_NODES, self._csi_node_changed)

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and differ(old, new, _limit) and len(self._drivers):
            self.queue.add(new.name)

    def _driver_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        for node in self.cache.values():
            self.queue.add(node.name)

    def _csi_node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None and len(self._drivers):
            self.queue.add(item.name)

    async def reconcile_object(self, node: Item) -> None:
        item = self._csi_nodes.get(node.name)
        if item is not None and annotations_of(item).get(_HOLLOW) != "true":
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
        """Yield the drivers of a node, in the form of its CSINode."""
        own: dict[str, str] = {}
        for part in filter(None, map(str.strip, _limit(node).split(","))):
            driver, given, text = part.partition("=")
            if given and driver:
                own[driver] = text
            else:
                _complain(self.context, node, VOLUMES_PER_NODE, f"{part!r} {_NO_LIMIT}")
        for item in sorted(self._drivers.values(), key=lambda item: item.name):
            text = own.get(item.name, _limit(item))
            if text == "none":
                continue
            entry: Data = {"name": item.name, "nodeID": node.name}
            if key := _topology_key(item):
                entry["topologyKeys"] = [key]
            if text.isascii() and text.isdigit():
                entry["allocatable"] = {"count": min(int(text), (1 << 31) - 1)}
            elif text:
                source = node if item.name in own else item
                _complain(self.context, source, VOLUMES_PER_NODE, f"{text!r} {_NO_LIMIT}")
            yield entry


def _complain(context: Context, item: Item, annotation: str, text: str) -> None:
    context.problems.warn(f"{item.kind.kind} {item.name}: annotation {annotation}: {text}")


def _allowed(storage_class: StorageClass, key: str, value: str) -> bool:
    """True if a class's allowedTopologies admit a segment: all expressions for its label in one of the terms do."""
    terms = storage_class.allowed_topologies
    return not terms or any(
        all(one.key != key or value in one.values for one in term.match_label_expressions) for term in terms
    )


def _segment_of(spec: PersistentVolumeSpec, key: str) -> str:
    """Return the segment of a volume by its node affinity; empty when it names none."""
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        for one in term.match_expressions:
            if one.key == key and one.operator == "In" and one.values:
                return one.values[0]
    return ""


def _limit(item: Item) -> str:
    """Return the annotation of a driver or a node about the number of volumes per node."""
    return annotations_of(item).get(VOLUMES_PER_NODE, "")
