"""Bounded logs of changes, and their followers: a follower gives its reader the changes since the last reading.

The writer appends each change to a :class:`ChangeLog`. A reader that keeps a computed result follows the log with a
:class:`Follower`. It updates the result from the new entries, or rebuilds it when the follower says so.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

__all__ = ["ChangeLog", "Follower"]

T = TypeVar("T")

#: Position of a follower that has to rebuild: before every entry.
_NOWHERE: Final = -1


class ChangeLog(Generic[T]):
    """Log of the last changes: at least ``keep`` entries (fewer only at the start), at most twice as many."""

    __slots__ = ("_base", "_entries", "_keep")

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._entries: list[T] = []
        #: Number of entries that were dropped.
        self._base = 0

    @property
    def position(self) -> int:
        """Number of entries ever appended; it grows with every entry."""
        return self._base + len(self._entries)

    def append(self, entry: T) -> None:
        entries = self._entries
        entries.append(entry)
        if len(entries) > 2 * self._keep:
            del entries[: self._keep]
            self._base += self._keep

    def forget(self) -> None:
        """Make every follower rebuild, even one that has read all entries: everything may have changed."""
        self._base += len(self._entries) + 1
        self._entries.clear()


class Follower(Generic[T]):
    """One reader of a log. A new follower has to rebuild."""

    __slots__ = ("_log", "_position")

    def __init__(self, log: ChangeLog[T]) -> None:
        self._log = log
        self._position = _NOWHERE

    @classmethod
    def from_now(cls, log: ChangeLog[T]) -> Follower[T]:
        """Return a follower that knows everything up to now."""
        follower = cls(log)
        follower.skip()
        return follower

    @property
    def is_behind(self) -> bool:
        """True if :meth:`read` would return an entry or None."""
        log = self._log
        return self._position != log._base + len(log._entries)

    def read(self) -> list[T] | None:
        """Return the entries since the last call, oldest first. None: rebuild, the log no longer has all of them."""
        log = self._log
        entries, start = log._entries, self._position - log._base
        self._position = log._base + len(entries)
        return entries[start:] if start >= 0 else None

    def skip(self) -> None:
        """Mark everything up to now as known."""
        self._position = self._log._base + len(self._log._entries)

    def restart(self) -> None:
        """Return None from the next :meth:`read`, because the entries just read could not be used."""
        self._position = _NOWHERE
