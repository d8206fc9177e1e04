"""The keys of a table in order, sorted when they are read and not when they are written.

    add ──▶ at the end of the order, or to the rest        remove ──▶ noted        read ──▶ one order again

A table that is written to while it is read would otherwise be sorted again for each list: 60 ms for 100,000 keys. Merging the rest
into an order takes a fifth of that. When more keys are removed than are left, the removed ones are dropped: some with each further
removal, as all of a hundred thousand would take 60 ms.
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

#: So many removed keys may be kept until the next read; and no more than there are others.
_MOST_GONE: Final = 64
#: So many keys are looked through with each removal then.
_STEP: Final = 64


class KeyOrder:
    """A set of keys. A key is added once and removed once, in turns."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._order = sorted(keys)
        #: What was added out of order.
        self._rest: list[Key] = []
        #: Removed, but still in one of the two.
        self._gone: set[Key] = set()
        #: Drops them, a step at a time; None while they are only noted.
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
        """All keys in order. The list changes when keys are added: take what is needed of it at once."""
        self.trim()
        if self._rest:
            self._order += self._rest
            self._order.sort()  # which finds out that most of it is in order
            self._rest.clear()
        return self._order

    def trim(self) -> None:
        """Keep nothing of removed keys."""
        while self._trimming is not None or self._gone:  # those removed while they were dropped are left
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
    """Objects as they were at one moment, in the order of their keys; those of the present until something changes."""

    keys: Sequence[Key]
    #: These and perhaps others.
    objects: Mapping[Key, Stored]

    def within(self, namespace: str) -> Moment:
        """Those of one namespace; all when it is empty."""
        if not namespace:
            return self
        start, end = bisect_left(self.keys, (namespace, "")), bisect_left(self.keys, (namespace + "\0", ""))
        return Moment(self.keys[start:end], self.objects)

    def kept(self) -> Moment:
        """One that stays as it is. Copying a dictionary takes a tenth of the time of reading all objects in order."""
        return Moment(list(self.keys), dict(self.objects))

    def after(self, key: Key) -> int:
        """The place of the first key after this one."""
        return bisect_right(self.keys, key)

    def items(self, start: int = 0, end: int | None = None) -> list[Stored]:
        """The objects from one place to another."""
        objects = self.objects
        return [objects[key] for key in self.keys[start:end]]
