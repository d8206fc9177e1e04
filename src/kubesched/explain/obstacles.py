"""Obstacles of a pending pod: each demand that some node does not meet, with the nodes where it stands in the way.

A filter reports the first reason against a node. Here every plugin filters every node, and each demand of a plugin
(:class:`~kubesched.scheduler.framework.demand.Demand`) is tried alone, on a copy of the pod without the plugin's other
demands. So a node's obstacles are all that has to change before the pod can run there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from heapq import nsmallest
from itertools import islice
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from kubesched.api.types import Pod, PodSpec
from kubesched.scheduler.core.search import prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.demand import Change, Demand
from kubesched.scheduler.framework.entries import FilterEntry
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import NodeList, NodeTable, PodInfo
from kubesched.scheduler.nodes.columns import RowArray

__all__ = ["Obstacle", "Obstacles", "changed", "obstacles_at", "obstacles_of", "rejected_by"]

_log = logging.getLogger(__name__)

#: Most demands of a pod that are told apart: each is one bit of a 64-bit number.
MOST_DEMANDS: Final = 62
#: Most demands of one plugin that are told apart; what others reject is named by the plugin's reason.
_MOST_OF_PLUGIN: Final = 24

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Obstacle:
    """One thing that keeps a pod off nodes.

    Attributes:
        plugin: name of the plugin that rejects.
        text: the demand with its numbers, or the plugin's reason.
        stands: bool[len(rows)], the nodes where it stands in the way.
        demand: how it could be weaker; None when no change of the pod helps.
    """

    plugin: str
    text: str
    stands: BoolArray
    demand: Demand | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Obstacles:
    """All obstacles of a pod.

    Attributes:
        pod: the pod.
        rows: the rows of all nodes, in the order of ``stands``.
        found: the obstacles, those at the most nodes first.
        silent: demands that stand in the way of no node alone, of plugins that reject some.
    """

    pod: PodInfo
    rows: RowArray
    found: list[Obstacle] = field(default_factory=list)
    silent: list[Obstacle] = field(default_factory=list)


def changed(pod: PodInfo, spec: PodSpec) -> PodInfo:
    """A copy of the pod with another spec, and without its nomination."""
    return PodInfo(Pod(pod.pod.metadata, spec, msgspec.structs.replace(pod.pod.status, nominated_node_name="")))


def applied(spec: PodSpec, changes: Sequence[Change]) -> PodSpec:
    """The spec after changes."""
    return reduce(lambda made, change: change.of(made), changes, spec)


def obstacles_of(framework: Framework, table: NodeTable, pod: PodInfo) -> Obstacles:
    """Everything that keeps the pod off nodes, by plugin and demand.

    Raises:
        PluginFailedError: when a plugin fails for the pod as it is.
    """
    result = Obstacles(pod, table.order())
    for entry in framework.filters:
        for one in _of_plugin(_Filter(framework, entry, table), table, pod):
            (result.found if one.stands.any() else result.silent).append(one)
    result.found.sort(key=lambda one: (-int(one.stands.sum()), one.plugin, one.text))
    return result


class _Filter:
    """One Filter plugin with its PreFilter, called for all nodes with nothing else around it."""

    def __init__(
        self, framework: Framework, entry: FilterEntry, table: NodeTable, rows: RowArray | None = None
    ) -> None:
        """``rows`` are the nodes to filter; None for all."""
        self._framework = framework
        self._entry = entry
        self._table = table
        self.rows = table.order() if rows is None else rows
        self.name = entry.name
        self.plugin = entry.plugin

    def rejects(self, pod: PodInfo) -> tuple[BoolArray, Callable[[int], str]]:
        """bool[len(rows)]: the nodes that the plugin rejects; and the reason at a place in ``rows``.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        state, count = prepared(CycleState(), False), len(self.rows)
        table = self._table
        outcome = self._framework.pre_filter(state, pod, NodeList(table, table.order()), {self.name})
        if outcome.status is not None:
            text = "; ".join(outcome.status.reasons())
            return np.ones(count, np.bool_), lambda place: text
        if self.name in state.skip_filter:
            verdicts = np.zeros(count, np.uint64)
        else:
            verdicts = self._entry.many(state, pod, table, self.rows.copy())
        stands = verdicts != 0
        if outcome.nodes is not None:
            allowed = np.array([table.info(row).name in outcome.nodes for row in self.rows.tolist()], np.bool_)
            stands = stands | ~allowed

        def why(place: int) -> str:
            verdict = int(verdicts[place])
            if not verdict:
                return f"node is not among those that {self.name} allows"
            return "; ".join(self._entry.status(state, pod, verdict).reasons())

        return stands, why


def rejected_by(framework: Framework, entry: FilterEntry, table: NodeTable, pod: PodInfo) -> BoolArray:
    """Return bool[nodes], in list order: the nodes that one plugin rejects, with nothing else around it.

    Raises:
        PluginFailedError: when the plugin fails.
    """
    return _Filter(framework, entry, table).rejects(pod)[0]


def obstacles_at(
    framework: Framework, entry: FilterEntry, table: NodeTable, pod: PodInfo, rows: RowArray | None = None
) -> list[Obstacle]:
    """Return the obstacles that one plugin sees on some nodes; ``rows`` None for all.

    Raises:
        PluginFailedError: when the plugin fails for the pod as it is.
    """
    found = _of_plugin(_Filter(framework, entry, table, rows), table, pod)
    return [one for one in found if one.stands.any()]


def _of_plugin(check: _Filter, table: NodeTable, pod: PodInfo) -> Iterator[Obstacle]:
    """The obstacles that one plugin sees."""
    rejected, why = check.rejects(pod)
    if not rejected.any():
        return
    demands = _demands(check, table, pod)
    fixed = "; ".join(demand.text(check.rows) for demand in demands if demand.without is None)
    weak = [(demand, demand.without) for demand in demands if demand.without is not None]
    left = rejected
    try:
        if weak:
            beyond, _ = check.rejects(changed(pod, applied(pod.spec, [without for _, without in weak])))
            left = rejected & beyond
            yield from _alone(check, pod, weak, rejected & ~beyond)
    except PluginFailedError:  # a changed pod is none that a user wrote: the plugin's own reasons have to do
        left = rejected
    yield from _by_reason(check.name, left, (lambda place: fixed) if fixed else why)


def _demands(check: _Filter, table: NodeTable, pod: PodInfo) -> list[Demand]:
    """Return the demands that a plugin names; none when it names none or fails, which the log says."""
    if not hasattr(check.plugin, "demands"):
        return []
    try:
        return list(islice(check.plugin.demands(pod, table), _MOST_OF_PLUGIN))
    except Exception:
        _log.warning("plugin %s failed to name the demands of pod %s", check.name, pod.pod.key, exc_info=True)
        return []


def _alone(
    check: _Filter, pod: PodInfo, weak: Sequence[tuple[Demand, Change]], rejected: BoolArray
) -> Iterator[Obstacle]:
    """Each demand without the plugin's others, among nodes that are ``rejected`` for nothing else.

    The last obstacle is all demands together, at the nodes where no single one is to blame.

    Raises:
        PluginFailedError: when the plugin fails for a changed pod.
    """
    covered = np.zeros(len(check.rows), np.bool_)
    for demand, _ in weak:
        others = [without for other, without in weak if other is not demand]
        stands = rejected & check.rejects(changed(pod, applied(pod.spec, others)))[0] if others else rejected
        covered |= stands
        yield Obstacle(check.name, demand.text(check.rows[stands]), stands, demand)
    every = [without for _, without in weak]
    whole = Change(" and ".join(change.text for change in every), lambda spec: applied(spec, every))
    together = rejected & ~covered
    text = "; ".join(demand.text(check.rows[together]) for demand, _ in weak)
    yield Obstacle(check.name, text, together, Demand(lambda rows: text, whole))


def _by_reason(plugin: str, stands: BoolArray, why: Callable[[int], str]) -> Iterator[Obstacle]:
    """Rejections that no change of the pod lifts, by the plugin's reasons."""
    places: dict[str, list[int]] = {}
    for place in np.flatnonzero(stands).tolist():
        places.setdefault(why(place), []).append(place)
    for text, listed in places.items():
        mask = np.zeros(len(stands), np.bool_)
        mask[listed] = True
        yield Obstacle(plugin, text, mask)


def names_at(table: NodeTable, rows: RowArray, most: int) -> list[str]:
    """Names of the nodes in these rows, sorted; only the first ``most`` of them."""
    return nsmallest(most, (table.info(row).name for row in rows.tolist()))


def rows_without(found: Collection[Obstacle], count: int) -> BoolArray:
    """bool[count]: the nodes where none of these obstacles stands."""
    free = np.ones(count, np.bool_)
    for obstacle in found:
        free &= ~obstacle.stands
    return free
