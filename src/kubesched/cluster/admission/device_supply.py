"""Checks of ResourceSlices, DeviceClasses and DeviceTaintRules: what drivers and administrators write.

Facts: the API's field descriptions and the limits in spec "DynamicResources" section 1. Caller: :mod:`.devices`.
"""

from __future__ import annotations

from typing import Final

from ...api.selectors import is_label_value, is_qualified_name
from .device_members import (
    EFFECTS,
    Data,
    check_config,
    check_name,
    check_quantity,
    check_selectors,
    entries,
    limit,
    member,
)
from .validation import LABEL_VALUE_TEXT, QUALIFIED_TEXT, SUBDOMAIN_TEXT, Causes, is_dns_subdomain

__all__ = ["check_class", "check_slice", "check_taint_rule"]

_MOST_DEVICES: Final = 128
_MOST_SPECIAL_DEVICES: Final = 64
_MOST_QUALITIES: Final = 32
_NODE_FIELDS: Final = ("nodeName", "nodeSelector", "allNodes")
_VALUES: Final = ("bool", "int", "string", "version")
_LISTS: Final = ("bools", "ints", "strings", "versions")
_TEXT_VALUES: Final = frozenset({"string", "version"})
_TEXT_SIZE: Final = 64


def check_slice(data: Data, causes: Causes) -> None:
    spec = member(data, "spec", "spec")
    if not spec.get("driver"):
        causes.required("spec.driver")
    elif not is_dns_subdomain(spec["driver"]):
        causes.invalid("spec.driver", spec["driver"], SUBDOMAIN_TEXT)
    pool = member(spec, "pool", "spec.pool")
    if not pool.get("name"):
        causes.required("spec.pool.name")
    if (pool.get("resourceSliceCount") or 0) <= 0:
        causes.invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount"), "must be greater than zero")
    if (pool.get("generation") or 0) < 0:
        causes.invalid("spec.pool.generation", pool["generation"], "must be greater than or equal to zero")
    _check_reach(spec, "spec", (*_NODE_FIELDS, "perDeviceNodeSelection"), causes)
    if spec.get("devices") and spec.get("sharedCounters"):
        causes.invalid("spec", "devices, sharedCounters", "only one of `devices` and `sharedCounters` may be set")
    limit(spec, "sharedCounters", "spec.sharedCounters", causes)
    sets: set[str] = set()
    for path, counters in entries(spec, "sharedCounters", "spec.sharedCounters"):
        check_name(counters.get("name"), f"{path}.name", causes, sets)
        _check_counters(counters, path, causes)
    names: set[str] = set()
    special = False
    for path, device in entries(spec, "devices", "spec.devices"):
        check_name(device.get("name"), f"{path}.name", causes, names)
        _check_device(device, path, causes, own_nodes=bool(spec.get("perDeviceNodeSelection")))
        special = special or bool(device.get("taints") or device.get("consumesCounters"))
    limit(spec, "devices", "spec.devices", causes, _MOST_SPECIAL_DEVICES if special else _MOST_DEVICES)


def _check_reach(owner: Data, path: str, fields: tuple[str, ...], causes: Causes) -> None:
    """Exactly one of the members that say for which nodes something is."""
    given = [name for name in fields if owner.get(name)]
    names = ", ".join(f"`{name}`" for name in fields)
    if not given:
        causes.required(path, f"exactly one of {names} is required")
    elif len(given) > 1:
        causes.invalid(path, ", ".join(given), f"exactly one of {names} is required, but multiple fields are set")
    terms = member(owner, "nodeSelector", f"{path}.nodeSelector").get("nodeSelectorTerms") or []
    if "nodeSelector" in given and len(terms) != 1:
        causes.invalid(f"{path}.nodeSelector.nodeSelectorTerms", len(terms), "must have exactly one node selector term")


def _check_counters(owner: Data, path: str, causes: Causes) -> None:
    counters = member(owner, "counters", f"{path}.counters")
    if not counters:
        causes.required(f"{path}.counters")
    limit(owner, "counters", f"{path}.counters", causes)
    for name in counters:
        check_quantity(member(counters, name, path).get("value", ""), f"{path}.counters[{name}].value", causes)


def _check_device(device: Data, path: str, causes: Causes, *, own_nodes: bool) -> None:
    if own_nodes:
        _check_reach(device, path, _NODE_FIELDS, causes)
    else:
        for name in _NODE_FIELDS:
            if device.get(name):
                text = "must not be set unless `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
                causes.invalid(f"{path}.{name}", device[name], text)
    attributes, capacity = (member(device, name, f"{path}.{name}") for name in ("attributes", "capacity"))
    if len(attributes) + len(capacity) > _MOST_QUALITIES:
        total = len(attributes) + len(capacity)
        text = f"the total number of attributes and capacities must not exceed {_MOST_QUALITIES}"
        causes.invalid(path, total, text)
    for name in attributes:
        _check_attribute(member(attributes, name, path), f"{path}.attributes[{name}]", causes)
    for name in capacity:
        where = f"{path}.capacity[{name}]"
        check_quantity(member(capacity, name, path).get("value", ""), f"{where}.value", causes)
    seen: set[str] = set()
    limit(device, "consumesCounters", f"{path}.consumesCounters", causes)
    for where, consumed in entries(device, "consumesCounters", f"{path}.consumesCounters"):
        check_name(consumed.get("counterSet"), f"{where}.counterSet", causes, seen)
        _check_counters(consumed, where, causes)
    limit(device, "taints", f"{path}.taints", causes)
    for where, taint in entries(device, "taints", f"{path}.taints"):
        _check_taint(taint, where, causes)
    for name in ("bindingConditions", "bindingFailureConditions"):
        limit(device, name, f"{path}.{name}", causes)
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
    elif effect not in EFFECTS:
        causes.unsupported(f"{path}.effect", effect, EFFECTS)


def check_class(data: Data, causes: Causes) -> None:
    spec = member(data, "spec", "spec")
    check_selectors(spec, "spec", causes)
    limit(spec, "config", "spec.config", causes)
    for path, config in entries(spec, "config", "spec.config"):
        check_config(config, path, causes)
    name = spec.get("extendedResourceName")
    if name is not None and not _is_extended(name):
        causes.invalid("spec.extendedResourceName", name, "must be a valid extended resource name")


def _is_extended(name: str) -> bool:
    domain = name.partition("/")[0]
    native = not domain or domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return "/" in name and not native and not name.startswith("requests.") and is_qualified_name(name)


def check_taint_rule(data: Data, causes: Causes) -> None:
    spec = member(data, "spec", "spec")
    _check_taint(member(spec, "taint", "spec.taint"), "spec.taint", causes)
