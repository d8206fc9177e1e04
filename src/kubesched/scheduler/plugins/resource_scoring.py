"""Scores by resource use: LeastAllocated, MostAllocated and RequestedToCapacityRatio.

NodeResourcesFit uses this module. Source: rules/node-plugins §8.4 and §9.2. The form for many rows and the form for
one node give the same numbers. Amounts whose int64 products would overflow are computed with the form for one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kubesched.api.quantity import INT64_MAX
from kubesched.api.requests import CPU, MEMORY, PODS, Resources, is_scalar_resource

from ..config.args import ScoringStrategy, UtilizationShapePoint
from ..framework.interface import MAX_NODE_SCORE, IntArray, RowArray
from ..nodes.nodeinfo import NodeInfo

if TYPE_CHECKING:
    from ..nodes import NodeTable
    from .dynamic_resources.device_counts import Counts

__all__ = ["ResourceScorer", "broken_line", "trunc_div"]

#: Greatest amount that can be multiplied by 100 in int64.
_SAFE: Final = INT64_MAX // 200
_MAX_CUSTOM_SCORE: Final = 10


def trunc_div(value: int, divisor: int) -> int:
    """Integer division that truncates toward zero."""
    if value >= 0 and divisor > 0:
        return value // divisor
    quotient = abs(value) // abs(divisor)
    return quotient if (value < 0) == (divisor < 0) else -quotient


def broken_line(points: Sequence[tuple[int, int]], x: int) -> int:
    """Value at ``x`` of a broken line through (x, y) points in rising order of x. Outside the points the line is
    flat.
    """
    for index, (right, top) in enumerate(points):
        if x <= right:
            if index == 0:
                return top
            left, bottom = points[index - 1]
            return bottom + trunc_div((top - bottom) * (x - left), right - left)
    return points[-1][1]


def _least(used: int, capacity: int) -> int:
    return 0 if used > capacity else trunc_div((capacity - used) * MAX_NODE_SCORE, capacity)


def _most(used: int, capacity: int) -> int:
    return trunc_div(min(used, capacity) * MAX_NODE_SCORE, capacity)


def _sum(column: IntArray) -> int:
    """Return the exact sum, even beyond int64."""
    return sum(column.tolist())


class ResourceScorer:
    """Scorer of pod requests on nodes, by one of the three strategies."""

    def __init__(self, strategy: ScoringStrategy) -> None:
        self._resources = [(item.name, item.weight) for item in strategy.resources]
        self._strategy = strategy.type
        shape: tuple[UtilizationShapePoint, ...] = ()
        if strategy.requested_to_capacity_ratio is not None:
            shape = strategy.requested_to_capacity_ratio.shape
        points = [(point.utilization, point.score * MAX_NODE_SCORE // _MAX_CUSTOM_SCORE) for point in shape]
        #: Scores at the whole utilisations 0…100.
        self._line = [broken_line(points, x) for x in range(101)] if points else []
        self._line_column = np.array(self._line, np.int64)
        self._one: Callable[[int, int], int] = {
            "LeastAllocated": _least,
            "MostAllocated": _most,
            "RequestedToCapacityRatio": self._ratio,
        }[strategy.type]

    def _ratio(self, used: int, capacity: int) -> int:
        utilization = 100 if used > capacity else trunc_div(used * MAX_NODE_SCORE, capacity)
        return self._line[max(0, min(100, utilization))]

    # -- one node --------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Names of the resources that count."""
        return [name for name, _ in self._resources]

    def score_node(self, requests: Resources, node: NodeInfo) -> int:
        total = weights = 0
        allocatable = node.allocatable
        ratio = self._strategy == "RequestedToCapacityRatio"
        for name, weight in self._resources:
            if name == CPU:
                capacity, used = allocatable.milli_cpu, node.nonzero_cpu + requests.milli_cpu
            elif name == MEMORY:
                capacity, used = allocatable.memory, node.nonzero_memory + requests.memory
            else:
                asked = requests.get(name)
                if name == PODS or (not asked and is_scalar_resource(name)):
                    continue
                capacity, used = allocatable.get(name), node.requested.get(name) + asked
            if capacity == 0:
                continue
            score = self._one(used, capacity)
            if ratio and score <= 0:
                continue
            total += score * weight
            weights += weight
        if weights == 0:
            return 0
        return int(float(total) / float(weights) + 0.5) if ratio else trunc_div(total, weights)

    # -- many rows -------------------------------------------------------------------------------------

    def score_rows(
        self, requests: Resources, nodes: NodeTable, rows: RowArray, devices: Counts | None = None
    ) -> IntArray:
        """Return the scores of many rows; see :meth:`score_node`. ``devices`` adds resources that nodes themselves
        lack.
        """
        count = len(rows)
        total, weights = np.zeros(count, np.int64), np.zeros(count, np.int64)
        ratio = self._strategy == "RequestedToCapacityRatio"
        for name, weight in self._resources:
            asked = requests.get(name)
            if name == PODS or (not asked and is_scalar_resource(name)):
                continue
            index = nodes.column(name)
            if index is None and devices is None:
                continue
            capacity = nodes.allocatable[index, rows] if index is not None else np.zeros(count, np.int64)
            nonzero = {CPU: 0, MEMORY: 1}.get(name)
            if nonzero is not None:
                used = nodes.nonzero[nonzero, rows]
            else:
                used = nodes.requested[index, rows] if index is not None else np.zeros(count, np.int64)
            if devices is not None:
                capacity, used = devices.fill_in(name, nodes, rows, capacity, used)
            if count and (
                int(capacity.max()) > _SAFE or int(capacity.min()) < 0
                or int(used.max()) > _SAFE or int(used.min()) < 0 or not 0 <= asked <= _SAFE
            ):  # fmt: skip
                info = nodes.info
                return np.array([self.score_node(requests, info(row)) for row in rows.tolist()], np.int64)
            counts = capacity != 0
            score = self._score_column(used + asked, np.where(counts, capacity, 1))
            if ratio:
                counts &= score > 0
            total += np.where(counts, score * weight, 0)
            weights += np.where(counts, weight, 0)
        divisor = np.where(weights == 0, 1, weights)
        if ratio:
            rounded: IntArray = (total.astype(np.float64) / divisor + 0.5).astype(np.int64)
            return rounded
        return total // divisor

    # -- a set of nodes --------------------------------------------------------------------------------

    def fullness(self, wanted: Sequence[Resources], nodes: NodeTable, rows: RowArray) -> int:
        """Return how full the nodes in ``rows`` would be with all of ``wanted`` on them, 0…100 (rules/groups §13.4).

        It is the MostAllocated score of all these nodes together, whatever the strategy.
        """
        total = weights = 0
        for name, weight in self._resources:
            asked = sum(each.get(name) for each in wanted)
            index = nodes.column(name)
            if name == PODS or index is None or (not asked and is_scalar_resource(name)):
                continue
            capacity = nodes.allocatable[index, rows]
            counts = capacity != 0
            nonzero = {CPU: 0, MEMORY: 1}.get(name)
            used = nodes.nonzero[nonzero, rows] if nonzero is not None else nodes.requested[index, rows]
            most = _sum(capacity)
            if most:
                total += _most(_sum(used[counts]) + asked, most) * weight
                weights += weight
        return total // weights if weights else 0

    def _score_column(self, used: IntArray, capacity: IntArray) -> IntArray:
        if self._strategy == "LeastAllocated":
            free: IntArray = np.maximum(capacity - used, 0) * MAX_NODE_SCORE // capacity
            return free
        utilization: IntArray = np.minimum(used, capacity) * MAX_NODE_SCORE // capacity
        if self._strategy == "MostAllocated":
            return utilization
        scores: IntArray = self._line_column[utilization]
        return scores
