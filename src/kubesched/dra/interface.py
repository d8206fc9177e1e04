"""What the allocator offers to the plugin, and what it needs (spec "DynamicResources plugin", section 8)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from kubesched.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from kubesched.api.types import Node

__all__ = ["ClassLookup", "DeviceAllocator", "Inventory", "Plan", "Verdict"]

#: The class of a name, or None when there is none.
ClassLookup = Callable[[str], DeviceClass | None]


class Verdict(enum.IntEnum):
    """What the search on one node comes to."""

    FITS = 0
    #: Upstream's status: ``cannot allocate all claims``.
    CANNOT_ALLOCATE = 1
    #: ``invalid resource pools were encountered``.
    INVALID_POOLS = 2
    #: :meth:`DeviceAllocator.allocate` raises an AllocationError or AllocationTimeoutError for this node.
    ERROR = 3


class Inventory(Protocol):
    """All ResourceSlices of the cluster, after taint rules; fed by their events."""

    def put(self, resource_slice: ResourceSlice) -> None:
        """Add a slice, or replace the one of its name."""
        ...

    def remove(self, name: str) -> None:
        """Remove the slice of a name; nothing happens when there is none."""
        ...


class Plan(Protocol):
    """What unallocated claims ask for, prepared once per scheduling attempt. Claims of equal content share results."""

    @property
    def claims(self) -> Sequence[ResourceClaim]: ...


class DeviceAllocator(Protocol):
    """Chooses devices. One long-lived object per cluster state; it holds the results that equal nodes share.

    The classes, the inventory and the allocated devices it was made with are read as they are at each call.
    """

    def plan(self, claims: Sequence[ResourceClaim]) -> Plan:
        """Prepare claims (unallocated, in order). Never fails: what is wrong with them is reported per node, as upstream."""
        ...

    def allocate(self, plan: Plan, node: Node) -> tuple[AllocationResult, ...] | None:
        """One result per claim of the plan, or None when the node has not the devices. Changes nothing.

        Raises:
            InvalidPoolsError, AllocationTimeoutError, AllocationError: see there.
        """
        ...

    def set_node(self, row: int, node: Node | None) -> None:
        """State which node is in a row (None: no node). Again whenever the node object changes."""
        ...

    def verdicts(self, plan: Plan, rows: np.ndarray[Any, np.dtype[np.intp]]) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """:class:`Verdict` for each of these rows. Nodes that are equal up to names are evaluated once."""
        ...
