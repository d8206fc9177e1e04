"""Checks that relate the members of objects other than pods, by type, where ``rules.txt`` cannot express them.

Checks of devices cover the mistakes that a scheduler, a driver or a user would notice. Facts: the API's field
descriptions and the limits in rules/devices §1. Caller: :mod:`.checks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from itertools import combinations
from typing import Any, Final

from kubesched.api.kinds import Kind
from kubesched.api.quantity import QuantityError, parse_quantity
from kubesched.api.requests import is_extended_resource

from ..schema import undecodable
from .custom import check_schemas
from .formats import IP_TEXT
from .validation import QUOTA_RESOURCES, Causes, check_labels, check_quantities, check_source, repeated

__all__ = ["TYPE_CHECKS"]

Data = dict[str, Any]

#: Amounts of a limit range from smallest to largest, and their names in messages.
_IN_ORDER: Final = {"min": "min", "defaultRequest": "default request", "default": "default", "max": "max"}
_LIMITS: Final = (*_IN_ORDER, "maxLimitRequestRatio")
_LIMITED: Final = ("", "Container", "PersistentVolumeClaim", "Pod")
#: Scopes of quotas: all are about pods.
_SCOPES: Final = frozenset(
    ["BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating"]
)
_EXCLUSIVE: Final = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_COMPUTE: Final = frozenset(["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"])
_EXISTS_TEXT: Final = (
    "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_REQUEST_TEXT: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/\r\n]")
#: Bytes of all values of a ConfigMap or a Secret (upstream ``MaxSecretSize``).
_MOST_DATA: Final = 1 << 20
_MOST_DEVICES: Final = 128
_MOST_SPECIAL_DEVICES: Final = 64
_MOST_QUALITIES: Final = 32
_NODE_FIELDS: Final = ("nodeName", "nodeSelector", "allNodes")
_VALUES: Final = ("bool", "int", "string", "version", "bools", "ints", "strings", "versions")


# -- nodes ----------------------------------------------------------------------------------------------------------


def _node_spec(spec: Data, path: str, causes: Causes) -> None:
    for index, (key, effect) in repeated(spec.get("taints"), ("key", "effect")):
        text = f"{key or ''}:{effect or ''}: taints must be unique by key and effect pair"
        causes.duplicate(f"{path}.taints[{index}]", text)


def _node_status(status: Data, path: str, causes: Causes) -> None:
    for field in ("capacity", "allocatable"):
        for name, amount in check_quantities(status.get(field), f"{path}.{field}", causes).items():
            if (name == "pods" or is_extended_resource(name)) and amount.nanos % 10**9:
                causes.invalid(f"{path}.{field}[{name}]", str(amount), "must be an integer")


def _taint(taint: Data, path: str, causes: Causes) -> None:
    causes.check_format("key!", f"{path}.key", taint.get("key") or "")


# -- configuration and services ----------------------------------------------------------------------------


def _check_base64(kind: Kind, values: Mapping[str, Any]) -> None:
    """Raise 400 at the first byte that is not base64, as a decoder would."""
    for text in values.values():
        plain = text.replace("\n", "").replace("\r", "")
        body = plain.rstrip("=")
        bad = _NOT_BASE64.search(body)
        padding = len(plain) - len(body)
        if bad is not None:
            position = bad.start()
        elif len(plain) % 4 or padding > 2:
            position = len(body) if padding else len(plain) // 4 * 4
        else:
            continue
        raise undecodable(kind, f"illegal base64 data at input byte {position}")


def _size(texts: Mapping[str, str], coded: Mapping[str, str]) -> int:
    """Return the total bytes of values, some of them in base64."""
    held = sum(len(text) * 3 // 4 - text[-2:].count("=") for text in coded.values())
    return held + sum(len(text.encode()) for text in texts.values())


def _check_keys(data: Data, field: str, causes: Causes) -> None:
    for key in data.get(field) or ():
        causes.check_format("config-key!", f"{field}[{key}]", key)


def _secret(data: Data, path: str, causes: Causes) -> None:
    _check_base64(causes.kind, data.get("data") or {})
    _check_keys(data, "data", causes)
    if _size({}, data.get("data") or {}) > _MOST_DATA:
        causes.too_long("data", _MOST_DATA)


def _config_map(data: Data, path: str, causes: Causes) -> None:
    binary = data.get("binaryData") or {}
    _check_base64(causes.kind, binary)
    for field in ("data", "binaryData"):
        _check_keys(data, field, causes)
    for key in binary:
        if key in (data.get("data") or {}):
            causes.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    if _size(data.get("data") or {}, binary) > _MOST_DATA:
        causes.too_long("[]", _MOST_DATA)


def _service(spec: Data, path: str, causes: Causes) -> None:
    ports: list[Data] = spec.get("ports") or []
    check_labels(spec.get("selector") or {}, f"{path}.selector", causes)
    for index, port in enumerate(ports):
        if not port.get("name") and len(ports) > 1:
            causes.required(f"{path}.ports[{index}].name")


def _ingress_path(data: Data, path: str, causes: Causes) -> None:
    """Check the path of a rule. Where an implementation defines what it means, it may also be empty."""
    text, is_free = data.get("path") or "", data.get("pathType") == "ImplementationSpecific"
    if not text.startswith("/") and (text or not is_free):
        causes.invalid(f"{path}.path", text, "must be an absolute path")
    for part in () if is_free else ("//", "/./", "/../", "%2f", "%2F"):
        if part in text:
            causes.invalid(f"{path}.path", text, f"must not contain '{part}'")
    if not is_free and (end := next(filter(text.endswith, ("/..", "/.")), "")):
        causes.invalid(f"{path}.path", text, f"cannot end with '{end}'")


def _ip_block(block: Data, path: str, causes: Causes) -> None:
    """Check that the exceptions of a block are parts of it. What is no range is reported elsewhere."""
    with suppress(ValueError):
        whole: Any = ip_network(block.get("cidr") or "", strict=False)
        for index, text in enumerate(block.get("except") or ()):
            part: Any = ip_network(text, strict=False)
            if part == whole or part.version != whole.version or not part.subnet_of(whole):
                causes.invalid(f"{path}.except[{index}]", text, "must be a strict subset of `cidr`")


def _endpoint_slice(data: Data, path: str, causes: Causes) -> None:
    family = data.get("addressType")
    for index, endpoint in enumerate(data.get("endpoints") or ()):
        for number, text in enumerate(endpoint.get("addresses") or ()):
            where = f"endpoints[{index}].addresses[{number}]"
            try:
                version = ip_address(text).version if family in ("IPv4", "IPv6") else 0
            except ValueError:
                causes.invalid(where, text, IP_TEXT)
                continue
            if version and family != f"IPv{version}":
                causes.invalid(where, text, f"must be an {family} address")


# -- amounts -----------------------------------------------------------------------------------------------


def _claim(spec: Data, path: str, causes: Causes) -> None:
    requests = (spec.get("resources") or {}).get("requests") or {}
    amounts = check_quantities(requests, f"{path}.resources.requests", causes)
    if "storage" not in requests:
        causes.required(f"{path}.resources[storage]")
    elif amounts["storage"].nanos == 0:
        causes.invalid(f"{path}.resources[storage]", str(requests["storage"]), "must be greater than zero")


def _volume(spec: Data, path: str, causes: Causes) -> None:
    capacity = spec.get("capacity") or {}
    for name, amount in check_quantities(capacity, f"{path}.capacity", causes).items():
        if amount.nanos == 0:
            causes.invalid(f"{path}.capacity[{name}]", str(capacity[name]), "must be greater than zero")
    check_source("PersistentVolumeSpec", spec, path, causes)


def _is_fraction(amount: Any) -> bool:
    try:
        return parse_quantity(amount).nanos % 10**9 != 0
    except QuantityError:  # reported already
        return False


def _quota(spec: Data, path: str, causes: Causes) -> None:
    check_quantities(spec.get("hard"), f"{path}.hard", causes, "for quota")
    for name in QUOTA_RESOURCES - _COMPUTE & (spec.get("hard") or {}).keys():
        if "storage" not in name and _is_fraction(spec["hard"][name]):
            causes.invalid(f"{path}.hard[{name}]", spec["hard"][name], "must be an integer")
    _scopes(spec, spec.get("scopes") or [], f"{path}.scopes", causes)
    selector = spec.get("scopeSelector") or {}
    where, found = f"{path}.scopeSelector.matchExpressions", selector.get("matchExpressions") or []
    _scopes(spec, [one.get("scopeName") or "" for one in found], where, causes, selector)
    for one in found:
        scope, operator, values = one.get("scopeName"), one.get("operator") or "", one.get("values") or []
        if scope in _SCOPES and scope != "PriorityClass" and operator != "Exists":
            causes.invalid(f"{where}.operator", operator, _EXISTS_TEXT)
        if operator in ("In", "NotIn") and not values:
            text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            causes.required(f"{where}.values", text)
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            causes.invalid(f"{where}.values", values, text)


def _scopes(spec: Data, scopes: list[str], path: str, causes: Causes, shown: object = None) -> None:
    """Check that scopes exist, apply to the limited resources, and do not exclude each other.

    The scopes of resources that are not known by name, such as object counts, are not checked.
    """
    limited = QUOTA_RESOURCES & (spec.get("hard") or {}).keys()
    for scope in scopes:
        if scope not in _SCOPES:
            where, value = (path, scopes) if shown is None else (f"{path}.scopeName", scope)
            causes.invalid(where, value, "unsupported scope")
        elif limited - ({"pods"} if scope == "BestEffort" else _COMPUTE | {"pods"}):
            causes.invalid(path, shown or scopes, "unsupported scope applied to resource")
    if any(pair <= set(scopes) for pair in _EXCLUSIVE):
        causes.invalid(path, shown or scopes, "conflicting scopes")


def _limit_range(item: Data, path: str, causes: Causes) -> None:
    """Check the order of a resource's amounts: smallest, defaults, largest, as upstream."""
    use = "for containers" if item.get("type") in ("Container", "Pod") else "type or fully qualified"
    amounts = {name: check_quantities(item.get(name), f"{path}.{name}", causes, use) for name in _LIMITS}
    for (low, low_text), (high, high_text) in combinations(_IN_ORDER.items(), 2):
        for name, least in amounts[low].items():
            most = amounts[high].get(name)
            if most is not None and least.nanos > most.nanos:
                why = f"{low_text} value {item[low][name]} is greater than {high_text} value {item[high][name]}"
                causes.invalid(f"{path}.{low}[{name}]", str(item[low][name]), why)
    type_ = item.get("type") or ""
    if type_ not in _LIMITED and "/" not in type_:
        causes.invalid(f"{path}.type", type_, "must be a standard limit type or fully qualified")
    for name in ("default", "defaultRequest") if type_ == "Pod" else ():
        if item.get(name):
            causes.forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
    if type_ == "PersistentVolumeClaim" and not any("storage" in amounts[name] for name in ("min", "max")):
        text = "either minimum or maximum storage value is required, but neither was provided"
        causes.required(f"{path}.limits", text)
    for name, ratio in amounts["maxLimitRequestRatio"].items():
        where, shown = f"{path}.maxLimitRequestRatio[{name}]", str(item["maxLimitRequestRatio"][name])
        low_end, high_end = amounts["min"].get(name), amounts["max"].get(name)
        if ratio.nanos < 10**9:
            causes.invalid(where, shown, f"ratio {shown} is less than 1")
        if low_end and high_end and low_end.nanos and ratio.nanos * low_end.nanos > high_end.nanos * 10**9:
            causes.invalid(where, shown, f"ratio {shown} is greater than max/min = {high_end.nanos / low_end.nanos:f}")


def _storage_class(data: Data, path: str, causes: Causes) -> None:
    """Check that no two topologies are the same, in whatever order they are written."""
    seen = set()
    for index, term in enumerate(data.get("allowedTopologies") or ()):
        found = term.get("matchLabelExpressions") or ()
        meaning = frozenset((one.get("key"), frozenset(one.get("values") or ())) for one in found)
        if meaning in seen:
            causes.duplicate(f"allowedTopologies[{index}].matchLabelExpressions", "")
        seen.add(meaning)


# -- devices -----------------------------------------------------------------------------------------------


def _device_claim(devices: Data, path: str, causes: Causes) -> None:
    known: set[Any] = set()
    for request in devices.get("requests") or ():
        known.add(request.get("name"))
        known |= {f"{request.get('name')}/{sub.get('name')}" for sub in request.get("firstAvailable") or ()}
    for field in ("constraints", "config"):
        for place, owner in enumerate(devices.get(field) or ()):
            for index, name in enumerate(owner.get("requests") or ()):
                if name not in known:
                    causes.invalid(f"{path}.{field}[{place}].requests[{index}]", name, _REQUEST_TEXT)


def _slice(spec: Data, path: str, causes: Causes) -> None:
    own_nodes, devices = bool(spec.get("perDeviceNodeSelection")), spec.get("devices") or ()
    _check_reach(spec, path, (*_NODE_FIELDS, "perDeviceNodeSelection"), causes)
    for index, device in enumerate(devices):
        where = f"{path}.devices[{index}]"
        if own_nodes:
            _check_reach(device, where, _NODE_FIELDS, causes)
            continue
        for name in _NODE_FIELDS:
            if device.get(name):
                text = "must not be set unless `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
                causes.invalid(f"{where}.{name}", device[name], text)
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    most = _MOST_SPECIAL_DEVICES if special else _MOST_DEVICES
    if len(devices) > most:
        causes.too_many(f"{path}.devices", len(devices), most)


def _check_reach(owner: Data, path: str, fields: tuple[str, ...], causes: Causes) -> None:
    """Check that exactly one of the members that select nodes is set."""
    given = [name for name in fields if owner.get(name)]
    names = ", ".join(f"`{name}`" for name in fields)
    if not given:
        causes.required(path, f"exactly one of {names} is required")
    elif len(given) > 1:
        causes.invalid(path, ", ".join(given), f"exactly one of {names} is required, but multiple fields are set")
    terms = (owner.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if "nodeSelector" in given and len(terms) != 1:
        causes.invalid(f"{path}.nodeSelector.nodeSelectorTerms", len(terms), "must have exactly one node selector term")


def _device(device: Data, path: str, causes: Causes) -> None:
    total = len(device.get("attributes") or ()) + len(device.get("capacity") or ())
    if total > _MOST_QUALITIES:
        text = f"the total number of attributes and capacities must not exceed {_MOST_QUALITIES}"
        causes.invalid(path, total, text)
    failures = device.get("bindingFailureConditions")
    if bool(device.get("bindingConditions")) != bool(failures):
        text = "bindingConditions are required to use bindingFailureConditions, and the other way round"
        causes.invalid(f"{path}.bindingFailureConditions", failures, text)


def _attribute(attribute: Data, path: str, causes: Causes) -> None:
    given = [name for name in _VALUES if attribute.get(name) is not None]
    if not given:
        causes.required(path, "exactly one value must be specified")
    elif len(given) > 1:
        causes.invalid(path, attribute, "exactly one value must be specified")


TYPE_CHECKS: Final[Mapping[str, Callable[[Data, str, Causes], None]]] = {
    "NodeSpec": _node_spec,
    "NodeStatus": _node_status,
    "Taint": _taint,
    "DeviceTaint": _taint,
    "V1beta2DeviceTaint": _taint,
    "Secret": _secret,
    "ConfigMap": _config_map,
    "ServiceSpec": _service,
    "HTTPIngressPath": _ingress_path,
    "IPBlock": _ip_block,
    "EndpointSlice": _endpoint_slice,
    "PersistentVolumeClaimSpec": _claim,
    "PersistentVolumeSpec": _volume,
    "ResourceQuotaSpec": _quota,
    "LimitRangeItem": _limit_range,
    "StorageClass": _storage_class,
    "DeviceClaim": _device_claim,
    "ResourceSliceSpec": _slice,
    "Device": _device,
    "DeviceAttribute": _attribute,
    "CustomResourceDefinition": check_schemas,
}
