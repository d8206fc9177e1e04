"""What may be asked of the scheduling queue without changing it.

Base of :class:`~kubesched.queue.scheduling_queue.SchedulingQueue`, which owns and moves what is shown here.
For the debugger, explanations, invariants and tests.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.api.types import Pod
from kubesched.framework.metrics import Gauge, GaugeValue
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.queued import QueuedPodInfo

from .backoff import BackoffQueue
from .heap import KeyedHeap
from .in_flight import InFlight
from .nominator import Nominator
from .unschedulable import UnschedulablePods

__all__ = ["QueueViews"]


class QueueViews:
    """The sub-queues, read only."""

    _active: KeyedHeap[QueuedPodInfo]
    _backoff: BackoffQueue
    _unschedulable: UnschedulablePods
    _in_flight: InFlight
    nominator: Nominator
    _active_gauge: GaugeValue
    _backoff_gauge: GaugeValue
    _rejected_by: Gauge

    def pending_pods(self) -> tuple[list[Pod], str]:
        """All queued pods (active, backoff, unschedulable) and a summary; pods in flight do not count."""
        summary = (
            f"activeQ:{len(self._active)}; backoffQ:{len(self._backoff)}; unschedulablePods:{len(self._unschedulable)}"
        )
        return self.pods_in_active() + self.pods_in_backoff() + self.unschedulable_pods(), summary

    def get_pod(self, name: str, namespace: str) -> QueuedPodInfo | None:
        """The queued pod of that name, None when it is not queued."""
        key = f"{namespace}/{name}" if namespace else name
        return self._backoff.get(key) or self._unschedulable.get(key) or self._active.get(key)

    def in_flight_pods(self) -> list[Pod]:
        """Pods being scheduled, in the order they were popped."""
        return _pods(self._in_flight.records())

    def pods_in_active(self) -> list[Pod]:
        return _pods(self._active.items())

    def pods_in_backoff(self) -> list[Pod]:
        """Rejected pods that back off, then those whose attempt failed by an error."""
        return _pods(self._backoff.items())

    def unschedulable_pods(self) -> list[Pod]:
        """Pods that wait for an event, gated ones too, in the order they came."""
        return _pods(self._unschedulable.records())

    def is_queued(self, pod: Pod) -> bool:
        """Whether a pod of that name waits in the active, backoff or unschedulable queue."""
        return self.get_pod(pod.name, pod.namespace) is not None

    def is_in_flight(self, uid: str) -> bool:
        return uid in self._in_flight

    def in_flight_trace(self) -> list[str]:
        """UIDs in flight and labels of the events kept for them, oldest first."""
        return self._in_flight.trace()

    def where(self, pod: Pod) -> str:
        """``Active``, ``Backoff``, ``Unschedulable``, ``Gated`` or ``InFlight``; empty when the pod is not here.

        An entry of the same name but another UID is not this pod.
        """
        key = pod.key
        for place, record in (
            ("Active", self._active.get(key)),
            ("Backoff", self._backoff.get(key)),
            ("Unschedulable", self._unschedulable.get(key)),
        ):
            if record is not None and record.uid == pod.uid:
                return "Gated" if record.gated else place
        return "InFlight" if pod.uid in self._in_flight else ""

    def check(self) -> list[str]:
        """Check the invariants of the specification (section 2) and that indexes and metrics agree.

        Looks at every pod; the answer lists what is wrong and is empty when all is well.
        """
        problems = self._active.check("activeQ") + self._backoff.check() + self._unschedulable.check()
        problems += self._in_flight.check() + self.nominator.check()
        rejected: dict[tuple[str, ...], int] = {}
        seen: dict[str, str] = {}
        for place, records in (
            ("Active", self._active.items()),
            ("Backoff", self._backoff.items()),
            ("Unschedulable", self._unschedulable.records()),
        ):
            for record in records:
                key = record.key
                if key in seen:
                    problems.append(f"{key} is in {seen[key]} and in {place}")
                seen[key] = place
                if record.gated and place != "Unschedulable":
                    problems.append(f"{key} is gated by {record.gating_plugin} but in {place}")
                profile = record.pod_info.pod.spec.scheduler_name
                for plugin in record.unschedulable_plugins | record.pending_plugins:
                    rejected[plugin, profile] = rejected.get((plugin, profile), 0) + 1
        counted = {labels: child.value for labels, child in self._rejected_by.children.items() if child.value}
        if counted != rejected:
            problems.append(f"unschedulable_pods: should be {rejected}, is {counted}")
        if (self._active_gauge.value, self._backoff_gauge.value) != (len(self._active), len(self._backoff)):
            problems.append("pending_pods: active or backoff is wrong")
        return problems

    def _queued_pod_info(self, key: str) -> PodInfo | None:
        record = self._active.get(key) or self._unschedulable.get(key) or self._backoff.get(key)
        return None if record is None else record.pod_info


def _pods(records: Iterable[QueuedPodInfo]) -> list[Pod]:
    return [record.pod_info.pod for record in records]
