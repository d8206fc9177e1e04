"""Scores of all nodes that fit a pod, by plugin: raw, normalised and weighted, evaluated with nothing remembered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kubesched.scheduler.core.diagnosis import NodeStatuses, Rejection
from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.question import IntArray
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import NodeList, PodInfo
from kubesched.scheduler.nodes.columns import RowArray

from .report import NodeScore, PluginScore

__all__ = ["ScoreTable", "score_table"]


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """Scores of the nodes that fit.

    Attributes:
        rows: intp[n], the rows of these nodes.
        statuses: reasons why the other nodes do not fit.
        weights: weight by plugin; plugins that skipped the pod are absent.
        raw: int64[n] by plugin.
        normalized: int64[n] by plugin, each in 0…100.
        totals: int64[n], the sum of ``normalized`` times weight.
    """

    rows: RowArray
    statuses: NodeStatuses
    weights: dict[str, int]
    raw: dict[str, IntArray]
    normalized: dict[str, IntArray]
    totals: IntArray

    def place(self, row: int) -> int | None:
        """Return the place of a row in the arrays; None if its node does not fit."""
        places = np.flatnonzero(self.rows == row)
        return int(places[0]) if len(places) else None

    def node(self, place: int, name: str) -> NodeScore:
        """Return the scores of the node at a place of the arrays."""
        scores = [
            PluginScore(
                plugin=plugin,
                raw=int(self.raw[plugin][place]),
                normalized=int(self.normalized[plugin][place]),
                weight=weight,
                score=int(self.normalized[plugin][place]) * weight,
            )
            for plugin, weight in self.weights.items()
        ]
        return NodeScore(node=name, total=int(self.totals[place]), scores=scores)


def score_table(framework: Framework, search: Search, pod: PodInfo) -> ScoreTable | Rejection:
    """Filter and score all nodes, also where the configuration samples them; or return why none fits.

    Raises:
        PluginFailedError: when a plugin fails.
    """
    state, table = CycleState(), search.table
    if not len(table):
        return Rejection.without_nodes(state)
    # A scan of named nodes is not sampled, and leaves the scheduler's rotation as it is.
    request = search.request(pod, state, only=frozenset(search.snapshot.nodes().names()))
    found = search.scan.filter(request)
    if isinstance(found, Rejection):
        return found
    rows = found.feasible
    nodes = NodeList(table, rows)
    status = framework.pre_score(state, pod, nodes)
    if status is not None:
        raise PluginFailedError.of(status)
    result = ScoreTable(rows, found.statuses, {}, {}, {}, np.zeros(len(rows), np.int64))
    for entry in framework.scores:
        if entry.name in state.skip_score:
            continue
        raw = entry.many(state, pod, table, rows)
        final = entry.final_of_all(state, pod, nodes, raw)
        result.weights[entry.name] = entry.weight
        result.raw[entry.name] = raw
        result.normalized[entry.name] = final // entry.weight
        result.totals[:] += final
    return result
