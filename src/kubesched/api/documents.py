"""Result of reading a YAML or JSON text, and the mistake it may hold. Made by :mod:`.yamltext` and :mod:`.jsontext`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["MAX_DEPTH", "MAX_DUPLICATES", "TOO_DEEP", "Document", "Duplicate", "TextError", "TooManyValuesError"]

#: Most levels of nested lists and mappings.
MAX_DEPTH: Final = 200
#: Most duplicate keys that are reported. Each holds its path, which may be long.
MAX_DUPLICATES: Final = 100
TOO_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep"


class TextError(ValueError):
    """The text cannot be read.

    ``problem`` is the reason, in upstream's words if there are any. ``line`` counts from 1; 0 if it is unknown.
    ``details`` explain further. ``document`` is the number of the document in a YAML stream, from 1; 0 for JSON.
    ``format`` is YAML or JSON for text that is not in that format, empty for text that breaks another rule. ``start``
    is the line where the document begins; 0 if it is unknown.
    """

    start = 0

    def __init__(self, problem: str, line: int = 0, *details: str, document: int = 1, format: str = "") -> None:  # noqa: A002
        self.problem = problem
        self.line = line
        self.details = details
        self.document = document
        self.format = format
        super().__init__(f"line {line}: {problem}" if line else problem)

    def in_file(self, source: str) -> str:
        """Return the message for a person: file, document, line and problem."""
        places = [f"document {self.document}"] if self.document else []
        places += [f"line {self.line}"] if self.line else []
        what = f"not valid {self.format}: {self.problem}" if self.format else self.problem
        return ": ".join([source, *([", ".join(places)] if places else []), what])


class TooManyValuesError(TextError):
    """The text has more values, in all its objects and lists together, than allowed; or too long names."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Key given twice in one mapping: its line (0 for JSON), and its path, such as ``spec.containers[0].name``."""

    line: int
    key: str
    path: str


@dataclass(slots=True)
class Document:
    """Plain data of a document, its duplicate keys, and the lines of its values."""

    data: Any = None
    duplicates: list[Duplicate] = field(default_factory=list)
    number: int = 1
    #: Lines where the document and its value begin; 0 for JSON.
    start: int = 0
    line: int = 0
    #: Lines of the members of each mapping and list, by the container's ``id``. ``data`` keeps the containers alive.
    lines: dict[int, dict[Any, int]] = field(default_factory=dict)

    def line_of(self, *path: str | int) -> int:
        """Return the line of the deepest value of ``path`` that exists, from 1; 0 for JSON."""
        line, value = self.line, self.data
        for part in path:
            found = self.lines.get(id(value), {}).get(part)
            if found is None:
                break
            line, value = found, value[part]
        return line

    def refuse_duplicates(self) -> None:
        """Refuse duplicate keys.

        Raises:
            TextError: if a key was given twice.
        """
        for found in self.duplicates:
            raise TextError(f"key {found.key!r} is given twice; keep one of them", found.line, document=self.number)
