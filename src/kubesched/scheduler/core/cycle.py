"""The scheduling cycle on one screen: one popped pod, from the choice of a profile to the start of its binding.

:meth:`Cycle.schedule_one` is synchronous: nothing else runs until the pod is assumed on a node or rejected, so
queue and cache need no locks. Next: :mod:`.search` (the decision), :mod:`.binding` (a task when it has to wait),
:mod:`.failure` (back to the queue). A pod that an extender is interested in is scheduled by :mod:`..extenders.lane`
instead; the lane shares :meth:`Cycle.begin` and :meth:`Cycle.conclude`.

Source: rules/cycle §2 to §8.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence

from kubesched.base.times import Clock

from ..cache import Cache, CacheError
from ..extenders.interface import ExtenderError
from ..framework.cycle_state import CycleState
from ..framework.failures import PluginFailedError
from ..framework.interface import PostFilterResult
from ..framework.metrics import Sampling, SchedulerMetrics
from ..framework.outcomes import PostFilterAnswer
from ..framework.queued import QueuedPodInfo
from ..framework.recorded_events import FAILED_SCHEDULING
from ..framework.status import Code, Status
from ..framework.wrong_answer import WrongAnswerError
from ..queue import SchedulingQueue
from .attempt import Attempt
from .binding import BindingCycles
from .diagnosis import Rejection
from .failure import FailureHandler
from .observer import AttemptObserver
from .profiles import Profile
from .search import Decision

__all__ = ["Cycle"]

_log = logging.getLogger("kubesched.scheduler")


class Cycle:
    """Scheduling cycle: takes one popped pod after the other to its binding or its failure."""

    def __init__(
        self,
        queue: SchedulingQueue,
        cache: Cache,
        profiles: Mapping[str, Profile],
        bindings: BindingCycles,
        failures: FailureHandler,
        metrics: SchedulerMetrics,
        clock: Clock,
        observers: Sequence[AttemptObserver] = (),
    ) -> None:
        """Keep the parts that a cycle works with. ``profiles`` are by scheduler name."""
        self._observers = observers
        self._queue = queue
        self._cache = cache
        self._profiles = profiles
        self._bindings = bindings
        self._failures = failures
        self._search_durations = metrics.scheduling_algorithm_duration_seconds.labels()
        self._clock = clock
        self._sampling = Sampling()

    def schedule_one(self, queued: QueuedPodInfo) -> Awaitable[None] | None:
        """Decide about one popped pod, and start its binding if there is a node for it.

        Return None when the decision is made. When a PostFilter plugin has to wait, return the rest of the attempt:
        the caller awaits it before the next pod.
        """
        attempt = self.begin(queued)
        if attempt is None:
            return None
        try:
            # 2. Find the node: filter, score, choose.
            outcome = attempt.profile.search.find(queued.pod_info, record_plugin_metrics=self.sampled())
        except Exception as error:
            self.give_up(attempt, error)
            return None
        return self.conclude(attempt, outcome)

    def begin(self, queued: QueuedPodInfo) -> Attempt | None:
        """Return an attempt for a popped pod; None when the pod needs none any more."""
        for observer in self._observers:
            observer.attempted(queued)
        profile = self._profiles.get(queued.pod_info.spec.scheduler_name)
        if profile is None:
            self._queue.done(queued.uid)
            return None
        attempt = Attempt(queued, profile, self._clock.now())
        try:
            # 1. Is it still worth an attempt?
            if self._skip(attempt):
                self._queue.done(queued.uid)
                return None
        except Exception as error:
            self.give_up(attempt, error)
            return None
        return attempt

    def sampled(self) -> bool:
        """Return True if this attempt records how long each plugin takes; a sample of attempts does."""
        return self._sampling.take()

    def conclude(self, attempt: Attempt, outcome: Decision | Rejection) -> Awaitable[None] | None:
        """Act on the search's answer: bind the pod, or run PostFilter and fail it.

        The answer must hold for the cache as it is now. The caller awaits the result if it is not None.
        """
        try:
            for observer in self._observers:
                observer.decided(attempt, outcome)
            if isinstance(outcome, Rejection):
                return self._post_filter(attempt, outcome)
            self._search_durations.observe(self._clock.now() - attempt.start)
            # 3. Assume it there, so that the next cycle sees this pod on its node.
            self.assume(attempt, outcome.node.name, outcome.state)
            # 4. Reserve and Permit: plugins claim what they manage, and may still reject.
            status, timeouts = self._reserve_and_permit(attempt)
            if status is not None:
                self._failures.give_back(attempt)
                self._failures.fail(attempt, attempt.on_chosen_node(status))
                return None
            # 5. Start the binding cycle in a task of its own, and activate the pods that plugins named.
            self.bind(attempt, timeouts)
        except Exception as error:
            self.give_up(attempt, error)
        return None

    def assume(self, attempt: Attempt, node_name: str, state: CycleState) -> None:
        """Assume an attempt's pod on a node. Its nomination ends.

        Raises:
            CacheError: when the pod is in the cache already.
        """
        attempt.choose(node_name, state)
        self._cache.assume_pod(attempt.assumed)
        pod, nominator = attempt.queued.pod_info.pod, self._queue.nominator
        if nominated := nominator.node_of(pod.uid):
            nominator.delete(pod)
            if nominated != node_name:
                self._queue.offer_room(pod, nominated)

    def bind(self, attempt: Attempt, timeouts: Mapping[str, float]) -> None:
        """Start the binding of a pod that is assumed and permitted, and activate the pods that plugins named.

        ``timeouts``: for each Permit plugin that holds the pod, the seconds that it may.
        """
        self._bindings.start(attempt, timeouts)
        if pods := attempt.take_pods_to_activate():
            self._queue.activate(pods)

    def _skip(self, attempt: Attempt) -> bool:
        """Return True for a pod that is being deleted or is assumed already."""
        pod = attempt.queued.pod_info.pod
        if pod.metadata.deletion_timestamp is not None:
            note = f"skip schedule deleting pod: {pod.namespace}/{pod.name}"
            attempt.profile.recorder.record(pod, *FAILED_SCHEDULING, note)
            return True
        return self._cache.is_assumed(pod.uid)

    def _post_filter(self, attempt: Attempt, rejection: Rejection) -> Awaitable[None] | None:
        """Run PostFilter because no node fits. Its answer decides only the nomination and the message."""
        answer = self.ask_post_filter(attempt, rejection)
        if answer is None:
            self._failures.fail(attempt, rejection)
            return None
        if not isinstance(answer, tuple):
            return self._after_post_filter(attempt, rejection, answer)
        self._reject(attempt, rejection, *answer)
        return None

    @staticmethod
    def ask_post_filter(
        attempt: Attempt, rejection: Rejection
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer] | None:
        """Run PostFilter and return its answer. None when there is no such plugin, or no node to make room on."""
        framework = attempt.profile.framework
        if not framework.has_post_filter or not rejection.all_nodes:
            return None
        return framework.post_filter(rejection.state, attempt.queued.pod_info, rejection.diagnosis.statuses)

    async def _after_post_filter(
        self, attempt: Attempt, rejection: Rejection, waiting: Awaitable[PostFilterAnswer]
    ) -> None:
        # Other tasks run during the await, and a row may belong to another node afterwards.
        rejection.diagnosis.statuses.freeze()
        try:
            self._reject(attempt, rejection, *await waiting)
        except Exception as error:
            self.give_up(attempt, error)

    def _reject(
        self, attempt: Attempt, rejection: Rejection, result: PostFilterResult | None, status: Status | None
    ) -> None:
        rejection = self.with_post_filter(attempt, rejection, status)
        self.report(result)
        self._failures.fail(attempt, rejection, result.nominating if result is not None else None)

    def report(self, result: PostFilterResult | None) -> None:
        """Hand the preemption in an answer of PostFilter, if there is one, to the observers."""
        if result is not None and result.preemption is not None:
            for observer in self._observers:
                observer.preempted(result.preemption)

    @staticmethod
    def with_post_filter(attempt: Attempt, rejection: Rejection, status: Status | None) -> Rejection:
        """Return the rejection with PostFilter's message; log the failure of such a plugin."""
        error = status.error if status is not None and status.code is Code.ERROR else None
        # Log errors that were raised, and wrong answers. A plugin's own error text is in the pod's condition already.
        if error is not None and (error.__traceback__ is not None or isinstance(error, WrongAnswerError)):
            _log.error(
                "PostFilter for pod %s failed; the pod waits: %s", attempt.queued.key, error, extra={"cause": error}
            )
        return rejection.with_post_filter(status.message() if status is not None else "")

    @staticmethod
    def _reserve_and_permit(attempt: Attempt) -> tuple[Status | None, Mapping[str, float]]:
        """Run Reserve and Permit.

        Return the failure, or None when the binding may begin; and the timeout in seconds of every Permit plugin that
        the binding has to wait for, by plugin name.
        """
        framework, state, assumed, node_name = (
            attempt.profile.framework, attempt.state, attempt.assumed, attempt.node_name
        )  # fmt: skip
        status = framework.reserve(state, assumed, node_name)
        if status is not None:
            return status, {}
        attempt.stage = "Permit"
        status, timeouts = framework.permit(state, assumed, node_name)
        return None if status is None or status.code is Code.WAIT else status, timeouts

    def give_up(self, attempt: Attempt, error: Exception) -> None:
        """Undo an attempt that ended in an error (a plugin's, or a defect of this code), and have the pod tried again.

        Nothing is undone once the binding has begun: the binding cycle handles its own failures.
        """
        uid, cause = attempt.queued.uid, error.error if isinstance(error, PluginFailedError) else error
        if not isinstance(error, PluginFailedError | CacheError | ExtenderError):
            _log.error("scheduling pod %s failed unexpectedly", attempt.queued.key, exc_info=error)
        if attempt.bound or uid in self._bindings.uids():
            return
        try:
            if self._cache.is_assumed(uid):
                self._failures.give_back(attempt)
            self._failures.fail(attempt, Status.from_error(cause))
        except Exception:
            self._failures.abandon(attempt)
