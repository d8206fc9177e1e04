"""Inventory of all ResourceSlices of the cluster, and the pools that each node sees in them (rules/devices §8.2).

A node sees the slices that name it, the slices that are open to several nodes, and every slice with counters. A pool
that has only counters for a node offers no device, but it counts while it is incomplete or invalid. This is evaluated
once for all nodes. Open slices with the same selection are seen by the same nodes, so their pools are built once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

from kubesched.api.resource import ResourceSlice
from kubesched.api.types import Node
from kubesched.base.change_log import ChangeLog

from .allocated import PoolID
from .features import Features
from .models import DeviceModels
from .pools import Pool, PoolState, SliceEntry, build_pool, is_relevant

__all__ = ["CommonPools", "Inventory"]

_KEPT_CHANGES: Final = 4096


class CommonPools:
    """Pools that several nodes have in common, in the order in which they are tried.

    Every allocator calls :meth:`touched`; ``changed`` logs the places of the pools that were touched.
    """

    def __init__(self, pools: Iterable[Pool]) -> None:
        self.pools = tuple(sorted(pools, key=Pool.order))
        self._places = {pool.id: place for place, pool in enumerate(self.pools)}
        self.ids = self._places.keys()
        self.changed: ChangeLog[int] = ChangeLog(_KEPT_CHANGES)

    def touched(self, pools: Iterable[PoolID]) -> bool:
        """Note that devices of these pools were allocated or released. False if none of the pools is a common pool."""
        places = [self._places[pool] for pool in pools if pool in self._places]
        for place in places:
            self.changed.append(place)
        return bool(places)

    @cached_property
    def has_odd_selectors(self) -> bool:
        return any(pool.has_odd_selectors for pool in self.pools)


class Inventory:
    """Slices after taint rules, fed by their events.

    Attributes:
        changed: log of the nodes that see other devices, by name. After the log was emptied, any node may see others.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self.models = DeviceModels(features)
        self._slices: dict[str, SliceEntry] = {}
        self._by_pool: dict[PoolID, dict[str, SliceEntry]] = {}
        self._local: dict[str, dict[str, SliceEntry]] = {}
        #: Open slices by their selection; ``_by_device`` holds slices whose devices select nodes themselves.
        self._open: dict[bytes, dict[str, SliceEntry]] = {}
        self._by_device: dict[str, SliceEntry] = {}
        #: Slices with counters, by pool.
        self._counters: dict[PoolID, dict[str, SliceEntry]] = {}
        self._stale: set[PoolID] = set()
        #: Pools with counters, incomplete or invalid for nodes that see none of their devices.
        self._bad: dict[PoolID, Pool] = {}
        #: Common pools by the groups of open slices that a node sees.
        self._common: dict[tuple[bytes, ...], CommonPools] = {}
        self.changed: ChangeLog[str] = ChangeLog(_KEPT_CHANGES)

    def put(self, resource_slice: ResourceSlice) -> None:
        """Add a slice, or replace the slice of its name."""
        entry = SliceEntry.of(resource_slice, self.models)
        self.remove(entry.name)
        self._slices[entry.name] = entry
        self._by_pool.setdefault(entry.pool, {})[entry.name] = entry
        self._home_of(entry)[entry.name] = entry
        self._note(entry.pool)

    def remove(self, name: str) -> None:
        """Remove the slice of a name, if there is one."""
        entry = self._slices.get(name)
        if entry is None:
            return
        self._note(entry.pool)
        del self._slices[name]
        del self._by_pool[entry.pool][name]
        del self._home_of(entry)[name]
        if not self._by_pool[entry.pool]:
            del self._by_pool[entry.pool]
        if not self._counters.get(entry.pool, True):
            del self._counters[entry.pool]
        if not self._open.get(entry.group, True):
            del self._open[entry.group]
        node = entry.resource_slice.spec.node_name or ""
        if not self._local.get(node, True):
            del self._local[node]

    def slices(self) -> list[ResourceSlice]:
        """Return every slice, in no order."""
        return [entry.resource_slice for entry in self._slices.values()]

    def whole_pools(self) -> Iterator[Pool]:
        """Yield every pool with all devices of its newest slices, whichever nodes they are for."""
        for pool_id, entries in self._by_pool.items():
            newest = max(entry.generation for entry in entries.values())
            pool = Pool(pool_id, PoolState.COMPLETE)
            for entry in entries.values():
                pool.devices += entry.devices if entry.generation == newest else ()
            pool.by_name = {device.name: place for place, device in enumerate(pool.devices)}
            yield pool

    def slices_of(self, node: str) -> list[ResourceSlice]:
        """Return the slices that name a node, and those with the counters of their pools."""
        local = list(self._local.get(node, {}).values())
        pools = dict.fromkeys(entry.pool for entry in local)
        counters = [entry for pool in pools for entry in self._counters.get(pool, {}).values()]
        return [entry.resource_slice for entry in (*local, *counters) if entry.resource_slice.spec.node_name == node]

    # -- pools of nodes ----------------------------------------------------------------------------------------

    def pools_of(self, node: Node) -> tuple[list[Pool], CommonPools | None]:
        """Return a node's own pools in no order, and the pools that it has in common with other nodes.

        Raises:
            AllocationError: when a node selector of a slice cannot be parsed.
        """
        relevant: dict[PoolID, list[SliceEntry]] = {}
        for entry in (*self._local.get(node.name, {}).values(), *self._by_device.values()):
            if is_relevant(entry, node, self.features):
                relevant.setdefault(entry.pool, []).append(entry)
        groups = tuple(
            group
            for group, entries in self._open.items()
            if is_relevant(next(iter(entries.values())), node, self.features)
        )
        common = self._common_pools(groups, node)
        if common is not None and not common.ids.isdisjoint(relevant):
            # If a pool is partly the node's own, all pools of the node are built for this node alone.
            for group in groups:
                for entry in self._open[group].values():
                    relevant.setdefault(entry.pool, []).append(entry)
            common = None
        pools = self._build(relevant, node)
        if self.features.partitionable_devices:
            self.settle()
            seen = common.ids if common is not None else ()
            pools += [pool for pool_id, pool in self._bad.items() if pool_id not in relevant and pool_id not in seen]
        return pools, common

    def common_pools(self) -> Iterable[CommonPools]:
        """Return the common pools of all nodes seen so far."""
        return self._common.values()

    def _common_pools(self, groups: tuple[bytes, ...], node: Node) -> CommonPools | None:
        if not groups:
            return None
        common = self._common.get(groups)
        if common is None:
            relevant: dict[PoolID, list[SliceEntry]] = {}
            for group in groups:
                for entry in self._open[group].values():
                    relevant.setdefault(entry.pool, []).append(entry)
            common = self._common[groups] = CommonPools(self._build(relevant, node))
        return common

    def _build(self, relevant: dict[PoolID, list[SliceEntry]], node: Node) -> list[Pool]:
        pools: list[Pool] = []
        for pool_id, entries in relevant.items():
            if self.features.partitionable_devices:
                entries = [*entries, *self._counters.get(pool_id, {}).values()]  # noqa: PLW2901
            pool = build_pool(pool_id, entries, self._by_pool[pool_id].values(), node, self.features)
            if pool is not None:
                pools.append(pool)
        return pools

    def settle(self) -> None:
        """Find the pools that are incomplete or invalid for nodes that see only their counters."""
        for pool_id in self._stale:
            entries = list(self._counters.get(pool_id, {}).values())
            pool = (
                build_pool(pool_id, entries, self._by_pool[pool_id].values(), None, self.features) if entries else None
            )
            before = self._bad.pop(pool_id, None)
            if pool is not None and pool.state is not PoolState.COMPLETE:
                self._bad[pool_id] = pool
            else:
                pool = None
            if (before and before.state) != (pool and pool.state):
                self.changed.forget()
        self._stale.clear()

    # -- indexes -----------------------------------------------------------------------------------------------

    def _home_of(self, entry: SliceEntry) -> dict[str, SliceEntry]:
        """Return the index that an entry belongs to."""
        if entry.has_counters:
            return self._counters.setdefault(entry.pool, {})
        if entry.is_local:
            return self._local.setdefault(entry.resource_slice.spec.node_name or "", {})
        if entry.resource_slice.spec.per_device_node_selection:
            return self._by_device
        return self._open.setdefault(entry.group, {})

    def _note(self, pool: PoolID) -> None:
        """Log the change of a pool: for the nodes that its slices name, and for all nodes when a slice is open."""
        if pool in self._counters:
            self._stale.add(pool)
        for name in {entry.resource_slice.spec.node_name for entry in self._by_pool.get(pool, {}).values()}:
            if name:
                self.changed.append(name)
            else:
                self._common.clear()
                self.changed.forget()
