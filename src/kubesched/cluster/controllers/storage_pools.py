"""How much storage there is, where, and how much of it is used: the hollow drivers' pools.

A driver is described by annotations of its CSIDriver object, which therefore are the configuration of hollow storage:

    kubesched.io/topology: topology.kubernetes.io/zone     the node label that says which nodes reach a volume; the
                                                           zone when left out, empty for storage that all nodes reach
    kubesched.io/capacity: 100Gi                           in each segment (value of that label), or
    kubesched.io/capacity: zone-a=100Gi,zone-b=20Gi        by segment; where none is given there is none
    kubesched.io/volumes-per-node: "25"                    the limit that CSINodes announce, see :mod:`.csi_nodes`

All classes of a driver share its pools; a StorageClass with a ``kubesched.io/capacity`` of its own has its own. Without
any, storage is unlimited. What is used is the sum of the volumes that exist. Caller: :mod:`.provisioner`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ...api.kinds import CSI_DRIVERS, NODES, STORAGE_CLASSES, VOLUMES
from ...api.quantity import QuantityError, int_value
from ...api.storage import PersistentVolumeSpec, StorageClass, class_of
from ...api.wire import Item
from ..admission import show_amount
from .context import Context

__all__ = ["Pools", "Segment", "annotations_of", "exact_bytes", "topology_key"]

TOPOLOGY: Final = "kubesched.io/topology"
CAPACITY: Final = "kubesched.io/capacity"

_ZONE: Final = "topology.kubernetes.io/zone"

#: A node label and its value; two empty texts for storage that every node reaches.
Segment = tuple[str, str]
#: Bytes by value of the topology label; the entry for ``""`` is that of all others.
_Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Used:
    """What one volume takes from which pool."""

    driver: str
    storage_class: str
    segment: str
    size: int


def annotations_of(item: Item | None) -> dict[str, str]:
    """The annotations of an object, none of none."""
    return dict(item.typed.metadata.annotations) if item is not None else {}


def topology_key(driver: Item | None) -> str:
    """The node label that a driver's volumes are bound to, empty for none."""
    return str(annotations_of(driver).get(TOPOLOGY, _ZONE))


def exact_bytes(count: int) -> str:
    """An amount of storage as objects hold it: with a binary suffix only where nothing is lost."""
    return show_amount("storage", count * 10**9)


def _allowed(storage_class: StorageClass, segment: Segment) -> bool:
    """Whether a class's allowedTopologies admit a segment: one term all of whose expressions for its label do."""
    terms, (key, value) = storage_class.allowed_topologies, segment
    return not terms or any(
        all(one.key != key or value in one.values for one in term.match_label_expressions) for term in terms
    )


class Pools:
    """Current capacity and use.

    ``changed`` is called with the names of classes whose free space may be another, and the segment's value, or None for
    all segments.
    """

    def __init__(self, context: Context, changed: Callable[[set[str], str | None], None]) -> None:
        self._context = context
        self._changed = changed
        self._drivers = context.cache(CSI_DRIVERS)
        self._classes = context.cache(STORAGE_CLASSES)
        self._nodes = context.cache(NODES)
        self._amounts: dict[str, _Amounts | None] = {}
        #: (driver, segment) to class to bytes.
        self._used: dict[tuple[str, str], dict[str, int]] = {}
        self._volumes: dict[str, _Used] = {}
        self._segments: dict[str, tuple[str, ...]] = {}
        self._drivers.add_handler(self._driver_changed)
        self._classes.add_handler(self._class_changed)
        self._nodes.add_handler(self._node_changed)
        context.cache(VOLUMES).add_handler(self._volume_changed)

    # -- asking ----------------------------------------------------------------------------------------

    def is_limited(self, storage_class: Item) -> bool:
        """Whether a class draws on a pool at all."""
        return self._amounts_of(storage_class) is not None

    def key_of(self, storage_class: Item) -> str:
        """The topology label of a class's driver."""
        return topology_key(self._drivers.get(_provisioner(storage_class)))

    def segments(self, storage_class: Item) -> list[Segment]:
        """Where a class may have volumes, by the labels of the nodes there are; ordered."""
        key = self.key_of(storage_class)
        if not key:
            return [("", "")]
        if key not in self._segments:
            values = {item.typed.metadata.labels.get(key, "") for item in self._nodes.values()}
            self._segments[key] = tuple(sorted(values - {""}))
        return [(key, value) for value in self._segments[key] if _allowed(storage_class.typed, (key, value))]

    def free(self, storage_class: Item, segment: str) -> int | None:
        """Bytes that are left in a segment; None when there is no limit."""
        amounts = self._amounts_of(storage_class)
        if amounts is None:
            return None
        used = self._used.get((_provisioner(storage_class), segment), {})
        if self._amounts.get(_class_key(storage_class.name)) is not None:
            taken = used.get(storage_class.name, 0)
        else:  # volumes of classes that are gone count, too
            taken = sum(size for name, size in used.items() if self._amounts.get(_class_key(name)) is None)
        return max(0, amounts.get(segment, amounts.get("", 0)) - taken)

    def _amounts_of(self, storage_class: Item) -> _Amounts | None:
        own = self._amounts.get(_class_key(storage_class.name))
        return own if own is not None else self._amounts.get(_driver_key(_provisioner(storage_class)))

    def _classes_of(self, driver: str) -> set[str]:
        return {item.name for item in self._classes.values() if _provisioner(item) == driver}

    # -- following -------------------------------------------------------------------------------------

    def _driver_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        self._amounts[_driver_key(item.name)] = self._read(new)
        if topology_key(old) != topology_key(new):
            for volume in self._context.cache(VOLUMES).values():
                self._volume_changed(volume, volume, volume)
        self._changed(self._classes_of(item.name), None)

    def _class_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        self._amounts[_class_key(item.name)] = self._read(new)
        self._changed({item.name} | self._classes_of(_provisioner(item)), None)

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        before, after = (one.typed.metadata.labels if one is not None else {} for one in (old, new))
        keys = [key for key in self._segments if before.get(key) != after.get(key)]
        for key in keys:
            del self._segments[key]
        if keys:
            self._changed({one.name for one in self._classes.values() if self.key_of(one) in keys}, None)

    def _volume_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        before = self._volumes.pop(item.name, None)
        after = self._use(new)
        if after is not None:
            self._volumes[item.name] = after
        if before == after:
            return
        for used, sign in ((before, -1), (after, 1)):
            if used is not None:
                sizes = self._used.setdefault((used.driver, used.segment), {})
                sizes[used.storage_class] = sizes.get(used.storage_class, 0) + sign * used.size
                self._changed(self._classes_of(used.driver), used.segment)

    def _use(self, item: Item | None) -> _Used | None:
        spec: PersistentVolumeSpec | None = item.typed.spec if item is not None else None
        if item is None or spec is None or spec.csi is None:
            return None
        driver = spec.csi.driver
        key = topology_key(self._drivers.get(driver))
        try:
            size = int_value(spec.capacity.get("storage", "0"))
        except QuantityError:
            return None
        return _Used(driver, class_of(item.typed), _value_of(spec, key), size)

    def _read(self, item: Item | None) -> _Amounts | None:
        """The amounts that an annotation gives; what cannot be read limits nothing, and is a problem."""
        text = annotations_of(item).get(CAPACITY)
        if text is None or item is None:
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
            text = f"{item.kind.kind} {item.name}: annotation {CAPACITY}: {error}; {want}"
            self._context.warn(text)
            return None
        return amounts


def _driver_key(name: str) -> str:
    return f"driver:{name}"


def _class_key(name: str) -> str:
    return f"class:{name}"


def _provisioner(storage_class: Item) -> str:
    return str(storage_class.typed.provisioner)


def _value_of(spec: PersistentVolumeSpec, key: str) -> str:
    """The segment of a volume, as its node affinity says; empty when it says nothing."""
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        for one in term.match_expressions:
            if one.key == key and one.operator == "In" and one.values:
                return one.values[0]
    return ""
