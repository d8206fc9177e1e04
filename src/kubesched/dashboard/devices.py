"""Devices by driver and node: how many there are, and how many are in use. They come from resource slices and claims.

Only slices that name a node count: other devices belong to no cell of the map. A device that is shared counts as in use.
"""

from __future__ import annotations

from typing import Any

from kubesched.api.kinds import RESOURCE_CLAIMS, RESOURCE_SLICES
from kubesched.api.resource import ResourceSlice
from kubesched.base.change_log import Follower
from kubesched.scheduler.dra.allocated import AllocatedDevices, PoolID
from kubesched.scheduler.dra.features import DEFAULT_FEATURES
from kubesched.scheduler.informers import Informers

__all__ = ["DeviceCounts"]


class DeviceCounts:
    """Counts of devices, kept up to date by the events of slices and claims."""

    def __init__(self, informers: Informers | None = None) -> None:
        """Follow the slices and claims that ``informers`` watch; without devices in the cluster there are none."""
        self._slices: dict[str, ResourceSlice] = {}
        #: Slices by the pool and the node that they name.
        self._pools: dict[PoolID, dict[str, set[str]]] = {}
        self._pools_of: dict[str, set[PoolID]] = {}
        self._use = AllocatedDevices(DEFAULT_FEATURES)
        self._used_pools = Follower.from_now(self._use.changed)
        self._resized: set[str] = set()
        for kind, handler in ((RESOURCE_SLICES, _Slices(self)), (RESOURCE_CLAIMS, _Claims(self._use))):
            if informers is not None and kind.plural in informers:
                informers[kind.plural].add_handler(handler)

    def drivers(self) -> list[str]:
        """Return the drivers of devices that belong to nodes, sorted."""
        return sorted({pool.driver for pool in self._pools})

    def of(self, node: str) -> dict[str, tuple[int, int]]:
        """Return, by driver, the number of the node's devices and how many are in use."""
        found: dict[str, tuple[int, int]] = {}
        for pool in self._pools_of.get(node, ()):
            slices = [self._slices[name] for name in self._pools[pool][node]]
            newest = max(one.spec.pool.generation for one in slices)
            devices = {
                device.name for one in slices if one.spec.pool.generation == newest for device in one.spec.devices
            }
            use = self._use.use_of(pool)
            count, used = found.get(pool.driver, (0, 0))
            found[pool.driver] = count + len(devices), used + len(devices & (use.exclusive | use.shared))
        return found

    def take_changed(self) -> tuple[set[str], set[str]]:
        """Return the nodes that have other devices than at the last call, and the nodes whose devices are used otherwise."""
        resized, self._resized = self._resized, set()
        pools = self._used_pools.read()
        changed = self._pools if pools is None else [pool for pool in dict.fromkeys(pools) if pool in self._pools]
        return resized, {node for pool in changed for node in self._pools[pool]}

    def put(self, resource_slice: ResourceSlice) -> None:
        """Add a slice, or replace the slice of its name."""
        name, spec = resource_slice.metadata.name, resource_slice.spec
        self.remove(name)
        if not spec.node_name:
            return
        pool = PoolID(spec.driver, spec.pool.name)
        self._slices[name] = resource_slice
        self._pools.setdefault(pool, {}).setdefault(spec.node_name, set()).add(name)
        self._pools_of.setdefault(spec.node_name, set()).add(pool)
        self._resized.add(spec.node_name)

    def remove(self, name: str) -> None:
        """Remove a slice; nothing happens if it is not here."""
        old = self._slices.pop(name, None)
        if old is None or not old.spec.node_name:
            return
        pool, node = PoolID(old.spec.driver, old.spec.pool.name), old.spec.node_name
        nodes = self._pools[pool]
        nodes[node].discard(name)
        if not nodes[node]:
            del nodes[node]
            self._pools_of[node].discard(pool)
            if not self._pools_of[node]:
                del self._pools_of[node]
        if not nodes:
            del self._pools[pool]
        self._resized.add(node)


class _Slices:
    """Handler of the slices' changes."""

    def __init__(self, counts: DeviceCounts) -> None:
        self._counts = counts

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._counts.put(obj)

    def on_update(self, old: Any, new: Any) -> None:
        self._counts.put(new)

    def on_delete(self, obj: Any) -> None:
        self._counts.remove(obj.metadata.name)


class _Claims:
    """Handler of the claims' changes."""

    def __init__(self, use: AllocatedDevices) -> None:
        self._use = use

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._use.set_claim(obj.metadata.uid, obj.status.allocation)

    def on_update(self, old: Any, new: Any) -> None:
        self._use.set_claim(new.metadata.uid, new.status.allocation)

    def on_delete(self, obj: Any) -> None:
        self._use.set_claim(obj.metadata.uid, None)
