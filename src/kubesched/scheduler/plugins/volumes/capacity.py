"""Storage that can be provisioned by place: the CSIStorageCapacity objects by class, as columns.

Source: rules/volumes §2.7, rule 4.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kubesched.api.kinds import CSI_STORAGE_CAPACITIES
from kubesched.api.quantity import QuantityError, QuantityText, int_value
from kubesched.api.selectors import Selector, SelectorError, compile_label_selector
from kubesched.api.storage import CSIStorageCapacity
from kubesched.api.tombstone import final_state

from ...framework.interface import Handle
from ...nodes import NodeTable
from ...nodes.columns import IntpArray, RowArray

__all__ = ["Capacities", "Segment", "limit_of"]

_log = logging.getLogger("kubesched.scheduler.plugins")


def _amount(obj: CSIStorageCapacity, field: str, value: QuantityText | None) -> int | None:
    """Return an amount in bytes; None for one that is absent or cannot be read."""
    if value is None:
        return None
    try:
        return int_value(value)
    except QuantityError:
        meta = obj.metadata
        _log.warning("CSIStorageCapacity %s/%s: %s %r is not a quantity", meta.namespace, meta.name, field, value)
        return None


def limit_of(obj: CSIStorageCapacity) -> int | None:
    """Size in bytes of the largest volume that can be provisioned; None when it is unknown."""
    if obj.maximum_volume_size is not None:
        return _amount(obj, "maximumVolumeSize", obj.maximum_volume_size)
    return _amount(obj, "capacity", obj.capacity)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Storage of a class that some of the nodes can use.

    Attributes:
        limit: size of the largest volume, in bytes.
        capacity: free bytes; None when the object does not say.
        nodes: selector of the nodes.
    """

    limit: int
    capacity: int | None
    nodes: Selector

    def serves(self, size: int, labels: Mapping[str, str]) -> bool:
        """True if a node with these labels could have a volume of this size."""
        return self.limit >= size and self.nodes.matches(labels)


def _segment(obj: CSIStorageCapacity) -> Segment | None:
    """Read an object. None if it allows no volume, because it has no limit or no nodes."""
    limit = limit_of(obj)
    if limit is None or obj.node_topology is None:
        return None
    try:
        nodes = compile_label_selector(obj.node_topology, "nodeTopology")
    except SelectorError as error:
        _log.warning("CSIStorageCapacity %s/%s: %s", obj.metadata.namespace, obj.metadata.name, error)
        return None
    return Segment(limit, _amount(obj, "capacity", obj.capacity), nodes)


class Capacities:
    """CSIStorageCapacity objects, compiled; it is a handler of their informer."""

    def __init__(self, handle: Handle) -> None:
        #: Segments by class and by the object's key.
        self._segments: dict[str, dict[str, Segment]] = {}
        self._versions: dict[str, int] = {}
        handle.watch(CSI_STORAGE_CAPACITIES.plural, self)

    def of(self, storage_class: str) -> Iterable[Segment]:
        """Return the segments of a class, oldest first."""
        return self._segments.get(storage_class, {}).values()

    def version(self, storage_class: str) -> int:
        """Return a number that changes with every change of the segments of a class."""
        return self._versions.get(storage_class, 0)

    def rows(self, storage_class: str, size: int, nodes: NodeTable, rows: RowArray) -> tuple[IntpArray, list[Segment]]:
        """Find each node's first segment in which a volume of this size could be provisioned.

        Returns:
            intp[len(rows)], indexes into the second value or -1 for none; and the segments.
        """
        segments = [segment for segment in self.of(storage_class) if segment.limit >= size]
        found = np.full(len(rows), -1, np.intp)
        for index, segment in enumerate(segments):
            open_ = np.flatnonzero(found < 0)
            if not len(open_):
                break
            found[open_[nodes.labels.matches(segment.nodes.requirements, rows[open_])]] = index
        return found, segments

    # -- the informer's side ---------------------------------------------------------------------------

    def on_add(self, obj: CSIStorageCapacity, is_initial: bool) -> None:
        self._set(obj)

    def on_update(self, old: CSIStorageCapacity, new: CSIStorageCapacity) -> None:
        if old.storage_class_name != new.storage_class_name:
            self.on_delete(old)
        self._set(new)

    def on_delete(self, obj: Any) -> None:
        gone: CSIStorageCapacity = final_state(obj)
        of_class = self._segments.get(gone.storage_class_name, {})
        if of_class.pop(_key(gone), None) is not None:
            self._changed(gone.storage_class_name)

    def _set(self, obj: CSIStorageCapacity) -> None:
        of_class = self._segments.setdefault(obj.storage_class_name, {})
        segment = _segment(obj)
        if segment is None:
            of_class.pop(_key(obj), None)
        else:
            of_class[_key(obj)] = segment
        self._changed(obj.storage_class_name)

    def _changed(self, storage_class: str) -> None:
        self._versions[storage_class] = self._versions.get(storage_class, 0) + 1


def _key(obj: CSIStorageCapacity) -> str:
    return f"{obj.metadata.namespace}/{obj.metadata.name}"
