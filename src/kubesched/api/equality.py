"""Equality of plain JSON data, exact where Python's ``==`` is not.

In Python ``1 == True`` and ``0 == False``; in JSON a number is never a boolean. Numbers are equal if their values are
equal, so ``1`` equals ``1.0``. RFC 6902 section 4.6 says so for patches. Go writes the whole number ``1.0`` as ``1``,
so an API server stores the same bytes for both. (For the ``test`` operation of a JSON patch upstream's library compares
the text of numbers; here the value counts.)

Data has the types of a JSON decoder: dict with text keys, list, str, int, float, bool and None. Callers: all that
compare documents or parts of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

import msgspec

__all__ = ["json_key", "same_json"]

_encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode


def same_json(left: Any, right: Any) -> bool:
    """True if two values are the same JSON value. The order of an object's members does not matter."""
    if left != right:
        return False
    kind = type(left)
    if kind is str or left is None:
        return True
    if kind is not dict and kind is not list:
        return (kind is bool) is (type(right) is bool)
    # The values are equal for Python, so at most booleans and numbers are confused. Equal data mostly has equal bytes,
    # and encoding data is many times faster than walking through it.
    return _encode(left) == _encode(right) or _is_same(left, right)


def _is_same(left: Any, right: Any) -> bool:
    """True if two values have booleans in the same places. Python's ``==`` must hold for them."""
    if isinstance(left, dict):
        return all(_is_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return all(map(_is_same, left, right))
    return isinstance(left, bool) is isinstance(right, bool)


def json_key(value: Any) -> Hashable:
    """Return a dictionary key for a JSON value. Keys are equal exactly if :func:`same_json` is true."""
    if isinstance(value, str):  # most values
        return value
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, dict):
        return (dict, frozenset((key, json_key(item)) for key, item in value.items()))
    if isinstance(value, list):
        return (list, tuple(json_key(item) for item in value))
    key: Hashable = value
    return key
