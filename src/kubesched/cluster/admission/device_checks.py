"""What relates the members of the kinds of ``resource.k8s.io``, by type; see :mod:`.checks`, which is the caller.

Checked is what a scheduler, a driver or a user would notice. Facts: the API's field descriptions and the limits in spec
"DynamicResources" section 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from ...api.selectors import is_label_value, is_qualified_name
from ...cel import CompilationError, MissingLibraryError
from ...cel.device_expressions import compile_device_expression
from .kind_checks import check_taint
from .validation import LABEL_VALUE_TEXT, QUALIFIED_TEXT, Causes

__all__ = ["DEVICE_CHECKS"]

Data = dict[str, Any]

_LONGEST_EXPRESSION: Final = 10_240
_MOST_DEVICES: Final = 128
_MOST_SPECIAL_DEVICES: Final = 64
_MOST_QUALITIES: Final = 32
_NODE_FIELDS: Final = ("nodeName", "nodeSelector", "allNodes")
_VALUES: Final = ("bool", "int", "string", "version", "bools", "ints", "strings", "versions")
_TEXT_SIZE: Final = 64
#: The grammar of semver.org, 2.0.0: three numbers, identifiers of a pre-release, identifiers of a build.
_NUMBER: Final = "(?:0|[1-9][0-9]*)"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
_VERSION_TEXT: Final = "must be a string compatible with semver.org spec 2.0.0"


# -- claims ------------------------------------------------------------------------------------------------


def _claim(devices: Data, path: str, causes: Causes) -> None:
    known: set[Any] = set()
    for request in devices.get("requests") or ():
        known.add(request.get("name"))
        known |= {f"{request.get('name')}/{sub.get('name')}" for sub in request.get("firstAvailable") or ()}
    for field in ("constraints", "config"):
        for place, owner in enumerate(devices.get(field) or ()):
            for index, name in enumerate(owner.get("requests") or ()):
                if name not in known:
                    text = (
                        "must be the name of a request in the claim or the name of a request and a subrequest "
                        "separated by '/'"
                    )
                    causes.invalid(f"{path}.{field}[{place}].requests[{index}]", name, text)


def _request(request: Data, path: str, causes: Causes) -> None:
    given = [name for name in ("exactly", "firstAvailable") if request.get(name) not in (None, [])]
    _check_one_of(request, given, "`exactly` or `firstAvailable`", path, causes)


def _constraint(constraint: Data, path: str, causes: Causes) -> None:
    given = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name) is not None]
    _check_one_of(constraint, given, "`matchAttribute`, or `distinctAttribute`", path, causes)
    if len(given) == 1 and "/" not in constraint[given[0]]:
        causes.invalid(f"{path}.{given[0]}", constraint[given[0]], "must include a domain")


def _check_one_of(owner: Data, given: list[str], names: str, path: str, causes: Causes) -> None:
    if not given:
        causes.required(path, f"exactly one of {names} is required")
    elif len(given) > 1:
        causes.invalid(path, owner, f"exactly one of {names} is allowed")


def _amount_of_devices(request: Data, path: str, causes: Causes) -> None:
    """The members that ``exactly`` and an entry of ``firstAvailable`` share."""
    mode, count = request.get("allocationMode"), request.get("count")
    if mode == "All" and count:
        causes.invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and (count or 0) <= 0:
        causes.invalid(f"{path}.count", count, "must be greater than zero")


def _toleration(toleration: Data, path: str, causes: Causes) -> None:
    key, operator, value = (toleration.get(name) or "" for name in ("key", "operator", "value"))
    if key and not is_qualified_name(key):
        causes.invalid(f"{path}.key", key, QUALIFIED_TEXT)
    if operator == "Exists" and value:
        causes.invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        if not key:
            causes.required(f"{path}.key", 'must be specified when operator is "Equal"')
        if not is_label_value(value):
            causes.invalid(f"{path}.value", value, LABEL_VALUE_TEXT)


def _expression(selector: Data, path: str, causes: Causes) -> None:
    where, expression = f"{path}.expression", selector.get("expression")
    if not expression:
        causes.required(where)
    elif len(expression.encode()) > _LONGEST_EXPRESSION:
        causes.too_long(where, _LONGEST_EXPRESSION)
    elif problem := _compile_problem(expression):
        causes.invalid(where, expression, problem)


@lru_cache(maxsize=1024)
def _compile_problem(expression: str) -> str:
    """Why an expression cannot be compiled; nothing when it can."""
    try:
        compile_device_expression(expression, lists=True)
    except (CompilationError, MissingLibraryError) as error:
        return str(error)
    return ""


# -- slices and classes ------------------------------------------------------------------------------------


def _slice(spec: Data, path: str, causes: Causes) -> None:
    own_nodes, devices = bool(spec.get("perDeviceNodeSelection")), spec.get("devices") or ()
    _check_reach(spec, path, (*_NODE_FIELDS, "perDeviceNodeSelection"), causes)
    if devices and spec.get("sharedCounters"):
        causes.invalid(path, "devices, sharedCounters", "only one of `devices` and `sharedCounters` may be set")
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
    """Exactly one of the members that say for which nodes something is."""
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
    for name in ("string", "version") if len(given) == 1 else ():
        texts = {f"{path}.{name}s[{index}]": text for index, text in enumerate(attribute.get(f"{name}s") or ())}
        if attribute.get(name) is not None:
            texts[f"{path}.{name}"] = attribute[name]
        for where, text in texts.items():
            if name == "version" and not _VERSION.fullmatch(text):
                causes.invalid(where, text, _VERSION_TEXT)
            if len(text) > _TEXT_SIZE:
                causes.too_long(where, _TEXT_SIZE)


def _device_class(spec: Data, path: str, causes: Causes) -> None:
    name = spec.get("extendedResourceName")
    if name is not None and not _is_extended(name):
        causes.invalid(f"{path}.extendedResourceName", name, "must be a valid extended resource name")


def _is_extended(name: str) -> bool:
    domain = name.partition("/")[0]
    native = not domain or domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return "/" in name and not native and not name.startswith("requests.") and is_qualified_name(name)


DEVICE_CHECKS: Final[Mapping[str, Callable[[Data, str, Causes], None]]] = {
    "DeviceClaim": _claim,
    "DeviceRequest": _request,
    "DeviceConstraint": _constraint,
    "ExactDeviceRequest": _amount_of_devices,
    "DeviceSubRequest": _amount_of_devices,
    "DeviceToleration": _toleration,
    "CELDeviceSelector": _expression,
    "ResourceSliceSpec": _slice,
    "Device": _device,
    "DeviceAttribute": _attribute,
    "DeviceTaint": check_taint,
    "V1beta2DeviceTaint": check_taint,
    "DeviceClassSpec": _device_class,
}
