"""Views of the scheduling queue: reading without changing.

They are the ``views`` of a :class:`~kubesched.scheduler.queue.scheduling_queue.SchedulingQueue`, for the debugger,
explanations, the checker and tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kubesched.api.types import Pod
from kubesched.base.turns import Steps, finish

from ..framework.metrics import Gauge
from ..framework.queued import QueuedPodInfo
from .in_flight import InFlight
from .nominator import Nominator
from .slices import Slices
from .sub_queues import SubQueues

__all__ = ["QueueViews"]


class QueueViews:
    """Views of the sub-queues and of the pods in flight, read-only.

    While a long operation is under way, lists of pods show its effect so far.
    """

    __slots__ = ("_in_flight", "_max_in_unschedulable", "_nominator", "_queues", "_rejected_by", "_slices")

    def __init__(
        self,
        queues: SubQueues,
        in_flight: InFlight,
        nominator: Nominator,
        rejected_by: Gauge,
        slices: Slices,
        max_in_unschedulable: float,
    ) -> None:
        """``rejected_by`` is the metric of pods by plugin that rejected them and profile, for :meth:`check`.

        ``max_in_unschedulable`` are seconds, as for the queue.
        """
        self._max_in_unschedulable = max_in_unschedulable
        self._queues = queues
        self._in_flight = in_flight
        self._nominator = nominator
        self._rejected_by = rejected_by
        self._slices = slices

    def pending_pods(self) -> tuple[list[Pod], str]:
        """Return all queued pods (active, backoff, unschedulable) and a summary; pods in flight do not count."""
        active, backoff, waiting = self.pods_in_active(), self.pods_in_backoff(), self.unschedulable_pods()
        summary = f"activeQ:{len(active)}; backoffQ:{len(backoff)}; unschedulablePods:{len(waiting)}"
        return active + backoff + waiting, summary

    def all_pods(self) -> list[Pod]:
        """Return all queued pods, in no order."""
        queues = self._queues
        return _pods(
            record for queue in (queues.active, queues.backoff, queues.unschedulable) for record in queue.items()
        )

    def get_pod(self, name: str, namespace: str) -> QueuedPodInfo | None:
        """Return the queued pod of a name; None when it is not queued."""
        return self._queues.get(f"{namespace}/{name}" if namespace else name)

    def ahead_of(self, record: QueuedPodInfo) -> int:
        """Return the number of active pods that are popped before an active pod."""
        return self._queues.active.before(record.key)

    def retry_at(self, record: QueuedPodInfo) -> float:
        """Return the time from which on a waiting pod is tried again without an event; some seconds later it is."""
        parked = self._queues.unschedulable.parked(record)
        return (record.timestamp if parked is None else parked.since) + self._max_in_unschedulable

    def records(self) -> list[tuple[str, list[QueuedPodInfo]]]:
        """Return the queued pods by place, in no order: ``Active``, ``Backoff`` and ``Unschedulable``.

        Gated pods are among the unschedulable ones.
        """
        queues = self._queues
        places = ("Active", queues.active), ("Backoff", queues.backoff), ("Unschedulable", queues.unschedulable)
        return [(place, queue.items()) for place, queue in places]

    def in_flight_pods(self) -> list[Pod]:
        """Return the pods in flight, in the order in which they were popped."""
        return _pods(self._in_flight.records())

    def pods_in_active(self) -> list[Pod]:
        return _pods(self._queues.active.items())

    def pods_in_backoff(self) -> list[Pod]:
        """Return the pods in backoff: rejected pods, then pods after an error."""
        return _pods(self._queues.backoff.items())

    @property
    def is_at_rest(self) -> bool:
        """True if no pod is active, in backoff or in flight, and no operation is under way."""
        queues = self._queues
        return not (self._slices.busy or len(queues.active) or len(queues.backoff) or len(self._in_flight))

    def unschedulable_pods(self) -> list[Pod]:
        """Return the pods that wait for an event, gated ones too, in the order of arrival."""
        return _pods(self._queues.unschedulable.records())

    def is_queued(self, pod: Pod) -> bool:
        """Return True if a pod of this name is in the active, backoff or unschedulable queue."""
        return self.get_pod(pod.name, pod.namespace) is not None

    def is_in_flight(self, uid: str) -> bool:
        return uid in self._in_flight

    def in_flight_trace(self) -> list[str]:
        """Return the UIDs of pods in flight and the labels of the events kept for them, oldest first."""
        return self._in_flight.trace()

    def where(self, pod: Pod, *, settled: bool = True) -> str:
        """Return ``Active``, ``Backoff``, ``Unschedulable``, ``Gated`` or ``InFlight``; "" when the pod is not here.

        A pod of the same name with another UID does not count. An operation that is under way is finished first, unless
        ``settled`` is False: it may take long.
        """
        if settled:
            self._slices.settle()
        queues = self._queues
        for place, queue in (
            ("Active", queues.active),
            ("Backoff", queues.backoff),
            ("Unschedulable", queues.unschedulable),
        ):
            record = queue.get(pod.key)
            if record is not None and record.uid == pod.uid:
                return "Gated" if record.gated else place
        return "InFlight" if pod.uid in self._in_flight else ""

    def check(self) -> list[str]:
        """Check the invariants of rules/queue §2, the indexes and the metrics, for every pod.

        Return the inconsistencies as texts.
        """
        self._slices.settle()
        return finish(self.checking())

    def checking(self) -> Steps[list[str]]:
        """Do the work of :meth:`check` in steps, between which the queue may change."""
        problems = yield from self._queues.checking()
        for check in (self._in_flight.check, self._nominator.check, self._check_places, self._check_rejected):
            yield
            problems += check()
        return problems

    def _check_places(self) -> list[str]:
        queues = self._queues
        problems = [
            f"{record.key} is gated by {record.gating_plugin} but in {place}"
            for place, queue in (("Active", queues.active), ("Backoff", queues.backoff))
            for record in queue.items()
            if record.gating_plugin
        ]
        places = queues.keys()
        if len(set[str]().union(*(keys for _, keys in places))) != sum(len(keys) for _, keys in places):
            seen: dict[str, str] = {}
            for place, keys in places:
                problems += [f"{key} is in {seen[key]} and in {place}" for key in keys if key in seen]
                seen.update(dict.fromkeys(keys, place))
        return problems

    def _check_rejected(self) -> list[str]:
        rejected: defaultdict[tuple[str, ...], int] = defaultdict(int)
        queues = self._queues
        for queue in (queues.active, queues.backoff, queues.unschedulable):
            for record in queue.items():
                profile, plugins = record.pod_info.pod.spec.scheduler_name, record.unschedulable_plugins
                for plugin in plugins | record.pending_plugins if record.pending_plugins else plugins:
                    rejected[plugin, profile] += 1
        counted = {labels: child.value for labels, child in self._rejected_by.children.items() if child.value}
        return [] if counted == rejected else [f"unschedulable_pods: should be {dict(rejected)}, is {counted}"]


def _pods(records: Iterable[QueuedPodInfo]) -> list[Pod]:
    return [record.pod_info.pod for record in records]
