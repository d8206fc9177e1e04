"""Trials of a pod group: all members are tried together, in one placement after the other.

A trial assumes the members on the live cache; the journal names the changed rows, so a trial costs what the members
change, and giving them back costs the same. The trial of the only placement is kept: its members stay where they are.

Source: rules/groups §10.7, §10.8.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ..framework.cycle_state import CycleState
from ..framework.group_trial import GroupTrial
from ..framework.placements import GroupToPlace, Placement, TriedPlacement
from ..framework.status import Status
from ..nodes import NodeList, NodeTable
from ..nodes.columns import RowArray
from .attempt import Attempt
from .group_member import Member, MemberTrials
from .profiles import Profile

__all__ = ["NOT_SCHEDULABLE", "Group", "GroupTrials", "Outcome", "unschedulable"]

#: Text of every rejection of a group; rejections wrap it.
NOT_SCHEDULABLE: Final = "pod group is unschedulable"
_WAITING: Final = "pod group is waiting for preemption to complete"


class PodGroupError(Exception):
    """A pod group was rejected; wrapped by the statuses of the group and its members."""


_ERROR: Final = PodGroupError(NOT_SCHEDULABLE)


def unschedulable(*reasons: str) -> Status:
    """Return the rejection of a group, or of a member because of its group. Empty reasons are left out."""
    status = Status.unschedulable(*[reason for reason in reasons if reason])
    status.error = _ERROR
    return status


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Pod group in one cycle: ``namespace/name``, the profile, and the attempts of the members that were queued."""

    key: str
    profile: Profile
    attempts: Sequence[Attempt]


@dataclass(slots=True, eq=False)
class Outcome:
    """Outcome of the trials of a group.

    Attributes:
        status: None if the group fits, else why not.
        waiting: True if the group fits once pods that are being evicted are gone.
        members: what came of each member, in the order of the attempts; there may be fewer.
        trial: the trial that the members were placed in; None if there was none.
    """

    status: Status | None = None
    waiting: bool = False
    members: list[Member] = field(default_factory=list)
    trial: GroupTrial | None = None

    @property
    def is_feasible(self) -> bool:
        return self.status is None or self.waiting


class GroupTrials:
    """Trials of groups, whatever their profile."""

    def __init__(
        self, members: MemberTrials, table: NodeTable, rng: random.Random, *, has_placements: bool = False
    ) -> None:
        """``has_placements``: groups are tried in placements (gate TopologyAwareWorkloadScheduling)."""
        self._members = members
        self._table = table
        self._rng = rng
        self._has_placements = has_placements

    async def find(self, group: Group, *, simulated: bool = False) -> Outcome:
        """Try a group. If it fits, its members stay assumed; otherwise all are given back.

        ``simulated``: no PostFilter plugin is called.
        """
        if not self._has_placements:
            outcome = await self.run(group, None, simulated=simulated)
            if outcome.status is not None:
                self.revert(outcome)
            return outcome
        state, wanted = CycleState(), GroupToPlace(group.key, [each.queued.pod_info for each in group.attempts])
        state.record_plugin_metrics = True
        placements = group.profile.framework.groups.placements(state, wanted, self._table)
        if isinstance(placements, Status):
            return Outcome(placements)
        return await self._find_in(group, placements, state, wanted, simulated=simulated)

    async def _find_in(
        self, group: Group, placements: Sequence[Placement], state: CycleState, wanted: GroupToPlace, *, simulated: bool
    ) -> Outcome:
        """Try a group in each of the placements, and keep the best."""
        first: Outcome | None = None
        tried: list[tuple[Placement, Outcome]] = []
        for placement in placements:
            outcome = await self.run(group, placement.rows, simulated=simulated)
            keeps = outcome.status is None and len(placements) == 1
            if not keeps:
                self.revert(outcome)
            if outcome.status is not None and not outcome.status.is_rejected:
                return outcome
            first = first if first is not None else outcome
            if outcome.is_feasible:
                tried.append((placement, outcome))
        if not tried:
            assert first is not None
            assert first.status is not None
            text = f"0/{len(placements)} placements are available, first placement status: {first.status.message()}"
            first.status = Status.unschedulable(text)
            return first
        if len(tried) == 1:
            best = 0
        else:
            choice = self._best(group, tried, state, wanted)
            if isinstance(choice, Status):
                return Outcome(choice)
            best = choice
        chosen = tried[best][1]
        if chosen.status is None and len(placements) > 1:
            self._place_again(chosen)
        return chosen

    def _best(
        self, group: Group, tried: Sequence[tuple[Placement, Outcome]], state: CycleState, wanted: GroupToPlace
    ) -> int | Status:
        """Return the index of the placement with the greatest score; among equal ones chance decides."""
        shown = [_tried(placement, outcome, self._table) for placement, outcome in tried]
        totals = group.profile.framework.groups.totals(state, wanted, shown)
        if isinstance(totals, Status):
            return totals
        most = max(totals)
        return self._rng.choice([place for place, total in enumerate(totals) if total == most])

    def _place_again(self, outcome: Outcome) -> None:
        """Assume and reserve the members of a trial that was undone once more where they were.

        Nothing has changed since then, so a failure is a plugin's: then the group does not fit.
        """
        for member in outcome.members:
            if member.fits and (status := self._members.place_again(member)) is not None:
                self.revert(outcome)
                outcome.status = unschedulable(status.message()) if status.is_rejected else status
                return

    async def run(self, group: Group, rows: RowArray | None, *, simulated: bool) -> Outcome:
        """Try all members, in order, on these rows (None: on all). Members that fit stay assumed until :meth:`revert`."""
        trial = GroupTrial(group.key, rows, simulated)
        outcome = Outcome(unschedulable(), trial=trial)
        needs_room = False
        rejected: Member | None = None
        for attempt in group.attempts:
            if rejected is not None and _is_alike(rejected.attempt, attempt):
                # Nothing has changed since the last member was rejected, so this one is, for the same reasons.
                outcome.members.append(Member(attempt, rejected.why, rejected.nominating))
                continue
            member = await self._members.run(attempt, trial)
            outcome.members.append(member)
            fits_nowhere = member.state is None and not member.gone and member.release is None
            rejected = member if fits_nowhere else None
            if member.is_error:
                assert member.why is not None
                text = f"failed to schedule other pod from a pod group: {member.why.message()}"
                outcome.status, outcome.waiting = Status.from_error(text), False
                return outcome
            if not member.host:
                continue
            needs_room = needs_room or member.preempting is not None
            if member.permit is None:
                outcome.waiting = needs_room
                outcome.status = unschedulable(_WAITING) if needs_room else None
        if outcome.waiting:
            self._without_optional(outcome)
        return outcome

    def _without_optional(self, outcome: Outcome) -> None:
        """Let the group be a success if it fits without the members for which pods would have to be evicted."""
        for member in reversed(outcome.members):
            if member.preempting is not None:
                self._members.revert(member)
        fitting = [member for member in outcome.members if member.is_assumed]
        if fitting and self.is_permitted(fitting[-1]):
            outcome.status, outcome.waiting = None, False

    @staticmethod
    def is_permitted(member: Member) -> bool:
        """Return True if Permit lets an assumed member go on, as things are now. It is asked as in a trial."""
        attempt = member.attempt
        status, _ = attempt.profile.framework.permit(attempt.state, attempt.assumed, attempt.node_name)
        return status is None

    def revert(self, outcome: Outcome) -> None:
        """Give back all members, the last one first."""
        for member in reversed(outcome.members):
            self._members.revert(member)


def _tried(placement: Placement, outcome: Outcome, table: NodeTable) -> TriedPlacement:
    """Return a placement as the plugins that score it see it."""
    nodes = NodeList(table, table.order() if placement.rows is None else placement.rows)
    assignments = [
        (member.attempt.queued.pod_info, table.info(row))
        for member in outcome.members
        if member.host and (row := table.row_of(member.host)) is not None
    ]
    return TriedPlacement(placement, nodes, assignments)


def _is_alike(first: Attempt, second: Attempt) -> bool:
    """Return True if two pods get the same answers: they share their spec and their labels, and own nothing else."""
    one, other = first.queued.pod_info, second.queued.pod_info
    return (
        one.pod.spec is other.pod.spec
        and one.labels == other.labels
        and not one.storage
        and not one.has_device_requests
        and not one.status.nominated_node_name
        and not other.status.nominated_node_name
    )
