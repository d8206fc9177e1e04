"""Explanation of one pending pod: its obstacles, the smallest changes that help, and evictions that would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.demand import Change
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.nodes.columns import RowArray
from kubesched.scheduler.nodes.nominating import nominations_that_count
from kubesched.scheduler.plugins.demands.words import listed

from .evictions import Evictions, evictions_for
from .new_nodes import NewNode, new_nodes_for
from .obstacles import OF_SCHEDULER, Obstacle, Obstacles, fits_after, obstacles_of, rows_without
from .releases import releases_for
from .remedies import Remedy, remedies_for

__all__ = ["PendingExplanation", "explain_pod"]

#: Names of pods in one text.
_MOST_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class PendingExplanation:
    """Explanation of why a pod fits on no node, and of what would help.

    Attributes:
        obstacles: what stands in the way, by node.
        remedies: smallest sets of changes of the pod after which it fits.
        evictions: the fewest evictions found that make room; None when none of the nodes tried would do.
        new_nodes: kinds of nodes of which one more would do.
    """

    obstacles: Obstacles
    remedies: list[Remedy]
    evictions: Evictions | None
    new_nodes: list[NewNode]


def explain_pod(framework: Framework, search: Search, pod: PodInfo) -> PendingExplanation:
    """Explain why the pod fits nowhere now. Nothing is changed.

    Raises:
        PluginFailedError: when a plugin fails for the pod.
    """

    def fits(changes: Sequence[Change]) -> RowArray:
        return fits_after(search, pod, changes)

    obstacles = obstacles_of(framework, search.table, pod)
    obstacles.found.extend(_beyond_filters(search, obstacles, fits))
    remedies = remedies_for(obstacles, fits)
    evicted = (evictions_for(framework, search, obstacles), releases_for(framework, search, obstacles))
    evictions = min((one for one in evicted if one is not None), key=lambda one: len(one.pods), default=None)
    return PendingExplanation(obstacles, remedies, evictions, new_nodes_for(framework, search, obstacles))


def _beyond_filters(
    search: Search, obstacles: Obstacles, fits: Callable[[Sequence[Change]], RowArray]
) -> list[Obstacle]:
    """The nodes that no filter rejects, and that do not fit all the same: for nominated pods, or extenders."""
    left = rows_without(obstacles.found, len(obstacles.rows))
    if not left.any():
        return []
    left &= ~np.isin(obstacles.rows, fits(()))
    kept, nominations = np.zeros(len(left), np.bool_), search.nominations
    names: list[str] = []
    for place in np.flatnonzero(left).tolist():
        node = search.table.info(int(obstacles.rows[place])).name
        there = nominations_that_count(nominations.nominated_pods_for_node(node), obstacles.pod)
        kept[place] = bool(there)
        names += [f"{other.pod.key} on {node}" for other in there]
    text = f"room is kept for nominated pods: {listed(names[:_MOST_NAMES], len(names))}"
    found = [
        Obstacle(OF_SCHEDULER, text, kept),
        Obstacle(OF_SCHEDULER, "all filters let the pod run; an extender does not", left & ~kept),
    ]
    return [one for one in found if one.stands.any()]
