"""What relates the members of a pod spec, by type; see :mod:`.checks`, which is the caller.

Rules and texts: upstream ``pkg/apis/core/validation``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...api.decode import from_builtins
from ...api.quantity import Quantity, QuantityError, canonical_quantity, parse_quantity
from ...api.requests import is_extended_resource, pod_request_amounts
from ...api.selectors import (
    SelectorError,
    compile_label_selector,
    is_label_value,
    is_qualified_name,
    parse_int64,
    preferred_terms,
)
from ...api.types import LabelSelector, NodeAffinity, NodeSelector, Pod, PodSpec
from .validation import (
    LABEL_TEXT,
    LABEL_VALUE_TEXT,
    QUALIFIED_TEXT,
    Causes,
    check_labels,
    check_node_selector,
    check_quantities,
    check_single,
    is_dns_label,
)
from .volumes import check_source, containers_of

__all__ = ["POD_CHECKS"]

Data = dict[str, Any]

_STANDARD_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_SELECTION: Final = ("resourceClaimName", "resourceClaimTemplateName")


def _pod_spec(spec: Data, path: str, causes: Causes) -> None:
    names: set[str] = set()
    if spec.get("dnsPolicy") == "None":
        if spec.get("dnsConfig") is None:
            causes.required(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
        elif not spec["dnsConfig"].get("nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            causes.required(f"{path}.dnsConfig.nameservers", text)
    if spec.get("resources"):
        _pod_level(spec, path, causes)
    host_ports: set[tuple[str, str, int]] = set()
    claims = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    for where, container in containers_of(spec, path):
        name = container.get("name")
        if name and name in names:
            causes.duplicate(f"{where}.name", name)
        names.add(name or "")
        # Ordinary init containers run one after another, so only the others can clash over host ports.
        is_init = ".initContainers[" in where and container.get("restartPolicy") != "Always"
        _ports(container, where, bool(spec.get("hostNetwork")), set() if is_init else host_ports, causes)
        for index, reference in enumerate((container.get("resources") or {}).get("claims") or ()):
            if reference.get("name") not in claims:
                text = "must be one of the names in pod.spec.resourceClaims"
                causes.not_found(f"{where}.resources.claims[{index}].name", reference.get("name") or "", text)
        for member in ("lifecycle", *_PROBES) if is_init else ():
            if container.get(member) is not None:
                text = "may not be set for init containers without restartPolicy=Always"
                causes.forbidden(f"{where}.{member}", text)
    check_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector", causes)
    check_quantities(spec.get("overhead"), f"{path}.overhead", causes)
    gates: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name") or ""
        if not is_qualified_name(name):
            causes.invalid(f"{path}.schedulingGates[{index}]", name, QUALIFIED_TEXT)
        elif name in gates:
            causes.duplicate(f"{path}.schedulingGates[{index}]", name)
        gates.add(name)
    if gates and spec.get("nodeName"):
        causes.forbidden(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared")
    pairs: set[tuple[str, str]] = set()
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        pair = (constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or "")
        if pair in pairs:
            where = f"{path}.topologySpreadConstraints[{index}].{{topologyKey, whenUnsatisfiable}}"
            causes.duplicate(where, f"{{{pair[0]}, {pair[1]}}}")
        pairs.add(pair)


def _pod_level(spec: Data, path: str, causes: Causes) -> None:
    """Requests of the pod are enough for those of its containers, and its limits are no lower than any of theirs.

    As upstream, limits of init containers are not compared.
    """
    containers = {name: spec[name] for name in ("containers", "initContainers") if spec.get(name)}
    own = {field: spec["resources"].get(field) or {} for field in ("requests", "limits")}
    try:
        together = pod_request_amounts(Pod(spec=from_builtins(containers, PodSpec)), status_aware=False)
        for name, amount in together.items():
            given = own["requests"].get(name)
            if given is not None and amount > parse_quantity(given):
                shown = canonical_quantity(str(amount), like=given)
                text = f"must be greater than or equal to aggregate container requests of {shown}"
                causes.invalid(f"{path}.resources.requests[{name}]", str(given), text)
        for index, container in enumerate(spec.get("containers") or ()):
            for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
                most = own["limits"].get(name)
                if most is not None and parse_quantity(limit) > parse_quantity(most):
                    text = f"must be less than or equal to pod limits of {most}"
                    causes.invalid(f"{path}.containers[{index}].resources.limits[{name}]", str(limit), text)
    except QuantityError:
        return  # reported where it is


def _ports(container: Data, path: str, host_network: bool, taken: set[tuple[str, str, int]], causes: Causes) -> None:
    for index, port in enumerate(container.get("ports") or ()):
        where, number = f"{path}.ports[{index}].hostPort", port.get("hostPort")
        if not number:
            continue
        if host_network and number != port.get("containerPort"):
            causes.invalid(where, number, "must match `containerPort` when `hostNetwork` is true")
        key = (port.get("protocol") or "", port.get("hostIP") or "", number)
        if key in taken:
            causes.duplicate(where, "/".join(map(str, key)))
        taken.add(key)


def _container(container: Data, path: str, causes: Causes) -> None:
    """Which probes may have what; the members of each are checked by :func:`_probe`."""
    for name in _PROBES:
        probe = container.get(name) or {}
        threshold, grace = probe.get("successThreshold") or 1, probe.get("terminationGracePeriodSeconds")
        if name == "readinessProbe":
            if grace is not None:
                text = "must not be set for readinessProbes"
                causes.invalid(f"{path}.{name}.terminationGracePeriodSeconds", grace, text)
        elif threshold != 1:
            causes.invalid(f"{path}.{name}.successThreshold", threshold, "must be 1")


def _env(variable: Data, path: str, causes: Causes) -> None:
    if variable.get("value") and variable.get("valueFrom") is not None:
        causes.invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")


def _handler(handler: Data, path: str, causes: Causes) -> None:
    check_single(handler, ("exec", "httpGet", "tcpSocket", "grpc", "sleep"), path, causes, "handler")


def _probe(probe: Data, path: str, causes: Causes) -> None:
    _handler(probe, path, causes)
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        causes.invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")


def _resources(resources: Data, path: str, causes: Causes) -> None:
    requests, limits = (
        check_quantities(resources.get(field), f"{path}.{field}", causes) for field in ("requests", "limits")
    )
    for field, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            if "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
                causes.invalid(f"{path}.{field}", name, "must be a standard resource for containers")
            elif is_extended_resource(name) and amount.nanos % 10**9:
                causes.invalid(f"{path}.{field}[{name}]", str(amount), "must be an integer")
    for name, amount in requests.items():
        _check_limit(name, amount, limits.get(name), path, causes)


def _check_limit(name: str, amount: Quantity, limit: Quantity | None, path: str, causes: Causes) -> None:
    # Some resources are counted in whole units that cannot be overcommitted.
    whole = is_extended_resource(name) or name.startswith("hugepages-")
    if limit is None:
        if whole:
            causes.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif amount != limit and whole:
        causes.invalid(f"{path}.requests", str(amount), f"must be equal to {name} limit of {limit}")
    elif limit < amount:
        causes.invalid(f"{path}.requests", str(amount), f"must be less than or equal to {name} limit of {limit}")


def _claim(claim: Data, path: str, causes: Causes) -> None:
    given = [field for field in _SELECTION if claim.get(field)]
    if not given:
        causes.invalid(path, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
    elif len(given) > 1:
        text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        causes.invalid(path, claim, text)


# -- placement rules ---------------------------------------------------------------------------------------


def _toleration(toleration: Data, path: str, causes: Causes) -> None:
    """One toleration. Gt and Lt are let through whatever the gate says: the scheduler's gate decides."""
    key, given, value = (toleration.get(name) or "" for name in ("key", "operator", "value"))
    operator = given or "Equal"
    if key:
        if not is_qualified_name(key):
            causes.invalid(f"{path}.key", key, QUALIFIED_TEXT)
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        causes.invalid(f"{path}.operator", given, why)
    if operator == "Exists":
        if value:
            causes.invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")
    elif operator == "Equal":
        if not is_label_value(value):
            causes.invalid(f"{path}.operator", value, LABEL_VALUE_TEXT)
    elif operator not in ("Lt", "Gt"):
        causes.unsupported(f"{path}.operator", given, ("Equal", "Exists"))
    elif parse_int64(value) is None:
        causes.invalid(f"{path}.value", value, "must be an integer when `operator` is 'Lt' or 'Gt'")
    effect = toleration.get("effect") or ""
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        causes.invalid(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")


def _label_selector(selector: Data, path: str, causes: Causes) -> None:
    try:
        compile_label_selector(from_builtins(selector, LabelSelector), path)
    except SelectorError as error:
        causes.selector(str(error))


def _node_affinity(affinity: Data, path: str, causes: Causes) -> None:
    terms = from_builtins(affinity, NodeAffinity).preferred or ()
    try:
        preferred_terms(terms, f"{path}.preferredDuringSchedulingIgnoredDuringExecution")
    except SelectorError as error:
        causes.selector(str(error))


def _weighted(term: Data, path: str, causes: Causes) -> None:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        causes.invalid(f"{path}.weight", weight, "must be in the range 1-100")


def _affinity_term(term: Data, path: str, causes: Causes) -> None:
    _check_topology_key(term, path, causes)
    for index, namespace in enumerate(term.get("namespaces") or ()):
        if not is_dns_label(namespace):
            causes.invalid(f"{path}.namespaces[{index}]", namespace, LABEL_TEXT)
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        _check_label_keys(term, field, path, causes)
    for key in set(term.get("matchLabelKeys") or ()) & set(term.get("mismatchLabelKeys") or ()):
        causes.invalid(f"{path}.matchLabelKeys", key, "exists in both matchLabelKeys and mismatchLabelKeys")


def _check_topology_key(term: Data, path: str, causes: Causes) -> None:
    key = term.get("topologyKey")
    if key and not is_qualified_name(key):
        causes.invalid(f"{path}.topologyKey", key, QUALIFIED_TEXT)


def _check_label_keys(term: Data, field: str, path: str, causes: Causes) -> None:
    keys = term.get(field) or ()
    if keys and term.get("labelSelector") is None:
        causes.forbidden(f"{path}.{field}", "must not be specified when labelSelector is not set")
    for index, key in enumerate(keys):
        if not is_qualified_name(key):
            causes.invalid(f"{path}.{field}[{index}]", key, QUALIFIED_TEXT)


def _spreading(constraint: Data, path: str, causes: Causes) -> None:
    skew, domains = constraint.get("maxSkew") or 0, constraint.get("minDomains")
    if skew <= 0:
        causes.invalid(f"{path}.maxSkew", skew, "must be greater than zero")
    _check_topology_key(constraint, path, causes)
    if domains is not None:
        if domains <= 0:
            causes.invalid(f"{path}.minDomains", domains, "must be greater than zero")
        if constraint.get("whenUnsatisfiable") != "DoNotSchedule":
            text = "can only use minDomains if whenUnsatisfiable=DoNotSchedule"
            causes.invalid(f"{path}.minDomains", domains, text)
    _check_label_keys(constraint, "matchLabelKeys", path, causes)


POD_CHECKS: Final[Mapping[str, Callable[[Data, str, Causes], None]]] = {
    "PodSpec": _pod_spec,
    "Container": _container,
    "EnvVar": _env,
    "Probe": _probe,
    "LifecycleHandler": _handler,
    "ResourceRequirements": _resources,
    "PodResourceClaim": _claim,
    "Volume": lambda volume, path, causes: check_source(volume, "Volume", path, causes),
    "Toleration": _toleration,
    "LabelSelector": _label_selector,
    "NodeSelector": lambda selector, path, causes: check_node_selector(
        from_builtins(selector, NodeSelector), path, causes
    ),
    "NodeAffinity": _node_affinity,
    "PreferredSchedulingTerm": _weighted,
    "WeightedPodAffinityTerm": _weighted,
    "PodAffinityTerm": _affinity_term,
    "TopologySpreadConstraint": _spreading,
}
