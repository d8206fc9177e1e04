"""What operations cost (upstream: cel-go's runtime cost tracker, and the Kubernetes library's cost estimator)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final

from .values import size_of

__all__ = ["LIST_COST", "MAP_COST", "SELECT_COST", "call_cost", "traversal_cost"]

SELECT_COST: Final = 1
LIST_COST: Final = 10
MAP_COST: Final = 30
#: Walking over a string, per character; a regular expression is four characters per state.
_STRING: Final = 0.1
_REGEX: Final = 0.25

Cost = Callable[[Sequence[Any]], int]


def traversal_cost(value: Any) -> int:
    """The cost of a walk over every part of a value."""
    if type(value) is str or type(value) is bytes:
        return ceil(len(value) * _STRING)
    if type(value) is list:
        return sum(map(traversal_cost, value))
    if isinstance(value, dict):
        return sum(traversal_cost(key) + traversal_cost(item) for key, item in value.items())
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
    # One more than the length, so that an empty string does not make an expensive pattern free.
    return ceil((1 + size_of(args[0])) * _STRING) * ceil(size_of(args[1]) * _REGEX)


def _searched(args: Sequence[Any]) -> int:
    return size_of(args[1]) if type(args[1]) is list else 1


def _walked(args: Sequence[Any]) -> int:
    return traversal_cost(args[0])


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
    **dict.fromkeys(("isSorted", "sum", "max", "min", "join", "flatten", "sort", "slice"), _walked),
    **dict.fromkeys(("indexOf", "lastIndexOf", "includes"), _walked),
    **dict.fromkeys(("sets.contains", "sets.intersects"), _pairs),
    "sets.equivalent": _both_ways,
    "distinct": lambda args: size_of(args[0]) ** 2,
    "lists.range": lambda args: max(1, args[0]) if type(args[0]) is int else 1,
}


def call_cost(function: str) -> Cost | None:
    """How to compute the cost of a call from its arguments; None when it is always 1."""
    return _COSTS.get(function)
