"""Which values fields may have, and what absent ones are: ``rules.txt``, which says how its lines are written.

The defaults are filled in here; :mod:`..admission.values` checks the rest. Callers: admission, OpenAPI.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from .schema import Type, types

__all__ = ["FieldRules", "field_rules", "fill_defaults", "holders", "reaches"]

Data = dict[str, Any]
_NUMBERS: Final = {"min": "minimum", "max": "maximum", "most": "most"}


@dataclass(slots=True)
class FieldRules:
    """The rules of one field. Bounds and ``enum`` of a list are those of its items; ``most`` is its length."""

    required: bool = False
    #: What the error says beyond "Required value".
    required_text: str = ""
    enum: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    most: int | None = None
    format: str = ""
    #: What an absent field is in any case, as JSON; empty when that depends on others.
    default: bytes = b""
    #: Members, alone or together, that distinguish the items of a list.
    unique: tuple[tuple[str, ...], ...] = ()
    #: What the error says when an update changes it; empty when that is allowed.
    immutable: str = ""
    #: Whether 0 is how a client writes "absent".
    zero: bool = False


@dataclass(frozen=True, slots=True)
class _Default:
    """``value`` as JSON; ``condition`` is a field of the same object and its value, or empty."""

    field: str
    value: bytes
    zero: bool
    condition: tuple[str, str]


@dataclass(slots=True)
class _Rules:
    fields: dict[str, dict[str, FieldRules]] = field(default_factory=dict)
    defaults: dict[str, list[_Default]] = field(default_factory=dict)


@cache
def _rules() -> _Rules:
    found = _Rules()
    for line in files(__package__).joinpath("rules.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, *rules = line.split()
        owner, _, member = name.partition(".")
        type_ = types().get(owner)
        if type_ is None or (member and member not in type_.fields):
            raise ValueError(f"rules.txt: {name} is not in schemas.txt")
        fields = found.fields.setdefault(owner, {})
        if member:
            _read(fields.setdefault(member, FieldRules()), found.defaults.setdefault(owner, []), member, rules)
        else:
            for one in (one for one, described in type_.fields.items() if described.required):
                fields.setdefault(one, FieldRules()).required = True
    return found


def _read(fields: FieldRules, defaults: list[_Default], member: str, rules: list[str]) -> None:
    default, condition = "", ("", "")
    for rule in rules:
        name, _, value = rule.partition("=")
        if name in _NUMBERS:
            setattr(fields, _NUMBERS[name], int(value))
        elif name == "default":
            default = value
        elif name == "if":
            left, _, right = value.partition(":")
            condition = (left, right)
        elif name == "enum":
            fields.enum = tuple(value.split("|"))
        elif name == "unique":
            fields.unique = tuple(tuple(keys.split("+")) for keys in value.split("|"))
        elif name == "immutable":
            fields.immutable = value.replace("_", " ") or "field is immutable"
        elif name == "format":
            fields.format = value
        elif name == "required":
            fields.required, fields.required_text = True, value.replace("_", " ")
        elif name == "zero":
            fields.zero = True
        else:
            raise ValueError(f"rules.txt: {member} has an unknown rule {rule!r}")
    if default:
        defaults.append(_Default(member, default.encode(), "zero" in rules, condition))
        fields.default = b"" if condition[0] else default.encode()


def field_rules(type_: str) -> dict[str, FieldRules]:
    """The rules of a type's fields, by name."""
    return _rules().fields.get(type_, {})


@cache
def reaches(ruled: str) -> frozenset[str]:
    """The names of the types that have ``defaults``, ``fields`` with rules or ``immutable`` ones, or hold such types."""
    if ruled == "immutable":
        fields = _rules().fields.items()
        return holders(frozenset(name for name, rules in fields if any(rule.immutable for rule in rules.values())))
    return holders(frozenset(name for name, value in getattr(_rules(), ruled).items() if value))


@cache
def holders(names: frozenset[str]) -> frozenset[str]:
    """Some types, and the names of all that hold such types."""
    found = set(names)
    before = -1
    while len(found) > before:
        before = len(found)
        found |= {type_.name for type_ in types().values() if any(f.type in found for f in type_.fields.values())}
    return frozenset(found)


@dataclass(slots=True)
class _Plan:
    """What is to be filled in where in the objects of one type."""

    defaults: list[_Default]
    children: list[tuple[str, str, _Plan]] = field(default_factory=list)


@cache
def _plan(name: str) -> _Plan:
    plan = _Plan(_rules().defaults.get(name, []))
    plan.children += _children(types()[name])
    return plan


def _children(type_: Type) -> Iterator[tuple[str, str, _Plan]]:
    held = reaches("defaults")
    for name, described in type_.fields.items():
        if described.type in held:
            yield name, described.shape, _plan(described.type)


def fill_defaults(type_: str, data: Data) -> None:
    """Fill in, in place, the defaults of an object of a type and of everything in it. Its form must have been checked."""
    if type_ in reaches("defaults"):
        _fill(_plan(type_), data)


def _fill(plan: _Plan, data: Data) -> None:
    for default in plan.defaults:
        name = default.field
        found = data.get(name)
        if (found is None or found == "" or (default.zero and found == 0)) and (
            not default.condition[0] or data.get(default.condition[0]) == default.condition[1]
        ):
            data[name] = msgspec.json.decode(default.value)
    for name, shape, child in plan.children:
        value = data.get(name)
        if value is None:
            continue
        if not shape:
            _fill(child, value)
        else:
            for item in value if shape == "list" else value.values():
                _fill(child, item)
