"""Arguments of the in-tree plugins: one type per ``<Name>Args``.

The decoder reads the field types (and their ranges) from here. ``defaults`` completes fields whose default depends on
a feature gate. ``validate_args`` checks values. Plugins receive these objects when they are built.
Source of the fields and defaults: rules/configuration §4.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from kubesched.api.types import NodeAffinity, TopologySpreadConstraint

from .durations import Duration

__all__ = [
    "ARGS_TYPES",
    "DefaultPreemptionArgs",
    "DynamicResourcesArgs",
    "Go",
    "Int32",
    "Int64",
    "InterPodAffinityArgs",
    "NodeAffinityArgs",
    "NodeResourcesBalancedAllocationArgs",
    "NodeResourcesFitArgs",
    "PluginArgs",
    "PodTopologySpreadArgs",
    "RequestedToCapacityRatioParam",
    "ResourceSpec",
    "ScoringStrategy",
    "UtilizationShapePoint",
    "VolumeBindingArgs",
    "args_kind",
]


class Go(msgspec.Struct, frozen=True):
    """Name of a field in upstream's type messages: its Go type, and the struct through which it is embedded."""

    type: str = ""
    embedded: str = ""


Int32 = Annotated[int, Go("int32")]
Int64 = Annotated[int, Go("int64")]


class Part(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of the configuration types: immutable, camelCase in the file, equal by value."""


class ResourceSpec(Part, frozen=True):
    """Resource and its weight relative to other resources; a weight of 0 or none becomes 1."""

    name: str = ""
    weight: Int64 = 1


class UtilizationShapePoint(Part, frozen=True):
    """Point of a broken line: ``score`` (0..10) at ``utilization`` (percent)."""

    utilization: Int32 = 0
    score: Int32 = 0


class RequestedToCapacityRatioParam(Part, frozen=True):
    shape: tuple[UtilizationShapePoint, ...] = ()


#: Default resources of fit and balance.
CPU_AND_MEMORY: Final = (ResourceSpec(name="cpu", weight=1), ResourceSpec(name="memory", weight=1))


class ScoringStrategy(Part, frozen=True):
    """Scoring of NodeResourcesFit. ``type`` has no default: a strategy without a type is an error."""

    type: Annotated[str, Go("v1.ScoringStrategyType")] = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None


class NodeResourcesFitArgs(Part, frozen=True):
    """Arguments of NodeResourcesFit.

    Filter ignores ``ignored_resources`` and ``ignored_resource_groups`` (domains of extended resources).
    """

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated", resources=CPU_AND_MEMORY)


class NodeResourcesBalancedAllocationArgs(Part, frozen=True):
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY


class NodeAffinityArgs(Part, frozen=True):
    """Arguments of NodeAffinity.

    ``added_affinity`` is demanded (and preferred) of nodes in addition to each pod's own node affinity.
    """

    added_affinity: NodeAffinity | None = None


class InterPodAffinityArgs(Part, frozen=True):
    """Arguments of InterPodAffinity.

    ``hard_pod_affinity_weight`` (0..100) is the weight of existing pods' required affinity terms in scoring.
    """

    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class PodTopologySpreadArgs(Part, frozen=True):
    """Arguments of PodTopologySpread: constraints for pods that have none.

    They are upstream's own (``System``) or ``default_constraints`` (``List``).
    """

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: Annotated[str, Go("v1.PodTopologySpreadConstraintsDefaulting")] = "System"


class DefaultPreemptionArgs(Part, frozen=True):
    """Arguments of DefaultPreemption: number of candidate nodes to evaluate.

    The greater of a percentage and an absolute number counts.
    """

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100


class VolumeBindingArgs(Part, frozen=True):
    """Arguments of VolumeBinding.

    ``bind_timeout_seconds`` limits the wait for volumes; ``shape`` scores storage use (None: no scoring).
    """

    bind_timeout_seconds: Int64 = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None


class DynamicResourcesArgs(Part, frozen=True):
    """Arguments of DynamicResources: time limits for allocating on one node and for binding devices.

    They are None while their feature gates are off.
    """

    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None


PluginArgs = (
    NodeResourcesFitArgs
    | NodeResourcesBalancedAllocationArgs
    | NodeAffinityArgs
    | InterPodAffinityArgs
    | PodTopologySpreadArgs
    | DefaultPreemptionArgs
    | VolumeBindingArgs
    | DynamicResourcesArgs
)

#: Type of arguments by plugin name. An in-tree plugin that is not listed takes no arguments; any other plugin takes
#: plain data.
ARGS_TYPES: Final[dict[str, type[PluginArgs]]] = {
    "DefaultPreemption": DefaultPreemptionArgs,
    "DynamicResources": DynamicResourcesArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "VolumeBinding": VolumeBindingArgs,
}


def args_kind(name: str) -> str:
    """Return the ``kind`` of a plugin's arguments."""
    return f"{name}Args"
