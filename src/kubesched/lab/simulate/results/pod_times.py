"""Times of each pod of a run: created, queued, bound, started and finished; and figures of the whole run from them.

The book follows every change of a pod in the store, so it is complete whatever made the change: manifests, controllers,
preemption. Caller: :mod:`..run.simulation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from kubesched.api.groups import group_key
from kubesched.api.kinds import PODS
from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY, Resources, pod_requests
from kubesched.api.requests import PODS as POD_COUNT
from kubesched.api.types import Pod
from kubesched.cluster.schema import Stored
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.nodes.podinfo import PodInfo

from .result import Distribution, PodTimes, RunTimes
from .turnover import Turnover

__all__ = ["FINISHED", "SERVING", "PodBook", "PodLife", "amounts", "distribution", "run_times", "useful_parts"]

#: Workloads whose pods serve while they run, and are replaced when they are gone.
SERVING: Final = frozenset(("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"))
#: Phases of a pod that has ended.
FINISHED: Final = ("Succeeded", "Failed")


def amounts(requests: Resources) -> dict[str, int]:
    """Return requests by resource: cpu in millicores, memory and storage in bytes. Zeros are left out."""
    found = {CPU: requests.milli_cpu, MEMORY: requests.memory, EPHEMERAL_STORAGE: requests.ephemeral_storage}
    found.update(requests.scalars)
    return {name: amount for name, amount in found.items() if amount}


@dataclass(slots=True)
class PodLife:
    """Times of one pod so far."""

    pod: Pod
    created: float
    workload: str
    requests: dict[str, int]
    queued: float | None = None
    bound: float | None = None
    started: float | None = None
    finished: float | None = None
    removed: float | None = None
    attempts: int = 0
    preempted: bool = False

    def times(self, node: str, group: str) -> PodTimes:
        """Return the record of the pod, with its last node and ``namespace/name`` of its group."""
        pod = self.pod
        return PodTimes(
            namespace=pod.namespace,
            name=pod.name,
            workload=self.workload,
            group=group.partition("/")[2],
            node=node,
            phase=pod.status.phase or "Pending",
            created=self.created,
            queued=self.queued,
            bound=self.bound,
            started=self.started,
            finished=self.finished,
            removed=self.removed,
            attempts=self.attempts,
            preempted=self.preempted,
            requests=self.requests,
            priority=pod.spec.priority or 0,
        )


@dataclass(slots=True)
class _Entry(PodLife):
    """Life of a pod of a run. ``record`` is its entry in the scheduling queue, until it is bound."""

    record: QueuedPodInfo | None = None


class PodBook:
    """Book of every pod of a run. Times are virtual seconds since the start, which ``now`` returns.

    ``workload_of`` names the workload of a pod. ``epoch`` is the clock's time at the start, for times of queue records.
    ``turnover`` is notified of pods that come and go.
    """

    def __init__(
        self, now: Callable[[], float], epoch: float, workload_of: Callable[[Pod], str], turnover: Turnover
    ) -> None:
        self._now = now
        self._epoch = epoch
        self._workload_of = workload_of
        self._turnover = turnover
        self._entries: dict[str, _Entry] = {}
        self._shared: dict[tuple[object, ...], dict[str, int]] = {}

    def changed(self, item: Stored | None, old: Stored | None) -> None:
        """Note a change in the store. The store calls this for every created, changed or removed object."""
        stored = item if item is not None else old
        if stored is None or stored.kind is not PODS:
            return
        entry = self._entries.get(stored.uid)
        if entry is None:
            if item is not None:
                self._created(item.typed)
            return
        if item is None:
            entry.removed = self._now()
            self._settle(entry)
            if entry.pod.metadata.deletion_timestamp is None:
                self._turnover.deleted(entry.workload, entry.created, entry.removed)
            return
        pod: Pod = item.typed
        before, entry.pod = entry.pod, pod
        if pod.metadata.deletion_timestamp is not None and before.metadata.deletion_timestamp is None:
            self._turnover.deleted(entry.workload, entry.created, self._now())
        if pod.spec.node_name and not before.spec.node_name:
            entry.bound = self._now()
            self._settle(entry)
        if pod.status.phase != before.status.phase:
            if pod.status.phase == "Running" and entry.started is None:
                entry.started = self._now()
            elif pod.status.phase in FINISHED:
                entry.finished = self._now()

    def _created(self, pod: Pod) -> None:
        workload, now = self._workload_of(pod), self._now()
        self._entries[pod.uid] = _Entry(pod, now, workload, self._requests(pod_requests(pod)))
        self._turnover.created(workload, now)

    def _requests(self, requests: Resources) -> dict[str, int]:
        """Return the requests as amounts. Equal requests share one dict."""
        return self._shared.setdefault(requests.as_tuple(), amounts(requests))

    def _settle(self, entry: _Entry) -> None:
        """Take over the times of a pod that leaves the queue."""
        record, entry.record = entry.record, None
        if record is not None:
            entry.attempts = record.attempts
            entry.queued = self._since_start(record.initial_attempt_timestamp)

    def _since_start(self, at: float | None) -> float | None:
        return None if at is None else max(0.0, round(at - self._epoch, 6))

    def attempted(self, record: QueuedPodInfo) -> None:
        """Note that a pod was popped for an attempt."""
        entry = self._entries.get(record.uid)
        if entry is not None:
            entry.record = record

    def preempted(self, victims: Iterable[PodInfo]) -> None:
        """Note the pods that are about to be evicted."""
        for victim in victims:
            entry = self._entries.get(victim.uid)
            if entry is not None:
                entry.preempted = True

    def bound_at(self, uid: str) -> float | None:
        """Return when a pod was bound; None when it was not, or came with a node."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.bound

    def waits(self, uids: Iterable[str]) -> list[float]:
        """Return seconds from the active queue to the binding, of those of some pods that were bound."""
        entries = [self._entries[uid] for uid in sorted(uids) if uid in self._entries]
        return [one.bound - one.queued for one in entries if one.bound is not None and one.queued is not None]

    def evicted(self) -> dict[str, int]:
        """Return the number of pods that were deleted or are going, by workload; but for preempted and ended ones."""
        return Counter(
            entry.workload
            for entry in self._entries.values()
            if not entry.preempted
            and entry.finished is None
            and (entry.removed is not None or entry.pod.metadata.deletion_timestamp is not None)
        )

    def pods(
        self, queued: Callable[[Pod], QueuedPodInfo | None], seen: Callable[[Pod], Pod] = lambda pod: pod
    ) -> list[PodTimes]:
        """Return all pods by creation, namespace and name. ``queued`` finds a waiting pod in the scheduling queue.

        ``seen`` returns a pod as the scheduler sees it.
        """
        found = []
        for entry in self._entries.values():
            pod = entry.pod
            if not pod.spec.node_name and entry.removed is None:
                record = queued(pod) or entry.record
                if record is not None:
                    entry.attempts = record.attempts
                    entry.queued = self._since_start(record.initial_attempt_timestamp)
            found.append(entry.times(pod.spec.node_name, group_key(seen(pod))))
        return sorted(found, key=lambda one: (one.created, one.namespace, one.name))


def useful_parts(pods: Iterable[PodTimes], end: float) -> dict[str, float]:
    """Return, by resource, the part of all amounts times seconds on nodes that was not lost, 0 to 1.

    ``end`` is the end of the run. A pod's work is lost when it fails, or is preempted or removed before it succeeded;
    pods of :data:`SERVING` workloads work as long as they run.
    """
    used: dict[str, float] = {}
    useful: dict[str, float] = {}
    for pod in pods:
        begun = pod.bound if pod.bound is not None else pod.created
        if not pod.node:
            continue
        ends = [one for one in (pod.finished, pod.removed) if one is not None]
        span = max(0.0, min(ends, default=end) - begun)
        is_lost = pod.phase == "Failed" or (
            (pod.preempted or pod.removed is not None)
            and pod.phase != "Succeeded"
            and pod.workload.partition("/")[0] not in SERVING
        )
        for name, amount in (*pod.requests.items(), (POD_COUNT, 1)):
            used[name] = used.get(name, 0.0) + span * amount
            useful[name] = useful.get(name, 0.0) + (0.0 if is_lost else span * amount)
    return {name: useful[name] / amount for name, amount in used.items() if amount}


def distribution(seconds: Iterable[float]) -> Distribution | None:
    """Return mean, percentiles and maximum of some durations; None when there are none."""
    values = np.array(list(seconds), np.float64)
    if not values.size:
        return None
    p50, p90, p95, p99 = (round(float(one), 6) for one in np.percentile(values, (50, 90, 95, 99)))
    mean, most = round(float(values.mean()), 6), round(float(values.max()), 6)
    return Distribution(count=int(values.size), mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=most)


def run_times(pods: Iterable[PodTimes], end: float) -> RunTimes:
    """Return makespan, waits and turnaround of pods, without resources; ``end`` is the end of the run."""
    pods = list(pods)
    ended = [pod for pod in pods if pod.finished is not None]
    bound = [pod.bound - pod.queued for pod in pods if pod.bound is not None and pod.queued is not None]
    waiting = [
        end - pod.queued
        for pod in pods
        if not pod.node and pod.removed is None and pod.phase == "Pending" and pod.queued is not None
    ]
    first, last = (
        min((pod.created for pod in pods), default=0.0),
        max((pod.finished or 0.0 for pod in ended), default=0.0),
    )
    return RunTimes(
        makespan=round(last - first, 6) if ended else None,
        wait=distribution(bound),
        turnaround=distribution(pod.finished - pod.created for pod in ended if pod.finished is not None),
        waiting=distribution(waiting),
    )
