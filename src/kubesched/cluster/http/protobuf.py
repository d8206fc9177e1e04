"""Request bodies in the API's protobuf form, turned into the plain data JSON would have given.

Typed Go clients (kubectl's ``create``, ``auth``; schedulers) send it. Field numbers are in ``protobuf_fields.txt``; a type or
field that is not there is 415 with the advice to send JSON. Answers are always JSON, which such clients accept.
Caller: :mod:`.bodies`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

from ...api.jsontext import parse_json
from ...api.wire import ApiError
from ..schema import Field, root_type, types

__all__ = ["PROTOBUF", "decode_protobuf"]

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\0"
_MAX_DEPTH: Final = 64
_QUANTITIES: Final = frozenset(
    {"limits", "requests", "capacity", "allocatable", "overhead", "hard", "used", "default", "defaultRequest"}
    | {"min", "max", "maxLimitRequestRatio", "allocatedResources", "sizeLimit", "divisor"}
)
#: Free form: JSON inside bytes.
_RAW_JSON: Final = frozenset({"fieldsV1", "parameters"})
_MICRO: Final = frozenset({"eventTime", "acquireTime", "renewTime", "lastObservedTime"})
_BYTES: Final = frozenset({("Secret", "data"), ("ConfigMap", "binaryData")})


@dataclass(slots=True)
class _Message:
    """Members by number; ``inline`` are the messages whose members are the outer object's.

    ``optional`` are the members that are pointers in Go: they are written when set, whatever their value.
    """

    name: str
    members: dict[int, tuple[str, Field]] = field(default_factory=dict)
    optional: set[int] = field(default_factory=set)
    inline: dict[int, str] = field(default_factory=dict)


class _UnknownError(Exception):
    """A type or field that is not in the table."""


class _MalformedError(Exception):
    """Bytes that are no protobuf."""


@cache
def _messages() -> dict[str, _Message]:
    text = files(__package__).joinpath("protobuf_fields.txt").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    outer: dict[str, dict[str, Field]] = {}
    for name, *items in lines:
        for item in items:
            if item.startswith(">") and name in types():
                # The members of an inlined message have the types of the object they end up in.
                outer.setdefault(item.split("=")[0], {}).update(types()[name].fields)
    found = {}
    for name, *items in lines:
        message = _Message(name)
        known = types()[name].fields if name in types() else outer.get(name, {})
        for item in items:
            member, _, number = item.partition("=")
            number, _, type_ = number.partition(":")
            if number.endswith("*"):
                number = number[:-1]
                message.optional.add(int(number))
            if member.startswith(">"):
                message.inline[int(number)] = member
            else:
                message.members[int(number)] = (member, _field(type_) if type_ else known.get(member, Field("-")))
        found[name] = message
    return found


def _field(text: str) -> Field:
    return Field(text[1:-1], "list") if text.startswith("[") else Field(text)


def decode_protobuf(raw: bytes) -> dict[str, Any]:
    """The object in an envelope.

    Raises:
        ApiError: 400 for bytes that are no such envelope, 415 for a type or field not known here.
    """
    if not raw.startswith(_MAGIC):
        raise ApiError.bad_request("the body is no Kubernetes protobuf: it does not begin with its magic number")
    try:
        api_version = kind = ""
        content = b""
        for number, value in _fields(raw[4:]):
            if number == 1:
                for inner, text in _fields(_bytes(value)):
                    if inner == 1:
                        api_version = _bytes(text).decode()
                    elif inner == 2:
                        kind = _bytes(text).decode()
            elif number == 2:
                content = _bytes(value)
            elif number == 3 and value:
                raise _UnknownError("an encoded envelope")
        group = api_version.rpartition("/")[0]
        root = root_type(group, kind)
        data = _message(content, root.name if root is not None else kind, 0)
    except _UnknownError as unknown:
        refused = f"{unknown} is not known here in protobuf; send application/json"
        raise ApiError(415, "UnsupportedMediaType", refused) from None
    except (_MalformedError, UnicodeDecodeError, IndexError, ValueError, OverflowError, OSError) as error:
        # OSError: a time that the C library cannot express.
        raise ApiError.bad_request(f"the protobuf body cannot be read: {error}") from None
    return {"kind": kind, "apiVersion": api_version, **data}


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise _MalformedError("a number where a message or text was expected")
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The (number, value) pairs of a message; values are integers or bytes."""
    position, end = 0, len(raw)
    while position < end:
        tag, position = _varint(raw, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(raw, position)
            yield number, value
            continue
        if wire == 2:
            size, position = _varint(raw, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise _MalformedError(f"wire type {wire}")
        if position + size > end:
            raise _MalformedError("it ends too early")
        yield number, raw[position : position + size]
        position += size


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if position >= len(raw):
            raise _MalformedError("it ends too early")
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise _MalformedError("a number is too long")


def _message(raw: bytes, name: str, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise _MalformedError("it is nested too deeply")
    message = _messages().get(name)
    if message is None:
        raise _UnknownError(f"type {name.lstrip('>')}")
    data: dict[str, Any] = {}
    for number, value in _fields(raw):
        inner = message.inline.get(number)
        if inner is not None:
            data.update(_inlined(_bytes(value), inner, depth))
            continue
        found = message.members.get(number)
        if found is None:
            raise _UnknownError(f"field {number} of {name.lstrip('>')}")
        member, kind = found
        if kind.type == "-":
            continue
        if kind.is_map:
            key, item = _map_entry(_bytes(value), name, member, kind, depth)
            data.setdefault(member, {})[key] = item
        elif kind.is_list:
            data.setdefault(member, []).append(_value(value, name, member, kind.type, depth))
        else:
            item = _value(value, name, member, kind.type, depth)
            # Members that must be there are written in JSON, too, when they are zero.
            if number in message.optional or kind.required or not _is_unset(item):
                data[member] = item
    return data


def _inlined(raw: bytes, name: str, depth: int) -> dict[str, Any]:
    return _message(raw, name if name in _messages() else name[1:], depth + 1)


def _is_unset(value: Any) -> bool:
    """Whether a member without a pointer says nothing: Go always writes those, empty ones too."""
    return value is None or value is False or value in ("", 0, {})


def _map_entry(raw: bytes, owner: str, member: str, kind: Field, depth: int) -> tuple[str, Any]:
    key, item = "", b""
    for number, value in _fields(raw):
        if number == 1:
            key = _bytes(value).decode()
        elif number == 2:
            item = _bytes(value)
    if (owner, member) in _BYTES:
        return key, base64.b64encode(item).decode()
    return key, _value(item, owner, member, kind.type, depth)


def _value(value: int | bytes, owner: str, member: str, type_: str, depth: int) -> Any:
    if type_ == "bool":
        return bool(value)
    if type_ == "int":
        if not isinstance(value, int):
            raise _MalformedError(f"{member} is no number")
        return value - (1 << 64) if value >= 1 << 63 else value
    raw = _bytes(value)
    if type_ == "str":
        if member in _QUANTITIES:
            return next((_bytes(text).decode() for number, text in _fields(raw) if number == 1), "0")
        return raw.decode()
    if type_ == "time":
        return _time(raw, micro=member in _MICRO)
    if type_ == "any":
        return _raw_json(raw) if member in _RAW_JSON else _int_or_string(raw, owner, member)
    return _message(raw, type_, depth + 1)


def _time(raw: bytes, *, micro: bool) -> str | None:
    """A timestamp; None for Go's zero time, which is an empty message."""
    seconds = nanos = 0
    for number, value in _fields(raw):
        if isinstance(value, int):
            signed = value - (1 << 64) if value >= 1 << 63 else value
            if number == 1:
                seconds = signed
            elif number == 2:
                nanos = signed
    if not raw:
        return None
    moment = datetime.fromtimestamp(seconds, UTC)
    if micro:
        return moment.replace(microsecond=nanos // 1000 % 1_000_000).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _raw_json(raw: bytes) -> Any:
    """A message whose only member is the text of any JSON value; None when it is empty."""
    text = next((_bytes(value) for number, value in _fields(raw) if number == 1), b"")
    return parse_json(text).data if text else None


def _int_or_string(raw: bytes, owner: str, member: str) -> int | str:
    kind, number_value, text = 0, 0, ""
    for number, value in _fields(raw):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, int):
            number_value = value - (1 << 64) if value >= 1 << 63 else value
        elif number == 3:
            text = _bytes(value).decode()
        else:
            raise _UnknownError(f"the form of {owner}.{member}")
    return text if kind else number_value
