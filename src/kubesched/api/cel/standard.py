"""Functions of standard CEL: arithmetic, order, membership, conversions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from .equality import equal, key_of
from .functions import function, metered
from .meter import Meter
from .values import INT_MAX, INT_MIN, UINT_MAX, EvaluationError, TypeValue, UInt, kind_of

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


# -- membership and size -----------------------------------------------------------------------------------


@function("@in", "*", "list")
@metered
def _in_list(meter: Meter, item: Any, items: list[Any]) -> bool:
    return any(equal(item, other, meter) for other in items)


@function("@in", "*", "map")
@metered
def _in_map(meter: Meter, key: Any, mapping: dict[Any, Any]) -> bool:
    return key_of(key, meter) in mapping


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
    if len(text) > 100 or not _INTEGER.match(text) or not INT_MIN <= int(text) <= INT_MAX:
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
    if len(text) > 100 or not _INTEGER.match(text) or text[0] in "+-" or int(text) > UINT_MAX:
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
