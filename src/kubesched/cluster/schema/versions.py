"""Older versions of an object and the one it is stored in, for kinds that are served in several.

Only ``resource.k8s.io/v1beta1`` has other shapes than v1: the members of a request's ``exactly`` and of a device were
written at other places. v1beta2, and DeviceTaintRule in v1alpha3, differ in ``apiVersion`` alone. Nothing is lost either
way. Callers: manifests, the HTTP face (:mod:`..http.catalog`) and the benchmark's templates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...api.kinds import Kind

__all__ = ["has_other_shape", "served_form", "stored_form"]

Data = dict[str, Any]
#: Path to a list from the top of an object, and how one entry of it is converted.
Rule = tuple[tuple[str, ...], Callable[[Data], Data]]

#: What a v1 request has in ``exactly``.
_EXACTLY: Final = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")


def _request_in(entry: Data) -> Data:
    """A v1beta1 request: the members of ``exactly`` are its own."""
    exactly = {key: entry[key] for key in _EXACTLY if key in entry}
    rest = {key: value for key, value in entry.items() if key not in _EXACTLY}
    return {**rest, "exactly": exactly} if exactly else rest


def _request_out(entry: Data) -> Data:
    exactly = entry.get("exactly")
    if not isinstance(exactly, dict):
        return entry
    return {**{key: value for key, value in entry.items() if key != "exactly"}, **exactly}


def _device_in(entry: Data) -> Data:
    """A v1beta1 device: everything but its name is in ``basic``."""
    basic = entry.get("basic")
    if not isinstance(basic, dict):
        return entry
    return {**{key: value for key, value in entry.items() if key != "basic"}, **basic}


def _device_out(entry: Data) -> Data:
    basic = {key: value for key, value in entry.items() if key != "name"}
    return {"name": entry.get("name", ""), "basic": basic}


#: By kind and version: the list that has another shape there, inwards and outwards.
_SHAPES: Final[dict[tuple[str, str], tuple[Rule, Rule]]] = {
    (kind, "v1beta1"): ((path, inward), (path, outward))
    for kind, path, inward, outward in (
        ("ResourceClaim", ("spec", "devices", "requests"), _request_in, _request_out),
        ("ResourceClaimTemplate", ("spec", "spec", "devices", "requests"), _request_in, _request_out),
        ("ResourceSlice", ("spec", "devices"), _device_in, _device_out),
    )
}


def has_other_shape(kind: Kind, version: str) -> bool:
    """Whether more than ``apiVersion`` differs between a served version and the stored one."""
    return (kind.kind, version) in _SHAPES


def stored_form(kind: Kind, data: Mapping[str, Any], version: str = "") -> Mapping[str, Any]:
    """An object, or a merge patch of one, in the version it is stored in.

    ``version`` is the one it is written in, by default what its ``apiVersion`` says. The argument is not changed.
    """
    written = version or str(data.get("apiVersion") or kind.api_version).rpartition("/")[2]
    if written == kind.version:
        return data
    rules = _SHAPES.get((kind.kind, written))
    result = _converted(data, *rules[0]) if rules is not None else data
    if result.get("apiVersion") == _api_version(kind, written):
        result = {**result, "apiVersion": kind.api_version}
    return result


def served_form(kind: Kind, data: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """A stored object in a version it is served in. The argument is not changed."""
    if version == kind.version:
        return data
    rules = _SHAPES.get((kind.kind, version))
    result = _converted(data, *rules[1]) if rules is not None else data
    return {**result, "apiVersion": _api_version(kind, version)}


def _api_version(kind: Kind, version: str) -> str:
    return f"{kind.group}/{version}" if kind.group else version


def _converted(data: Mapping[str, Any], path: tuple[str, ...], convert: Callable[[Data], Data]) -> Mapping[str, Any]:
    """A copy with the entries of a list converted; what has another type than expected is left for later checks."""
    child = data.get(path[0])
    if len(path) > 1:
        if not isinstance(child, Mapping):
            return data
        return {**data, path[0]: _converted(child, path[1:], convert)}
    if not isinstance(child, list):
        return data
    return {**data, path[0]: [convert(item) if isinstance(item, dict) else item for item in child]}
