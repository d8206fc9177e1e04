"""Submission of a pod group's outcome: bindings start together, or every member goes back to the queue.

The members of a group that fits are still assumed and reserved where the trial placed them. Permit is asked again, for
all of them before the first binding starts. So a gang begins to bind only when its quorum holds.

Source: rules/groups §10.9, §11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ..framework.status import Code, Status
from ..nodes.nominating import NominatingInfo
from ..queue import SchedulingQueue
from .cycle import Cycle
from .diagnosis import Rejection
from .failure import FailureHandler
from .group_member import Member, MemberTrials
from .group_room import QUORUM
from .group_trials import Group, GroupTrials, Outcome, unschedulable

__all__ = ["Submission"]

_CLEAR: Final = NominatingInfo.clear()


@dataclass(slots=True, eq=False)
class _Failure:
    """Failure of one member, to be reported: why, the change of its nomination, and the plugins it waits for."""

    member: Member
    why: Status | Rejection
    nominating: NominatingInfo | None
    rejectors: set[str] = field(default_factory=set)


class Submission:
    """Submission of the outcomes of groups."""

    def __init__(
        self,
        queue: SchedulingQueue,
        cycle: Cycle,
        failures: FailureHandler,
        members: MemberTrials,
        *,
        whole_groups: bool = False,
    ) -> None:
        """``whole_groups``: groups preempt as a whole, and members do not (gate WorkloadAwarePreemption)."""
        self._whole_groups = whole_groups
        self._queue = queue
        self._cycle = cycle
        self._failures = failures
        self._members = members

    async def submit(self, group: Group, outcome: Outcome) -> Status | None:
        """Bind the members of a group, or give them back to the queue. Return the group's status after that."""
        permitted: dict[Member, Mapping[str, float]] = {}
        failed = self._permit(outcome, permitted) if outcome.status is None else []
        failed += self._failed(group, outcome, permitted.keys() | {each.member for each in failed})
        if outcome.is_feasible:
            await self._evict(outcome)
        for each in failed:
            if each.member.release is not None and (waiting := each.member.release()) is not None:
                await waiting
        self._give_back(group, outcome, failed)
        for member, timeouts in permitted.items():
            self._cycle.bind(member.attempt, timeouts)
        for member in outcome.members:
            if member.gone:
                self._queue.done(member.attempt.queued.uid)
        return outcome.status

    # -- a group that fits -----------------------------------------------------------------------------

    def _permit(self, outcome: Outcome, permitted: dict[Member, Mapping[str, float]]) -> list[_Failure]:
        """Ask Permit for all members that fit; put those that may bind, with their timeouts, into ``permitted``.

        Plugins may decide otherwise than in the trial. If the members that are left make no quorum, none may bind.
        """
        failed: list[_Failure] = []
        fitting = [member for member in outcome.members if member.is_assumed]
        for member in fitting:
            attempt = member.attempt
            attempt.state.group = None
            status, timeouts = attempt.profile.framework.permit(attempt.state, attempt.assumed, attempt.node_name)
            if status is None or status.code is Code.WAIT:
                permitted[member] = timeouts
            else:
                self._members.revert(member)
                failed.append(_Failure(member, attempt.on_chosen_node(status), _CLEAR))
        if not failed:
            return failed
        if not permitted:
            outcome.status = unschedulable()
            return failed
        for member in permitted:
            member.attempt.state.group = outcome.trial
        if any(GroupTrials.is_permitted(member) for member in permitted):
            for member in permitted:
                member.attempt.state.group = None
            return failed
        outcome.status = unschedulable()
        for member in reversed(permitted):
            self._members.revert(member)
        permitted.clear()
        return failed

    # -- members that go back --------------------------------------------------------------------------

    def _failed(self, group: Group, outcome: Outcome, done: Iterable[Member]) -> list[_Failure]:
        """Return the failures of the members that are not ``done``; also of those that the trial never came to."""
        by_attempt = {member.attempt: member for member in outcome.members}
        finished = set(done)
        failed = []
        for attempt in group.attempts:
            member = by_attempt.get(attempt)
            if member is None:
                assert outcome.status is not None
                failed.append(_Failure(Member(attempt), outcome.status, _CLEAR))
            elif member not in finished and not member.gone:
                failed.append(self._failure(outcome, member))
        return failed

    @staticmethod
    def _failure(outcome: Outcome, member: Member) -> _Failure:
        status, permit = outcome.status, member.permit
        if status is not None and not status.is_rejected:
            return _Failure(member, member.why if member.why is not None and member.is_error else status, _CLEAR)
        if member.fits:
            if outcome.waiting and status is not None:
                return _Failure(member, status, NominatingInfo.override(member.room or member.host))
            return _Failure(member, unschedulable(permit.message() if permit is not None else ""), _CLEAR)
        assert member.why is not None
        if member.preempting is not None and status is not None and not outcome.waiting:
            return _Failure(member, unschedulable(permit.message() if permit is not None else ""), _CLEAR)
        if member.room:
            return _Failure(member, member.why, NominatingInfo.override(member.room))
        keeps = (
            status is None or outcome.waiting
        )  # the nominations of a group that does not fit would only be in the way
        return _Failure(member, member.why, member.nominating if keeps else _CLEAR)

    def _give_back(self, group: Group, outcome: Outcome, failed: list[_Failure]) -> None:
        """Fail members, with one backoff for all of them.

        Room for any member may let the group fit. So of a group that does not fit, one member of each kind waits for the
        plugins that rejected any of them, and takes the others along when it is tried again.
        """
        rejectors: set[str] = set()
        for each in failed:
            each.rejectors = _rejectors(each.member)
            rejectors |= each.rejectors
        is_rejected = outcome.status is not None and outcome.status.is_rejected
        # Events of this plugin are about the group itself.
        asleep = {QUORUM} if QUORUM in group.profile.framework.plugins and not outcome.waiting else rejectors
        specs: set[int] = set()
        most = max((each.member.attempt.queued.unschedulable_count for each in failed), default=0)
        for each in failed:
            queued = each.member.attempt.queued
            queued.unschedulable_count = most
            wanted = each.rejectors
            if is_rejected:
                spec = id(queued.pod_info.pod.spec)
                wanted = asleep if spec in specs else rejectors
                specs.add(spec)
            self._failures.fail(each.member.attempt, each.why, each.nominating, wanted)
        if failed and outcome.status is None and self._whole_groups:
            # Preemption was not tried for those left over: their next cycle begins without the others.
            self._queue.activate(
                {each.member.attempt.queued.key: each.member.attempt.queued.pod_info.pod for each in failed}
            )

    async def _evict(self, outcome: Outcome) -> None:
        """Let the evictions begin that PostFilter has planned for members of a feasible group."""
        for member in outcome.members:
            result = member.preempting
            if result is None:
                continue
            if result.act is not None and (waiting := result.act()) is not None:
                await waiting
            self._cycle.report(result)


def _rejectors(member: Member) -> set[str]:
    """Return the names of the plugins that reject a member, or make it wait at Permit."""
    why = member.why
    if isinstance(why, Rejection):
        return {*why.diagnosis.unschedulable_plugins, *why.diagnosis.pending_plugins}
    if why is None and member.permit is not None and member.permit.plugin:
        return {member.permit.plugin}
    return set()
