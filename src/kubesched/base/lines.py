"""Lines and aligned columns for people. Nothing here writes anywhere: the command line prints the lines, in colour on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

__all__ = ["Line", "Style", "columns", "printable", "table", "title"]

Style = Literal["", "title", "dim", "good", "warn", "bad"]

#: Characters to which a text may be shortened.
_SHORTEST: Final = 12


def printable(text: str, *, keep: str = "") -> str:
    """Return a text in which characters that could change a terminal are escaped, and other white space is a blank.

    Characters of ``keep`` stay. Texts of objects, plugins and other servers may hold escape sequences.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char in keep or char.isprintable()
        else " "
        if char.isspace()
        else char.encode("unicode_escape").decode()
        for char in text
    )


class Line(NamedTuple):
    """Line of output, with its style on a terminal."""

    text: str
    style: Style = ""


def columns(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), width: int | None = None
) -> list[str]:
    """Return aligned columns, two blanks apart; ``right`` are the columns that hold numbers.

    With a ``width``, the longest texts (not numbers) are shortened in the middle until the lines fit, but not below
    ``_SHORTEST`` characters.
    """
    table = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(head))]
    if width is not None:
        texts = [index for index in range(len(head)) if index not in right]
        while texts and sum(widths) + 2 * (len(widths) - 1) > width:
            longest = max(texts, key=lambda index: widths[index])
            if widths[longest] <= _SHORTEST:
                break
            widths[longest] -= 1
        table = [[_shortened(cell, limit) for cell, limit in zip(row, widths, strict=True)] for row in table]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def title(text: str) -> list[Line]:
    """Return the heading of a section, with a blank line before it."""
    return [Line(""), Line(text, "title")]


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (), width: int | None = None
) -> list[Line]:
    """Return :func:`columns` as lines, the head dimmed."""
    lines = columns(head, rows, right=right, width=width)
    return [Line(lines[0], "dim"), *(Line(text) for text in lines[1:])]
