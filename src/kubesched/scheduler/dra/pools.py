"""Pools of devices as one node sees them (rules/devices §8.2)."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from kubesched.api.quantity import parse_quantity
from kubesched.api.resource import Device, ResourceSlice
from kubesched.api.selectors import NodeSelectorMatcher, SelectorError
from kubesched.api.types import Node, NodeSelector

from .allocated import AllocatedDevices, PoolID, PoolUse
from .failures import AllocationError
from .features import Features
from .models import DeviceModel, DeviceModels

__all__ = ["DeviceEntry", "InUse", "Pool", "PoolState", "SliceEntry", "build_pool", "is_relevant"]


class PoolState(enum.IntEnum):
    COMPLETE = 0
    INCOMPLETE = 1
    INVALID = 2


@dataclass(frozen=True, eq=False)
class DeviceEntry:
    """Device of a slice. ``resource_slice`` has its node fields, unless the slice leaves them to the device."""

    name: str
    device: Device
    model: DeviceModel
    resource_slice: ResourceSlice

    @property
    def node_name(self) -> str | None:
        spec = self.resource_slice.spec
        return self.device.node_name if spec.per_device_node_selection else spec.node_name

    @property
    def node_selector(self) -> NodeSelector | None:
        spec = self.resource_slice.spec
        return self.device.node_selector if spec.per_device_node_selection else spec.node_selector

    @cached_property
    def matcher(self) -> NodeSelectorMatcher | str | None:
        """Compiled node selector of the device, or the error in it."""
        return _compiled(self.device.node_selector)


@dataclass(frozen=True, eq=False)
class SliceEntry:
    """Slice with its devices prepared."""

    resource_slice: ResourceSlice
    pool: PoolID
    devices: tuple[DeviceEntry, ...]

    @classmethod
    def of(cls, resource_slice: ResourceSlice, models: DeviceModels) -> SliceEntry:
        spec = resource_slice.spec
        devices = tuple(
            DeviceEntry(device.name, device, models.of(spec.driver, device), resource_slice) for device in spec.devices
        )
        return cls(resource_slice, PoolID(spec.driver, spec.pool.name), devices)

    @property
    def name(self) -> str:
        return self.resource_slice.metadata.name

    @cached_property
    def matcher(self) -> NodeSelectorMatcher | str | None:
        """Compiled node selector of the slice, or the error in it."""
        return _compiled(self.resource_slice.spec.node_selector)

    @property
    def generation(self) -> int:
        return self.resource_slice.spec.pool.generation

    @property
    def has_counters(self) -> bool:
        return bool(self.resource_slice.spec.shared_counters)

    @cached_property
    def group(self) -> bytes:
        """Key that is equal for open slices which are seen by the same nodes."""
        spec = self.resource_slice.spec
        return msgspec.json.encode((spec.all_nodes, spec.node_selector))

    @property
    def is_local(self) -> bool:
        """True if the slice concerns only the node that it names."""
        return self.resource_slice.spec.node_name is not None and not self.has_counters


class InUse:
    """Use of a pool, by position in it.

    ``available`` holds the free amount of each counter, None without counters. ``key`` is equal for pools in the same
    state.
    """

    __slots__ = ("available", "consumed", "exclusive", "is_overdrawn", "key", "shared", "use")

    def __init__(self, pool: Pool, use: PoolUse) -> None:
        self.use = use
        self.exclusive = frozenset(_positions(pool, use.exclusive))
        self.shared = frozenset(_positions(pool, use.shared))
        self.consumed = {
            pool.by_name[name]: amounts for name, amounts in use.consumed.items() if pool.by_name.get(name, -1) >= 0
        }
        self.available = _available(pool, use) if pool.counters else None
        #: True if some counter is below zero, which keeps every device with counters from being allocated.
        self.is_overdrawn = self.available is not None and any(
            left < 0 for counters in self.available.values() for left in counters.values()
        )
        self.key: Hashable = (
            self.exclusive,
            self.shared,
            tuple((position, tuple(sorted(amounts.items()))) for position, amounts in sorted(self.consumed.items())),
            None
            if self.available is None
            else tuple((name, tuple(sorted(left.items()))) for name, left in sorted(self.available.items())),
        )


def _positions(pool: Pool, names: Iterable[str]) -> Iterable[int]:
    return (position for name in names if (position := pool.by_name.get(name, -1)) >= 0)


def _available(pool: Pool, use: PoolUse) -> dict[str, dict[str, int]]:
    """Free amounts of the counters: their values minus the use of the pool's allocated devices. Each device counts
    once.
    """
    left = {name: dict(counters) for name, counters in pool.counters.items()}
    for entry in (*pool.devices, *pool.others):
        if entry.name in use.exclusive or entry.name in use.shared or entry.name in use.consumed:
            for name, counters in entry.model.consumes:
                for counter, amount in counters:
                    left[name][counter] -= amount
    return left


@dataclass(eq=False)
class Pool:
    """Pool with the devices that target one node, in the order they are tried.

    ``others`` are devices for other nodes; they use counters of the pool, too. ``elsewhere`` are the ``others`` whose
    slices also have devices for this node. ``counters`` holds the value of every counter by counter set, in nano-units.
    Only a complete pool has devices.
    """

    id: PoolID
    state: PoolState
    devices: list[DeviceEntry] = field(default_factory=list)
    others: list[DeviceEntry] = field(default_factory=list)
    elsewhere: list[DeviceEntry] = field(default_factory=list)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    #: Positions of devices by name; -1 for devices of other nodes.
    by_name: dict[str, int] = field(default_factory=dict)
    _in_use: InUse | None = None

    @cached_property
    def has_binding_conditions(self) -> bool:
        """True if a device has binding conditions. Devices in ``elsewhere`` count, too."""
        return any(entry.model.has_binding_conditions for entry in (*self.devices, *self.elsewhere))

    @cached_property
    def sort_key(self) -> tuple[bool, bytes, bytes]:
        """Sort key by driver and name. Pools with devices that have binding conditions come last."""
        return self.has_binding_conditions, self.id.driver.encode(), self.id.pool.encode()

    def order(self) -> tuple[bool, bytes, bytes]:
        """Return the sort key, by which pools are tried in order."""
        return self.sort_key

    @cached_property
    def has_odd_selectors(self) -> bool:
        """True if a device has a node selector of several terms, which no result can have."""
        return any(entry.node_selector and len(entry.node_selector.node_selector_terms) != 1 for entry in self.devices)

    def in_use(self, allocated: AllocatedDevices) -> InUse:
        """Return the present use of the pool."""
        use = allocated.use_of(self.id)
        known = self._in_use
        if known is None or known.use is not use:
            known = self._in_use = InUse(self, use)
        return known


def _compiled(selector: NodeSelector | None) -> NodeSelectorMatcher | str | None:
    if selector is None:
        return None
    try:
        return NodeSelectorMatcher.compile_strict(selector)
    except SelectorError as error:
        return str(error)


def _matches(
    node_name: str | None, all_nodes: bool | None, matcher: NodeSelectorMatcher | str | None, node: Node
) -> bool:
    """True if node fields, of a slice or of a device, include a node.

    Raises:
        AllocationError: when the selector cannot be parsed.
    """
    if node_name is not None:
        return node_name == node.name
    if all_nodes:
        return True
    if isinstance(matcher, str):
        raise AllocationError(f"node selector: {matcher}")
    return matcher is not None and matcher.matches(node.labels, node.name)


def _targets(entry: DeviceEntry, node: Node) -> bool:
    """True if a device of a slice that leaves its node fields to the devices is available on a node."""
    return _matches(entry.device.node_name, entry.device.all_nodes, entry.matcher, node)


def is_relevant(entry: SliceEntry, node: Node, features: Features) -> bool:
    """True if a slice matters for a node: it has counters, or devices for it."""
    spec = entry.resource_slice.spec
    if not features.partitionable_devices and (spec.per_device_node_selection or entry.has_counters):
        return False
    if entry.has_counters:
        return True
    if spec.per_device_node_selection:
        return any(_targets(device, node) for device in entry.devices)
    return _matches(spec.node_name, spec.all_nodes, entry.matcher, node)


def build_pool(
    pool_id: PoolID,
    relevant: Sequence[SliceEntry],
    everything: Iterable[SliceEntry],
    node: Node | None,
    features: Features,
) -> Pool | None:
    """Build a pool from the ``relevant`` slices, which matter for a node, and all of its slices in the cluster.

    None when these slices are obsolete. ``node`` is None for a pool of which only counters matter.
    """
    generation = max(entry.generation for entry in relevant)
    kept = sorted((entry for entry in relevant if entry.generation == generation), key=lambda entry: entry.name)
    count = kept[0].resource_slice.spec.pool.resource_slice_count
    others: list[SliceEntry] = []
    if len(kept) != count:
        known = {entry.name for entry in kept}
        everything = list(everything)
        if any(entry.generation > generation for entry in everything):
            return None
        same = [entry for entry in everything if entry.generation == generation]
        if len(same) != count:
            return Pool(pool_id, PoolState.INCOMPLETE)
        others = [entry for entry in same if entry.name not in known]
    return _complete(pool_id, kept, others, node, features)


def _complete(
    pool_id: PoolID, kept: Sequence[SliceEntry], others: Sequence[SliceEntry], node: Node | None, features: Features
) -> Pool:
    pool = Pool(pool_id, PoolState.COMPLETE)
    for entry in kept:
        for counter_set in entry.resource_slice.spec.shared_counters:
            if counter_set.name in pool.counters:
                pool.state = PoolState.INVALID
            pool.counters[counter_set.name] = {
                name: parse_quantity(counter.value).nanos for name, counter in counter_set.counters.items()
            }
        if entry.has_counters:
            continue
        per_device = entry.resource_slice.spec.per_device_node_selection
        for device in entry.devices:
            if device.name in pool.by_name:
                pool.state = PoolState.INVALID
            pool.by_name[device.name] = -1
            if node is None or (per_device and not _targets(device, node)):
                pool.elsewhere.append(device)
            else:
                pool.by_name[device.name] = len(pool.devices)
                pool.devices.append(device)
    pool.others.extend(pool.elsewhere)
    for entry in others:
        pool.others.extend(entry.devices)
    if features.partitionable_devices:
        for device in (*pool.devices, *pool.others):
            for name, counters in device.model.consumes:
                known = pool.counters.get(name)
                if known is None or any(counter not in known for counter, _ in counters):
                    pool.state = PoolState.INVALID
    return pool if pool.state is PoolState.COMPLETE else Pool(pool_id, pool.state)
