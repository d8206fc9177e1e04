"""Obstacles of a pod at one node, and the smallest changes that open this node."""

from __future__ import annotations

import numpy as np

from kubesched.api.types import PodSpec
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.nodes.columns import NO_ROWS, RowArray

from .obstacles import Obstacle, Obstacles, changed, obstacles_of
from .remedies import Remedy, remedies_for

__all__ = ["obstacles_at", "remedies_at"]


def obstacles_at(framework: Framework, search: Search, pod: PodInfo, row: int) -> Obstacles:
    """Return everything that keeps the pod off the node of a row; ``stands`` is bool[1].

    Raises:
        PluginFailedError: when a plugin fails for the pod.
    """
    found = obstacles_of(framework, search.table, pod)
    here = found.rows == row
    each = [
        Obstacle(
            one.plugin,
            one.demand.text(found.rows[here]) if one.demand is not None else one.text,
            one.stands[here],
            one.demand,
        )
        for one in (*found.found, *found.silent)
    ]
    return Obstacles(
        pod,
        found.rows[here],
        [one for one in each if one.stands.any()],
        [one for one in each if not one.stands.any()],
    )


def remedies_at(search: Search, obstacles: Obstacles) -> list[Remedy]:
    """Return the smallest sets of changes of the pod after which it fits the node of :func:`obstacles_at`."""
    row = int(obstacles.rows[0])

    def fits(spec: PodSpec) -> RowArray:
        try:
            evaluation = search.evaluate(CycleState(), changed(obstacles.pod, spec))
        except PluginFailedError:  # for a pod that no user wrote
            return NO_ROWS
        if isinstance(evaluation, Rejection) or not (evaluation.feasible == row).any():
            return NO_ROWS
        return np.array([row], np.intp)

    return remedies_for(obstacles, fits)
