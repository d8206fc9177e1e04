"""Reprieve of pods in the fast dry run, where only amounts of resources decide (rules/preemption §4.2).

At first all pods of lower priority have left. Then they come back, the most important first, as long as they fit. One
node is computed in plain integers (:func:`reprieve_row`), many nodes at once in columns (:func:`reprieve_rows`). The
columns give only the measures by which candidates are compared; the victims are found when they are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ...framework.preemption import Victims
from ...nodes import NodeTable
from ...nodes.columns import RowArray
from ...nodes.node_table import CPU_ROW, EPHEMERAL_ROW, MEMORY_ROW, PODS_ROW
from ...nodes.placed_pods import CPU_AT, EPHEMERAL_AT, KIND_AT, MEMORY_AT, NUMBER_AT, PRIORITY_AT, ROW_AT, PlacedPods
from ...nodes.podinfo import PodInfo
from .budgets import Budgets
from .choose import PER_VICTIM
from .importance import importance, start_of

__all__ = [
    "CRITERIA",
    "EARLIEST",
    "MEASURES",
    "UNSTARTED",
    "Measures",
    "Needs",
    "by_importance",
    "measures_of",
    "needs_of",
    "reprieve_row",
    "reprieve_rows",
]

#: Measures by which candidates are compared, float64[n, 6]. The first four, where the least wins, are in this order:
#: budget violations, priority of the first victim, sum of priorities, number of victims. The fifth is the earliest
#: start of the most important victims that have started, or infinity; the latest wins. The sixth is 1 if one of these
#: victims has not started; its start counts as now.
Measures = npt.NDArray[np.float64]
MEASURES: Final = 6
#: Number of measures before the start times.
CRITERIA: Final = 4
EARLIEST: Final = 4
UNSTARTED: Final = 5
#: Column of each resource in the columns of pods; None: each pod counts as one.
_PLACES: Final[dict[int, int | None]] = {
    PODS_ROW: None, CPU_ROW: CPU_AT, MEMORY_ROW: MEMORY_AT, EPHEMERAL_ROW: EPHEMERAL_AT,
}  # fmt: skip

#: Bound of the integer keys by which pods are sorted.
_MOST_KEYS: Final = 1 << 62

#: Function that returns the amounts that a pod takes of the resources in question.
Needs = Callable[[PodInfo], Sequence[int]]


def by_importance(pods: list[PodInfo]) -> tuple[list[PodInfo], float]:
    """Sort by importance. Pods that have not started count as starting at the end of time.

    The rule counts them as starting now, which gives another order if the start of some pod lies in the future. The
    second value shows that case: it is the latest start among the pods, or minus infinity if all have started.
    """
    infinity = math.inf
    kinds = {(pod.pod.spec.priority or 0, pod.pod.status.start_time) for pod in pods}
    if len(kinds) == 1:
        return pods, -infinity
    starts = [start_of(pod, infinity) for pod in pods]
    ranked = sorted([(-(pod.pod.spec.priority or 0), starts[place], place) for place, pod in enumerate(pods)])
    latest = -infinity
    if infinity in starts:
        latest = max([start for start in starts if start != infinity], default=latest)
    return [pods[place] for _, _, place in ranked], latest


def needs_of(indexes: Sequence[int], table: NodeTable) -> Needs:
    """Make the function that returns a pod's amounts of the resources with these indexes."""
    if list(indexes) == [PODS_ROW, CPU_ROW, MEMORY_ROW]:

        def common(pod: PodInfo) -> tuple[int, int, int]:
            requests = pod.requests
            return 1, requests.milli_cpu, requests.memory

        return common
    names = list(table.resource_index)
    return lambda pod: [1 if index == PODS_ROW else pod.requests.get(names[index]) for index in indexes]


def reprieve_row(ordered: Sequence[PodInfo], left: list[int], needs: Needs, budgets: Budgets, now: float) -> Victims:
    """Find the victims among one node's pods of lower priority.

    Args:
        ordered: these pods, the most important first.
        left: the free part of each amount without these pods; changed.
        needs: returns a pod's amounts.
        budgets: the budgets that may be violated.
        now: time in seconds; a pod that has not started counts as started at this time.
    """
    violating, others = budgets.split(ordered) if budgets else ([], ordered)
    victims: list[PodInfo] = []
    violations = 0
    for group in (violating, others) if violating else (others,):
        for pod in group:
            amounts = needs(pod)
            for place, amount in enumerate(amounts):
                if amount > left[place]:
                    victims.append(pod)
                    violations += group is violating
                    break
            else:
                for place, amount in enumerate(amounts):
                    left[place] -= amount
    if violating and others:
        victims.sort(key=lambda each: importance(each, now))
    return Victims(tuple(victims), violations)


def measures_of(victims: Victims) -> tuple[float, ...]:
    """Measures of a candidate with these victims; see :data:`Measures`."""
    pods = victims.pods
    if not pods:
        return victims.pdb_violations, 0, 0, 0, math.inf, 0
    highest, total = pods[0].priority, 0
    earliest, unstarted = math.inf, 0
    for pod in pods:
        priority = pod.pod.spec.priority or 0
        total += priority + PER_VICTIM
        if priority == highest:
            start = start_of(pod, math.inf)
            if start < earliest:
                earliest = start
            elif start == math.inf:
                unstarted = 1
    return victims.pdb_violations, highest, total, len(pods), earliest, unstarted


def reprieve_rows(
    table: NodeTable,
    rows: RowArray,
    priority: int,
    indexes: Sequence[int],
    left: npt.NDArray[np.int64],
    budgets: Budgets,
    now: float,
) -> Measures | None:
    """Measure many nodes by their victims; None when the pods have to be evaluated one by one.

    Args:
        table: the nodes and their pods.
        rows: the nodes; each has pods of lower priority.
        priority: the preemptor's.
        indexes: the resources in question.
        left: int64[resources, rows]; the free amounts without these pods; changed.
        budgets: the budgets that may be violated. Rows in :meth:`..Budgets.counted_rows` must not be given.
        now: time in seconds; a pod that has not started counts as started at this time.

    Returns:
        None for scalar resources, and if a pod has not started while the start of another one lies in the future.
    """
    columns = [_PLACES.get(index, -1) for index in indexes]
    if -1 in columns:
        return None
    placed, on = table.placed, np.zeros(table.capacity, np.bool_)
    on[rows] = True
    places = placed.below(priority, on)
    places = places[np.argsort(placed.numbers(NUMBER_AT, places))]
    starts = placed.starts(places)
    started = np.isfinite(starts)
    if not started.all() and (starts[started] > now).any():
        return None
    rank = np.zeros(table.capacity, np.intp)
    rank[rows] = np.arange(len(rows))
    node, priorities = rank[placed.numbers(ROW_AT, places)], placed.numbers(PRIORITY_AT, places)
    order = _order(node, priorities, starts)
    places, starts, priorities, node = places[order], starts[order], priorities[order], node[order]
    violating = budgets.violating(table, placed.numbers(KIND_AT, places), node) if budgets else None
    if violating is not None and violating.any():
        turns = np.argsort(2 * node + ~violating, kind="stable")  # violating ones come back first
        is_victim = np.zeros(len(node), np.bool_)
        is_victim[turns] = _victims(placed, places[turns], node, columns, left)
        violations = np.bincount(node[is_victim & violating], minlength=len(rows))
    else:
        is_victim = _victims(placed, places, node, columns, left)
        violations = np.zeros(len(rows), np.intp)
    return _measured(priorities[is_victim], starts[is_victim], node[is_victim], violations)


def _order(node: RowArray, priorities: npt.NDArray[np.int64], starts: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Places of pods by node and importance, in the given order among equals; intp[n].

    Sorted by one integer if all of it fits into 64 bits: whole seconds, and priorities that are not too far apart.
    """
    if not len(node):
        return np.zeros(0, np.intp)
    highest, lowest = int(priorities.max()), int(priorities.min())
    started = starts[np.isfinite(starts)]
    first, last = (float(started.min()), float(started.max())) if len(started) else (0.0, 0.0)
    seconds = last - first + 2  # one more for pods that have not started
    most = (int(node.max()) + 1) * (highest - lowest + 1) * seconds
    if most >= _MOST_KEYS or (np.floor(started) != started).any():
        return np.lexsort((starts, -priorities, node))
    key = node * (highest - lowest + 1) + (highest - priorities)
    key = key * int(seconds) + (np.minimum(starts, last + 1) - first).astype(np.int64)
    return np.argsort(key, kind="stable")


def _victims(
    placed: PlacedPods,
    places: npt.NDArray[np.intp],
    node: RowArray,
    columns: Sequence[int | None],
    left: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Mark the pods that do not fit when they come back to their nodes in this order, bool[n]; ``left`` is changed."""
    counts = np.bincount(node, minlength=left.shape[1])
    first = np.cumsum(counts) - counts
    is_victim = np.ones(len(node), np.bool_)
    amounts = np.ones((len(columns), len(places)), np.int64)
    for number, column in enumerate(columns):
        if column is not None:
            amounts[number] = placed.numbers(column, places)
    for turn in range(int(counts.max(initial=0))):
        nodes = np.flatnonzero(counts > turn)
        pods = first[nodes] + turn
        needed = amounts.take(pods, axis=1)
        fits = np.flatnonzero((needed <= left.take(nodes, axis=1)).all(axis=0))
        is_victim[pods[fits]] = False
        left[:, nodes[fits]] -= needed.take(fits, axis=1)
    return is_victim


def _measured(
    priorities: npt.NDArray[np.int64], starts: npt.NDArray[np.float64], node: RowArray, violations: RowArray
) -> Measures:
    """Measure nodes by their victims, which are ordered by node, the most important first."""
    nodes = len(violations)
    measures = np.zeros((nodes, MEASURES))
    measures[:, 0], measures[:, EARLIEST] = violations, math.inf
    count = np.bincount(node, minlength=nodes)
    having = np.flatnonzero(count)
    if len(having):
        first = (np.cumsum(count) - count)[having]
        highest = priorities[first]
        measures[having, 1] = highest
        measures[having, 2] = np.add.reduceat(priorities, first) + count[having] * PER_VICTIM
        measures[:, 3] = count
        foremost = priorities == np.repeat(highest, count[having])
        measures[having, EARLIEST] = np.minimum.reduceat(np.where(foremost, starts, math.inf), first)
        measures[having, UNSTARTED] = np.logical_or.reduceat(foremost & np.isinf(starts), first)
    return measures
