"""Source over a saved or imported cluster that stands still: a scheduler over its objects, which decides nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubesched.api.groups import group_key
from kubesched.api.quantity import QuantityError
from kubesched.api.types import Pod
from kubesched.base.times import FixedClock, parse_time
from kubesched.base.turns import Pace
from kubesched.cluster.files import Manifests
from kubesched.explain.live import LivePages
from kubesched.explain.watchers import Watchers
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.inputs.arrivals import DEFAULT_EPOCH
from kubesched.lab.simulate.run.standing import standing
from kubesched.scheduler.config import FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.scheduler import Scheduler

from .live import Live
from .schema import RunInfo
from .schema_what_if import Applied, Choices, WhatIf
from .source import Refused

__all__ = ["StandingSource", "standing_source"]

#: Most remarks that are shown.
_MOST_REMARKS: Final = 20
#: Real seconds for which pods that wait are tried.
_TRY_SECONDS: Final = 5.0


class StandingSource(Live):
    """Source over a cluster that stands still.

    Attributes:
        embedded: the cluster.
    """

    def __init__(self, name: str, number: int, embedded: Embedded, remarks: Sequence[str]) -> None:
        super().__init__(name, "snapshot")
        self.embedded = embedded
        self._number = number
        self._remarks = list(remarks[:_MOST_REMARKS])
        # Nothing else has to be done, so that no answer waits for the scheduler's work: for these clocks no work takes time.
        self._standing_pages = LivePages(embedded.scheduler, objects=embedded.objects, time=lambda: 0.0, live=False)
        watchers = Watchers(None, annotate_why=False, event_why=False, simulator_results=False)
        self.attach(lambda: embedded.scheduler, watchers)

    @property
    def info(self) -> RunInfo:
        now = self.embedded.clock.now()
        return replace(super().info, id=self._number, start=now, end=now, writable=False, remarks=self._remarks)

    def _now_only(self, at: float | None) -> Scheduler:
        # A page that compares two files may send the moment of the other one; there is only one moment here.
        found = super()._now_only(None)
        self._pace = Pace(1.0, lambda: True, lambda: 0.0)
        return found

    @property
    def _pages(self) -> LivePages:
        return self._standing_pages

    async def choices(self) -> Choices:
        return replace(await super().choices(), applicable=[])

    async def apply(self, question: WhatIf) -> Applied:
        text = "a file is never changed from here; kubesched up --from starts a cluster from it, whose dashboard carries changes out"
        raise Refused(409, text)


@asynccontextmanager
async def standing_source(
    manifests: Manifests,
    name: str,
    number: int,
    registry: Registry,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
) -> AsyncIterator[StandingSource]:
    """Context with the source over a cluster. Extenders of the configuration are not asked.

    Raises:
        ManifestError: when an object cannot be used.
        ConfigError: when a profile cannot be built.
    """
    clock = FixedClock(newest_time(manifests))
    async with standing(manifests, registry, replace(config, extenders=()), gates, clock=clock) as (embedded, remarks):
        untried = _try_once(embedded.scheduler)
        if untried:
            remarks.append(f"{untried:,} waiting pods were not tried, because that takes long; they are in Active.")
        yield StandingSource(name, number, embedded, [*manifests.warnings, *remarks])


def _try_once(scheduler: Scheduler) -> int:
    """Have the queue know the pods that fit nowhere, as after an attempt. Pods that fit stay active: nothing is decided.

    Return the number of pods for which there was no time. Members of pod groups stay, too, as only a whole group can be tried.
    """
    deadline = monotonic() + _TRY_SECONDS
    rejectors: dict[bytes, frozenset[str]] = {}
    untried = 0
    for pod in scheduler.queue.views.pods_in_active():
        if group_key(pod):
            continue
        alike = msgspec.json.encode((pod.namespace, pod.metadata.labels, pod.spec))
        if alike not in rejectors:
            if monotonic() > deadline:
                untried += 1
                continue
            rejectors[alike] = _rejectors(scheduler, pod)
        record = scheduler.queue.pop_specific(pod) if rejectors[alike] else None
        if record is not None:
            record.attempts, record.unschedulable_plugins = 0, set(rejectors[alike])
            scheduler.queue.add_unschedulable_if_not_present(record, scheduler.queue.scheduling_cycle)
    return untried


def _rejectors(scheduler: Scheduler, pod: Pod) -> frozenset[str]:
    """Return the plugins that keep a pod off every node; none if it fits one, or if that cannot be told."""
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return frozenset()
    try:
        with profile.search.aside():
            found = profile.search.evaluate(prepared(CycleState(), record_plugin_metrics=False), PodInfo(pod))
    except (PluginFailedError, QuantityError):
        return frozenset()
    return found.diagnosis.unschedulable_plugins if isinstance(found, Rejection) else frozenset()


def newest_time(manifests: Manifests) -> float:
    """Return the latest creation of an object, in epoch seconds: the cluster is from that time or later.

    Without any, it is the start of virtual time.
    """
    texts: set[Any] = {item.data["metadata"].get("creationTimestamp") for item in manifests.objects}
    times: list[float] = []
    for text in texts:
        if isinstance(text, str):
            with suppress(ValueError, OverflowError):
                times.append(parse_time(text))
    return max(times, default=DEFAULT_EPOCH)
