"""Places (indexes) of the common pools in which a search has to look."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from kubesched.base.change_log import Follower

from .inventory import CommonPools
from .wanted import Problem, Want, Wanted

__all__ = ["Passed", "Places", "PlacesWithOwn"]

_OPEN: Final = b"\x01"


class Places:
    """Places of pools that may have candidates for a want, and of pools that have devices with a value.

    A pool is *open* for a want until a search finds no candidate in it, and open again when its use changes.
    """

    def __init__(self, common: CommonPools, wanted: Wanted) -> None:
        self._common = common
        self._wanted = wanted
        self._changed = Follower.from_now(common.changed)
        #: One byte per pool, 1 where it is open, by index of the want.
        self._open: dict[int, bytearray] = {}
        #: Places by value of an attribute, by (index of the want, attribute); the key None has places with a problem.
        self._values: dict[tuple[int, str], dict[tuple[str, Any] | None, list[int]]] = {}

    def settle(self) -> None:
        """Take note of pools that changed. To be called before every search."""
        changed = self._changed.read()
        if changed is None:
            self._open.clear()
        elif changed:
            for flags in self._open.values():
                for place in changed:
                    flags[place] = 1

    def next_open(self, want: Want, place: int) -> int:
        """Return the first open pool from a place on; the number of pools when there is none."""
        flags = self._open.get(want.index)
        if flags is None:
            flags = self._open[want.index] = bytearray(_OPEN * len(self._common.pools))
        found = flags.find(_OPEN, place)
        return len(flags) if found < 0 else found

    def close(self, want: Want, place: int) -> None:
        """Note that the pool has no candidates for a want now."""
        self._open[want.index][place] = 0

    def with_value(self, want: Want, attribute: str, value: tuple[str, Any]) -> list[int]:
        """Return the pools with a device that a want selects and that has this value, and the pools whose selection
        fails.
        """
        known = self._values.get((want.index, attribute))
        if known is None:
            known = self._values[want.index, attribute] = self._by_value(want, attribute)
        return known.get(value, []) + known.get(None, [])

    def _by_value(self, want: Want, attribute: str) -> dict[tuple[str, Any] | None, list[int]]:
        found: dict[tuple[str, Any] | None, list[int]] = {}
        service_of = self._wanted.service
        for place, pool in enumerate(self._common.pools):
            values: set[tuple[str, Any] | None] = set()
            for service in {id(each): each for each in (service_of(entry.model) for entry in pool.devices)}.values():
                selected = service.selects[want.index]
                if isinstance(selected, Problem):
                    values.add(None)
                elif selected and (value := service.attributes[attribute]) is not None:
                    values.add(value)
            for value in values:
                found.setdefault(value, []).append(place)
        return found


class PlacesWithOwn:
    """Places for a node that has own pools between the common ones. Own pools are always open."""

    def __init__(self, places: Places, own: Sequence[int]) -> None:
        """``own`` are the places of the node's own pools in the sequence of all pools, in rising order."""
        self._places = places
        self._own = own

    def next_open(self, want: Want, place: int) -> int:
        before = bisect_left(self._own, place)
        found = self._among_all(self._places.next_open(want, place - before))
        return min(found, self._own[before]) if before < len(self._own) else found

    def close(self, want: Want, place: int) -> None:
        before = bisect_left(self._own, place)
        if before == len(self._own) or self._own[before] != place:
            self._places.close(want, place - before)

    def with_value(self, want: Want, attribute: str, value: tuple[str, Any]) -> list[int]:
        return [*map(self._among_all, self._places.with_value(want, attribute, value)), *self._own]

    def _among_all(self, place: int) -> int:
        for own in self._own:
            if own > place:
                break
            place += 1
        return place


class Passed:
    """Pools that walks skipped because their devices have the wrong value: ranges of places, oldest first."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Want]] = []
        #: Number of entries that were read, by pool.
        self._read: dict[int, int] = {}

    def add(self, want: Want, first: int, end: int) -> None:
        """Note that a walk for a want skipped the pools from ``first`` to ``end`` (exclusive)."""
        if first < end:
            self._entries.append((first, end, want))

    def wants_of(self, number: int) -> Sequence[Want]:
        """Return the wants, in order, for which walks skipped this pool since the last call for it."""
        entries, read = self._entries, self._read.get(number, 0)
        if read == len(entries):
            return ()
        self._read[number] = len(entries)
        return [want for first, end, want in entries[read:] if first <= number < end]
