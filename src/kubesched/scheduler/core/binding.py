"""Binding cycle of a pod, from Permit's wait to PostBind; in a named task when it has to wait for anything.

The scheduling cycle starts it once a pod is assumed, reserved and not rejected by Permit. A failure at any step undoes
all of this, and :mod:`.failure` goes on.

Source: rules/cycle §9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from kubesched.api.types import Pod
from kubesched.base.tasks import Supervisor, child

from ..extenders import calls as extender_calls
from ..extenders.interface import Extender, ExtenderError
from ..framework.events import ASSIGNED_POD_DELETE
from ..framework.metrics import SchedulerMetrics
from ..framework.recorded_events import SCHEDULED
from ..framework.status import Code, Status
from ..framework.uncertain import is_open, read_until_answered
from ..framework.waiting import PodInPreBind, WaitingPod
from ..nodes.nominating import NominatingInfo
from ..queue import SchedulingQueue
from .attempt import Attempt, AttemptMetrics
from .diagnosis import Rejection
from .failure import FailureHandler, is_fenced, is_rejected
from .handle import Backends
from .observer import AttemptObserver
from .status_writer import StatusWriter

__all__ = ["BindingCycles"]

_log = logging.getLogger("kubesched.scheduler")

#: Most bindings without an answer while further pods are decided. With more, no pod is bound sooner, because the API server
#: is the bottleneck; but a pod of high priority, which goes ahead in the queue, waits behind all of them. It is a multiple
#: of the requests that a transport sends at a time (64), so that the server never waits for a decision.
MOST_UNANSWERED: Final = 256


#: Seconds after which bindings without an answer are logged, and again after as many.
_SILENT_SECONDS: Final = 60.0


class _StoppedError(Exception):
    """PreBind was stopped because the scheduler stops."""


class BindingCycles:
    """Binding cycles: bind pods to their chosen nodes."""

    def __init__(
        self,
        queue: SchedulingQueue,
        failures: FailureHandler,
        statuses: StatusWriter,
        backends: Backends,
        extenders: Sequence[Extender],
        attempts: AttemptMetrics,
        metrics: SchedulerMetrics,
        supervisor: Supervisor,
        observers: Sequence[AttemptObserver] = (),
        refused: Callable[[Pod, str], None] | None = None,
    ) -> None:
        """Keep the parts that a binding works with.

        ``refused`` is told of members of groups that could not be bound, and why; None without groups.
        The first of ``extenders`` that can bind and is interested in a pod binds it, in place of the Bind plugins.
        """
        self._queue = queue
        self._observers = observers
        self._refused = refused
        self._failures = failures
        self._statuses = statuses
        self._waiting = backends.waiting_pods
        self._pre_binding = backends.pods_in_pre_bind
        self._clock = backends.clock
        self._client = backends.client
        self._supervisor = supervisor
        self._attempts = attempts
        self._permit_waits = metrics.permit_wait_duration_seconds
        self._running = metrics.goroutines.labels("binding")
        #: True if the chosen node is written to the pod's status before PreBind works or Permit waits.
        self._publish_node = backends.gates.enabled("NominatedNodeNameForExpectation")
        self._extenders = extenders
        #: The bindings under way, in the order they began, with the UIDs of their pods.
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._closing = False
        #: Number of bindings that a Bind plugin or an extender has begun and not answered.
        self._unanswered = 0
        self._caught_up: asyncio.Future[None] | None = None

    @property
    def is_behind(self) -> bool:
        """True while so many bindings wait for an answer that no further pod should be decided."""
        return self._unanswered >= MOST_UNANSWERED

    async def catch_up(self) -> None:
        """Wait until :attr:`is_behind` is False, and log it if that takes long. One caller at a time."""
        since = self._clock.now()
        while self.is_behind:
            self._caught_up = asyncio.get_running_loop().create_future()
            if not (await asyncio.wait([self._caught_up], timeout=_SILENT_SECONDS))[0]:
                _log.warning(
                    "no pod has been decided for %.0f s: %d bindings wait for an answer of the API server, a Bind plugin or an "
                    "extender, and none comes",
                    self._clock.now() - since,
                    self._unanswered,
                )

    def _answered(self) -> None:
        self._unanswered -= 1
        if self._caught_up is not None and not self._caught_up.done() and not self.is_behind:
            self._caught_up.set_result(None)

    @property
    def busy(self) -> bool:
        """True while bindings are under way."""
        return bool(self._tasks)

    def uids(self) -> set[str]:
        """Return the UIDs of the pods whose binding is under way, also of pods that wait on Permit."""
        return set(self._tasks.values())

    def start(self, attempt: Attempt, timeouts: Mapping[str, float]) -> None:
        """Begin a binding. If there is nothing to wait for, also end it.

        ``timeouts``: for each Permit plugin that holds the pod, the longest time that it may do so, in seconds.
        """
        assumed = attempt.assumed
        if timeouts:
            self._waiting.add(WaitingPod(assumed, timeouts))
        if timeouts or not self._is_ready(attempt):
            self._spawn(attempt, self._bind(attempt))
            return
        self._queue.done(assumed.uid)
        attempt.stage = "Bind"
        try:
            answer = attempt.profile.framework.binding.bind(attempt.state, assumed, attempt.node_name)
            if answer is None or isinstance(answer, Status):
                self._end(attempt, _unless_skipped(answer))
            else:
                self._spawn(attempt, self._when_bound(attempt, answer))
        except Exception as error:
            self._crashed(attempt, error)

    def _is_ready(self, attempt: Attempt) -> bool:
        """Return True if the Bind plugins can be called now: no PreBind, no status to write, no extender that binds."""
        assumed = attempt.assumed
        return (
            not attempt.profile.framework.concerned(attempt.state.absent).pre_bind
            and self._publish_node
            and self._statuses.is_settled(assumed.uid)
            and not (self._extenders and extender_calls.may_bind(self._extenders, assumed))
        )

    def _spawn(self, attempt: Attempt, work: Coroutine[Any, Any, None]) -> None:
        task = self._supervisor.spawn(
            work,
            f"bind {attempt.assumed.key}",
            lasting=False,
            on_crash=lambda crash: self._crashed(attempt, crash),
        )
        self._tasks[task] = attempt.assumed.uid
        self._running.inc()
        task.add_done_callback(self._bound)

    def _bound(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._running.dec()

    def _crashed(self, attempt: Attempt, crash: Exception) -> None:
        """Log a defect that ended a binding. The pod is tried again unless its binding was written."""
        _log.error("binding pod %s ended unexpectedly", attempt.assumed.key, exc_info=crash)
        if attempt.bound:
            return
        try:
            self._fail(attempt, Status.from_error(crash))
        except Exception:
            self._failures.abandon(attempt)

    async def finish(self) -> None:
        """Wait until all bindings have ended.

        Pods that wait on Permit or in PreBind are given back, without an event: another scheduler, or this one after a
        restart, decides about them again.
        """
        self._closing = True
        for waiting in self._waiting:
            waiting.reject("", "scheduler is shutting down")
        self._pre_binding.stop()
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _bind(self, attempt: Attempt) -> None:
        """Bind an assumed pod: wait on Permit, PreBind, Bind, PostBind."""
        assumed = attempt.assumed
        failure: Status | Rejection | None
        try:
            failure = await self._until_permitted(attempt)
            if failure is None:
                # From here on a failure is blamed on no plugin: the pod is tried again after its backoff.
                self._queue.done(assumed.uid)
                failure = await self._binding_steps(attempt)
            elif self._closing and isinstance(failure, Rejection):
                self._failures.give_back(attempt)
                self._queue.done(assumed.uid)
                return
        except _StoppedError:
            self._failures.give_back(attempt)
            return
        except Exception as error:
            _log.exception("binding pod %s failed unexpectedly", assumed.key)
            failure = Status.from_error(error)
        self._end(attempt, failure)

    async def _when_bound(self, attempt: Attempt, answer: Awaitable[Status | None]) -> None:
        """End a binding when the Bind plugins have answered."""
        self._unanswered += 1
        try:
            failure = await self._unless_bound(attempt, _unless_skipped(await answer))
        except Exception as error:
            _log.exception("binding pod %s failed unexpectedly", attempt.assumed.key)
            failure = Status.from_error(error)
        finally:
            self._answered()
        self._end(attempt, failure)

    async def _unless_bound(self, attempt: Attempt, failure: Status | None) -> Status | None:
        """Return the failure of a binding, or None if the pod is bound to its node in spite of it.

        The answer may be lost after the binding was written. The pod's room must not be given away before that is known,
        so the pod is read until the API server answers, for a minute at most.
        """
        error = failure.as_error() if failure is not None and failure.code is Code.ERROR else None
        if error is None or not is_open(error):
            return failure
        pod = attempt.assumed.pod
        stored = await read_until_answered(lambda: self._client.read_pod(pod), closing=lambda: self._closing)
        return None if stored is not None and stored.spec.node_name == attempt.node_name else failure

    def _end(self, attempt: Attempt, failure: Status | Rejection | None) -> None:
        """End a binding: PostBind, event and metrics, or the handling of its failure."""
        if failure is not None:
            self._fail(attempt, failure)
            return
        attempt.bound = True
        assumed, framework = attempt.assumed, attempt.profile.framework
        pod = assumed.pod
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {attempt.node_name}"
        attempt.profile.recorder.record(pod, *SCHEDULED, note)
        self._attempts.scheduled(attempt)
        for observer in self._observers:
            observer.ended(attempt, None, None)
        framework.binding.post_bind(attempt.state, assumed, attempt.node_name)
        if pods := attempt.take_pods_to_activate():
            self._queue.activate(pods)

    async def _until_permitted(self, attempt: Attempt) -> Status | Rejection | None:
        """Publish the chosen node if there is work or waiting ahead, and wait for Permit's verdict."""
        assumed, framework = attempt.assumed, attempt.profile.framework
        waiting = self._waiting.get(assumed.uid)
        try:
            preflight = None
            if self._publish_node:
                preflight = framework.binding.pre_bind_pre_flight(attempt.state, assumed, attempt.node_name)
                if preflight is not None and preflight.code is not Code.SKIP:
                    return preflight
                if preflight is None or waiting is not None:
                    await self._statuses.nominate(assumed.pod, attempt.node_name)
            return await self._wait_on_permit(attempt, waiting) if waiting is not None else None
        finally:
            if waiting is not None:
                waiting.reject("", "removed")  # stops the pod's timers; does nothing after a verdict
                self._waiting.remove(assumed.uid)

    async def _wait_on_permit(self, attempt: Attempt, waiting: WaitingPod) -> Status | Rejection | None:
        start = self._clock.now()
        status = await waiting.wait()
        self._waiting.remove(waiting.pod.uid)
        self._permit_waits.observe(self._clock.now() - start, status.code.label)
        if status.code is Code.SUCCESS:
            return None
        if status.is_rejected:
            return attempt.on_chosen_node(status)
        error = RuntimeError(f"waiting on permit for pod: {status.message()}")
        return Status.from_error(error, status.plugin)

    async def _binding_steps(self, attempt: Attempt) -> Status | None:
        """Run PreBind and Bind. Run only Bind if all PreBind plugins returned Skip."""
        framework, state = attempt.profile.framework, attempt.state
        if not self._publish_node or framework.binding.has_pre_bind_work(state, attempt.assumed):
            attempt.stage = "PreBind"
            status = await self._pre_bind(attempt)
            if status is not None:
                return status
        # A status patch of an earlier attempt must be written before the binding, not after it.
        await self._statuses.settle(attempt.assumed.uid)
        attempt.stage = "Bind"
        self._unanswered += 1
        try:
            return await self._bind_now(attempt)
        finally:
            self._answered()

    async def _bind_now(self, attempt: Attempt) -> Status | None:
        """Let an extender or the Bind plugins bind."""
        try:
            if self._extenders and await extender_calls.bind(self._extenders, attempt.assumed, attempt.node_name):
                return None
        except ExtenderError as error:
            return await self._unless_bound(attempt, Status.from_error(error))
        answer = attempt.profile.framework.binding.bind(attempt.state, attempt.assumed, attempt.node_name)
        return await self._unless_bound(
            attempt, _unless_skipped(await answer if isinstance(answer, Awaitable) else answer)
        )

    async def _pre_bind(self, attempt: Attempt) -> Status | None:
        """Run PreBind in a task of its own, which a preemptor can cancel."""
        uid = attempt.assumed.uid
        work = attempt.profile.framework.binding.pre_bind(attempt.state, attempt.assumed, attempt.node_name)
        entry = PodInPreBind(child(work, f"PreBind {attempt.assumed.key}"))
        self._pre_binding.add(uid, entry)
        try:
            status = await entry.result()
            if status is None and not entry.mark_prebound():
                status = Status.from_error(entry.cause)
        finally:
            self._pre_binding.remove(uid)
        if status is not None and self._pre_binding.stopping:
            raise _StoppedError
        return status

    def _fail(self, attempt: Attempt, failure: Status | Rejection) -> None:
        """Give the pod back, and report its failure. The freed capacity may help pods in the queue.

        If the attempt ended in an error, the pod itself is also told of the freed capacity. If a plugin rejected it, it
        is not. After an error, a member of a group is nominated to its node, so that its room is not taken while others
        of its group are bound.

        Somebody else may have bound the pod to another node, and the cache may know it already. Upstream wakes no pod
        then, although the room on the chosen node is free as well and no event tells of it.
        """
        self._failures.give_back(attempt)
        pod = attempt.assumed.pod
        rejected, nominating = is_rejected(failure), NominatingInfo.clear()
        if self._refused is not None and pod.spec.scheduling_group is not None:
            cause = failure.as_error() if isinstance(failure, Status) else None
            if not is_fenced(cause):  # otherwise the next leader decides about the group
                self._refused(pod, failure.message())
            if not rejected:
                nominating = NominatingInfo.override(attempt.node_name)
        events, uid = [(ASSIGNED_POD_DELETE, pod, None), *attempt.state.given_back], pod.uid
        if not rejected:
            for event in events:
                self._queue.move_all_to_active_or_backoff_queue(*event)
        self._failures.fail(attempt, failure, nominating)
        if rejected:
            for event in events:
                self._queue.move_all_to_active_or_backoff_queue(*event, lambda other: other.uid != uid)


def _unless_skipped(status: Status | None) -> Status | None:
    """Return the status of a binding; a Skip becomes a failure, because no plugin bound the pod."""
    if status is not None and status.code is Code.SKIP:
        return Status(Code.SKIP, "no Bind plugin took the pod")
    return status
