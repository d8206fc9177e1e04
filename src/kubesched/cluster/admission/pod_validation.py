"""What a pod spec must satisfy, and what an update may still change.

Caller: ``admission`` for a spec it has not seen before, ``store`` for updates. The spec is decoded into the
API types first, so a field of the wrong type is 400 with its path and the checks below need no type tests.
Rules and texts: upstream ``pkg/apis/core/validation``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ...api.decode import DecodeError, from_builtins
from ...api.kinds import PODS
from ...api.quantity import Quantity
from ...api.requests import is_extended_resource
from ...api.selectors import (
    SelectorError,
    compile_label_selector,
    is_label_value,
    is_qualified_name,
    parse_int64,
    preferred_terms,
)
from ...api.types import (
    Container,
    LabelSelector,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
)
from ...api.wire import ApiError
from .device_claims import check_pod_claims
from .validation import (
    LABEL_TEXT,
    LABEL_VALUE_TEXT,
    QUALIFIED_TEXT,
    Causes,
    check_labels,
    check_node_selector,
    check_quantities,
    is_dns_label,
)
from .volumes import check_mounts

__all__ = ["check_pod_spec", "check_pod_update"]

_STANDARD_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_OPERATORS: Final = ("Equal", "Exists", "Lt", "Gt")


def decode_pod_spec(spec: Any) -> PodSpec:
    """The typed form of a spec.

    Raises:
        ApiError: 400, naming the field of the wrong type.
    """
    try:
        return from_builtins(spec, PodSpec)
    except DecodeError as error:
        text = str(error).replace("`$.", "`spec.").replace("`$`", "`spec`")
        raise ApiError.bad_request(f'Pod in version "v1" cannot be handled as a Pod: {text}') from None


def check_pod_spec(data: dict[str, Any], causes: Causes, claimed: Iterable[str] = ()) -> None:
    """What relates the members of a spec, in plain data whose form has been checked; :mod:`.values` checks each alone.

    ``claimed`` are the names of volumes that the pods of a template get alongside their own.
    """
    check_mounts(data, causes, claimed)
    check_pod_claims(data, causes)
    spec = decode_pod_spec(data)
    _check_containers(spec, causes)
    if spec.node_selector:
        check_labels(spec.node_selector, "spec.nodeSelector", causes)
    if spec.resources is not None:
        _check_resources(spec.resources, "spec.resources", causes)
    if spec.overhead:
        check_quantities(PODS, spec.overhead, "spec.overhead", causes)
    for index, toleration in enumerate(spec.tolerations):
        check_toleration(toleration, f"spec.tolerations[{index}]", causes)
    if spec.affinity is not None:
        if spec.affinity.node_affinity is not None:
            _check_node_affinity(spec.affinity.node_affinity, "spec.affinity.nodeAffinity", causes)
        if spec.affinity.pod_affinity is not None:
            _check_pod_affinity(spec.affinity.pod_affinity, "spec.affinity.podAffinity", causes)
        if spec.affinity.pod_anti_affinity is not None:
            _check_pod_affinity(spec.affinity.pod_anti_affinity, "spec.affinity.podAntiAffinity", causes)
    _check_spreading(spec.topology_spread_constraints, causes)
    _check_names("spec.volumes", (volume.name for volume in spec.volumes), causes)
    _check_names("spec.resourceClaims", (claim.name for claim in spec.resource_claims), causes)
    _check_gates(spec, causes)


def _check_names(path: str, names: Iterable[str], causes: Causes) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name and name in seen:
            causes.duplicate(f"{path}[{index}].name", name)
        seen.add(name)


# -- containers --------------------------------------------------------------------------------------------


def _check_containers(spec: PodSpec, causes: Causes) -> None:
    names: set[str] = set()
    host_ports: set[tuple[str, str, int]] = set()
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers):
            path = f"spec.{field}[{index}]"
            if container.name and container.name in names:
                causes.duplicate(f"{path}.name", container.name)
            names.add(container.name)
            # Ordinary init containers run one after another, so only the others can clash over host ports.
            shared = host_ports if field == "containers" or container.restart_policy == "Always" else set()
            _check_ports(container, path, spec.host_network, shared, causes)
            _check_resources(container.resources, f"{path}.resources", causes)


def _check_ports(
    container: Container, path: str, host_network: bool, taken: set[tuple[str, str, int]], causes: Causes
) -> None:
    for index, port in enumerate(container.ports):
        where = f"{path}.ports[{index}]"
        if host_network and port.host_port and port.host_port != port.container_port:
            causes.invalid(f"{where}.hostPort", port.host_port, "must match `containerPort` when `hostNetwork` is true")
        if port.host_port:
            key = (port.protocol, port.host_ip, port.host_port)
            if key in taken:
                causes.duplicate(f"{where}.hostPort", f"{port.protocol}/{port.host_ip}/{port.host_port}")
            taken.add(key)


def _whole(name: str) -> bool:
    """Whether a resource is counted in whole units that cannot be overcommitted."""
    return is_extended_resource(name) or name.startswith("hugepages-")


def _check_resources(resources: ResourceRequirements, path: str, causes: Causes) -> None:
    if not resources.requests and not resources.limits:
        return
    requests = check_quantities(PODS, resources.requests, f"{path}.requests", causes)
    limits = check_quantities(PODS, resources.limits, f"{path}.limits", causes)
    for field, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            if "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
                causes.invalid(f"{path}.{field}", name, "must be a standard resource for containers")
            elif is_extended_resource(name) and amount.nanos % 10**9:
                causes.invalid(f"{path}.{field}[{name}]", str(amount), "must be an integer")
    for name, amount in requests.items():
        _check_limit(name, amount, limits.get(name), path, causes)


def _check_limit(name: str, amount: Quantity, limit: Quantity | None, path: str, causes: Causes) -> None:
    if limit is None:
        if _whole(name):
            causes.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif amount != limit and _whole(name):
        causes.invalid(f"{path}.requests", str(amount), f"must be equal to {name} limit of {limit}")
    elif limit < amount:
        causes.invalid(f"{path}.requests", str(amount), f"must be less than or equal to {name} limit of {limit}")


# -- placement rules ---------------------------------------------------------------------------------------


def check_toleration(toleration: Toleration, path: str, causes: Causes) -> None:
    """One toleration. Gt and Lt are let through whatever the gate says: the scheduler's gate decides."""
    operator = toleration.operator or "Equal"
    if toleration.key:
        if not is_qualified_name(toleration.key):
            causes.invalid(f"{path}.key", toleration.key, QUALIFIED_TEXT)
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        causes.invalid(f"{path}.operator", toleration.operator, why)
    if operator not in _OPERATORS:
        causes.unsupported(f"{path}.operator", toleration.operator, ("Equal", "Exists"))
    elif operator == "Exists":
        if toleration.value:
            causes.invalid(f"{path}.operator", toleration.value, "value must be empty when `operator` is 'Exists'")
    elif operator == "Equal":
        if not is_label_value(toleration.value):
            causes.invalid(f"{path}.operator", toleration.value, LABEL_VALUE_TEXT)
    elif parse_int64(toleration.value) is None:
        causes.invalid(f"{path}.value", toleration.value, "must be an integer when `operator` is 'Lt' or 'Gt'")
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        causes.invalid(
            f"{path}.effect", toleration.effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"
        )


def _check_node_affinity(affinity: NodeAffinity, path: str, causes: Causes) -> None:
    required = affinity.required
    if required is not None:
        check_node_selector(required, f"{path}.requiredDuringSchedulingIgnoredDuringExecution", causes)
    where = f"{path}.preferredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(affinity.preferred or ()):
        _check_weight(term.weight, f"{where}[{index}]", causes)
    try:
        preferred_terms(affinity.preferred or (), where)
    except SelectorError as error:
        causes.selector(str(error))


def _check_weight(weight: int, path: str, causes: Causes) -> None:
    if not 1 <= weight <= 100:
        causes.invalid(f"{path}.weight", weight, "must be in the range 1-100")


def _check_selector(selector: LabelSelector | None, path: str, causes: Causes) -> None:
    try:
        compile_label_selector(selector, path)
    except SelectorError as error:
        causes.selector(str(error))


def _check_pod_affinity(affinity: PodAffinity, path: str, causes: Causes) -> None:
    for index, term in enumerate(affinity.required):
        _check_affinity_term(term, f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{index}]", causes)
    for index, weighted in enumerate(affinity.preferred):
        where = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        _check_weight(weighted.weight, where, causes)
        _check_affinity_term(weighted.pod_affinity_term, f"{where}.podAffinityTerm", causes)


def _check_topology_key(key: str, path: str, causes: Causes) -> None:
    if key and not is_qualified_name(key):
        causes.invalid(f"{path}.topologyKey", key, QUALIFIED_TEXT)


def _check_affinity_term(term: PodAffinityTerm, path: str, causes: Causes) -> None:
    _check_topology_key(term.topology_key, path, causes)
    _check_selector(term.label_selector, f"{path}.labelSelector", causes)
    _check_selector(term.namespace_selector, f"{path}.namespaceSelector", causes)
    for index, namespace in enumerate(term.namespaces):
        if not is_dns_label(namespace):
            causes.invalid(f"{path}.namespaces[{index}]", namespace, LABEL_TEXT)
    for field, keys in (("matchLabelKeys", term.match_label_keys), ("mismatchLabelKeys", term.mismatch_label_keys)):
        _check_label_keys(keys, f"{path}.{field}", term.label_selector, causes)
    for key in set(term.match_label_keys) & set(term.mismatch_label_keys):
        causes.invalid(f"{path}.matchLabelKeys", key, "exists in both matchLabelKeys and mismatchLabelKeys")


def _check_label_keys(keys: tuple[str, ...], path: str, selector: LabelSelector | None, causes: Causes) -> None:
    if keys and selector is None:
        causes.forbidden(path, "must not be specified when labelSelector is not set")
    for index, key in enumerate(keys):
        if not is_qualified_name(key):
            causes.invalid(f"{path}[{index}]", key, QUALIFIED_TEXT)


def _check_spreading(constraints: tuple[TopologySpreadConstraint, ...], causes: Causes) -> None:
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        path = f"spec.topologySpreadConstraints[{index}]"
        if constraint.max_skew <= 0:
            causes.invalid(f"{path}.maxSkew", constraint.max_skew, "must be greater than zero")
        _check_topology_key(constraint.topology_key, path, causes)
        action = constraint.when_unsatisfiable
        if constraint.min_domains is not None:
            if constraint.min_domains <= 0:
                causes.invalid(f"{path}.minDomains", constraint.min_domains, "must be greater than zero")
            if action != "DoNotSchedule":
                causes.invalid(
                    f"{path}.minDomains",
                    constraint.min_domains,
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule",
                )
        pair = (constraint.topology_key, action)
        if pair in seen:
            causes.duplicate(f"{path}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}")
        seen.add(pair)
        _check_selector(constraint.label_selector, f"{path}.labelSelector", causes)
        _check_label_keys(constraint.match_label_keys, f"{path}.matchLabelKeys", constraint.label_selector, causes)


def _check_gates(spec: PodSpec, causes: Causes) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(spec.scheduling_gates):
        path = f"spec.schedulingGates[{index}]"
        if not is_qualified_name(gate.name):
            causes.invalid(path, gate.name, QUALIFIED_TEXT)
        elif gate.name in seen:
            causes.duplicate(path, gate.name)
        seen.add(gate.name)
    if spec.scheduling_gates and spec.node_name:
        causes.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


# -- updates -----------------------------------------------------------------------------------------------

_UPDATE_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_pod_update(old: dict[str, Any], new: dict[str, Any], causes: Causes, *, resize: bool = False) -> None:
    """Whether ``new`` changes only what an update may change; both are plain specs.

    ``resize`` is the subresource of that name: containers' resources may change and nothing else.
    """
    left, right = dict(old), dict(new)
    if resize:
        for side in (left, right):
            side["containers"] = [_without(item, "resources", "resizePolicy") for item in side.get("containers") or ()]
            side["initContainers"] = [
                _without(item, "resources", "resizePolicy") for item in side.get("initContainers") or ()
            ]
        if left != right:
            causes.forbidden("spec", "only cpu and memory resources are mutable")
        return
    for side in (left, right):
        for field in ("containers", "initContainers"):
            side[field] = [_without(item, "image") for item in side.get(field) or ()]
    _check_deadline(left.pop("activeDeadlineSeconds", None), right.pop("activeDeadlineSeconds", None), causes)
    grace = left.pop("terminationGracePeriodSeconds", None)
    if right.pop("terminationGracePeriodSeconds", None) != grace and not (
        grace is not None and grace < 0 and new.get("terminationGracePeriodSeconds") == 1
    ):
        causes.forbidden("spec", _UPDATE_TEXT)
        return
    kept = [_without(item, "tolerationSeconds") for item in right.pop("tolerations", None) or []]
    if any(_without(item, "tolerationSeconds") not in kept for item in left.pop("tolerations", None) or []):
        causes.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    gates = left.pop("schedulingGates", None) or []
    for gate in right.pop("schedulingGates", None) or []:
        if gate not in gates:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            causes.forbidden("spec.schedulingGates", why)
    if gates:
        _check_gated(left, right, causes)
    if left != right:
        causes.forbidden("spec", _UPDATE_TEXT)


def _without(item: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in fields}


def _check_deadline(old: Any, new: Any, causes: Causes) -> None:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            causes.invalid(path, None, "must not update from a positive integer to nil value")
    elif new < 0:
        causes.invalid(path, new, "must be greater than or equal to 0")
    elif old is not None and new > old:
        causes.invalid(path, new, f"must be less than or equal to previous value {old}")


def _check_gated(left: dict[str, Any], right: dict[str, Any], causes: Causes) -> None:
    """A gated pod's node selector and required node affinity may be narrowed; narrowing is taken out of both sides."""
    old_selector, new_selector = left.pop("nodeSelector", None) or {}, right.pop("nodeSelector", None) or {}
    if any(new_selector.get(key) != value for key, value in old_selector.items()):
        causes.invalid("spec.nodeSelector", new_selector, "only additions are allowed (no mutations or deletions)")
    old_affinity, new_affinity = dict(left.pop("affinity", None) or {}), dict(right.pop("affinity", None) or {})
    old_node, new_node = old_affinity.pop("nodeAffinity", None) or {}, new_affinity.pop("nodeAffinity", None) or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    old_terms = (old_node.get(required) or {}).get("nodeSelectorTerms")
    new_terms = (new_node.get(required) or {}).get("nodeSelectorTerms")
    if old_terms is not None:
        path = f"spec.affinity.nodeAffinity.{required}.nodeSelectorTerms"
        if new_terms is None or len(new_terms) != len(old_terms):
            causes.invalid(path, new_terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        else:
            for index, (old, new) in enumerate(zip(old_terms, new_terms, strict=True)):
                for field in ("matchExpressions", "matchFields"):
                    before, after = old.get(field) or [], new.get(field) or []
                    if after[: len(before)] != before:
                        causes.invalid(
                            f"{path}[{index}].{field}", after, "only additions are allowed (no mutations or deletions)"
                        )
    if old_affinity or new_affinity:
        left["affinity"], right["affinity"] = old_affinity, new_affinity
