"""The columns of table output, kind by kind: read once from ``columns.txt``, which says how its lines are written.

Kinds without an entry show their name and age. Caller: :mod:`.tables`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final, NamedTuple

import msgspec

from . import cells
from .cells import Data
from .jsonpath import find
from .pod_cells import pod

__all__ = ["Column", "Layout", "layouts"]

_READERS: Final = {**cells.READERS, "pod": pod}
_LINE: Final = re.compile(r"(\+?)([^:=]+?)(?::(\w+))?(?: = (.*))?")


class Column(NamedTuple):
    """One column. ``type`` is OpenAPI's; ``priority`` 1 means only in wide output; ``cell`` reads an object."""

    title: str
    priority: int = 0
    type: str = "string"
    cell: Callable[[Data, float], Any] | None = None


class Layout(NamedTuple):
    """The columns of a kind and, when one reader makes whole rows, that reader."""

    columns: tuple[Column, ...]
    row: Callable[[Data, float], list[Any]] | None = None

    def cells(self, data: Data, now: float) -> list[Any]:
        """The row of an object."""
        if self.row is not None:
            return self.row(data, now)
        return [column.cell(data, now) if column.cell is not None else None for column in self.columns]


@cache
def layouts() -> dict[str, Layout]:
    """Layouts by group resource; ``*`` is for all others."""
    found: dict[str, Layout] = {}
    shared: dict[str, Column] = {}
    names: list[str] = []
    for line in files(__package__).joinpath("columns.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading, _, row = line[3:].partition(" = ")
            names = heading.split()
            found |= dict.fromkeys(names, Layout((), _READERS[row] if row else None))
        elif line and not line.startswith("#"):
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
    if name in _READERS:
        cell = partial(_called, _READERS[name], arguments)
    else:
        path, mark, default = text.partition(" ? ")
        absent = (msgspec.json.decode(default) if type_ else default.removeprefix("-")) if mark else "<none>"
        cell = partial(_value, path, absent, not type_)
    return Column(title, int(bool(wide)), type_ or "string", cell)


def _called(function: Callable[..., Any], arguments: list[str], data: Data, now: float) -> Any:
    return function(data, now, *arguments)


def _value(path: str, default: Any, is_text: bool, data: Data, now: float) -> Any:
    """The value at a path; what is absent or empty has a default."""
    value = find(data, path)
    if value is None or value == "":
        return default
    return str(value) if is_text else value
