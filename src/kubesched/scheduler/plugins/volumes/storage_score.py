"""Score of a node by the use of the pod's storage there, with the gate StorageCapacityScoring.

Source: rules/volumes §2.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ...config.args import UtilizationShapePoint
from ...framework.interface import MAX_NODE_SCORE, IntArray
from ..resource_scoring import broken_line, trunc_div
from .placement import Placements
from .volume_cache import VolumeCache, requested_storage, volume_capacity
from .volume_pool import NO_VOLUME, Pools

__all__ = ["StorageScorer"]

_MAX_CUSTOM_SCORE: Final = 10


class StorageScorer:
    """Scorer of the use of storage, by a broken line over 0…100 percent."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._points = [(point.utilization, point.score * MAX_NODE_SCORE // _MAX_CUSTOM_SCORE) for point in shape]

    def scores(self, found: Placements, cache: VolumeCache, pools: Pools) -> IntArray:
        """Score n nodes, int64[n]. Nodes with equal volumes or equal storage to provide are scored once."""
        count = len(found.verdicts)
        columns = [choice.volumes for choice in found.choices]
        columns += [np.where(item.needed, item.segments, NO_VOLUME) for item in found.provisions]
        if not columns or not count:
            return np.zeros(count, np.int64)
        different, which = np.unique(np.stack(columns), axis=1, return_inverse=True)
        values = [self._score(found, cache, pools, column) for column in different.T.tolist()]
        return np.array(values, np.int64)[which.reshape(-1)]

    def _score(self, found: Placements, cache: VolumeCache, pools: Pools, column: Sequence[int]) -> int:
        classes: dict[str, tuple[int, int]] = {}
        chosen, segments = column[: len(found.choices)], column[len(found.choices) :]
        for choice, number in zip(found.choices, chosen, strict=True):
            volume = cache.volumes.find(pools.numbers.name(number)) if number != NO_VOLUME else None
            if volume is not None:
                requested, capacity = classes.get(volume.spec.storage_class_name, (0, 0))
                requested += requested_storage(choice.claim.claim).value()
                classes[volume.spec.storage_class_name] = requested, capacity + volume_capacity(volume).value()
        if not classes:
            for item, index in zip(found.provisions, segments, strict=True):
                free = item.of[index].capacity if index >= 0 else None
                if index >= 0:
                    name = item.claim.claim.spec.storage_class_name or ""
                    classes[name] = classes.get(name, (0, 0))[0] + item.claim.bytes, free or 0
        return self._mean([self._of_class(*amounts) for amounts in classes.values()])

    def _of_class(self, requested: int, capacity: int) -> int:
        full = capacity == 0 or requested > capacity
        return broken_line(self._points, 100 if full else trunc_div(requested * 100, capacity))

    @staticmethod
    def _mean(scores: Sequence[int]) -> int:
        """Mean of scores, rounded half away from zero; 0 without any."""
        if not scores:
            return 0
        total, count = sum(scores), len(scores)
        return (2 * total + count) // (2 * count)
