"""Tables in CSV, plain or gzipped, read line by line: every bad value is reported by file, line and column.

Callers: the readers of traces.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, TypeVar, cast

from kubesched.api.selectors import is_label_value, is_object_name

__all__ = [
    "ARRIVAL",
    "UNREADABLE",
    "Cells",
    "TraceError",
    "cannot_be_read",
    "not_text",
    "open_text",
    "read_table",
    "shown",
]

#: Annotation of an object that arrives later: a duration such as ``90s`` or ``36h`` after the start.
ARRIVAL: Final = "kubesched.io/arrival"

_MOST_PROBLEMS: Final = 20
_GZIP: Final = b"\x1f\x8b"
_ENCODINGS: Final = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_MOST_DIGITS: Final = 18
_MOST_SHOWN: Final = 60
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")

#: Errors of reading a file that is missing, or is a damaged archive.
UNREADABLE: Final = (OSError, EOFError, zlib.error)

_Row = TypeVar("_Row")


class TraceError(ValueError):
    """Trace that cannot be used; ``problems`` are single lines that name file, line and column."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        shown = problems[:_MOST_PROBLEMS]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown)} more")
        super().__init__("\n".join(shown))


def shown(value: str) -> str:
    """Return a value for a message, cut when it is long."""
    return repr(value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}…")


class Cells:
    """Line of a table; problems are collected."""

    def __init__(self, where: str, values: Mapping[str, str], names: set[str], problems: list[str]) -> None:
        self.where = where
        self._values = values
        self._names = names
        self._problems = problems

    def problem(self, column: str, value: str, right: str) -> None:
        self._problems.append(f"{self.where}: column {column}: {shown(value)}; expected {right}")

    def text(self, column: str) -> str:
        """Return the value without blanks around it; empty for a column that the table lacks."""
        return self._values.get(column, "").strip()

    def name(self, column: str) -> str:
        """Return a name for a Kubernetes object that no earlier line has."""
        text = self.text(column)
        if not text:
            self.problem(column, text, "a name")
        elif not is_object_name(text):
            self.problem(column, text, "a name of lower case letters, digits, - and .")
        elif text in self._names:
            self.problem(column, text, "a name that no earlier line has")
        self._names.add(text)
        return text

    def label(self, column: str, *, several: bool = False) -> tuple[str, ...]:
        """Return the value of a label, or ``several`` of them separated by vertical bars. Empty ones are left out."""
        values = self.text(column).split("|") if several else [self.text(column)]
        for value in values:
            if not is_label_value(value):
                self.problem(column, value, "letters, digits, -, _ and ., at most 63")
        return tuple(filter(None, values))

    def number(self, column: str) -> int:
        """Return a whole number of 0 or more; -1 when it is none, which is reported."""
        text = self.text(column)
        if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
            self.problem(column, text, "a whole number of 0 or more")
            return -1
        return int(text)

    def amount(self, column: str, blank: float | None = None) -> float:
        """Return a number of 0 or more, such as 29.5; ``blank`` for an empty cell.

        A bad number is reported and counts as 0.
        """
        text = self.text(column)
        if not text and blank is not None:
            return blank
        value = float(text) if _NUMBER.fullmatch(text) else math.inf
        if not math.isfinite(value):
            self.problem(column, text, "a number of 0 or more")
            return 0.0
        return value

    def time(self, column: str) -> float | None:
        """Return seconds of 0 or more; None where there is no value."""
        return self.amount(column) if self.text(column) else None


def _open_bytes(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP
    return cast("BinaryIO", gzip.open(path)) if zipped else path.open("rb")


def open_text(path: Path) -> TextIO:
    """Open a file as text, in UTF-8, or UTF-16 with a byte order mark. Gzip is recognised by the content."""
    with _open_bytes(path) as file:
        encoding = _ENCODINGS.get(file.read(2), "utf-8-sig")
    return io.TextIOWrapper(_open_bytes(path), encoding=encoding, newline="")


def cannot_be_read(path: Path, error: Exception) -> TraceError:
    """Return the error for one of the UNREADABLE errors."""
    return TraceError([f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"])


def not_text(path: Path, error: UnicodeDecodeError) -> TraceError:
    """Return the error for a file that is not text. It names the first such line."""
    if error.encoding.startswith("utf-8"):
        with _open_bytes(path) as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode()
                except UnicodeDecodeError as found:
                    byte = f"byte {line[found.start]:#04x} at column {found.start + 1}"
                    return TraceError([f"{path}:{number}: is no text in UTF-8: {byte}"])
    return TraceError([f"{path}: is no text in {error.encoding.upper()}: {error.reason}"])


def read_table(
    path: str | Path,
    columns: Sequence[str],
    make: Callable[[Cells], _Row | None],
    *,
    header: bool = True,
    limit: int | None = None,
) -> list[_Row]:
    """Return all rows that ``make`` returns for the lines of a table, at most for the first ``limit`` lines.

    ``columns`` must be there. Without ``header``, they are the columns in order, and a first line that names them is
    skipped.

    Raises:
        TraceError: with every problem of the file; no row is returned then.
    """
    path = Path(path)
    problems: list[str] = []
    names: set[str] = set()
    rows: list[_Row] = []
    lines = 0
    try:
        with open_text(path) as file:
            for where, values in _lines(path, file, columns, header, problems):
                if limit is not None and lines >= limit:
                    break
                lines += 1
                made = make(Cells(where, values, names, problems))
                if made is not None:
                    rows.append(made)
    except UNREADABLE as error:
        raise cannot_be_read(path, error) from error
    except UnicodeDecodeError as error:
        raise not_text(path, error) from error
    if problems:
        raise TraceError(problems)
    if not lines:
        raise TraceError([f"{path}: holds no line below the header" if header else f"{path}: is empty"])
    return rows


def _lines(
    path: Path, file: TextIO, columns: Sequence[str], header: bool, problems: list[str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    reader = csv.reader(file)
    try:
        yield from _checked(path, reader, columns, header, problems)
    except csv.Error as error:
        raise TraceError([f"{path}:{reader.line_num}: is no table in CSV: {error}"]) from error


def _checked(
    path: Path, reader: Any, columns: Sequence[str], header: bool, problems: list[str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    names = list(columns)
    if header:
        names = [name.strip() for name in next(reader, [])]
        missing = [name for name in columns if name not in names]
        if missing:
            found = ", ".join(names) or "nothing"
            raise TraceError([f"{path}:1: the header lacks {', '.join(missing)}; it has {found}"])
    for values in reader:
        if not values or (not header and reader.line_num == 1 and [value.strip() for value in values] == names):
            continue
        where = f"{path}:{reader.line_num}"
        if len(values) != len(names):
            if header:
                problems.append(
                    f"{where}: has {'more' if len(values) > len(names) else 'fewer'} values than the header"
                )
            else:
                problems.append(f"{where}: has {len(values)} values; expected {len(names)}: {', '.join(names)}")
            continue
        yield where, dict(zip(names, values, strict=True))
