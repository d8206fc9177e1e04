"""The devices of one node as a compact table, and what of them is in use."""

from __future__ import annotations

from collections.abc import Mapping

from kubesched.api.types import Node

from .allocated import AllocatedDevices
from .inventory import Inventory
from .pools import DeviceEntry

__all__ = ["NodeUse", "NodeView"]


class NodeView:
    """The pools and devices that a node sees. Made again when its slices or its labels change.

    Devices are numbered in the order in which they are tried; ``starts`` is the first number of each pool.
    """

    __slots__ = ("_devices", "is_odd", "node", "pools")

    def __init__(self, node: Node, inventory: Inventory) -> None:
        self.node = node
        self.pools = tuple(inventory.pools_of(node))
        #: Whether some result on this node may be an error.
        self.is_odd = any(pool.has_odd_selectors for pool in self.pools)
        self._devices: tuple[DeviceEntry, ...] | None = None

    @property
    def devices(self) -> tuple[DeviceEntry, ...]:
        if self._devices is None:
            self._devices = tuple(entry for pool in self.pools for entry in pool.devices)
        return self._devices

    @property
    def pool_of(self) -> list[int]:
        """The number of the pool of each device."""
        return [number for number, pool in enumerate(self.pools) for _ in pool.devices]


class NodeUse:
    """What is in use, by position in the table of a node. ``available`` holds what is left of each counter, by pool."""

    __slots__ = ("available", "consumed", "exclusive", "shared")

    def __init__(self, view: NodeView, allocated: AllocatedDevices) -> None:
        self.exclusive: set[int] = set()
        self.shared: set[int] = set()
        self.consumed: dict[int, Mapping[str, int]] = {}
        self.available: list[dict[str, dict[str, int]] | None] = []
        start = 0
        for pool in view.pools:
            use = pool.in_use(allocated)
            self.exclusive.update(start + position for position in use.exclusive)
            self.shared.update(start + position for position in use.shared)
            for position, amounts in use.consumed.items():
                self.consumed[start + position] = amounts
            self.available.append(use.available)
            start += len(pool.devices)
