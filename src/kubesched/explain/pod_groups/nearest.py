"""Obstacles of the next member of a group in one placement, when the members that fit there are on their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kubesched.scheduler.core.group_trials import Group
from kubesched.scheduler.framework.demand import Change
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.nodes import NodeInfo, NodeTable, PodInfo
from kubesched.scheduler.nodes.columns import RowArray

from ..new_nodes import kinds_of
from ..obstacles import Obstacle, Obstacles, fits_after, names_at, obstacles_of
from ..reasons_of import EXAMPLES, obstacle_report
from ..remedies import Remedy, remedies_for
from ..report import ObstacleReport

__all__ = ["Nearest", "nearest_of"]


@dataclass(slots=True)
class Nearest:
    """Placement where most members fit, and the next member, which does not.

    Attributes:
        name: the placement's name.
        next: key of the member; empty if all fit.
        obstacles: what keeps it off the placement's nodes, those at the most nodes first.
        lacks: the first of them in a few words: ``lack nvidia.com/gpu``.
        found: the obstacles with their demands.
        remedies: changes of this member after which it fits there.
        kinds: nodes of the placement of which an empty copy might hold it, one of each kind.
    """

    name: str
    next: str = ""
    obstacles: list[ObstacleReport] = field(default_factory=list)
    lacks: str = ""
    found: list[Obstacle] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)
    kinds: list[NodeInfo] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def nearest_of(table: NodeTable, group: Group, name: str, rows: RowArray | None, pod: PodInfo) -> Nearest:
    """Look at one member now; the others are on their nodes. A plugin that fails for it is its obstacle."""
    framework, search = group.profile.framework, group.profile.search
    try:
        obstacles = _within(obstacles_of(framework, table, pod), rows)
    except PluginFailedError as error:
        return Nearest(name, pod.pod.key, lacks=str(error))

    def fits(changes: Sequence[Change]) -> RowArray:
        found = fits_after(search, pod, changes)
        here: RowArray = found if rows is None else found[np.isin(found, rows)]
        return here

    there = obstacles.rows
    reports = [
        obstacle_report(one, *names_at(table, there[one.stands], EXAMPLES), nodes=int(one.stands.sum()))
        for one in obstacles.found
    ]
    lacks = _lacks(obstacles.found[0]) if obstacles.found else "find no node"
    remedies = remedies_for(obstacles, fits)
    kinds = [like for like, _ in kinds_of(framework, table, obstacles)]
    return Nearest(name, pod.pod.key, reports, lacks, obstacles.found, remedies, kinds, obstacles.remarks)


def _within(obstacles: Obstacles, rows: RowArray | None) -> Obstacles:
    """Return obstacles at some nodes only (None: at all), those at the most nodes first."""
    if rows is None:
        return obstacles
    here = np.isin(obstacles.rows, rows)
    there = obstacles.rows[here]

    def at(one: Obstacle) -> Obstacle:
        stands = one.stands[here]
        if one.demand is not None:
            return Obstacle.of(one.plugin, one.demand, there, stands)
        return Obstacle(one.plugin, one.text, stands, None, one.data)

    each = [at(one) for one in (*obstacles.found, *obstacles.silent)]
    found = sorted(
        (one for one in each if one.stands.any()), key=lambda one: (-int(one.stands.sum()), one.plugin, one.text)
    )
    silent = [one for one in each if not one.stands.any()]
    return Obstacles(obstacles.pod, there, found, silent, obstacles.remarks)


def _lacks(obstacle: Obstacle) -> str:
    """Return an obstacle in a few words. The text of an amount begins with the resource."""
    demand = obstacle.demand
    if demand is not None and demand.amounts is not None:
        return f"lack {obstacle.text.partition(':')[0]}"
    return f"are kept off by {obstacle.text} [{obstacle.plugin}]"
