"""Metrics of the scheduler, kept as plain Python numbers.

Names, types, labels, buckets and stability levels are upstream's (rules/metrics-and-client §2). Queue, cache, runtime
and cycle write them. The server turns :meth:`MetricSet.collect` into an exposition; this module does not know that
format. It reads no clock either: durations are passed in. Other tables of metrics (``server.process_metrics``) are also
of class :class:`MetricSet`.

Hot paths keep the series that they write to::

    active = metrics.pending_pods.labels("active")
    active.inc()
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeVar

__all__ = [
    "DEFINITIONS",
    "PLUGIN_METRICS_SAMPLE",
    "Counter",
    "CounterValue",
    "Family",
    "Gauge",
    "GaugeValue",
    "Histogram",
    "HistogramSample",
    "HistogramValue",
    "Kind",
    "Level",
    "MetricDef",
    "MetricFamily",
    "MetricSet",
    "Sampling",
    "SchedulerMetrics",
    "exponential_buckets",
]

Kind = Literal["counter", "gauge", "histogram"]
Level = Literal["STABLE", "BETA", "ALPHA"]

#: Share of attempts in which the duration of each plugin is recorded.
PLUGIN_METRICS_SAMPLE: Final = 0.1
_SAMPLE_EVERY: Final = round(1 / PLUGIN_METRICS_SAMPLE)

PREFIX: Final = "scheduler_"


def exponential_buckets(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return ``count`` upper bounds: first, first * factor, first * factor**2, and so on (``+Inf`` is implied)."""
    bounds = []
    for _ in range(count):
        bounds.append(first)
        first *= factor
    return tuple(bounds)


_ATTEMPT: Final = exponential_buckets(0.001, 2, 15)
_POINT: Final = exponential_buckets(0.0001, 2, 12)
_PLUGIN: Final = exponential_buckets(0.00001, 1.5, 20)
_HINT: Final = exponential_buckets(0.00001, 2, 12)


@dataclass(frozen=True, slots=True)
class MetricDef:
    """Definition of a metric: a row of the table.

    ``gate`` is a feature gate: if it is off, the metric is not registered. ``initial`` lists the label values of series
    that exist from the start. ``prefix`` precedes ``name`` in the exposition.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    level: Level = "ALPHA"
    gate: str = ""
    initial: tuple[tuple[str, ...], ...] = ()
    prefix: str = PREFIX

    @property
    def full_name(self) -> str:
        return self.prefix + self.name


#: Every metric of the scheduler itself, in the order of rules/metrics-and-client §2.
DEFINITIONS: Final[tuple[MetricDef, ...]] = (
    # Cycle
    MetricDef("schedule_attempts_total", "counter", "Number of attempts to schedule pods, by result and profile.", ("result", "profile"), level="STABLE"),
    MetricDef("scheduling_attempt_duration_seconds", "histogram", "Seconds of one scheduling attempt, algorithm and binding together.", ("result", "profile"), _ATTEMPT, "STABLE"),
    MetricDef("scheduling_algorithm_duration_seconds", "histogram", "Seconds spent looking for a node.", (), _ATTEMPT),
    MetricDef("framework_extension_point_duration_seconds", "histogram", "Seconds all plugins of an extension point took.", ("extension_point", "status", "profile"), _POINT, "STABLE"),
    MetricDef("plugin_execution_duration_seconds", "histogram", "Seconds one plugin took at an extension point (sampled).", ("plugin", "extension_point", "status"), _PLUGIN),
    MetricDef("plugin_evaluation_total", "counter", "Number of times a plugin was asked, by extension point and profile.", ("plugin", "extension_point", "profile"), level="BETA"),
    MetricDef("permit_wait_duration_seconds", "histogram", "Seconds pods waited on Permit.", ("result",), _ATTEMPT, "BETA"),
    MetricDef("goroutines", "gauge", "Number of tasks running, by the work they do.", ("operation",), level="BETA"),
    MetricDef("cache_size", "gauge", "Number of nodes, pods and assumed pods in the scheduler cache.", ("type",)),
    MetricDef("preemption_attempts_total", "counter", "Number of preemption attempts so far.", level="STABLE"),
    MetricDef("preemption_victims", "histogram", "Number of victims of one preemption.", (), exponential_buckets(1, 2, 7), "STABLE"),
    MetricDef("pod_scheduling_sli_duration_seconds", "histogram", "Seconds from the first attempt to the binding of a pod, gated time excluded.", ("attempts",), exponential_buckets(0.01, 2, 20), "BETA"),
    MetricDef("pod_scheduling_attempts", "histogram", "Number of attempts it took to schedule a pod.", (), exponential_buckets(1, 2, 5), "STABLE"),
    MetricDef("pod_scheduled_after_flush_total", "counter", "Number of pods scheduled after the timeout took them out of the unschedulable pods."),
    # Queue
    MetricDef("pending_pods", "gauge", "Number of pending pods, by where they wait.", ("queue",), level="STABLE", initial=(("active",), ("backoff",), ("unschedulable",), ("gated",))),
    MetricDef("queue_incoming_pods_total", "counter", "Number of pods that entered a scheduling queue, by event and queue.", ("queue", "event"), level="STABLE"),
    MetricDef("unschedulable_pods", "gauge", "Number of unschedulable pods, by the plugin that rejected them and profile.", ("plugin", "profile"), level="BETA"),
    MetricDef("inflight_events", "gauge", "Number of events kept for the pods in flight.", ("event",)),
    MetricDef("queueing_hint_execution_duration_seconds", "histogram", "Seconds one queueing hint took (sampled).", ("plugin", "event", "hint"), _PLUGIN),
    MetricDef("event_handling_duration_seconds", "histogram", "Seconds the handling of one event took.", ("event",), _POINT),
    # Registered only with a gate
    MetricDef("batch_attempts_total", "counter", "Number of attempts to use batching.", ("profile", "result"), gate="OpportunisticBatching"),
    MetricDef("batch_cache_flushed_total", "counter", "Number of times the batch was thrown away, by reason.", ("profile", "reason"), gate="OpportunisticBatching"),
    MetricDef("get_node_hint_duration_seconds", "histogram", "Seconds it took to get a node hint.", ("hinted", "profile"), _HINT, gate="OpportunisticBatching"),
    MetricDef("store_schedule_results_duration_seconds", "histogram", "Seconds it took to store results for batching.", ("profile",), _HINT, gate="OpportunisticBatching"),
    MetricDef("preemption_goroutines_duration_seconds", "histogram", "Seconds one asynchronous preemption took.", ("result",), exponential_buckets(0.01, 2, 20), gate="SchedulerAsyncPreemption"),
    MetricDef("preemption_goroutines_execution_total", "counter", "Number of asynchronous preemptions.", ("result",), gate="SchedulerAsyncPreemption"),
    MetricDef("async_api_call_execution_total", "counter", "Number of asynchronous API calls carried out.", ("call_type", "result"), gate="SchedulerAsyncAPICalls"),
    MetricDef("async_api_call_execution_duration_seconds", "histogram", "Seconds one asynchronous API call took.", ("call_type", "result"), _ATTEMPT, gate="SchedulerAsyncAPICalls"),
    MetricDef("pending_async_api_calls", "gauge", "Number of asynchronous API calls waiting.", ("call_type",), gate="SchedulerAsyncAPICalls"),
    MetricDef("resourceclaim_creates_total", "counter", "Number of resource claims created for extended resources.", ("status",), gate="DRAExtendedResource"),
    MetricDef("dra_bindingconditions_allocations_total", "counter", "Number of allocations with binding conditions.", ("profile", "driver", "status"), gate="DRADeviceBindingConditions"),
    MetricDef("dra_bindingconditions_wait_duration_seconds", "histogram", "Seconds pods waited for binding conditions.", ("profile", "driver", "status"), exponential_buckets(0.1, 2, 14), gate="DRADeviceBindingConditions"),
    MetricDef("podgroup_schedule_attempts_total", "counter", "Number of attempts to schedule pod groups, by result and profile.", ("result", "profile"), gate="GenericWorkload"),
    MetricDef("podgroup_scheduling_attempt_duration_seconds", "histogram", "Seconds of one attempt to schedule a pod group.", ("result", "profile"), _ATTEMPT, gate="GenericWorkload"),
    MetricDef("podgroup_scheduling_algorithm_duration_seconds", "histogram", "Seconds spent looking for the nodes of a pod group.", (), _ATTEMPT, gate="GenericWorkload"),
    MetricDef("volume_binder_cache_requests_total", "counter", "Number of requests to the volume binder's cache (never counted).", ("operation",)),
    MetricDef("volume_scheduling_stage_error_total", "counter", "Number of errors of volume scheduling, by stage.", ("operation",)),
)  # fmt: skip

#: Gates of the table that are off by default.
_GATES_OFF: Final = frozenset(("SchedulerAsyncAPICalls", "GenericWorkload"))


class CounterValue:
    """Series of a counter; it only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        self.value += amount


class GaugeValue:
    """Series of a gauge; it rises and falls."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def dec(self, amount: float = 1) -> None:
        self.value -= amount

    def set(self, value: float) -> None:
        self.value = value


@dataclass(frozen=True, slots=True)
class HistogramSample:
    """Sample of a histogram: ``buckets`` are (upper bound, observations at or below it), without ``+Inf``."""

    buckets: tuple[tuple[float, int], ...]
    sum: float
    count: int


class Sampling:
    """Sampling of attempts: one in ten, by turns, records how long plugins take."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls = 0

    def take(self) -> bool:
        """Return True if the next attempt records."""
        self._calls += 1
        return self._calls % _SAMPLE_EVERY == 0


class HistogramValue:
    """Series of a histogram; a value equal to a bound belongs to that bound's bucket."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_many(self, value: float, times: int) -> None:
        """Observe a value ``times`` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def sample(self) -> HistogramSample:
        cumulative = 0
        buckets = []
        for bound, count in zip(self.bounds, self.counts, strict=False):
            cumulative += count
            buckets.append((bound, cumulative))
        return HistogramSample(tuple(buckets), self.sum, cumulative + self.counts[-1])


class Counter:
    """Series of a counter, by label values."""

    __slots__ = ("children", "definition")

    def __init__(self, definition: MetricDef) -> None:
        self.definition = definition
        self.children: dict[tuple[str, ...], CounterValue] = {}

    def labels(self, *values: str) -> CounterValue:
        """Return the series with these label values, in the order of the definition; the first call makes it."""
        child = self.children.get(values)
        return child if child is not None else _new_child(self.definition, self.children, values, CounterValue())

    def inc(self, *values: str) -> None:
        self.labels(*values).value += 1


class Gauge:
    """Series of a gauge, by label values."""

    __slots__ = ("children", "definition")

    def __init__(self, definition: MetricDef) -> None:
        self.definition = definition
        self.children: dict[tuple[str, ...], GaugeValue] = {}

    def labels(self, *values: str) -> GaugeValue:
        """Return the series with these label values, in the order of the definition; the first call makes it."""
        child = self.children.get(values)
        return child if child is not None else _new_child(self.definition, self.children, values, GaugeValue())


class Histogram:
    """Series of a histogram, by label values."""

    __slots__ = ("children", "definition")

    def __init__(self, definition: MetricDef) -> None:
        self.definition = definition
        self.children: dict[tuple[str, ...], HistogramValue] = {}

    def labels(self, *values: str) -> HistogramValue:
        """Return the series with these label values, in the order of the definition; the first call makes it."""
        child = self.children.get(values)
        if child is None:
            fresh = HistogramValue(self.definition.buckets)
            child = _new_child(self.definition, self.children, values, fresh)
        return child

    def observe(self, value: float, *values: str) -> None:
        """Observe a value in the series with these label values. Hot paths keep the series (see :meth:`labels`)."""
        child = self.children.get(values) or self.labels(*values)
        child.counts[bisect_left(child.bounds, value)] += 1
        child.sum += value


Family = Counter | Gauge | Histogram


Child = TypeVar("Child")


def _new_child(
    definition: MetricDef, children: dict[tuple[str, ...], Child], values: tuple[str, ...], child: Child
) -> Child:
    if len(values) != len(definition.labels):
        raise ValueError(f"{definition.full_name} has the labels {definition.labels}, got {values}")
    children[values] = child
    return child


class MetricFamily(NamedTuple):
    """Metric as :meth:`MetricSet.collect` yields it, with all that an exposition needs.

    ``help`` begins with the stability level in brackets. A sample is a tuple of label values, and a number or a
    :class:`HistogramSample`.
    """

    name: str
    type: Kind
    help: str
    label_names: tuple[str, ...]
    samples: list[tuple[tuple[str, ...], float | HistogramSample]]


class MetricSet:
    """Metrics of one table; each is an attribute with the name of its row.

    ``gates`` are feature gates by name. A metric whose gate is off can be written but is not collected.
    """

    def __init__(self, definitions: tuple[MetricDef, ...], gates: Mapping[str, bool] | None = None) -> None:
        given = gates or {}
        makers: dict[Kind, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
        self._registered: list[Family] = []
        self._before_collect: list[Callable[[], None]] = []
        for definition in definitions:
            family: Family = makers[definition.kind](definition)
            setattr(self, definition.name, family)
            gate = definition.gate
            if not gate or given.get(gate, gate not in _GATES_OFF):
                self._registered.append(family)
            if not definition.labels:
                family.labels()  # a metric without labels has its one series from the start
            for values in definition.initial:
                family.labels(*values)

    def before_collect(self, measure: Callable[[], None]) -> None:
        """Call ``measure`` before each collection: it sets gauges just when they are read, instead of on a timer."""
        self._before_collect.append(measure)

    def measure_last(self, measure: Callable[[], None]) -> None:
        """Call ``measure`` now and never again: what it measures has ended, and should not be kept in memory."""
        measure()
        self._before_collect.remove(measure)

    def collect(self) -> Iterator[MetricFamily]:
        """Yield every registered metric that has series, in the order of the table."""
        for measure in self._before_collect:
            measure()
        for family in self._registered:
            definition = family.definition
            samples: list[tuple[tuple[str, ...], float | HistogramSample]]
            if isinstance(family, Histogram):
                samples = [(values, histogram.sample()) for values, histogram in family.children.items()]
            else:
                samples = [(values, number.value) for values, number in family.children.items()]
            if samples:
                yield MetricFamily(
                    definition.full_name,
                    definition.kind,
                    f"[{definition.level}] {definition.help}",
                    definition.labels,
                    samples,
                )

    def reset(self) -> None:
        """Set counters and histograms back to zero. Gauges stay, because they show the current state.

        Series are kept, because hot paths keep references to them.
        """
        for family in self._registered:
            if isinstance(family, Counter):
                for number in family.children.values():
                    number.value = 0
            elif isinstance(family, Histogram):
                for histogram in family.children.values():
                    histogram.counts = [0] * len(histogram.counts)
                    histogram.sum = 0

    @property
    def registered(self) -> tuple[MetricDef, ...]:
        """Rows whose gates are on, in the order of the table."""
        return tuple(family.definition for family in self._registered)


class SchedulerMetrics(MetricSet):
    """Metrics of one scheduler: the rows of :data:`DEFINITIONS`."""

    schedule_attempts_total: Counter
    scheduling_attempt_duration_seconds: Histogram
    scheduling_algorithm_duration_seconds: Histogram
    framework_extension_point_duration_seconds: Histogram
    plugin_execution_duration_seconds: Histogram
    plugin_evaluation_total: Counter
    permit_wait_duration_seconds: Histogram
    goroutines: Gauge
    cache_size: Gauge
    preemption_attempts_total: Counter
    preemption_victims: Histogram
    pod_scheduling_sli_duration_seconds: Histogram
    pod_scheduling_attempts: Histogram
    pod_scheduled_after_flush_total: Counter
    pending_pods: Gauge
    queue_incoming_pods_total: Counter
    unschedulable_pods: Gauge
    inflight_events: Gauge
    queueing_hint_execution_duration_seconds: Histogram
    event_handling_duration_seconds: Histogram
    batch_attempts_total: Counter
    batch_cache_flushed_total: Counter
    get_node_hint_duration_seconds: Histogram
    store_schedule_results_duration_seconds: Histogram
    preemption_goroutines_duration_seconds: Histogram
    preemption_goroutines_execution_total: Counter
    async_api_call_execution_total: Counter
    async_api_call_execution_duration_seconds: Histogram
    pending_async_api_calls: Gauge
    resourceclaim_creates_total: Counter
    dra_bindingconditions_allocations_total: Counter
    dra_bindingconditions_wait_duration_seconds: Histogram
    podgroup_schedule_attempts_total: Counter
    podgroup_scheduling_attempt_duration_seconds: Histogram
    podgroup_scheduling_algorithm_duration_seconds: Histogram
    volume_binder_cache_requests_total: Counter
    volume_scheduling_stage_error_total: Counter

    def __init__(self, gates: Mapping[str, bool] | None = None) -> None:
        super().__init__(DEFINITIONS, gates)
