"""One pod, start to finish: the scheduling cycle on one screen, the binding cycle, and what failures lead to.

The scheduling cycle (:meth:`Cycle.schedule_one`) is synchronous: nothing else runs until the pod is assumed
on a node or turned down, so queue and cache need no locks. The binding cycle is one named task per pod.

Source: spec "Scheduling cycle" sections 2 to 10.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from kubesched.api.quantity import QuantityError
from kubesched.api.types import PodCondition
from kubesched.cache import CacheError
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState
from kubesched.framework.entries import PluginFailedError
from kubesched.framework.events import ASSIGNED_POD_DELETE
from kubesched.framework.metrics import PLUGIN_METRICS_SAMPLE
from kubesched.framework.nominating import NominatingInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.queued import QueuedPodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.status import Code, Status
from kubesched.framework.waiting import PodInPreBind, WaitingPod
from kubesched.queue.scheduling_queue import QueueError

from .diagnosis import Rejection
from .status_writer import StatusWriter

if TYPE_CHECKING:
    from .scheduler import Scheduler

__all__ = ["Cycle"]

_log = logging.getLogger("kubesched.scheduler")

_CLEAR: Final = NominatingInfo.clear()
#: The attempts label of the SLI metric is capped here.
_MOST_ATTEMPTS_LABEL: Final = 15


class Cycle:
    """Takes popped pods through scheduling and binding."""

    def __init__(self, scheduler: Scheduler, rng: random.Random) -> None:
        self._queue = scheduler.queue
        self._cache = scheduler.cache
        self._frameworks = scheduler.frameworks
        self._searches = scheduler.searches
        self._port = scheduler.port
        self._clock = scheduler.clock
        self._metrics = scheduler.metrics
        self._live_pod = scheduler.live_pod
        self._waiting = scheduler.backends.waiting_pods
        self._pre_binding = scheduler.backends.pods_in_pre_bind
        self._publish_node = scheduler.backends.gates.enabled("NominatedNodeNameForExpectation")
        self._random = rng
        #: The bindings under way, in the order they began, with the UIDs of their pods.
        self._bindings: dict[asyncio.Task[None], str] = {}
        self._closing = False
        self._running_bindings = scheduler.metrics.goroutines.labels("binding")
        #: The attempt that reached Reserve last, for :meth:`give_up`.
        self._reserved: tuple[CycleState, PodInfo] | None = None
        self._statuses = StatusWriter(scheduler.port, scheduler.live_pod)
        self._recorders = {name: scheduler.port.recorder(name) for name in scheduler.frameworks}

    # -- the scheduling cycle --------------------------------------------------------------------------

    def schedule_one(self, queued: QueuedPodInfo) -> None:
        """Decide about one popped pod, and start its binding if there is a node for it."""
        # 1. Whose pod is it, and is it still worth an attempt?
        framework = self._frameworks.get(queued.pod_info.spec.scheduler_name)
        if framework is None or self._skip(queued, framework):
            self._queue.done(queued.uid)
            return
        start = self._clock.now()
        pod = queued.pod_info
        try:
            # 2. Find the node: filter, score, choose.
            sampled = self._random.random() < PLUGIN_METRICS_SAMPLE
            decision = self._searches[framework.profile_name].find(pod, record_plugin_metrics=sampled)
            if isinstance(decision, Rejection):
                self._try_post_filter(queued, framework, decision, start)
                return
            node_name, state = decision.node.name, decision.state
            self._metrics.scheduling_algorithm_duration_seconds.observe(self._clock.now() - start)
            # 3. Remember it, so that the next cycle sees this pod on its node.
            assumed = self._assume(pod, node_name)
        except (PluginFailedError, CacheError) as error:
            self._fail(queued, framework, Status.from_error(_cause(error)), _CLEAR, start)
            return
        # 4. Let plugins set things aside, and have their last word.
        self._reserved = state, assumed
        status = framework.reserve(state, assumed, node_name)
        if status is None:
            permit, timeouts = framework.permit(state, assumed, node_name)
            if permit is None or permit.code is Code.WAIT:
                if timeouts:
                    self._waiting.add(WaitingPod(assumed, timeouts))
                # 5. Wake pods that plugins asked for, and carry the decision out in a task of its own.
                self._start_binding(queued, framework, state, assumed, node_name, start)
                self._activate(state)
                return
            status = permit
        framework.unreserve(state, assumed, node_name)
        self._forget(assumed)
        self._fail(queued, framework, _on_chosen_node(node_name, status, state), _CLEAR, start)

    def give_up(self, queued: QueuedPodInfo, error: Exception) -> None:
        """An attempt ended in an error nobody expected: what was assumed is forgotten, the pod is tried again.

        A pod whose binding has begun is left to it.
        """
        pod = queued.pod_info
        if self.is_binding(pod.uid):
            return
        framework = self._frameworks[pod.spec.scheduler_name]
        assumed = self._cache.get_pod(pod.uid)
        if assumed is not None and self._cache.is_assumed(pod.uid):
            if self._reserved is not None and self._reserved[1].uid == pod.uid:
                framework.unreserve(self._reserved[0], assumed, assumed.spec.node_name)
            self._forget(assumed)
        self._fail(queued, framework, Status.from_error(error), _CLEAR, self._clock.now())

    def _skip(self, queued: QueuedPodInfo, framework: Framework) -> bool:
        """Pods being deleted, and pods already assumed, are not tried again."""
        pod = queued.pod_info.pod
        if pod.metadata.deletion_timestamp is not None:
            note = f"skip schedule deleting pod: {pod.namespace}/{pod.name}"
            self._recorders[framework.profile_name].record(pod, "Warning", "FailedScheduling", "Scheduling", note)
            return True
        return self._cache.is_assumed(pod.uid)

    def _assume(self, pod: PodInfo, node_name: str) -> PodInfo:
        assumed = pod.with_pod(pod.pod.on_node(node_name))
        self._cache.assume_pod(assumed)
        self._queue.nominator.delete(pod.pod)
        return assumed

    def _forget(self, assumed: PodInfo) -> bool:
        try:
            self._cache.forget_pod(assumed.pod)
        except CacheError as error:
            _log.error("cannot forget pod: %s", error)
            return False
        return True

    def _activate(self, state: CycleState) -> None:
        holder = state.get(PODS_TO_ACTIVATE)
        if holder is not None and holder.pods:
            self._queue.activate(holder.pods)
            holder.pods = {}

    def _try_post_filter(self, queued: QueuedPodInfo, framework: Framework, rejection: Rejection, start: float) -> None:
        """No node fits: ask PostFilter for help. Its answer only matters for the nomination and the message."""
        nominating: NominatingInfo | None = _CLEAR
        if framework.has_post_filter and rejection.all_nodes:
            pod = queued.pod_info
            result, status = framework.post_filter(rejection.state, pod, rejection.diagnosis.statuses)
            rejection = rejection.with_post_filter(status.message() if status is not None else "")
            nominating = result.nominating if result is not None else None
        self._fail(queued, framework, rejection, nominating, start)

    # -- the binding cycle -----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Bindings or status patches are under way."""
        return bool(self._bindings) or self._statuses.busy

    def is_binding(self, uid: str) -> bool:
        """Whether a binding of this pod is under way, waiting on Permit included."""
        return uid in self._bindings.values()

    async def finish(self) -> None:
        """Let bindings and status patches that were begun come to an end.

        Pods that wait on Permit are given back without a word: another scheduler, or this one after its
        restart, decides about them anew.
        """
        self._closing = True
        for waiting in self._waiting:
            waiting.reject("", "scheduler is shutting down")
        while self._bindings:
            await asyncio.wait(list(self._bindings))
        await self._statuses.finish()

    def _start_binding(
        self,
        queued: QueuedPodInfo,
        framework: Framework,
        state: CycleState,
        assumed: PodInfo,
        node_name: str,
        start: float,
    ) -> None:
        work = self._bind(queued, framework, state, assumed, node_name, start)
        task = asyncio.get_running_loop().create_task(work, name=f"bind {assumed.key}")
        self._bindings[task] = assumed.uid
        self._running_bindings.inc()
        task.add_done_callback(self._bound)

    def _bound(self, task: asyncio.Task[None]) -> None:
        del self._bindings[task]
        self._running_bindings.dec()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed unexpectedly", task.get_name(), exc_info=error)

    async def _bind(
        self,
        queued: QueuedPodInfo,
        framework: Framework,
        state: CycleState,
        assumed: PodInfo,
        node_name: str,
        start: float,
    ) -> None:
        """Carry out a decision: wait on permit, PreBind, Bind, PostBind."""
        status: Status | Rejection | None
        try:
            status = await self._until_permitted(framework, state, assumed, node_name)
            if status is None:
                # From here on no plugin is blamed for a failure any more: it only leads to a retry after backoff.
                self._queue.done(assumed.uid)
                status = await self._binding_steps(framework, state, assumed, node_name)
            elif self._closing and isinstance(status, Rejection):
                self._give_back(framework, state, assumed, node_name)
                self._queue.done(assumed.uid)
                return
        except Exception as error:
            _log.exception("binding pod %s failed unexpectedly", assumed.key)
            status = Status.from_error(error)
        if status is not None:
            self._binding_failed(queued, framework, state, assumed, node_name, status, start)
            return
        pod = assumed.pod
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}"
        self._recorders[framework.profile_name].record(pod, "Normal", "Scheduled", "Binding", note)
        self._count_scheduled(queued, framework, start)
        framework.post_bind(state, assumed, node_name)
        self._activate(state)

    async def _until_permitted(
        self, framework: Framework, state: CycleState, assumed: PodInfo, node_name: str
    ) -> Status | Rejection | None:
        """Publish the chosen node if there is work or waiting ahead, and wait for Permit's verdict."""
        waiting = self._waiting.get(assumed.uid)
        try:
            preflight = framework.pre_bind_pre_flight(state, assumed, node_name) if self._publish_node else None
            if preflight is not None and preflight.code is not Code.SKIP:
                return preflight
            if self._publish_node and (preflight is None or waiting is not None):
                await self._statuses.nominate(assumed.pod, node_name)
            return await self._wait_on_permit(waiting, node_name, state) if waiting is not None else None
        finally:
            if waiting is not None:
                waiting.reject("", "removed")  # stops its timers; means nothing when there was a verdict
                self._waiting.remove(assumed.uid)

    async def _binding_steps(
        self, framework: Framework, state: CycleState, assumed: PodInfo, node_name: str
    ) -> Status | None:
        """PreBind and Bind. Without work for PreBind (all its plugins said Skip) only Bind."""
        plugins = {name for name, _ in framework.points["preBind"]}
        if not self._publish_node or plugins - state.skip_pre_bind:
            status = await self._pre_bind(framework, state, assumed, node_name)
            if status is not None:
                return status
        # What an earlier attempt had to say of this pod must not be written over what the binding writes.
        await self._statuses.settle(assumed.uid)
        status = await framework.bind(state, assumed, node_name)
        if status is not None and status.code is Code.SKIP:
            return Status(Code.SKIP, "no Bind plugin took the pod")
        return status

    async def _wait_on_permit(
        self, waiting: WaitingPod, node_name: str, state: CycleState
    ) -> Status | Rejection | None:
        start = self._clock.now()
        status = await waiting.wait()
        self._waiting.remove(waiting.pod.uid)
        self._metrics.permit_wait_duration_seconds.observe(self._clock.now() - start, status.code.label)
        if status.code is Code.SUCCESS:
            return None
        if status.is_rejected:
            return _on_chosen_node(node_name, status, state)
        error = RuntimeError(f"waiting on permit for pod: {status.message()}")
        return Status.from_error(error, status.plugin)

    async def _pre_bind(
        self, framework: Framework, state: CycleState, assumed: PodInfo, node_name: str
    ) -> Status | None:
        """Run PreBind so that a preemptor can still call it off."""
        entry = PodInPreBind(asyncio.ensure_future(framework.pre_bind(state, assumed, node_name)))
        self._pre_binding.add(assumed.uid, entry)
        try:
            status = await entry.result()
            if status is None and not entry.mark_prebound():
                status = Status.from_error(entry.cause)
        finally:
            self._pre_binding.remove(assumed.uid)
        return status

    def _binding_failed(
        self,
        queued: QueuedPodInfo,
        framework: Framework,
        state: CycleState,
        assumed: PodInfo,
        node_name: str,
        status: Status | Rejection,
        start: float,
    ) -> None:
        """Give everything back. The room that comes free is news for other pods, and for this one only if no plugin objected."""
        forgotten = self._give_back(framework, state, assumed, node_name)
        if forgotten and not _is_rejected(status):
            self._queue.move_all_to_active_or_backoff_queue(ASSIGNED_POD_DELETE, assumed.pod, None)
        self._fail(queued, framework, status, _CLEAR, start)
        if forgotten and _is_rejected(status):
            uid = assumed.uid
            self._queue.move_all_to_active_or_backoff_queue(
                ASSIGNED_POD_DELETE, assumed.pod, None, lambda pod: pod.uid != uid
            )

    def _give_back(self, framework: Framework, state: CycleState, assumed: PodInfo, node_name: str) -> bool:
        """Undo Reserve and Assume; False when the cache did not know the pod as assumed any more."""
        framework.unreserve(state, assumed, node_name)
        return self._forget(assumed)

    # -- failures --------------------------------------------------------------------------------------

    def _fail(
        self,
        queued: QueuedPodInfo,
        framework: Framework,
        why: Status | Rejection,
        nominating: NominatingInfo | None,
        start: float,
    ) -> None:
        """Put a pod back and say why (spec section 10)."""
        rejected, text = _is_rejected(why), why.message()
        self._count("unschedulable" if rejected else "error", framework, start)
        pod = queued.pod_info.pod
        queued.unschedulable_plugins, queued.pending_plugins = set(), set()
        queued.gating_plugin, queued.gating_plugin_events = "", ()
        if isinstance(why, Rejection):
            queued.unschedulable_plugins = set(why.diagnosis.unschedulable_plugins)
            queued.pending_plugins = set(why.diagnosis.pending_plugins)
        live = self._live_pod(pod.namespace, pod.name)
        if live is not None and live.uid != pod.uid:
            self._queue.done(pod.uid)  # another pod of that name: this one is history
            return
        if live is None or live.spec.node_name:
            self._queue.done(pod.uid)
        else:
            pod = live
            try:
                queued.pod_info = PodInfo.derive(live, queued.pod_info)
            except QuantityError as problem:
                _log.error("pod %s is tried again as it was before: %s", pod.key, problem)
            try:
                self._queue.add_unschedulable_if_not_present(queued, self._queue.scheduling_cycle)
            except QueueError as problem:
                _log.error("%s", problem)
        self._queue.nominator.add(pod, nominating)
        if isinstance(why, Status) and why.as_error() is None and why.code is not Code.SKIP:
            return
        self._recorders[framework.profile_name].record(pod, "Warning", "FailedScheduling", "Scheduling", text)
        reason = "Unschedulable" if rejected else "SchedulerError"
        condition = PodCondition(type="PodScheduled", status="False", reason=reason, message=text)
        override = nominating.nominated_node_name if nominating is not None and nominating.mode else None
        self._statuses.write(pod, condition, override)

    # -- metrics ---------------------------------------------------------------------------------------

    def _count(self, result: str, framework: Framework, start: float) -> None:
        metrics, name = self._metrics, framework.profile_name
        metrics.schedule_attempts_total.inc(result, name)
        metrics.scheduling_attempt_duration_seconds.observe(self._clock.now() - start, result, name)

    def _count_scheduled(self, queued: QueuedPodInfo, framework: Framework, start: float) -> None:
        self._count("scheduled", framework, start)
        metrics = self._metrics
        metrics.pod_scheduling_attempts.observe(queued.attempts)
        if queued.initial_attempt_timestamp is not None:
            label = f"{_MOST_ATTEMPTS_LABEL}+" if queued.attempts >= _MOST_ATTEMPTS_LABEL else str(queued.attempts)
            metrics.pod_scheduling_sli_duration_seconds.observe(
                self._clock.now() - queued.initial_attempt_timestamp, label
            )
        if queued.was_flushed_from_unschedulable:
            metrics.pod_scheduled_after_flush_total.inc()


def _cause(error: PluginFailedError | CacheError) -> BaseException:
    return error.error if isinstance(error, PluginFailedError) else error


def _on_chosen_node(node_name: str, status: Status, state: CycleState) -> Status | Rejection:
    """A rejection by Reserve or Permit is one of the single node that was chosen; anything else stays as it is."""
    return Rejection.on_chosen_node(node_name, status, state) if status.is_rejected else status


def _is_rejected(why: Status | Rejection) -> bool:
    return isinstance(why, Rejection) or why.is_rejected
