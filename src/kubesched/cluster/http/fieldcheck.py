"""Unknown fields and keys that came twice: warnings, or a refusal under ``fieldValidation=Strict``.

Caller: the verb modules, with the body of a create, update or merging patch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...api.kinds import Kind
from ...api.wire import ApiError
from ..admission import unknown_fields as find_unknown
from ..schema import Type, root_type, types
from .catalog import Resource

__all__ = ["check_fields", "unknown_in_manifest"]

_MOST: Final = 50


def check_fields(
    resource: Resource, data: Any, duplicates: list[str], validation: str, *, patch: bool = False
) -> list[str]:
    """The warnings of a body; none when ``validation`` is Ignore.

    Raises:
        ApiError: 400 under Strict, listing what is wrong.
    """
    found = [f'duplicate field "{path}"' for path in duplicates]
    if isinstance(data, dict) and (validation != "Ignore" or resource.defined is not None):
        found += [f'unknown field "{path}"' for path in unknown_fields(resource, data, patch=patch)]
    if not found or validation == "Ignore":
        return []
    del found[_MOST:]
    if validation == "Strict":
        kind, version = resource.kind.kind, resource.version
        texts = ", ".join(found)
        message = f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {texts}'
        raise ApiError.bad_request(message)
    return found


def unknown_fields(resource: Resource, data: Mapping[str, Any], *, patch: bool = False) -> list[str]:
    """Dotted paths of fields the schema does not know. A custom resource is pruned of them."""
    found: list[str] = []
    if resource.defined is not None:
        if resource.defined.schema:
            for owner, name, path in list(find_unknown(resource.defined.schema, data)):
                del owner[name]
                found.append(path)
        return found
    return _unknown(root_type(resource.kind.group, resource.kind.kind, resource.version), data, patch=patch)


def unknown_in_manifest(kind: Kind, data: Mapping[str, Any]) -> list[str]:
    """Dotted paths of a manifest's fields that its kind does not have; nothing for kinds without a schema."""
    return _unknown(root_type(kind.group, kind.kind), data, patch=False)


def _unknown(type_: Type | None, data: Mapping[str, Any], *, patch: bool) -> list[str]:
    """Every body that is written is checked here; paths are only made for what is unknown."""
    if type_ is None:
        return []
    found: list[str] = []
    for key, value in data.items():
        field = type_.fields.get(key)
        if field is None:
            if not (patch and key.startswith("$")):
                found.append(key)
        elif value and isinstance(value, dict | list):
            inner = types().get(field.type)
            if inner is None or isinstance(value, list) is not field.is_list:
                continue
            parts: Iterable[tuple[str, Any]] = (("", value),)
            if isinstance(value, list):
                parts = ((f"[{index}]", item) for index, item in enumerate(value))
            elif field.is_map:
                parts = ((f".{name}", item) for name, item in value.items())
            for place, item in parts:
                if isinstance(item, dict):
                    found += [f"{key}{place}.{path}" for path in _unknown(inner, item, patch=patch)]
    return found
