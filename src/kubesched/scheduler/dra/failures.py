"""Failures of an allocation other than "no devices" (rules/devices §5.3)."""

from __future__ import annotations

__all__ = ["AllocationError", "AllocationTimeoutError", "DeviceAllocationFailure", "InvalidPoolsError"]


class DeviceAllocationFailure(Exception):  # noqa: N818 - the base of the errors below
    """Base of all errors of the allocator. The text is upstream's."""


class InvalidPoolsError(DeviceAllocationFailure):
    """The claims do not fit this node, and some of its pools are invalid. Other nodes may fit."""

    def __init__(self) -> None:
        super().__init__("invalid resource pools were encountered")


class AllocationTimeoutError(DeviceAllocationFailure):
    """The search on one node took longer than the filter timeout."""


class AllocationError(DeviceAllocationFailure):
    """A claim, class, selector or slice cannot be used. The scheduling attempt of the pod ends."""
