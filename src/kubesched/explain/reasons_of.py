"""Reasons against nodes, and obstacles, as reports."""

from __future__ import annotations

from heapq import nsmallest
from typing import Final

from kubesched.scheduler.core.diagnosis import NodeStatuses
from kubesched.scheduler.framework.status import Code, Status

from .obstacles import Obstacle
from .report import ObstacleReport, Reason

__all__ = ["EXAMPLES", "obstacle_report", "reasons_of"]

#: Most node names given as examples of a reason.
EXAMPLES: Final = 5


def reasons_of(statuses: NodeStatuses, rejected: int) -> list[Reason]:
    """Return the reasons against ``rejected`` nodes, most nodes first. Nodes without a status count for ``absent``."""
    found: dict[tuple[str, str, bool], list[str]] = {}

    def add(status: Status, names: list[str]) -> None:
        for text in status.reasons():
            key = (text, status.plugin, status.code is Code.UNSCHEDULABLE)
            found.setdefault(key, []).extend(names)

    for status, names in statuses.groups():
        add(status, names)
    result = [
        Reason(text=text, plugin=plugin, nodes=len(names), examples=nsmallest(EXAMPLES, names), preemptable=preemptable)
        for (text, plugin, preemptable), names in found.items()
    ]
    left = rejected - len(statuses)
    if left > 0:
        absent = statuses.absent
        result += [
            Reason(text=text, plugin=absent.plugin, nodes=left, examples=[], preemptable=False)
            for text in absent.reasons()
        ]
    return sorted(result, key=lambda reason: (-reason.nodes, reason.text, reason.plugin))


def obstacle_report(one: Obstacle, *examples: str, nodes: int = 1) -> ObstacleReport:
    """Return an obstacle as a report."""
    return ObstacleReport(plugin=one.plugin, text=one.text, nodes=nodes, examples=list(examples), data=dict(one.data))
