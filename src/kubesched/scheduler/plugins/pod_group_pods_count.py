"""PodGroupPodsCount: prefer the placement that holds more members of the group (PlacementScore).

Source: rules/groups §13.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..framework.cycle_state import CycleState
from ..framework.interface import MAX_NODE_SCORE, Plugin
from ..framework.placements import GroupToPlace, TriedPlacement
from ..framework.status import Status

__all__ = ["PodGroupPodsCount"]


class PodGroupPodsCount(Plugin):
    """Score of placements by the number of members that would have a node."""

    name = "PodGroupPodsCount"

    def score_placements(
        self, state: CycleState, group: GroupToPlace, tried: Sequence[TriedPlacement]
    ) -> Sequence[int] | Status:
        members = self.handle.pod_groups.get(group.key) if self.handle.pod_groups is not None else None
        if members is None:
            return Status.from_error(f"pod group state not found for pod group {group.key}")
        counts = [members.scheduled + len(each.assignments) for each in tried]
        most = max(counts)
        if not most:
            return Status.from_error("no pods from pod group are assigned to any of the candidate placements")
        return [count * MAX_NODE_SCORE // most for count in counts]
