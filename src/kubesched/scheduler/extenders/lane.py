"""Lane for pods that an extender takes part in: they are scheduled apart from all others, one after the other.

The scheduling cycle awaits nothing. An attempt with extenders has to await them, so it is made in two synchronous
halves with the awaits in between, and other pods are scheduled meanwhile::

    queue ──pop──▶ cycle (all other pods, never awaits)
      │
      └─pop apart─▶ PreFilter, Filter │ await filter, one extender after the other │ filter again, score,
                                      │ await prioritize, all at once              │ assume, Reserve, Permit
                                      └────────── cache and queue go on ───────────┘

The second half filters the nodes that are left once more, so a decision holds for the cache in which the pod is
assumed. Why it is done this way: ``docs/extenders.md``. Started by :mod:`..scheduler`.

Source: rules/cycle §5.5 and §5.9, rules/framework §8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from kubesched.api.quantity import QuantityError
from kubesched.api.types import Pod

from ..core.attempt import Attempt
from ..core.cycle import Cycle
from ..core.diagnosis import Rejection
from ..core.search import Decision
from ..framework.group_trial import GroupTrial
from ..framework.metrics import SchedulerMetrics
from ..nodes.podinfo import PodInfo
from ..queue import SchedulingQueue
from .calls import filter_nodes, prioritize
from .interface import Extender, ExtenderError, is_involved
from .search import Candidates, candidates, choose

__all__ = ["ExtenderLane"]

_log = logging.getLogger("kubesched.scheduler")


class ExtenderLane:
    """Scheduler of the pods that the queue holds apart.

    It may be cancelled at any time: between its synchronous halves nothing is assumed.
    """

    def __init__(
        self,
        extenders: Sequence[Extender],
        queue: SchedulingQueue,
        cycle: Cycle,
        live_pod: Callable[[str, str], Pod | None],
        metrics: SchedulerMetrics,
    ) -> None:
        """``extenders`` are in run-time order. ``live_pod`` returns a pod's newest version by namespace and name."""
        self._extenders = extenders
        self._queue = queue
        self._cycle = cycle
        self._live_pod = live_pod
        #: True while an attempt is under way.
        self.busy = False
        self._prioritizing = metrics.goroutines.labels("prioritizing_extender")

    async def run(self) -> None:
        """Schedule pods until the queue is closed. Pods that it still holds then stay undecided."""
        while True:
            queued = await self._queue.wait_pop(apart=True)
            if queued is None:
                return
            attempt = self._cycle.begin(queued)
            if attempt is not None:
                self.busy = True
                try:
                    await self._schedule(attempt)
                finally:
                    self.busy = False
            await asyncio.sleep(0)

    async def _schedule(self, attempt: Attempt) -> None:
        try:
            outcome = await self.find(attempt)
        except Exception as error:
            self._cycle.give_up(attempt, error)
            return
        if outcome is None:
            self._queue.done(attempt.queued.uid)
        else:
            rest = self._cycle.conclude(attempt, outcome)
            if rest is not None:
                await rest

    def find_member(self, attempt: Attempt, trial: GroupTrial) -> Awaitable[Decision | Rejection | None] | None:
        """Return a search for a member of a pod group that awaits extenders; None when no extender takes part."""
        if not self._extenders or not is_involved(self._extenders, attempt.queued.pod_info):
            return None
        return self.find(attempt, trial)

    async def find(self, attempt: Attempt, trial: GroupTrial | None = None) -> Decision | Rejection | None:
        """Choose a node; None when the pod needs none any more. ``trial`` is the trial of the pod's group.

        Raises:
            ExtenderError: when an extender that is not ignorable fails.
            PluginFailedError: when a plugin fails.
        """
        search, sampled = attempt.profile.search, self._cycle.sampled()
        found = candidates(search, attempt.queued.pod_info, trial, record_plugin_metrics=sampled, try_nominated=True)
        if isinstance(found, Candidates) and found.by_nomination:
            # Any failure on the nominated node is followed by the search among all nodes.
            try:
                outcome = await self._ask(attempt, found, trial, sampled=sampled)
            except ExtenderError as error:
                name, key = found.nodes[0].name, attempt.queued.key
                _log.warning("the nominated node %s of pod %s is not tried: %s", name, key, error)
            else:
                if not isinstance(outcome, Rejection):
                    return outcome
            pod = attempt.queued.pod_info
            found = candidates(search, pod, trial, record_plugin_metrics=sampled, try_nominated=False)
        if isinstance(found, Rejection):
            return found
        return await self._ask(attempt, found, trial, sampled=sampled)

    async def _ask(
        self, attempt: Attempt, found: Candidates, trial: GroupTrial | None, *, sampled: bool
    ) -> Decision | Rejection | None:
        """Await the extenders.

        Then choose among the nodes that they accept, with the pod and the cluster of that moment.
        """
        pod = attempt.queued.pod_info
        left = await filter_nodes(self._extenders, pod, found.nodes)
        points = await prioritize(self._extenders, pod, left.nodes, self._prioritizing) if len(left.nodes) > 1 else {}
        current = self._current(attempt)
        if current is None:
            return None
        attempt.queued.pod_info = current
        search = attempt.profile.search
        return choose(search, current, found, left.names, left.rejections, points, trial, record_plugin_metrics=sampled)

    def _current(self, attempt: Attempt) -> PodInfo | None:
        """Return the pod as it is after an await, or None if it is gone, is being deleted or got a node elsewhere."""
        known = attempt.queued.pod_info
        live = self._live_pod(known.pod.namespace, known.pod.name)
        if live is None or live.uid != known.uid or live.spec.node_name or live.metadata.deletion_timestamp is not None:
            return None
        if live is known.pod:
            return known
        try:
            return PodInfo.derive(live, known)
        except QuantityError as problem:
            _log.error("pod %s is scheduled as it was before: %s", known.key, problem)
            return known
