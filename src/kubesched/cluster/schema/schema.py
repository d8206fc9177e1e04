"""Fields of the built-in kinds: read once from ``schemas.txt``, with descriptions from ``descriptions.txt``.

Callers: the checks of unknown fields (HTTP and simulations), OpenAPI, and server-side apply for list keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

__all__ = ["Field", "Type", "descriptions", "root_type", "table_lines", "types"]
__all__ += ["unknown_members", "unknown_paths"]

_META: Final = frozenset(
    {"ObjectMeta", "ManagedFieldsEntry", "OwnerReference", "LabelSelector", "LabelSelectorRequirement", "Condition"}
)


@dataclass(frozen=True, slots=True)
class Field:
    """Field: the name of its type, its shape (a list or map of that type), and True if it is required.

    ``shape`` is "list", "map" or empty. ``type`` is one of str, int, int32, num, bool, any, time, intstr, quantity, or
    the name of a :class:`Type`.
    """

    type: str
    shape: str = ""
    required: bool = False


@dataclass(slots=True)
class Type:
    """Object type: its fields by name and the OpenAPI name of its definition.

    ``has_generation``: ``metadata.generation`` counts changes of the object's spec.
    """

    name: str
    definition: str
    fields: dict[str, Field]
    has_generation: bool = False


#: Prefixes that distinguish types of equal names in several groups. OpenAPI definitions name the group anyway.
_OF_GROUP: Final = re.compile(
    r"^(?:Admissionregistration|Apiextensions|Core|Discovery|Events|Rbac|Resource|Storage)V1(?=[A-Z])"
)


@cache
def _tables() -> tuple[dict[str, Type], dict[tuple[str, str], str]]:
    """Return the types by name, and the names of the types of kinds.

    The keys of the latter are (group, kind) and (group, version, kind).
    """
    found: dict[str, Type] = {}
    roots: dict[tuple[str, str], str] = {}
    place, root, kind, marks = "", "", "", [""]
    for line in table_lines("schemas.txt"):
        if line.startswith("## "):
            _, api_version, kind, root, *marks = line.split()
            group, _, version = api_version.rpartition("/")
            # The first version listed is the stored one.
            roots.setdefault(("" if group == "core" else group, kind), root)
            roots[api_version, kind] = root
            place = f"{group.partition('.')[0]}.{version}"
        else:
            name, *texts = line.split()
            definition = f"io.k8s.api.{place}.{kind if name == root else _OF_GROUP.sub('', name)}"
            if name in _META:
                definition = f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}"
            found[name] = Type(name, definition, dict(map(_field, texts)), name == root and "generation" in marks)
    return found, roots


def table_lines(name: str, package: str = __package__) -> Iterator[str]:
    """Yield the lines of a table in a package, without empty lines and comments (one number sign)."""
    for line in files(package).joinpath(name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("# "):
            yield line


def _field(text: str) -> tuple[str, Field]:
    name, _, type_ = text.partition("=")
    required = type_.endswith("!")
    type_ = type_.removesuffix("!")
    shape = {"[": "list", "{": "map"}.get(type_[0], "")
    # A list in a map, or a map in a list, is not checked below the first level.
    inner = type_[1:-1] if shape else type_
    return name, Field("any" if inner[0] in "[{" else inner, shape, required)


def types() -> dict[str, Type]:
    """Return all object types by name."""
    return _tables()[0]


@cache
def root_type(group: str, kind: str, version: str = "") -> Type | None:
    """Return the type of a kind's objects, in the stored version, or in ``version`` if that has other fields."""
    roots = _tables()[1]
    name = roots.get((f"{group}/{version}", kind)) or roots.get((group, kind))
    return types()[name] if name is not None else None


@cache
def descriptions() -> dict[str, str]:
    """Return descriptions by ``Type`` and ``Type.field``."""
    rows = (line.partition(": ") for line in table_lines("descriptions.txt"))
    return {name: words for name, _, words in rows}


def unknown_members(
    type_: Type | None, data: dict[str, Any], *, patch: bool = False
) -> list[tuple[dict[str, Any], str, str]]:
    """Return the members of ``data`` that its type does not have: the object they are in, their name and dotted path.

    Empty without a type. In a ``patch`` directives are allowed. Since every written body is checked here, paths are
    only made for unknown fields.
    """
    return [] if type_ is None else _unknown_members(type_, data, types(), patch=patch)


def _unknown_members(
    type_: Type, data: dict[str, Any], known: Mapping[str, Type], *, patch: bool
) -> list[tuple[dict[str, Any], str, str]]:
    found: list[tuple[dict[str, Any], str, str]] = []
    for key, value in data.items():
        field = type_.fields.get(key)
        if field is None:
            if not (patch and key.startswith("$")):
                found.append((data, key, key))
        elif value and isinstance(value, dict | list):
            inner = known.get(field.type)
            if inner is None or isinstance(value, list) is not (field.shape == "list"):
                continue
            if not field.shape and isinstance(value, dict):
                below = _unknown_members(inner, value, known, patch=patch)
                found += [(owner, name, f"{key}.{path}") for owner, name, path in below]
                continue
            for place, item in enumerate(value) if isinstance(value, list) else value.items():
                if isinstance(item, dict) and (below := _unknown_members(inner, item, known, patch=patch)):
                    where = f"{key}[{place}]" if field.shape == "list" else f"{key}.{place}"
                    found += [(owner, name, f"{where}.{path}") for owner, name, path in below]
    return found


def unknown_paths(type_: Type | None, data: dict[str, Any]) -> list[str]:
    """Return dotted paths of the fields of ``data`` that its type does not have; empty without a type."""
    return [path for _, _, path in unknown_members(type_, data)]
