"""Decoder of plain data to one typed object, as strict as upstream's JSON reader: unknown fields, types, ranges.

``decode`` drives it, once for the document and once per plugin's arguments. The shapes come from the types themselves
(``types``, ``args`` and the API types they use). The messages are upstream's (rules/configuration §6.2), with a plain
explanation for each. Fields are visited in alphabetical order, which decides which wrong type is reported.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import struct
import types
import typing
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from kubesched.api.yamltext import json_number

from .args import Go
from .durations import Duration, DurationError
from .errors import MAX_DETAILS
from .fielderrors import quote
from .types import ClientConnection, LeaderElection, ProfileConfig

__all__ = ["Decoder", "WrongTypeError", "describe", "fold_names", "json_kind"]

T = TypeVar("T")

_INT_BITS: Final = {"int32": 31, "int64": 63}
#: Upstream's names of struct types that have another name here. Types of older versions carry theirs as ``go_name``;
#: all others are ``v1.`` and our name.
_GO_STRUCTS: Final[dict[Any, str]] = {
    ProfileConfig: "v1.KubeSchedulerProfile",
    LeaderElection: "v1alpha1.LeaderElectionConfiguration",
    ClientConnection: "v1alpha1.ClientConnectionConfiguration",
}


@dataclass(frozen=True, slots=True)
class _Shape:
    """Type of a field. ``kind`` is one of bool, int, float, str, duration, bytes, list, map, struct, any."""

    kind: str
    go: str
    item: _Shape | None = None
    cls: Any = None
    embedded: str = ""


def _go_struct(cls: Any) -> str:
    return _GO_STRUCTS.get(cls) or getattr(cls, "go_name", "") or f"v1.{cls.__name__}"


def _shape(annotation: Any) -> _Shape:
    go, embedded = "", ""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation, *notes = typing.get_args(annotation)
        for note in notes:
            if isinstance(note, Go):
                go, embedded = note.type, note.embedded
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return _shape(next(argument for argument in arguments if argument is not type(None)))
    if origin is tuple:
        item = _shape(arguments[0])
        return _Shape("list", f"[]{item.go}", item)
    if origin is dict:
        item = _shape(arguments[1])
        return _Shape("map", f"map[string]{item.go}", item)
    if annotation is Any:
        return _Shape("any", "")
    if annotation is Duration:
        return _Shape("duration", "v1.Duration")
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _Shape("struct", _go_struct(annotation), cls=annotation)
    names = {bool: ("bool", "bool"), int: ("int", "int32"), float: ("float", "float64"), str: ("str", "string")}
    names[bytes] = ("bytes", "[]uint8")
    kind, plain = names[annotation]
    return _Shape(kind, go or plain, embedded=embedded)


@cache
def _fields(cls: Any) -> dict[str, tuple[str, _Shape]]:
    """Return (attribute, shape) of each field of a type, by the field's name in the file."""
    hints = typing.get_type_hints(cls, include_extras=True)
    pairs = zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True)
    return {name: (attribute, _shape(hints[attribute])) for name, attribute in pairs}


# -- values --------------------------------------------------------------------------------------------------


class WrongTypeError(Exception):
    """A value does not fit its field; holds upstream's text and the plain one."""

    def __init__(self, text: str, detail: str) -> None:
        super().__init__(text)
        self.text = text
        self.detail = detail


def json_kind(value: Any) -> str:
    """Name of a JSON value in upstream's messages."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object" if isinstance(value, dict) else "null"


def describe(value: Any) -> str:
    """Describe a value to a person, in short."""
    match value:
        case bool():
            return f"the boolean {'true' if value else 'false'}"
        case int() | float():
            return f"the number {json_number(value)}"
        case str():
            return f"the text {quote(value if len(value) <= 60 else value[:60] + '…')}"
        case list():
            return f"a list of length {len(value)}"
        case dict():
            return f"an object with {len(value)} fields"
    return "null"


def _wanted(shape: _Shape) -> str:
    if shape.kind == "int":
        bits = _INT_BITS[shape.go]
        return f"a whole number from {-(2**bits)} to {2**bits - 1}"
    if shape.kind == "list":
        return "a list (lines starting with a dash)"
    return {
        "bool": "true or false",
        "float": "a number",
        "str": "text (in quotes if it looks like a number or a boolean)",
        "duration": 'a duration with units such as "15s" or "1m30s"',
        "bytes": "base64 text",
    }.get(shape.kind, "an object (name: value lines)")


@dataclass(slots=True)
class Decoder:
    """Decoder of one object, for one pass; ``prefix`` goes before the paths shown to people."""

    prefix: str = ""
    unknown: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def decode(self, data: Any, type_: type[T]) -> T:
        """Decode an object's data to ``type_``. Unknown fields are collected in ``unknown`` and ``details``.

        Raises:
            WrongTypeError: at the first value of a wrong type.
        """
        decoded: T = self._struct(data, _shape(type_))
        return decoded

    def _wrong(self, value: Any, shape: _Shape, path: str, fields: str, owner: str, *, literal: bool = False) -> Any:
        kind = f"number {json_number(value)}" if literal else json_kind(value)
        where = f"Go struct field {owner}.{fields}" if fields else "Go value"
        raise WrongTypeError(
            f"json: cannot unmarshal {kind} into {where} of type {shape.go}",
            f"{self.prefix}{path}: {describe(value)} is not {_wanted(shape)}",
        )

    def _value(self, data: Any, shape: _Shape, path: str, fields: str, owner: str) -> Any:
        """Decode a value. ``path`` has indexes of list items and is for people. ``fields`` has none and is for
        upstream's text.
        """
        match shape.kind:
            case "struct":
                return self._struct(data, shape, path, fields, owner)
            case "list":
                return self._list(data, shape, path, fields, owner)
            case "map":
                return self._map(data, shape, path, fields, owner)
            case "any":
                return data
            case "int" | "float":
                return self._number(data, shape, path, fields, owner)
            case "bool":
                return data if isinstance(data, bool) else self._wrong(data, shape, path, fields, owner)
        if not isinstance(data, str):
            if shape.kind == "duration":
                detail = f"{self.prefix}{path}: {describe(data)} is not {_wanted(shape)}"
                raise WrongTypeError(f"json: cannot unmarshal {json_kind(data)} into Go value of type string", detail)
            self._wrong(data, shape, path, fields, owner)
        return self._text(data, shape, path)

    def _text(self, data: str, shape: _Shape, path: str) -> Any:
        if shape.kind == "str":
            return data
        detail = f"{self.prefix}{path}: {describe(data)} is not {_wanted(shape)}"
        if shape.kind == "duration":
            try:
                return Duration.parse(data)
            except DurationError as error:
                raise WrongTypeError(str(error), detail) from None
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise WrongTypeError("illegal base64 data", detail) from None

    def _number(self, data: Any, shape: _Shape, path: str, fields: str, owner: str) -> Any:
        if isinstance(data, bool) or not isinstance(data, (int, float)):
            return self._wrong(data, shape, path, fields, owner)
        if shape.kind == "int":
            bound = 2 ** _INT_BITS[shape.go]
            whole = isinstance(data, int) or (data.is_integer() and abs(data) < 1e21)
            if not whole or not -bound <= data < bound:
                self._wrong(data, shape, path, fields, owner, literal=True)
            return int(data)
        try:
            struct.pack("<f", data)
        except OverflowError:
            self._wrong(data, shape, path, fields, owner, literal=True)
        return float(data)

    def _list(self, data: Any, shape: _Shape, path: str, fields: str, owner: str) -> Any:
        if not isinstance(data, list) or shape.item is None:
            return self._wrong(data, shape, path, fields, owner)
        item = shape.item
        return tuple(
            self._value(_zero(item) if entry is None else entry, item, f"{path}[{index}]", fields, owner)
            for index, entry in enumerate(data)
        )

    def _map(self, data: Any, shape: _Shape, path: str, fields: str, owner: str) -> Any:
        if not isinstance(data, dict) or shape.item is None:
            return self._wrong(data, shape, path, fields, owner)
        item = shape.item
        return {
            key: self._value(_zero(item) if entry is None else entry, item, f"{path}.{key}", f"{fields}.{key}", owner)
            for key, entry in sorted(data.items())
        }

    def _struct(self, data: Any, shape: _Shape, path: str = "", fields: str = "", owner: str = "") -> Any:
        cls = shape.cls
        if not isinstance(data, dict) or cls is None:
            return self._wrong(data, shape, path, fields, owner)
        known, values = _fields(cls), {}
        here = shape.go.rpartition(".")[2]
        for name in sorted(data, key=str):  # plain data from a caller may have keys that are no text
            where = f"{path}.{name}" if path else str(name)
            if name not in known:
                if path or name not in ("apiVersion", "kind"):
                    self.unknown.append(quote(where))
                    if len(self.details) < MAX_DETAILS:
                        self.details.append(f"{self.prefix}{where}: no such field{_suggest(str(name), known)}")
                continue
            if data[name] is None:
                continue  # null means absent
            attribute, field_shape = known[name]
            step = f"{field_shape.embedded}.{name}" if field_shape.embedded else name
            values[attribute] = self._value(
                data[name], field_shape, where, f"{fields}.{step}" if fields else step, here
            )
        return cls(**values)


def fold_names(data: Any, type_: Any, twice: list[str], path: str = "") -> Any:
    """Copy ``data`` with the field names spelled as ``type_`` spells them, matched without regard to case.

    Names that match no field stay as they are. If two names of an object match one field, the later value counts, and
    the field's path is added to ``twice``.
    """
    return _fold(data, _shape(type_), twice, path)


def _fold(data: Any, shape: _Shape, twice: list[str], path: str) -> Any:
    if shape.kind == "list" and shape.item is not None and isinstance(data, list):
        return [_fold(item, shape.item, twice, f"{path}[{index}]") for index, item in enumerate(data)]
    if shape.kind != "struct" or not isinstance(data, dict):
        return data
    fields = _fields(shape.cls)
    spelled = {name.lower(): name for name in ("apiVersion", "kind", *fields)}
    folded: dict[str, Any] = {}
    for given, value in data.items():
        name = spelled.get(str(given).lower(), str(given))
        where = f"{path}.{name}" if path else name
        if name in folded:
            twice.append(where)
        folded[name] = _fold(value, fields[name][1], twice, where) if name in fields else value
    return folded


def _zero(shape: _Shape) -> Any:
    """Return what null means inside a list."""
    return {"struct": {}, "map": {}, "list": [], "str": "", "bool": False, "int": 0, "float": 0}.get(shape.kind)


def _suggest(name: str, known: dict[str, Any]) -> str:
    if not known:
        return "; this object has no fields"
    if len(name) <= 64:
        by_lower = {candidate.lower(): candidate for candidate in known}
        close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
        if close:
            return f"; did you mean {by_lower[close[0]]}?"
    return f"; known are {', '.join(sorted(known))}"
