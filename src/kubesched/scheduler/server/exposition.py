"""Exposition of metrics: the tables of metrics of this process as text, in Prometheus' format.

    values ──copied in the event loop──▶ families ──in a thread──▶ text, gzip if wanted

The text is written by :mod:`.exposition_text`. Caller: :mod:`.endpoints`. Source: rules/metrics-and-client §1.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..framework.metrics import HistogramSample, MetricFamily, MetricSet
from .process_metrics import ProcessMetrics

__all__ = ["CONTENT_TYPE", "Exposition", "compressed", "render"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
UNEXPECTED: Final = "unexpected"


class Exposition:
    """Content of ``/metrics``.

    ``process`` and ``sets`` are the tables. ``allowed_labels`` maps ``metric,label`` to the values it may have
    (``--allow-metric-labels``); other values become ``unexpected``, and their series are added up. ``disabled`` names
    metrics to leave out.
    """

    def __init__(
        self,
        process: ProcessMetrics,
        *sets: MetricSet,
        allowed_labels: Mapping[str, Iterable[str]] | None = None,
        disabled: Iterable[str] = (),
    ) -> None:
        self._process = process
        self._sets: Sequence[MetricSet] = (*sets, process)
        self._disabled = frozenset(disabled)
        self._allowed: dict[tuple[str, str], frozenset[str]] = {}
        for key, values in (allowed_labels or {}).items():
            metric, _, label = key.partition(",")
            self._allowed[metric, label] = frozenset(values)
        self._replaced: set[tuple[str, tuple[str, ...]]] = set()
        self._rows = {row.full_name: row for item in self._sets for row in item.registered}
        process.before_collect(self._count)

    @property
    def unknown(self) -> list[str]:
        """Names given as disabled or with allowed labels that no registered metric has, sorted."""
        labels = {(name, label) for name, row in self._rows.items() for label in row.labels}
        wrong = [name for name in self._disabled if name not in self._rows]
        return sorted(wrong + [",".join(key) for key in self._allowed if key not in labels])

    def _count(self) -> None:
        """Set the metrics about metrics. It runs before each scrape, so a reset does not touch them."""
        process = self._process
        levels = [row.level for name, row in self._rows.items() if name not in self._disabled]
        for level in ("ALPHA", "BETA", "STABLE"):
            process.registered_metrics_total.labels(level, "").value = levels.count(level)
        process.disabled_metrics_total.labels().value = len(self._disabled)
        unexpected = process.cardinality_enforcement_unexpected_categorizations_total.labels()
        unexpected.value = len(self._replaced)

    def families(self) -> list[MetricFamily]:
        """Copy all values, sorted by name. Call in the event loop."""
        found = [self._allow(family) for item in self._sets for family in item.collect()]
        return sorted((family for family in found if family.name not in self._disabled), key=lambda item: item.name)

    async def text(self) -> bytes:
        """Write the exposition. A thread writes the text, so that the event loop is not blocked."""
        families = self.families()
        return await asyncio.to_thread(lambda: render(families, with_process=True))

    def reset(self) -> None:
        """Set counters and histograms back to zero."""
        for item in self._sets:
            item.reset()

    def _allow(self, family: MetricFamily) -> MetricFamily:
        allowed = [self._allowed.get((family.name, label)) for label in family.label_names]
        if not any(values is not None for values in allowed):
            return family
        merged: dict[tuple[str, ...], float | HistogramSample] = {}
        for labels, sample in family.samples:
            kept = tuple(
                value if values is None or value in values else UNEXPECTED
                for value, values in zip(labels, allowed, strict=True)
            )
            if kept != labels:
                self._replaced.add((family.name, labels))
            merged[kept] = _added(merged[kept], sample) if kept in merged else sample
        return family._replace(samples=list(merged.items()))


def _added(first: float | HistogramSample, second: float | HistogramSample) -> float | HistogramSample:
    if isinstance(first, HistogramSample) and isinstance(second, HistogramSample):
        buckets = tuple(
            (bound, count + other) for (bound, count), (_, other) in zip(first.buckets, second.buckets, strict=True)
        )
        return HistogramSample(buckets, first.sum + second.sum, first.count + second.count)
    assert not isinstance(first, HistogramSample)
    assert not isinstance(second, HistogramSample)
    return first + second


def render(families: Iterable[MetricFamily], *, with_process: bool = False) -> bytes:
    """Write these families as text; ``with_process`` adds the library's metrics of process and interpreter."""
    from .exposition_text import write  # noqa: PLC0415 - a scheduler that nobody scrapes does without the library

    return write(families, with_process=with_process)


def compressed(text: bytes) -> bytes:
    """Compress the text for a client that accepts gzip."""
    return gzip.compress(text, compresslevel=1, mtime=0)
