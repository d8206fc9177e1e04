"""Pools of free volumes, one for claims with equal criteria. A pool is searched for all nodes at once.

A pool holds the free volumes of one class that suit a claim, apart from size and node, smallest first. The affinity of
a volume in a zone or on a local disk mostly demands one of some values of one label. Such volumes are found by the
label column of the node table: the smallest volume of each value is gathered by row. Pools follow the volumes that come
and go. Source: rules/volumes §2.6.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

import msgspec
import numpy as np

from kubesched.api.quantity import Quantity
from kubesched.api.selectors import Selector, SelectorError, compile_label_selector, label_selector_problem
from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, class_of

from ...nodes import NodeTable
from ...nodes.columns import ABSENT, BoolArray, IntpArray, RowArray
from .node_affinity import Affinities, NodeReach, Reach
from .volume_cache import VolumeCache, required_affinity, volume_capacity

__all__ = ["NO_VOLUME", "Pools", "VolumePool", "volume_mode"]

#: Number that stands for no volume.
NO_VOLUME: Final = -1

_MOST_POOLS: Final = 64


def volume_mode(mode: str | None) -> str:
    """Return a volume mode, with the default filled in."""
    return mode if mode is not None else "Filesystem"


class Criteria(NamedTuple):
    """Demands of a claim on a volume besides its size. ``selector`` is the label selector's JSON, empty without one."""

    storage_class: str
    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]
    selector: bytes


def _criteria_of(claim: PersistentVolumeClaim) -> Criteria:
    spec = claim.spec
    return Criteria(
        class_of(claim),
        volume_mode(spec.volume_mode),
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes),
        b"" if spec.selector is None else msgspec.json.encode(spec.selector, order="sorted"),
    )


class _Numbers:
    """Numbers of volumes, for arrays; a number is never used again for another volume."""

    def __init__(self) -> None:
        self._next = 0
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def of(self, name: str) -> int:
        """Return the number of a volume, a new one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._next
            self._names[number] = name
            self._next += 1
        return number

    def name(self, number: int) -> str:
        """Return the name of the volume with this number."""
        return self._names[number]

    def drop(self, name: str) -> None:
        """Forget a volume that is gone."""
        number = self._numbers.pop(name, None)
        if number is not None:
            del self._names[number]


class _ByLabel:
    """Volumes that need one label to have one of some values: parallel arrays of volume and value, by rising place."""

    __slots__ = ("_codes", "_seen", "key", "places", "value_of", "values")

    def __init__(self, key: str) -> None:
        self.key = key
        self.values: dict[str, int] = {}
        self.places: IntpArray = np.zeros(0, np.intp)
        self.value_of: IntpArray = np.zeros(0, np.intp)
        self._codes: IntpArray = np.zeros(0, np.intp)
        self._seen: tuple[int, int] | None = None

    def fill(self, pairs: list[tuple[int, str]]) -> None:
        self.places = np.array([place for place, _ in pairs], np.intp)
        numbers = [self.values.setdefault(value, len(self.values)) for _, value in pairs]
        self.value_of = np.array(numbers, np.intp)

    def smallest(
        self, nodes: NodeTable, rows: RowArray, usable: BoolArray, nothing: int, count: int
    ) -> list[IntpArray]:
        """Return ``count`` arrays, intp[len(rows)]: each node's smallest usable volume, then each node's next, and so
        on.

        ``nothing`` stands for no volume.
        """
        column = nodes.labels.column(self.key)
        seen = (id(column), column.version)
        if self._seen != seen:
            code_of = column.code_of
            self._codes = np.array([code_of.get(value, ABSENT) for value in self.values], np.intp)
            self._seen = seen
        keep = usable[self.places]
        places, codes = self.places[keep], self._codes[self.value_of[keep]]
        there = codes != ABSENT
        places, codes = places[there], codes[there]
        size = len(column.values) + 1  # the last place is for an absent label
        found: list[IntpArray] = []
        for _ in range(count):
            first = np.full(size, nothing, np.intp)
            first[codes[::-1]] = places[::-1]  # the last place written for a value stays: the smallest
            found.append(first[column.codes[rows]])
            left = first[codes] != places
            places, codes = places[left], codes[left]
        return found


class _Free(NamedTuple):
    """Free volume: its size in nano-units, its number, its reach, and the spec from which size and reach were read."""

    size: int
    number: int
    reach: Reach
    spec: PersistentVolumeSpec


class VolumePool:
    """Free volumes that suit claims with equal :class:`Criteria`.

    Volumes are numbered by :class:`Pools`; a number stays with a volume's name.
    """

    def __init__(self, criteria: Criteria, labels: Selector, cache: VolumeCache, numbers: _Numbers) -> None:
        self._criteria = criteria
        self._labels = labels
        self._numbers = numbers
        self._affinities: Affinities = cache.affinities
        self._volumes = {
            name: self._free(volume)
            for name, volume in cache.free.get(criteria.storage_class, {}).items()
            if self._suits(volume)
        }
        self._stale = True
        self._place_of: dict[str, int] = {}
        #: Sizes in nano-units, in rising order.
        self._sizes: list[int] = []
        self._alive: BoolArray = np.zeros(0, np.bool_)
        self._number_of: IntpArray = np.zeros(0, np.intp)
        self._anywhere: IntpArray = np.zeros(0, np.intp)
        self._by_label: list[_ByLabel] = []
        self._others: list[tuple[NodeReach, IntpArray]] = []

    def __bool__(self) -> bool:
        """True if there is any volume."""
        return bool(self._volumes)

    def _suits(self, volume: PersistentVolume) -> bool:
        """True if rules 2, 4 to 6, 9 to 11 and 13 of rules/volumes §2.6 hold for a volume."""
        spec, criteria = volume.spec, self._criteria
        return (
            spec.claim_ref is None
            and volume.status.phase == "Available"
            and class_of(volume) == criteria.storage_class
            and volume_mode(spec.volume_mode) == criteria.volume_mode
            and (spec.volume_attributes_class_name or "") == criteria.attributes_class
            and volume.metadata.deletion_timestamp is None
            and criteria.access_modes.issubset(spec.access_modes)
            and self._labels.matches(volume.metadata.labels)
        )

    def _free(self, volume: PersistentVolume) -> _Free:
        reach = self._affinities.of(required_affinity(volume))
        return _Free(volume_capacity(volume).nanos, self._numbers.of(volume.name), reach, volume.spec)

    def note(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        """Note that a volume came, changed or went."""
        volume = new if new is not None else old
        assert volume is not None
        name = volume.name
        if new is not None and self._suits(new):
            known = self._volumes.get(name)
            if known is None or known.spec != new.spec:
                self._volumes[name] = self._free(new)
                self._stale = True
        elif self._volumes.pop(name, None) is not None:
            place = self._place_of.pop(name, None)
            if place is not None:
                self._alive[place] = False

    def smallest(self, nodes: NodeTable, rows: RowArray, size: Quantity, count: int) -> list[IntpArray]:
        """Return ``count`` arrays, intp[len(rows)]: each node's smallest volume of at least ``size``, then its next,
        and so on.

        They hold volume numbers, NO_VOLUME where there is none.
        """
        if self._stale:
            self._rebuild()
        nothing = len(self._sizes)
        usable = self._alive.copy()
        usable[: bisect_left(self._sizes, size.nanos)] = False
        everywhere = self._anywhere[usable[self._anywhere]][:count].tolist()
        columns = [np.full(len(rows), place, np.intp) for place in everywhere]
        for group in self._by_label:
            columns += group.smallest(nodes, rows, usable, nothing, count)
        for reach, places in self._others:
            first = places[usable[places]][:count].tolist()
            if first:
                allowed = reach.allows_rows(nodes, rows)
                columns += [np.where(allowed, place, nothing) for place in first]
        if len(columns) > 1:
            columns = [np.minimum.reduce(columns)] if count == 1 else list(np.sort(np.stack(columns), axis=0)[:count])
        columns += [np.full(len(rows), nothing, np.intp) for _ in range(count - len(columns))]
        return [self._number_of[column] for column in columns]

    def _rebuild(self) -> None:
        """Sort and group the volumes; equal sizes stay in the order in which they became known."""
        ordered = sorted(self._volumes.items(), key=_size_of)
        self._sizes = [volume.size for _, volume in ordered]
        self._place_of = {name: place for place, (name, _) in enumerate(ordered)}
        self._alive = np.ones(len(ordered), np.bool_)
        self._number_of = np.array([*(volume.number for _, volume in ordered), NO_VOLUME], np.intp)
        anywhere: list[int] = []
        by_label: dict[str, list[tuple[int, str]]] = {}
        others: dict[NodeReach, list[int]] = {}
        for place, (_, volume) in enumerate(ordered):
            reach = volume.reach
            if reach is None:
                anywhere.append(place)
            elif reach.single is not None:
                key, values = reach.single
                by_label.setdefault(key, []).extend([(place, value) for value in values])
            else:
                others.setdefault(reach, []).append(place)
        self._anywhere = np.array(anywhere, np.intp)
        self._by_label = []
        for key, pairs in by_label.items():
            group = _ByLabel(key)
            group.fill(pairs)
            self._by_label.append(group)
        self._others = [(reach, np.array(places, np.intp)) for reach, places in others.items()]
        self._stale = False


def _size_of(item: tuple[str, _Free]) -> int:
    return item[1].size


class Pools:
    """Pools for all claims; the least recently used are dropped. ``numbers`` are the numbers of the volumes."""

    def __init__(self, cache: VolumeCache) -> None:
        self._cache = cache
        self._pools: dict[Criteria, VolumePool] = {}
        self.numbers = _Numbers()
        cache.listen(self._note)

    def of(self, claim: PersistentVolumeClaim) -> VolumePool:
        """Return the pool of the volumes that suit a claim.

        Raises:
            SelectorError: when the claim's label selector cannot be used; the text is upstream's.
        """
        criteria = _criteria_of(claim)
        pool = self._pools.pop(criteria, None)
        if pool is None:
            selector = claim.spec.selector
            if problem := label_selector_problem(selector):
                raise SelectorError(problem)
            labels = Selector() if selector is None else compile_label_selector(selector)
            pool = VolumePool(criteria, labels, self._cache, self.numbers)
            if len(self._pools) >= _MOST_POOLS:
                del self._pools[next(iter(self._pools))]
        self._pools[criteria] = pool
        return pool

    def _note(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        for pool in self._pools.values():
            pool.note(old, new)
        if new is None and old is not None:
            self.numbers.drop(old.name)
