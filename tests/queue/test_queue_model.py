"""The queue against the plain model: the same operations must leave every pod in the same place."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from queue_kit import CLASS_ADD, NODE_ADD, NODE_LABEL, POD_DELETE, WILDCARD, ByLess, FakeClock, a_pod, changed
from queue_model import Entry, Model, RefusedError

from kubesched.api.types import Pod
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, EventResource, HintFn, QueueingHint
from kubesched.scheduler.framework.queued import QueuedPodInfo, by_priority
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.queue import QueueError, SchedulingQueue
from kubesched.scheduler.queue.order import order_of

NAMES = ("a", "b", "c", "d", "e")
PLUGINS = ("Fit", "Spread", "Taint", "Wild", "Gate1")
ASSIGNED_LABEL = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.UPDATE_POD_LABEL)
EVENTS = (NODE_ADD, NODE_LABEL, POD_DELETE, CLASS_ADD, ASSIGNED_LABEL)
NODES = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
PODS = ClusterEvent(EventResource.POD, ActionType.DELETE)
LABELS = ClusterEvent(EventResource.POD, ActionType.UPDATE)
EVERYTHING = ClusterEvent(EventResource.WILDCARD, ActionType.ALL)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Failing plugins are part of the game; their tracebacks would only cost time."""
    logger = logging.getLogger("kubesched.scheduler.queue")
    logger.disabled = True
    yield
    logger.disabled = False


def answer(plugin: str) -> Callable[[Pod, Any, Any], QueueingHint]:
    """A fixed but arbitrary function of plugin, pod and event object; now and then it fails."""

    def hint(pod: Pod, old: Any, new: Any) -> QueueingHint:
        about = new if new is not None else old
        text = f"{plugin}/{pod.uid}/{about.uid if isinstance(about, Pod) else about}"
        draw = zlib.crc32(text.encode()) % 7
        if draw == 0:
            raise ZeroDivisionError
        return QueueingHint.SKIP if draw < 4 else QueueingHint.QUEUE

    return hint


def as_hint(function: Callable[[Pod, Any, Any], QueueingHint]) -> HintFn:
    return lambda info, old, new: function(info.pod, old, new)


REGISTERED: dict[str, dict[ClusterEvent, list[tuple[str, Callable[[Pod, Any, Any], QueueingHint] | None]]]] = {
    "one": {
        NODES: [("Fit", answer("Fit")), ("Taint", None)],
        PODS: [("Fit", answer("Fit")), ("Spread", answer("Spread"))],
        NODE_ADD: [("Spread", answer("Spread")), ("Gate2", answer("Gate2"))],
        LABELS: [("Gate1", answer("Gate1")), ("Spread", answer("Spread"))],
        EVERYTHING: [("Wild", answer("Wild"))],
    },
    "two": {NODES: [("Spread", answer("Spread"))], PODS: [("Gate1", answer("Gate1"))]},
}
#: The scheduler of each pod name; "lost" has no hints at all.
SCHEDULERS = {"a": "one", "b": "one", "c": "one", "d": "two", "e": "lost"}

names = st.sampled_from(NAMES)
pods = st.builds(
    lambda name, number, priority: a_pod(name, uid=f"{name}{number}", priority=priority, scheduler=SCHEDULERS[name]),
    names,
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([None, 0, 5]),
)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.closed_gates: set[tuple[str, str]] = set()
        self.popped: dict[str, tuple[QueuedPodInfo, Entry]] = {}
        self.known: dict[str, Pod] = {}

    @initialize(by_less=st.booleans(), maximum=st.sampled_from([10.0, 10.0, 0.0]), wild=st.booleans())
    def build(self, by_less: bool, maximum: float, wild: bool) -> None:
        self.clock = FakeClock()
        registered = {
            scheduler: {event: pairs for event, pairs in by_event.items() if wild or event is not EVERYTHING}
            for scheduler, by_event in REGISTERED.items()
        }
        gates = {scheduler: {name: self.gate(name) for name in ("Gate1", "Gate2")} for scheduler in ("one", "two")}
        self.model = Model(self.clock.now, gates, registered, maximum)
        self.queue = SchedulingQueue(
            clock=self.clock,
            pre_enqueue={scheduler: self.plugins_of(functions) for scheduler, functions in gates.items()},
            queueing_hints={
                scheduler: {
                    event: [(plugin, as_hint(hint) if hint else None) for plugin, hint in pairs]
                    for event, pairs in registrations.items()
                }
                for scheduler, registrations in registered.items()
            },
            max_backoff=maximum,
            order=order_of(ByLess()) if by_less else by_priority,
        )

    def plugins_of(
        self, functions: Mapping[str, Callable[[Pod], bool]]
    ) -> Mapping[str, Callable[[PodInfo], Status | None]]:
        return {name: self.plugin(function) for name, function in functions.items()}

    def gate(self, name: str) -> Callable[[Pod], bool]:
        return lambda pod: (name, pod.name) not in self.closed_gates

    @staticmethod
    def plugin(function: Callable[[Pod], bool]) -> Callable[[PodInfo], Status | None]:
        def run(info: PodInfo) -> Status | None:
            if function(info.pod):
                return None
            if info.name == "b":
                raise RuntimeError("a plugin that fails holds the pod back")
            return Status.unresolvable("closed")

        return run

    # -- operations

    @rule(pod=pods)
    def add(self, pod: Pod) -> None:
        self.known[pod.key] = pod
        self.queue.add(pod)
        self.model.add(pod)

    @rule(pod=pods, label=st.sampled_from(["x", "y"]), priority=st.sampled_from([None, 0, 5]))
    def update(self, pod: Pod, label: str, priority: int | None) -> None:
        old = self.known.get(pod.key, pod)
        new = changed(old, labels={"l": label}, priority=priority)
        self.known[pod.key] = new
        self.queue.update(old, new)
        self.model.update(old, new)

    @rule(pod=pods)
    def delete(self, pod: Pod) -> None:
        self.queue.delete(pod)
        self.model.delete(pod)

    @rule()
    def pop(self) -> None:
        self.compare_popped(self.queue.pop_nowait(), self.model.pop())

    @rule(pod=pods)
    def pop_specific(self, pod: Pod) -> None:
        self.compare_popped(self.queue.pop_specific(pod), self.model.pop_specific(pod))

    def compare_popped(self, got: QueuedPodInfo | None, want: Entry | None) -> None:
        if got is None or want is None:
            assert got is None
            assert want is None
            return
        self.compare(got, want)
        self.popped[got.uid] = (got, want)

    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from([*self.popped, "nobody"]))
        self.popped.pop(uid, None)
        self.queue.done(uid)
        self.model.done(uid)

    @rule(
        data=st.data(),
        unschedulable=st.sets(st.sampled_from(PLUGINS), max_size=2),
        pending=st.sets(st.sampled_from(PLUGINS), max_size=1),
        twice=st.integers(0, 9),
    )
    def give_back(self, data: st.DataObject, unschedulable: set[str], pending: set[str], twice: int) -> None:
        if not self.popped:
            return
        self.fail(data.draw(st.sampled_from(list(self.popped))), unschedulable, pending, twice)

    @rule(
        unschedulable=st.sets(st.sampled_from(PLUGINS), min_size=1, max_size=2),
        pending=st.sampled_from([set(), set(), set(), {"Fit"}, {"Spread"}]),
        event=st.none() | st.sampled_from(EVENTS),
        about=st.integers(0, 3),
    )
    def attempt_all(self, unschedulable: set[str], pending: set[str], event: ClusterEvent | None, about: int) -> None:
        """Try every pod, perhaps have something happen meanwhile, and reject them all."""
        before = set(self.popped)
        for _ in NAMES:
            self.pop()
        if event is not None:
            self.move(event, about, "")
        for uid in sorted(set(self.popped) - before):
            self.fail(uid, unschedulable, pending, 1)

    @rule()
    def add_all(self) -> None:
        for name in NAMES:
            if not self.queue.views.is_queued(a_pod(name)):
                self.add(a_pod(name, uid=f"{name}1", scheduler=SCHEDULERS[name]))

    def fail(self, uid: str, unschedulable: set[str], pending: set[str], twice: int) -> None:
        record, entry = self.popped.pop(uid)
        record.unschedulable_plugins, record.pending_plugins = set(unschedulable), set(pending)
        record.gating_plugin, record.gating_plugin_events = "", ()
        entry.unschedulable, entry.pending, entry.gate = set(unschedulable), set(pending), ""
        if twice == 0:
            self.queue.done(uid)  # a pod that comes back although it is not in flight
            self.model.done(uid)
        refused = False
        try:
            self.model.give_back(entry)
        except RefusedError:
            refused = True
        self.give(record, refused)

    def give(self, record: QueuedPodInfo, refused: bool) -> None:
        if refused:
            with pytest.raises(QueueError):
                self.queue.add_unschedulable_if_not_present(record, 0)
        else:
            self.queue.add_unschedulable_if_not_present(record, 0)

    @rule(event=st.sampled_from(EVENTS), about=st.integers(0, 9), only=st.sampled_from(["", "", "ace"]))
    def move(self, event: ClusterEvent, about: int, only: str) -> None:
        check = (lambda pod: pod.name in only) if only else None
        old, new = (f"object{about}", None) if event is POD_DELETE else (None, f"object{about}")
        self.queue.move_all_to_active_or_backoff_queue(event, old, new, check)
        self.model.move_all(event, old, new, check)

    @rule(pod=st.none() | pods)
    def wildcard(self, pod: Pod | None) -> None:
        self.queue.move_all_to_active_or_backoff_queue(WILDCARD, None, pod)
        self.model.move_all(WILDCARD, None, pod, None)

    @rule(pod=pods)
    def activate(self, pod: Pod) -> None:
        self.queue.activate({pod.key: pod})
        self.model.activate(pod)

    @rule(gate=st.sampled_from(["Gate1", "Gate2"]), name=names)
    def turn_gate(self, gate: str, name: str) -> None:
        self.closed_gates ^= {(gate, name)}

    @rule(seconds=st.sampled_from([0.3, 0.7, 1.0, 1.0, 2.5, 31.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.clock.time = round(self.clock.time + seconds, 3)
        self.queue.flush_backoff_completed()
        self.model.flush()
        self.queue.flush_unschedulable_leftover()
        self.model.flush_leftover()

    @rule(really=st.integers(0, 30))
    def close(self, really: int) -> None:
        if really == 0:
            self.queue.close()
            self.model.close()

    # -- comparisons

    @staticmethod
    def compare(record: QueuedPodInfo, entry: Entry) -> None:
        assert record.pod_info.pod is entry.pod
        assert record.timestamp == entry.timestamp
        assert record.attempts == entry.attempts
        assert record.unschedulable_count == entry.count
        assert record.consecutive_errors_count == entry.errors
        assert record.unschedulable_plugins == entry.unschedulable
        assert record.pending_plugins == entry.pending
        assert record.gating_plugin == entry.gate
        assert record.was_flushed_from_unschedulable == entry.flushed

    @invariant()
    def same_places(self) -> None:
        if not hasattr(self, "queue"):
            return
        queue, model = self.queue, self.model
        for records, entries in (
            (queue._queues.active.items(), model.active),
            (queue._queues.backoff.pods.items(), model.backoff),
            (queue._queues.backoff.errors.items(), model.errors),
            (queue._queues.unschedulable.records(), model.unschedulable),
        ):
            assert [record.key for record in records] == [entry.key for entry in entries]
            for record, entry in zip(records, entries, strict=True):
                self.compare(record, entry)
        assert queue.views.in_flight_trace() == model.trace()
        assert queue.scheduling_cycle == model.cycle
        assert queue.views.check() == []

    def teardown(self) -> None:
        """Whatever is left comes out in the same order."""
        if hasattr(self, "queue"):
            while (got := self.queue.pop_nowait()) is not None:
                want = self.model.pop()
                assert want is not None
                self.compare(got, want)
            assert self.model.pop() is None


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
