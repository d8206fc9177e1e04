"""Cost of operations as upstream counts it, and the steps of work that are not part of the cost (see :mod:`.meter`).

Costs: cel-go's runtime cost tracker, and the Kubernetes library's cost estimator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final

from .meter import ELEMENT, Meter
from .regex import states
from .values import Semver, size_of

__all__ = ["LIST_COST", "MAP_COST", "SELECT_COST", "call_cost", "call_steps"]

SELECT_COST: Final = 1
LIST_COST: Final = 10
MAP_COST: Final = 30
#: Cost of walking over one character of a string, and of one character of a pattern (four characters count as a state).
_STRING: Final = 0.1
_REGEX: Final = 0.25

Cost = Callable[[Sequence[Any]], int]


def _traversal_cost(value: Any, meter: Meter) -> int:
    """Return the cost of a walk over every part of a value. The walk itself is charged as steps."""
    if type(value) is str or type(value) is bytes:
        return ceil(len(value) * _STRING)
    if type(value) is list:
        meter.step(ELEMENT * len(value))
        return sum(_traversal_cost(item, meter) for item in value)
    if isinstance(value, dict):
        meter.step(2 * ELEMENT * len(value))
        return sum(_traversal_cost(key, meter) + _traversal_cost(item, meter) for key, item in value.items())
    return 1


def _first(args: Sequence[Any]) -> int:
    return ceil(size_of(args[0]) * _STRING) if args else 1


def _smaller(args: Sequence[Any]) -> int:
    return ceil(min(size_of(args[0]), size_of(args[1])) * _STRING)


def _both(args: Sequence[Any]) -> int:
    if type(args[0]) is str or type(args[0]) is bytes:
        return ceil((size_of(args[0]) + size_of(args[1])) * _STRING)
    return 1


def _compared(args: Sequence[Any]) -> int:
    return _smaller(args) if type(args[0]) is str or type(args[0]) is bytes else 1


def _product(args: Sequence[Any]) -> int:
    return ceil(size_of(args[0]) * _STRING) * ceil(size_of(args[1]) * _STRING)


def _regex(args: Sequence[Any]) -> int:
    # Add one to the length, so that an empty string does not make an expensive pattern free.
    return ceil((1 + size_of(args[0])) * _STRING) * ceil(size_of(args[1]) * _REGEX)


def _searched(args: Sequence[Any]) -> int:
    return size_of(args[1]) if type(args[1]) is list else 1


def _pairs(args: Sequence[Any]) -> int:
    return size_of(args[0]) * size_of(args[1])


def _both_ways(args: Sequence[Any]) -> int:
    return 2 * _pairs(args)


_COSTS: Final[dict[str, Cost]] = {
    **dict.fromkeys(("startsWith", "endsWith", "strings.quote", "format"), _first),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim", "replace", "split", "reverse", "charAt"), _first),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver", "url", "isURL"), _first),
    **dict.fromkeys(("ip", "isIP", "ip.isCanonical", "cidr", "isCIDR", "validate"), _first),
    **dict.fromkeys(("_==_", "_!=_"), _smaller),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _compared),
    "_+_": _both,
    "@in": _searched,
    "contains": _product,
    **dict.fromkeys(("matches", "find", "findAll"), _regex),
    **dict.fromkeys(("sets.contains", "sets.intersects"), _pairs),
    "sets.equivalent": _both_ways,
    "distinct": lambda args: size_of(args[0]) ** 2,
    "lists.range": lambda args: max(1, args[0]) if type(args[0]) is int else 1,
}


#: Functions that walk over every part of their first argument.
_WALKERS: Final = frozenset(
    ("isSorted", "sum", "max", "min", "join", "flatten", "sort", "slice", "indexOf", "lastIndexOf", "includes")
)


def call_cost(function: str) -> Callable[[Sequence[Any], Meter], int] | None:
    """Return a function that computes the cost of a call from its arguments; None if the cost is always 1."""
    if function in _WALKERS:
        return lambda args, meter: _traversal_cost(args[0], meter)
    cost = _COSTS.get(function)
    return None if cost is None else lambda args, meter: cost(args)


# -- steps -------------------------------------------------------------------------------------------------

#: Steps for finding the file of a time zone.
_ZONE_STEPS: Final = 1_000
#: Steps for reading a time, an address or a version, and for passing a pattern to the library. A short text costs less.
_READING_STEPS: Final = 5 * ELEMENT
_PATTERN_STEPS: Final = 20 * ELEMENT


def _sizes(args: Sequence[Any]) -> int:
    return sum(map(size_of, args))


def _concatenated(args: Sequence[Any]) -> int:
    return _sizes(args) if type(args[0]) is list else 0  # for texts, these steps are part of the cost


def _split(args: Sequence[Any]) -> int:
    if type(args[0]) is not str or type(args[1]) is not str:
        return 0
    parts: int = (args[0].count(args[1]) if args[1] else len(args[0])) + 1
    limit: int = args[2] if len(args) > 2 and type(args[2]) is int and args[2] >= 0 else parts
    return ELEMENT * min(parts, limit)


def _replaced(args: Sequence[Any]) -> int:
    if not all(type(arg) is str for arg in args[:3]):
        return 0
    text, old, new = args[:3]
    found: int = text.count(old)
    limit: int = args[3] if len(args) > 3 and type(args[3]) is int and args[3] >= 0 else found
    return max(len(text), len(text) + min(found, limit) * (len(new) - len(old)))


def _joined(args: Sequence[Any]) -> int:
    return size_of(args[0]) * (size_of(args[1]) if len(args) > 1 else 0)


def _searched_backwards(args: Sequence[Any]) -> int:
    """Return the steps of a search from the end. Python may compare all characters of the searched part at every
    place.
    """
    return size_of(args[0]) * size_of(args[1]) // 16 if type(args[0]) is str else 0


#: States of an automaton that are evaluated in one step. A character of a text may lead to every state.
_STATES_A_STEP: Final = 16


def _regex_steps(args: Sequence[Any]) -> int:
    """Return the steps of a match: making an automaton, at a few steps a state, and reading the text with it."""
    return _automaton_steps(args[1], size_of(args[0]))


def _found_all(args: Sequence[Any]) -> int:
    """Return the steps of ``findAll``: from every place, the last match may be sought up to the end of the text."""
    size = size_of(args[0])
    return _automaton_steps(args[1], size * (size + 1) // 2) + ELEMENT * (1 + size)


def _automaton_steps(pattern: Any, read: int) -> int:
    if type(pattern) is not str:
        return 0
    found = states(pattern)
    return _PATTERN_STEPS + 4 * found + read * found // _STATES_A_STEP


def _versions(args: Sequence[Any]) -> int:
    return sum(len(arg.pre) for arg in args if type(arg) is Semver)


def _url_parts(args: Sequence[Any]) -> int:
    return ELEMENT + 4 * sum(map(len, args[0])) if isinstance(args[0], tuple) else 0


def _time_part(args: Sequence[Any]) -> int:
    return _ZONE_STEPS + size_of(args[1]) if len(args) > 1 else _READING_STEPS


def _read(args: Sequence[Any]) -> int:
    return _READING_STEPS + _sizes(args)


def _network(args: Sequence[Any]) -> int:
    return 2 * _READING_STEPS + _sizes(args)


def _text_of(args: Sequence[Any]) -> int:
    return _sizes(args) if type(args[0]) in (str, bytes, int) else _read(args)


_STEPS: Final[dict[str, Cost]] = {
    "_+_": _concatenated,
    "split": _split,
    "replace": _replaced,
    "join": _joined,
    "lastIndexOf": _searched_backwards,
    **dict.fromkeys(("matches", "find"), _regex_steps),
    "findAll": _found_all,
    **dict.fromkeys(("isGreaterThan", "isLessThan", "compareTo"), _versions),
    **dict.fromkeys(("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery"), _url_parts),
    **dict.fromkeys(("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate"), _time_part),
    **dict.fromkeys(("getDayOfWeek", "getHours", "getMinutes", "getSeconds", "getMilliseconds"), _time_part),
    **dict.fromkeys(("timestamp", "duration", "ip", "isIP", "ip.isCanonical", "semver", "isSemver"), _read),
    **dict.fromkeys(("cidr", "isCIDR", "containsIP", "containsCIDR", "masked"), _network),
    "string": _text_of,
    **dict.fromkeys(("bytes", "double", "format.named"), _sizes),
    **dict.fromkeys(("@sortByAssociatedKeys", "reverse", "cel.@mapInsert"), _sizes),
    **dict.fromkeys(("optional.unwrap", "unwrapOpt"), _sizes),
}


def call_steps(function: str) -> Cost | None:
    """Return a function that computes the steps of a call, without the steps that the called function charges
    itself.
    """
    return _STEPS.get(function)
