"""Pods of a recording that wait at a moment, in groups by place, workload and reason.

A recording does not say when the backoff of a pod ends: a pod that was tried in vain is shown as unschedulable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..schema import Place, QueueCounts, QueueGroup, QueuePlace, Queues, Rates
from .timeline import Rows, Timeline, Times

__all__ = ["PLACES", "Told", "Waiting", "queue_counts", "queues_at"]

#: Places of the queue that a recording tells apart, by code.
PLACES: Final[tuple[Place, ...]] = ("Active", "Unschedulable", "Gated")
_ACTIVE, _UNSCHEDULABLE, _GATED = range(3)
#: Most groups that are listed for one place.
_MOST_GROUPS: Final = 200
#: Seconds over which rates are counted.
_RATE_SECONDS: Final = 10.0
#: Most characters of a reason.
_MOST_TEXT: Final = 2_000


def _none() -> Rows:
    return np.zeros(0, np.int32)


@dataclass(slots=True)
class Told:
    """Reasons why pods wait, by the time at which they were told, ascending.

    Attributes:
        times: by entry.
        pods: index of the pod, by entry.
        reasons: position in ``texts``, by entry.
        attempts: number of the pod's attempts so far, by entry.
        texts: reasons in words, with the plugins that rejected.
        every: every attempt is an entry. Otherwise only the last reason of some pods is known.
    """

    times: Times = field(default_factory=lambda: np.zeros(0, np.float64))
    pods: Rows = field(default_factory=_none)
    reasons: Rows = field(default_factory=_none)
    attempts: Rows = field(default_factory=_none)
    texts: Sequence[tuple[str, tuple[str, ...]]] = ()
    every: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pods that wait at a moment: their indexes, and by pod the code of the place, the reason (-1 for none), the number of
    attempts, and the time since which it waits."""

    pods: NDArray[np.intp]
    places: Rows
    reasons: Rows
    attempts: Rows
    since: Times

    @classmethod
    def of(cls, line: Timeline, told: Told, at: float) -> Waiting:
        pods = np.flatnonzero(line.waiting(at))
        queued = line.queued[pods]
        since = np.where(queued <= at, queued, line.created[pods])
        last = int(np.searchsorted(told.times, at, "right"))
        count = len(line.pods)
        reasons, attempts = np.full(count, -1, np.int32), np.zeros(count, np.int32)
        reasons[told.pods[:last]] = told.reasons[:last]  # of equal pods, the last entry stays
        attempts[told.pods[:last]] = told.attempts[:last]
        reasons, attempts = reasons[pods], attempts[pods]
        is_new = attempts == 0 if told.every else since >= at
        places = np.where(queued > at, _GATED, np.where(is_new, _ACTIVE, _UNSCHEDULABLE)).astype(np.int32)
        return cls(pods, places, reasons, attempts, since)


def queue_counts(waiting: Waiting) -> QueueCounts:
    """Return the numbers of pods by place."""
    counts = np.bincount(waiting.places, minlength=len(PLACES)).tolist()
    return QueueCounts(active=counts[_ACTIVE], unschedulable=counts[_UNSCHEDULABLE], gated=counts[_GATED])


def queues_at(line: Timeline, told: Told, workloads: Rows, at: float) -> Queues:
    """Return the queue at a moment. ``workloads`` numbers the namespace and workload of each pod."""
    waiting = Waiting.of(line, told, at)
    failed = told.times[(told.times > at - _RATE_SECONDS) & (told.times <= at)] if told.every else ()
    return Queues(
        at=at,
        places=[_place(line, told, workloads, waiting, code, at) for code in range(len(PLACES))],
        rates=Rates(
            arriving=line.created_between(at - _RATE_SECONDS, at) / _RATE_SECONDS,
            bound=len(line.bound_between(at - _RATE_SECONDS, at)) / _RATE_SECONDS,
            failed=len(failed) / _RATE_SECONDS,
        ),
    )


def _place(line: Timeline, told: Told, workloads: Rows, waiting: Waiting, code: int, at: float) -> QueuePlace:
    here = np.flatnonzero(waiting.places == code)
    if not len(here):
        return QueuePlace(place=PLACES[code], count=0, groups=[])
    keys = workloads[waiting.pods[here]].astype(np.int64) << 32 | (waiting.reasons[here].astype(np.int64) + 1)
    by_wait = here[np.argsort(waiting.since[here], kind="stable")]
    order = np.argsort(waiting.since[here], kind="stable")
    _, first, counts = np.unique(keys[order], return_index=True, return_counts=True)
    largest = np.argsort(-counts, kind="stable")[:_MOST_GROUPS]
    groups = [_group(line, told, waiting, int(by_wait[first[one]]), int(counts[one]), at) for one in largest]
    return QueuePlace(
        place=PLACES[code],
        count=len(here),
        groups=groups,
        left_out=len(here) - sum(one.count for one in groups),
        longest=at - float(waiting.since[by_wait[0]]),
    )


def _group(line: Timeline, told: Told, waiting: Waiting, position: int, count: int, at: float) -> QueueGroup:
    pod = line.pods[int(waiting.pods[position])]
    reason = int(waiting.reasons[position])
    text, plugins = told.texts[reason] if reason >= 0 else ("", ())
    return QueueGroup(
        workload=pod.workload,
        count=count,
        pod=f"{pod.namespace}/{pod.name}",
        why=text[:_MOST_TEXT],
        rejected_by=list(plugins),
        attempts=int(waiting.attempts[position]),
        waited=at - float(waiting.since[position]),
    )
