"""The fields of the built-in kinds: read once from ``schemas.txt``, with descriptions from ``descriptions.txt``.

Callers: :mod:`.fieldcheck` (unknown fields), :mod:`.openapi` (kubectl explain), and server-side apply for list keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Final

from .strategic import merge_key

__all__ = ["Field", "Type", "descriptions", "patch_markers", "root_type", "types"]

_STRATEGY: Final = "x-kubernetes-patch-strategy"
#: Objects of which a patch names all members that stay: the members exclude each other.
_RETAINED: Final = frozenset({("spec", "strategy")})

_META: Final = frozenset(
    {"ObjectMeta", "ManagedFieldsEntry", "OwnerReference", "LabelSelector", "LabelSelectorRequirement", "Condition"}
)


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its type's name, whether it is a list or a map of that type, and whether it must be there.

    ``type`` is one of str, int, int32, num, bool, any, time, intstr, quantity, or the name of a :class:`Type`.
    """

    type: str
    shape: str = ""
    required: bool = False

    @property
    def is_list(self) -> bool:
        return self.shape == "list"

    @property
    def is_map(self) -> bool:
        return self.shape == "map"


@dataclass(slots=True)
class Type:
    """An object type: its fields by name, and the OpenAPI name of its definition."""

    name: str
    definition: str
    fields: dict[str, Field] = field(default_factory=dict)


@dataclass(slots=True)
class _Tables:
    types: dict[str, Type] = field(default_factory=dict)
    roots: dict[tuple[str, str], str] = field(default_factory=dict)


#: What sets apart types of one name in several groups; the group is in their definitions anyway.
_OF_GROUP: Final = re.compile(
    r"^(?:Admissionregistration|Apiextensions|Core|Discovery|Events|Rbac|Resource|Storage)V1(?=[A-Z])"
)


@cache
def _tables() -> _Tables:
    text = files(__package__).joinpath("schemas.txt").read_text(encoding="utf-8")
    tables, place, root, kind = _Tables(), "", "", ""
    for line in text.splitlines():
        if line.startswith("## "):
            _, api_version, kind, root = line.split()
            group, _, version = api_version.rpartition("/")
            # The first version listed is the stored one.
            tables.roots.setdefault(("" if group == "core" else group, kind), root)
            tables.roots[api_version, kind] = root
            place = f"{group.partition('.')[0]}.{version}"
        elif line and not line.startswith("#"):
            name, *texts = line.split()
            definition = _definition(name, place, kind if name == root else "")
            tables.types[name] = Type(name, definition, dict(_field(text) for text in texts))
    return tables


def _definition(name: str, place: str, kind: str) -> str:
    if name in _META:
        return f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}"
    return f"io.k8s.api.{place}.{kind or _OF_GROUP.sub('', name)}"


def _field(text: str) -> tuple[str, Field]:
    name, _, type_ = text.partition("=")
    required = type_.endswith("!")
    type_ = type_.removesuffix("!")
    shape = {"[": "list", "{": "map"}.get(type_[0], "")
    # A list in a map, or a map in a list, is free form one level down.
    inner = type_[1:-1] if shape else type_
    return name, Field("any" if inner[0] in "[{" else inner, shape, required)


def types() -> dict[str, Type]:
    """All object types by name."""
    return _tables().types


@cache
def root_type(group: str, kind: str, version: str = "") -> Type | None:
    """The type of a kind's objects, in the version they are stored in or, if that has other fields, in another."""
    roots = _tables().roots
    name = roots.get((f"{group}/{version}", kind)) or roots.get((group, kind))
    return types()[name] if name is not None else None


@cache
def _owners() -> dict[str, tuple[str, ...]]:
    """By type: the names of the fields that hold it."""
    found: dict[str, set[str]] = {}
    for type_ in types().values():
        for name, field_ in type_.fields.items():
            found.setdefault(field_.type, set()).add(name)
    return {name: tuple(sorted(owners)) for name, owners in found.items()}


def patch_markers(type_: Type, name: str) -> dict[str, str]:
    """How a strategic merge patch treats a field, as kubectl reads it from OpenAPI; empty for plain replacement.

    It is what :mod:`..strategic` does, so that patches made by these markers come out as they were meant.
    """
    paths = [(owner, name) for owner in _owners().get(type_.name, ())]
    if any(path in _RETAINED for path in paths):
        return {_STRATEGY: "retainKeys"}
    if not type_.fields[name].is_list:
        return {}
    key = next((key for path in paths if (key := merge_key(path)) is not None), None)
    if key is None:
        return {}
    if not key:
        return {_STRATEGY: "merge"}
    return {_STRATEGY: "merge,retainKeys" if name == "volumes" else "merge", "x-kubernetes-patch-merge-key": key}


@cache
def descriptions() -> dict[str, str]:
    """Descriptions by ``Type`` and ``Type.field``."""
    text = files(__package__).joinpath("descriptions.txt").read_text(encoding="utf-8")
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, words = line.partition(": ")
            found[name] = words
    return found
