"""Checks of an object by its type: first the rules of its fields, then relations between the members of one object.

A check belongs to a type of the schema and is called for every object of that type. So a toleration is checked in the
same way in a pod, in a Deployment's template and in a CronJob's template. Most checks are lines of ``rules.txt`` of the
schema. Checks that ``rules.txt`` cannot express are in the tables of :mod:`.type_checks` and :mod:`.pod_checks`.
Callers: :mod:`.kinds`, and :mod:`.admission` and :mod:`.updates` for pods. The form of the data has been checked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cache
from typing import Any, Final

from kubesched.api.cel.environment import Environment
from kubesched.api.cel.program import Program
from kubesched.api.equality import same_json
from kubesched.base.kept import Kept

from ..schema import Condition, FieldRules, encode, field_rules, holders, items_of, members, reaches, type_rules, types
from .pod_checks import POD_CHECKS, check_mounts
from .type_checks import TYPE_CHECKS
from .validation import Causes, dotted, repeated

__all__ = ["READ", "at", "check_changes", "check_conditions", "check_object", "check_pod_spec"]

Data = dict[str, Any]

#: Check of one object: (object, path of the object, collector of field errors).
Check = Callable[[Data, str, Causes], None]

_CHECKS: Final[Mapping[str, Check]] = {**POD_CHECKS, **TYPE_CHECKS}
#: Values that expressions read for an absent field, by the field's type; absent fields of other types read as null.
_ZEROS: Final[Mapping[str, Any]] = {"str": "", "int": 0, "int32": 0, "num": 0, "bool": False}
#: Path that an expression reads, without a method at its end.
READ: Final = re.compile(r"[sS]elf((?:\.\??\w+\b(?!\())+)")
#: Most values per type that are remembered as valid, and most bytes of one such value.
_MOST_KNOWN: Final = 256
_LONGEST_KNOWN: Final = 1024


def check_object(type_: str, data: Data, path: str, causes: Causes) -> None:
    """Check an object of a type and everything in it; ``path`` is where it is, such as ``spec`` for a PodSpec.

    Raises:
        ApiError: 400 for values that cannot be decoded.
    """
    _check_fields(type_, data, path, causes)
    _check_relations(type_, data, path, causes)


def check_pod_spec(spec: Data, causes: Causes) -> None:
    """Check the spec of a pod, after its defaults are filled in."""
    check_object("PodSpec", spec, "spec", causes)
    check_mounts(spec, "spec", causes)


# -- one field ---------------------------------------------------------------------------------------------


@cache
def _ruled_fields(type_: str) -> tuple[list[str], dict[str, tuple[str, FieldRules | None, bool, str]]]:
    """Return the required fields of a type, and by name the fields that need a check.

    A field needs a check when it has rules, or when its type has rules. Each field comes with its shape, its rules,
    True if the rules are about plain values (not objects), and the type to descend into (empty for none).
    """
    rules, held = field_rules(type_), reaches("fields")
    required = [name for name, rule in rules.items() if rule.required is not None]
    fields = {}
    for name, field in types()[type_].fields.items():
        if name in rules or field.type in held:
            is_value = field.type not in types() and field.type != "any"
            fields[name] = field.shape, rules.get(name), is_value, field.type if field.type in held else ""
    return required, fields


def _check_fields(type_: str, data: Data, path: str, causes: Causes) -> None:
    """Check that required fields are present. Then check each present field and everything in it."""
    required, fields = _ruled_fields(type_)
    for name in required:
        if data.get(name) is None:
            causes.required(dotted(path, [name]), field_rules(type_)[name].required or "")
    for name, value in data.items():
        if name not in fields or value is None:
            continue
        shape, rules, is_value, inner = fields[name]
        where = f"{path}.{name}" if path else name
        if rules is not None and not shape:
            if rules.format == "device-expression":
                causes.compiling(value)
            if is_value and not _is_right(type_, name, value, is_item=False):
                _check_value(value, rules, where, causes)
        elif rules is not None:
            if rules.required is not None and not value:
                causes.required(where, rules.required)
            if rules.most is not None and len(value) > rules.most:
                causes.too_many(where, len(value), rules.most)
                continue  # the list is too long already: its items are not checked
            for key, one in items_of(value, shape) if is_value else ():
                if not _is_right(type_, name, one, is_item=True):
                    _check_value(one, rules, f"{where}[{key}]", causes, of=where)
        if inner and not shape:
            _check_fields(inner, value, where, causes)
        elif inner:
            for key, one in items_of(value, shape):
                _check_fields(inner, one, f"{where}[{key}]", causes)


#: Values that passed the rules of their field, by (type, field, value, is item). Most values have been seen before.
_right: Kept[tuple[str, str, Any, bool], bool] = Kept(1 << 20)


def _is_right(type_: str, name: str, value: Any, *, is_item: bool) -> bool:
    """True if a value passes the rules of its field."""
    key = type_, name, value, is_item
    known = _right.get(key)
    if known is not None:
        return known
    causes = Causes()
    _check_value(value, field_rules(type_)[name], "", causes, of=name if is_item else "")
    return _right.keep(key, not causes, len(value) if isinstance(value, str) else 0)


def _check_value(value: Any, rules: FieldRules, path: str, causes: Causes, of: str = "") -> None:
    """Check a value of a field.

    For an item of a list, ``of`` is the path of the list: upstream names it in errors about an enumeration.
    """
    least, most = rules.minimum, rules.maximum
    if rules.required is not None and value == "" and not of:
        causes.required(path, rules.required)
    elif rules.enum:
        if value not in rules.enum:
            causes.unsupported(of or path, value, filter(None, rules.enum))
    elif (least is not None and value < least and not (rules.zero and value == 0)) or (
        most is not None and value > most
    ):
        between = f"between {least} and {most}, inclusive"
        causes.invalid(path, value, f"must be {between if most is not None else f'greater than or equal to {least}'}")
    elif rules.longest is not None and len(value.encode()) > rules.longest:
        causes.too_long(path, rules.longest)
    elif rules.format:
        causes.check_format(rules.format, path, value)


# -- members that are related ------------------------------------------------------------------------------


@cache
def _related_types() -> frozenset[str]:
    """Names of the types whose members are related by checks, and of the types that contain one of them."""
    return reaches("relations") | holders(frozenset(_CHECKS))


@cache
def _relations(
    type_: str,
) -> tuple[Check | None, list[tuple[str, tuple[str, ...]]], tuple[tuple[str, str, str], ...], dict[str, int]]:
    """Return the relations that are checked in an object of a type.

    They are: the check of the type, its lists with unique keys, the fields that hold related types (name, shape, type),
    and the most items of its lists by field.
    """
    rules = field_rules(type_)
    unique = [(name, keys) for name, rule in rules.items() for keys in rule.unique]
    limits = {name: rule.most for name, rule in rules.items() if rule.most is not None}
    return _CHECKS.get(type_), unique, members(type_, _related_types()), limits


def _check_relations(type_: str, data: Data, path: str, causes: Causes) -> None:
    """Check relations within an object, then within the objects it contains."""
    check, unique, held, limits = _relations(type_)
    check_conditions(type_, data, None, path, causes)
    if check is not None:
        check(data, path, causes)
    for name, keys in unique:
        if name in data:
            _check_unique(data[name], keys, dotted(path, [name]), causes)
    for name, key in _keyed(type_):
        for index, _ in repeated(data.get(name), (key,)):
            causes.duplicate(f"{dotted(path, [name])}[{index}]", data[name][index])
    for name, shape, inner in held:
        value = data.get(name)
        if value is None or (shape and len(value) > limits.get(name, len(value))):
            continue
        where = f"{path}.{name}" if path else name
        if not shape:
            _check_relations(inner, value, where, causes)
        else:
            for key, one in items_of(value, shape):
                _check_relations(inner, one, f"{where}[{key}]", causes)


@cache
def _keyed(type_: str) -> list[tuple[str, str]]:
    """Return the lists of a type whose items have a key member, with its name."""
    return [(name, rule.key) for name, rule in field_rules(type_).items() if rule.key]


def _check_unique(items: Iterable[Data] | None, keys: tuple[str, ...], path: str, causes: Causes) -> None:
    """Check that no two items of a list have the same key members, or are equal if the only name is empty.

    Items without the first key member are not compared.
    """
    for index, key in repeated(items if keys[0] else ({"": item} for item in items or ()), keys):
        if key[0] and len(keys) == 1:
            causes.duplicate(dotted(f"{path}[{index}]", filter(None, keys)), key[0])
        elif key[0]:
            causes.duplicate(f"{path}[{index}]", dict(zip(keys, key, strict=True)))


class _Self(dict[str, Any]):
    """Object as expressions see it: absent members read as empty, although ``has`` does not find them."""

    def __init__(self, type_: str, data: Data) -> None:
        super().__init__(data)
        self._fields = types()[type_].fields

    def __getitem__(self, name: str) -> Any:
        field, value = self._fields.get(name), self.get(name)
        if field is None:  # not a field of the type, such as an object that is compared as a whole
            return value
        if field.type not in types():
            empty = [] if field.shape == "list" else {} if field.shape == "map" else _ZEROS.get(field.type)
            return empty if value is None else value
        if field.shape == "list":
            return [_Self(field.type, one) for one in value or ()]
        if field.shape == "map":
            return {key: _Self(field.type, one) for key, one in (value or {}).items()}
        if type(value) is dict:
            value = self[name] = _Self(field.type, value)
        return _Self(field.type, {}) if value is None else value


@cache
def _environment() -> Environment:
    return Environment({"self": "dyn", "oldSelf": "dyn"})


@cache
def _program(expression: str) -> Program:
    return Program(_environment().compile(expression))


@cache
def _conditions(type_: str, *, on_update: bool) -> tuple[list[list[str]], list[Condition], set[bytes]]:
    """Return the conditions of a type: the paths that they read, the conditions, and a set of known valid values.

    The set holds the values at the paths, as JSON, for which all conditions hold.
    """
    found = [one for one in type_rules()[type_].conditions if one.on_update is on_update]
    paths = {path.replace("?", "") for one in found for path in READ.findall(one.expression)}
    return [path.split(".")[1:] for path in sorted(paths)], found, set()


def at(data: Any, path: Iterable[str]) -> Any:
    """Return the member at a path of an object; None where there is none."""
    for name in path:
        data = data.get(name) if data is not None else None
    return data


def check_conditions(type_: str, data: Data, old: Data | None, path: str, causes: Causes) -> None:
    """Check the conditions of an object. With ``old``, its state before an update, check the conditions that relate
    both states.
    """
    paths, conditions, known = _conditions(type_, on_update=old is not None)
    if not conditions:
        return
    key = encode([at(one, path) for one in ((data,) if old is None else (data, old)) for path in paths])
    if key in known:
        return
    before = len(causes)
    variables = {"self": _Self(type_, data)} | ({} if old is None else {"oldSelf": _Self(type_, old)})
    for condition in conditions:
        if _program(condition.expression).evaluate(variables, cost_limit=sys.maxsize) is not True:
            where = dotted(path, [condition.path]) if condition.path else path
            shown = _program(condition.shown).evaluate(variables)
            causes.add(condition.reason, where, shown, condition.text)
    if len(causes) == before and len(known) < _MOST_KNOWN and len(key) < _LONGEST_KNOWN:
        known.add(key)


# -- updates -----------------------------------------------------------------------------------------------


def check_changes(type_: str, old: Data, new: Data, causes: Causes, off: Set[str] = frozenset()) -> None:
    """Check an update: members that may not change, and conditions between the object and its state before.

    ``off`` are the feature gates that are off.
    """
    _check_immutable(type_, old, new, "", causes, off)
    check_conditions(type_, new, old, "", causes)


def _check_immutable(type_: str, old: Data, new: Data, path: str, causes: Causes, off: Set[str]) -> None:
    """Check the members that rules call immutable, in the object and its parts.

    The contents of templates are not checked: they may change.
    """
    rules, held = field_rules(type_), reaches("immutable")
    for name, field in types()[type_].fields.items():
        before, after = old.get(name), new.get(name)
        if name in rules and rules[name].immutable:
            if same_json(before, after):
                continue
            if rules[name].gate in off:
                causes.forbidden(dotted(path, [name]))
            else:
                shown = None if rules[name].unshown else after
                causes.invalid(dotted(path, [name]), shown, rules[name].immutable)
        elif field.type in held and not field.shape and not field.type.endswith("TemplateSpec") and before and after:
            _check_immutable(field.type, before, after, dotted(path, [name]), causes, off)
