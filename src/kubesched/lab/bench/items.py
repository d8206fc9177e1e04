"""Result items of a section, as upstream's benchmark reports them, and the file with them.

Source: rules/benchmark-format §7, §8.2. Deliberate differences: histograms cover the section, not the workload from its
beginning (rules/benchmark-format §12 quirk 4); memory is the memory of the process, because there is no Go heap.
Callers: :mod:`.measure`, ``kubesched bench --results``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from kubesched.base.large_json import large_json
from kubesched.scheduler.framework.metrics import Histogram, HistogramValue, SchedulerMetrics

__all__ = [
    "DataItem",
    "HistogramStart",
    "histogram_quantile",
    "items_file",
    "memory_items",
    "percentile",
    "throughput_item",
]

#: Histograms of a section, with the labels that distinguish series. Other labels are merged.
_HISTOGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "framework_extension_point_duration_seconds": ("extension_point",),
    "scheduling_attempt_duration_seconds": ("result",),
    "plugin_execution_duration_seconds": ("plugin", "extension_point"),
    "queueing_hint_execution_duration_seconds": ("plugin", "event"),
    "event_handling_duration_seconds": ("event",),
}
_PERCENTILES: Final = (50, 90, 95, 99)
_NOT_APPLICABLE: Final = "not applicable"


class DataItem(msgspec.Struct, frozen=True, kw_only=True):
    """Set of figures with labels. ``data`` is None when nothing was measured."""

    data: dict[str, float] | None
    unit: str
    labels: dict[str, str]


def percentile(ordered: Sequence[float], share: int) -> float:
    """Return the nearest-rank percentile of ascending samples; 0 without samples."""
    if not ordered:
        return 0.0
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def throughput_item(name: str, start: float, bound: Iterable[float]) -> DataItem:
    """Return pods per second, sampled every second from ``start``. ``bound`` are the times of bindings in seconds.

    The time up to the first tick with a binding is warm-up, and the time after the last tick is not counted. So a
    section of less than about two seconds has no figure.
    """
    times = sorted(bound)
    rates: list[float] = []
    base_count, base_tick, skipped, seen = 0, 0, 0, 0
    for tick in range(1, int(times[-1] - start) + 1 if times else 1):
        while seen < len(times) and times[seen] <= start + tick:
            seen += 1
        if not base_count:
            base_count, base_tick = seen, tick
        elif seen == base_count:
            skipped += 1
        else:
            rates += [(seen - base_count) / (tick - base_tick)] * (skipped + 1)
            base_count, base_tick, skipped = seen, tick, 0
    if not rates:
        return DataItem(data=None, unit="", labels={"Name": name})
    ordered = sorted(rates)
    data = {f"Perc{share}": percentile(ordered, share) for share in _PERCENTILES}
    data["Average"] = sum(rates) / len(rates)
    return DataItem(data=data, unit="pods/s", labels={"Metric": "SchedulingThroughput", "Name": name})


def histogram_quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Return the value below which ``share`` (0 to 1) of the observations lie, linear inside a bucket.

    ``counts`` are per bucket, one more than ``bounds``. In the last bucket the value is the largest bound.
    """
    rank, below, lower = share * sum(counts), 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if below + count >= rank:
            return lower + (bound - lower) * ((rank - below) / count if count else 1.0)
        below, lower = below + count, bound
    return bounds[-1]


class HistogramStart:
    """State of the scheduler's histograms at the start of a section."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._families: dict[str, Histogram] = {name: getattr(metrics, name) for name in _HISTOGRAMS}
        self._before = {
            (name, values): (list(series.counts), series.sum)
            for name, family in self._families.items()
            for values, series in family.children.items()
        }

    def items(self, name: str) -> list[DataItem]:
        """Return the observations since the start, in milliseconds. Series without observations are left out."""
        result = []
        for metric, family in self._families.items():
            wanted = _HISTOGRAMS[metric]
            at = [family.definition.labels.index(label) for label in wanted]
            merged: dict[tuple[str, ...], HistogramValue] = {}
            for values, series in family.children.items():
                key = tuple(values[index] for index in at)
                counts, total = self._before.get((metric, values), ([0] * len(series.counts), 0.0))
                sums = merged.setdefault(key, HistogramValue(series.bounds))
                sums.counts = [
                    old + now - was for old, now, was in zip(sums.counts, series.counts, counts, strict=True)
                ]
                sums.sum += series.sum - total
            for key, sums in merged.items():
                if not sums.count or not sums.sum:
                    continue
                data = {
                    f"Perc{share}": 1e3 * histogram_quantile(sums.bounds, sums.counts, share / 100)
                    for share in _PERCENTILES
                }
                data["Average"] = 1e3 * sums.sum / sums.count
                labels = {"Metric": family.definition.full_name, "Name": name, **dict(zip(wanted, key, strict=True))}
                result.append(DataItem(data=data, unit="ms", labels=labels))
        return result


def memory_items(name: str, seconds: float, samples: Sequence[float]) -> list[DataItem]:
    """Return the memory of the process, its growth, and the length of the section.

    Samples are in MiB, taken over ``seconds``.
    """
    ordered = sorted(samples)
    usage = {f"Perc{share}": percentile(ordered, share) for share in _PERCENTILES}
    usage |= {"Average": sum(samples) / len(samples), "Max": ordered[-1]}
    growth = sum(after - before for before, after in pairwise(samples)) / (seconds / 60)
    return [
        DataItem(data=usage, unit="MB", labels={"Metric": "heap_memory_usage", "Name": name}),
        DataItem(data={"GrowthRate": growth}, unit="MB/min", labels={"Metric": "memory_growth_rate", "Name": name}),
        DataItem(data={"Duration": seconds}, unit="s", labels={"Metric": "SchedulingDuration", "Name": name}),
    ]


def items_file(items: Iterable[DataItem]) -> bytes:
    """Return the result file of a topic. Every item has every label key of the file."""
    listed = list(items)
    keys = sorted({key for item in listed for key in item.labels})
    data: dict[str, Any] = {
        "version": "v1",
        "dataItems": [
            {
                "data": item.data and dict(sorted(item.data.items())),
                "unit": item.unit,
                "labels": {key: item.labels.get(key, _NOT_APPLICABLE) for key in keys},
            }
            for item in listed
        ]
        or None,
    }
    return bytes(large_json(data, indent=2)) + b"\n"
