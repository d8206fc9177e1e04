"""NodeResourcesBalancedAllocation: prefer nodes where the pod evens out the use of resources (PreScore, Score).

Spec "Node-level scheduler plugins" section 8.7. Both forms keep the very same order of IEEE-double
operations, since the result is truncated.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import numpy.typing as npt

from kubesched.api.requests import CPU, MEMORY, PODS, is_scalar_resource
from kubesched.config.args import NodeResourcesBalancedAllocationArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interface import Handle, IntArray, Plugin, Reads, RowArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

from . import names
from .dynamic_resources.device_counts import DeviceCounts
from .resource_scoring import trunc_div

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["NodeResourcesBalancedAllocation"]

Floats = npt.NDArray[np.float64]
_HALF: Final = 50


def _balance(fractions: list[float]) -> int:
    """0…100: 100 minus the spread of the fractions in percent, truncated."""
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


class NodeResourcesBalancedAllocation(Plugin):
    """50…100: at 75 the pod leaves the balance as it is."""

    name = names.NODE_RESOURCES_BALANCED_ALLOCATION
    signs_spec = True
    reads: ClassVar[Reads] = Reads.NODE | Reads.PODS

    def __init__(self, args: NodeResourcesBalancedAllocationArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else NodeResourcesBalancedAllocationArgs()
        self._names = tuple(item.name for item in args.resources)
        self._counts = DeviceCounts(handle, self.name, self._names)

    def sign(self, pod: PodInfo) -> Hashable | None:
        if self._counts.of(pod.requests) is not None:
            return None  # the score changes with devices, whatever happens to the node
        return self._signature(pod)

    def interaction_key(self, pod: PodInfo) -> Hashable | None:
        return self._signature(pod), self._counts.key(pod.requests)

    def refresh_scores(self, state: CycleState, pod: PodInfo, nodes: NodeTable, same: bool) -> RowArray | None:
        return self._counts.changed(state, pod.requests, nodes)

    def _signature(self, pod: PodInfo) -> Hashable:
        return tuple(self._amounts(pod)) if pod.requests.scalars else pod.requests.as_tuple()

    def _amounts(self, pod: PodInfo) -> list[tuple[str, int]]:
        """What the pod requests, without scalar resources it does not request; empty when it requests nothing."""
        asked = [(name, 0 if name == PODS else pod.requests.get(name)) for name in self._names]
        if not any(amount for _, amount in asked):
            return []
        return [(name, amount) for name, amount in asked if amount or not is_scalar_resource(name)]

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        amounts = self._amounts(pod)
        if not amounts:
            return Status.skip()
        self._counts.begin(state, pod.requests)
        state.write(self.name, amounts)
        return None

    def _kept_amounts(self, state: CycleState, pod: PodInfo) -> list[tuple[str, int]]:
        """What PreScore wrote, else computed now: a profile may have the plugin at Score only."""
        kept: list[tuple[str, int]] | None = state.get(self.name)
        return kept if kept is not None else self._amounts(pod)

    # -- one node --------------------------------------------------------------------------------------

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        amounts = self._kept_amounts(state, pod)
        if not amounts:
            return 0  # best effort, and PreScore did not run
        if self._counts.of(pod.requests) is not None:
            return int(self.score_rows(state, pod, nodes, np.array([node.row], np.intp))[0])
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

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        amounts = self._kept_amounts(state, pod)
        if not amounts:
            return np.zeros(len(rows), np.int64)  # best effort, and PreScore did not run
        devices = self._counts.of(pod.requests)
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


def _sum_as_float(used: IntArray, amount: int) -> Floats:
    if len(used) and (int(used.max()) + amount >= 1 << 63 or int(used.min()) + amount < -(1 << 63)):
        return np.array([float(value + amount) for value in used.tolist()], np.float64)
    return (used + amount).astype(np.float64)


def _balance_rows(fractions: list[Floats], valid: list[npt.NDArray[np.bool_]]) -> IntArray:
    """int64[rows]: :func:`_balance` of each row's valid fractions."""
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
