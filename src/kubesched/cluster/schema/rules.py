"""Rules of fields: valid values and defaults, read from ``rules.txt``, which describes the syntax of its lines.

The defaults are filled in here; :mod:`..admission.checks` evaluates the rest. Callers: admission, OpenAPI.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec

from .schema import table_lines, types

__all__ = [
    "Condition",
    "FieldRules",
    "drop_gated",
    "field_rules",
    "fill_defaults",
    "holders",
    "items_of",
    "members",
    "reaches",
    "type_rules",
]

Data = dict[str, Any]
#: Line of ``rules.txt``: a type, perhaps with a field or path, then its rules. The expression of a condition is below.
_LINE: Final = re.compile(r"(\w+)(?:\.(\S+))? ([^\n]+)(?:\n +(.+))?")
_ERROR: Final = re.compile(r"(\w+)(?: \((.+?)\))?(?:: (.*))?")
#: Values of the words that ``rules.txt`` has without a value.
_ALONE: Final = {"immutable": "field_is_immutable", "zero": "true", "unshown": "true"}


class FieldRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules of one field. For a list, bounds and ``enum`` are about its items; ``most`` is its largest length."""

    #: Text of the error after "Required value"; None where the field may be absent.
    required: str | None = None
    enum: tuple[str, ...] = ()
    minimum: int | None = msgspec.field(default=None, name="min")
    maximum: int | None = msgspec.field(default=None, name="max")
    most: int | None = None
    #: Most bytes of a text.
    longest: int | None = None
    format: str = ""
    #: Unconditional default, as JSON; empty if there is none or it depends on other fields.
    default: str = ""
    #: Members, or sets of members, in which no two items of a list may be equal; an empty name is the item itself.
    unique: tuple[tuple[str, ...], ...] = ()
    #: Member that distinguishes the items of a list. An error shows the whole second item.
    key: str = ""
    #: Text of the error when an update changes the field; empty when that is allowed.
    immutable: str = ""
    #: True if the error about such a change shows null instead of the value.
    unshown: bool = False
    #: Feature gate without which a client cannot set the field; see :func:`drop_gated`.
    gate: str = ""
    #: True if a client may write 0 for "absent".
    zero: bool = False


@dataclass(frozen=True, slots=True)
class _Default:
    """Default of a field: ``value`` as JSON, for objects of which ``applies`` is true.

    The object of the field is found by the names ``within``, from the one that is filled.
    """

    within: tuple[str, ...]
    field: str
    value: bytes
    zero: bool
    applies: Callable[[Data], bool]


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition that must hold for an object of a type, as a CEL expression, and its error.

    The error is about ``path``, which starts at the object. ``reason`` names a method of
    :class:`..admission.Causes`. ``shown`` is an expression for the value that the error shows.
    """

    expression: str
    path: str
    reason: str
    shown: str
    text: str
    #: True if it relates an object to its state before an update.
    on_update: bool


@dataclass(slots=True)
class TypeRules:
    """Rules of a type: of its fields by name, its defaults, and its conditions between members."""

    fields: dict[str, FieldRules] = field(default_factory=dict)
    defaults: list[_Default] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)

    @property
    def immutable(self) -> bool:
        """True if an update may not change some field."""
        return any(rules.immutable for rules in self.fields.values())

    @property
    def relations(self) -> bool:
        """True if rules relate members, or the items of a list."""
        return bool(self.conditions) or any(rules.unique or rules.key for rules in self.fields.values())

    @property
    def gated(self) -> bool:
        """True if some field has a feature gate."""
        return any(rules.gate for rules in self.fields.values())


@cache
def type_rules() -> dict[str, TypeRules]:
    """Return the rules of every type, by name."""
    found = {name: TypeRules() for name in types()}
    #: Words of all lines about a field, by type and field.
    words: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for line in re.split(r"\n(?! )", "\n".join(table_lines("rules.txt"))):
        parsed = _LINE.fullmatch(line)
        owner, path, said, expression = parsed.groups("") if parsed is not None else ("", "", "", "")
        fields = types()[owner].fields if owner in types() else {}
        if not fields or (path and re.split(r"[.\[]", path)[0] not in fields):
            raise ValueError(f"rules.txt: {line!r} is not about a field in schemas.txt")
        if expression:
            found[owner].conditions.append(_condition(path, said, expression))
        elif path:
            given = dict(word.partition("=")[::2] for word in said.split())
            applies = _condition_of_default(given.pop("if", ""))
            if "default" in given:
                *within, name = path.split(".")
                default = _Default(tuple(within), name, given["default"].encode(), "zero" in given, applies)
                found[owner].defaults.append(default)
                if within:  # a default for one kind; the checks are in the lines of the field's own type
                    continue
                given["default"] = "" if " if=" in said else given["default"]
            words[owner, path] |= given
        else:  # an exclamation mark
            for name in (name for name, described in fields.items() if described.required):
                words[owner, name]["required"] = ""
    for (owner, name), given in words.items():
        found[owner].fields[name] = _field_rules(f"{owner}.{name}", given)
    return found


def _condition(path: str, said: str, expression: str) -> Condition:
    parsed = _ERROR.fullmatch(said)
    if parsed is None:
        raise ValueError(f"rules.txt: {said!r} is not 'reason (expression): text'")
    reason, shown, text = parsed.groups("")
    # The error shows the value before the brackets, if the path ends in brackets.
    shown = shown or f"self.{path.partition('[')[0]}".removesuffix(".")
    return Condition(expression, path, reason, shown, text, on_update="oldSelf" in expression)


def _field_rules(name: str, given: Mapping[str, str]) -> FieldRules:
    values: dict[str, Any] = {word: value or _ALONE.get(word, "") for word, value in given.items()}
    values |= {word: values[word].replace("_", " ") for word in ("required", "immutable") if word in values}
    values |= {word: values[word].split("|") for word in ("enum", "unique") if word in values}
    if "unique" in values:
        values["unique"] = [keys.split("+") for keys in values["unique"]]
    try:
        return msgspec.convert(values, FieldRules, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"rules.txt: {name}: {error}") from None


def _condition_of_default(text: str) -> Callable[[Data], bool]:
    name, _, values = text.partition(":")
    if values:
        return lambda data: data.get(name) in values.split("|")
    is_absent, name = name.startswith("!"), name.removeprefix("!")
    return lambda data: not name or (data.get(name) in (None, [])) is is_absent


def field_rules(type_: str) -> dict[str, FieldRules]:
    """Return the rules of a type's fields, by name."""
    return type_rules()[type_].fields


@cache
def holders(names: frozenset[str]) -> frozenset[str]:
    """Return the given types and all types that contain them."""
    found, before = set(names), -1
    while len(found) > before:
        before = len(found)
        found |= {type_.name for type_ in types().values() if any(f.type in found for f in type_.fields.values())}
    return frozenset(found)


@cache
def reaches(what: str) -> frozenset[str]:
    """Return the types whose rules have ``what``, a member of :class:`TypeRules`, and all types that contain them."""
    return holders(frozenset(name for name, rules in type_rules().items() if getattr(rules, what)))


@cache
def members(type_: str, held: frozenset[str]) -> tuple[tuple[str, str, str], ...]:
    """Return the fields of a type that contain one of some types: name, shape and type."""
    return tuple((name, f.shape, f.type) for name, f in types()[type_].fields.items() if f.type in held)


def items_of(value: Any, shape: str) -> Iterable[tuple[Any, Any]]:
    """Return the items of a list or a map, by index or key."""
    return enumerate(value) if shape == "list" else value.items()


@cache
def _to_fill(type_: str) -> tuple[list[_Default], tuple[tuple[str, str, str], ...]]:
    """Return the defaults of a type, and its fields that contain types with defaults."""
    return type_rules()[type_].defaults, members(type_, reaches("defaults"))


def fill_defaults(type_: str, data: Data) -> None:
    """Fill in, in place, the defaults of an object of a type and of its parts. Its form must have been checked."""
    defaults, held = _to_fill(type_)
    for default in defaults:
        place = data
        for name in default.within:
            place = place.get(name) or {}
        found = place.get(default.field)
        if (found is None or found == "" or (default.zero and not found)) and default.applies(place):
            place[default.field] = msgspec.json.decode(default.value)
    for name, shape, inner in held:
        value = data.get(name)
        if value is not None and not shape:
            fill_defaults(inner, value)
        elif value is not None:
            for _, one in items_of(value, shape):
                fill_defaults(inner, one)


# -- feature gates -----------------------------------------------------------------------------------------


@cache
def _gated(type_: str) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str, str], ...]]:
    """Return the gated fields of a type with their gates, and its fields that contain types with gated fields."""
    gates = tuple((name, rules.gate) for name, rules in field_rules(type_).items() if rules.gate)
    return gates, members(type_, reaches("gated"))


def drop_gated(type_: str, data: Data, old: Data | None, off: Set[str]) -> None:
    """Remove, in place, the fields whose gate is in ``off``, unless the object before the update had them.

    The form of the object must have been checked. An empty text or list counts as absent.
    """
    gates, held = _gated(type_)
    before = old or {}
    for name, gate in gates:
        if gate in off and name in data and before.get(name) in (None, "", []):
            del data[name]
    for name, shape, inner in held:
        value, known = data.get(name), before.get(name)
        if value is not None and not shape:
            drop_gated(inner, value, known, off)
        elif value is not None:
            items = dict(items_of(known, shape)) if known else {}
            for key, one in items_of(value, shape):
                drop_gated(inner, one, items.get(key), off)
