"""Equality of values, and values as keys of a dict."""

from __future__ import annotations

from typing import Any, Final

from .meter import ELEMENT, Meter
from .values import BoolKey, EvaluationError, Optional, Semver, UInt, kind_of

__all__ = ["equal", "key_of", "key_value"]

_NUMBERS: Final = (int, UInt, float)


#: Characters of texts that are compared in one step.
_COMPARED: Final = 16


def equal(left: Any, right: Any, meter: Meter) -> bool:
    """CEL's ``==``: numbers compare across types; values of different types are unequal."""
    kind = type(left)
    if kind is type(right):
        if kind is list:
            meter.step(ELEMENT * len(left))
            return len(left) == len(right) and all(equal(a, b, meter) for a, b in zip(left, right, strict=True))
        if isinstance(left, dict):
            return _equal_maps(left, right, meter)
        if kind is Optional:
            return left.present == right.present and (not left.present or equal(left.value, right.value, meter))
        if kind is str or kind is bytes:
            meter.step(len(left) // _COMPARED)
        elif kind is Semver:
            meter.step(len(left.pre))
        return bool(left == right)
    if kind in _NUMBERS and type(right) in _NUMBERS:
        return bool(left == right)
    return isinstance(left, dict) and isinstance(right, dict) and _equal_maps(left, right, meter)


def _equal_maps(left: dict[Any, Any], right: dict[Any, Any], meter: Meter) -> bool:
    meter.step(ELEMENT * len(left))
    return len(left) == len(right) and all(
        key in right and equal(value, right[key], meter) for key, value in left.items()
    )


def key_of(value: Any, meter: Meter | None = None) -> Any:
    """Return a value as a key of a dict. Hashing a long text, and comparing it with another, takes steps."""
    kind = type(value)
    if kind is str:
        if meter is not None and len(value) > _COMPARED:
            meter.step(len(value) // _COMPARED)
        return value
    if kind is int or kind is UInt or kind is float:
        return value
    if kind is bool:
        return BoolKey(value)
    raise EvaluationError(f"unsupported key type: {kind_of(value)}")


def key_value(key: Any) -> Any:
    """Return the value of a key; the reverse of :func:`key_of`."""
    return key.value if type(key) is BoolKey else key
