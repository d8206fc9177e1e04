"""Forms of the objects in an answer: as stored, their metadata alone, or rows of a table.

Caller: :mod:`.reading`. The columns are in ``columns.txt``, which describes the syntax of its lines. Kinds without an
entry show name and age; custom resources have their own columns.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, Final, NamedTuple

import msgspec

from kubesched.api.kinds import EVENTS
from kubesched.api.wire import ApiError, Item

from ..schema import descriptions, encode, table_lines
from .answers import whole
from .calls import Call
from .catalog import Column as DefinedColumn
from .cells import READERS, Data, age_of
from .jsonpath import find

__all__ = ["Form", "Layout", "form_of", "layouts"]

#: Text of a cell that cannot be computed.
INVALID: Final = "<invalid>"
_LINE: Final = re.compile(r"(\+?)([^:=]+?)(?::(\w+))?(?: = (.*))?")
_log = logging.getLogger("kubesched.cluster")


# -- forms ---------------------------------------------------------------------------------------------------


def form_of(call: Call) -> Form:
    """Return the form of objects that a request wants.

    Raises:
        ApiError: 400, when ``includeObject`` is not ``Metadata``, ``Object`` or ``None``.
    """
    transform = call.form.transform
    return Form(call) if not transform else _Table(call) if transform == "Table" else _Metadata(call)


class Form:
    """Form of objects as stored, in the served version."""

    #: Member of a list that has its objects.
    member = "items"

    def __init__(self, call: Call) -> None:
        self._resource = resource = call.resource
        #: True if objects are copied for each answer; otherwise their stored bytes are sent.
        self.copies = type(self) is not Form or resource.version != resource.kind.version or resource.kind is EVENTS
        self._meta = f"meta.k8s.io/{call.form.version or 'v1'}"

    def object(self, item: Item) -> bytes:
        """Return the bytes of one object, alone or in an event."""
        return self._resource.outward(item.raw)

    def bookmark(self, item: Item) -> bytes:
        """Return the object of a bookmark, of which only the version counts."""
        return self.object(item)

    def head(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return a list without its objects; ``metadata`` is the metadata of the list."""
        kind, version = f"{self._resource.kind.kind}List", self._resource.api_version
        return {"kind": kind, "apiVersion": version, "metadata": metadata}

    def part(self, items: Sequence[Item]) -> bytes:
        """Return the bytes of some objects of a list, separated by commas."""
        return b",".join([self.object(item) for item in items])


class _Head(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_decode_head: Final = msgspec.json.Decoder(_Head).decode


class _Metadata(Form):
    def object(self, item: Item) -> bytes:
        metadata = bytes(_decode_head(item.raw).metadata)
        return b'{"kind":"PartialObjectMetadata","apiVersion":"%b","metadata":%b}' % (self._meta.encode(), metadata)

    def head(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {"kind": "PartialObjectMetadataList", "apiVersion": self._meta, "metadata": metadata}


@lru_cache(maxsize=1 << 12)
def _report(kind: str, key: str, uid: str, version: int, problem: str) -> None:
    """Log why the row of an object could not be made. The cache keeps a version from being logged twice."""
    _log.warning("%s %s: cannot be shown as a table row: %s", kind, key, problem)


class _Row(msgspec.Struct):
    cells: list[Any]
    object: msgspec.Raw | None


class _Table(_Metadata):
    """Form of tables, for kubectl. Columns are sent once."""

    member = "rows"

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        resource, include = call.resource, call.query.text("includeObject")
        if include not in ("", "Metadata", "Object", "None"):
            raise ApiError.bad_request(f'unrecognized includeObject value: "{include}"; use Metadata, Object or None')
        forms = {"None": None, "Object": Form(call)}
        self._included: Form | None = forms.get(include, _Metadata(call))
        self._clock = call.store.clock
        columns = [one for one in resource.defined.columns if one.name and one.path] if resource.defined else []
        known = layouts()
        self._layout = _defined_layout(columns) if columns else known.get(resource.kind.group_resource, known["*"])
        words = descriptions()
        self._headers: list[dict[str, Any]] = [
            {
                "name": column.title,
                "type": column.type,
                "format": "name" if column.title == "Name" else "",
                "description": words.get(f"*.{column.title}") or f"{column.title} of the {resource.kind.kind}.",
                "priority": column.priority,
            }
            for column in self._layout.columns
        ]

    def object(self, item: Item) -> bytes:
        head = self.head({"resourceVersion": str(item.resource_version)})
        self._headers = []
        return whole(head, "rows", [self.part([item])])

    def bookmark(self, item: Item) -> bytes:
        row = _Row([], msgspec.Raw(super().object(item)))
        return encode({**self.head({}), "columnDefinitions": [], "rows": [row]})

    def head(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {"kind": "Table", "apiVersion": self._meta, "metadata": metadata, "columnDefinitions": self._headers}

    def part(self, items: Sequence[Item]) -> bytes:
        now, shown = self._clock.now(), self._included
        rows = [_Row(self._cells(item, now), msgspec.Raw(shown.object(item)) if shown else None) for item in items]
        return encode(rows)[1:-1]

    def _cells(self, item: Item, now: float) -> list[Any]:
        """Return the row of an object. Failed cells show :data:`INVALID`: one object must not fail a list."""
        data = msgspec.json.decode(item.raw)
        try:
            return self._layout.cells(data, now)
        except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
            _report(item.kind.kind, item.key, item.uid, item.resource_version, repr(error))
            return [item.name if column.title == "Name" else INVALID for column in self._layout.columns]


# -- columns ---------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """Column of a table. ``type`` is OpenAPI's; ``priority`` 1 means only in wide output; ``cell`` reads an object."""

    title: str
    priority: int = 0
    type: str = "string"
    cell: Callable[[Data, float], Any] | None = None


class Layout(NamedTuple):
    """Columns of a kind, and the reader of whole rows if there is one."""

    columns: tuple[Column, ...]
    row: Callable[[Data, float], list[Any]] | None = None

    def cells(self, data: Data, now: float) -> list[Any]:
        """Return the row of an object."""
        if self.row is not None:
            return self.row(data, now)
        return [column.cell(data, now) if column.cell is not None else None for column in self.columns]


@cache
def layouts() -> dict[str, Layout]:
    """Return layouts by group resource; ``*`` is for all others."""
    found: dict[str, Layout] = {}
    shared: dict[str, Column] = {}
    names: list[str] = []
    for line in table_lines("columns.txt", __package__):
        if line.startswith("## "):
            heading, _, row = line[3:].partition(" = ")
            names = heading.split()
            found |= dict.fromkeys(names, Layout((), READERS[row] if row else None))
        else:
            column = _column(line, shared)
            if names == ["*"]:
                shared[column.title] = column
            for name in names:
                found[name] = found[name]._replace(columns=(*found[name].columns, column))
    return found


def _column(line: str, shared: dict[str, Column]) -> Column:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"columns.txt: {line!r} is no column")
    wide, title, type_, text = match.groups()
    if text is None:
        return shared.get(title, Column(title, int(bool(wide)), type_ or "string"))
    name, *arguments = text.split()
    cell: Callable[[Data, float], Any]
    if reader := READERS.get(name):
        cell = lambda data, now: reader(data, now, *arguments)  # noqa: E731
    else:
        path, mark, default = text.partition(" ? ")
        absent = (msgspec.json.decode(default) if type_ else default.removeprefix("-")) if mark else "<none>"
        cell = partial(_value, path, absent, str if type_ is None else lambda value: value)
    return Column(title, int(bool(wide)), type_ or "string", cell)


def _value(path: str, default: Any, shown: Callable[[Any], Any], data: Data, now: float) -> Any:
    """Return the value at a path, or the default if it is absent or empty."""
    value = find(data, path)
    return default if value is None or value == "" else shown(value)


def _defined_layout(columns: Sequence[DefinedColumn]) -> Layout:
    """Return the layout of a definition: name, then its columns.

    Upstream shows Age only if a column defines it; so does this table.
    """
    types = ("integer", "number", "boolean", "date")
    shown = (
        Column(one.name, one.priority, one.type if one.type in types else "string", partial(_defined_cell, one))
        for one in columns
    )
    return Layout((layouts()["*"].columns[0], *shown))


def _defined_cell(column: DefinedColumn, data: Any, now: float) -> Any:
    value = find(data, column.path)
    return age_of(value, now) if column.type == "date" and value is not None else value
