"""Checks of plugin arguments: by ``validate`` for a whole configuration, by the framework when it builds a plugin.

Texts and paths: rules/configuration §4. Upstream checks NodeResourcesFit only when the plugin is built
(rules/configuration §4.1), and so does this package: ``validate`` leaves NodeResourcesFit out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubesched.api.selectors import parse_int64
from kubesched.api.types import NodeSelectorRequirement, NodeSelectorTerm, TopologySpreadConstraint

from .args import (
    ARGS_TYPES,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ScoringStrategy,
    UtilizationShapePoint,
    VolumeBindingArgs,
)
from .durations import Duration
from .features import FeatureGates
from .fielderrors import (
    duplicate,
    forbidden,
    go_json,
    invalid,
    label_value_errors,
    not_supported,
    qualified_name_errors,
    quote,
    required,
)

__all__ = ["shape_errors", "validate_args"]

_STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FILTER_TIMEOUT_OFF: Final = "DRASchedulingFilterTimeout feature gate is disabled"
_BINDING_TIMEOUT_OFF: Final = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"


def validate_args(name: str, args: Any, gates: FeatureGates, path: str = "") -> list[str]:
    """Return the errors of a plugin's arguments; empty when they are valid or the plugin is not in-tree.

    ``path`` is put before the field names; the framework leaves it empty.
    """
    wanted = ARGS_TYPES.get(name)
    if wanted is None:
        return []
    if not isinstance(args, wanted):
        return [invalid(path or name, go_json(args), "has to match plugin args")]
    return list(_checks(args, f"{path}." if path else "", gates))


def _checks(args: Any, at: str, gates: FeatureGates) -> Iterator[str]:
    match args:
        case NodeResourcesFitArgs():
            return _fit(args, at)
        case NodeResourcesBalancedAllocationArgs():
            return _balanced(args, at)
        case NodeAffinityArgs():
            return _node_affinity(args, at)
        case InterPodAffinityArgs():
            return _in_range(f"{at}hardPodAffinityWeight", args.hard_pod_affinity_weight, 100)
        case PodTopologySpreadArgs():
            return _topology_spread(args, at)
        case DefaultPreemptionArgs():
            return _preemption(args, at)
        case VolumeBindingArgs():
            return _volume_binding(args, at, gates)
        case DynamicResourcesArgs():
            return _dynamic_resources(args, at, gates)
    raise TypeError(f"no check for arguments of type {type(args).__name__}")


def _in_range(path: str, value: int, top: int) -> Iterator[str]:
    if not 0 <= value <= top:
        yield invalid(path, value, f"not in valid range [0, {top}]")


def _label_name(path: str, name: str) -> Iterator[str]:
    if errors := qualified_name_errors(name):
        yield invalid(path, name, "; ".join(errors))


# -- resources -----------------------------------------------------------------------------------------------


def _fit(args: NodeResourcesFitArgs, at: str) -> Iterator[str]:
    for index, name in enumerate(args.ignored_resources):
        yield from _label_name(f"{at}ignoredResources[{index}]", name)
    for index, name in enumerate(args.ignored_resource_groups):
        path = f"{at}ignoredResourceGroups[{index}]"
        if "/" in name:
            yield invalid(path, name, "resource group name can't contain '/'")
        yield from _label_name(path, name)
    yield from _strategy(args.scoring_strategy, f"{at}scoringStrategy")


def _strategy(strategy: ScoringStrategy, path: str) -> Iterator[str]:
    if strategy.type not in _STRATEGIES:
        yield not_supported(f"{path}.type", strategy.type, _STRATEGIES)
    for index, item in enumerate(strategy.resources):
        if not 1 <= item.weight <= 100:
            text = f"resource weight of {item.name} not in valid range (0, 100]"
            yield invalid(f"{path}.resources[{index}].weight", item.weight, text)
    ratio, ratio_path = strategy.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
    if strategy.type == "RequestedToCapacityRatio":
        if ratio is None:
            yield required(ratio_path, "must be specified when type is RequestedToCapacityRatio")
        else:
            yield from shape_errors(ratio.shape, f"{ratio_path}.shape")
    elif ratio is not None:
        yield forbidden(ratio_path, "must be nil when type is not RequestedToCapacityRatio")


def shape_errors(shape: Sequence[UtilizationShapePoint], path: str) -> Iterator[str]:
    if not shape:
        yield required(path, "at least one point must be specified")
    for index, point in enumerate(shape):
        if index and point.utilization <= shape[index - 1].utilization:
            text = "values must be sorted in increasing order"
            yield invalid(f"{path}[{index}].utilization", point.utilization, text)
    for index, point in enumerate(shape):
        yield from _in_range(f"{path}[{index}].utilization", point.utilization, 100)
        yield from _in_range(f"{path}[{index}].score", point.score, 10)


def _balanced(args: NodeResourcesBalancedAllocationArgs, at: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(args.resources):
        path = f"{at}resources[{index}]"
        if item.weight != 1:
            yield invalid(f"{path}.weight", item.weight, "must be 1")
        if item.name in seen:
            yield duplicate(f"{path}.name", quote(item.name))
        seen.add(item.name)


# -- node affinity -------------------------------------------------------------------------------------------


def _node_affinity(args: NodeAffinityArgs, at: str) -> Iterator[str]:
    if args.added_affinity is None:
        return
    if args.added_affinity.required is not None:
        path = f"{at}addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        for index, term in enumerate(args.added_affinity.required.node_selector_terms):
            yield from _term(term, f"{path}[{index}]")
    for index, preferred in enumerate(args.added_affinity.preferred or ()):
        if preferred.weight:  # a term of weight 0 is dropped unread
            path = f"{at}addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
            yield from _term(preferred.preference, path)


def _term(term: NodeSelectorTerm, path: str) -> Iterator[str]:
    for index, item in enumerate(term.match_expressions):
        yield from _expression(item, f"{path}.matchExpressions[{index}]")
    for index, item in enumerate(term.match_fields):
        yield from _field(item, f"{path}.matchFields[{index}]")


def _expression(item: NodeSelectorRequirement, path: str) -> Iterator[str]:
    if item.operator not in _OPERATORS:
        yield not_supported(f"{path}.operator", item.operator, _OPERATORS)
        return
    yield from _label_name(f"{path}.key", item.key)
    values = list(item.values)
    match item.operator:
        case "In" | "NotIn" if not values:
            yield invalid(f"{path}.values", values, "for 'in', 'notin' operators, values set can't be empty")
        case "Exists" | "DoesNotExist" if values:
            yield invalid(f"{path}.values", values, "values set must be empty for exists and does not exist")
        case "Gt" | "Lt":
            if len(values) != 1:
                yield invalid(f"{path}.values", values, "for 'Gt', 'Lt' operators, exactly one value is required")
            for index, value in enumerate(values):
                if parse_int64(value) is None:
                    text = "for 'Gt', 'Lt' operators, the value must be an integer"
                    yield invalid(f"{path}.values[{index}]", value, text)
    for index, value in enumerate(values):
        if errors := label_value_errors(value):
            yield invalid(f"{path}.values[{index}][{item.key}]", value, "; ".join(errors))


def _field(item: NodeSelectorRequirement, path: str) -> Iterator[str]:
    if item.operator not in ("In", "NotIn"):
        yield not_supported(f"{path}.operator", item.operator, ("In", "NotIn"))
    elif len(item.values) != 1:
        yield invalid(f"{path}.values", list(item.values), "must have exactly one element")


# -- topology spread -----------------------------------------------------------------------------------------


def _topology_spread(args: PodTopologySpreadArgs, at: str) -> Iterator[str]:
    path = f"{at}defaultingType"
    if args.defaulting_type not in ("System", "List"):
        yield not_supported(path, args.defaulting_type, ("System", "List"))
    elif args.defaulting_type == "System" and args.default_constraints:
        yield invalid(path, args.defaulting_type, "when .defaultConstraints are not empty")
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(args.default_constraints):
        path = f"{at}defaultConstraints[{index}]"
        yield from _constraint(constraint, path)
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            yield duplicate(path, quote(f"{{{pair[0]}, {pair[1]}}}"))
        seen.add(pair)


def _constraint(constraint: TopologySpreadConstraint, path: str) -> Iterator[str]:
    if constraint.max_skew <= 0:
        yield invalid(f"{path}.maxSkew", constraint.max_skew, "not in valid range (0, inf)")
    if not constraint.topology_key:
        yield required(f"{path}.topologyKey", "can not be empty")
    else:
        yield from _label_name(f"{path}.topologyKey", constraint.topology_key)
    if not constraint.when_unsatisfiable:
        yield required(f"{path}.whenUnsatisfiable", "can not be empty")
    elif constraint.when_unsatisfiable not in _ACTIONS:
        yield not_supported(f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, _ACTIONS)
    if constraint.label_selector is not None:
        yield forbidden(f"{path}.labelSelector", "constraint must not define a selector, as they deduced for each pod")


# -- preemption, volumes, devices ----------------------------------------------------------------------------


def _preemption(args: DefaultPreemptionArgs, at: str) -> Iterator[str]:
    percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    yield from _in_range(f"{at}minCandidateNodesPercentage", percentage, 100)
    if absolute < 0:
        yield invalid(f"{at}minCandidateNodesAbsolute", absolute, "not in valid range [0, inf)")
    if not percentage and not absolute:
        text = "cannot be zero at the same time as minCandidateNodes"
        yield invalid(f"{at}minCandidateNodesPercentage", percentage, f"{text}Absolute")
        yield invalid(f"{at}minCandidateNodesAbsolute", absolute, f"{text}Percentage")


def _volume_binding(args: VolumeBindingArgs, at: str, gates: FeatureGates) -> Iterator[str]:
    if args.bind_timeout_seconds < 0:
        text = "invalid BindTimeoutSeconds, should not be a negative value"
        yield invalid(f"{at}bindTimeoutSeconds", args.bind_timeout_seconds, text)
    if gates.enabled("StorageCapacityScoring"):
        yield from shape_errors(args.shape or (), f"{at}shape")
    elif args.shape is not None:
        text = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        yield invalid(f"{at}shape", go_json(args.shape) or [], text)


def _dynamic_resources(args: DynamicResourcesArgs, at: str, gates: FeatureGates) -> Iterator[str]:
    if args.filter_timeout is not None:
        if not gates.enabled("DRASchedulerFilterTimeout"):
            yield forbidden(f"{at}filterTimeout", _FILTER_TIMEOUT_OFF)
        elif args.filter_timeout.nanoseconds < 0:
            yield invalid(f"{at}filterTimeout", args.filter_timeout, "must be zero or positive")
    if args.binding_timeout is not None:
        if not (gates.enabled("DRADeviceBindingConditions") and gates.enabled("DRAResourceClaimDeviceStatus")):
            yield forbidden(f"{at}bindingTimeout", _BINDING_TIMEOUT_OFF)
        elif args.binding_timeout < Duration.of_seconds(1):
            yield invalid(f"{at}bindingTimeout", args.binding_timeout, "must be at least 1 second")
