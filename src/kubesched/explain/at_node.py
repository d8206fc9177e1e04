"""Obstacles of a pod at one node, and the smallest changes that open this node."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.demand import Change
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.nodes.columns import RowArray

from .obstacles import Obstacle, Obstacles, fits_after, obstacles_of
from .remedies import Remedy, remedies_for

__all__ = ["obstacles_at", "remedies_at"]


def obstacles_at(framework: Framework, search: Search, pod: PodInfo, row: int) -> Obstacles:
    """Return everything that keeps the pod off the node of a row; ``stands`` is bool[1].

    Raises:
        PluginFailedError: when a plugin fails for the pod.
    """
    found = obstacles_of(framework, search.table, pod)
    here = found.rows == row

    def at_row(one: Obstacle) -> Obstacle:
        text = one.demand.text(found.rows[here]) if one.demand is not None else one.text
        return Obstacle(one.plugin, text, one.stands[here], one.demand)

    each = [at_row(one) for one in (*found.found, *found.silent)]
    return Obstacles(
        pod,
        found.rows[here],
        [one for one in each if one.stands.any()],
        [one for one in each if not one.stands.any()],
        found.remarks,
    )


def remedies_at(search: Search, obstacles: Obstacles) -> list[Remedy]:
    """Return the smallest sets of changes of the pod after which it fits the node of :func:`obstacles_at`."""
    row = int(obstacles.rows[0])

    def fits(changes: Sequence[Change]) -> RowArray:
        rows = fits_after(search, obstacles.pod, changes)
        here: RowArray = rows[rows == row]
        return here

    return remedies_for(obstacles, fits)
