"""Fragmentation of the free resources: what of them pods like the given ones cannot use. Callers: simulations, the dashboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kubesched.scheduler.nodes.node_table import PODS_ROW, NodeTable

__all__ = ["Shapes"]

#: Most different requests that count for fragmentation; rarer ones are left out.
_MOST_SHAPES: Final = 32
#: Largest amount that a column holds. A larger request fits nowhere.
_MOST_AMOUNT: Final = 2**63 - 1


class Shapes:
    """Most frequent requests of pods, for fragmentation."""

    def __init__(self, requests: Iterable[Mapping[str, int]], counts: Iterable[int] | None = None) -> None:
        """``counts`` are the numbers of pods of the requests; 1 each when left out."""
        found: Counter[tuple[tuple[str, int], ...]] = Counter()
        for one, count in zip(requests, counts, strict=True) if counts is not None else ((one, 1) for one in requests):
            found[tuple(sorted(one.items()))] += count
        frequent = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_MOST_SHAPES]
        self.requests: list[dict[str, int]] = [dict(shape) for shape, _ in frequent]
        self.counts: NDArray[np.float64] = np.array([count for _, count in frequent], np.float64)
        names = dict.fromkeys(name for request in self.requests for name in request)
        #: By resource: indexes of the shapes that ask for it, their amounts, and their shares among the pods that do.
        self._asking: dict[str, tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.float64]]] = {}
        for name in names:
            asked = np.array([min(request.get(name, 0), _MOST_AMOUNT) for request in self.requests], np.int64)
            asking = np.flatnonzero(asked)
            weights = self.counts[asking]
            self._asking[name] = asking, asked[asking], weights / weights.sum()

    def fragmentation(self, table: NodeTable) -> dict[str, float]:
        """Return, by resource, the expected share of the free amount that a pod asking for it cannot use, 0 to 1.

        A node's free amount is lost to a pod that does not fit there by its requests. The share is 0 when nothing is
        free, or no pod asks for the resource.
        """
        rows = table.order()
        free = np.maximum(table.allocatable[:, rows] - table.requested[:, rows], 0)
        lacks = np.zeros((len(self.requests), len(rows)), np.bool_)
        lacks |= free[PODS_ROW] <= 0
        for name, (asking, amounts, _) in self._asking.items():
            index = table.column(name)
            lacks[asking] |= free[index] < amounts[:, None] if index is not None else True
        found = {}
        for name, index in table.resource_index.items():
            total = float(free[index].sum())
            if name in self._asking and total:
                asking, _, weights = self._asking[name]
                found[name] = round(float(weights @ lacks[asking] @ free[index]) / total, 6)
            else:
                found[name] = 0.0
        return found
