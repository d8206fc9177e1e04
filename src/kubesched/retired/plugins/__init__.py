"""Plugins that Kubernetes no longer has, for configurations of the versions that had them.

They are not part of the in-tree registry: a v1 file that names one is refused as it is upstream. Those that a
converted configuration uses are registered for it; a v1 file gets them with
``--plugin-module kubesched.retired.plugins``. Their arguments are plain data in a configuration
(``retired.config.retired_args`` has the types). Formulas: rules/configuration §11.
"""

from __future__ import annotations

from typing import Final

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
