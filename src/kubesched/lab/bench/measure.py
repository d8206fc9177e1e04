"""Stopwatch of a run: times, memory, and figures from samples.

Times are real. A section lasts from the start to the end of a collection; its CPU time includes all work of the
process, also the creation of pods and the recording of events. Caller: :mod:`.execute`.
"""

from __future__ import annotations

import resource
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from kubesched.base.collector import settle_collector
from kubesched.base.loop_watch import HoldLog
from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.metrics import SchedulerMetrics

from .items import DataItem, HistogramStart, memory_items, percentile, throughput_item

__all__ = [
    "Decisions",
    "Percentiles",
    "Run",
    "Section",
    "SectionTimer",
    "StopwatchSearch",
    "peak_rss_mib",
    "resident_mib",
]

_MEBI: Final = 1 << 20
#: Upstream's items begin with the name of its benchmark function; dashboards rely on it (rules/benchmark-format §12
#: quirk 1).
_BENCHMARK: Final = "BenchmarkPerfScheduling"


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Percentiles(_Struct, frozen=True, kw_only=True):
    """Percentiles of a set of samples; 0 when there are none."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, samples: Sequence[float], factor: float = 1.0) -> Percentiles:
        ordered = sorted(samples)
        p50, p90, p99 = (round(percentile(ordered, share) * factor, 3) for share in (50, 90, 99))
        return cls(p50=p50, p90=p90, p99=p99)


class LoopHold(_Struct, frozen=True, kw_only=True):
    """Time for which the event loop was held, and the code that held it."""

    ms: float
    cpu_ms: float
    where: str


class Section(_Struct, frozen=True, kw_only=True):
    """Measured part of a run. ``seconds`` is from its start to its last binding."""

    name: str
    #: Number of pods created in the section's namespaces, and number of these pods that were bound.
    pods: int
    bound: int
    seconds: float
    pods_per_second: float
    #: Time from the create call to the stored binding.
    latency_ms: Percentiles
    #: Time of the search for a node alone.
    decision_us: Percentiles
    cpu_us_per_pod: float
    #: Number of times that the event loop was held for more than 50 ms, and the longest of these times.
    loop_holds: int
    longest_holds: list[LoopHold]
    #: Result items in upstream's format, see :mod:`.items`. The first is the throughput in steps of a second.
    items: list[DataItem]


class Run(_Struct, frozen=True, kw_only=True):
    """Run of a workload on a fresh cluster. The peak memory is the highest of the whole process so far."""

    sections: list[Section]
    setup_seconds: float
    peak_rss_mib: float
    events_recorded: int
    events_dropped: int


class Decisions(_Struct, frozen=True, kw_only=True):
    """Figures of decisions alone: pop, decide, assume, without any API."""

    decisions: int
    unschedulable: int
    per_second: float
    decision_us: Percentiles


def peak_rss_mib() -> float:
    """Return the most memory this process ever had, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / _MEBI if sys.platform == "darwin" else peak / 1024, 1)


def resident_mib() -> float:
    """Return the present memory of this process, in MiB; its peak if the system does not report the present memory."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize() / _MEBI
    except OSError:
        return peak_rss_mib()


class StopwatchSearch:
    """Search whose ``find`` is timed; everything else is passed on."""

    def __init__(self, search: Search, samples: list[float]) -> None:
        self._search = search
        self._samples = samples

    @classmethod
    def around(cls, search: Search, samples: list[float]) -> Search:
        return cast("Search", cls(search, samples))

    def find(self, *args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return self._search.find(*args, **options)
        finally:
            self._samples.append(time.perf_counter() - start)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._search, name)


class SectionTimer:
    """Measurement of one section, from its creation until :meth:`finish`."""

    def __init__(self, name: str, title: str, decisions: list[float], metrics: SchedulerMetrics) -> None:
        self.name = name
        self._item_name = f"{_BENCHMARK}/{title}/{name}"
        self._pods = 0
        #: Times of creation of pods without a node, by key.
        self._created: dict[str, float] = {}
        #: Times of bindings, and seconds from creation to binding.
        self._bound: array[float] = array("d")
        self._latencies: array[float] = array("d")
        self._decisions = decisions
        self._first_decision = len(decisions)
        # As in the commands that run a scheduler.
        self._restore_collector = settle_collector()
        self._histograms = HistogramStart(metrics)
        self.memory = [resident_mib()]
        self._cpu = time.process_time()
        self._start = time.perf_counter()

    def pod_created(self, key: str, at: float) -> None:
        """Note the creation of a pod of the section. Must be called before the pod can be bound."""
        self._pods += 1
        self._created[key] = at

    def pod_bound(self, key: str, at: float) -> None:
        """Note a binding. Pods that are not of the section do not count."""
        created = self._created.pop(key, None)
        if created is not None:
            self._bound.append(at)
            self._latencies.append(at - created)

    def finish(self, holds: HoldLog) -> Section:
        cpu = time.process_time() - self._cpu
        self._restore_collector()
        end = max(self._bound, default=time.perf_counter())
        seconds = max(end - self._start, 1e-9)
        self.memory.append(resident_mib())
        items = [throughput_item(self._item_name, self._start, self._bound)]
        items += self._histograms.items(self._item_name)
        items += memory_items(self._item_name, time.perf_counter() - self._start, self.memory)
        return Section(
            name=self.name,
            pods=self._pods,
            bound=len(self._bound),
            seconds=round(seconds, 6),
            pods_per_second=round(len(self._bound) / seconds, 1),
            latency_ms=Percentiles.of(self._latencies, 1e3),
            decision_us=Percentiles.of(self._decisions[self._first_decision :], 1e6),
            cpu_us_per_pod=round(1e6 * cpu / max(1, self._pods), 1),
            loop_holds=holds.count,
            longest_holds=[
                LoopHold(ms=round(1e3 * one.seconds, 1), cpu_ms=round(1e3 * one.cpu_seconds, 1), where=one.where)
                for one in holds.longest
            ],
            items=items,
        )
