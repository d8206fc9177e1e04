"""The Swagger document in protobuf, as older command line clients insist on it.

Message and field numbers are those of the published ``openapi.v2`` protocol (gnostic). Only what our documents hold
is written. Caller: :mod:`.openapi`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["encode_document"]

_VERBS: Final = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _message(field: int, content: bytes) -> bytes:
    """A length-delimited field: a message or a text."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, value: Any) -> bytes:
    return _message(field, str(value).encode()) if value else b""


def _named(field: int, name: str, value: bytes) -> bytes:
    """A (name, value) pair, as maps are written."""
    return _message(field, _text(1, name) + _message(2, value))


def _extensions(field: int, data: Mapping[str, Any]) -> bytes:
    """Members that begin with ``x-``, their values as YAML (JSON is YAML)."""
    return b"".join(
        _named(field, name, _message(2, msgspec.json.encode(value) + b"\n"))
        for name, value in data.items()
        if name.startswith("x-")
    )


def _schema(data: Mapping[str, Any]) -> bytes:
    out = _text(1, data.get("$ref")) + _text(2, data.get("format")) + _text(4, data.get("description"))
    for name in data.get("required") or ():
        out += _text(19, name)
    extra = data.get("additionalProperties")
    if isinstance(extra, dict):
        out += _message(21, _message(1, _schema(extra)))
    if data.get("type"):
        out += _message(22, _text(1, data["type"]))
    items = data.get("items")
    if isinstance(items, dict):
        out += _message(23, _message(1, _schema(items)))
    properties = data.get("properties")
    if isinstance(properties, dict):
        named = (_named(1, name, _schema(item)) for name, item in properties.items() if isinstance(item, dict))
        out += _message(25, b"".join(named))
    return out + _extensions(31, data)


def _operation(data: Mapping[str, Any]) -> bytes:
    out = _text(5, data.get("operationId"))
    for name in data.get("consumes") or ():
        out += _text(7, name)
    for parameter in data["parameters"]:
        query = _text(2, parameter["in"]) + _text(4, parameter["name"]) + _text(6, parameter["type"])
        out += _message(8, _message(1, _message(2, _message(3, query))))
    responses = b"".join(
        _named(1, code, _message(1, _text(1, answer["description"]))) for code, answer in data["responses"].items()
    )
    return out + _message(9, responses) + _extensions(13, data)


def encode_document(document: Mapping[str, Any]) -> bytes:
    """A Swagger document of :mod:`.openapi` as an ``openapi.v2.Document``."""
    info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
    paths = b"".join(
        _named(2, path, b"".join(_message(_VERBS[verb], _operation(item)) for verb, item in verbs.items()))
        for path, verbs in document["paths"].items()
    )
    definitions = b"".join(_named(1, name, _schema(item)) for name, item in document["definitions"].items())
    return _text(1, document["swagger"]) + _message(2, info) + _message(8, paths) + _message(9, definitions)
