"""Preemption by a whole pod group: when the group does not fit, would it fit without pods of lower priority?

The plugin that extends PostFilter with ``post_filter_group`` chooses the victims and evicts them. The members are
nominated to the nodes that the last successful simulation gave them.

Source: rules/groups §15.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..framework.interface import PostFilterResult
from ..framework.status import Code, Status
from .cycle import Cycle
from .group_trials import Group, GroupTrials, Outcome
from .profiles import Profile

__all__ = ["GroupPreemption"]

_NO_PLUGIN: Final = "default preemption plugin is not registered, workload aware preemption is disabled"


class GroupPreemption:
    """Preemption by whole groups."""

    def __init__(self, cycle: Cycle, trials: GroupTrials, *, is_on: bool) -> None:
        """``is_on``: groups preempt as a whole (gate WorkloadAwarePreemption)."""
        self._cycle = cycle
        self._trials = trials
        self._is_on = is_on

    async def run(self, group: Group, outcome: Outcome) -> None:
        """Make room for a group that does not fit, and change its outcome accordingly."""
        failed = outcome.status
        if not self._is_on or failed is None or outcome.waiting or failed.code is not Code.UNSCHEDULABLE:
            return
        answer = await self._make_room(group)
        if not isinstance(answer, Status):
            outcome.waiting = True
            for member in outcome.members:
                member.room = answer.get(member.attempt.queued.uid, "")
        elif answer.is_rejected:
            outcome.status = failed.with_reasons([answer.message()])
        else:
            outcome.status = answer

    async def _make_room(self, group: Group) -> Mapping[str, str] | Status:
        plugin = _plugin(group.profile)
        if plugin is None:
            return Status.unschedulable(_NO_PLUGIN)

        async def simulate() -> Mapping[str, str] | Status:
            simulated = await self._trials.find(group, simulated=True)
            self._trials.revert(simulated)
            if simulated.status is not None:
                return simulated.status
            return {each.attempt.queued.uid: each.host for each in simulated.members if each.fits}

        pods = [attempt.queued.pod_info for attempt in group.attempts]
        answer, preemption = await plugin.post_filter_group(group.key, pods, simulate)
        if preemption is not None:
            self._cycle.report(PostFilterResult(preemption=preemption))
        found: Mapping[str, str] | Status = answer
        return found


def _plugin(profile: Profile) -> Any:
    """Return the plugin of a profile that makes room for groups, or None."""
    return next((each for each in profile.framework.plugins.values() if hasattr(each, "post_filter_group")), None)
