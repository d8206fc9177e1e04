"""Text of metrics in Prometheus' format.

``prometheus_client`` counts nothing here. It only writes the text, and is imported with the first request for it.
Caller: :mod:`.exposition`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kubesched.base.extras import needing

from ..framework.metrics import HistogramSample, MetricFamily

with needing("the page of metrics", "server"):
    from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, Metric, generate_latest
    from prometheus_client.utils import floatToGoString

__all__ = ["write"]

_TOTAL: Final = "_total"


def write(families: Iterable[MetricFamily], *, with_process: bool) -> bytes:
    """Write these families; ``with_process`` adds the library's metrics of process and interpreter."""
    return generate_latest(_Collected(families, with_process))


class _Collected:
    """Collector for the library, over families."""

    def __init__(self, families: Iterable[MetricFamily], with_process: bool) -> None:
        self._families = families
        self._with_process = with_process

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            yield _metric(family)
        if self._with_process:
            for collector in (PROCESS_COLLECTOR, GC_COLLECTOR, PLATFORM_COLLECTOR):
                yield from collector.collect()


def _metric(family: MetricFamily) -> Metric:
    """Convert a family. The library appends ``_total`` to counters' names; counters without it become untyped."""
    name, kind = family.name, str(family.type)
    if kind == "counter":
        kind = kind if name.endswith(_TOTAL) else "unknown"
        metric = Metric(name.removesuffix(_TOTAL) if kind == "counter" else name, family.help, kind)
    else:
        metric = Metric(name, family.help, kind)
    for values, sample in family.samples:
        labels = dict(zip(family.label_names, values, strict=True))
        if isinstance(sample, HistogramSample):
            for bound, count in sample.buckets:
                metric.add_sample(f"{name}_bucket", {**labels, "le": _bound(bound)}, count)
            metric.add_sample(f"{name}_bucket", {**labels, "le": "+Inf"}, sample.count)
            metric.add_sample(f"{name}_sum", labels, sample.sum)
            metric.add_sample(f"{name}_count", labels, sample.count)
        else:
            metric.add_sample(name, labels, sample)
    return metric


def _bound(value: float) -> str:
    """Write a bucket's bound as Go does: ``1``, ``0.001``, ``1.048576e+06``."""
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # the library's helper has no types
    return text.removesuffix(".0")
