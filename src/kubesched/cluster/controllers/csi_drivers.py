"""Hollow CSI drivers: how much storage there is, where, and how much of it is used; and the CSINodes of hollow nodes.

A driver is described by annotations of its CSIDriver object, which therefore are the configuration of hollow storage:

    kubesched.io/topology: topology.kubernetes.io/zone     the node label that says which nodes reach a volume; the
                                                           zone when left out, empty for storage that all nodes reach
    kubesched.io/capacity: 100Gi                           in each segment (value of that label), or
    kubesched.io/capacity: zone-a=100Gi,zone-b=20Gi        by segment; where none is given there is none
    kubesched.io/volumes-per-node: "25"                    the limit that CSINodes announce; on a Node
    kubesched.io/volumes-per-node: a.example=10,b.example=none    what is different there; none: no such driver

All classes of a driver share its pools; a StorageClass with a ``kubesched.io/capacity`` of its own has its own. Without
any, storage is unlimited. What is used is the sum of the volumes that exist. Callers: :mod:`.provisioner`, :mod:`.manager`.
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
#: What every kubelet of 1.36 announces.
_PLUGINS: Final = ("aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume")
_MIGRATED: Final = ",".join(f"kubernetes.io/{name}" for name in _PLUGINS)
_NO_LIMIT: Final = "is not a number, on a node DRIVER=NUMBER or DRIVER=none, with commas between them; no limit is set"
_ZONE: Final = "topology.kubernetes.io/zone"

#: A node label and its value; two empty texts for storage that every node reaches.
Segment = tuple[str, str]
#: A driver, the class that has this pool alone or an empty text, and a segment's value.
_Pool = tuple[str, str, str]


def _topology_key(driver: Item | None) -> str:
    """The node label that a driver's volumes are bound to, empty for none."""
    return str(annotations_of(driver).get(TOPOLOGY, _ZONE))


def exact_bytes(count: int) -> str:
    """An amount of storage as objects hold it: with a binary suffix only where nothing is lost."""
    return show_amount("storage", count * 10**9)


class Pools:
    """Current capacity and use.

    ``changed`` is called with the names of classes whose free space may be another, and the segment's value, or None for
    all segments.
    """

    def __init__(self, context: Context, changed: Callable[[set[str], str | None], None]) -> None:
        self._context = context
        self._changed = changed
        #: Of the drivers and classes that have a limit: bytes by segment; the entry for ``""`` is that of all others.
        self._amounts: dict[tuple[Kind, str], Mapping[str, int]] = {}
        self._used: Counter[_Pool] = Counter()
        #: The values of topology labels that were asked for.
        self._segments: dict[str, tuple[str, ...]] = {}
        self._drivers = context.watch(CSI_DRIVERS, self._description_changed)
        self._classes = context.watch(STORAGE_CLASSES, self._description_changed)
        self._nodes = context.watch(NODES, self._node_changed)
        self._volumes = context.watch(VOLUMES, self._volume_changed)

    def key_of(self, storage_class: Item) -> str:
        """The topology label of a class's driver."""
        return _topology_key(self._drivers.get(storage_class.typed.provisioner))

    def segments(self, storage_class: Item) -> list[Segment]:
        """Where a class may have volumes, by the labels of the nodes there are; ordered."""
        key = self.key_of(storage_class)
        if not key:
            return [("", "")]
        if key not in self._segments:
            values = {item.typed.metadata.labels.get(key, "") for item in self._nodes.values()}
            self._segments[key] = tuple(sorted(values - {""}))
        return [(key, value) for value in self._segments[key] if _allowed(storage_class.typed, key, value)]

    def free(self, storage_class: Item, segment: str) -> int | None:
        """Bytes that are left in a segment; None when there is no limit."""
        driver: str = storage_class.typed.provisioner
        own = self._amounts.get((STORAGE_CLASSES, storage_class.name))
        amounts = own if own is not None else self._amounts.get((CSI_DRIVERS, driver))
        if amounts is None:
            return None
        taken = self._used[self._pool(driver, storage_class.name, segment)]
        return max(0, amounts.get(segment, amounts.get("", 0)) - taken)

    def _pool(self, driver: str, storage_class: str, segment: str) -> _Pool:
        """Classes without a limit of their own share their driver's pool, also when they are gone."""
        return driver, storage_class if (STORAGE_CLASSES, storage_class) in self._amounts else "", segment

    def _classes_of(self, driver: str) -> set[str]:
        return {item.name for item in self._classes.values() if item.typed.provisioner == driver}

    def _description_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """A driver or a class may have other pools: what is used of them is counted again."""
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
        """What a volume takes from which pool."""
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
        """The amounts that an annotation gives; what cannot be read limits nothing, and is a problem."""
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
    """Keeps the CSINode of every hollow node.

    A real kubelet writes its CSINode itself. One that anyone else has made stays as it is: ours carry an annotation. Clusters
    without a CSIDriver have none. Next: the scheduler counts by them.
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
        """The drivers of a node, as its CSINode lists them."""
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
    """Whether a class's allowedTopologies admit a segment: one term all of whose expressions for its label do."""
    terms = storage_class.allowed_topologies
    return not terms or any(
        all(one.key != key or value in one.values for one in term.match_label_expressions) for term in terms
    )


def _segment_of(spec: PersistentVolumeSpec, key: str) -> str:
    """The segment of a volume, as its node affinity says; empty when it says nothing."""
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        for one in term.match_expressions:
            if one.key == key and one.operator == "In" and one.values:
                return one.values[0]
    return ""


def _limit(item: Item) -> str:
    """What a driver or a node says of how many volumes a node may have."""
    return annotations_of(item).get(VOLUMES_PER_NODE, "")
