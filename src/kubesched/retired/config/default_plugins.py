"""Default plugins of the versions that listed them per extension point (v1alpha1 to v1beta2).

Source: rules/configuration §9. The names are the names in such files. ``profiles`` replaces names of plugins whose work
another plugin does today.
"""

from __future__ import annotations

from typing import Final

from kubesched.scheduler.config.types import Plugin

__all__ = ["PROVIDERS", "VOLUME_LIMITS", "PluginLists", "default_plugins"]

#: Plugins that run at a point, by point (a field name of ``Plugins``).
PluginLists = dict[str, tuple[Plugin, ...]]

#: Plugins for the volume limits of one cloud. Today, volumes of these kinds count as CSI volumes.
VOLUME_LIMITS: Final = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})

_POINTS: Final = {
    "queue_sort": "PrioritySort",
    "pre_filter": "NodeResourcesFit NodePorts PodTopologySpread InterPodAffinity VolumeBinding NodeAffinity",
    "filter": (
        "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions "
        "EBSLimits GCEPDLimits NodeVolumeLimits AzureDiskLimits VolumeBinding VolumeZone PodTopologySpread "
        "InterPodAffinity"
    ),
    "post_filter": "DefaultPreemption",
    "pre_score": "InterPodAffinity PodTopologySpread TaintToleration NodeAffinity",
    "reserve": "VolumeBinding",
    "pre_bind": "VolumeBinding",
    "bind": "DefaultBinder",
}
_SCORE_V1BETA1: Final = (
    "NodeResourcesBalancedAllocation:1 ImageLocality:1 InterPodAffinity:1 NodeResourcesLeastAllocated:1 "
    "NodeAffinity:1 NodePreferAvoidPods:10000 PodTopologySpread:2 TaintToleration:1"
)
_SCORE_V1BETA2: Final = (
    "NodeResourcesBalancedAllocation:1 ImageLocality:1 InterPodAffinity:1 NodeResourcesFit:1 NodeAffinity:1 "
    "PodTopologySpread:2 TaintToleration:1"
)

#: By algorithm provider, the score plugins that it replaces, each with its replacement.
PROVIDERS: Final[dict[str, dict[str, str]]] = {
    "DefaultProvider": {},
    "ClusterAutoscalerProvider": {"NodeResourcesLeastAllocated": "NodeResourcesMostAllocated"},
}


def _plugins(text: str) -> tuple[Plugin, ...]:
    pairs = (item.partition(":") for item in text.split())
    return tuple(Plugin(name=name, weight=int(weight or 0)) for name, _, weight in pairs)


def default_plugins(version: str, *, selector_spread: bool, provider: str = "DefaultProvider") -> PluginLists:
    """Return the defaults of a version. ``selector_spread`` adds SelectorSpread, as its feature gate did.

    Raises:
        KeyError: for a provider that does not exist.
    """
    replaced = PROVIDERS[provider]
    lists = {point: _plugins(text) for point, text in _POINTS.items()}
    score = _plugins(_SCORE_V1BETA2 if version == "v1beta2" else _SCORE_V1BETA1)
    lists["score"] = tuple(Plugin(name=replaced.get(item.name, item.name), weight=item.weight) for item in score)
    if selector_spread:
        lists["score"] += (Plugin(name="SelectorSpread", weight=1),)
        lists["pre_score"] += (Plugin(name="SelectorSpread"),)
    return lists
