"""Obstacles of a pending pod: each demand that some node does not meet, with the nodes where it stands in the way.

A filter reports the first reason against a node. Here every plugin filters every node, and each demand of a plugin
(:class:`~kubesched.scheduler.framework.demand.Demand`) is tried alone, on a copy of the pod without the plugin's other
demands. So a node's obstacles are all that has to change before the pod can run there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from kubesched.api.types import Pod, PodSpec
from kubesched.base.lines import printable
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Search, prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.demand import Change, Demand
from kubesched.scheduler.framework.entries import FilterEntry
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.question import VerdictArray
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import NodeList, NodeTable, PodInfo
from kubesched.scheduler.nodes.columns import NO_ROWS, BoolArray, IntpArray, RowArray, equal_places, joined
from kubesched.scheduler.plugins.demands.words import counted

from .foreign import guarded, remark, short

__all__ = [
    "Obstacle",
    "Obstacles",
    "affordable",
    "changed",
    "fits_after",
    "made",
    "obstacles_of",
    "obstacles_of_plugin",
    "rejected_by",
    "with_changes",
]

_log = logging.getLogger(__name__)

#: Most demands of a pod that are told apart: each is one bit of a 64-bit number.
MOST_DEMANDS: Final = 62
#: Most demands of one plugin that are told apart; nodes that others reject get the plugin's reason, which says so.
MOST_OF_PLUGIN: Final = 24
#: Members of a pod's spec beyond which fewer of its changes are evaluated; a pod may have thousands of terms.
_MANY_MEMBERS: Final = 256
_FEW: Final = 6
#: Plugin of obstacles that no filter is the reason for.
OF_SCHEDULER: Final = "scheduler"
#: Most reasons of one plugin that are told apart.
_MOST_REASONS: Final = 32
#: Most remarks about plugins that failed.
_MOST_REMARKS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Obstacle:
    """One thing that keeps a pod off nodes.

    Attributes:
        plugin: name of the plugin that rejects.
        text: the demand with its numbers, or the plugin's reason.
        stands: bool[len(rows)], the nodes where it stands in the way.
        demand: how it could be weaker; None when no change of the pod helps.
        data: the numbers of ``text`` for programs.
    """

    plugin: str
    text: str
    stands: BoolArray
    demand: Demand | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, plugin: str, demand: Demand, rows: RowArray, stands: BoolArray) -> Obstacle:
        """Make the obstacle of a demand at the rows where it ``stands``; without words when it stands nowhere."""
        here = rows[stands]
        if not len(here):
            return cls(plugin, "", stands, demand)
        return cls(plugin, demand.text(here), stands, demand, demand.data(here))


@dataclass(frozen=True, slots=True, eq=False)
class Obstacles:
    """All obstacles of a pod.

    Attributes:
        pod: the pod.
        rows: the rows of all nodes, in the order of ``stands``.
        found: the obstacles, those at the most nodes first.
        silent: demands that stand in the way of no node alone, of plugins that reject some.
        remarks: sentences about plugins that failed to help with the explanation, and what that costs.
    """

    pod: PodInfo
    rows: RowArray
    found: list[Obstacle] = field(default_factory=list)
    silent: list[Obstacle] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def note(self, error: PluginFailedError, what: str) -> None:
        """Remark once that a plugin failed, and ``what`` that costs."""
        text = remark(error, what)
        if text not in self.remarks and len(self.remarks) < _MOST_REMARKS:
            self.remarks.append(text)


def with_changes(pod: Pod, changes: Sequence[Change]) -> Pod:
    """A copy of the pod with changes, and without its nomination."""
    made = reduce(lambda done, change: change.of(done), changes, pod)
    return replace(made, status=replace(made.status, nominated_node_name=""))


@contextmanager
def made(pod: PodInfo, changes: Sequence[Change]) -> Iterator[PodInfo]:
    """The changed pod. Within the block, plugins see the other objects that the changes are about changed, too."""
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change.around())
        yield PodInfo(with_changes(pod.pod, changes))


def changed(pod: PodInfo, spec: PodSpec) -> PodInfo:
    """A copy of the pod with another spec, and without its nomination."""
    return PodInfo(with_changes(replace(pod.pod, spec=spec), ()))


def fits_after(search: Search, pod: PodInfo, changes: Sequence[Change]) -> RowArray:
    """Rows that fit after changes, by the scheduler's own search."""
    try:
        with made(pod, changes) as changed:
            evaluation = search.evaluate(CycleState(), changed)
    except PluginFailedError:  # for a pod that no user wrote
        return NO_ROWS
    return NO_ROWS if isinstance(evaluation, Rejection) else np.sort(evaluation.feasible)


def affordable(pod: PodInfo, most: int) -> int:
    """Number of changed pods that may be evaluated: ``most``; of a pod with a very large spec fewer, but at least a few.

    Many terms of such a pod are one demand, and without it the pod is small.
    """
    members = msgspec.json.encode(pod.spec).count(b":")
    return max(_FEW, most // max(1, members // _MANY_MEMBERS) ** 2)


def obstacles_of(framework: Framework, table: NodeTable, pod: PodInfo) -> Obstacles:
    """Everything that keeps the pod off nodes, by plugin and demand.

    Raises:
        PluginFailedError: when a plugin fails for the pod as it is.
    """
    result = Obstacles(pod, table.order())
    for entry in framework.filters:
        for one in _of_plugin(_Filter(framework, entry, table), table, result):
            (result.found if one.stands.any() else result.silent).append(one)
    result.found.sort(key=lambda one: (-int(one.stands.sum()), one.plugin, one.text))
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Rejected:
    """Rejections by one plugin: ``stands`` is bool[len(rows)]; rows with equal ``codes`` have the reason ``why(code)``."""

    stands: BoolArray
    codes: VerdictArray
    why: Callable[[int], str]


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

    def rejects(self, pod: PodInfo, changes: Sequence[Change] = ()) -> _Rejected:
        """The nodes that the plugin rejects, after changes of the pod.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        if not changes:
            return self._rejects(pod)
        with made(pod, changes) as changed:
            return self._rejects(changed)

    def _rejects(self, pod: PodInfo) -> _Rejected:
        state, count = prepared(CycleState(), False), len(self.rows)
        table = self._table
        outcome = self._framework.pre_filter(state, pod, NodeList(table, table.order()), {self.name})
        verdicts = np.zeros(count, np.uint64)
        if outcome.status is not None:
            text = "; ".join(outcome.status.reasons())
            return _Rejected(np.ones(count, np.bool_), verdicts, lambda code: text)
        if self.name not in state.skip_filter:
            verdicts = self._entry.many(state, pod, table, self.rows.copy())
        stands = verdicts != 0
        if outcome.nodes is not None:
            allowed = np.zeros(table.capacity, np.bool_)
            allowed[[row for row in map(table.row_of, outcome.nodes) if row is not None]] = True
            stands = stands | ~allowed[self.rows]

        def why(code: int) -> str:
            if not code:
                return f"node is not among those that {self.name} allows"
            return "; ".join(self._entry.status(state, pod, code).reasons())

        return _Rejected(stands, verdicts, why)


def rejected_by(framework: Framework, entry: FilterEntry, table: NodeTable, pod: PodInfo) -> BoolArray:
    """Return bool[nodes], in list order: the nodes that one plugin rejects, with nothing else around it.

    Raises:
        PluginFailedError: when the plugin fails.
    """
    return _Filter(framework, entry, table).rejects(pod).stands


def obstacles_of_plugin(
    framework: Framework, entry: FilterEntry, table: NodeTable, pod: PodInfo, rows: RowArray | None = None
) -> list[Obstacle]:
    """Return the obstacles that one plugin sees on some nodes; ``rows`` None for all.

    Raises:
        PluginFailedError: when the plugin fails for the pod as it is.
    """
    found = _of_plugin(_Filter(framework, entry, table, rows), table, Obstacles(pod, table.order()))
    return [one for one in found if one.stands.any()]


def _of_plugin(check: _Filter, table: NodeTable, every: Obstacles) -> Iterator[Obstacle]:
    """The obstacles that one plugin sees. What fails is noted in ``every``."""
    pod = every.pod
    rejected = check.rejects(pod)
    if not rejected.stands.any():
        return
    demands, is_cut = _demands(check, table, every)
    note = f" (only the first {counted(len(demands), 'demand')} told apart)" if is_cut else ""
    weak = [(demand, demand.without) for demand in demands if demand.without is not None]
    left = rejected.stands
    try:
        if weak:
            beyond = check.rejects(pod, [without for _, without in weak]).stands
            left = rejected.stands & beyond
            yield from list(_alone(check, pod, weak, rejected.stands & ~beyond))
    except PluginFailedError as error:  # a changed pod is none that a user wrote: the plugin's own reasons have to do
        left = rejected.stands
        every.note(error, "its demands are not told apart")
    fixed = [demand.text(check.rows[left]) for demand in demands if demand.without is None] if left.any() else []
    yield from _by_reason(check.name, rejected, left, "; ".join(fixed), note)


def _demands(check: _Filter, table: NodeTable, every: Obstacles) -> tuple[list[Demand], bool]:
    """Return the demands that a plugin names, and if there are more of them than are told apart.

    None when the plugin names none or fails, which the log and a remark say.
    """
    pod = every.pod
    if not hasattr(check.plugin, "demands"):
        return [], False
    most = affordable(pod, MOST_OF_PLUGIN)
    try:
        found = [guarded(check.name, one) for one in islice(check.plugin.demands(pod, table), most + 1)]
    except Exception as error:
        every.note(PluginFailedError(check.name, error), "its demands are not told apart")
        _log.warning(
            "plugin %s failed to name the demands of pod %s: %s", check.name, pod.pod.key, printable(short(error))
        )
        _log.debug("traceback of plugin %s", check.name, exc_info=True)
        return [], False
    return found[:most], len(found) > most


def _alone(
    check: _Filter, pod: PodInfo, weak: Sequence[tuple[Demand, Change]], rejected: BoolArray
) -> Iterator[Obstacle]:
    """Each demand without the plugin's others, among nodes that are ``rejected`` for nothing else.

    The last obstacle is at the nodes where no single one is to blame.

    Raises:
        PluginFailedError: when the plugin fails for a changed pod.
    """
    covered = np.zeros(len(check.rows), np.bool_)
    for demand, _ in weak:
        others = [without for other, without in weak if other is not demand]
        stands = rejected & check.rejects(pod, others).stands if others else rejected
        covered |= stands
        yield Obstacle.of(check.name, demand, check.rows, stands)
    together = rejected & ~covered
    if together.any():
        yield _together(check, pod, weak, together)


def _together(check: _Filter, pod: PodInfo, weak: Sequence[tuple[Demand, Change]], stands: BoolArray) -> Obstacle:
    """All demands together, at nodes where no single one is to blame.

    When it is enough to drop one of them, such as a constraint of a claim, it is named by the first of these. The others
    are tried as well: they are among the demands that stand in the way of no node alone.

    Raises:
        PluginFailedError: when the plugin fails for a changed pod.
    """
    rows = check.rows[stands]
    for demand, without in weak:
        if not check.rejects(pod, [without]).stands[stands].all():
            return Obstacle.of(check.name, demand, check.rows, stands)
    text = "; ".join(demand.text(rows) for demand, _ in weak)
    return Obstacle(check.name, text, stands, Demand(lambda rows: text, _whole([without for _, without in weak])))


def _whole(changes: Sequence[Change]) -> Change:
    """Several changes as one."""

    @contextmanager
    def around() -> Iterator[None]:
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(change.around())
            yield

    words = " and ".join(change.text for change in changes)
    return Change(words, lambda pod: reduce(lambda done, change: change.of(done), changes, pod), around)


def _by_reason(plugin: str, rejected: _Rejected, left: BoolArray, fixed: str, note: str) -> Iterator[Obstacle]:
    """Rejections that no change lifts, by ``fixed``, the texts of the demands there, or by the plugin's reasons."""
    places: dict[str, list[IntpArray]] = {}
    at = np.flatnonzero(left)
    for code, mine in equal_places(rejected.codes[at]):
        text = (fixed or rejected.why(code)) + note
        if text not in places and len(places) >= _MOST_REASONS:
            text = "other reasons" + note
        places.setdefault(text, []).append(at[mine])
    for text, parts in places.items():
        mask = np.zeros(len(left), np.bool_)
        mask[joined(parts)] = True
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
