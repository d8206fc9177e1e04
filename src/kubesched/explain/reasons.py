"""Table of the reasons that kube-scheduler gives, with their meaning and what to do; the rows are in ``reasons.toml``.

Callers: :mod:`.messages`, which takes a message apart, and the page docs/reasons.md, which is made from the rows.
A row's text is a pattern. Matching takes time in proportion to the text, whatever the text is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec

__all__ = ["Found", "Row", "Section", "advice", "could_begin", "filled", "find", "find_all", "sections"]

#: Longest word, in characters, that a part of a pattern stands for; the longest name of Kubernetes has 253.
_LONGEST_WORD: Final = 1024
#: Most characters of a part that are repeated in a meaning.
_LONGEST_SHOWN: Final = 120
_PART: Final = re.compile(r"\{(\w+)(\.\.\.)?\}")


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reason of kube-scheduler.

    Attributes:
        text: the reason; ``{name}`` stands for one word, ``{name...}`` for any text.
        plugins: plugins that give it; empty if the scheduler itself or the API server does.
        points: extension points, or other places, at which it is given.
        codes: status codes it comes with.
        preempt: True if the eviction of other pods may help.
        meaning: one or two sentences, which may name parts of the text.
        todo: what a person can do, best first.
        wakes: events after which the pod is tried again, as ``RESOURCE/ACTION``.
        wraps: True if the last part is a reason with a row of its own.
        older: True if Kubernetes 1.36 no longer writes it.
    """

    text: str
    meaning: str
    todo: list[str]
    points: list[str]
    plugins: list[str] = []
    codes: list[str] = []
    preempt: bool = False
    wakes: list[str] = []
    wraps: bool = False
    older: bool = False


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of one subject."""

    title: str
    row: list[Row]
    about: str = ""


class Found(NamedTuple):
    """Row that a text matches. ``parts``: the text of each part, by name."""

    row: Row
    parts: Mapping[str, str]


class _Pattern:
    """Text of a row, taken apart: ``literals`` with one part between each two."""

    __slots__ = ("literals", "names", "row", "words")

    def __init__(self, row: Row) -> None:
        pieces = _PART.split(row.text)
        self.row = row
        self.literals: Sequence[str] = pieces[::3]
        self.names: Sequence[str] = pieces[1::3]
        #: True for a part that is one word.
        self.words = [not dots for dots in pieces[2::3]]

    def match(self, text: str) -> dict[str, str] | None:
        """Return the parts of a text; None if it does not match. No part is empty."""
        position = len(self.literals[0])
        last = len(text) - len(self.literals[-1])
        if not text.startswith(self.literals[0]) or not text.endswith(self.literals[-1]) or last <= position:
            return None
        found = {}
        for index, name in enumerate(self.names):
            is_last = index == len(self.names) - 1
            # The first place will do: a longer part would hold the same blanks, and leave less for the others.
            end = last if is_last else text.find(self.literals[index + 1], position + 1, last)
            if end <= position or (self.words[index] and not _is_word(text, position, end)):
                return None
            found[name] = text[position:end]
            position = end + len(self.literals[index + 1])
        return found

    def could_begin(self, start: str) -> bool:
        """True if texts that match could begin with ``start``."""
        first = self.literals[0]
        if len(start) <= len(first):
            return first.startswith(start)
        if not self.names or not start.startswith(first):
            return False
        position = len(first)
        for index in range(len(self.names)):
            if position == len(start):
                return True
            literal = self.literals[index + 1]
            end = start.find(literal, position + 1) if literal else -1
            if end < 0:
                # The text ends within this part, or within the literal after it.
                ends = (len(start) - size for size in range(len(literal) or 1) if start.endswith(literal[:size]))
                return not self.words[index] or any(_is_word(start, position, end) for end in ends if end > position)
            if self.words[index] and not _is_word(start, position, end):
                return False
            position = end + len(literal)
        return position == len(start)


def _is_word(text: str, start: int, end: int) -> bool:
    return end - start <= _LONGEST_WORD and not any(map(str.isspace, text[start:end]))


@cache
def sections() -> list[Section]:
    """Return all rows by subject, in reading order.

    Raises:
        msgspec.ValidationError: if the file of the rows is damaged.
    """
    text = files("kubesched.explain").joinpath("reasons.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text)["section"], list[Section])


class _Table:
    """Rows by how their texts begin. ``exact``: by the whole text; ``begun``: by the first character; ``others``."""

    def __init__(self) -> None:
        self.exact: dict[str, Row] = {}
        self.begun: dict[str, list[_Pattern]] = {}
        self.others: list[_Pattern] = []
        self.all = [_Pattern(row) for section in sections() for row in section.row]
        for pattern in self.all:
            if not pattern.names:
                self.exact[pattern.row.text] = pattern.row
            elif pattern.literals[0]:
                self.begun.setdefault(pattern.literals[0][0], []).append(pattern)
            else:
                self.others.append(pattern)

    def found(self, text: str) -> list[Found]:
        text = text.rstrip()  # a value at the end may be empty
        row = self.exact.get(text)
        result = [] if row is None else [Found(row, {})]
        for pattern in [*self.begun.get(text[:1], []), *self.others]:
            parts = pattern.match(text)
            if parts is not None:
                result.append(Found(pattern.row, parts))
        return result


@cache
def _table() -> _Table:
    return _Table()


def find_all(text: str) -> list[Found]:
    """Return every row that a reason matches; rows are written so that it is at most one."""
    return _table().found(text)


def find(text: str) -> Found | None:
    """Return the row that a reason matches, with the parts of its text; None for reasons of plugins outside the tree."""
    found = _table().found(text)
    return found[0] if found else None


def could_begin(start: str) -> list[Row]:
    """Return the rows whose texts can begin like this: for the end of a message that was cut."""
    return [pattern.row for pattern in _table().all if pattern.could_begin(start)]


def advice(plugin: str, text: str) -> Row | None:
    """Return the row of a reason that a plugin gave; None if the text is not one of this plugin.

    ``plugin`` may be empty if it is not known. A row without plugins is of any plugin.
    """
    found = find(text)
    if found is None or (plugin and found.row.plugins and plugin not in found.row.plugins):
        return None
    return found.row


def filled(text: str, parts: Mapping[str, str]) -> str:
    """Return a text of a row with the parts of a reason in it; long parts are shortened."""

    def value(found: re.Match[str]) -> str:
        part = parts.get(found[1])
        if part is None:
            return found[0]
        return part if len(part) <= _LONGEST_SHOWN else f"{part[: _LONGEST_SHOWN - 1]}…"

    return _PART.sub(value, text)
