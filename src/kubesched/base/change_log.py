"""Bounded logs of changes, and their followers: a reader learns of the changes since it last read.

The writer appends each change to a :class:`ChangeLog`. A reader that keeps something it computed has a :class:`Follower`
of the log: it reads what is new and computes that part again, or everything when the follower says so.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

__all__ = ["ChangeLog", "Follower"]

T = TypeVar("T")

#: The position of a follower that has to rebuild: before every entry.
_NOWHERE: Final = -1


class ChangeLog(Generic[T]):
    """The last ``keep`` entries or more, at most twice as many."""

    __slots__ = ("_base", "_entries", "_keep")

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._entries: list[T] = []
        #: How many entries were dropped.
        self._base = 0

    @property
    def position(self) -> int:
        """A number that grows with every entry."""
        return self._base + len(self._entries)

    def append(self, entry: T) -> None:
        entries = self._entries
        entries.append(entry)
        if len(entries) > 2 * self._keep:
            del entries[: self._keep]
            self._base += self._keep

    def forget(self) -> None:
        """Everything may have changed: all followers have to rebuild, also those that had read everything."""
        self._base += len(self._entries) + 1
        self._entries.clear()


class Follower(Generic[T]):
    """One reader of a log. A new one has to rebuild."""

    __slots__ = ("_log", "_position")

    def __init__(self, log: ChangeLog[T]) -> None:
        self._log = log
        self._position = _NOWHERE

    @classmethod
    def from_now(cls, log: ChangeLog[T]) -> Follower[T]:
        """A follower that knows everything up to now."""
        follower = cls(log)
        follower.skip()
        return follower

    @property
    def is_behind(self) -> bool:
        """Whether :meth:`read` would give anything, or None."""
        log = self._log
        return self._position != log._base + len(log._entries)

    def read(self) -> list[T] | None:
        """The entries since the last call, oldest first; None: rebuild, the log does not contain all of them."""
        log = self._log
        entries, start = log._entries, self._position - log._base
        self._position = log._base + len(entries)
        return entries[start:] if start >= 0 else None

    def skip(self) -> None:
        """Everything up to now is known."""
        self._position = self._log._base + len(self._log._entries)

    def restart(self) -> None:
        """Rebuild at the next call, because the entries read could not be used."""
        self._position = _NOWHERE
