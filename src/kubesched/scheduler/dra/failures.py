"""How an allocation can fail, apart from "no devices" (rules/devices §5.3)."""

from __future__ import annotations

__all__ = ["AllocationError", "AllocationTimeoutError", "DeviceAllocationFailure", "InvalidPoolsError"]


class DeviceAllocationFailure(Exception):  # noqa: N818 - the base of the errors below
    """Base of everything the allocator raises. The text is upstream's."""


class InvalidPoolsError(DeviceAllocationFailure):
    """Nothing fits this node, and some of its pools are invalid. Other nodes may fit."""

    def __init__(self) -> None:
        super().__init__("invalid resource pools were encountered")


class AllocationTimeoutError(DeviceAllocationFailure):
    """The search on one node took longer than the filter timeout."""


class AllocationError(DeviceAllocationFailure):
    """A claim, class, selector or slice that cannot be used. Ends the scheduling attempt of the pod."""
