"""Scheduling queue of a live scheduler, its pods in groups by workload and reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from kubesched.api.types import Pod
from kubesched.base.turns import Steps
from kubesched.explain.objects import Objects
from kubesched.explain.workloads import Workloads
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.scheduler import Scheduler

from .schema import Place, QueueGroup, QueuePlace

__all__ = ["MOST_NAME", "MOST_TEXT", "finding_places", "scheduled_message", "workload_of"]

#: Most characters of a text that anyone may have written, such as a message; it is cut.
MOST_TEXT: Final = 2000
#: Most groups of a place that are listed, and most that are told apart.
_MOST_LISTED: Final = 100
_MOST_GROUPS: Final = 2000
#: Most characters of a workload's name: an annotation may say it.
MOST_NAME: Final = 320
#: Most plugins that a group names.
_MOST_PLUGINS: Final = 16
#: Pods that are looked at in one step.
_BATCH: Final = 500


@dataclass(slots=True)
class _Waiting:
    """Pod that waits: why, since when and until when, by the scheduler's clock."""

    pod: Pod
    why: str
    since: float
    until: float | None = None
    by: frozenset[str] = frozenset()
    attempts: int = 0


@dataclass(slots=True)
class _Group:
    longest: _Waiting
    count: int = 0
    by: set[str] = field(default_factory=set)
    until: float | None = None


def finding_places(scheduler: Scheduler, objects: Objects) -> Steps[list[QueuePlace]]:
    """Return the pods without a node by place, in groups; the largest group first.

    Between two steps pods may move, so a pod may be counted twice or not at all while the scheduler has work.
    """
    now, workloads = scheduler.clock.now(), Workloads(objects)
    found = []
    for name, records in scheduler.queue.views.records():
        place = cast("Place", name)
        gated = [record for record in records if record.gated] if place == "Unschedulable" else []
        waiting = [record for record in records if not record.gated] if gated else records
        pods = _queued(scheduler, place, waiting)
        found.append((yield from _grouped(place, pods, len(waiting), workloads, now)))
        if place == "Unschedulable":
            found.append((yield from _grouped("Gated", _gated(gated), len(gated), workloads, now)))
    permit = list(scheduler.waiting_pods)
    held = {one.pod.uid for one in permit}
    waits = [
        _Waiting(one.pod.pod, f"waits for {', '.join(one.pending_plugins)}", now, by=frozenset(one.pending_plugins))
        for one in permit
    ]
    found.append((yield from _grouped("Permit", waits, len(waits), workloads, now)))
    binding = [
        info.pod for uid in scheduler.bindings.uids() - held if (info := scheduler.cache.get_pod(uid)) is not None
    ]
    bound = [_Waiting(pod, f"is being bound to {pod.spec.node_name}", now) for pod in binding]
    found.append((yield from _grouped("Binding", bound, len(bound), workloads, now)))
    return found


def _queued(scheduler: Scheduler, place: Place, records: Sequence[QueuedPodInfo]) -> Iterable[_Waiting]:
    views = scheduler.queue.views
    for record in records:
        pod, first = record.pod_info.pod, record.initial_attempt_timestamp
        until = record.backoff_expiration if place == "Backoff" else None
        yield _Waiting(
            pod,
            scheduled_message(pod),
            first if first is not None else record.timestamp,
            views.retry_at(record) if place == "Unschedulable" else until,
            frozenset(record.unschedulable_plugins | record.pending_plugins),
            record.attempts,
        )


def _gated(records: Sequence[QueuedPodInfo]) -> Iterable[_Waiting]:
    for record in records:
        pod = record.pod_info.pod
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        why = f"gates: {gates}" if gates else f"held by {record.gating_plugin}"
        yield _Waiting(pod, why, record.timestamp, by=frozenset({record.gating_plugin}))


def workload_of(workloads: Workloads, pod: Pod) -> str:
    """Return the workload of a pod, cut if it is too long for a name."""
    return workloads.of(pod)[:MOST_NAME]


def scheduled_message(pod: Pod) -> str:
    """Return the last message about the scheduling of a pod, cut if it is very long; empty if there was none."""
    return next((one.message[:MOST_TEXT] for one in pod.status.conditions if one.type == "PodScheduled"), "")


def _grouped(place: Place, pods: Iterable[_Waiting], count: int, workloads: Workloads, now: float) -> Steps[QueuePlace]:
    groups: dict[tuple[str, str], _Group] = {}
    longest: float | None = None
    for number, pod in enumerate(pods, 1):
        key = (workload_of(workloads, pod.pod), pod.why[:MOST_TEXT])
        group = groups.get(key)
        if group is None and len(groups) < _MOST_GROUPS:
            group = groups[key] = _Group(pod)
        if group is not None:
            group.count += 1
            if pod.since < group.longest.since:
                group.longest = pod
            if len(group.by) < _MOST_PLUGINS:
                group.by |= pod.by
            if pod.until is not None:
                group.until = pod.until if group.until is None else min(group.until, pod.until)
        longest = pod.since if longest is None else min(longest, pod.since)
        if number % _BATCH == 0:
            yield
    ordered = sorted(groups.items(), key=lambda item: (-item[1].count, item[1].longest.since, item[0]))[:_MOST_LISTED]
    listed = [
        QueueGroup(
            workload=workload,
            count=group.count,
            pod=group.longest.pod.key,
            why=why,
            rejected_by=sorted(group.by)[:_MOST_PLUGINS],
            attempts=group.longest.attempts,
            waited=max(0.0, now - group.longest.since),
            until=group.until,
        )
        for (workload, why), group in ordered
    ]
    return QueuePlace(
        place=place,
        count=count,
        groups=listed,
        left_out=count - sum(group.count for group in listed),
        longest=None if longest is None else max(0.0, now - longest),
    )
