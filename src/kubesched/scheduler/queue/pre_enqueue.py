"""PreEnqueue plugins: they decide if a pod may enter the active or the backoff queue.

Called by the scheduling queue. Source: rules/queue §6.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from kubesched.base.times import Clock

from ..framework.events import ClusterEvent
from ..framework.metrics import HistogramValue, Sampling, SchedulerMetrics
from ..framework.queued import QueuedPodInfo
from ..framework.status import Code, Status
from ..nodes.podinfo import PodInfo

__all__ = ["PreEnqueue", "PreEnqueuePlugins"]

_log = logging.getLogger("kubesched.scheduler.queue")

#: Scheduler name -> plugin name -> the plugin's function, in order. The function returns None if the pod may pass.
PreEnqueuePlugins = Mapping[str, Mapping[str, Callable[[PodInfo], Status | None]]]

_POINT: Final = "PreEnqueue"


class PreEnqueue:
    """PreEnqueue plugins of all profiles. ``events_of`` returns the events that a plugin registered for."""

    __slots__ = ("_clock", "_durations", "_events_of", "_metrics", "_plugins", "_sampling")

    def __init__(
        self,
        plugins: PreEnqueuePlugins,
        events_of: Callable[[str], tuple[ClusterEvent, ...]],
        clock: Clock,
        metrics: SchedulerMetrics,
    ) -> None:
        self._plugins = plugins
        self._events_of = events_of
        self._clock = clock
        self._metrics = metrics
        self._sampling: dict[str, Sampling] = {}  # by plugin
        self._durations: dict[str, HistogramValue] = {}

    def run(self, record: QueuedPodInfo) -> None:
        """Run the plugins of the pod's profile. The first plugin that does not let the pod pass gates it.

        If all let it pass, the pod is no longer gated. The plugin that gated it last is called first. A plugin that
        raises gates the pod with an Error status.
        """
        profile = record.pod_info.pod.spec.scheduler_name
        started = self._clock.now()
        plugins = self._plugins.get(profile)
        if plugins:
            self._run(record, profile, plugins)
        elif record.gating_plugin:
            self._ungate(record)
        duration = self._durations.get(profile)
        if duration is None:
            # The status label is always Success, as upstream (rules/queue §17 quirk 2): dashboards rely on it.
            duration = self._metrics.framework_extension_point_duration_seconds.labels(_POINT, "Success", profile)
            self._durations[profile] = duration
        duration.observe(self._clock.now() - started)

    def _run(
        self, record: QueuedPodInfo, profile: str, plugins: Mapping[str, Callable[[PodInfo], Status | None]]
    ) -> None:
        gate = record.gating_plugin
        first = plugins.get(gate) if gate else None
        if first is not None and not self._passes(record, profile, gate, first):
            return
        for name, plugin in plugins.items():
            if name != gate and not self._passes(record, profile, name, plugin):
                return
        if gate:
            self._ungate(record)

    @staticmethod
    def _ungate(record: QueuedPodInfo) -> None:
        record.gating_plugin = ""
        record.gating_plugin_events = ()

    def _passes(
        self, record: QueuedPodInfo, profile: str, name: str, plugin: Callable[[PodInfo], Status | None]
    ) -> bool:
        sampling = self._sampling.get(name)
        if sampling is None:
            sampling = self._sampling[name] = Sampling()
        sampled = sampling.take()
        started = self._clock.now() if sampled else 0.0
        try:
            status = plugin(record.pod_info)
            code = Code.SUCCESS if status is None else status.code
            if status is not None and code is Code.ERROR:
                _log.error("PreEnqueue plugin %s: pod %s is held back: %s", name, record.key, status.message())
        except KeyboardInterrupt:
            raise
        except BaseException:
            _log.exception("PreEnqueue plugin %s failed; pod %s is held back", name, record.key)
            code = Code.ERROR
        if sampled:
            durations = self._metrics.plugin_execution_duration_seconds.labels(name, _POINT, code.label)
            durations.observe(self._clock.now() - started)
        if code is Code.SUCCESS:
            return True
        if name not in record.unschedulable_plugins and name not in record.pending_plugins:
            self._metrics.unschedulable_pods.labels(name, profile).value += 1
        record.unschedulable_plugins.add(name)
        record.gating_plugin = name
        record.gating_plugin_events = self._events_of(name)
        return False
