"""Functions for lists, sets, maps and optional values."""

from __future__ import annotations

from functools import cmp_to_key, partial
from itertools import pairwise
from typing import Any, Final

from .equality import equal, key_of, key_value
from .functions import call, function, metered
from .meter import ELEMENT, Meter
from .values import NO_VALUE, Duration, EvaluationError, Optional, Timestamp, UInt, quoted, size_of

#: Steps for finding the implementation for a pair of elements.
_PAIR: Final = ELEMENT


def _compared(meter: Meter, a: Any, b: Any) -> int:
    """Return the order of two values of one type, for ``sort``, ``min`` and ``max``."""
    meter.step(_PAIR + min(size_of(a), size_of(b)))
    if call(meter, "_<_", [a, b]):
        return -1
    return 0 if equal(a, b, meter) else 1


def _is_among(meter: Meter, item: Any, items: list[Any]) -> bool:
    for other in items:
        meter.step(ELEMENT // 2)
        if equal(item, other, meter):
            return True
    return False


@function("isSorted", "list")
@metered
def _is_sorted(meter: Meter, items: list[Any]) -> bool:
    return all(_compared(meter, a, b) <= 0 for a, b in pairwise(items))


@function("sum", "list")
@metered
def _sum(meter: Meter, items: list[Any]) -> Any:
    if not items:
        return 0
    total = items[0]
    for item in items[1:]:
        meter.step(_PAIR + size_of(total) + size_of(item))
        total = call(meter, "_+_", [total, item])
    return total


@function("min", "list")
@metered
def _min(meter: Meter, items: list[Any]) -> Any:
    if not items:
        raise EvaluationError("min called on empty list")
    return min(items, key=cmp_to_key(partial(_compared, meter)))


@function("max", "list")
@metered
def _max(meter: Meter, items: list[Any]) -> Any:
    if not items:
        raise EvaluationError("max called on empty list")
    return max(items, key=cmp_to_key(partial(_compared, meter)))


@function("indexOf", "list", "*")
@metered
def _list_index(meter: Meter, items: list[Any], item: Any) -> int:
    return next((index for index, other in enumerate(items) if equal(item, other, meter)), -1)


@function("lastIndexOf", "list", "*")
@metered
def _list_last_index(meter: Meter, items: list[Any], item: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if equal(item, items[index], meter)), -1)


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
@metered
def _flatten(meter: Meter, items: list[Any]) -> list[Any]:
    return _flatten_by(meter, items, 1)


@function("flatten", "list", "int")
@metered
def _flatten_by(meter: Meter, items: list[Any], depth: int) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    meter.step(ELEMENT * len(items))
    flat: list[Any] = []
    for item in items:
        if type(item) is list and depth > 0:
            flat.extend(_flatten_by(meter, item, depth - 1))
        else:
            flat.append(item)
    return flat


@function("sort", "list")
@metered
def _sort(meter: Meter, items: list[Any]) -> list[Any]:
    return sorted(items, key=cmp_to_key(partial(_compared, meter)))


@function("@sortByAssociatedKeys", "list", "list")
@metered
def _sort_by(meter: Meter, items: list[Any], keys: list[Any]) -> list[Any]:
    def order(one: tuple[Any, Any], other: tuple[Any, Any]) -> int:
        return _compared(meter, one[0], other[0])

    return [item for _, item in sorted(zip(keys, items, strict=True), key=cmp_to_key(order))]


@function("distinct", "list")
@metered
def _distinct(meter: Meter, items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not _is_among(meter, item, found):
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
@metered
def _set_contains(meter: Meter, items: list[Any], others: list[Any]) -> bool:
    return all(_is_among(meter, other, items) for other in others)


@function("sets.intersects", "list", "list")
@metered
def _set_intersects(meter: Meter, items: list[Any], others: list[Any]) -> bool:
    return any(_is_among(meter, other, items) for other in others)


@function("sets.equivalent", "list", "list")
@metered
def _set_equivalent(meter: Meter, items: list[Any], others: list[Any]) -> bool:
    return _set_contains(meter, items, others) and _set_contains(meter, others, items)


@function("includes", "*", "*")
@metered
def _includes(meter: Meter, value: Any, item: Any) -> bool:
    """True for a list with the item, or a value equal to it."""
    if type(value) is not list:
        return equal(value, item, meter)
    if len(value) > _LONGEST_LIST:
        raise EvaluationError(f"list too long: {len(value)} items, at most {_LONGEST_LIST}")
    return _is_among(meter, item, value)


_LONGEST_LIST: Final = 48


# -- maps of comprehensions with two variables -------------------------------------------------------------


@function("cel.@mapInsert", "map", "*", "*")
def _map_insert(mapping: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    return inserted(dict(mapping), {key_of(key): value})


@function("cel.@mapInsert", "map", "map")
def _map_merge(mapping: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    return inserted(dict(mapping), other)


def inserted(mapping: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    """Insert entries in place, and return the mapping.

    Raises:
        EvaluationError: if a key exists already.
    """
    for key in other:
        if key in mapping:
            raise EvaluationError(f"insert failed: key {quoted(key_value(key))} already exists")
    mapping.update(other)
    return mapping


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
    if any(type(item) is not Optional for item in items):
        raise EvaluationError("no such overload")
    return [item.value for item in items if item.present]
