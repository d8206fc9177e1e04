"""Counts of devices that serve extended resources, by node: the devices that exist, and the devices in use.

NodeResourcesFit and NodeResourcesBalancedAllocation use them, for resources that they are configured to score and that
the node itself lacks. Source: rules/node-plugins §8.4.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kubesched.api.requests import Resources
from kubesched.api.resource import DeviceClass
from kubesched.base.change_log import Follower

from ...framework.interface import Handle
from ...framework.question import NO_ROWS, IntArray, RowArray
from .class_mapping import ClassMapping, class_mapping
from .manager import DeviceManager, NodeAllocator

if TYPE_CHECKING:
    from ...nodes import NodeTable

__all__ = ["Counts", "DeviceCounts"]


class _ClassCounts:
    """Counts of one class's devices by row. Rows that changed are counted again."""

    def __init__(self, device_class: DeviceClass, changes: Follower[int]) -> None:
        self.device_class = device_class
        self._changes = changes
        self._known = np.zeros(0, np.bool_)
        self._devices = np.zeros(0, np.int64)
        self._in_use = np.zeros(0, np.int64)

    def of(self, allocator: NodeAllocator, nodes: NodeTable, rows: RowArray) -> tuple[IntArray, IntArray]:
        """Number of devices and number of devices in use, int64[len(rows)] each."""
        changed = allocator.changed(nodes, self._changes)
        if changed is None or len(self._known) != nodes.capacity:
            self._known = np.zeros(nodes.capacity, np.bool_)
            self._devices, self._in_use = np.zeros(nodes.capacity, np.int64), np.zeros(nodes.capacity, np.int64)
        else:
            self._known[changed] = False
        name = self.device_class.metadata.name
        unknown = rows[~self._known[rows]].tolist()
        found = allocator.devices_of_class(name, map(nodes.info, unknown)) if unknown else []
        for row, (devices, in_use) in zip(
            unknown, found, strict=False
        ):  # rows behind the end of ``found`` are counted in the next attempt
            self._devices[row], self._in_use[row], self._known[row] = devices, in_use, True
        return self._devices[rows], self._in_use[rows]


class Counts:
    """Counts of the devices that serve extended resources, by row."""

    def __init__(self, classes: ClassMapping, allocator: NodeAllocator) -> None:
        self._classes = classes
        self.allocator = allocator
        self._by_class: dict[str, _ClassCounts] = {}

    def fill_in(
        self, name: str, nodes: NodeTable, rows: RowArray, capacity: IntArray, used: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Return capacity and use of a resource, with devices where ``capacity`` is 0; int64[len(rows)] each."""
        served_by = self._classes.class_of(name)
        device_class = self._classes.find(served_by) if served_by is not None else None
        if served_by is None or device_class is None:
            return capacity, used
        counted = self._by_class.get(served_by)
        if counted is None or counted.device_class is not device_class:
            counted = self._by_class[served_by] = _ClassCounts(device_class, self.allocator.follower(nodes))
        devices, in_use = counted.of(self.allocator, nodes, rows)
        lacking = capacity == 0
        return np.where(lacking, devices, capacity), np.where(lacking, in_use, used)


class DeviceCounts:
    """Counts of devices for one plugin, which scores the resources ``names``.

    A score that depends on devices may change although its node does not: see :meth:`key` and :meth:`changed`.
    """

    def __init__(self, handle: Handle, names: Sequence[str]) -> None:
        self._handle = handle
        self._names = names
        self._classes = class_mapping(handle) if handle.gate("DRAExtendedResource") else None
        self._counts: Counts | None = None

    def of(self, requests: Resources) -> Counts | None:
        """Return the counts that matter to a pod; None, the usual case, when its score does not depend on devices."""
        classes = self._classes
        if classes is None or not requests.scalars or not classes.serves_any:
            return None
        if not any(requests.scalars.get(name) and classes.class_of(name) for name in self._names):
            return None
        if self._counts is None:
            self._counts = Counts(classes, DeviceManager.of(self._handle).allocator(0.0))
        return self._counts

    def key(self, requests: Resources) -> Hashable:
        """Key of the devices that count for a pod. It is equal for pods with equal amounts for which the same devices
        count.
        """
        classes = self._classes
        if classes is None:
            return ()
        served = ((name, classes.class_of(name)) for name in self._names if requests.scalars.get(name))
        found = ((name, classes.find(class_name)) for name, class_name in served if class_name is not None)
        return tuple([(name, each.spec.selectors) for name, each in found if each is not None])

    def follower(self, requests: Resources) -> Follower[int] | None:
        """Return a follower to give to :meth:`changed`; None if no devices count for a pod with these requests."""
        counts = self.of(requests)
        return None if counts is None else counts.allocator.follower(self._handle.snapshot.table)

    def changed(self, requests: Resources, follower: Follower[int] | None) -> RowArray | None:
        """Return the rows whose devices may have changed since they were read; None: all rows."""
        counts = self.of(requests)
        if counts is None:
            return NO_ROWS
        return None if follower is None else counts.allocator.changed(self._handle.snapshot.table, follower)
