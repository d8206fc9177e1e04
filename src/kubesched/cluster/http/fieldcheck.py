"""Unknown fields and keys that came twice: warnings, or a refusal under ``fieldValidation=Strict``.

Caller: the verb modules, with the body of a create, update or merging patch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...api.kinds import Kind
from ...api.wire import ApiError
from ..admission import unknown_fields
from ..schema import Type, root_type, types
from .catalog import Resource

__all__ = ["check_fields", "unknown_in_manifest"]

_MOST: Final = 50


def check_fields(
    resource: Resource, data: Any, duplicates: list[str], validation: str, *, patch: bool = False
) -> list[str]:
    """The warnings of a body; none when ``validation`` is Ignore. A custom resource is pruned of unknown fields.

    Raises:
        ApiError: 400 under Strict, listing what is wrong.
    """
    kind, version, found = resource.kind.kind, resource.version, [f'duplicate field "{path}"' for path in duplicates]
    if resource.defined is not None and resource.defined.schema and isinstance(data, dict):
        for owner, name, path in list(unknown_fields(resource.defined.schema, data)):
            del owner[name]
            found.append(f'unknown field "{path}"')
    elif resource.defined is None and isinstance(data, dict) and validation != "Ignore":
        known = root_type(resource.kind.group, kind, version)
        found += [f'unknown field "{path}"' for path in _unknown(known, data, patch=patch)]
    if not found or validation == "Ignore":
        return []
    del found[_MOST:]
    if validation == "Strict":
        problem = f"strict decoding error: {', '.join(found)}"
        raise ApiError.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}')
    return found


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
            if inner is None or isinstance(value, list) is not (field.shape == "list"):
                continue
            if isinstance(value, list):
                parts = [(f"[{index}]", item) for index, item in enumerate(value)]
            else:
                parts = [(f".{name}", item) for name, item in value.items()] if field.shape == "map" else [("", value)]
            for place, item in parts:
                if isinstance(item, dict):
                    found += [f"{key}{place}.{path}" for path in _unknown(inner, item, patch=patch)]
    return found
