"""The functions of standard CEL and of its extensions for strings, lists, sets, optional values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any, Final

from .functions import call, function
from .regex import search
from .values import (
    INT_MAX,
    INT_MIN,
    NO_VALUE,
    UINT_MAX,
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    TypeValue,
    UInt,
    equal,
    key_of,
    kind_of,
)

_NUMBER: Final = "int|uint|double"


def _int(value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise EvaluationError("integer overflow")
    return value


def _uint(value: int) -> UInt:
    if not 0 <= value <= UINT_MAX:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)


# -- arithmetic --------------------------------------------------------------------------------------------


def _arithmetic() -> None:
    kinds: dict[str, Callable[[int], int]] = {"int": _int, "uint": _uint}
    for kind, wrap in kinds.items():
        function("_+_", kind, kind)(lambda a, b, w=wrap: w(int(a) + int(b)))
        function("_-_", kind, kind)(lambda a, b, w=wrap: w(int(a) - int(b)))
        function("_*_", kind, kind)(lambda a, b, w=wrap: w(int(a) * int(b)))
        function("_/_", kind, kind)(lambda a, b, w=wrap: w(_quotient(int(a), int(b))))
        function("_%_", kind, kind)(lambda a, b, w=wrap: w(_remainder(int(a), int(b))))
    function("_+_", "double", "double")(lambda a, b: a + b)
    function("_-_", "double", "double")(lambda a, b: a - b)
    function("_*_", "double", "double")(lambda a, b: a * b)
    function("_/_", "double", "double")(_divided)
    function("-_", "int")(lambda a: _int(-a))
    function("-_", "double")(lambda a: -a)
    function("!_", "bool")(lambda a: not a)


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("division by zero")
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("modulus by zero")
    return int(math.copysign(1, a)) * (abs(a) % abs(b))


def _divided(a: float, b: float) -> float:
    if b:
        return a / b
    if a != a or a == 0:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1, b)


_arithmetic()
for _kind in ("string", "bytes", "list"):
    function("_+_", _kind, _kind)(lambda a, b: a + b)


# -- order -------------------------------------------------------------------------------------------------


def _less(a: Any, b: Any) -> bool:
    return bool(a < b)


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": _less,
    "_<=_": lambda a, b: bool(a <= b),
    "_>_": lambda a, b: bool(a > b),
    "_>=_": lambda a, b: bool(a >= b),
}
for _name, _compare in _COMPARISONS.items():
    function(_name, _NUMBER, _NUMBER)(_compare)
    for _kind in ("bool", "string", "bytes", "google.protobuf.Timestamp", "google.protobuf.Duration"):
        function(_name, _kind, _kind)(_compare)


def _compared(a: Any, b: Any) -> int:
    """Order for ``sort``, ``min`` and ``max``; of one type only."""
    if call("_<_", [a, b]):
        return -1
    return 0 if equal(a, b) else 1


# -- membership and size -----------------------------------------------------------------------------------


@function("@in", "*", "list")
def _in_list(item: Any, items: list[Any]) -> bool:
    return any(equal(item, other) for other in items)


@function("@in", "*", "map")
def _in_map(key: Any, mapping: dict[Any, Any]) -> bool:
    return key_of(key) in mapping


@function("size", "string|bytes|list|map")
def _size(value: Any) -> int:
    return len(value)


# -- conversions -------------------------------------------------------------------------------------------


@function("type", "*")
def _type(value: Any) -> TypeValue:
    return TypeValue(kind_of(value))


@function("dyn", "*")
def _dyn(value: Any) -> Any:
    return value


@function("int", "int|uint")
def _int_of(value: int) -> int:
    return _int(int(value))


@function("int", "double")
def _int_of_double(value: float) -> int:
    if value != value or not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


_INTEGER: Final = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


@function("int", "string")
def _int_of_string(text: str) -> int:
    if not _INTEGER.match(text) or len(text) > 100 or not INT_MIN <= int(text) <= INT_MAX:
        raise EvaluationError(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


@function("uint", "int|uint")
def _uint_of(value: int) -> UInt:
    return _uint(int(value))


@function("uint", "double")
def _uint_of_double(value: float) -> UInt:
    if value != value or not -1 < value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return UInt(int(value))


@function("uint", "string")
def _uint_of_string(text: str) -> UInt:
    if not _INTEGER.match(text) or len(text) > 100 or text[0] in "+-" or int(text) > UINT_MAX:
        raise EvaluationError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    return UInt(int(text))


@function("double", _NUMBER)
def _double_of(value: Any) -> float:
    return float(value)


@function("double", "string")
def _double_of_string(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise EvaluationError(f'strconv.ParseFloat: parsing "{text}": invalid syntax') from None


@function("bool", "bool")
def _bool_of(value: bool) -> bool:
    return value


@function("bool", "string")
def _bool_of_string(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise EvaluationError(f'strconv.ParseBool: parsing "{text}": invalid syntax')


@function("bytes", "string|bytes")
def _bytes_of(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


@function("string", "string|int|uint")
def _string_of(value: Any) -> str:
    return str(value)


@function("string", "bool")
def _string_of_bool(value: bool) -> str:
    return "true" if value else "false"


@function("string", "double")
def _string_of_double(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value != value:
        return "NaN"
    text = repr(value)
    return text.removesuffix(".0")


@function("string", "bytes")
def _string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


# -- strings -----------------------------------------------------------------------------------------------


@function("startsWith", "string", "string")
def _starts(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


@function("endsWith", "string", "string")
def _ends(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


@function("contains", "string", "string")
def _contains(text: str, part: str) -> bool:
    return part in text


@function("matches", "string", "string")
def _matches(text: str, pattern: str) -> bool:
    return search.matches(text, pattern)


@function("find", "string", "string")
def _find(text: str, pattern: str) -> str:
    return search.find(text, pattern)


@function("findAll", "string", "string")
def _find_all(text: str, pattern: str) -> list[str]:
    return search.find_all(text, pattern)


@function("findAll", "string", "string", "int")
def _find_some(text: str, pattern: str, limit: int) -> list[str]:
    found = search.find_all(text, pattern)
    return found if limit < 0 else found[:limit]


@function("charAt", "string", "int")
def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


@function("indexOf", "string", "string")
def _index_of(text: str, part: str) -> int:
    return text.find(part)


@function("indexOf", "string", "string", "int")
def _index_from(text: str, part: str, start: int) -> int:
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


@function("lastIndexOf", "string", "string")
def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


@function("lastIndexOf", "string", "string", "int")
def _last_index_until(text: str, part: str, end: int) -> int:
    if not 0 <= end <= len(text):
        raise EvaluationError(f"index out of range: {end}")
    return text.rfind(part, 0, end + len(part))


_LOWER: Final = {upper: upper + 32 for upper in range(65, 91)}
_UPPER: Final = {lower: lower - 32 for lower in range(97, 123)}


@function("lowerAscii", "string")
def _lower(text: str) -> str:
    return text.translate(_LOWER)


@function("upperAscii", "string")
def _upper(text: str) -> str:
    return text.translate(_UPPER)


@function("replace", "string", "string", "string")
def _replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new)


@function("replace", "string", "string", "string", "int")
def _replace_some(text: str, old: str, new: str, limit: int) -> str:
    return text.replace(old, new, limit)


@function("split", "string", "string")
def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


@function("split", "string", "string", "int")
def _split_some(text: str, separator: str, limit: int) -> list[str]:
    if limit == 0:
        return []
    if limit < 0:
        return _split(text, separator)
    if separator:
        return text.split(separator, limit - 1)
    return [*text[: limit - 1], text[limit - 1 :]] if len(text) >= limit else list(text)


@function("join", "list")
def _join(items: list[Any]) -> str:
    return _join_with(items, "")


@function("join", "list", "string")
def _join_with(items: list[Any], separator: str) -> str:
    for item in items:
        if type(item) is not str:
            raise EvaluationError(f"join: invalid input: {item}")
    return separator.join(items)


@function("substring", "string", "int")
def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text[start:]


@function("substring", "string", "int", "int")
def _substring_until(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise EvaluationError(f"index out of range: {index}")
    return text[start:end]


@function("trim", "string")
def _trim(text: str) -> str:
    return text.strip()


@function("strings.quote", "string")
def _quote(text: str) -> str:
    escapes = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
    return '"' + "".join(escapes.get(c) or ("\\" + c if c in '\\"' else c) for c in text) + '"'


_VERB: Final = re.compile(r"%(?:%|(?:\.(\d+))?([sdfebxXo]))|%")


@function("format", "string", "list")
def _format(text: str, args: list[Any]) -> str:
    rest = iter(args)

    def write(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        if match[2] is None:
            raise EvaluationError("could not parse formatting clause: unrecognized formatting clause")
        try:
            value = next(rest)
        except StopIteration:
            raise EvaluationError("index out of range") from None
        return _formatted(match[2], int(match[1] or 6), value)

    return _VERB.sub(write, text)


def _formatted(verb: str, precision: int, value: Any) -> str:
    match verb:
        case "s":
            return _shown(value)
        case "d" if type(value) in (int, UInt):
            return str(int(value))
        case "f" | "e" if type(value) in (int, UInt, float):
            return f"{value:.{precision}{verb}}"
        case "b" if type(value) in (int, UInt, bool):
            return f"{int(value):b}"
        case "o" if type(value) in (int, UInt):
            return f"{int(value):o}"
        case "x" | "X" if type(value) in (int, UInt):
            return f"{int(value):{verb}}"
        case "x" | "X" if type(value) in (str, bytes):
            digits = (value if isinstance(value, bytes) else value.encode()).hex()
            return digits if verb == "x" else digits.upper()
    raise EvaluationError(f"error during formatting: no formatting function for %{verb} and {kind_of(value)}")


def _shown(value: Any) -> str:
    if type(value) is list:
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{_shown(k)}: {_shown(v)}' for k, v in value.items()))}}}"
    if value is None:
        return "null"
    if type(value) is TypeValue:
        return value.name
    return str(call("string", [value]))


# -- lists -------------------------------------------------------------------------------------------------


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
        if not _in_list(item, found):
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
    return all(_in_list(other, items) for other in others)


@function("sets.intersects", "list", "list")
def _set_intersects(items: list[Any], others: list[Any]) -> bool:
    return any(_in_list(other, items) for other in others)


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
    return _in_list(item, value)


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
