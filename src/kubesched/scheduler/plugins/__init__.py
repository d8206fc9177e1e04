"""The in-tree plugins, one module each. :func:`in_tree_registry` gives them to the other packages."""

from __future__ import annotations

from functools import cache

from ..framework.registry import Registry
from .balanced_allocation import NodeResourcesBalancedAllocation
from .default_binder import DefaultBinder
from .default_preemption import DefaultPreemption
from .dynamic_resources.plugin import DynamicResources
from .image_locality import ImageLocality
from .inter_pod_affinity import InterPodAffinity
from .node_affinity import NodeAffinity
from .node_declared_features import NodeDeclaredFeatures
from .node_name import NodeName
from .node_ports import NodePorts
from .node_resources_fit import NodeResourcesFit
from .node_unschedulable import NodeUnschedulable
from .pod_topology_spread import PodTopologySpread
from .priority_sort import PrioritySort
from .scheduling_gates import SchedulingGates
from .taint_toleration import TaintToleration
from .volumes.node_volume_limits import NodeVolumeLimits
from .volumes.volume_binding import VolumeBinding
from .volumes.volume_restrictions import VolumeRestrictions
from .volumes.volume_zone import VolumeZone

__all__ = ["IN_TREE", "in_tree_registry"]

#: In the order of upstream's default MultiPoint list.
IN_TREE: tuple[type, ...] = (
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
)


def in_tree_registry() -> Registry:
    """A fresh registry with every in-tree plugin."""
    return _in_tree().copy()


@cache
def _in_tree() -> Registry:
    """The classes are checked once, which takes 12 ms: every simulation asks for a fresh registry."""
    registry = Registry()
    for plugin in IN_TREE:
        registry.register(plugin)
    return registry
