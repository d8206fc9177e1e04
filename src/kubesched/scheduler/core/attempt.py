"""One attempt to schedule one pod, and the metrics that count attempts.

An attempt begins when its pod is popped and ends with its binding (:mod:`.binding`) or its failure
(:mod:`.failure`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kubesched.api.types import Pod
from kubesched.base.times import Clock

from ..framework.cycle_state import PODS_TO_ACTIVATE, CycleState
from ..framework.metrics import CounterValue, HistogramValue, SchedulerMetrics
from ..framework.queued import QueuedPodInfo
from ..framework.status import Status
from ..nodes.podinfo import PodInfo
from .diagnosis import Rejection
from .profiles import Profile

__all__ = ["Attempt", "AttemptMetrics"]

#: Number of attempts from which on the ``attempts`` label of the SLI metric is "15+".
_MOST_ATTEMPTS_LABEL: Final = 15


@dataclass(slots=True, eq=False)
class Attempt:
    """Attempt to schedule one pod: its inputs, and the decision once there is one.

    Attributes:
        queued: the pod as it was popped, with its history.
        profile: the profile named by the pod's schedulerName.
        start: time when the attempt began, in seconds of the scheduler's clock.
        node_name: the chosen node; empty until there is one.
        state: the plugins' data for this attempt; set together with ``node_name``.
        assumed: the pod with its node filled in; set together with ``node_name``.
        bound: True once the binding was written.
        stage: the extension point that the attempt has reached once a node is chosen: Reserve, Permit, PreBind or Bind.
    """

    queued: QueuedPodInfo
    profile: Profile
    start: float
    node_name: str = ""
    bound: bool = False
    stage: str = ""
    state: CycleState = field(init=False)
    assumed: PodInfo = field(init=False)

    def choose(self, node_name: str, state: CycleState) -> None:
        """Record the chosen node, and assume the pod on it."""
        self.state = state
        self.assumed = self.queued.pod_info.on_node(node_name)
        self.node_name = node_name
        self.stage = "Reserve"

    def on_chosen_node(self, status: Status) -> Status | Rejection:
        """Return a rejection by Reserve or Permit as a rejection of the chosen node alone; an error stays as it is."""
        return Rejection.on_chosen_node(self.node_name, status, self.state) if status.is_rejected else status

    def take_pods_to_activate(self) -> Mapping[str, Pod]:
        """Return the pods that plugins asked to activate since the last call, by ``namespace/name``."""
        holder = self.state.get(PODS_TO_ACTIVATE)
        if holder is None or not holder.pods:
            return {}
        pods: Mapping[str, Pod] = holder.pods
        holder.pods = {}
        return pods


class AttemptMetrics:
    """Metrics of attempts: their number and their durations (rules/metrics-and-client)."""

    def __init__(self, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._attempts = metrics.pod_scheduling_attempts.labels()
        #: (result, profile name) to the counter and the histogram of such attempts.
        self._series: dict[tuple[str, str], tuple[CounterValue, HistogramValue]] = {}

    def failed(self, attempt: Attempt, *, rejected: bool) -> None:
        """Count an attempt that a plugin rejected, or that failed by an error."""
        self._count("unschedulable" if rejected else "error", attempt, self._clock.now())

    def scheduled(self, attempt: Attempt) -> None:
        """Count an attempt whose pod is bound."""
        now, metrics, queued = self._clock.now(), self._metrics, attempt.queued
        self._count("scheduled", attempt, now)
        self._attempts.observe(queued.attempts)
        if queued.initial_attempt_timestamp is not None:
            label = f"{_MOST_ATTEMPTS_LABEL}+" if queued.attempts >= _MOST_ATTEMPTS_LABEL else str(queued.attempts)
            metrics.pod_scheduling_sli_duration_seconds.observe(now - queued.initial_attempt_timestamp, label)
        if queued.was_flushed_from_unschedulable:
            metrics.pod_scheduled_after_flush_total.inc()

    def _count(self, result: str, attempt: Attempt, now: float) -> None:
        total, durations = self._series_of(result, attempt.profile.framework.profile_name)
        total.value += 1
        durations.observe(now - attempt.start)

    def _series_of(self, result: str, profile_name: str) -> tuple[CounterValue, HistogramValue]:
        key = (result, profile_name)
        series = self._series.get(key)
        if series is None:
            metrics = self._metrics
            total, durations = metrics.schedule_attempts_total, metrics.scheduling_attempt_duration_seconds
            series = self._series[key] = (total.labels(*key), durations.labels(*key))
        return series
