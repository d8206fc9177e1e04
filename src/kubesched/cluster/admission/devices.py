"""Defaults and checks of ``resource.k8s.io`` kinds: claims, their templates, slices, classes and taint rules.

Facts: the API's field descriptions and the limits in spec "DynamicResources" section 1. Checked is what a scheduler, a
driver or a user would notice: names, exclusive members, counts, the values of attributes and counters, taints,
and which changes a claim's status allows. Caller: :mod:`.kind_validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from ...api.equality import same_json
from ...api.quantity import QuantityError, parse_quantity
from ...api.selectors import is_label_value, is_qualified_name
from ...api.wire import ApiError
from ...cel import CompilationError, MissingLibraryError
from ...cel.device_expressions import compile_device_expression
from .validation import (
    LABEL_TEXT,
    LABEL_VALUE_TEXT,
    QUALIFIED_TEXT,
    QUANTITY_TEXT,
    SUBDOMAIN_TEXT,
    Causes,
    is_dns_label,
    is_dns_subdomain,
)

__all__ = ["DEVICE_CHECKS", "DEVICE_DEFAULTS", "DEVICE_UPDATES"]

Data = dict[str, Any]

#: Most entries of a list or map.
_MOST: Final = {
    "requests": 32,
    "constraints": 32,
    "config": 32,
    "firstAvailable": 8,
    "selectors": 32,
    "tolerations": 16,
    "taints": 16,
    "reservedFor": 256,
    "sharedCounters": 8,
    "counters": 32,
    "consumesCounters": 2,
    "bindingConditions": 4,
    "bindingFailureConditions": 4,
    "results": 32,
}
_MOST_DEVICES: Final = 128
_MOST_SPECIAL_DEVICES: Final = 64
_MOST_QUALITIES: Final = 32
_EFFECTS: Final = ("NoSchedule", "NoExecute", "None")
_NODE_FIELDS: Final = ("nodeName", "nodeSelector", "allNodes")
_VALUES: Final = ("bool", "int", "string", "version")
_LISTS: Final = ("bools", "ints", "strings", "versions")
_TEXT_VALUES: Final = frozenset({"string", "version"})
_TEXT_SIZE: Final = 64
_LONGEST_EXPRESSION: Final = 10_240


def _object(owner: Data, field: str, path: str) -> Data:
    value = owner.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError.bad_request(f"{path}: must be an object, got {value!r}")
    return value


def _entries(owner: Data, field: str, path: str) -> Iterator[tuple[str, Data]]:
    """The objects of a list with their paths."""
    values = owner.get(field) or []
    if not isinstance(values, list):
        raise ApiError.bad_request(f"{path}: must be a list, got {values!r}")
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise ApiError.bad_request(f"{path}[{index}]: must be an object, got {value!r}")
        yield f"{path}[{index}]", value


def _limit(owner: Data, field: str, path: str, causes: Causes, most: int = 0) -> None:
    most = most or _MOST[field]
    size = len(owner.get(field) or ())
    if size > most:
        causes.append((path, "FieldValueTooLong", f"Too many: {size}: must have at most {most} items"))


# -- defaults ----------------------------------------------------------------------------------------------


def _default_request(request: Data) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = "ExactCount"
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1
    for toleration in request.get("tolerations") or ():
        if isinstance(toleration, dict) and not toleration.get("operator"):
            toleration["operator"] = "Equal"


def _default_claim_spec(spec: Data, path: str) -> None:
    devices = _object(spec, "devices", f"{path}.devices")
    for _, request in _entries(devices, "requests", f"{path}.devices.requests"):
        if isinstance(request.get("exactly"), dict):
            _default_request(request["exactly"])
        for _, sub in _entries(request, "firstAvailable", "firstAvailable"):
            _default_request(sub)


def _default_claim(data: Data, now: Callable[[], str]) -> None:
    _default_claim_spec(_object(data, "spec", "spec"), "spec")


def _default_template(data: Data, now: Callable[[], str]) -> None:
    _default_claim_spec(_object(_object(data, "spec", "spec"), "spec", "spec.spec"), "spec.spec")


def _date(taint: Data, now: Callable[[], str]) -> None:
    if not taint.get("timeAdded"):
        taint["timeAdded"] = now()


def _default_slice(data: Data, now: Callable[[], str]) -> None:
    for path, device in _entries(_object(data, "spec", "spec"), "devices", "spec.devices"):
        if device.get("taints"):
            for _, taint in _entries(device, "taints", f"{path}.taints"):
                _date(taint, now)


def _default_taint_rule(data: Data, now: Callable[[], str]) -> None:
    taint = _object(_object(data, "spec", "spec"), "taint", "spec.taint")
    if taint:
        _date(taint, now)


#: Each fills in defaults in place; the second argument gives the time of a taint that has none.
DEVICE_DEFAULTS: Final[dict[str, Callable[[Data, Callable[[], str]], None]]] = {
    "resourceclaims.resource.k8s.io": _default_claim,
    "resourceclaimtemplates.resource.k8s.io": _default_template,
    "resourceslices.resource.k8s.io": _default_slice,
    "devicetaintrules.resource.k8s.io": _default_taint_rule,
}


# -- claims ------------------------------------------------------------------------------------------------


def _check_selectors(owner: Data, path: str, causes: Causes) -> None:
    _limit(owner, "selectors", f"{path}.selectors", causes)
    for where, selector in _entries(owner, "selectors", f"{path}.selectors"):
        cel = selector.get("cel")
        if cel is None:
            causes.required(f"{where}.cel")
        else:
            _check_expression(_object(selector, "cel", f"{where}.cel").get("expression"), f"{where}.cel", causes)


def _check_expression(expression: Any, path: str, causes: Causes) -> None:
    if not expression:
        causes.required(f"{path}.expression")
    elif len(expression.encode()) > _LONGEST_EXPRESSION:
        text = f"Too long: may not be more than {_LONGEST_EXPRESSION} bytes"
        causes.append((f"{path}.expression", "FieldValueTooLong", text))
    else:
        problem = _compile_problem(expression)
        if problem:
            causes.invalid(f"{path}.expression", expression, problem)


@lru_cache(maxsize=1024)
def _compile_problem(expression: str) -> str:
    """Why an expression cannot be compiled; nothing when it can."""
    try:
        compile_device_expression(expression, lists=True)
    except (CompilationError, MissingLibraryError) as error:
        return str(error)
    return ""


def _check_device_request(request: Data, path: str, causes: Causes) -> None:
    """The members that ``exactly`` and an entry of ``firstAvailable`` share."""
    name = request.get("deviceClassName")
    if not name:
        causes.required(f"{path}.deviceClassName")
    elif not is_dns_subdomain(name):
        causes.invalid(f"{path}.deviceClassName", name, SUBDOMAIN_TEXT)
    _check_selectors(request, path, causes)
    mode, count = request.get("allocationMode"), request.get("count")
    if mode == "All":
        if count:
            causes.invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        if not isinstance(count, int) or count <= 0:
            causes.invalid(f"{path}.count", count, "must be greater than zero")
    else:
        causes.unsupported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    for name, value in _object(_object(request, "capacity", path), "requests", path).items():
        _check_quantity(value, f"{path}.capacity.requests[{name}]", causes)
    _limit(request, "tolerations", f"{path}.tolerations", causes)
    for where, toleration in _entries(request, "tolerations", f"{path}.tolerations"):
        _check_toleration(toleration, where, causes)


def _check_toleration(toleration: Data, path: str, causes: Causes) -> None:
    key, operator, value = (toleration.get(name) or "" for name in ("key", "operator", "value"))
    if key and not is_qualified_name(key):
        causes.invalid(f"{path}.key", key, QUALIFIED_TEXT)
    if operator == "Exists":
        if value:
            causes.invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        if not key:
            causes.required(f"{path}.key", 'must be specified when operator is "Equal"')
        if not is_label_value(value):
            causes.invalid(f"{path}.value", value, LABEL_VALUE_TEXT)
    else:
        causes.unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    if toleration.get("effect") not in (None, "", *_EFFECTS):
        causes.unsupported(f"{path}.effect", toleration["effect"], _EFFECTS)


def _check_name(name: Any, path: str, causes: Causes, seen: set[str]) -> None:
    if not name:
        causes.required(path)
    elif not is_dns_label(name):
        causes.invalid(path, name, LABEL_TEXT)
    elif name in seen:
        causes.duplicate(path, name)
    seen.add(name or "")


def _check_claim_spec(spec: Data, path: str, causes: Causes) -> None:
    devices, where = _object(spec, "devices", f"{path}.devices"), f"{path}.devices"
    for field in ("requests", "constraints", "config"):
        _limit(devices, field, f"{where}.{field}", causes)
    names: set[str] = set()
    known: set[str] = set()
    for at, request in _entries(devices, "requests", f"{where}.requests"):
        _check_name(request.get("name"), f"{at}.name", causes, names)
        known.add(str(request.get("name")))
        exactly, first = request.get("exactly"), request.get("firstAvailable")
        if exactly is not None and first:
            causes.invalid(at, request, "exactly one of `exactly` or `firstAvailable` is allowed")
        elif exactly is not None:
            _check_device_request(_object(request, "exactly", f"{at}.exactly"), f"{at}.exactly", causes)
        elif first:
            _limit(request, "firstAvailable", f"{at}.firstAvailable", causes)
            subs: set[str] = set()
            for place, sub in _entries(request, "firstAvailable", f"{at}.firstAvailable"):
                _check_name(sub.get("name"), f"{place}.name", causes, subs)
                known.add(f"{request.get('name')}/{sub.get('name')}")
                _check_device_request(sub, place, causes)
        else:
            causes.required(at, "exactly one of `exactly` or `firstAvailable` is required")
    for at, constraint in _entries(devices, "constraints", f"{where}.constraints"):
        _check_references(constraint, at, known, causes)
        given = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name) is not None]
        if not given:
            causes.required(at, "exactly one of `matchAttribute`, or `distinctAttribute` is required")
        elif len(given) > 1:
            causes.invalid(at, constraint, "exactly one of `matchAttribute`, or `distinctAttribute` is allowed")
        elif "/" not in constraint[given[0]]:
            causes.invalid(f"{at}.{given[0]}", constraint[given[0]], "must include a domain")
    for at, config in _entries(devices, "config", f"{where}.config"):
        _check_references(config, at, known, causes)
        _check_config(config, at, causes)


def _check_references(owner: Data, path: str, known: set[str], causes: Causes) -> None:
    for index, name in enumerate(owner.get("requests") or ()):
        if name not in known:
            text = (
                "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
            )
            causes.invalid(f"{path}.requests[{index}]", name, text)


def _check_config(config: Data, path: str, causes: Causes) -> None:
    if config.get("opaque") is None:
        causes.required(f"{path}.opaque")
    elif not _object(config, "opaque", f"{path}.opaque").get("driver"):
        causes.required(f"{path}.opaque.driver")


def _check_claim(data: Data, causes: Causes) -> None:
    _check_claim_spec(_object(data, "spec", "spec"), "spec", causes)


def _check_template(data: Data, causes: Causes) -> None:
    _check_claim_spec(_object(_object(data, "spec", "spec"), "spec", "spec.spec"), "spec.spec", causes)


def _check_claim_update(old: Data, new: Data, causes: Causes) -> None:
    """An allocation is written once, and removed as a whole; only an allocated claim is reserved.

    Device status of devices that are allocated no more is dropped, in place.
    """
    before, after = _object(old, "status", "status"), _object(new, "status", "status")
    was, now = before.get("allocation"), after.get("allocation")
    if was is not None and now is not None and not same_json(was, now):
        causes.invalid("status.allocation", now, "field is immutable")
    _limit(after, "reservedFor", "status.reservedFor", causes)
    users = after.get("reservedFor") or []
    uids = [user.get("uid") for user in users]
    for index, uid in enumerate(uids):
        if uid in uids[:index]:
            causes.duplicate(f"status.reservedFor[{index}].uid", uid)
    if users and now is None:
        causes.forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    elif new["metadata"].get("deletionTimestamp"):
        known = {user.get("uid") for user in before.get("reservedFor") or ()}
        if set(uids) - known:
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            causes.forbidden("status.reservedFor", text)
    reported = after.get("devices")
    if reported:
        results = _object(_object(after, "allocation", "status.allocation"), "devices", "devices").get("results") or []
        held = {_device_key(result) for result in results}
        kept = [device for device in reported if _device_key(device) in held]
        if was is None or now is not None:
            for index, device in enumerate(reported):
                if _device_key(device) not in held:
                    text = "must be an allocated device in the claim"
                    causes.invalid(f"status.devices[{index}]", _device_key(device), text)
        elif kept:
            after["devices"] = kept
        else:
            after.pop("devices")


def _device_key(data: Data) -> tuple[Any, ...]:
    return tuple(data.get(field) for field in ("driver", "pool", "device", "shareID"))


# -- slices and classes ------------------------------------------------------------------------------------


def _check_quantity(value: Any, path: str, causes: Causes) -> None:
    try:
        parse_quantity(value)
    except QuantityError:
        causes.invalid(path, value, QUANTITY_TEXT)


def _check_slice(data: Data, causes: Causes) -> None:
    spec = _object(data, "spec", "spec")
    if not spec.get("driver"):
        causes.required("spec.driver")
    elif not is_dns_subdomain(spec["driver"]):
        causes.invalid("spec.driver", spec["driver"], SUBDOMAIN_TEXT)
    pool = _object(spec, "pool", "spec.pool")
    if not pool.get("name"):
        causes.required("spec.pool.name")
    if (pool.get("resourceSliceCount") or 0) <= 0:
        causes.invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount"), "must be greater than zero")
    if (pool.get("generation") or 0) < 0:
        causes.invalid("spec.pool.generation", pool["generation"], "must be greater than or equal to zero")
    _check_reach(spec, "spec", (*_NODE_FIELDS, "perDeviceNodeSelection"), causes)
    if spec.get("devices") and spec.get("sharedCounters"):
        causes.invalid("spec", "devices, sharedCounters", "only one of `devices` and `sharedCounters` may be set")
    _limit(spec, "sharedCounters", "spec.sharedCounters", causes)
    sets: set[str] = set()
    for path, counters in _entries(spec, "sharedCounters", "spec.sharedCounters"):
        _check_name(counters.get("name"), f"{path}.name", causes, sets)
        _check_counters(counters, path, causes)
    names: set[str] = set()
    special = False
    for path, device in _entries(spec, "devices", "spec.devices"):
        _check_name(device.get("name"), f"{path}.name", causes, names)
        _check_device(device, path, causes, own_nodes=bool(spec.get("perDeviceNodeSelection")))
        special = special or bool(device.get("taints") or device.get("consumesCounters"))
    _limit(spec, "devices", "spec.devices", causes, _MOST_SPECIAL_DEVICES if special else _MOST_DEVICES)


def _check_reach(owner: Data, path: str, fields: tuple[str, ...], causes: Causes) -> None:
    """Exactly one of the members that say for which nodes something is."""
    given = [name for name in fields if owner.get(name)]
    names = ", ".join(f"`{name}`" for name in fields)
    if not given:
        causes.required(path, f"exactly one of {names} is required")
    elif len(given) > 1:
        causes.invalid(path, ", ".join(given), f"exactly one of {names} is required, but multiple fields are set")
    terms = _object(owner, "nodeSelector", f"{path}.nodeSelector").get("nodeSelectorTerms") or []
    if "nodeSelector" in given and len(terms) != 1:
        causes.invalid(f"{path}.nodeSelector.nodeSelectorTerms", len(terms), "must have exactly one node selector term")


def _check_counters(owner: Data, path: str, causes: Causes) -> None:
    counters = _object(owner, "counters", f"{path}.counters")
    if not counters:
        causes.required(f"{path}.counters")
    _limit(owner, "counters", f"{path}.counters", causes)
    for name in counters:
        _check_quantity(_object(counters, name, path).get("value", ""), f"{path}.counters[{name}].value", causes)


def _check_device(device: Data, path: str, causes: Causes, *, own_nodes: bool) -> None:
    if own_nodes:
        _check_reach(device, path, _NODE_FIELDS, causes)
    else:
        for name in _NODE_FIELDS:
            if device.get(name):
                text = "must not be set unless `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
                causes.invalid(f"{path}.{name}", device[name], text)
    attributes, capacity = (_object(device, name, f"{path}.{name}") for name in ("attributes", "capacity"))
    if len(attributes) + len(capacity) > _MOST_QUALITIES:
        total = len(attributes) + len(capacity)
        text = f"the total number of attributes and capacities must not exceed {_MOST_QUALITIES}"
        causes.invalid(path, total, text)
    for name in attributes:
        _check_attribute(_object(attributes, name, path), f"{path}.attributes[{name}]", causes)
    for name in capacity:
        where = f"{path}.capacity[{name}]"
        _check_quantity(_object(capacity, name, path).get("value", ""), f"{where}.value", causes)
    seen: set[str] = set()
    _limit(device, "consumesCounters", f"{path}.consumesCounters", causes)
    for where, consumed in _entries(device, "consumesCounters", f"{path}.consumesCounters"):
        _check_name(consumed.get("counterSet"), f"{where}.counterSet", causes, seen)
        _check_counters(consumed, where, causes)
    _limit(device, "taints", f"{path}.taints", causes)
    for where, taint in _entries(device, "taints", f"{path}.taints"):
        _check_taint(taint, where, causes)
    for name in ("bindingConditions", "bindingFailureConditions"):
        _limit(device, name, f"{path}.{name}", causes)
    if bool(device.get("bindingConditions")) != bool(device.get("bindingFailureConditions")):
        text = "bindingConditions are required to use bindingFailureConditions, and the other way round"
        causes.invalid(f"{path}.bindingFailureConditions", device.get("bindingFailureConditions"), text)


def _check_attribute(attribute: Data, path: str, causes: Causes) -> None:
    given = [name for name in (*_VALUES, *_LISTS) if attribute.get(name) is not None]
    if not given:
        causes.required(path, "exactly one value must be specified")
    elif len(given) > 1:
        causes.invalid(path, attribute, "exactly one value must be specified")
    elif given[0] in _TEXT_VALUES and len(attribute[given[0]]) > _TEXT_SIZE:
        text = f"Too long: may not be more than {_TEXT_SIZE} bytes"
        causes.append((f"{path}.{given[0]}", "FieldValueTooLong", text))


def _check_taint(taint: Data, path: str, causes: Causes) -> None:
    key, value, effect = (taint.get(name) or "" for name in ("key", "value", "effect"))
    if not key:
        causes.required(f"{path}.key")
    elif not is_qualified_name(key):
        causes.invalid(f"{path}.key", key, QUALIFIED_TEXT)
    if not is_label_value(value):
        causes.invalid(f"{path}.value", value, LABEL_VALUE_TEXT)
    if not effect:
        causes.required(f"{path}.effect")
    elif effect not in _EFFECTS:
        causes.unsupported(f"{path}.effect", effect, _EFFECTS)


def _check_class(data: Data, causes: Causes) -> None:
    spec = _object(data, "spec", "spec")
    _check_selectors(spec, "spec", causes)
    _limit(spec, "config", "spec.config", causes)
    for path, config in _entries(spec, "config", "spec.config"):
        _check_config(config, path, causes)
    name = spec.get("extendedResourceName")
    if name is not None and not _is_extended(name):
        causes.invalid("spec.extendedResourceName", name, "must be a valid extended resource name")


def _is_extended(name: str) -> bool:
    domain = name.partition("/")[0]
    native = not domain or domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return "/" in name and not native and not name.startswith("requests.") and is_qualified_name(name)


def _check_taint_rule(data: Data, causes: Causes) -> None:
    spec = _object(data, "spec", "spec")
    _check_taint(_object(spec, "taint", "spec.taint"), "spec.taint", causes)


DEVICE_CHECKS: Final[dict[str, Callable[[Data, Causes], None]]] = {
    "resourceclaims.resource.k8s.io": _check_claim,
    "resourceclaimtemplates.resource.k8s.io": _check_template,
    "resourceslices.resource.k8s.io": _check_slice,
    "deviceclasses.resource.k8s.io": _check_class,
    "devicetaintrules.resource.k8s.io": _check_taint_rule,
}

#: What a change from one state to the next must not do.
DEVICE_UPDATES: Final[dict[str, Callable[[Data, Data, Causes], None]]] = {
    "resourceclaims.resource.k8s.io": _check_claim_update,
}
