"""Protobuf: decoder of request bodies into plain data as from JSON, and encoder of the Swagger document.

Go clients send it by default: schedulers, controllers, some commands of kubectl. ``protobuf_fields.txt`` has the field
numbers of every message; descriptors for the protobuf runtime are made from it on first use. An unknown type or field
is 415 with the advice to send JSON. Answers are JSON, which such clients accept. Only the Swagger document is also sent
in protobuf (``openapi_fields.txt``), because older command line clients insist on it. Callers: :mod:`.bodies` and
:mod:`.openapi`.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, Final

import msgspec
from google.protobuf.descriptor_pb2 import DescriptorProto, Edition, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from kubesched.api.documents import TooManyValuesError
from kubesched.api.jsontext import check_values, parse_json
from kubesched.api.wire import ApiError

from ..schema import table_lines

__all__ = ["Member", "MessageTable", "decode_protobuf", "encode_document", "message_table"]

_MAGIC: Final = b"k8s\0"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SCALARS: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int": FieldDescriptorProto.TYPE_INT64,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
}
_MEMBER: Final = re.compile(r"(>?)([^=]*)=(\d+)([*!]?)(?::([\[{]?)(\w+)[\]}]?)?")


@dataclass(frozen=True, slots=True)
class Member:
    """Field of a message.

    ``shape`` is ``[`` for lists, ``{`` for maps, else empty. ``type`` is a scalar's name or a message's full name.
    ``kept``: True if a zero is a value. If False, Go writes zero for "not set". ``inline``: the members of the field's
    message belong to the outer object.
    """

    name: str
    number: int
    shape: str
    type: str
    kept: bool
    inline: bool
    read: Callable[[Any], Any] | None


@dataclass(slots=True)
class MessageTable:
    """Messages of a file such as ``protobuf_fields.txt``.

    It has full names by section and name, members by full name and number, and descriptors.
    """

    names: dict[str, dict[str, str]] = field(default_factory=dict)
    members: dict[str, dict[int, Member]] = field(default_factory=dict)
    pool: DescriptorPool = field(default_factory=DescriptorPool)

    def message(self, full_name: str, raw: bytes = b"", **values: Any) -> Message:
        """Return a message of the runtime, from its bytes or the values of its fields."""
        type_ = GetMessageClass(self.pool.FindMessageTypeByName(full_name))
        return type_(**values) if values else type_.FromString(raw)


@cache
def message_table(file_name: str = "protobuf_fields.txt") -> MessageTable:
    """Return the table in a file of this package, read on first use."""
    table, section = MessageTable(), ""
    rows: list[tuple[str, str, list[str]]] = []
    for line in table_lines(file_name, __package__):
        if line.startswith("## "):
            section = line[3:]
        else:
            name, *items = line.split()
            # Versions of a group have messages with equal names.
            full_name = table.names.setdefault(section, {})[name] = f"{name}_{len(rows)}"
            rows.append((section, full_name, items))
    file = FileDescriptorProto(name="bodies", syntax="editions", edition=Edition.EDITION_2023)
    for section, full_name, items in rows:
        members = table.members[full_name] = {}
        described = file.message_type.add(name=full_name)
        for item in items:
            member = _member(table, section, item)
            members[member.number] = member
            _describe(described, member)
    table.pool.Add(file)
    return table


def _member(table: MessageTable, section: str, item: str) -> Member:
    found = _MEMBER.fullmatch(item)
    if found is None:
        raise ValueError(f"table of messages: {item!r} in section {section} is no member")
    inline, name, number, mark, shape, type_ = found.groups()
    type_ = type_ or "string"
    read: Callable[[Any], Any] | None = None
    if type_ == "bytes":
        read = lambda value: base64.b64encode(value).decode()  # noqa: E731
    elif type_ not in _SCALARS:
        read = _READERS.get(type_, _plain)
        # The message of this name in its section, else the first in the file.
        places = (table.names[section], *table.names.values())
        full_name = next((place[type_] for place in places if type_ in place), None)
        if full_name is None:
            raise ValueError(f"table of messages: {item!r} in section {section} has an unknown type")
        type_ = full_name
    kept = bool(mark) or type_ not in _SCALARS
    return Member(name, int(number), shape or "", type_, kept, bool(inline), read)


def _describe(message: DescriptorProto, member: Member) -> None:
    described = message.field.add(name=f"f{member.number}", number=member.number)
    described.label = FieldDescriptorProto.LABEL_REPEATED if member.shape else FieldDescriptorProto.LABEL_OPTIONAL
    if member.shape == "{":
        entry = message.nested_type.add(name=f"F{member.number}Entry")
        entry.options.map_entry = True
        _describe(entry, Member("", 1, "", "string", True, False, None))
        _describe(entry, Member("", 2, "", member.type, True, False, None))
        described.type_name = f".{message.name}.{entry.name}"
    elif member.type in _SCALARS:
        described.type = _SCALARS[member.type]
    else:
        described.type_name = f".{member.type}"
    if described.type_name:
        described.type = FieldDescriptorProto.TYPE_MESSAGE


# -- bodies ------------------------------------------------------------------------------------------------


def decode_protobuf(raw: bytes, most_values: int = sys.maxsize) -> dict[str, Any]:
    """Return the object in an envelope.

    Raises:
        ApiError: 400 for bytes that are no such envelope, 415 for an unknown type or field.
        TooManyValuesError: for more values than ``most_values``.
    """
    if not raw.startswith(_MAGIC):
        raise ApiError.bad_request("the body is no Kubernetes protobuf: it does not begin with its magic number")
    table = message_table()
    try:
        envelope = _numbered(table.message(table.names["runtime"]["Unknown"], raw[4:]))
        head = _numbered(envelope[1]) if 1 in envelope else {}
        api_version, kind = head.get(1, ""), head.get(2, "")
        if envelope.get(3):
            raise _unknown("an encoded envelope")
        # Every group has DeleteOptions.
        full_name = table.names.get("meta/v1" if kind == "DeleteOptions" else api_version, {}).get(kind)
        if full_name is None:
            raise _unknown(f"type {kind}")
        message = table.message(full_name, envelope.get(2, b""))
        _count(message, most_values)
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            _refuse_unknown(table.message(full_name, envelope[2]))
        data = _plain(message)
        check_values(data, most_values)  # counted again, because the message may hold JSON
    except TooManyValuesError:
        raise
    except (DecodeError, ValueError, OverflowError) as error:
        raise ApiError.bad_request(f"the protobuf body cannot be read: {error}") from None
    return {"kind": kind, "apiVersion": api_version, **data}


def _unknown(what: str) -> ApiError:
    return ApiError(415, "UnsupportedMediaType", f"{what} is not known here in protobuf; send application/json")


def _refuse_unknown(message: Message) -> None:
    """Refuse a message with an unknown field, or with a wrong wire type for a field. The error names the field."""
    name = message.DESCRIPTOR.name
    members = message_table().members.get(name, {})
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        if number in members:
            raise ValueError(f"{members[number].name} has another type")
        raise _unknown(f"field {number} of {name.rpartition('_')[0]}")
    for described, value in message.ListFields():
        shape = members[described.number].shape
        for inner in value.values() if shape == "{" else value if shape else (value,):
            if isinstance(inner, Message):
                _refuse_unknown(inner)


def _count(message: Message, most: int) -> int:
    """Return the number of fields and items in a message, before each of them is decoded.

    Raises:
        TooManyValuesError: for more than ``most``.
    """
    count, members = 0, message_table().members.get(message.DESCRIPTOR.name, {})
    for described, value in message.ListFields():
        shape = members[described.number].shape if described.number in members else ""
        count += len(value) if shape else 1
        if count > most:
            raise TooManyValuesError(f"more than {most} values")
        for inner in value.values() if shape == "{" else value if shape else (value,):
            if not isinstance(inner, Message):
                break
            count += _count(inner, most - count)
    return count


def _numbered(message: Message) -> dict[int, Any]:
    return {described.number: value for described, value in message.ListFields()}


def _plain(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {}
    members = message_table().members[message.DESCRIPTOR.name]
    for described, value in message.ListFields():
        member = members[described.number]
        read = member.read
        if member.shape == "[":
            data[member.name] = list(value) if read is None else [read(one) for one in value]
        elif member.shape:
            data[member.name] = {key: one if read is None else read(one) for key, one in value.items()}
        elif value or member.kept:
            plain = value if read is None else read(value)
            if member.inline:
                data.update(plain)
            elif plain is not None:
                data[member.name] = plain
    return data


# -- values that are messages in protobuf, but no objects in JSON ------------------------------------------


def _only(message: Message, default: Any = None) -> Any:
    """Return the value of a message's only member."""
    return next(iter(_numbered(message).values()), default)


def _time(timespec: str, message: Message) -> str | None:
    """Return a timestamp, to the second or the microsecond; None for Go's zero time, which is an empty message."""
    values = _numbered(message)
    moment = _EPOCH + timedelta(seconds=values.get(1, 0), microseconds=values.get(2, 0) // 1000)
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z") if values else None


def _int_or_string(message: Message) -> int | str:
    values = _numbered(message)
    return str(values.get(3, "")) if values.get(1) else int(values.get(2, 0))


def _json(message: Message) -> Any:
    """Return the value of a JSON text; None when it is empty."""
    text = _only(message)
    return parse_json(text).data if text else None


def _schema_or(message: Message) -> Any:
    """Return the schema in a message, or its other member: a list of schemas, a list of names, or True if anything is
    allowed.
    """
    values = _plain(message)
    return values["schema"] if "schema" in values else next(iter(values.values()), None)


def _claim_template(message: Message) -> dict[str, Any]:
    """Return a claim inside another object; the API server adds its type."""
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **_plain(message)}


_READERS: Final[dict[str, Callable[[Message], Any]]] = {
    "Quantity": partial(_only, default="0"),
    "Time": partial(_time, "seconds"),
    "MicroTime": partial(_time, "microseconds"),
    "IntOrString": _int_or_string,
    "FieldsV1": _json,
    "RawExtension": _json,
    "JSON": _json,
    "ExtraValue": lambda message: list(_only(message, ())),
    "JSONSchemaPropsOrArray": _schema_or,
    "JSONSchemaPropsOrBool": _schema_or,
    "JSONSchemaPropsOrStringArray": _schema_or,
    "PersistentVolumeClaim": _claim_template,
}


# -- the Swagger document ----------------------------------------------------------------------------------


def encode_document(document: Mapping[str, Any]) -> bytes:
    """Encode a Swagger document as an ``openapi.v2.Document``. Members that its messages do not have are left out."""
    table = message_table("openapi_fields.txt")
    message = _message(table, table.names["openapi.v2"]["Document"], document)
    return message.SerializeToString(deterministic=True)


def _message(table: MessageTable, name: str, data: Mapping[str, Any]) -> Message:
    """Return a message with the values of its members.

    A value of another type than the member is left out. A single item is taken as a list.
    """

    def one(member: Member, given: Any) -> Any:
        if member.type == "string":
            return str(given) if given else None
        return _message(table, member.type, given) if isinstance(given, dict) else None

    values: dict[str, Any] = {}
    for member in table.members[name].values():
        given = data.get(member.name)
        if member.inline:
            inner = _message(table, member.type, data)
            value: Any = inner if inner.ByteSize() else None
        elif member.shape == "{":
            if member.name == "x-":
                given = {
                    key: {"yaml": f"{msgspec.json.encode(item).decode()}\n"}
                    for key, item in data.items()
                    if key.startswith("x-")
                }
            value = {key: one(member, item) for key, item in (given or {}).items() if isinstance(item, dict)}
        elif member.shape and given:
            value = [one(member, item) for item in (given if isinstance(given, list | tuple) else (given,))]
        else:
            value = one(member, given)
        if value:
            values[f"f{member.number}"] = value
    return table.message(name, **values)
