"""Builders for the queue's tests: pods, a settable clock, plugins whose answers a test controls."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from kubesched.api.types import ObjectMeta, Pod, PodSpec, PodStatus
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, EventResource, HintFn, QueueingHint
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.queued import QueuedPodInfo, by_priority
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.queue import SchedulingQueue

SCHEDULER = "default-scheduler"

NODE_ADD = ClusterEvent(EventResource.NODE, ActionType.ADD)
NODE_LABEL = ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_LABEL)
POD_DELETE = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE)
CLASS_ADD = ClusterEvent(EventResource.STORAGE_CLASS, ActionType.ADD)
LABELLED = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.UPDATE_POD_LABEL)
WILDCARD = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "Everything")


class FakeClock:
    def __init__(self, start: float = 1_000_000.0) -> None:
        self.time = start

    def now(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds


def a_pod(
    name: str = "p",
    *,
    uid: str = "",
    priority: int | None = None,
    labels: dict[str, str] | None = None,
    nominated: str = "",
    node: str = "",
    scheduler: str = SCHEDULER,
) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=uid or f"{name}-uid", labels=labels or {}),
        spec=PodSpec(scheduler_name=scheduler, priority=priority, node_name=node),
        status=PodStatus(nominated_node_name=nominated),
    )


def changed(pod: Pod, *, labels: dict[str, str] | None = None, priority: int | None = None, nominated: str = "") -> Pod:
    """A later version of a pod."""
    meta = pod.metadata if labels is None else msgspec.structs.replace(pod.metadata, labels=labels)
    spec = pod.spec if priority is None else msgspec.structs.replace(pod.spec, priority=priority)
    status = msgspec.structs.replace(pod.status, nominated_node_name=nominated)
    return Pod(metadata=meta, spec=spec, status=status)


class ByLess:
    """A QueueSort plugin without a sort key."""

    name = "ByLess"

    def less(self, first: QueuedPodInfo, second: QueuedPodInfo) -> bool:
        return by_priority(first) < by_priority(second)


class Gate:
    """A PreEnqueue plugin that holds back the pods named in ``closed``."""

    def __init__(self) -> None:
        self.closed: set[str] = set()
        self.calls: list[str] = []
        self.status: Status = Status.unresolvable("gated")
        self.raises: Exception | None = None

    def __call__(self, pod: PodInfo) -> Status | None:
        self.calls.append(pod.name)
        if pod.name not in self.closed:
            return None
        if self.raises is not None:
            raise self.raises
        return self.status


class Hint:
    """A hint function with a settable answer that remembers its calls."""

    def __init__(self, answer: QueueingHint | Exception = QueueingHint.QUEUE) -> None:
        self.answer = answer
        self.calls: list[tuple[str, Any, Any]] = []

    def __call__(self, pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        self.calls.append((pod.name, old, new))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


Hints = Mapping[ClusterEvent, list[tuple[str, HintFn | None]]]


class Bench:
    """A queue with two gates and plugins Fit and Spread waiting for nodes and pod deletions."""

    def __init__(self, hints: Hints | None = None, **options: Any) -> None:
        self.clock = FakeClock()
        self.gate, self.gate2 = Gate(), Gate()
        self.fit, self.spread, self.gate_hint = Hint(), Hint(), Hint()
        self.metrics = SchedulerMetrics()
        self.live: dict[tuple[str, str], Pod] = {}
        if hints is None:
            hints = {
                ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL): [
                    ("Fit", self.fit),
                    ("Spread", self.spread),
                ],
                ClusterEvent(EventResource.POD, ActionType.DELETE): [("Fit", self.fit)],
                ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_LABEL): [("Gate", self.gate_hint)],
            }
        options.setdefault("order", by_priority)
        self.queue = SchedulingQueue(
            clock=self.clock,
            pre_enqueue={SCHEDULER: {"Gate": self.gate, "Gate2": self.gate2}},
            queueing_hints={SCHEDULER: hints},
            metrics=self.metrics,
            **options,
        )

    def pop(self) -> QueuedPodInfo:
        record = self.queue.pop_nowait()
        assert record is not None
        return record

    def fail(self, record: QueuedPodInfo, *plugins: str, pending: Iterable[str] = ()) -> None:
        """Do what the failure handler does with a rejected pod."""
        record.unschedulable_plugins = set(plugins)
        record.pending_plugins = set(pending)
        record.gating_plugin = ""
        record.gating_plugin_events = ()
        self.queue.add_unschedulable_if_not_present(record, self.queue.scheduling_cycle)

    def event(self, event: ClusterEvent, old: Any = None, new: Any = "node") -> None:
        self.queue.move_all_to_active_or_backoff_queue(event, old, new)

    def rejected(self, pod: Pod, *plugins: str, pending: Iterable[str] = ()) -> QueuedPodInfo:
        """Add a pod and let its first attempt fail; without plugins the attempt failed by an error."""
        self.queue.add(pod)
        record = self.pop()
        assert record.pod_info.pod is pod
        self.fail(record, *plugins, pending=pending)
        return record

    def in_backoff(self, pod: Pod) -> QueuedPodInfo:
        """A pod in podBackoffQ: rejected, and an event helped at once."""
        record = self.rejected(pod, "Fit")
        self.event(NODE_ADD)
        assert self.queue.views.where(pod) == "Backoff"
        return record

    def place(self, pod: Pod) -> str:
        """Return where a pod is, with the error heap distinguished."""
        where = self.queue.views.where(pod)
        if where == "Backoff" and pod.key in self.queue._queues.backoff.errors:
            return "ErrorBackoff"
        return where

    def gauges(self) -> dict[str, float]:
        return {values[0]: child.value for values, child in self.metrics.pending_pods.children.items()}

    def incoming(self) -> dict[tuple[str, ...], float]:
        return {values: child.value for values, child in self.metrics.queue_incoming_pods_total.children.items()}


def ticking() -> Callable[[], float]:
    """Time in which every step takes longer than a slice."""
    ticks = itertools.count()
    return lambda: float(next(ticks))


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual = 1_000_000.25

    def time(self) -> float:
        return self.virtual

    def now(self) -> float:
        return self.virtual

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.virtual = max(self.virtual, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


Action = Callable[[Bench, Pod], Any]
