"""The in-tree plugins: which points each serves, its place and weight in the default set, and its gate.

One row per plugin, in the order of the default MultiPoint list (rules/configuration §3.1). ``defaults`` takes the default set from here, ``profiles`` compares with what is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .args import ARGS_TYPES, PluginArgs
from .features import FeatureGates
from .types import Plugin, PluginSet

__all__ = ["IN_TREE", "IN_TREE_CAPABILITIES", "InTreePlugin", "default_multi_point"]


@dataclass(frozen=True, slots=True)
class InTreePlugin:
    """A plugin of upstream's registry. ``weight`` 0 means none given; ``gate`` empty means always there."""

    name: str
    points: frozenset[str]
    weight: int = 0
    gate: str = ""

    @property
    def args_type(self) -> type[PluginArgs] | None:
        return ARGS_TYPES.get(self.name)


def _row(name: str, points: str, weight: int = 0, gate: str = "") -> InTreePlugin:
    return InTreePlugin(name, frozenset(points.split()), weight, gate)


_ROWS: Final = (
    _row("SchedulingGates", "preEnqueue"),
    _row("PrioritySort", "queueSort"),
    _row("NodeUnschedulable", "filter"),
    _row("NodeName", "filter"),
    _row("TaintToleration", "filter preScore score", 3),
    _row("NodeAffinity", "preFilter filter preScore score", 2),
    _row("NodePorts", "preFilter filter"),
    _row("NodeResourcesFit", "preFilter filter preScore score placementScore", 1),
    _row("VolumeRestrictions", "preFilter filter"),
    _row("NodeVolumeLimits", "preFilter filter"),
    _row("VolumeBinding", "preFilter filter preScore score reserve preBind"),
    _row("VolumeZone", "preFilter filter"),
    _row("PodTopologySpread", "preFilter filter preScore score", 2),
    _row("InterPodAffinity", "preFilter filter preScore score", 2),
    _row(
        "DynamicResources",
        "preEnqueue preFilter filter postFilter score reserve preBind",
        2,
        "DynamicResourceAllocation",
    ),
    _row("DefaultPreemption", "preEnqueue postFilter"),
    _row("NodeResourcesBalancedAllocation", "preScore score", 1),
    _row("ImageLocality", "score", 1),
    _row("DefaultBinder", "bind"),
    _row("NodeDeclaredFeatures", "preFilter filter", gate="NodeDeclaredFeatures"),
    _row("GangScheduling", "preEnqueue permit", gate="GangScheduling"),
    _row("TopologyPlacementGenerator", "placementGenerate", gate="TopologyAwareWorkloadScheduling"),
    _row("PodGroupPodsCount", "placementScore", 1, "TopologyAwareWorkloadScheduling"),
)

#: Every in-tree plugin by name, in default order.
IN_TREE: Final[dict[str, InTreePlugin]] = {row.name: row for row in _ROWS}
#: What ``expand_profile`` takes when everything upstream has is registered.
IN_TREE_CAPABILITIES: Final[Mapping[str, frozenset[str]]] = {row.name: row.points for row in _ROWS}


def default_multi_point(gates: FeatureGates) -> PluginSet:
    """The default MultiPoint set under these gates."""
    return PluginSet(
        enabled=tuple(
            Plugin(name=row.name, weight=row.weight) for row in _ROWS if not row.gate or gates.enabled(row.gate)
        )
    )
