"""Reader of files with unreadable documents: it collects the error of each, and goes on with the next document.

Caller: the reader of manifests, which reports all mistakes of an input in one error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from .documents import Document, TextError
from .yamltext import CONTROLS, as_text, parse_documents, read_documents

__all__ = ["readable_documents"]

#: Beginning of a document.
_MARKER: Final = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
#: Most documents in a file that are not YAML; the rest of the file is not read.
_MOST: Final = 50


def readable_documents(raw: str | bytes, name: str, problems: list[TextError]) -> Iterator[Document]:
    """Read documents like :func:`.yamltext.read_documents`, but add errors to ``problems`` instead of raising them.

    A document that is not YAML ends at the next line ``---``.
    """
    try:
        if name.endswith(".json"):
            yield from read_documents(raw, name)
            return
        text = as_text(raw)
    except TextError as error:
        problems.append(error)
        return
    # The beginning of the part to be read, the number of lines before it, and the number of documents before it.
    at = lines = done = 0
    for _ in range(_MOST):
        try:
            for document in parse_documents("\n" * lines + text[at:], first=done + 1):
                try:
                    document.refuse_duplicates()
                except TextError as error:
                    problems.append(error)
                else:
                    yield document
            return
        except TextError as error:
            wrong = error
        problems.append(wrong)
        markers = _markers(text, at, lines)
        if wrong.problem == CONTROLS and wrong.line:
            # The parser reads ahead: documents before this one may not have been returned yet.
            done, wrong.document = wrong.document - 1, 0
            at, lines = next(((to, before) for to, before in markers if before + 1 == wrong.start), (at, lines))
            text = _without(text, wrong.line)
            continue
        done = wrong.document
        following = next(((to, before) for to, before in markers if before + 1 > wrong.start), None)
        if following is None:
            return
        at, lines = following
    problems.append(TextError("too many documents are not valid; the rest is not read", document=0))


def _markers(text: str, at: int, lines: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, number of lines before it) of each document that begins after ``at``.

    ``lines`` is the number of lines before ``at``.
    """
    for found in _MARKER.finditer(text, at + 1):
        lines += text.count("\n", at, found.start())
        at = found.start()
        yield at, lines


def _without(text: str, line: int) -> str:
    """Return the text with an empty document in place of the one around a line. Lines and numbers of others stay."""
    begin, end = 0, len(text)
    for at, before in _markers(text, 0, 0):
        if before >= line:
            end = at
            break
        begin = at
    empty = "\n" * text.count("\n", begin, end)
    return f"{text[:begin]}---{empty}{text[end:]}"
