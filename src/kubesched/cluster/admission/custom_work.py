"""Cost of checking a custom resource by the schema of its definition, counted before the check.

The author of a definition chooses the schema, and with it the cost of each value of an object: alternatives that are
all tried, patterns, defaults of any size. Caller: :mod:`.custom`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kubesched.api.cel.meter import EvaluationCancelledError, Meter
from kubesched.api.cel.regex import states as pattern_states
from kubesched.api.wire import ApiError

from ..schema import encode
from .validation import Causes

__all__ = ["Part", "Work", "check_definition"]

Schema = Mapping[str, Any]
#: Function that yields the parts of a value by its schema: key, schema, value.
Children = Callable[[Schema, Any], Iterator[tuple[str | int, Schema, Any]]]

#: Most steps for one object: about two seconds, as a step is a tenth of a microsecond (the same unit as for rules).
_LIMIT: Final = 2_000_000
#: Steps for visiting one value.
_VISIT: Final = 4
#: Bytes of a schema that one step compares with a value.
_BYTES_A_STEP: Final = 16
#: Automaton states that one step evaluates. A character of a text may lead to every state of a pattern's automaton.
_STATES_A_STEP: Final = 4
#: Most bytes that errors may copy. Each error copies its value; errors of alternatives do so, too.
_MOST_COPIED: Final = 1 << 28
#: First the keywords that apply to members and items, then the keywords that apply to the value itself.
_BELOW: Final = frozenset({"properties", "items", "additionalProperties"})
_COMPARED: Final = ("enum", "required", "minimum", "maximum", "multipleOf", "format", "pattern")
_CLASSES: Final = re.compile(r"\\[dDsSwW]")
#: Most states of all patterns of a definition, and most bytes of the schemas that check its defaults: about a second.
_MOST_STATES: Final = 500_000
_MOST_CHECKED: Final = 4_000_000
#: Fixed cost of a pattern, in states.
_PATTERN: Final = 30
#: Fixed cost of checking a default, in bytes.
_DEFAULT: Final = 200
_TEXT: Final = (
    "checking this object by the schema of its definition takes too long: make the object smaller, "
    "or the schema simpler (alternatives, patterns, enumerations, defaults)"
)


def _states(pattern: str) -> int:
    """Return an upper estimate of the states of a pattern's automaton, for classes such as ``\\d`` in Unicode."""
    return pattern_states(_CLASSES.sub(".", pattern))


class Part(NamedTuple):
    """Demands of one schema on a value, without those on its members and items.

    ``size`` is the length of the schema as JSON, ``states`` the automaton states of its patterns, ``alternatives`` the
    number of schemas combined in it. ``nested`` are the combined schemas that also have demands on members and items.
    ``size``, ``states`` and ``alternatives`` do not include them.
    """

    size: int
    states: int
    alternatives: int
    nested: list[Schema]


def _part_of(schema: Schema) -> Part:
    """Return the part of a schema. Descriptions, titles and examples cost nothing."""
    nested: list[Schema] = []
    flat: list[Schema] = []
    for one in _combined(schema):
        (nested if any(not _BELOW.isdisjoint(each) for each in _within(one)) else flat).append(one)
    found = [schema, *(each for one in flat for each in _within(one))]
    size = sum(len(encode([one[name] for name in _COMPARED if name in one])) for one in found)
    return Part(size, sum(_states(one["pattern"]) for one in found if one.get("pattern")), len(found) - 1, nested)


def _combined(schema: Schema) -> Iterator[Schema]:
    """Yield the schemas that are combined in a schema."""
    for name in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(name) or ()
    if isinstance(schema.get("not"), dict):
        yield schema["not"]


def _within(schema: Schema) -> Iterator[Schema]:
    yield schema
    for one in _combined(schema):
        yield from _within(one)


def check_definition(schema: Schema, children: Callable[[Schema], Iterable[Schema]], causes: Causes) -> None:
    """Refuse a schema that takes too long to prepare, before preparing it. ``children`` yields its members and items.

    Raises:
        ApiError: 413.
    """
    patterns = defaults = 0
    left = [schema]
    while left:
        one = left.pop()
        below = [*children(one), *_combined(one)]
        left += below
        for rule in one.get("x-kubernetes-validations") or ():
            causes.compiling((rule.get("rule") or "") + (rule.get("messageExpression") or ""))
        patterns += _PATTERN + _states(one["pattern"]) if one.get("pattern") else 0
        defaults += _DEFAULT + len(encode(one)) if "default" in one else 0
        if patterns > _MOST_STATES or defaults > _MOST_CHECKED:
            what = "patterns" if patterns > _MOST_STATES else "parts that have defaults"
            raise ApiError(
                413, "RequestEntityTooLarge", f"Request entity too large: the {what} of the schema are too large"
            )


class Work:
    """Cost of checking one object so far, with its limit.

    ``parts`` is a memo of parts, by the identity of their schemas.
    """

    def __init__(self, parts: dict[int, Part], children: Children) -> None:
        self._parts, self._children = parts, children
        self._meter = Meter(_LIMIT)
        #: Bytes that errors of combined schemas may copy.
        self._copied = 0

    def step(self, amount: int) -> None:
        """Count work that is about to be done.

        Raises:
            ApiError: 413, when the limit is exceeded.
        """
        try:
            self._meter.step(amount)
        except EvaluationCancelledError:
            raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {_TEXT}") from None

    def values(self, schema: Schema, data: Any, *, is_combined: bool = False) -> None:
        """Count the check of a value and of everything in it. ``is_combined``: the schema is combined with others."""
        part = self._parts.get(id(schema))
        if part is None:
            part = self._parts[id(schema)] = _part_of(schema)
        self.step(_VISIT + part.size // _BYTES_A_STEP)
        if is_combined or part.alternatives or part.nested or part.states:
            size = len(data) if isinstance(data, str) else len(encode(data)) if isinstance(data, dict | list) else 8
            states_ = part.states if isinstance(data, str) else 0
            self.step(size // _BYTES_A_STEP + states_ * size // _STATES_A_STEP)
            self._copied += (part.alternatives + is_combined) * size
        for one in part.nested:
            self.values(one, data, is_combined=True)
        for _, child, value in self._children(schema, data):
            self.values(child, value, is_combined=is_combined)

    @property
    def total(self) -> int:
        """Steps so far."""
        return self._meter.steps

    @property
    def is_described(self) -> bool:
        """True if errors may be collected: their copies stay within the limit."""
        return self._copied <= _MOST_COPIED
