"""Memory of values that are made from recurring texts. Its size is bounded in bytes, because texts may be long.

The texts come from users' objects and from peers. A bound on the number of entries alone would not do: 4,096 texts of a
megabyte are 4 GB. At the bound everything is forgotten, and values still needed are made again. Callers: the readers of
quantities, names, times and paths.

A long-running process calls :func:`forget` now and then, because most texts of pods never recur once their pods are gone. A text
that is used again before the next call keeps its value, so objects go on sharing it.
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
    """Dictionary of values that can be made again, bounded in bytes. Add with :meth:`keep`.

    ``is_timed``: the texts have times, so that they recur for some seconds only.
    """

    def __init__(self, most_bytes: int, *, is_timed: bool = False) -> None:
        super().__init__()
        self._most = self._left = most_bytes
        self.is_timed = is_timed
        #: Entries that were forgotten last. One of them comes back if its value is made again.
        self._old: dict[K, V] = {}
        _all[id(self)] = self

    def keep(self, key: K, value: V, size: int) -> V:
        """Add an entry whose texts have ``size`` bytes, unless they are too long. Return the value in either case.

        If an equal value was forgotten last, the entry has that one.
        """
        if self._old:
            value = self._old.pop(key, value)
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
        self._old = {}
        self._left = self._most

    def forget(self) -> None:
        """Forget everything but what is used again before the next call. Texts with times are forgotten at once."""
        old = {} if self.is_timed else dict(self)
        self.clear()
        self._old = old


def forget(*, timed_only: bool = False) -> None:
    """Have all memories of the process forget their entries; ``timed_only``: only those of texts with times.

    Values that are in use elsewhere stay as they are.
    """
    for kept in list(_all.values()):
        if kept.is_timed or not timed_only:
            kept.forget()


def remembered(most_bytes: int, *, is_timed: bool = False) -> Callable[[Callable[[T], V]], Callable[[T], V]]:
    """Make a function of a text remember its results.

    All texts together have at most ``most_bytes``; for ``is_timed`` see :class:`Kept`. Errors are not kept.
    """

    def decorate(function: Callable[[T], V]) -> Callable[[T], V]:
        known: Kept[T, V] = Kept(most_bytes, is_timed=is_timed)

        @wraps(function)
        def look_up(text: T) -> V:
            try:
                return known[text]
            except KeyError:
                return known.keep(text, function(text), len(text))

        return look_up

    return decorate
