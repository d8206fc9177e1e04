"""What changed since I last looked: bounded logs, and the node table's change journal, which is one.

A reader keeps a position and reads what came after it. A reader that fell behind the kept part must
start over.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NODE_CHANGED", "PODS_CHANGED", "Journal", "Log"]

#: The node's pods changed: requested amounts, ports, pod count.
PODS_CHANGED: Final = 0
#: The node object changed, came or went.
NODE_CHANGED: Final = 1

_KEEP: Final = 1 << 16


class Log:
    """The last ``keep`` entries or more, at most twice as many."""

    __slots__ = ("_base", "_entries", "_keep")

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._base = 0
        self._entries: list[int] = []

    @property
    def position(self) -> int:
        """How many entries were ever written."""
        return self._base + len(self._entries)

    def append(self, entry: int) -> None:
        self._entries.append(entry)
        if len(self._entries) > 2 * self._keep:
            self._cut()

    def _cut(self) -> None:
        del self._entries[: self._keep]
        self._base += self._keep

    def forget(self) -> None:
        """Drop all entries, so that every reader has to start over, also one that had read everything."""
        self._base += len(self._entries) + 1
        self._entries = []

    def since(self, position: int) -> list[int] | None:
        """The entries after ``position``, oldest first, or None when they are no longer all kept."""
        start = position - self._base
        return self._entries[start:] if start >= 0 else None


class Journal(Log):
    """Every write to a row of the node table, as ``row * 2 + kind``."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_KEEP)

    def write(self, row: int, kind: int) -> None:
        entries = self._entries
        entries.append(row * 2 + kind)
        if len(entries) > 2 * _KEEP:
            self._cut()
