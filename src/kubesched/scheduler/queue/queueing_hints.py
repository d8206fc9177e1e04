"""Queueing hints: plugins' registrations for events, and the answers of their hint functions.

For each event the scheduling queue gets a plan, and for each pod that the event may help a strategy.

Source: rules/queue §9.3, §10.1, §10.2.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from kubesched.api.types import Pod
from kubesched.base.times import Clock

from ..framework.events import ClusterEvent, HintFn, KeyedHint, QueueingHint
from ..framework.metrics import Sampling, SchedulerMetrics
from ..framework.queued import QueuedPodInfo
from ..nodes.podinfo import PodInfo
from .unschedulable import RejectorKey

__all__ = ["EventPlan", "Hints", "Registrations", "Strategy", "pod_keys"]

_log = logging.getLogger("kubesched.scheduler.queue")

#: Scheduler name -> registered event -> (plugin, hint function), in order. None as a function means "always Queue".
Registrations = Mapping[str, Mapping[ClusterEvent, Sequence[tuple[str, HintFn | None]]]]

#: Most events whose plans are kept: with custom resources there may be any number of events.
_MAX_PLANS: Final = 4096


class Strategy(enum.Enum):
    """Strategy to requeue a pod: not at all, after its backoff, or immediately."""

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


class EventPlan:
    """Plan of an event: the registrations that match it, found once.

    Attributes:
        label: name of the event in metrics.
        wildcard: True if the event is about everything.
        interesting: True if any plugin of any profile registered for the event; always True for a wildcard.
        hints: scheduler name to the matching (plugin, function) pairs.
        plugins: names of the plugins, of all profiles, with a matching registration.
        rejectors: (scheduler name, plugin name) of these plugins; the event may help pods that they rejected.
    """

    __slots__ = ("_keyed", "hints", "interesting", "label", "plugins", "rejectors", "wildcard")

    def __init__(self, event: ClusterEvent, registrations: Registrations) -> None:
        self.label = event.label
        self.wildcard = event.is_wildcard
        self.hints: dict[str, tuple[tuple[str, HintFn | None], ...]] = {
            scheduler: tuple(
                pair for registered, pairs in by_event.items() if registered.matches(event) for pair in pairs
            )
            for scheduler, by_event in registrations.items()
        }
        self.plugins = frozenset(plugin for pairs in self.hints.values() for plugin, _ in pairs)
        self.interesting = self.wildcard or any(
            registered.matches(event) for by_event in registrations.values() for registered in by_event
        )
        self.rejectors: tuple[RejectorKey, ...] = tuple(
            dict.fromkeys((scheduler, plugin) for scheduler, pairs in self.hints.items() for plugin, _ in pairs)
        )
        functions: dict[RejectorKey, list[HintFn | None]] = {}
        for scheduler, pairs in self.hints.items():
            for plugin, hint in pairs:
                functions.setdefault((scheduler, plugin), []).append(hint)
        self._keyed = {
            rejector: found[0]
            for rejector, found in functions.items()
            if len(found) == 1 and isinstance(found[0], KeyedHint)
        }

    def keys(self, old: Any, new: Any) -> dict[RejectorKey, Collection[str]]:
        """Return hint keys by rejector. Of the pods that a rejector rejected, the event may help only pods with one of
        its keys.

        The event may help all pods of a rejector that is not in the result.
        """
        if not self._keyed:
            return {}
        found = ((rejector, hint.of_event(old, new)) for rejector, hint in self._keyed.items())
        return {rejector: keys for rejector, keys in found if keys is not None}


def pod_keys(registrations: Registrations) -> dict[RejectorKey, Callable[[PodInfo], Iterable[str]]]:
    """Return, by rejector, the function from a pod to its hint keys; for plugins with a :class:`KeyedHint`."""
    return {
        (scheduler, plugin): hint.of_pod
        for scheduler, by_event in registrations.items()
        for pairs in by_event.values()
        for plugin, hint in pairs
        if isinstance(hint, KeyedHint)
    }


class Hints:
    """Queueing hints of all profiles."""

    __slots__ = ("_clock", "_durations", "_events_of", "_plans", "_registrations", "_sampling")

    def __init__(self, registrations: Registrations, clock: Clock, metrics: SchedulerMetrics) -> None:
        self._registrations = registrations
        self._plans: dict[ClusterEvent, EventPlan] = {}
        self._clock = clock
        self._sampling: dict[str, Sampling] = {}  # by plugin
        self._durations = metrics.queueing_hint_execution_duration_seconds
        events_of: dict[str, dict[ClusterEvent, None]] = {}
        for by_event in registrations.values():
            for event, pairs in by_event.items():
                for plugin, _ in pairs:
                    events_of.setdefault(plugin, {})[event] = None
        self._events_of = {plugin: tuple(events) for plugin, events in events_of.items()}

    def events_of(self, plugin: str) -> tuple[ClusterEvent, ...]:
        """Return the events that a plugin registered for, in all profiles together."""
        return self._events_of.get(plugin, ())

    def plan(self, event: ClusterEvent) -> EventPlan:
        plan = self._plans.get(event)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[event] = EventPlan(event, self._registrations)
        return plan

    def strategy(self, record: QueuedPodInfo, plan: EventPlan, old: Any, new: Any) -> Strategy:
        """Return the strategy for a pod after an event. A hint function that fails counts as Queue and is logged."""
        pending = record.pending_plugins
        unschedulable = record.unschedulable_plugins
        if not unschedulable and not pending:
            return Strategy.AFTER_BACKOFF
        pod = record.pod_info.pod
        if plan.wildcard:
            about_another = new is not None and not (isinstance(new, Pod | PodInfo) and new.metadata.uid == pod.uid)
            return Strategy.SKIP if about_another else Strategy.AFTER_BACKOFF
        pairs = plan.hints.get(pod.spec.scheduler_name)
        if pairs is None:
            _log.error("No queueing hints for scheduler %r of pod %s", pod.spec.scheduler_name, pod.key)
            return Strategy.AFTER_BACKOFF
        best = Strategy.SKIP
        for plugin, hint in pairs:
            is_pending = plugin in pending
            if not is_pending and plugin not in unschedulable:
                continue
            if best is not Strategy.SKIP and not is_pending:
                continue  # the pod is tried again anyway; only a pending plugin's hint can make it immediate
            if not self._worth_queueing(plugin, hint, record.pod_info, plan, old, new):
                continue
            if is_pending:
                return Strategy.IMMEDIATELY
            if not pending:
                return Strategy.AFTER_BACKOFF
            best = Strategy.AFTER_BACKOFF
        return best

    def strategy_after(self, record: QueuedPodInfo, events: Iterable[tuple[EventPlan, Any, Any]]) -> Strategy:
        """Return the strategy for a pod after several events, each with its old and new object (rules/queue §8.3)."""
        best = Strategy.SKIP
        for plan, old, new in events:
            strategy = self.strategy(record, plan, old, new)
            if strategy is Strategy.IMMEDIATELY:
                return strategy
            if strategy is Strategy.AFTER_BACKOFF:
                if not record.pending_plugins:
                    return strategy
                best = strategy
        return best

    def _worth_queueing(
        self, plugin: str, hint: HintFn | None, pod_info: PodInfo, plan: EventPlan, old: Any, new: Any
    ) -> bool:
        sampling = self._sampling.get(plugin)
        if sampling is None:
            sampling = self._sampling[plugin] = Sampling()
        sampled = sampling.take()
        started = self._clock.now() if sampled else 0.0
        outcome = "Queue"
        if hint is not None:
            try:
                if hint(pod_info, old, new) is QueueingHint.SKIP:
                    outcome = "QueueSkip"
            except KeyboardInterrupt:
                raise
            except BaseException:
                outcome = "Error"
                _log.exception(
                    "Queueing hint of %s failed for event %s; pod %s is queued", plugin, plan.label, pod_info.key
                )
        if sampled:
            durations = self._durations.labels(plugin, plan.label, outcome)
            durations.observe(self._clock.now() - started)
        return outcome != "QueueSkip"
