"""Tables in CSV, plain or gzipped, read line by line: every bad value is reported by file, line and column.

Callers: the readers of traces.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO, TypeVar

__all__ = ["UNREADABLE", "Cells", "TraceError", "cannot_be_read", "open_text", "read_table"]

_MOST_PROBLEMS: Final = 20
_GZIP: Final = b"\x1f\x8b"
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")

#: What reading raises for a file that is missing, or is a damaged archive.
UNREADABLE: Final = (OSError, EOFError, zlib.error)

_Row = TypeVar("_Row")


class TraceError(ValueError):
    """A trace that cannot be used; ``problems`` are single lines that name file, line and column."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        shown = problems[:_MOST_PROBLEMS]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown)} more")
        super().__init__("\n".join(shown))


class Cells:
    """One line of a table; problems are collected."""

    def __init__(self, where: str, values: Mapping[str, str], names: set[str], problems: list[str]) -> None:
        self.where = where
        self._values = values
        self._names = names
        self._problems = problems

    def problem(self, column: str, value: str, right: str) -> None:
        self._problems.append(f"{self.where}: column {column}: {value!r}; expected {right}")

    def text(self, column: str) -> str:
        """The value without blanks around it; empty for a column that the table lacks."""
        return self._values.get(column, "").strip()

    def name(self, column: str) -> str:
        """A name that no earlier line has."""
        text = self.text(column)
        if not text:
            self.problem(column, text, "a name")
        elif text in self._names:
            self.problem(column, text, "a name that no earlier line has")
        self._names.add(text)
        return text

    def number(self, column: str) -> int:
        """A whole number of 0 or more; -1 when it is none, which is reported."""
        text = self.text(column)
        if not (text.isascii() and text.isdecimal()):
            self.problem(column, text, "a whole number of 0 or more")
            return -1
        return int(text)

    def amount(self, column: str, blank: float | None = None) -> float:
        """A number of 0 or more, such as 29.5; ``blank`` where there is none. 0 when it is bad, which is reported."""
        text = self.text(column)
        if not text and blank is not None:
            return blank
        value = float(text) if _NUMBER.fullmatch(text) else math.inf
        if not math.isfinite(value):
            self.problem(column, text, "a number of 0 or more")
            return 0.0
        return value

    def time(self, column: str) -> float | None:
        """Seconds of 0 or more; None where there is no value."""
        return self.amount(column) if self.text(column) else None


def open_text(path: Path) -> TextIO:
    """A file as text; gzipped ones are recognised by their content."""
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP
    if zipped:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def cannot_be_read(path: Path, error: Exception) -> TraceError:
    """For UNREADABLE errors."""
    return TraceError([f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"])


def read_table(
    path: str | Path,
    columns: Sequence[str],
    make: Callable[[Cells], _Row | None],
    *,
    header: bool = True,
    limit: int | None = None,
) -> list[_Row]:
    """All rows that ``make`` returns for the lines of a table, at most for the first ``limit`` lines.

    ``columns`` must be there. Without ``header``, they are the columns in order, and a first line that names them is skipped.

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
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError([f"{path}: is no table in CSV: {error}"]) from error
    if problems:
        raise TraceError(problems)
    if not lines:
        raise TraceError([f"{path}: holds no line below the header" if header else f"{path}: is empty"])
    return rows


def _lines(
    path: Path, file: TextIO, columns: Sequence[str], header: bool, problems: list[str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    reader = csv.reader(file)
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
