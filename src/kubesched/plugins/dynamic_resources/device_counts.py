"""Scores by devices: how many a node has of what an extended resource is served by, and how many are in use.

Used by NodeResourcesFit and NodeResourcesBalancedAllocation, for resources that they are configured to score and that the
node itself has not. Source: spec "Node-level scheduler plugins" section 8.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubesched.api.requests import Resources
from kubesched.framework.interface import Handle
from kubesched.framework.nodeinfo import NodeInfo

from .class_mapping import class_mapping
from .manager import DeviceManager

__all__ = ["Counts", "DeviceCounts"]

#: Resource name and node to (devices, devices in use); None when no device class serves it or that cannot be said.
Counts = Callable[[str, NodeInfo], tuple[int, int] | None]


class DeviceCounts:
    """For one plugin that scores these resources."""

    def __init__(self, handle: Handle, names: Sequence[str]) -> None:
        self._handle = handle
        self._names = names
        self._classes = class_mapping(handle) if handle.gate("DRAExtendedResource") else None

    def of(self, requests: Resources) -> Counts | None:
        """The counts that matter to a pod; None, which is the rule, when its score does not depend on devices."""
        classes = self._classes
        if classes is None or not requests.scalars or not classes.serves_any:
            return None
        if not any(requests.scalars.get(name) and classes.class_of(name) for name in self._names):
            return None
        allocator = DeviceManager.of(self._handle).allocator(0.0)

        def counts(name: str, node: NodeInfo) -> tuple[int, int] | None:
            served_by = classes.class_of(name)
            return None if served_by is None else allocator.devices_of_class(served_by, node)

        return counts
