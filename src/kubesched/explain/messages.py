"""Messages of kube-scheduler, taken apart into reasons: events FailedScheduling and conditions PodScheduled.

    0/216 nodes are available: 3 Insufficient cpu, 5 node(s) had untolerated taint(s). preemption: 0/216 nodes are ...
    └── nodes ────────────────┘└── counted reasons, sorted as text ───────────────────┘└── what PostFilter plugins say ─┘

The format is that of rules/cycle §7.1. Reasons may themselves hold commas, brackets, digits and periods. A list is split at
every comma that a number follows; pieces that are no known reason are joined again where that makes one. Events are cut at
1,024 bytes and end in `` ...``; their last reason is recognised by its beginning, where only one reason begins so.
Caller: ``kubesched explain --message``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, Literal

import msgspec

from .reasons import Found, Row, could_begin, find, sections

__all__ = ["MOST_CHARACTERS", "Message", "Stage", "Told", "read_message"]

#: Characters of a message that are read. A condition of the API server has at most 32,768.
MOST_CHARACTERS: Final = 65_536
#: Reasons of one message that are read.
_MOST_REASONS: Final = 4096
#: Pieces between commas that one reason may consist of.
_MOST_PIECES: Final = 5
#: Texts within texts, such as an error of a plugin within that of a group.
_DEEPEST: Final = 8
#: Characters before the message itself that are left out: columns of ``kubectl describe``.
_LONGEST_LEAD: Final = 400
_CUT: Final = " ..."
_HEADER: Final = re.compile(r"0/(\d{1,9}) nodes are available:")
_COUNT: Final = re.compile(r"[1-9]\d{0,8} ")
_COMMA: Final = re.compile(r", (?=([1-9]\d{0,8}) )")
_PREEMPTION: Final = "preemption: "

#: Where a reason stands: against nodes; about the pod, whatever the node; of plugins after the failure; of preemption.
Stage = Literal["nodes", "pod", "afterwards", "preemption"]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Reason of a message.

    Attributes:
        text: the reason, without its count.
        stage: part of the message in which the reason stands; see :data:`Stage`.
        nodes: number of nodes that have this reason; None if the message gives no count.
        row: its row in the table of reasons; None if there is none.
        parts: texts of the row's parts.
        is_cut: True if the message ends within this reason.
    """

    text: str
    stage: Stage
    nodes: int | None = None
    row: Row | None = None
    parts: Mapping[str, str] = {}
    is_cut: bool = False


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Message of a scheduler. ``nodes``: number of nodes in the cluster, None if it does not say; ``is_cut``: see Told."""

    nodes: int | None
    reasons: list[Told]
    is_cut: bool = False


def read_message(text: str) -> Message:
    """Take a message apart. Any text can be read; a reason without a row stays as it is.

    Texts of more than MOST_CHARACTERS are cut. The time is bounded by the length that is read.
    """
    text = text.strip()
    is_cut = len(text) > MOST_CHARACTERS
    if is_cut:
        text = text[:MOST_CHARACTERS]
    elif text.endswith(_CUT):
        is_cut, text = True, text.removesuffix(_CUT)
    reader = _Reader(is_cut=is_cut)
    reader.read(text, "pod", 0)
    return Message(nodes=reader.nodes, reasons=reader.told[:_MOST_REASONS], is_cut=is_cut)


class _Reader:
    """State of reading one message: reasons ``told`` so far, and the number of ``nodes`` of the first list."""

    def __init__(self, *, is_cut: bool) -> None:
        self.is_cut = is_cut
        self.nodes: int | None = None
        self.told: list[Told] = []

    def read(self, text: str, stage: Stage, depth: int) -> None:
        """Read a message, or a text within one. The message, if it is cut, ends where the text ends."""
        if header := _HEADER.match(text):
            self._read_nodes(text[header.end() :].lstrip(" "), int(header[1]), stage, depth)
            return
        if text.startswith(_PREEMPTION) and depth < _DEEPEST:
            self._read_after(text, depth + 1)
            return
        found = find(text)
        if found is None and (header := _HEADER.search(text, 0, _LONGEST_LEAD)):
            self.read(text[header.start() :], stage, depth + 1)
        elif found is not None and found.row.wraps and depth < _DEEPEST:
            inner = list(found.parts.values())[-1]
            self._tell(text.removesuffix(inner).rstrip(": "), stage, found)
            self.read(inner, stage, depth + 1)
        else:
            self._read_list(text, stage, is_last=True)

    def _read_nodes(self, body: str, nodes: int, stage: Stage, depth: int) -> None:
        """Read the text after ``0/N nodes are available:``."""
        if self.nodes is None:
            self.nodes = nodes
        body, after = _parted(body, is_cut=self.is_cut)
        if _COUNT.match(body):
            self._read_counted(body, nodes, "preemption" if stage == "preemption" else "nodes", is_last=after is None)
        elif body:
            self._read_list(body, stage, is_last=after is None)
        if after and depth < _DEEPEST:
            self._read_after(after, depth + 1)

    def _read_counted(self, body: str, nodes: int, stage: Stage, *, is_last: bool) -> None:
        """Read counted reasons with commas between them. ``is_last``: the message ends here."""
        entries = _entries(body, nodes)
        index = 0
        while index < len(entries) and len(self.told) < _MOST_REASONS:
            count, _, text = entries[index].partition(" ")
            taken, text, found = _first_known([text, *entries[index + 1 : index + _MOST_PIECES]])
            index += taken
            self._tell(text, stage, found, int(count), ends=self.is_cut and is_last and index == len(entries))

    def _read_after(self, text: str, depth: int) -> None:
        """Read the words of PostFilter plugins: reasons with commas between them, and the answer of preemption."""
        at = 0 if text.startswith(_PREEMPTION) else text.find(f", {_PREEMPTION}")
        if at < 0:
            self._read_list(text, "afterwards", is_last=True)
            return
        if at:
            self._read_list(text[:at], "afterwards", is_last=False)
        self.read(text[at:].removeprefix(", ").removeprefix(_PREEMPTION), "preemption", depth)

    def _read_list(self, text: str, stage: Stage, *, is_last: bool) -> None:
        """Read reasons without counts, with commas between them. ``is_last``: the message ends here."""
        pieces = [text] if find(text) is not None else text.split(", ", _MOST_REASONS)
        index = 0
        while index < len(pieces) and len(self.told) < _MOST_REASONS:
            taken, piece, found = _first_known(pieces[index : index + _MOST_PIECES])
            index += taken
            self._tell(piece, stage, found, ends=self.is_cut and is_last and index == len(pieces))

    def _tell(
        self, text: str, stage: Stage, found: Found | None, nodes: int | None = None, *, ends: bool = False
    ) -> None:
        """Note a reason. ``ends``: the message was cut within it, so that its beginning alone must tell which one it is."""
        if not text:
            return
        if ends and text.endswith(".") and (complete := find(text[:-1])):
            # The period may be that of the list; within a value, such as a name, nobody knows.
            text, found, ends = text[:-1], complete, bool(complete.parts)
        if ends:
            possible = could_begin(text)
            possible = [row for row in possible if not row.older] or possible
            if len(possible) != 1:
                found = None
            elif found is None:
                found = Found(possible[0], {})
        row, parts = (None, {}) if found is None else (found.row, found.parts)
        self.told.append(Told(text=text, stage=stage, nodes=nodes, row=row, parts=parts, is_cut=ends))


def _first_known(pieces: list[str]) -> tuple[int, str, Found | None]:
    """Return the fewest pieces that together are a known reason, joined; the first alone if there are none."""
    text = ""
    for taken, piece in enumerate(pieces, 1):
        text = f"{text}, {piece}" if text else piece
        if found := find(text):
            return taken, text, found
    return 1, pieces[0], None


def _entries(body: str, nodes: int) -> list[str]:
    """Split a list of counted reasons at each comma before a number of nodes. No reason counts more than all nodes."""
    found: list[str] = []
    start = 0
    for comma in _COMMA.finditer(body):
        if int(comma[1]) <= nodes and len(found) < _MOST_REASONS * _MOST_PIECES:
            found.append(body[start : comma.start()])
            start = comma.end()
    return [*found, body[start:]]


def _parted(body: str, *, is_cut: bool) -> tuple[str, str | None]:
    """Part the reasons from the words of PostFilter plugins; None if there are none of these.

    Known words part them wherever they stand, as reasons may hold periods. Otherwise the first period parts them.
    """
    if after := _after().search(body):
        return body[: after.start()], body[after.end() :]
    if is_cut:
        head, dot, tail = body.rpartition(". ")
        if dot and any(text.startswith(tail) for text in _words_after()):
            return head, ""  # too little is left to say which words they are
        return body, None
    if body.endswith("."):
        return body[:-1], None
    head, dot, tail = body.partition(". ")
    return head, tail if dot else None


@cache
def _words_after() -> tuple[str, ...]:
    """Beginnings of the words of PostFilter plugins."""
    rows = [row for section in sections() for row in section.row]
    return (_PREEMPTION, *(row.text for row in rows if "PostFilter" in row.points and "{" not in row.text))


@cache
def _after() -> re.Pattern[str]:
    """Pattern of the end of a list of reasons before the words of a PostFilter plugin."""
    words = "|".join(f"{re.escape(text)}(?=, |$)" for text in _words_after()[1:])
    return re.compile(rf"\.,? (?={_PREEMPTION}|{words})")
