"""Table of the in-tree plugins: module and points of each, its place and weight in the default set, and its gate.

A row makes a plugin known. The rows are in the order of the default MultiPoint list (rules/configuration §3.1).
``defaults`` takes the default set from here; ``profiles`` compares the set with the registered plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .features import FeatureGates
from .types import Plugin, PluginSet

__all__ = ["IN_TREE", "IN_TREE_CAPABILITIES", "InTreePlugin", "default_multi_point"]


@dataclass(frozen=True, slots=True)
class InTreePlugin:
    """A plugin of upstream's registry.

    Attributes:
        name: name of the plugin, and of its class.
        points: extension points that it serves.
        module: its module in ``kubesched.scheduler.plugins``; empty for a plugin of upstream that kubesched lacks.
        weight: weight of its scores in the default set; 0 if none is given.
        gate: feature gate that it needs; empty means none.
    """

    name: str
    points: frozenset[str]
    module: str = ""
    weight: int = 0
    gate: str = ""


def _row(name: str, points: str, module: str = "", weight: int = 0, gate: str = "") -> InTreePlugin:
    return InTreePlugin(name, frozenset(points.split()), module, weight, gate)


_ROWS: Final = (
    _row("SchedulingGates", "preEnqueue", "scheduling_gates"),
    _row("PrioritySort", "queueSort", "priority_sort"),
    _row("NodeUnschedulable", "filter", "node_unschedulable"),
    _row("NodeName", "filter", "node_name"),
    _row("TaintToleration", "filter preScore score", "taint_toleration", 3),
    _row("NodeAffinity", "preFilter filter preScore score", "node_affinity", 2),
    _row("NodePorts", "preFilter filter", "node_ports"),
    _row("NodeResourcesFit", "preFilter filter preScore score placementScore", "node_resources_fit", 1),
    _row("VolumeRestrictions", "preFilter filter", "volumes.volume_restrictions"),
    _row("NodeVolumeLimits", "preFilter filter", "volumes.node_volume_limits"),
    _row("VolumeBinding", "preFilter filter preScore score reserve preBind", "volumes.volume_binding"),
    _row("VolumeZone", "preFilter filter", "volumes.volume_zone"),
    _row("PodTopologySpread", "preFilter filter preScore score", "pod_topology_spread", 2),
    _row("InterPodAffinity", "preFilter filter preScore score", "inter_pod_affinity", 2),
    _row(
        "DynamicResources",
        "preEnqueue preFilter filter postFilter score reserve preBind",
        "dynamic_resources.plugin",
        2,
        "DynamicResourceAllocation",
    ),
    _row("DefaultPreemption", "preEnqueue postFilter", "default_preemption"),
    _row("NodeResourcesBalancedAllocation", "preScore score", "balanced_allocation", 1),
    _row("ImageLocality", "score", "image_locality", 1),
    _row("DefaultBinder", "bind", "default_binder"),
    _row("NodeDeclaredFeatures", "preFilter filter", "node_declared_features", gate="NodeDeclaredFeatures"),
    _row("GangScheduling", "preEnqueue permit", "gang_scheduling", gate="GangScheduling"),
    _row(
        "TopologyPlacementGenerator", "placementGenerate", "topology_placement", gate="TopologyAwareWorkloadScheduling"
    ),
    _row("PodGroupPodsCount", "placementScore", "pod_group_pods_count", 1, "TopologyAwareWorkloadScheduling"),
)

#: Every in-tree plugin by name, in default order.
IN_TREE: Final[dict[str, InTreePlugin]] = {row.name: row for row in _ROWS}
#: Points by plugin, for ``expand_profile`` with every plugin of upstream registered.
IN_TREE_CAPABILITIES: Final[Mapping[str, frozenset[str]]] = {row.name: row.points for row in _ROWS}


def default_multi_point(gates: FeatureGates) -> PluginSet:
    """Return the default MultiPoint set under these gates."""
    return PluginSet(
        enabled=tuple(
            Plugin(name=row.name, weight=row.weight) for row in _ROWS if not row.gate or gates.enabled(row.gate)
        )
    )
