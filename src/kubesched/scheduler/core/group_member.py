"""Trial of one member of a pod group: find its node, assume it there, Reserve, Permit; and the way back.

It is the single pod's cycle up to Permit (:mod:`.cycle`), but the pod is not sent to its binding, and a failure is not
reported. :mod:`.group_trials` runs it for every member of a group, :mod:`.group_submit` acts on the results.

Source: rules/groups §10.6.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kubesched.base.times import Clock

from ..cache import CacheError
from ..extenders.interface import ExtenderError
from ..framework.cycle_state import CycleState
from ..framework.failures import PluginFailedError
from ..framework.group_trial import GroupTrial
from ..framework.interface import PostFilterResult
from ..framework.metrics import SchedulerMetrics
from ..framework.status import Code, Status
from ..nodes.nominating import NominatingInfo
from ..queue import SchedulingQueue
from .attempt import Attempt
from .cycle import Cycle
from .diagnosis import Rejection
from .failure import FailureHandler, is_rejected
from .search import Decision

__all__ = ["FindApart", "Member", "MemberTrials"]

_log = logging.getLogger("kubesched.scheduler")

_CLEAR: Final = NominatingInfo.clear()

#: Search that awaits extenders; None when the pod needs no node any more. It is None itself for pods without extenders.
FindApart = Callable[[Attempt, GroupTrial], "Awaitable[Decision | Rejection | None] | None"]


@dataclass(slots=True, eq=False)
class Member:
    """Member of a group in one trial: what came of it.

    Attributes:
        attempt: the member's attempt.
        why: why it does not fit as things are; None if it fits.
        nominating: change of its nomination that goes with ``why``; None for no change.
        host: name of the node that it was assumed on in the trial; "" if it was not.
        state: its plugins' data for ``host``.
        permit: Permit's answer: None for Success, else Wait.
        preempting: PostFilter's answer, if the member fits on ``host`` only after evictions.
        is_assumed: True while it is assumed on ``host``.
        nominated: node that it was nominated to before it was assumed; "" for none.
        release: what PostFilter has planned to let go because the member fits nowhere; None for nothing.
        room: node that it is nominated to because the whole group preempts; "" for none.
        gone: True if the pod needs no node any more.
    """

    attempt: Attempt
    why: Status | Rejection | None = None
    nominating: NominatingInfo | None = _CLEAR
    host: str = ""
    state: CycleState | None = None
    permit: Status | None = None
    preempting: PostFilterResult | None = None
    is_assumed: bool = False
    nominated: str = ""
    release: Callable[[], Awaitable[object] | None] | None = None
    room: str = ""
    gone: bool = False

    @property
    def fits(self) -> bool:
        """True if the member fits on its host without evictions."""
        return bool(self.host) and self.why is None

    @property
    def is_error(self) -> bool:
        """True if the member's attempt ended in an error."""
        return self.why is not None and not is_rejected(self.why)


class MemberTrials:
    """Trials of single members."""

    def __init__(
        self,
        queue: SchedulingQueue,
        cycle: Cycle,
        failures: FailureHandler,
        find_apart: FindApart,
        metrics: SchedulerMetrics,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._cycle = cycle
        self._failures = failures
        self._find_apart = find_apart
        self._durations = metrics.scheduling_algorithm_duration_seconds.labels()
        self._clock = clock

    async def run(self, attempt: Attempt, trial: GroupTrial) -> Member:
        """Try one member. If it fits, it stays assumed and reserved until :meth:`revert`."""
        member = Member(attempt)
        try:
            await self._run(member, trial)
        except Exception as error:
            self._failed(member, error)
        return member

    async def _run(self, member: Member, trial: GroupTrial) -> None:
        attempt, begun = member.attempt, self._clock.now()
        waiting = self._find_apart(attempt, trial)
        found: Decision | Rejection | None
        if waiting is not None:
            found = await waiting
        else:
            sampled = self._cycle.sampled()
            found = attempt.profile.search.find(attempt.queued.pod_info, record_plugin_metrics=sampled, trial=trial)
        self._durations.observe(self._clock.now() - begun)
        if found is None:
            member.gone = True
        elif isinstance(found, Decision):
            self._place(member, found.node.name, found.state)
        elif await self._make_room(member, found):
            self._place(member, member.host, found.state)

    async def _make_room(self, member: Member, rejection: Rejection) -> bool:
        """Run PostFilter for a member that fits nowhere. True if it was given a host where evictions make room."""
        attempt = member.attempt
        member.why = rejection
        answer = self._cycle.ask_post_filter(attempt, rejection)
        if answer is None:
            return False
        if not isinstance(answer, tuple):
            rejection.diagnosis.statuses.freeze()  # rows may belong to other nodes after the await
            answer = await answer
        result, status = answer
        member.why = self._cycle.with_post_filter(attempt, rejection, status)
        member.nominating = result.nominating if result is not None else None
        if result is None or result.nominating is None or not result.nominating.nominated_node_name:
            member.release = result.act if result is not None else None
            return False
        member.preempting, member.host = result, result.nominating.nominated_node_name
        return True

    def _place(self, member: Member, node_name: str, state: CycleState) -> None:
        """Assume a member on a node, and run Reserve and Permit; undo all of it if one of them rejects the member."""
        framework = member.attempt.profile.framework
        member.host, member.state = node_name, state
        self.assume(member)
        attempt = member.attempt
        status = framework.reserve(state, attempt.assumed, node_name)
        if status is None:
            status, _ = framework.permit(state, attempt.assumed, node_name)
            if status is None or status.code is Code.WAIT:
                member.permit = status
                return
        self.revert(member)
        member.why, member.nominating = attempt.on_chosen_node(status), _CLEAR
        member.host, member.preempting = "", None

    def place_again(self, member: Member) -> Status | None:
        """Assume and reserve a member whose trial was undone on its host again; return Reserve's failure, if any."""
        self.assume(member)
        attempt = member.attempt
        status = attempt.profile.framework.reserve(attempt.state, attempt.assumed, attempt.node_name)
        if status is not None:
            self.revert(member)
        return status

    def assume(self, member: Member) -> None:
        """Assume a member on its host.

        Raises:
            CacheError: when it is in the cache already.
        """
        assert member.state is not None
        member.nominated = self._queue.nominator.node_of(member.attempt.queued.uid) or ""
        self._cycle.assume(member.attempt, member.host, member.state)
        member.is_assumed = True
        if member.state.group is not None:
            member.state.group.assumed.add(member.attempt.queued.uid)

    def revert(self, member: Member) -> None:
        """Undo Permit's trial, Reserve and the assumption of a member, and restore its nomination."""
        if not member.is_assumed:
            return
        member.is_assumed = False
        self._failures.give_back(member.attempt)
        if member.state is not None and member.state.group is not None:
            member.state.group.assumed.discard(member.attempt.queued.uid)
        if member.nominated:
            pod = member.attempt.queued.pod_info.pod
            self._queue.nominator.add(pod, NominatingInfo.override(member.nominated))

    def _failed(self, member: Member, error: Exception) -> None:
        cause = error.error if isinstance(error, PluginFailedError) else error
        if not isinstance(error, PluginFailedError | CacheError | ExtenderError):
            _log.error("scheduling pod %s failed unexpectedly", member.attempt.queued.key, exc_info=error)
        self.revert(member)
        member.why, member.nominating = Status.from_error(cause), _CLEAR
        member.host, member.preempting = "", None
