"""Checks that relate the members of a pod spec, by type, where ``rules.txt`` of the schema cannot express them.

Rules and texts: upstream ``pkg/apis/core/validation``. Callers: :mod:`.checks`, and :mod:`.kinds` for mounts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from kubesched.api.decode import from_builtins
from kubesched.api.quantity import Quantity, QuantityError, canonical_quantity, parse_quantity
from kubesched.api.requests import is_extended_resource, pod_request_amounts
from kubesched.api.selectors import (
    NodeSelectorMatcher,
    SelectorError,
    compile_label_selector,
    is_qualified_name,
    parse_int64,
    preferred_terms,
)
from kubesched.api.types import LabelSelector, NodeAffinity, NodeSelector, Pod, PodSpec

from .validation import Causes, check_labels, check_quantities, check_single, check_source, repeated

__all__ = ["POD_CHECKS", "check_mounts"]

Data = dict[str, Any]

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def _pod_spec(spec: Data, path: str, causes: Causes) -> None:
    names: set[str] = set()
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
        causes.check_format("key!", f"{path}.schedulingGates[{index}]", name)
        if name in gates and is_qualified_name(name):
            causes.duplicate(f"{path}.schedulingGates[{index}]", name)
        gates.add(name)
    spreading = spec.get("topologySpreadConstraints")
    for index, (key, action) in repeated(spreading, ("topologyKey", "whenUnsatisfiable")):
        where = f"{path}.topologySpreadConstraints[{index}].{{topologyKey, whenUnsatisfiable}}"
        causes.duplicate(where, f"{{{key or ''}, {action or ''}}}")


def containers_of(spec: Data, path: str) -> Iterator[tuple[str, Data]]:
    """Yield the containers of a pod spec with their paths, init containers first."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"{path}.{field}[{index}]", container


def check_mounts(spec: Data, path: str, causes: Causes, claimed: Iterable[str] = ()) -> None:
    """Check the volume mounts of a pod spec.

    ``claimed`` are volumes that pods of a StatefulSet get in addition to the volumes in the spec.
    """
    names = {*claimed, *(volume.get("name") for volume in spec.get("volumes") or ())}
    for where, container in containers_of(spec, path):
        places: set[str] = set()
        for field in ("volumeMounts", "volumeDevices"):
            for index, mount in enumerate(container.get(field) or ()):
                name, place = mount.get("name"), mount.get("mountPath")
                if name and name not in names:
                    causes.not_found(f"{where}.{field}[{index}].name", name)
                if place and place in places:
                    causes.invalid(f"{where}.{field}[{index}].mountPath", place, "must be unique")
                places.add(place or "")


def _pod_level(spec: Data, path: str, causes: Causes) -> None:
    """Check that pod-level requests cover the containers' requests, and that limits are no lower than any container's.

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
        return  # reported where the type is checked


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


def _resources(resources: Data, path: str, causes: Causes) -> None:
    requests, limits = (
        check_quantities(resources.get(field), f"{path}.{field}", causes, "for containers")
        for field in ("requests", "limits")
    )
    for field, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            if is_extended_resource(name) and amount.nanos % 10**9:
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


# -- placement rules ---------------------------------------------------------------------------------------


def _toleration(toleration: Data, path: str, causes: Causes) -> None:
    """Check the value of a toleration. Gt and Lt always pass here, because the scheduler's gate decides about them."""
    operator, value = toleration.get("operator") or "Equal", toleration.get("value") or ""
    if operator == "Equal":
        causes.check_format("label-value", f"{path}.operator", value)
    elif operator in ("Lt", "Gt") and parse_int64(value) is None:
        causes.invalid(f"{path}.value", value, "must be an integer when `operator` is 'Lt' or 'Gt'")


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


def _node_selector(selector: Data, path: str, causes: Causes) -> None:
    """Check the terms of a node selector. A rule of the schema requires at least one term."""
    where, compiled = f"{path}.nodeSelectorTerms", from_builtins(selector, NodeSelector)
    for index, term in enumerate(compiled.node_selector_terms):
        for position, field in enumerate(term.match_fields):
            if field.key != "metadata.name":
                place = f"{where}[{index}].matchFields[{position}].key"
                causes.invalid(place, field.key, "not a valid field selector key")
    error = NodeSelectorMatcher.compile(compiled, where).error
    if error:
        causes.selector(error)


_handler = partial(check_single, ("exec", "httpGet", "tcpSocket", "grpc", "sleep"), "handler")

POD_CHECKS: Final[Mapping[str, Callable[[Data, str, Causes], None]]] = {
    "PodSpec": _pod_spec,
    "Probe": _handler,
    "LifecycleHandler": _handler,
    "ResourceRequirements": _resources,
    "Volume": partial(check_source, "Volume"),
    "Toleration": _toleration,
    "LabelSelector": _label_selector,
    "NodeSelector": _node_selector,
    "NodeAffinity": _node_affinity,
}
