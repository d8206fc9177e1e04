"""Memory of values that are made from recurring texts. Its size is bounded in bytes, because texts may be long.

The texts come from users' objects and from peers. A bound on the number of entries alone would not do: 4,096 texts of a
megabyte are 4 GB. At the bound everything is forgotten, and values still needed are made again. A long-running process calls
:func:`forget` now and then, because most texts of pods never recur once their pods are gone. Callers: the readers of
quantities, names, times and paths.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

__all__ = ["Kept", "forget", "remembered"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T", str, bytes)

#: Bytes that an entry takes in addition to its text.
_ENTRY: Final = 64
#: Largest entry, as a fraction of all bytes (1/16): one long text must not drive out all others.
_PART: Final = 16
#: All memories of the process, by identity.
_all: Final[WeakValueDictionary[int, Kept[Any, Any]]] = WeakValueDictionary()


class Kept(dict[K, V], Generic[K, V]):
    """Dictionary of values that can be made again, bounded in bytes. Add with :meth:`keep`."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most = self._left = most_bytes
        _all[id(self)] = self

    def keep(self, key: K, value: V, size: int) -> V:
        """Add an entry whose texts have ``size`` bytes, unless they are too long. Return the value in either case."""
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


def forget() -> None:
    """Empty all memories of the process. Values that are in use elsewhere stay as they are."""
    for kept in list(_all.values()):
        kept.clear()


def remembered(most_bytes: int) -> Callable[[Callable[[T], V]], Callable[[T], V]]:
    """Make a function of a text remember its results.

    All texts together have at most ``most_bytes``. Errors are not kept.
    """

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
