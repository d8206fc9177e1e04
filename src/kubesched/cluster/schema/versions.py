"""Conversion of an object between older versions and its stored version, for kinds that are served in several.

Only ``resource.k8s.io/v1beta1`` has other shapes than v1: in v1beta1 the members of a request's ``exactly``, and of a
device, are in other places. v1beta2, and DeviceTaintRule in v1alpha3, differ in ``apiVersion`` alone. Nothing is lost
either way. Callers: manifests, HTTP (:mod:`..http.catalog`) and the benchmark's templates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubesched.api.kinds import Kind

__all__ = ["has_other_shape", "served_form", "stored_form"]

Data = dict[str, Any]
#: Converter of one entry of a list.
Convert = Callable[[Data], Data]

#: Members of ``exactly`` in a v1 request.
_EXACTLY: Final = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")


def _lifted(entry: Data, member: str) -> Data:
    """Return an entry with one of its members replaced by the contents of that member."""
    inner = entry.get(member)
    if not isinstance(inner, dict):
        return entry
    return {**{key: value for key, value in entry.items() if key != member}, **inner}


def _exact(entry: Data) -> Data:
    """Return the v1 form of a v1beta1 request, which has the members of ``exactly`` itself."""
    exactly = {key: entry[key] for key in _EXACTLY if key in entry}
    rest = {key: value for key, value in entry.items() if key not in _EXACTLY}
    return {**rest, "exactly": exactly} if exactly else rest


def _basic(entry: Data) -> Data:
    """Return the v1beta1 form of a device: everything but its name is in ``basic``."""
    return {"name": entry.get("name", ""), "basic": {key: value for key, value in entry.items() if key != "name"}}


_REQUESTS: Final = (_exact, lambda entry: _lifted(entry, "exactly"))
#: By kind: path of the list with another shape in v1beta1, and the converters of its entries, to v1 and back.
_SHAPES: Final[Mapping[str, tuple[tuple[str, ...], tuple[Convert, Convert]]]] = {
    "ResourceClaim": (("spec", "devices", "requests"), _REQUESTS),
    "ResourceClaimTemplate": (("spec", "spec", "devices", "requests"), _REQUESTS),
    "ResourceSlice": (("spec", "devices"), (lambda entry: _lifted(entry, "basic"), _basic)),
}


def has_other_shape(kind: Kind, version: str) -> bool:
    """True if a served version differs from the stored one in more than ``apiVersion``."""
    return version == "v1beta1" and kind.kind in _SHAPES


def stored_form(kind: Kind, data: Mapping[str, Any], version: str = "") -> Mapping[str, Any]:
    """Return an object, or a merge patch of one, in its stored version.

    ``version`` is the version it is written in, by default that of its ``apiVersion``. The argument is not changed.
    """
    written = version or str(data.get("apiVersion") or kind.api_version).rpartition("/")[2]
    if written == kind.version:
        return data
    result = _reshaped(kind, data, written, 0)
    if result.get("apiVersion") == _api_version(kind, written):
        result = {**result, "apiVersion": kind.api_version}
    return result


def served_form(kind: Kind, data: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """Return a stored object in a served version. The argument is not changed."""
    if version == kind.version:
        return data
    return {**_reshaped(kind, data, version, 1), "apiVersion": _api_version(kind, version)}


def _api_version(kind: Kind, version: str) -> str:
    return f"{kind.group}/{version}" if kind.group else version


def _reshaped(kind: Kind, data: Mapping[str, Any], version: str, way: int) -> Mapping[str, Any]:
    """Return the members in the other shape, if there is one. ``way`` is 0 to the stored version, 1 to the served
    version.
    """
    if not has_other_shape(kind, version):
        return data
    path, ways = _SHAPES[kind.kind]
    return _converted(data, path, ways[way])


def _converted(data: Mapping[str, Any], path: tuple[str, ...], convert: Convert) -> Mapping[str, Any]:
    """Return a copy with the entries of a list converted. Values of unexpected types are left for later checks."""
    child = data.get(path[0])
    if isinstance(child, list) and len(path) == 1:
        return {**data, path[0]: [convert(item) if isinstance(item, dict) else item for item in child]}
    if isinstance(child, Mapping) and len(path) > 1:
        return {**data, path[0]: _converted(child, path[1:], convert)}
    return data
