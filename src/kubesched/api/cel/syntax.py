"""Checked syntax tree of an expression, read from the protobuf form that the CEL library provides.

The library serializes a compiled expression as ``cel.expr.CheckedExpr`` (published in the CEL specification,
``proto/cel/expr/checked.proto`` and ``syntax.proto``). Only a few messages are read, so no protobuf runtime is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from .values import UInt

__all__ = [
    "Call",
    "Checked",
    "Comprehension",
    "Constant",
    "Expr",
    "Ident",
    "ListExpr",
    "MapEntry",
    "MapExpr",
    "Select",
    "children",
    "read_checked",
    "read_parsed",
]


@dataclass(frozen=True, slots=True)
class Constant:
    id: int
    value: Any


@dataclass(frozen=True, slots=True)
class Ident:
    """Identifier. ``name`` is the declared variable, with dots if it was declared with dots."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    id: int
    operand: Expr
    field: str
    test_only: bool


@dataclass(frozen=True, slots=True)
class Call:
    """Call of a function. ``args`` begins with the target if the function is a member."""

    id: int
    function: str
    args: tuple[Expr, ...]
    is_member: bool = False


@dataclass(frozen=True, slots=True)
class ListExpr:
    id: int
    elements: tuple[Expr, ...]
    optional: frozenset[int]


@dataclass(frozen=True, slots=True)
class MapEntry:
    key: Expr
    value: Expr
    optional: bool


@dataclass(frozen=True, slots=True)
class MapExpr:
    """Map or message that the expression creates. ``message`` is the name of its type, empty for a map."""

    id: int
    message: str
    entries: tuple[MapEntry, ...]


@dataclass(frozen=True, slots=True)
class Comprehension:
    id: int
    iter_var: str
    iter_var2: str
    iter_range: Expr
    accu_var: str
    accu_init: Expr
    condition: Expr
    step: Expr
    result: Expr


Expr = Constant | Ident | Select | Call | ListExpr | MapExpr | Comprehension


@dataclass(frozen=True, slots=True)
class Checked:
    """Checked expression.

    ``types`` maps expression ids to types in upstream's notation, without the dyn types. ``positions`` maps
    expression ids to offsets in code points.
    """

    expr: Expr
    types: dict[int, str] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct parts of an expression."""
    match expr:
        case Select():
            return (expr.operand,)
        case Call():
            return expr.args
        case ListExpr():
            return expr.elements
        case MapExpr():
            return tuple(part for entry in expr.entries for part in (entry.key, entry.value))
        case Comprehension():
            return (expr.iter_range, expr.accu_init, expr.condition, expr.step, expr.result)
    return ()


# -- the wire format ---------------------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield field numbers and values: an int for a varint, otherwise bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
            case 1:
                yield tag >> 3, data[at : at + 8]
                at += 8
            case 2:
                length, at = _varint(data, at)
                yield tag >> 3, data[at : at + length]
                at += length
            case kind:
                raise ValueError(f"checked expression: unknown wire type {kind}")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def read_checked(serialized: bytes) -> Checked:
    """Read the bytes that ``Expression.serialize`` of the CEL library returns."""
    data = dict(_fields(serialized))[2]  # google.protobuf.Any: the value
    names: dict[int, str] = {}
    constants: dict[int, Any] = {}
    types: dict[int, str] = {}
    positions: dict[int, int] = {}
    root = b""
    for number, value in _fields(data):
        match number:
            case 2:
                entry = dict(_fields(value))
                reference = list(_fields(entry[2]))
                found = dict(reference)
                if 1 in found:
                    names[entry[1]] = found[1].decode()
                if 4 in found:
                    constants[entry[1]] = _constant(found[4])
            case 3:
                entry = dict(_fields(value))
                types[entry[1]] = _type(entry[2])
            case 4:
                root = value
            case 5:
                for kind, part in _fields(value):
                    if kind == 4:
                        entry = dict(_fields(part))
                        positions[entry.get(1, 0)] = entry.get(2, 0)
    return Checked(_Reader(names, constants).expr(root), types, positions)


def read_parsed(serialized: bytes) -> Expr:
    """Read an expression that was parsed but not checked."""
    data = dict(_fields(serialized))[2]
    return _Reader({}, {}).expr(dict(_fields(data))[2])


def _constant(data: bytes) -> Any:
    for number, value in _fields(data):
        match number:
            case 1:
                return None
            case 2:
                return bool(value)
            case 3:
                return _signed(value)
            case 4:
                return UInt(value)
            case 5:
                return struct.unpack("<d", value)[0]
            case 6:
                return value.decode()
            case 7:
                return value
    return None


class _Reader:
    """Reader of expressions. ``names`` and ``constants`` hold the checker's meanings of identifiers, by id."""

    def __init__(self, names: dict[int, str], constants: dict[int, Any]) -> None:
        self._names = names
        self._constants = constants

    def expr(self, data: bytes) -> Expr:
        expr_id = 0
        kind, body = 0, b""
        for number, value in _fields(data):
            if number == 2:
                expr_id = value
            else:
                kind, body = number, value
        match kind:
            case 3:
                return Constant(expr_id, _constant(body))
            case 4:
                if expr_id in self._constants:
                    return Constant(expr_id, self._constants[expr_id])
                return Ident(expr_id, self._names.get(expr_id) or dict(_fields(body))[1].decode())
            case 5:
                found = dict(_fields(body))
                if expr_id in self._names:
                    return Ident(expr_id, self._names[expr_id])
                return Select(expr_id, self.expr(found[1]), found[2].decode(), bool(found.get(3, 0)))
            case 6:
                return self._call(expr_id, body)
            case 7:
                return self._list(expr_id, body)
            case 8:
                return self._map(expr_id, body)
            case 9:
                found = dict(_fields(body))
                return Comprehension(
                    expr_id,
                    found.get(1, b"").decode(),
                    found.get(8, b"").decode(),
                    self.expr(found[2]),
                    found.get(3, b"").decode(),
                    *(self.expr(found[number]) for number in (4, 5, 6, 7)),
                )
        raise ValueError(f"checked expression: unknown kind of expression {kind}")

    def _call(self, expr_id: int, body: bytes) -> Call:
        target: list[Expr] = []
        args: list[Expr] = []
        function = ""
        for number, value in _fields(body):
            if number == 1:
                target.append(self.expr(value))
            elif number == 2:
                function = value.decode()
            else:
                args.append(self.expr(value))
        return Call(expr_id, function, (*target, *args), bool(target))

    def _list(self, expr_id: int, body: bytes) -> ListExpr:
        elements: list[Expr] = []
        optional: list[int] = []
        for number, value in _fields(body):
            if number == 1:
                elements.append(self.expr(value))
            elif isinstance(value, int):
                optional.append(value)
            else:  # packed
                at = 0
                while at < len(value):
                    index, at = _varint(value, at)
                    optional.append(index)
        return ListExpr(expr_id, tuple(elements), frozenset(optional))

    def _map(self, expr_id: int, body: bytes) -> MapExpr:
        message = ""
        entries: list[MapEntry] = []
        for number, value in _fields(body):
            if number == 1:
                message = value.decode()
            else:
                found = dict(_fields(value))
                key = self.expr(found[3]) if 3 in found else Constant(found.get(1, 0), found[2].decode())
                entries.append(MapEntry(key, self.expr(found[4]), bool(found.get(5, 0))))
        return MapExpr(expr_id, message, tuple(entries))


_PRIMITIVES: Final = {1: "bool", 2: "int", 3: "uint", 4: "double", 5: "string", 6: "bytes"}
_WELL_KNOWN: Final = {1: "any", 2: "google.protobuf.Timestamp", 3: "google.protobuf.Duration"}


def _type(data: bytes) -> str:
    """Return a type as upstream writes it in messages."""
    for number, value in _fields(data):
        match number:
            case 1:
                return "dyn"
            case 2:
                return "null_type"
            case 3:
                return _PRIMITIVES[value]
            case 4:
                return f"wrapper({_PRIMITIVES[value]})"
            case 5:
                return _WELL_KNOWN[value]
            case 6:
                return f"list({_type(dict(_fields(value)).get(1, b''))})"
            case 7:
                found = dict(_fields(value))
                return f"map({_type(found.get(1, b''))}, {_type(found.get(2, b''))})"
            case 9 | 10:
                return str(value.decode())
            case 11:
                return f"type({_type(value)})"
            case 12:
                return "error"
            case 14:
                params = [_type(part) for kind, part in _fields(value) if kind == 2]
                name = dict(_fields(value))[1].decode()
                return f"{name}({', '.join(params)})" if params else name
    return "dyn"
