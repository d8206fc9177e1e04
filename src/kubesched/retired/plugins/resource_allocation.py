"""NodeResourcesLeastAllocated, NodeResourcesMostAllocated and RequestedToCapacityRatio (Score).

Retired with v1beta2, which made them strategies of NodeResourcesFit. They differ from those strategies: a resource
that a node does not have counts with score 0, and utilisation is rounded up. For MostAllocated, releases differed if a
pod asks for more than there is; the newer rule is used. Source: rules/configuration §11.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kubesched.api.quantity import INT64_MAX
from kubesched.api.requests import CPU, MEMORY
from kubesched.scheduler.config.args import CPU_AND_MEMORY, ResourceSpec
from kubesched.scheduler.framework.interface import MAX_NODE_SCORE, Handle, Plugin
from kubesched.scheduler.framework.question import IntArray, Question, RowArray
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.resource_scoring import broken_line, trunc_div

from ..config import retired_args
from ..config.retired_args import (
    NodeResourcesLeastAllocatedArgs,
    NodeResourcesMostAllocatedArgs,
    RequestedToCapacityRatioArgs,
)

if TYPE_CHECKING:
    from kubesched.scheduler.nodes import NodeTable

__all__ = ["NodeResourcesLeastAllocated", "NodeResourcesMostAllocated", "RequestedToCapacityRatio"]

#: Greatest amount that can be added, and multiplied by 100, in int64.
_SAFE: Final = INT64_MAX // 200
_MAX_CUSTOM_SCORE: Final = 10


class _Fullness(Question):
    """Question about the use that each resource of a node would have with the pod."""

    by_spec = True

    def __init__(self, plugin: _Allocation, pod: PodInfo, nodes: NodeTable) -> None:
        self._plugin, self._nodes, self._pod = plugin, nodes, pod
        self.key = (pod.nonzero_cpu, pod.nonzero_memory, pod.requests.as_tuple())

    def _asked(self, name: str) -> int:
        if name == CPU:
            return self._pod.nonzero_cpu
        return self._pod.nonzero_memory if name == MEMORY else self._pod.requests.get(name)

    def score(self, node: NodeInfo) -> int:
        plugin, total, weights = self._plugin, 0, 0
        for name, weight in plugin.resources:
            if name == CPU:
                capacity, used = node.allocatable.milli_cpu, node.nonzero_cpu
            elif name == MEMORY:
                capacity, used = node.allocatable.memory, node.nonzero_memory
            else:
                capacity, used = node.allocatable.get(name), node.requested.get(name)
            score = plugin.of_one(used + self._asked(name), capacity)
            if plugin.includes(score):
                total += score * weight
                weights += weight
        return plugin.mean(total, weights) if weights else 0

    def scores(self, rows: RowArray) -> IntArray:
        plugin, nodes = self._plugin, self._nodes
        total, weights = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for name, weight in plugin.resources:
            index, asked = nodes.column(name), self._asked(name)
            nonzero = {CPU: 0, MEMORY: 1}.get(name)
            if index is None:
                capacity = used = np.zeros(len(rows), np.int64)
            else:
                capacity = nodes.allocatable[index, rows]
                used = nodes.requested[index, rows] if nonzero is None else nodes.nonzero[nonzero, rows]
            if not _is_safe(capacity, used, asked):
                info = nodes.info
                return np.array([self.score(info(row)) for row in rows.tolist()], np.int64)
            score = plugin.of_many(used + asked, capacity)
            included = score > 0 if not plugin.includes(0) else np.ones(len(rows), np.bool_)
            total += np.where(included, score * weight, 0)
            weights += np.where(included, weight, 0)
        return plugin.means(total, np.where(weights == 0, 1, weights))


class _Allocation(Plugin):
    """Score by resources with weights. Its question is :class:`_Fullness`.

    Subclasses score one resource, for one node and for columns.
    """

    asks = _Fullness

    def __init__(self, args: Any, handle: Handle, resources: tuple[ResourceSpec, ...]) -> None:
        super().__init__(args, handle)
        self.resources = [(item.name, item.weight or 1) for item in resources or CPU_AND_MEMORY]

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _Fullness(self, pod, nodes)

    @abstractmethod
    def of_one(self, used: int, capacity: int) -> int:
        """Score 0…100 of one resource; ``used`` includes the pod."""

    @abstractmethod
    def of_many(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Scores of many nodes, as int64 columns; see :meth:`of_one`."""

    def mean(self, total: int, weights: int) -> int:
        return total // weights

    def means(self, total: IntArray, weights: IntArray) -> IntArray:
        mean: IntArray = total // weights
        return mean

    def includes(self, score: int) -> bool:
        """True if a resource with this score counts for the mean."""
        return True


def _is_safe(capacity: IntArray, used: IntArray, asked: int) -> bool:
    """True if the column form of the arithmetic can neither overflow nor meet negative amounts."""
    if not len(capacity):
        return True
    least, most = min(int(capacity.min()), int(used.min()), asked), max(int(capacity.max()), int(used.max()), asked)
    return least >= 0 and most <= _SAFE


class NodeResourcesLeastAllocated(_Allocation):
    """Preference for nodes with the least use."""

    name = "NodeResourcesLeastAllocated"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle, retired_args(args, NodeResourcesLeastAllocatedArgs).resources)

    def of_one(self, used: int, capacity: int) -> int:
        return 0 if capacity == 0 or used > capacity else trunc_div((capacity - used) * MAX_NODE_SCORE, capacity)

    def of_many(self, used: IntArray, capacity: IntArray) -> IntArray:
        score: IntArray = np.maximum(capacity - used, 0) * MAX_NODE_SCORE // np.maximum(capacity, 1)
        return score


class NodeResourcesMostAllocated(_Allocation):
    """Preference for nodes with the most use."""

    name = "NodeResourcesMostAllocated"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle, retired_args(args, NodeResourcesMostAllocatedArgs).resources)

    def of_one(self, used: int, capacity: int) -> int:
        return 0 if capacity == 0 else trunc_div(min(used, capacity) * MAX_NODE_SCORE, capacity)

    def of_many(self, used: IntArray, capacity: IntArray) -> IntArray:
        score: IntArray = np.minimum(used, capacity) * MAX_NODE_SCORE // np.maximum(capacity, 1)
        return score


class RequestedToCapacityRatio(_Allocation):
    """Preference by any function of utilisation, a broken line. Resources that score 0 are left out of the mean."""

    name = "RequestedToCapacityRatio"

    def __init__(self, args: Any, handle: Handle) -> None:
        known = retired_args(args, RequestedToCapacityRatioArgs)
        super().__init__(args, handle, known.resources)
        points = [(point.utilization, point.score * MAX_NODE_SCORE // _MAX_CUSTOM_SCORE) for point in known.shape]
        #: Scores at the whole utilisations 0…100.
        self._line = np.array([broken_line(points, utilization) for utilization in range(101)], np.int64)

    def of_one(self, used: int, capacity: int) -> int:
        full = capacity == 0 or used > capacity
        utilization = 100 if full else 100 - trunc_div((capacity - used) * 100, capacity)
        return int(self._line[max(0, min(100, utilization))])

    def of_many(self, used: IntArray, capacity: IntArray) -> IntArray:
        free = np.maximum(capacity - used, 0) * 100 // np.maximum(capacity, 1)
        score: IntArray = self._line[100 - free]
        return score

    def includes(self, score: int) -> bool:
        return score > 0

    def mean(self, total: int, weights: int) -> int:
        return int(total / weights + 0.5)

    def means(self, total: IntArray, weights: IntArray) -> IntArray:
        return (total / weights + 0.5).astype(np.int64)
