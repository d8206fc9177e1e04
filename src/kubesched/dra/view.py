"""The devices of one node as a compact table, and what of them is in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubesched.api.types import Node

from .allocated import AllocatedDevices, PoolUse
from .inventory import Inventory
from .pools import DeviceEntry, Pool, PoolState

__all__ = ["NodeUse", "NodeView"]


class NodeUse:
    """What is in use, by position in the table of a node.

    ``available`` holds what is left of each counter, by pool. ``key`` is equal for nodes in the same state.
    """

    __slots__ = ("available", "consumed", "exclusive", "key", "shared")

    def __init__(self, view: NodeView, allocated: AllocatedDevices) -> None:
        self.exclusive: set[int] = set()
        self.shared: set[int] = set()
        self.consumed: dict[int, Mapping[str, int]] = {}
        self.available: list[dict[str, dict[str, int]] | None] = []
        for pool, start in zip(view.pools, view.starts, strict=True):
            use = allocated.use_of(pool.id)
            by_name = pool.by_name
            for names, positions in ((use.exclusive, self.exclusive), (use.shared, self.shared)):
                for name in names:
                    position = by_name.get(name, -1)
                    if position >= 0:
                        positions.add(start + position)
            for name, amounts in use.consumed.items():
                position = by_name.get(name, -1)
                if position >= 0:
                    self.consumed[start + position] = amounts
            self.available.append(_available(pool, use) if pool.counters else None)
        self.key: Any = (
            tuple(sorted(self.exclusive)),
            tuple(sorted(self.shared)),
            tuple((position, tuple(sorted(self.consumed[position].items()))) for position in sorted(self.consumed)),
            tuple(
                None if sets is None else tuple((name, tuple(sorted(sets[name].items()))) for name in sorted(sets))
                for sets in self.available
            ),
        )


def _available(pool: Pool, use: PoolUse) -> dict[str, dict[str, int]]:
    """What is left of the counters: their values less what allocated devices of the pool use, each once."""
    left = {name: dict(counters) for name, counters in pool.counters.items()}
    for entry in (*pool.devices, *pool.others):
        if entry.name in use.exclusive or entry.name in use.shared or entry.name in use.consumed:
            for name, counters in entry.profile.consumes:
                for counter, amount in counters:
                    left[name][counter] -= amount
    return left


class NodeView:
    """The pools and devices that a node sees. Made again when its slices or its labels change.

    Devices are numbered in the order in which they are tried; ``starts`` is the first number of each pool.
    """

    __slots__ = ("_use", "devices", "layout", "node", "pool_of", "pools", "starts")

    def __init__(self, node: Node, inventory: Inventory) -> None:
        self.node = node
        self.pools = inventory.pools_of(node)
        self.devices: list[DeviceEntry] = []
        self.starts: list[int] = []
        self.pool_of: list[int] = []
        odd: list[str] = []
        for number, pool in enumerate(self.pools):
            self.starts.append(len(self.devices))
            if pool.state is PoolState.COMPLETE:
                self.devices.extend(pool.devices)
                self.pool_of.extend([number] * len(pool.devices))
            if any(entry.node_selector and len(entry.node_selector.node_selector_terms) > 1 for entry in pool.devices):
                odd.append(node.name)
        #: Equal for nodes whose pools have the same states and sizes. Results with selectors of several terms are errors.
        self.layout: Any = (
            tuple((pool.state, len(pool.devices) if pool.state is PoolState.COMPLETE else 0) for pool in self.pools),
            tuple(odd),
        )
        self._use: NodeUse | None = None

    def use(self, allocated: AllocatedDevices) -> NodeUse:
        """What is in use now; kept until :meth:`forget_use`."""
        if self._use is None:
            self._use = NodeUse(self, allocated)
        return self._use

    def forget_use(self) -> None:
        self._use = None
