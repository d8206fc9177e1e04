"""Plugins that Kubernetes no longer has, for configurations of the versions that had them.

They are not part of the in-tree registry: a v1 file that names one is refused as it is upstream. :func:`register`
adds those that a converted configuration uses; a v1 file gets them with ``--plugin-module kubesched.retired.plugins``.
Their arguments are plain data in a configuration (``config.legacy.retired_args`` has the types). Formulas: rules/configuration §11.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kubesched.scheduler.framework.registry import Registry

from .cloud_volume_limits import AzureDiskLimits, CinderLimits, EBSLimits, GCEPDLimits
from .node_label import NodeLabel
from .node_prefer_avoid_pods import NodePreferAvoidPods
from .resource_allocation import NodeResourcesLeastAllocated, NodeResourcesMostAllocated, RequestedToCapacityRatio
from .selector_spread import SelectorSpread
from .service_affinity import ServiceAffinity

__all__ = [
    "RETIRED",
    "AzureDiskLimits",
    "CinderLimits",
    "EBSLimits",
    "GCEPDLimits",
    "NodeLabel",
    "NodePreferAvoidPods",
    "NodeResourcesLeastAllocated",
    "NodeResourcesMostAllocated",
    "RequestedToCapacityRatio",
    "SelectorSpread",
    "ServiceAffinity",
    "register",
]

RETIRED: Final[dict[str, type]] = {
    plugin.name: plugin
    for plugin in (
        AzureDiskLimits,
        CinderLimits,
        EBSLimits,
        GCEPDLimits,
        NodeLabel,
        NodePreferAvoidPods,
        NodeResourcesLeastAllocated,
        NodeResourcesMostAllocated,
        RequestedToCapacityRatio,
        SelectorSpread,
        ServiceAffinity,
    )
}


def register(registry: Registry, names: Collection[str]) -> None:
    """Add retired plugins to a registry; a plugin of that name that is there already stays.

    Raises:
        KeyError: for a name that is no retired plugin.
    """
    for name in sorted(names):
        if name not in registry:
            registry.register(RETIRED[name])
