"""The Swagger document in protobuf, as older command line clients insist on it. Caller: :mod:`.openapi`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from google.protobuf.message import Message

from .protobuf import Member, MessageTable, message_table

__all__ = ["encode_document"]


def encode_document(document: Mapping[str, Any]) -> bytes:
    """A Swagger document as an ``openapi.v2.Document``: what its messages have members for."""
    table = message_table("openapi_fields.txt")
    message = _message(table, table.names["openapi.v2"]["Document"], document)
    return message.SerializeToString(deterministic=True)


def _message(table: MessageTable, name: str, data: Mapping[str, Any]) -> Message:
    values: dict[str, Any] = {}
    for member in table.members[name].values():
        if member.inline:
            inner = _message(table, member.type, data)
            value: Any = inner if inner.ByteSize() else None
        elif member.name == "x-":
            texts = {key: msgspec.json.encode(one).decode() for key, one in data.items() if key.startswith("x-")}
            value = {key: _message(table, member.type, {"yaml": f"{text}\n"}) for key, text in texts.items()}
        else:
            value = _value(table, member, data.get(member.name))
        if value:
            values[f"f{member.number}"] = value
    return table.message_class(name)(**values)


def _value(table: MessageTable, member: Member, given: Any) -> Any:
    """The value of a member; one of another type than the member's is left out, and one item is a list, too."""
    if member.shape == "{":
        return {key: _one(table, member, one) for key, one in (given or {}).items() if isinstance(one, dict)}
    if member.shape and given:
        return [_one(table, member, one) for one in (given if isinstance(given, list | tuple) else (given,))]
    return _one(table, member, given)


def _one(table: MessageTable, member: Member, given: Any) -> Any:
    if member.type == "string":
        return str(given) if given else None
    return _message(table, member.type, given) if isinstance(given, dict) else None
