"""Extension points of pod groups: PlacementGenerate and PlacementScore.

Made by :class:`~kubesched.scheduler.framework.runtime.Framework`; called by the group cycle. Source: rules/groups §12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..nodes import NodeList
from ..nodes.nodeinfo import NodeInfo
from .cycle_state import CycleState
from .driver import Driver
from .interface import MAX_NODE_SCORE
from .placements import GroupToPlace, Placement, TriedPlacement
from .points import PLACEMENT_GENERATE, PLACEMENT_SCORE
from .status import Code, Status

if TYPE_CHECKING:
    from ..nodes import NodeTable

__all__ = ["GroupPoints"]

_NONE: Status = Status.unschedulable("no feasible placements found")


class GroupPoints:
    """Extension points of pod groups, of one profile."""

    def __init__(self, driver: Driver, points: Mapping[str, Sequence[Any]], weights: Mapping[str, int]) -> None:
        """``points``: point key to plugins, in order. ``weights``: plugin name to the weight of its placement scores."""
        self._driver = driver
        self._generators = points[PLACEMENT_GENERATE.key]
        self._scorers = points[PLACEMENT_SCORE.key]
        self._weights = weights

    def placements(self, state: CycleState, group: GroupToPlace, table: NodeTable) -> list[Placement] | Status:
        """Return the placements in which a group is tried, by name; or why there is none."""
        if not self._generators:
            return [Placement("", None)]
        plugin = self._generators[0]
        start = self._driver.now()
        nodes = NodeList(table, table.order())
        found, status = self._driver.ask(state, PLACEMENT_GENERATE, plugin, group, nodes)
        if status is None and found is not None:
            found = sorted((_placement(name, listed) for name, listed in found), key=lambda each: each.name)
            if not found:
                status = _NONE
        self._driver.observed(PLACEMENT_GENERATE, start, status)
        if status is not None and status.code is not Code.SUCCESS:
            return self._driver.judge(PLACEMENT_GENERATE, plugin, status)
        return found if found is not None else [Placement("", None)]

    def totals(self, state: CycleState, group: GroupToPlace, tried: Sequence[TriedPlacement]) -> list[int] | Status:
        """Return the sum of the weighted scores of each placement; or the failure of a plugin."""
        totals = [0] * len(tried)
        start = self._driver.now()
        for plugin in self._scorers:
            scores, status = self._driver.ask(state, PLACEMENT_SCORE, plugin, group, tried)
            if status is None and len(scores) != len(tried):
                status = Status.from_error(f"returned {len(scores)} scores for {len(tried)} placements")
            if status is not None:
                text = f'running PlacementScore plugins: plugin "{plugin.name}" failed with: {status.message()}'
                failure = Status.from_error(text, plugin.name)
                self._driver.observed(PLACEMENT_SCORE, start, failure)
                return failure
            for place, score in enumerate(scores):
                if not 0 <= score <= MAX_NODE_SCORE:
                    return Status.from_error(
                        f'applying score defaultWeights on PlacementScore plugins: plugin "{plugin.name}" returns an '
                        f"invalid score {score}, it should in the range of [0, {MAX_NODE_SCORE}] after normalizing"
                    )
                totals[place] += score * self._weights[plugin.name]
        self._driver.observed(PLACEMENT_SCORE, start, None)
        return totals


def _placement(name: str, nodes: Any) -> Placement:
    rows = nodes.rows if isinstance(nodes, NodeList) else [node.row for node in nodes if isinstance(node, NodeInfo)]
    return Placement(name, np.array(rows, np.intp))
