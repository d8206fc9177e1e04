"""Keys of a table in order. They are sorted when they are read, not when they are written.

    add ──▶ at the end of the order, or to the rest        remove ──▶ noted        read ──▶ one order again

Sorting a table anew for each list takes 60 ms for 100,000 keys; merging the few new keys into the order takes a fifth
of that. When more keys are removed than are left, the removed keys are dropped in steps, some with each further
removal. Dropping a hundred thousand at once would take 60 ms.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse
from typing import Final, NamedTuple

from ..schema import Stored

__all__ = ["Key", "KeyOrder", "Moment"]

#: Namespace and name.
Key = tuple[str, str]

#: Most removed keys that are kept until the next read, unless fewer keys are removed than left.
_MOST_GONE: Final = 64
#: Keys that each removal looks through while removed keys are dropped.
_STEP: Final = 64


class KeyOrder:
    """Ordered set of keys. Callers add a key only while it is absent, and remove it only while it is present."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._order = sorted(keys)
        #: Keys that were added out of order.
        self._rest: list[Key] = []
        #: Removed keys that are still in one of the two lists.
        self._gone: set[Key] = set()
        #: Work that drops removed keys, a step at a time; None while they are only noted.
        self._trimming: Iterator[None] | None = None

    def add(self, key: Key) -> None:
        if self._gone and key in self._gone:
            self._gone.remove(key)
        elif not self._rest and (not self._order or self._order[-1] < key):
            self._order.append(key)
        else:
            self._rest.append(key)

    def remove(self, key: Key) -> None:
        self._gone.add(key)
        if self._trimming is None:
            gone = len(self._gone)
            if gone <= _MOST_GONE or 2 * gone <= len(self._order) + len(self._rest):
                return
            self._trimming = self._trim()
        next(self._trimming, None)

    def read(self) -> list[Key]:
        """Return all keys in order. The list changes when keys are added: copy what is needed at once."""
        self.trim()
        if self._rest:
            self._order += self._rest
            self._order.sort()  # fast: the sort detects the part that is in order
            self._rest.clear()
        return self._order

    def trim(self) -> None:
        """Drop all removed keys."""
        while self._trimming is not None or self._gone:  # a second round drops keys removed during the first
            for _ in self._trimming or self._trim():
                pass

    def _trim(self) -> Iterator[None]:
        """Drop the removed keys of both lists, which may become longer meanwhile."""
        gone = self._gone
        for keys in (self._order, self._rest):
            left: list[Key] = []
            start = 0
            while start < len(keys):
                part = keys[start : start + _STEP]
                left += filterfalse(gone.__contains__, part)
                gone.difference_update(part)
                start += len(part)
                if start < len(keys):
                    yield
            keys[:] = left
        self._trimming = None


class Moment(NamedTuple):
    """Objects as they were at one moment, in key order. A view of the present is valid until something changes."""

    keys: Sequence[Key]
    #: Objects of the keys, and perhaps others.
    objects: Mapping[Key, Stored]

    def within(self, namespace: str) -> Moment:
        """Return the objects of one namespace; all when it is empty."""
        if not namespace:
            return self
        start, end = bisect_left(self.keys, (namespace, "")), bisect_left(self.keys, (namespace + "\0", ""))
        return Moment(self.keys[start:end], self.objects)

    def kept(self) -> Moment:
        """Return a copy that later changes do not affect.

        Copying takes a tenth of the time of reading all objects in order.
        """
        return Moment(list(self.keys), dict(self.objects))

    def after(self, key: Key) -> int:
        """Return the index of the first key after ``key``."""
        return bisect_right(self.keys, key)

    def items(self, start: int = 0, end: int | None = None) -> list[Stored]:
        """Return the objects in a range of indexes."""
        objects = self.objects
        return [objects[key] for key in self.keys[start:end]]
