"""NodeResourcesBalancedAllocation: prefer nodes where the pod evens out the use of resources (PreScore, Score).

Source: rules/node-plugins §8.7. Both forms, one node and many rows, keep the same order of IEEE-double operations,
since the result is truncated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kubesched.api.requests import CPU, MEMORY, PODS, is_scalar_resource
from kubesched.base.change_log import Follower

from ..config.args import NodeResourcesBalancedAllocationArgs
from ..framework.interface import Handle, Plugin
from ..framework.question import IntArray, Question, RowArray
from ..framework.status import Status
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .dynamic_resources.device_counts import DeviceCounts
from .resource_scoring import trunc_div

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable

__all__ = ["NodeResourcesBalancedAllocation"]

Floats = npt.NDArray[np.float64]
_HALF: Final = 50


def _balance(fractions: list[float]) -> int:
    """Balance 0…100: 100 minus the spread of the fractions in percent, truncated."""
    count = len(fractions)
    if count < 2:
        spread = 0.0
    elif count == 2:
        spread = abs((fractions[0] - fractions[1]) / 2)
    else:
        total = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / count
        squares = 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        spread = math.sqrt(squares / count)
    return int((1 - spread) * 100.0)


class _Balance(Question):
    """Question about the amounts that a pod adds to each resource.

    Scores are 50…100; at 75 the pod leaves the balance as it is.
    """

    by_spec = True
    stands_alone = frozenset({"score"})

    def __init__(self, pod: PodInfo, nodes: NodeTable, names: Sequence[str], counts: DeviceCounts) -> None:
        self._nodes = nodes
        self._requests = requests = pod.requests
        self._counts = counts
        self._devices: Follower[int] | None = None
        asked = [(name, 0 if name == PODS else requests.get(name)) for name in names]
        #: Amounts by resource, without scalar resources that the pod does not request; empty when it requests nothing.
        self._amounts: list[tuple[str, int]] = []
        if any(amount for _, amount in asked):
            self._amounts = [(name, amount) for name, amount in asked if amount or not is_scalar_resource(name)]
        self.key = tuple(self._amounts) if requests.scalars else requests.as_tuple()
        self.is_local = self.by_spec = counts.of(requests) is None  # devices also change the score
        if not self.is_local:
            self.key = self.key, counts.key(requests)

    def pre_score(self, nodes: NodeList) -> Status | None:
        if not self._amounts:
            return Status.skip()
        self._devices = self._counts.follower(self._requests)
        return None

    def rescored(self, *, same: bool) -> RowArray | None:
        return self._counts.changed(self._requests, self._devices)

    # -- one node --------------------------------------------------------------------------------------

    def score(self, node: NodeInfo) -> int:
        amounts = self._amounts
        if not amounts:
            return 0  # best effort, and PreScore did not run
        if not self.is_local:
            return int(self.scores(np.array([node.row], np.intp))[0])
        before: list[float] = []
        after: list[float] = []
        allocatable, requested = node.allocatable, node.requested
        for name, amount in amounts:
            if name == CPU:
                capacity, used = allocatable.milli_cpu, requested.milli_cpu
            elif name == MEMORY:
                capacity, used = allocatable.memory, requested.memory
            else:
                capacity, used = 0 if name == PODS else allocatable.get(name), requested.get(name)
            if capacity:
                share, more = float(used) / float(capacity), float(used + amount) / float(capacity)
                before.append(share if share < 1.0 else 1.0)
                after.append(more if more < 1.0 else 1.0)
        return _HALF + trunc_div(_HALF + _balance(after) - _balance(before), 2)

    # -- many rows -------------------------------------------------------------------------------------

    def scores(self, rows: RowArray) -> IntArray:
        nodes, amounts = self._nodes, self._amounts
        if not amounts:
            return np.zeros(len(rows), np.int64)  # best effort, and PreScore did not run
        devices = self._counts.of(self._requests)
        before: list[Floats] = []
        after: list[Floats] = []
        valid: list[npt.NDArray[np.bool_]] = []
        for name, amount in amounts:
            index = None if name == PODS else nodes.column(name)
            if index is None and devices is None:
                continue
            capacity, used = (
                (nodes.allocatable[index, rows], nodes.requested[index, rows])
                if index is not None
                else (np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64))
            )
            if devices is not None:
                capacity, used = devices.fill_in(name, nodes, rows, capacity, used)
            divisor = np.where(capacity == 0, 1, capacity).astype(np.float64)
            valid.append(capacity != 0)
            before.append(np.minimum(1.0, used.astype(np.float64) / divisor))
            # Sums beyond int64 only come from absurd quantities; floats saturate instead of wrapping.
            after.append(np.minimum(1.0, _sum_as_float(used, amount) / divisor))
        if not valid:
            return np.full(len(rows), _HALF + _HALF // 2, np.int64)
        change = _HALF + _balance_rows(after, valid) - _balance_rows(before, valid)
        halved: IntArray = _HALF + np.where(change >= 0, change // 2, -(-change // 2))
        return halved


class NodeResourcesBalancedAllocation(Plugin):
    """Preference for an even use of resources. Its question is :class:`_Balance`."""

    name = "NodeResourcesBalancedAllocation"
    asks = _Balance

    def __init__(self, args: NodeResourcesBalancedAllocationArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else NodeResourcesBalancedAllocationArgs()
        self._names = tuple(item.name for item in args.resources)
        self._counts = DeviceCounts(handle, self._names)

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _Balance(pod, nodes, self._names, self._counts)


def _sum_as_float(used: IntArray, amount: int) -> Floats:
    if len(used) and (int(used.max()) + amount >= 1 << 63 or int(used.min()) + amount < -(1 << 63)):
        return np.array([float(value + amount) for value in used.tolist()], np.float64)
    return (used + amount).astype(np.float64)


def _balance_rows(fractions: list[Floats], valid: list[npt.NDArray[np.bool_]]) -> IntArray:
    """Balance of each row's valid fractions (see :func:`_balance`), int64[rows]."""
    if len(fractions) == 2 and valid[0].all() and valid[1].all():
        spread = np.abs((fractions[0] - fractions[1]) / 2)
        return ((1 - spread) * 100.0).astype(np.int64)
    count = np.zeros(len(fractions[0]), np.int64)
    total = np.zeros(len(fractions[0]), np.float64)
    first, second = np.zeros_like(total), np.zeros_like(total)
    for fraction, counts in zip(fractions, valid, strict=True):
        first = np.where(counts & (count == 0), fraction, first)
        second = np.where(counts & (count == 1), fraction, second)
        count += counts
        total += np.where(counts, fraction, 0.0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros_like(total)
    for fraction, counts in zip(fractions, valid, strict=True):
        squares += np.where(counts, (fraction - mean) * (fraction - mean), 0.0)
    spread = np.sqrt(squares / np.maximum(count, 1))
    spread = np.where(count == 2, np.abs((first - second) / 2), np.where(count < 2, 0.0, spread))
    return ((1 - spread) * 100.0).astype(np.int64)
