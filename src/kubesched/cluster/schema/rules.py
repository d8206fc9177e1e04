"""Which values fields may have, and what absent ones are: ``rules.txt``, which says how its lines are written.

The defaults are filled in here; :mod:`..admission.checks` evaluates the rest. Callers: admission, OpenAPI.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from .schema import types

__all__ = [
    "Condition",
    "FieldRules",
    "field_rules",
    "fill_defaults",
    "holders",
    "members",
    "parts",
    "reaches",
    "type_rules",
]

Data = dict[str, Any]
_NUMBERS: Final = {"min": "minimum", "max": "maximum", "most": "most", "longest": "longest"}
_CONDITION: Final = re.compile(r"(?P<path>\S*) (?P<reason>\w+)(?: \((?P<shown>.+?)\))?(?:: (?P<text>.*))?")


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
    #: The most bytes of a text.
    longest: int | None = None
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


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold in an object of a type, as a CEL expression, and else the error.

    ``path`` is below the object, ``reason`` a method of :class:`..admission.Causes`, ``shown`` an expression for the value
    that the error names.
    """

    expression: str
    path: str
    reason: str
    shown: str
    text: str
    #: Whether it relates an object to its state before an update.
    on_update: bool


@dataclass(slots=True)
class TypeRules:
    """The rules of a type: of its fields by name, its defaults, and what relates its members."""

    fields: dict[str, FieldRules] = field(default_factory=dict)
    defaults: list[_Default] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)

    @property
    def immutable(self) -> bool:
        """Whether an update may not change some field."""
        return any(rules.immutable for rules in self.fields.values())

    @property
    def relations(self) -> bool:
        """Whether something relates members, or the items of a list."""
        return bool(self.conditions) or any(rules.unique for rules in self.fields.values())


@cache
def type_rules() -> dict[str, TypeRules]:
    """The rules of every type, by name."""
    found = {name: TypeRules() for name in types()}
    for line in _lines():
        name = line.split()[0]
        owner, _, member = name.partition(".")
        if owner not in found or (member and re.split(r"[.\[]", member)[0] not in types()[owner].fields):
            raise ValueError(f"rules.txt: {name} is not in schemas.txt")
        rules, type_ = found[owner], types()[owner]
        head, _, expression = line.partition("\n")
        if expression:
            condition = _CONDITION.fullmatch(head.removeprefix(owner).removeprefix("."))
            if condition is None:
                raise ValueError(f"rules.txt: {head!r} is not 'Type.path reason (shown): text'")
            found_parts = condition.groupdict("")
            # Of a path that ends in brackets, the value of what has them is shown.
            shown = found_parts.pop("shown") or f"self.{found_parts['path'].partition('[')[0]}".removesuffix(".")
            rules.conditions.append(
                Condition(expression, **found_parts, shown=shown, on_update="oldSelf" in expression)
            )
        elif member:
            _read(rules.fields.setdefault(member, FieldRules()), rules.defaults, member, line.split()[1:])
        else:
            for one in (one for one, described in type_.fields.items() if described.required):
                rules.fields.setdefault(one, FieldRules()).required = True
    return found


def _lines() -> Iterator[str]:
    """The lines of rules.txt; the expression of a condition comes after a line break."""
    text = files(__package__).joinpath("rules.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if not line.startswith(" "):
            yield f"{line}\n{following.strip()}" if following.startswith(" ") else line


def _read(fields: FieldRules, defaults: list[_Default], member: str, rules: list[str]) -> None:
    default, condition = "", ("", "")
    for rule in rules:
        name, _, value = rule.partition("=")
        match name:
            case "min" | "max" | "most" | "longest":
                setattr(fields, _NUMBERS[name], int(value))
            case "default":
                default = value
            case "if":
                left, _, right = value.partition(":")
                condition = (left, right)
            case "enum":
                fields.enum = tuple(value.split("|"))
            case "unique":
                fields.unique = tuple(tuple(keys.split("+")) for keys in value.split("|"))
            case "immutable":
                fields.immutable = value.replace("_", " ") or "field is immutable"
            case "format":
                fields.format = value
            case "required":
                fields.required, fields.required_text = True, value.replace("_", " ")
            case "zero":
                fields.zero = True
            case _:
                raise ValueError(f"rules.txt: {member} has an unknown rule {rule!r}")
    if default:
        defaults.append(_Default(member, default.encode(), "zero" in rules, condition))
        fields.default = b"" if condition[0] else default.encode()


def field_rules(type_: str) -> dict[str, FieldRules]:
    """The rules of a type's fields, by name."""
    return type_rules()[type_].fields


@cache
def holders(names: frozenset[str]) -> frozenset[str]:
    """Some types, and the names of all that hold such types."""
    found, before = set(names), -1
    while len(found) > before:
        before = len(found)
        found |= {type_.name for type_ in types().values() if any(f.type in found for f in type_.fields.values())}
    return frozenset(found)


@cache
def reaches(what: str) -> frozenset[str]:
    """The names of the types whose rules have ``what``, which is a member of :class:`TypeRules`, or that hold such types."""
    return holders(frozenset(name for name, rules in type_rules().items() if getattr(rules, what)))


@cache
def members(type_: str, held: frozenset[str]) -> tuple[tuple[str, str, str], ...]:
    """The fields of a type that hold one of some types: name, shape and type."""
    return tuple((name, f.shape, f.type) for name, f in types()[type_].fields.items() if f.type in held)


def parts(value: Any, shape: str) -> Iterable[tuple[Any, Any]]:
    """What a member is made of, by index or key: itself, by "", where it is neither list nor map; nothing when absent."""
    if value is None:
        return ()
    return enumerate(value) if shape == "list" else value.items() if shape else (("", value),)


def fill_defaults(type_: str, data: Data) -> None:
    """Fill in, in place, the defaults of an object of a type and of everything in it. Its form must have been checked."""
    for default in type_rules()[type_].defaults:
        name, (other, wanted) = default.field, default.condition
        found = data.get(name)
        if (found is None or found == "" or (default.zero and found == 0)) and (not other or data.get(other) == wanted):
            data[name] = msgspec.json.decode(default.value)
    for name, shape, inner in members(type_, reaches("defaults")):
        for _, one in parts(data.get(name), shape):
            fill_defaults(inner, one)
