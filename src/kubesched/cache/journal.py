"""What changed since I last looked: the node table's change journal.

Every write to a row appends the row; a reader keeps a position and asks for what came after it. A reader
that fell behind the kept part is told to start over.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NODE_CHANGED", "PODS_CHANGED", "Journal"]

#: The node's pods changed: requested amounts, ports, pod count.
PODS_CHANGED: Final = 0
#: The node object changed, came or went.
NODE_CHANGED: Final = 1

_KEEP: Final = 1 << 16


class Journal:
    """A bounded log of ``row * 2 + kind`` entries. ``position`` is the number of entries ever written."""

    __slots__ = ("_base", "_entries")

    def __init__(self) -> None:
        self._base = 0
        self._entries: list[int] = []

    @property
    def position(self) -> int:
        return self._base + len(self._entries)

    def write(self, row: int, kind: int) -> None:
        entries = self._entries
        entries.append(row * 2 + kind)
        if len(entries) > 2 * _KEEP:
            del entries[:_KEEP]
            self._base += _KEEP

    def since(self, position: int) -> list[int] | None:
        """The entries after ``position``, oldest first, or None when they are no longer all kept."""
        start = position - self._base
        return self._entries[start:] if start >= 0 else None
