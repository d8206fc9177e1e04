"""The cycle of a pod group on one screen: from one popped member to the bindings of all, or to the failure of all.

:meth:`GroupCycle.schedule` runs in place of the single pod's cycle (:mod:`.cycle`) when a popped pod belongs to a
group. It collects the queued members, tries them together (:mod:`.group_trials`), acts on the outcome
(:mod:`.group_submit`) and writes the group's condition (:mod:`.group_conditions`). Nothing else is scheduled meanwhile;
unless an extender or a PostFilter plugin has to be awaited, no other code runs at all.

Source: rules/groups §10.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Sequence
from typing import Final

from kubesched.base.at_once import begin
from kubesched.base.times import Clock

from ..cache import Cache
from ..framework.metrics import SchedulerMetrics
from ..framework.queued import QueuedPodInfo
from ..framework.status import Status
from ..nodes.pod_groups import PodGroupStates, group_key
from ..queue import SchedulingQueue
from .attempt import Attempt
from .cycle import Cycle
from .failure import FailureHandler
from .group_conditions import GroupConditions
from .group_preemption import GroupPreemption
from .group_room import GroupRoom
from .group_submit import Submission
from .group_trials import Group, GroupTrials, Outcome, unschedulable

__all__ = ["GroupCycle"]

_log = logging.getLogger("kubesched.scheduler")

_NEVER: Final = -math.inf


class GroupCycle:
    """Cycle of pod groups."""

    def __init__(
        self,
        queue: SchedulingQueue,
        cache: Cache,
        groups: PodGroupStates,
        cycle: Cycle,
        failures: FailureHandler,
        trials: GroupTrials,
        preemption: GroupPreemption,
        submission: Submission,
        room: GroupRoom,
        conditions: GroupConditions,
        metrics: SchedulerMetrics,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._cache = cache
        self._groups = groups
        self._cycle = cycle
        self._failures = failures
        self._trials = trials
        self._preemption = preemption
        self._submission = submission
        self._room = room
        self._conditions = conditions
        self._attempts = metrics.podgroup_schedule_attempts_total
        self._durations = metrics.podgroup_scheduling_attempt_duration_seconds
        self._trial_durations = metrics.podgroup_scheduling_algorithm_duration_seconds.labels()
        self._clock = clock

    def schedule(self, queued: QueuedPodInfo) -> Awaitable[None] | None:
        """Decide about the group of a popped pod. The caller awaits the result if it is not None."""
        return begin(self._schedule(queued), True)

    async def _schedule(self, queued: QueuedPodInfo) -> None:
        key = group_key(queued.pod_info.pod)
        # 0. Nothing has changed that would be enough for the group: leave the others alone.
        if shortage := self._room.shortage(key, queued):
            self._fail_again(queued, shortage)
            return
        # 1. Collect the members that are queued; leave out those that need no attempt.
        attempts = self._attempts_of(self._collected(key, queued))
        if not attempts or not self._have_one_profile(attempts):
            return
        group, start = Group(key, attempts[0].profile, attempts), self._clock.now()
        outcome = Outcome()
        try:
            # 2. Try all of them.
            outcome = await self._trials.find(group)
            self._trial_durations.observe(self._clock.now() - start)
            # 3. If they do not fit: would they fit if other pods were evicted?
            await self._preemption.run(group, outcome)
            # 4. Bind all members that fit, or give all back.
            status = await self._submission.submit(group, outcome)
        except Exception as error:
            _log.exception("scheduling pod group %s failed unexpectedly", key)
            status = Status.from_error(error)
            self._abandon(attempts, outcome, status)
        result = "waiting_on_preemption" if outcome.waiting else _result(status)
        profile = group.profile.framework.profile_name
        self._attempts.inc(result, profile)
        self._durations.observe(self._clock.now() - start, result, profile)
        # 5. Tell the group's owner why not. That the group is scheduled is told when its members are bound.
        if status is not None:
            self._conditions.write(key, status)

    def _fail_again(self, queued: QueuedPodInfo, shortage: str) -> None:
        attempt = self._cycle.begin(queued)
        if attempt is None:
            return
        status, profile = unschedulable(shortage), attempt.profile.framework.profile_name
        self._failures.fail_again(attempt, status)
        self._attempts.inc(_result(status), profile)
        self._durations.observe(self._clock.now() - attempt.start, _result(status), profile)

    # -- members ---------------------------------------------------------------------------------------

    def _collected(self, key: str, queued: QueuedPodInfo) -> list[QueuedPodInfo]:
        """Return the popped pod and all other members that are queued: higher priority first, then the longer wait."""
        state = self._groups.get(key)
        if state is None:
            attempt = self._cycle.begin(queued)
            if attempt is not None:
                error = Status.from_error(
                    f"error while retrieving pod group state: pod group state not found for pod group {key}"
                )
                self._failures.fail(attempt, error)
            return []
        others = [pod for pod in state.unscheduled.values() if pod.metadata.uid != queued.uid]
        popped = [queued, *(other for pod in others if (other := self._queue.pop_specific(pod)) is not None)]
        popped.sort(key=_order)
        return popped

    def _attempts_of(self, popped: Sequence[QueuedPodInfo]) -> list[Attempt]:
        return [attempt for queued in popped if (attempt := self._cycle.begin(queued)) is not None]

    def _have_one_profile(self, attempts: Sequence[Attempt]) -> bool:
        """Return True if all members name the same scheduler; otherwise fail them."""
        names = [attempt.queued.pod_info.spec.scheduler_name for attempt in attempts]
        other = next((name for name in names if name != names[0]), None)
        if other is None:
            return True
        for attempt in attempts:
            error = Status.from_error(
                f'all pods in a single pod group should have the same .spec.schedulerName set, got: "{other}" and "{names[0]}"'
            )
            self._failures.fail(attempt, error)
        return False

    def _abandon(self, attempts: Sequence[Attempt], outcome: Outcome, status: Status) -> None:
        """Give back all members that are not being bound, after a defect."""
        self._trials.revert(outcome)
        for attempt in attempts:
            uid = attempt.queued.uid
            if self._queue.is_in_flight(uid) and not attempt.bound and not self._cache.is_assumed(uid):
                self._failures.fail(attempt, status)


def _result(status: Status | None) -> str:
    """Return the label of a group's result in metrics."""
    if status is None:
        return "scheduled"
    return "unschedulable" if status.is_rejected else "error"


def _order(queued: QueuedPodInfo) -> tuple[int, float]:
    first = queued.initial_attempt_timestamp
    return -queued.pod_info.priority, _NEVER if first is None else first
