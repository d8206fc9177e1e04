"""Placements: sets of nodes in which a pod group is tried, and the contract of the plugins that name and score them.

A group is tried in one placement after the other. Among those that hold it, the one with the greatest score wins. With
one placement, all nodes, nothing is scored.

Source: rules/groups §12.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..nodes.columns import RowArray
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .cycle_state import CycleState
from .status import Status

if TYPE_CHECKING:
    from ..nodes import NodeList

__all__ = ["GroupContract", "GroupToPlace", "Placement", "TriedPlacement"]


@dataclass(frozen=True, slots=True)
class GroupToPlace:
    """Pod group for which nodes are wanted: ``namespace/name``, and the members that are queued, in order."""

    key: str
    pods: Sequence[PodInfo]


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Placement: a set of nodes in which a group is tried.

    Attributes:
        name: name in logs; "" for the placement of all nodes.
        rows: intp[n], the rows of its nodes; None for all nodes.
    """

    name: str
    rows: RowArray | None


@dataclass(frozen=True, slots=True, eq=False)
class TriedPlacement:
    """Placement that holds a group.

    Attributes:
        nodes: its nodes. The members of the trial are not on them any more.
        assignments: where the trial placed each member that was queued and fits, also after evictions.
    """

    placement: Placement
    nodes: NodeList
    assignments: Sequence[tuple[PodInfo, NodeInfo]]


class GroupContract:
    """Contract of plugins for pod groups: methods besides those of ``Contract``. Define those that you need.

    The class is never instantiated. ``state`` belongs to one cycle of one group; it is not the members' state. If a
    method raises, the group's attempt fails with code Error and the plugin's name.
    """

    def placements(
        self, state: CycleState, group: GroupToPlace, nodes: NodeList
    ) -> Iterable[tuple[str, Iterable[NodeInfo]]] | Status | None:
        """Return the sets of nodes in which the group is tried, each as (name, nodes); at most one plugin per profile.

        The sets may overlap and need not cover all nodes. None means one set of all nodes. A rejection, or no set at
        all, leaves the group unschedulable.
        """
        raise AssertionError("documentation only")

    def score_placements(
        self, state: CycleState, group: GroupToPlace, tried: Sequence[TriedPlacement]
    ) -> Sequence[int] | Status:
        """Return a score for each placement that holds the group, 0…100; the greatest sum over all plugins wins.

        Called if there are several. The configuration weights the scores.
        """
        raise AssertionError("documentation only")
