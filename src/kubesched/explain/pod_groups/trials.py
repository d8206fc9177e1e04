"""Trials of pod groups for explanations, by the scheduler's own group trials, without a trace.

A trial assumes members on the live cache and gives them back, all within one step: nothing else runs meanwhile. Searches,
metrics and chance are the explanation's own, so a trial changes no figure and no later choice of the scheduler.
Extenders are not asked.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kubesched.api.types import Pod
from kubesched.base.at_once import completed
from kubesched.scheduler.core.attempt import Attempt, AttemptMetrics
from kubesched.scheduler.core.cycle import Cycle
from kubesched.scheduler.core.failure import FailureHandler
from kubesched.scheduler.core.group_member import MemberTrials
from kubesched.scheduler.core.group_trials import Group, GroupTrials, Outcome
from kubesched.scheduler.core.profiles import build_profiles
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.placements import GroupToPlace, Placement
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.nodes.columns import RowArray
from kubesched.scheduler.scheduler import Scheduler

__all__ = ["Effort", "GroupTrying", "fitting"]


class Effort:
    """Effort that an explanation may still spend, in trials of single members."""

    def __init__(self, most: int) -> None:
        self.left = most

    def takes(self, members: int) -> bool:
        """Return True, and spend a trial of so many members, if enough effort is left."""
        if members > self.left:
            return False
        self.left -= members
        return True


class GroupTrying:
    """Trials of the groups of one scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._clock = clock = scheduler.clock
        metrics, queue, cache = SchedulerMetrics(), scheduler.queue, scheduler.cache
        rng: Final = random.Random(0)
        snapshot = next(iter(scheduler.profiles.values())).search.snapshot
        self.table = cache.table
        self.profiles = build_profiles(
            scheduler.config,
            scheduler.frameworks,
            snapshot,
            queue.nominator,
            rng,
            scheduler.port.recorder,
            lambda one: one,
        )
        attempts = AttemptMetrics(metrics, clock)
        failures = FailureHandler(queue, cache, scheduler.statuses, attempts, scheduler.informers.live_pod)
        cycle = Cycle(queue, cache, self.profiles, scheduler.bindings, failures, metrics, clock)
        members = MemberTrials(queue, cycle, failures, lambda attempt, trial: None, metrics, clock)
        self._trials = GroupTrials(members, cache.table, rng)
        #: Members of the last group by UID: what plugins have asked about them stays known.
        self._infos: dict[str, PodInfo] = {}

    def _info(self, pod: Pod) -> PodInfo:
        info = self._infos.get(pod.uid)
        if info is None or info.pod is not pod:
            info = self._infos[pod.uid] = PodInfo(pod)
        return info

    def forget(self) -> None:
        """Forget the members of the last group."""
        self._infos.clear()

    def group(self, key: str, pods: Iterable[Pod]) -> Group:
        """Return a group whose members are to be tried; all name the same profile, which there is."""
        infos = [self._info(pod) for pod in pods]
        infos.sort(key=lambda one: (-one.priority, one.pod.metadata.creation_timestamp or "", one.pod.key))
        now, profile = self._clock.now(), self.profiles[infos[0].spec.scheduler_name]
        return Group(key, profile, [Attempt(QueuedPodInfo(one, now), profile, now) for one in infos])

    def placements(self, group: Group) -> list[Placement] | Status:
        """Return the placements in which the scheduler would try a group, by name; or why there is none."""
        state, wanted = CycleState(), GroupToPlace(group.key, [each.queued.pod_info for each in group.attempts])
        return group.profile.framework.groups.placements(state, wanted, self.table)

    def rows(self, group: Group, name: str) -> RowArray | None:
        """Return the rows of a placement as it is now: none if it is gone; None for all nodes."""
        found = self.placements(group)
        listed: Sequence[Placement] = () if isinstance(found, Status) else found
        return next((each.rows for each in listed if each.name == name), self.table.order()[:0])

    @contextmanager
    def tried(self, group: Group, rows: RowArray | None) -> Iterator[Outcome]:
        """Try a group on these rows (None: on all). Within the block, the members that fit are on their nodes."""
        outcome = completed(self._trials.run(group, rows, simulated=True))
        try:
            yield outcome
        finally:
            self._trials.revert(outcome)


def fitting(outcome: Outcome) -> int:
    """Return the number of members that fit."""
    return sum(member.fits for member in outcome.members)
