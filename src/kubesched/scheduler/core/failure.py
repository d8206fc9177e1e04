"""Handler of failed attempts: undo, back to the queue, event and condition.

Called by the scheduling cycle and by binding cycles. Source: rules/cycle §10.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from kubesched.api.quantity import QuantityError
from kubesched.api.types import Pod, PodCondition
from kubesched.api.wire import NotLeaderError

from ..cache import Cache, CacheError
from ..framework.queued import QueuedPodInfo
from ..framework.recorded_events import FAILED_SCHEDULING
from ..framework.status import Code, Status
from ..framework.uncertain import causes
from ..nodes.nominating import NominatingInfo
from ..nodes.podinfo import PodInfo
from ..queue import QueueError, SchedulingQueue
from .attempt import Attempt, AttemptMetrics
from .diagnosis import Rejection
from .observer import AttemptObserver
from .status_writer import StatusWriter

__all__ = ["FailureHandler", "is_fenced", "is_rejected"]

_log = logging.getLogger("kubesched.scheduler")

_CLEAR: Final = NominatingInfo.clear()


def is_rejected(why: Status | Rejection) -> bool:
    """Return True if plugins rejected the pod, False if the attempt ended in an error."""
    return isinstance(why, Rejection) or why.is_rejected


def is_fenced(error: BaseException | None) -> bool:
    """Return True if an attempt failed because this process does not hold the lease."""
    return any(isinstance(each, NotLeaderError) for each in causes(error))


class FailureHandler:
    """Handler that ends failed attempts."""

    def __init__(
        self,
        queue: SchedulingQueue,
        cache: Cache,
        statuses: StatusWriter,
        metrics: AttemptMetrics,
        live_pod: Callable[[str, str], Pod | None],
        observers: Sequence[AttemptObserver] = (),
    ) -> None:
        """``live_pod`` returns the pod of a namespace and name as the API server last showed it, or None."""
        self._queue = queue
        self._cache = cache
        self._statuses = statuses
        self._metrics = metrics
        self._live_pod = live_pod
        self._observers = observers
        self._has_lost_lease = False

    def give_back(self, attempt: Attempt) -> None:
        """Undo Reserve and Assume."""
        attempt.profile.framework.unreserve(attempt.state, attempt.assumed, attempt.node_name)
        try:
            self._cache.forget_pod(attempt.assumed.pod)
        except CacheError as error:
            _log.error("cannot forget pod: %s", error)

    def abandon(self, attempt: Attempt) -> None:
        """Leave the pod alone until it changes, because giving it back has failed, too.

        Call it in the ``except`` block: the error is logged.
        """
        _log.exception("pod %s cannot be given back; it is tried again when it changes", attempt.queued.key)
        self._queue.done(attempt.queued.uid)

    def fail(
        self,
        attempt: Attempt,
        why: Status | Rejection,
        nominating: NominatingInfo | None = _CLEAR,
        rejectors: Collection[str] | None = None,
    ) -> None:
        """Put the pod back into the queue, and report why it failed in a metric, an event and the pod's condition.

        By default the pod's nomination is cleared; ``nominating`` None leaves it as it is. ``rejectors`` are the
        plugins whose events may help the pod; None: those that ``why`` names.
        """
        for observer in self._observers:
            observer.ended(attempt, why, nominating)
        rejected, text, queued = is_rejected(why), why.message(), attempt.queued
        self._metrics.failed(attempt, rejected=rejected)
        queued.unschedulable_plugins, queued.pending_plugins = set(), set()
        queued.gating_plugin, queued.gating_plugin_events = "", ()
        if isinstance(why, Rejection):
            queued.unschedulable_plugins = set(why.diagnosis.unschedulable_plugins)
            queued.pending_plugins = set(why.diagnosis.pending_plugins)
        if rejectors is not None:
            queued.unschedulable_plugins = set(rejectors)
            queued.pending_plugins &= queued.unschedulable_plugins
        pod = self._put_back(queued, nominating)
        if pod is None:
            return
        if isinstance(why, Status) and why.as_error() is None and why.code is not Code.SKIP:
            return
        if not rejected:
            cause = why.as_error() if isinstance(why, Status) else None
            if is_fenced(cause):
                self._say_lease_lost()
                return
            self._say_failed(pod, text, cause)
        attempt.profile.recorder.record(pod, *FAILED_SCHEDULING, text)
        reason = "Unschedulable" if rejected else "SchedulerError"
        condition = PodCondition(type="PodScheduled", status="False", reason=reason, message=text)
        override = nominating.nominated_node_name if nominating is not None and nominating.mode else None
        self._statuses.write(pod, condition, override)

    def _say_failed(self, pod: Pod, text: str, cause: BaseException | None) -> None:
        live = self._live_pod(pod.namespace, pod.name)
        if live is not None and live.spec.node_name:  # another scheduler was faster
            _log.warning("scheduling pod %s failed, but it is on node %s: %s", pod.key, live.spec.node_name, text)
        else:
            _log.error("scheduling pod %s failed; it is tried again: %s", pod.key, text, extra={"cause": cause})

    def _say_lease_lost(self) -> None:
        """Log once, for all pods, that nothing may be written: neither their bindings nor why they failed."""
        if not self._has_lost_lease:
            self._has_lost_lease = True
            _log.warning(
                "this process does not hold the lease any more; pods that it was binding are left to the next leader"
            )

    def fail_again(self, attempt: Attempt, why: Status) -> None:
        """Put a rejected pod back, to wait for the same plugins as before. It is told nothing new, and stays nominated.

        ``why`` is for observers.
        """
        for observer in self._observers:
            observer.ended(attempt, why, None)
        self._metrics.failed(attempt, rejected=True)
        self._put_back(attempt.queued, None)

    def _put_back(self, queued: QueuedPodInfo, nominating: NominatingInfo | None) -> Pod | None:
        """Give a pod back to the queue, with this change of its nomination; a pod that needs no node is left out.

        Return the pod as the API server last showed it; None if another pod has its name.
        """
        pod = queued.pod_info.pod
        live = self._live_pod(pod.namespace, pod.name)
        if live is not None and live.uid != pod.uid:
            self._queue.done(pod.uid)  # the pod was deleted, and another pod has its name
            return None
        if live is None or live.spec.node_name:
            self._queue.nominator.add(pod, nominating)
            self._queue.done(pod.uid)
            return pod
        try:
            queued.pod_info = PodInfo.derive(live, queued.pod_info)
        except QuantityError as problem:
            _log.error("pod %s is tried again as it was before: %s", live.key, problem)
        # The nomination comes first: the events that may help the pod depend on it.
        nominator = self._queue.nominator
        before = nominator.node_of(live.uid)
        nominator.add(live, nominating)
        try:
            self._queue.add_unschedulable_if_not_present(queued, self._queue.scheduling_cycle)
        except QueueError as problem:
            _log.error("%s", problem)
        # Of a nomination that the pod's status has, the watch will show the end.
        if before not in (None, live.status.nominated_node_name, nominator.node_of(live.uid)):
            self._queue.offer_room(live, before)
        return live
