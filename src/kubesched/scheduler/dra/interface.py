"""Interface of the allocator: the lookup that it needs, and its verdict on a node."""

from __future__ import annotations

import enum
from collections.abc import Callable

from kubesched.api.resource import DeviceClass

__all__ = ["ClassLookup", "Verdict"]

#: Returns the class of a name, or None when there is none.
ClassLookup = Callable[[str], DeviceClass | None]


class Verdict(enum.IntEnum):
    """Result of the search on one node."""

    FITS = 0
    #: Upstream's status: ``cannot allocate all claims``.
    CANNOT_ALLOCATE = 1
    #: ``invalid resource pools were encountered``.
    INVALID_POOLS = 2
    #: ``Allocator.allocate`` raises an AllocationError for this node.
    ERROR = 3
