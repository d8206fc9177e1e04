"""What the allocator needs of its caller, and its answer for many nodes."""

from __future__ import annotations

import enum
from collections.abc import Callable

from kubesched.api.resource import DeviceClass

__all__ = ["ClassLookup", "Verdict"]

#: The class of a name, or None when there is none.
ClassLookup = Callable[[str], DeviceClass | None]


class Verdict(enum.IntEnum):
    """What the search on one node comes to."""

    FITS = 0
    #: Upstream's status: ``cannot allocate all claims``.
    CANNOT_ALLOCATE = 1
    #: ``invalid resource pools were encountered``.
    INVALID_POOLS = 2
    #: ``Allocator.allocate`` raises an AllocationError for this node.
    ERROR = 3
