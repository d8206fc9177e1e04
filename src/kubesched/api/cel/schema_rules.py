"""Rules in a custom resource's schema (``x-kubernetes-validations``): CEL expressions over a value and its old value.

The schema decides the form of a value in CEL: numbers, times, durations and bytes have types of their own, and names
that CEL cannot write are escaped. Expressions are compiled without the types of the schema. So an error that a real
server finds in a definition may be found here only when the rule is evaluated. Caller: the embedded cluster's
admission.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Hashable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from ..equality import json_key
from .engine import MissingLibraryError
from .environment import CompilationError, Environment
from .functions import call_free
from .meter import COST_LIMIT, ELEMENT, STEPS_PER_COST, EvaluationCancelledError, Meter
from .program import Program
from .syntax import Expr, Ident, children
from .values import NO_VALUE, EvaluationError, Optional

__all__ = ["Failure", "Rules"]

Schema = Mapping[str, Any]
#: Function that yields the parts of a value by its schema: key, schema, value.
Children = Callable[[Schema, Any], Iterator[tuple[str | int, Schema, Any]]]

_RULES: Final = "x-kubernetes-validations"
#: Limit of one check of one object with all its rules. It is about a second, during which the process does nothing
#: else.
_BUDGET: Final = COST_LIMIT
#: Steps of work around the evaluations: visiting or converting a member, reading a text as a time or as bytes,
#: beginning a rule, reporting a broken rule.
_VISIT: Final = 2 * ELEMENT
_READING: Final = 6 * ELEMENT
_EVALUATION: Final = 2 * ELEMENT
_FAILURE: Final = 10 * ELEMENT
_BUDGET_TEXT: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
#: Most characters of a text that ``messageExpression`` makes. Longer texts are not shown.
_LONGEST_MESSAGE: Final = 5 * 1024
_RESERVED: Final = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED: Final = re.compile(r"__|[./-]")
_ABSENT: Final = object()


def _escaped(name: str) -> str:
    return f"__{name}__" if name in _RESERVED else _ESCAPED.sub(lambda found: _ESCAPES[found[0]], name)


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise EvaluationError(str(error)) from None


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "date-time": lambda text: call_free("timestamp", [text]),
    "date": lambda text: call_free("timestamp", [f"{text}T00:00:00Z"]),
    "duration": lambda text: call_free("duration", [text]),
    "byte": _bytes,
}


@cache
def _environment() -> Environment:
    return Environment({"self": "dyn", "oldSelf": "dyn"})


def _names(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Ident):
        yield expr.name
    for part in children(expr):
        yield from _names(part)


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule that does not hold.

    ``place`` is the path of the value, ``field_path`` the rule's addition to it. ``kind`` is the type of the value.
    """

    place: list[str | int]
    field_path: str
    reason: str
    kind: str
    text: str
    is_transition: bool = False


@dataclass(slots=True)
class _Rule:
    """A compiled rule. ``problem`` is the reason if it cannot be compiled."""

    data: Schema
    program: Program | None = None
    message: Program | None = None
    is_transition: bool = False
    problem: str = ""


def _compiled(data: Schema) -> _Rule:
    rule = _Rule(data)
    try:
        checked = _environment().compile(data.get("rule") or "")
        if checked.types.get(checked.expr.id, "dyn") not in ("bool", "dyn"):
            rule.problem = "cel expression must evaluate to a bool"
        rule.program = Program(checked)
        rule.is_transition = "oldSelf" in _names(checked.expr)
        if data.get("messageExpression"):
            rule.message = Program(_environment().compile(data["messageExpression"]))
    except (CompilationError, MissingLibraryError) as error:
        rule.problem = str(error)
    return rule


class Rules:
    """All rules of a schema. ``members`` yields the parts of a value, with their schemas."""

    def __init__(self, schema: Schema, members: Children) -> None:
        self._schema, self._members = schema, members
        self.by_schema: dict[int, list[_Rule]] = {}
        self._paths: dict[int, str] = {}
        #: Ids of the schemas that have rules, or contain schemas with rules.
        self.ruled: set[int] = set()
        self._collect(schema, "")

    def _collect(self, schema: Schema, path: str) -> bool:
        """Compile the rules in a schema. Return True if there are any."""
        rules = [_compiled(rule) for rule in schema.get(_RULES) or ()]
        parts = [(f".properties[{name}]", one) for name, one in (schema.get("properties") or {}).items()]
        parts += [
            (f".{name}", schema[name])
            for name in ("items", "additionalProperties")
            if isinstance(schema.get(name), dict)
        ]
        held = [self._collect(part, path + where) for where, part in parts]
        if rules:
            self.by_schema[id(schema)], self._paths[id(schema)] = rules, path
        if rules or any(held):
            self.ruled.add(id(schema))
        return id(schema) in self.ruled

    def malformed(self) -> Iterator[tuple[str, str, str]]:
        """Yield the rules that cannot be compiled: path in the schema, expression, reason."""
        for identity, rules in self.by_schema.items():
            for index, rule in enumerate(rules):
                if rule.problem:
                    yield f"{self._paths[identity]}.{_RULES}[{index}].rule", rule.data.get("rule") or "", rule.problem

    def failures(self, data: Any, old: Any) -> Iterator[Failure]:
        """Yield the rules that an object breaks. ``old`` is its old state, None for a new object."""
        admission = _Admission(self.by_schema, self.ruled, self._members)
        try:
            yield from admission.walk(self._schema, data, _ABSENT if old is None else old, [])
        except EvaluationCancelledError:
            place, kind = admission.reached
            yield Failure(place, "", "", kind, _BUDGET_TEXT, is_transition=True)


class _Admission:
    """One check of one object by its rules. One budget covers the whole check, conversions and old values included."""

    def __init__(self, rules: Mapping[int, list[_Rule]], ruled: Set[int], members: Children) -> None:
        self._rules, self._ruled, self._members = rules, ruled, members
        self._meter = Meter(_BUDGET)
        #: Containers as CEL values, by schema and container. Rules at several levels share them.
        self._converted: dict[tuple[int, int], Any] = {}
        #: Place and type of the value whose rules are being evaluated.
        self.reached: tuple[list[str | int], str] = [], "object"

    def walk(self, schema: Schema, data: Any, old: Any, place: list[str | int]) -> Iterator[Failure]:
        if id(schema) not in self._ruled or data is None:
            return
        if id(schema) in self._rules:
            self.reached = place, schema.get("type", "")
            now = self._value(schema, data, root=not place)
            before = _ABSENT if old is _ABSENT else self._value(schema, old, root=not place)
            for rule in self._rules[id(schema)]:
                text = _evaluate(rule, now, before, self._meter)
                if text:
                    self._meter.step(_FAILURE + len(text))
                    path, reason = rule.data.get("fieldPath") or "", rule.data.get("reason") or ""
                    yield Failure(place, path, reason, self.reached[1], text, rule.is_transition)
        if isinstance(data, dict | list):
            self._meter.step(_VISIT * len(data))
            last = self._last_states(schema, old, len(data))
            for key, child, value in self._members(schema, data):
                known = (
                    last.get(key if isinstance(key, str) else _item_key(schema, value), _ABSENT) if last else _ABSENT
                )
                yield from self.walk(child, value, known, [*place, key])

    def _last_states(self, schema: Schema, old: Any, count: int) -> Mapping[Hashable, Any]:
        """Return the old values of ``count`` members by name, or of list items by key if the list is a map."""
        if isinstance(old, dict):
            return old
        keys = schema.get("x-kubernetes-list-map-keys")
        if not keys or not isinstance(old, list):
            return {}
        self._meter.step(ELEMENT * len(keys) * (len(old) + count))
        return {key: item for item in old if (key := _item_key(schema, item)) is not None}

    def _value(self, schema: Schema, data: Any, *, root: bool = False) -> Any:
        """Convert a value to its form in CEL."""
        if isinstance(data, dict | list):
            known = id(schema), id(data)
            if known not in self._converted:
                self._meter.step(_VISIT * len(data))
                self._converted[known] = (
                    self._map(schema, data, root) if isinstance(data, dict) else self._list(schema, data)
                )
            return self._converted[known]
        if schema.get("type") == "number" and isinstance(data, int) and not isinstance(data, bool):
            return float(data)
        reader = _READERS.get(schema.get("format", ""))
        if reader is not None and isinstance(data, str):
            self._meter.step(_READING + len(data))
            try:
                return reader(data)
            except EvaluationError:
                return data
        return data

    def _map(self, schema: Schema, data: dict[Any, Any], root: bool) -> dict[Any, Any]:
        kept = {key: self._value(child, value) for key, child, value in self._members(schema, data)}
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            kept = {**data, **kept}
        if root:
            metadata = data.get("metadata") or {}
            kept |= {name: data[name] for name in ("apiVersion", "kind") if name in data}
            kept["metadata"] = {name: metadata[name] for name in ("name", "generateName") if name in metadata}
        return {_escaped(str(key)): value for key, value in kept.items()} if schema.get("properties") else kept

    def _list(self, schema: Schema, data: list[Any]) -> list[Any]:
        return [self._value(child, value) for _, child, value in self._members(schema, data)] or data


def _item_key(schema: Schema, item: Any) -> Hashable:
    """Return the key of an item of a list that is a map. None in other lists, and for a value that cannot be a key."""
    keys = schema.get("x-kubernetes-list-map-keys")
    found = [item.get(name) for name in keys] if keys and isinstance(item, dict) else []
    return tuple(map(json_key, found)) if found and not any(isinstance(one, dict | list) for one in found) else None


def _evaluate(rule: _Rule, now: Any, before: Any, meter: Meter) -> str:
    """Return the complaint of a rule about a value; "" if the rule holds or does not apply."""
    meter.step(_EVALUATION)
    if rule.program is None or rule.problem:
        return ""
    variables = {"self": now, "oldSelf": before}
    if rule.data.get("optionalOldSelf"):
        variables["oldSelf"] = NO_VALUE if before is _ABSENT else Optional(before)
    elif rule.is_transition and before is _ABSENT:
        return ""
    try:
        if _spend(rule.program, variables, meter) is True:
            return ""
        text = _message(rule, variables, meter)
    except EvaluationCancelledError:
        raise
    except EvaluationError as error:
        return f"{error} evaluating rule: {rule.data['rule']}"
    return text.strip() or f"failed rule: {rule.data['rule']}"


def _message(rule: _Rule, variables: Mapping[str, Any], meter: Meter) -> str:
    """Return the message of a broken rule. ``messageExpression`` counts if it makes a text that can be shown."""
    text: str = rule.data.get("message") or ""
    if rule.message is None:
        return text
    try:
        made = _spend(rule.message, variables, meter)
    except EvaluationCancelledError:
        raise
    except EvaluationError:
        return text
    is_shown = type(made) is str and made.strip() and "\n" not in made.strip() and len(made) <= _LONGEST_MESSAGE
    return str(made) if is_shown else text


def _spend(program: Program, variables: Mapping[str, Any], meter: Meter) -> Any:
    """Return the value of a program.

    The evaluation may cost at most what ``meter`` has left, and the meter is charged with the cost.
    """
    evaluation = program.begin(variables, cost_limit=meter.limit - meter.total)
    try:
        return evaluation.result()
    finally:
        meter.step(STEPS_PER_COST * evaluation.total)
