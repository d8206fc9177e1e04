"""Tables and bare metadata: what kubectl asks for instead of whole objects.

Caller: :mod:`.reading` and :mod:`.watching`. Columns are in :mod:`.columns`; custom resources bring their own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from ...api.wire import ApiError, Item
from ..schema import encode
from .calls import Call
from .cells import age_of
from .columns import Column, Layout, layouts
from .crds import Column as DefinedColumn
from .jsonpath import find

__all__ = ["TableMaker", "metadata_only"]

_DESCRIPTIONS: Final = {
    "Name": "The object's name, unique in its namespace.",
    "Age": "How long ago the object was created.",
    "Status": "How the object fares, in one word.",
    "Ready": "How much of it is ready.",
    "Restarts": "How often its containers were restarted.",
    "Node": "The node it runs on.",
    "IP": "The address it was given.",
}


#: What stands in a cell that cannot be made.
INVALID: Final = "<invalid>"
_log = logging.getLogger("kubesched.cluster")
#: UID and version of objects whose rows could not be made; each is reported once.
_REPORTED: Final[set[tuple[str, int]]] = set()
_MOST_REPORTED: Final = 1 << 12


class _Head(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_head = msgspec.json.Decoder(_Head).decode


class _Row(msgspec.Struct):
    cells: list[Any]
    object: msgspec.Raw | None


def metadata_only(raw: bytes, version: str = "v1") -> bytes:
    """An object cut down to its metadata."""
    metadata = bytes(_head(raw).metadata)
    return (
        b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/'
        + version.encode()
        + b'","metadata":'
        + metadata
        + b"}"
    )


class TableMaker:
    """Makes the tables of one request.

    Raises:
        ApiError: 400, when ``includeObject`` is not ``Metadata``, ``Object`` or ``None``.
    """

    def __init__(self, call: Call) -> None:
        resource, version, include = call.resource, call.form.version, call.query.text("includeObject")
        if include not in ("", "Metadata", "Object", "None"):
            raise ApiError.bad_request(f'unrecognized includeObject value: "{include}"; use Metadata, Object or None')
        self._resource = resource
        self._version = version or "v1"
        self._include = include or "Metadata"
        columns = [one for one in resource.defined.columns if one.name and one.path] if resource.defined else []
        known = layouts()
        self._layout = _defined_layout(columns) if columns else known.get(resource.kind.group_resource, known["*"])

    def head(self, metadata: Mapping[str, Any], *, headers: bool = True) -> dict[str, Any]:
        """A table without its rows; ``metadata`` is the list's."""
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self._version}",
            "metadata": metadata,
            "columnDefinitions": self._headers() if headers else [],
        }

    def rows(self, items: Sequence[Item], now: float) -> bytes:
        """The rows of these objects, with commas between them."""
        return encode([_Row(self._cells(item, now), self._shown(item.raw)) for item in items])[1:-1]

    def _shown(self, raw: bytes) -> msgspec.Raw | None:
        if self._include == "Metadata":
            return msgspec.Raw(metadata_only(raw, self._version))
        return None if self._include == "None" else msgspec.Raw(self._resource.outward(raw))

    def _cells(self, item: Item, now: float) -> list[Any]:
        """The row of an object. What cannot be made of it is shown as such: one object never costs a list."""
        data = msgspec.json.decode(item.raw)
        try:
            return self._layout.cells(data, now)
        except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
            problem = (item.uid, item.resource_version)
            if problem not in _REPORTED:
                if len(_REPORTED) >= _MOST_REPORTED:
                    _REPORTED.clear()
                _REPORTED.add(problem)
                _log.warning("%s %s: cannot be shown as a table row: %r", item.kind.kind, item.key, error)
            return [item.name if column.title == "Name" else INVALID for column in self._layout.columns]

    def bookmark(self, item: Item) -> bytes:
        """A bookmark as a table without cells: only its object counts."""
        row = {"cells": [], "object": msgspec.Raw(metadata_only(item.raw, self._version))}
        table = {"kind": "Table", "apiVersion": f"meta.k8s.io/{self._version}", "metadata": {}}
        return encode({**table, "columnDefinitions": [], "rows": [row]})

    def _headers(self) -> list[dict[str, Any]]:
        return [
            {
                "name": column.title,
                "type": column.type,
                "format": "name" if column.title == "Name" else "",
                "description": _DESCRIPTIONS.get(column.title, f"{column.title} of the {self._resource.kind.kind}."),
                "priority": column.priority,
            }
            for column in self._layout.columns
        ]


def _defined_layout(columns: Sequence[DefinedColumn]) -> Layout:
    """Name, then the definition's columns; its age only when it shows one itself, as upstream."""
    name = layouts()["*"].columns[0]
    types = ("integer", "number", "boolean", "date")
    shown = (
        Column(one.name, one.priority, one.type if one.type in types else "string", partial(_defined_cell, one))
        for one in columns
    )
    return Layout((name, *shown))


def _defined_cell(column: DefinedColumn, data: Any, now: float) -> Any:
    value = find(data, column.path)
    return age_of(value, now) if column.type == "date" and value is not None else value
