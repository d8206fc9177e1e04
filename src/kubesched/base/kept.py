"""Memory of things made from texts that come again, bounded in bytes however long the texts are.

Texts come from users' objects and from peers. A bound on their number alone is none: 4,096 texts of a megabyte are 4 GB. When the
bound is reached everything is forgotten; what is needed still is made again. Callers: whatever reads quantities, names, times and paths.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, Generic, TypeVar

__all__ = ["Kept", "remembered"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T", str, bytes)

#: Bytes that an entry takes besides its text.
_ENTRY: Final = 64
#: A text is kept that has at most this part of all bytes: one of them does not drive out the others.
_PART: Final = 16


class Kept(dict[K, V], Generic[K, V]):
    """A dictionary of things that can be made again. Add with :meth:`keep`."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most = self._left = most_bytes

    def keep(self, key: K, value: V, size: int) -> V:
        """Add an entry whose texts have ``size`` bytes, unless that is too many; the value."""
        size += _ENTRY
        if size <= self._most // _PART:
            if size > self._left:
                self.clear()
            self._left -= size
            self[key] = value
        return value

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._left = self._most


def remembered(most_bytes: int) -> Callable[[Callable[[T], V]], Callable[[T], V]]:
    """Have a function of a text remember its results, for texts of so many bytes in all. What it raises is not remembered."""

    def decorate(function: Callable[[T], V]) -> Callable[[T], V]:
        known: Kept[T, V] = Kept(most_bytes)

        @wraps(function)
        def look_up(text: T) -> V:
            try:
                return known[text]
            except KeyError:
                return known.keep(text, function(text), len(text))

        return look_up

    return decorate
