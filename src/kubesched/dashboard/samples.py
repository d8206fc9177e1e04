"""Samples of a live cluster: figures once a second, kept for charts.

One hour is kept in full, a day before that by the minute. A sample costs a few sums over the columns of the node table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from kubesched.base.turns import Steps
from kubesched.explain.fragmentation import Shapes
from kubesched.scheduler.framework.events import UNSCHEDULED_POD_ADD
from kubesched.scheduler.scheduler import Scheduler

from .observed import Observed
from .schema import QueueCounts, Rates, Sample

__all__ = ["Samples", "percentile", "thinned"]

#: Samples that are kept in full, and minutes that are kept before them.
_SECONDS: Final = 3600
_MINUTES: Final = 1440
_MINUTE: Final = 60
#: Most samples of a series for charts.
MOST_SAMPLES: Final = 1200
#: Most resources that samples tell about: the first ones of the table.
_MOST_RESOURCES: Final = 12
#: Seconds that rates are about.
_RATE_SECONDS: Final = 10.0
#: Samples that share one computation of fragmentation, which costs a millisecond with 5,000 nodes.
_FRAGMENTATION_SAMPLES: Final = 10
_PLACES: Final = ("active", "backoff", "unschedulable", "gated")


class Samples:
    """Samples of one run, in the order of time."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._seconds: deque[Sample] = deque()
        self._minutes: deque[Sample] = deque(maxlen=_MINUTES)
        self._old: list[Sample] = []
        #: Totals of the last seconds: time, arrivals, bindings and failures.
        self._totals: deque[tuple[float, float, int, int]] = deque(maxlen=64)
        self._bound = self._failed = 0
        self._fragmentation: dict[str, float] = {}
        self._until_fragmentation = 0

    def take(self, scheduler: Scheduler) -> Sample:
        """Make a sample of now, and keep it."""
        observed, now = self._observed, scheduler.clock.now()
        waits = observed.take_waits()
        sample = Sample(
            at=now,
            queue=queue_counts(scheduler),
            on_nodes=len(scheduler.cache.pods),
            bound=observed.bound - self._bound,
            failed=observed.failed - self._failed,
            wait_p50=percentile(waits, 0.5),
            wait_p99=percentile(waits, 0.99),
            utilisation=_utilisation(scheduler),
            fragmentation=self._fragments(scheduler),
        )
        self._bound, self._failed = observed.bound, observed.failed
        self._totals.append((now, _arrivals(scheduler), observed.bound, observed.failed))
        self._seconds.append(sample)
        if len(self._seconds) > _SECONDS:
            self._old.append(self._seconds.popleft())
            if len(self._old) >= _MINUTE:
                self._minutes.append(merged(self._old))
                self._old.clear()
        return sample

    def _fragments(self, scheduler: Scheduler) -> dict[str, float]:
        """Return the shares of free amounts that pods like the last ones cannot use; they are computed now and then."""
        if self._until_fragmentation <= 0:
            self._until_fragmentation = _FRAGMENTATION_SAMPLES
            found = self._observed.requests()
            shapes = Shapes((_amounts(shape) for shape in found), found.values())
            shares = shapes.fragmentation(scheduler.cache.table) if found else {}
            asked = {name for request in shapes.requests for name in request}
            self._fragmentation = {name: share for name, share in shares.items() if name in asked}
        self._until_fragmentation -= 1
        return self._fragmentation

    @property
    def last(self) -> Sample | None:
        """Newest sample; None before the first."""
        return self._seconds[-1] if self._seconds else None

    @property
    def start(self) -> float | None:
        """Time of the oldest sample."""
        return next((kept[0].at for kept in (self._minutes, self._old, self._seconds) if kept), None)

    def series(self) -> Steps[list[Sample]]:
        """Return all samples, thinned out evenly."""
        return thinned([*self._minutes, *self._old, *self._seconds], MOST_SAMPLES)

    def rates(self) -> Rates:
        """Return pods per second over the last seconds."""
        if len(self._totals) < 2:
            return Rates()
        last = self._totals[-1]
        since = last[0] - _RATE_SECONDS
        first = next((one for one in reversed(self._totals) if one[0] <= since), self._totals[0])
        seconds = last[0] - first[0]
        if seconds <= 0:
            return Rates()
        arriving, bound, failed = ((last[place] - first[place]) / seconds for place in (1, 2, 3))
        return Rates(arriving=round(max(0.0, arriving), 3), bound=round(bound, 3), failed=round(failed, 3))


def queue_counts(scheduler: Scheduler) -> QueueCounts:
    """Return the numbers of pods without a node, by place."""
    pending = scheduler.metrics.pending_pods
    counts = {place: int(pending.labels(place).value) for place in _PLACES}
    permit = len(scheduler.waiting_pods)
    binding = max(0, len(scheduler.bindings.uids()) - permit)
    return QueueCounts(**counts, permit=permit, binding=binding)


def _utilisation(scheduler: Scheduler) -> dict[str, float]:
    """Return the requested share of each resource that nodes have, over all nodes."""
    table = scheduler.cache.table
    used = min(len(table.resource_index), _MOST_RESOURCES)
    # Sums of floats: sums of large integers would overflow. Free rows have no amounts, but ghosts have requested ones.
    have = table.allocatable[:used].sum(axis=1, where=table.alive, dtype=np.float64).tolist()
    want = table.requested[:used].sum(axis=1, where=table.alive, dtype=np.float64).tolist()
    names = list(table.resource_index)[:used]
    return {name: round(asked / there, 4) for name, there, asked in zip(names, have, want, strict=True) if there > 0}


def _amounts(shape: tuple[int, int, int, tuple[tuple[str, int], ...]]) -> dict[str, int]:
    cpu, memory, ephemeral, scalars = shape
    amounts = {CPU: cpu, MEMORY: memory, EPHEMERAL_STORAGE: ephemeral, **dict(scalars[:_MOST_RESOURCES])}
    return {name: amount for name, amount in amounts.items() if amount}


def _arrivals(scheduler: Scheduler) -> float:
    """Return the number of pods that have come into the queue, ever."""
    children = scheduler.metrics.queue_incoming_pods_total.children.items()
    return sum(child.value for (_, event), child in children if event == UNSCHEDULED_POD_ADD.label)


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the number below which a share of sorted numbers lies; None without numbers."""
    if not ordered:
        return None
    return round(max(0.0, ordered[min(len(ordered) - 1, int(share * len(ordered)))]), 6)


def merged(samples: Sequence[Sample]) -> Sample:
    """Return one sample for several in a row: the last, with all attempts and the longest waits."""
    waits = [sample.wait_p50 for sample in samples if sample.wait_p50 is not None]
    longest = [sample.wait_p99 for sample in samples if sample.wait_p99 is not None]
    return replace(
        samples[-1],
        bound=sum(sample.bound for sample in samples),
        failed=sum(sample.failed for sample in samples),
        wait_p50=percentile(sorted(waits), 0.5),
        wait_p99=max(longest, default=None),
    )


def thinned(samples: Sequence[Sample], most: int) -> Steps[list[Sample]]:
    """Return at most ``most`` samples: neighbours merged, evenly."""
    if len(samples) <= most:
        return list(samples)
    found = []
    for place in range(most):
        found.append(merged(samples[place * len(samples) // most : (place + 1) * len(samples) // most]))
        if place % 100 == 99:
            yield
    return found
