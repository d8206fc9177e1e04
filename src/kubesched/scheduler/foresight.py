"""What an attempt will end with, known before it is made: waiting pods that would fail as they did the last time.

The search remembers why it rejected the pods of a signature, and PostFilter plugins remember that they cannot help. While
both stand, an attempt would count itself, put the pod back, and repeat its event, and nothing else. The scheduling queue has
such pods in lines (:mod:`kubesched.queue.lines`), and asks here once for all that are alike.

Callers: :mod:`.failure`, which offers pods to the queue, and the queue.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from kubesched.framework.interface import InVainAnswer
from kubesched.framework.metrics import Sampling
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.queued import QueuedPodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.status import Code, Status
from kubesched.queue import SchedulingQueue

from .attempt import AttemptMetrics
from .diagnosis import Diagnosis, Rejection
from .profiles import Profile

__all__ = ["Foresight"]


class _Known(NamedTuple):
    """The reasons, and why none of the PostFilter plugins helps."""

    diagnosis: Diagnosis
    in_vain: Sequence[InVainAnswer]


class Foresight:
    """Of all profiles. ``sampling`` is that of the scheduling cycle."""

    def __init__(
        self,
        queue: SchedulingQueue,
        profiles: Mapping[str, Profile],
        attempts: AttemptMetrics,
        sampling: Sampling,
    ) -> None:
        self._queue = queue
        self._profiles = {name: profile for name, profile in profiles.items() if _can_foresee(profile.framework)}
        self._attempts = attempts
        self._sampling = sampling

    def offer(self, record: QueuedPodInfo, rejection: Rejection, text: str) -> None:
        """A pod was rejected for reasons that its condition had already, and is back in the queue."""
        pod = record.pod_info
        profile = self._profiles.get(pod.spec.scheduler_name)
        if profile is None or record.pending_plugins or not _is_plain(pod):
            return
        framework = profile.framework
        if not all(
            getattr(framework.plugins.get(name), "hints_by_spec", False) for name in record.unschedulable_plugins
        ):
            return
        if not all(
            getattr(framework.plugins[name], "enqueues_alike", False) for name in framework.concerned(pod).pre_enqueue
        ):
            return
        known = self._known(profile, pod)
        if known is None:
            return
        reasons = [reason for answer in known.in_vain for reason in answer.status.reasons()]
        message = Status(Code.UNSCHEDULABLE, *reasons).message() if known.in_vain else ""
        if Rejection(rejection.all_nodes, known.diagnosis, rejection.state).with_post_filter(message).message() != text:
            return
        event = profile.recorder.repeated(pod.pod, "Warning", "FailedScheduling", "Scheduling", text)
        if event is not None:
            self._queue.lines.join(record, _kind(profile, pod), known, event)

    def still_fails(self, record: QueuedPodInfo, known: Any) -> bool:
        """As :meth:`kubesched.queue.lines.Foresight.still_fails`."""
        now = self._known(self._profiles[record.pod_info.spec.scheduler_name], record.pod_info)
        return (
            now is not None and now.diagnosis is known.diagnosis and all(map(operator.is_, now.in_vain, known.in_vain))
        )

    def failed(self, scheduler_name: str, times: int, seconds: float) -> None:
        """As :meth:`kubesched.queue.lines.Foresight.failed`."""
        framework = self._profiles[scheduler_name].framework
        self._attempts.failed_alike(scheduler_name, times, seconds)
        sampled = self._sampling.take(times)
        if framework.has_post_filter:
            framework.post_filter_in_vain(times, sampled, seconds / times)

    def _known(self, profile: Profile, pod: PodInfo) -> _Known | None:
        diagnosis = profile.search.known_rejection(pod)
        if diagnosis is None:
            return None
        answers = []
        for plugin in profile.framework.points_plugins("postFilter"):
            answer = plugin.in_vain(pod, diagnosis.statuses)
            if answer is None:
                return None
            answers.append(answer)
        return _Known(diagnosis, answers)


def _can_foresee(framework: Framework) -> bool:
    """Its PostFilter plugins know when they are in vain, and its order of pods is the usual one."""
    plugins = framework.points_plugins("postFilter")
    return all(hasattr(plugin, "in_vain") for plugin in plugins) and getattr(
        framework.queue_sort, "orders_by_priority", False
    )


def _is_plain(pod: PodInfo) -> bool:
    """A pod that only its own spec, namespace and labels distinguish from others."""
    return not (pod.storage or pod.spec.resource_claims or pod.status.nominated_node_name or pod.has_affinity)


def _kind(profile: Profile, pod: PodInfo) -> Hashable:
    """Equal for pods that get equal answers from everything that an attempt calls."""
    spec = pod.spec
    labels = frozenset(pod.labels.items()) if pod.labels else None
    return profile.search.sign(pod), pod.priority, spec.preemption_policy, pod.namespace, labels
