"""Checks of ResourceSlices, DeviceClasses and DeviceTaintRules: what drivers and administrators write.

Facts: the API's field descriptions and the limits in spec "DynamicResources" section 1. Caller: :mod:`.devices`.
"""

from __future__ import annotations

from typing import Final

from ...api.selectors import is_label_value, is_qualified_name
from .device_members import (
    Data,
    check_duplicate,
    check_selectors,
    entries,
    limit,
    member,
)
from .validation import LABEL_VALUE_TEXT, QUALIFIED_TEXT, Causes

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
    spec = member(data, "spec")
    _check_reach(spec, "spec", (*_NODE_FIELDS, "perDeviceNodeSelection"), causes)
    if spec.get("devices") and spec.get("sharedCounters"):
        causes.invalid("spec", "devices, sharedCounters", "only one of `devices` and `sharedCounters` may be set")
    sets: set[str] = set()
    for path, counters in entries(spec, "sharedCounters", "spec.sharedCounters"):
        check_duplicate(counters.get("name"), f"{path}.name", causes, sets)
    names: set[str] = set()
    special = False
    for path, device in entries(spec, "devices", "spec.devices"):
        check_duplicate(device.get("name"), f"{path}.name", causes, names)
        _check_device(device, path, causes, own_nodes=bool(spec.get("perDeviceNodeSelection")))
        special = special or bool(device.get("taints") or device.get("consumesCounters"))
    limit(spec, "devices", "spec.devices", _MOST_SPECIAL_DEVICES if special else _MOST_DEVICES, causes)


def _check_reach(owner: Data, path: str, fields: tuple[str, ...], causes: Causes) -> None:
    """Exactly one of the members that say for which nodes something is."""
    given = [name for name in fields if owner.get(name)]
    names = ", ".join(f"`{name}`" for name in fields)
    if not given:
        causes.required(path, f"exactly one of {names} is required")
    elif len(given) > 1:
        causes.invalid(path, ", ".join(given), f"exactly one of {names} is required, but multiple fields are set")
    terms = member(owner, "nodeSelector").get("nodeSelectorTerms") or []
    if "nodeSelector" in given and len(terms) != 1:
        causes.invalid(f"{path}.nodeSelector.nodeSelectorTerms", len(terms), "must have exactly one node selector term")


def _check_device(device: Data, path: str, causes: Causes, *, own_nodes: bool) -> None:
    if own_nodes:
        _check_reach(device, path, _NODE_FIELDS, causes)
    else:
        for name in _NODE_FIELDS:
            if device.get(name):
                text = "must not be set unless `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
                causes.invalid(f"{path}.{name}", device[name], text)
    attributes, capacity = (member(device, name) for name in ("attributes", "capacity"))
    if len(attributes) + len(capacity) > _MOST_QUALITIES:
        total = len(attributes) + len(capacity)
        text = f"the total number of attributes and capacities must not exceed {_MOST_QUALITIES}"
        causes.invalid(path, total, text)
    for name in attributes:
        _check_attribute(member(attributes, name), f"{path}.attributes[{name}]", causes)
    seen: set[str] = set()
    for where, consumed in entries(device, "consumesCounters", f"{path}.consumesCounters"):
        check_duplicate(consumed.get("counterSet"), f"{where}.counterSet", causes, seen)
    for where, taint in entries(device, "taints", f"{path}.taints"):
        _check_taint(taint, where, causes)
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
    key, value = (taint.get(name) or "" for name in ("key", "value"))
    if not key:
        causes.required(f"{path}.key")
    elif not is_qualified_name(key):
        causes.invalid(f"{path}.key", key, QUALIFIED_TEXT)
    if not is_label_value(value):
        causes.invalid(f"{path}.value", value, LABEL_VALUE_TEXT)


def check_class(data: Data, causes: Causes) -> None:
    spec = member(data, "spec")
    check_selectors(spec, "spec", causes)
    name = spec.get("extendedResourceName")
    if name is not None and not _is_extended(name):
        causes.invalid("spec.extendedResourceName", name, "must be a valid extended resource name")


def _is_extended(name: str) -> bool:
    domain = name.partition("/")[0]
    native = not domain or domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return "/" in name and not native and not name.startswith("requests.") and is_qualified_name(name)


def check_taint_rule(data: Data, causes: Causes) -> None:
    spec = member(data, "spec")
    _check_taint(member(spec, "taint"), "spec.taint", causes)
