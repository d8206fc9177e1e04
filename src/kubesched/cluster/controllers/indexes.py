"""Completion indexes of a Job, as ranges: a Job may have two thousand million indexes.

Callers: :mod:`.jobs`, saved workloads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from kubesched.api.selectors import parse_int64

__all__ = ["Indexes"]

_MANY: Final = 3


class Indexes:
    """Set of indexes, kept as ranges. Time and memory grow with the number of ranges, not of indexes."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Build the set from (first index, last index) of each range. Ranges may overlap, and come in any order."""
        #: First and last indexes of ranges that neither overlap nor touch, in order.
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(ranges):
            if self._lasts and first <= self._lasts[-1] + 1:
                self._lasts[-1] = max(self._lasts[-1], last)
            elif first <= last:
                self._firsts.append(first)
                self._lasts.append(last)

    @classmethod
    def parse(cls, text: str, completions: int) -> Indexes:
        """Read ``1,3-5`` as {1, 3, 4, 5}. Unreadable parts and indexes from ``completions`` on are left out."""
        return cls(_ranges(text, completions))

    def __contains__(self, index: int | None) -> bool:
        if index is None:
            return False
        place = bisect_right(self._firsts, index) - 1
        return place >= 0 and index <= self._lasts[place]

    def __len__(self) -> int:
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Indexes) and self.ranges() == other.ranges()

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        """Return {1, 2, 4, 5, 6} as ``1,2,4-6``, the form in a Job's status."""
        parts: list[str] = []
        for first, last in self.ranges():
            parts += [f"{first}-{last}"] if last - first + 1 >= _MANY else map(str, range(first, last + 1))
        return ",".join(parts)

    def ranges(self) -> list[tuple[int, int]]:
        """First and last index of each range, in order."""
        return list(zip(self._firsts, self._lasts, strict=True))

    def common(self, other: Indexes) -> int:
        """Return the number of indexes that are in both sets."""
        pairs = ((one, two) for one in self.ranges() for two in other.ranges())
        return sum(max(0, min(one[1], two[1]) - max(one[0], two[0]) + 1) for one, two in pairs)

    def union(self, more: Iterable[int]) -> Indexes:
        """Return the set with more indexes added."""
        return Indexes([*self.ranges(), *((index, index) for index in more)])

    def missing(self, completions: int) -> Iterator[int]:
        """Yield the indexes below ``completions`` that are not in the set, in order."""
        begin = 0
        for first, last in self.ranges():
            yield from range(begin, min(first, completions))
            begin = last + 1
        yield from range(begin, completions)


@lru_cache(maxsize=4)
def _ranges(text: str, completions: int) -> list[tuple[int, int]]:
    """Return the ranges in a text. Cached, since one reconcile of a Job reads the same text several times."""
    found: list[tuple[int, int]] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        begin, end = parse_int64(first), parse_int64(last or first)
        if begin is not None and end is not None and begin >= 0:
            found.append((begin, min(end, completions - 1)))
    return found
