"""All ResourceSlices of the cluster, and the pools that each node sees in them (spec "DynamicResources plugin", section 8.2).

A node sees the slices that name it, those that are open to several nodes, and every slice with counters. Pools that only
have counters for a node offer it nothing; they matter while they are incomplete or invalid, and are evaluated once for
all nodes.
"""

from __future__ import annotations

from typing import Final

from kubesched.api.resource import ResourceSlice
from kubesched.api.types import Node

from .allocated import PoolID
from .features import Features
from .pools import Pool, PoolState, SliceEntry, build_pool, is_relevant, order_pools
from .profiles import Profiles

__all__ = ["ALL_NODES", "Inventory"]

#: In a set of changed nodes: any node may see something else now.
ALL_NODES: Final = ""


class Inventory:
    """The slices, after taint rules; fed by their events."""

    def __init__(self, features: Features) -> None:
        self.features = features
        self.profiles = Profiles(features)
        self._slices: dict[str, SliceEntry] = {}
        self._by_pool: dict[PoolID, dict[str, SliceEntry]] = {}
        self._local: dict[str, dict[str, SliceEntry]] = {}
        self._open: dict[str, SliceEntry] = {}
        #: Slices with counters, by pool.
        self._counters: dict[PoolID, dict[str, SliceEntry]] = {}
        self._stale: set[PoolID] = set()
        #: Pools with counters that are incomplete or invalid for nodes without their devices.
        self._bad: dict[PoolID, Pool] = {}
        #: Pools of open slices as nodes see them, by pool and by the slices that are relevant.
        self._seen: dict[PoolID, dict[tuple[str, ...], Pool | None]] = {}
        self._readers: list[set[str]] = []

    def put(self, resource_slice: ResourceSlice) -> None:
        """Add a slice, or replace the one of its name."""
        entry = SliceEntry.of(resource_slice, self.profiles)
        self.remove(entry.name)
        self._slices[entry.name] = entry
        self._by_pool.setdefault(entry.pool, {})[entry.name] = entry
        self._home_of(entry)[entry.name] = entry
        self._note(entry.pool)

    def remove(self, name: str) -> None:
        """Remove the slice of a name; nothing happens when there is none."""
        entry = self._slices.get(name)
        if entry is None:
            return
        self._note(entry.pool)
        del self._slices[name]
        del self._by_pool[entry.pool][name]
        del self._home_of(entry)[name]
        for index in (self._by_pool, self._counters):
            if not index.get(entry.pool, True):
                del index[entry.pool]
        node = entry.resource_slice.spec.node_name or ""
        if not self._local.get(node, True):
            del self._local[node]

    def slices(self) -> list[ResourceSlice]:
        """Every slice, in no order."""
        return [entry.resource_slice for entry in self._slices.values()]

    def follow(self) -> set[str]:
        """A set that collects the names of nodes for which something changed, or :data:`ALL_NODES`; the caller empties it."""
        changed: set[str] = set()
        self._readers.append(changed)
        return changed

    def pools_of(self, node: Node) -> list[Pool]:
        """The pools that a node sees, in the order in which they are tried.

        Raises:
            AllocationError: a node selector of a slice cannot be parsed.
        """
        relevant: dict[PoolID, list[SliceEntry]] = {}
        for entry in self._local.get(node.name, {}).values():
            if is_relevant(entry, node, self.features):
                relevant.setdefault(entry.pool, []).append(entry)
        for entry in self._open.values():
            if is_relevant(entry, node, self.features):
                relevant.setdefault(entry.pool, []).append(entry)
        pools: list[Pool] = []
        for pool_id, entries in relevant.items():
            if self.features.partitionable_devices:
                entries.extend(self._counters.get(pool_id, {}).values())
            pool = self._pool(pool_id, entries, node)
            if pool is not None:
                pools.append(pool)
        if self.features.partitionable_devices:
            self.settle()
            pools.extend(pool for pool_id, pool in self._bad.items() if pool_id not in relevant)
        return order_pools(pools)

    def _pool(self, pool_id: PoolID, entries: list[SliceEntry], node: Node) -> Pool | None:
        """A pool from the slices that matter for a node; the same object for nodes that see the same of an open pool."""
        everything = self._by_pool[pool_id].values()
        if not all(entry.is_same_for_all for entry in entries):
            return build_pool(pool_id, entries, everything, node, self.features)
        seen = self._seen.setdefault(pool_id, {})
        key = tuple(entry.name for entry in entries)
        if key not in seen:
            pool = seen[key] = build_pool(pool_id, entries, everything, node, self.features)
            if pool is not None:
                pool.is_common = True
        return seen[key]

    def settle(self) -> None:
        """Find out which pools are incomplete or invalid for nodes that see only their counters; notifies the followers."""
        for pool_id in self._stale:
            entries = list(self._counters.get(pool_id, {}).values())
            pool = (
                build_pool(pool_id, entries, self._by_pool[pool_id].values(), None, self.features) if entries else None
            )
            before = self._bad.pop(pool_id, None)
            if pool is not None and pool.state is not PoolState.COMPLETE:
                pool.is_common = True
                self._bad[pool_id] = pool
            else:
                pool = None
            if (before and before.state) != (pool and pool.state):
                for changed in self._readers:
                    changed.add(ALL_NODES)
        self._stale.clear()

    def _home_of(self, entry: SliceEntry) -> dict[str, SliceEntry]:
        """The index that an entry belongs to."""
        if entry.has_counters:
            return self._counters.setdefault(entry.pool, {})
        if entry.is_local:
            return self._local.setdefault(entry.resource_slice.spec.node_name or "", {})
        return self._open

    def _note(self, pool: PoolID) -> None:
        """Note that a pool changes: for the nodes its slices name, and for all when a slice is open."""
        self._seen.pop(pool, None)
        if pool in self._counters:
            self._stale.add(pool)
        nodes = {entry.resource_slice.spec.node_name or ALL_NODES for entry in self._by_pool.get(pool, {}).values()}
        for changed in self._readers:
            changed.update(nodes)
