"""Devices by class and node, in the form of resources, for the tables of nodes and of the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.plugins.dynamic_resources.plugin import DynamicResources

from ..embedded import Embedded
from .result import ResourceUse

__all__ = ["cluster_devices", "node_devices"]


def _plugin(embedded: Embedded) -> DynamicResources | None:
    """A profile's plugin that knows the devices; those of all profiles share what they know."""
    found = (framework.plugins.get("DynamicResources") for framework in embedded.scheduler.frameworks.values())
    return next((plugin for plugin in found if isinstance(plugin, DynamicResources)), None)


def _use(name: str, devices: int, in_use: int) -> ResourceUse:
    return ResourceUse(name=f"{name} (devices)", allocatable=devices, requested=in_use)


def node_devices(embedded: Embedded, nodes: Sequence[NodeInfo]) -> dict[str, list[ResourceUse]]:
    """Devices that each node sees, by the node's name: a resource for each class of which it has any.

    Devices that several nodes see count for each of them.
    """
    plugin, found = _plugin(embedded), dict[str, list[ResourceUse]]()
    if plugin is None:
        return found
    for name, counts in plugin.device_counts(nodes).items():
        for node, (devices, in_use) in zip(nodes, counts, strict=True):
            if devices:
                found.setdefault(node.name, []).append(_use(name, devices, in_use))
    return found


def cluster_devices(embedded: Embedded) -> list[ResourceUse]:
    """All devices of the cluster, each counted once: a resource for each class that selects any."""
    plugin = _plugin(embedded)
    totals = plugin.device_totals() if plugin is not None else {}
    return [_use(name, devices, in_use) for name, (devices, in_use) in totals.items() if devices]
