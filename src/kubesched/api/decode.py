"""Decoder of objects: bytes or plain data in, typed objects out.

Kubernetes treats ``null`` as "absent" almost everywhere; msgspec does not. So decoding first tries the strict form.
Only if that fails, it removes nulls and tries once more, so that ordinary objects pay nothing. Errors name the field
path.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

__all__ = ["DecodeError", "decode_object", "from_builtins", "strip_nulls", "to_builtins"]

T = TypeVar("T")


class DecodeError(ValueError):
    """A field of the object has the wrong type. The message gives its path, such as ``$.spec.containers[0]``."""


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = msgspec.json.Decoder(type_)
    return decoder


def strip_nulls(data: Any) -> Any:
    """Return a copy of plain data without members that are null."""
    if isinstance(data, dict):
        return {key: strip_nulls(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [strip_nulls(value) for value in data if value is not None]
    return data


def decode_object(raw: bytes | str, type_: type[T]) -> T:
    """Decode JSON into ``type_``.

    Raises:
        DecodeError: if the text is not JSON or a field has the wrong type.
    """
    try:
        return _decoder(type_).decode(raw)
    except msgspec.ValidationError:
        return from_builtins(msgspec.json.decode(raw), type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not valid JSON: {error}") from None


def from_builtins(data: Any, type_: type[T]) -> T:
    """Convert dicts and lists into ``type_``.

    Raises:
        DecodeError: if a field has the wrong type, with its path.
    """
    try:
        return msgspec.convert(data, type_)
    except msgspec.ValidationError:
        pass
    try:
        return msgspec.convert(strip_nulls(data), type_)
    except msgspec.ValidationError as error:
        raise DecodeError(str(error)) from None


def to_builtins(obj: Any) -> Any:
    """Convert typed objects to dicts and lists, in wire names. Tuples become lists."""
    return msgspec.json.decode(msgspec.json.encode(obj))
