"""Functions for lists, sets, maps and optional values."""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise
from typing import Any, Final

from .functions import call, function
from .values import NO_VALUE, Duration, EvaluationError, Optional, Timestamp, UInt, equal, key_of


def _compared(a: Any, b: Any) -> int:
    """Order for ``sort``, ``min`` and ``max``; of one type only."""
    if call("_<_", [a, b]):
        return -1
    return 0 if equal(a, b) else 1


def _is_among(item: Any, items: list[Any]) -> bool:
    return any(equal(item, other) for other in items)


@function("isSorted", "list")
def _is_sorted(items: list[Any]) -> bool:
    return all(_compared(a, b) <= 0 for a, b in pairwise(items))


@function("sum", "list")
def _sum(items: list[Any]) -> Any:
    if not items:
        return 0
    total = items[0]
    for item in items[1:]:
        total = call("_+_", [total, item])
    return total


@function("min", "list")
def _min(items: list[Any]) -> Any:
    if not items:
        raise EvaluationError("min called on empty list")
    return min(items, key=cmp_to_key(_compared))


@function("max", "list")
def _max(items: list[Any]) -> Any:
    if not items:
        raise EvaluationError("max called on empty list")
    return max(items, key=cmp_to_key(_compared))


@function("indexOf", "list", "*")
def _list_index(items: list[Any], item: Any) -> int:
    return next((index for index, other in enumerate(items) if equal(item, other)), -1)


@function("lastIndexOf", "list", "*")
def _list_last_index(items: list[Any], item: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if equal(item, items[index])), -1)


@function("slice", "list", "int", "int")
def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


@function("flatten", "list")
def _flatten(items: list[Any]) -> list[Any]:
    return _flatten_by(items, 1)


@function("flatten", "list", "int")
def _flatten_by(items: list[Any], depth: int) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Any] = []
    for item in items:
        if type(item) is list and depth > 0:
            flat.extend(_flatten_by(item, depth - 1))
        else:
            flat.append(item)
    return flat


@function("sort", "list")
def _sort(items: list[Any]) -> list[Any]:
    return sorted(items, key=cmp_to_key(_compared))


@function("@sortByAssociatedKeys", "list", "list")
def _sort_by(items: list[Any], keys: list[Any]) -> list[Any]:
    def order(one: tuple[Any, Any], other: tuple[Any, Any]) -> int:
        return _compared(one[0], other[0])

    return [item for _, item in sorted(zip(keys, items, strict=True), key=cmp_to_key(order))]


@function("distinct", "list")
def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not _is_among(item, found):
            found.append(item)
    return found


@function("reverse", "list")
def _reverse(items: list[Any]) -> list[Any]:
    return items[::-1]


@function("first", "list")
def _first(items: list[Any]) -> Optional:
    return Optional(items[0]) if items else NO_VALUE


@function("last", "list")
def _last(items: list[Any]) -> Optional:
    return Optional(items[-1]) if items else NO_VALUE


@function("lists.range", "int")
def _range(count: int) -> list[int]:
    return list(range(count))


@function("sets.contains", "list", "list")
def _set_contains(items: list[Any], others: list[Any]) -> bool:
    return all(_is_among(other, items) for other in others)


@function("sets.intersects", "list", "list")
def _set_intersects(items: list[Any], others: list[Any]) -> bool:
    return any(_is_among(other, items) for other in others)


@function("sets.equivalent", "list", "list")
def _set_equivalent(items: list[Any], others: list[Any]) -> bool:
    return _set_contains(items, others) and _set_contains(others, items)


@function("includes", "*", "*")
def _includes(value: Any, item: Any) -> bool:
    """A list with the item, or a value equal to it."""
    if type(value) is not list:
        return equal(value, item)
    if len(value) > _LONGEST_LIST:
        raise EvaluationError(f"list too long: {len(value)} items, at most {_LONGEST_LIST}")
    return _is_among(item, value)


_LONGEST_LIST: Final = 48


# -- maps of comprehensions with two variables -------------------------------------------------------------


@function("cel.@mapInsert", "map", "*", "*")
def _map_insert(mapping: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    found = key_of(key)
    if found in mapping:
        raise EvaluationError(f"insert failed: key {key} already exists")
    return {**mapping, found: value}


@function("cel.@mapInsert", "map", "map")
def _map_merge(mapping: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    for key in other:
        if key in mapping:
            raise EvaluationError(f"insert failed: key {key} already exists")
    return {**mapping, **other}


# -- optional values ---------------------------------------------------------------------------------------


@function("optional.of", "*")
def _optional_of(value: Any) -> Optional:
    return Optional(value)


@function("optional.none")
def _optional_none() -> Optional:
    return NO_VALUE


@function("optional.ofNonZeroValue", "*")
def _optional_non_zero(value: Any) -> Optional:
    if type(value) is Timestamp or type(value) is Duration:
        return Optional(value) if value.nanos else NO_VALUE
    return (
        Optional(value)
        if value or type(value) not in (bool, int, UInt, float, str, bytes, list, dict, type(None))
        else NO_VALUE
    )


@function("hasValue", "optional_type")
def _has_value(value: Optional) -> bool:
    return value.present


@function("value", "optional_type")
def _value(value: Optional) -> Any:
    if not value.present:
        raise EvaluationError("optional.none() dereference")
    return value.value


@function("optional.unwrap", "list")
@function("unwrapOpt", "list")
def _unwrap(items: list[Any]) -> list[Any]:
    return [item.value for item in items if item.present]
