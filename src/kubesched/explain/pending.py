"""Explanation of one pending pod: its obstacles, the smallest changes that help, and evictions that would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.demand import Change
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.nodes.columns import RowArray

from .evictions import Evictions, evictions_for
from .new_nodes import NewNode, new_nodes_for
from .obstacles import Obstacles, fits_after, obstacles_of
from .remedies import Remedy, remedies_for

__all__ = ["PendingExplanation", "explain_pod"]


@dataclass(frozen=True, slots=True)
class PendingExplanation:
    """Why a pod fits on no node, and what would help.

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
    remedies, evictions = remedies_for(obstacles, fits), evictions_for(framework, search, obstacles)
    return PendingExplanation(obstacles, remedies, evictions, new_nodes_for(framework, search, obstacles))
