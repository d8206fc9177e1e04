"""The state-transition table of the specification (rules/queue §11), row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from queue_kit import CLASS_ADD, NODE_ADD, Action, Bench, a_pod, changed

from kubesched.api.types import Pod
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, EventResource, QueueingHint

LABEL = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.UPDATE_POD_LABEL)


@dataclass(frozen=True)
class Row:
    name: str
    start: Action
    trigger: Action
    want: str
    label: tuple[str, str] | None = None
    options: tuple[tuple[str, Any], ...] = ()


def nothing(bench: Bench, pod: Pod) -> None:
    """Not queued."""


def active(bench: Bench, pod: Pod) -> None:
    bench.queue.add(pod)


def backoff(bench: Bench, pod: Pod) -> None:
    bench.in_backoff(pod)


def error_backoff(bench: Bench, pod: Pod) -> None:
    bench.rejected(pod)


def unschedulable(bench: Bench, pod: Pod) -> None:
    bench.rejected(pod, "Fit")


def pending(bench: Bench, pod: Pod) -> None:
    bench.rejected(pod, pending=["Fit"])


def rested(bench: Bench, pod: Pod) -> None:
    unschedulable(bench, pod)
    bench.clock.advance(60)


def gated(bench: Bench, pod: Pod) -> None:
    bench.gate.closed.add(pod.name)
    bench.queue.add(pod)


def gated_after_attempt(bench: Bench, pod: Pod) -> None:
    """Rejected by Fit, then gated on the way back."""
    unschedulable(bench, pod)
    bench.gate.closed.add(pod.name)
    bench.event(NODE_ADD)


def in_flight(bench: Bench, pod: Pod) -> None:
    bench.queue.add(pod)
    bench.pop()


def popped(bench: Bench, pod: Pod) -> Any:
    return bench.queue.pop_nowait()


def node_event(bench: Bench, pod: Pod) -> None:
    bench.event(NODE_ADD)


def skipped_event(bench: Bench, pod: Pod) -> None:
    bench.fit.answer = QueueingHint.SKIP
    bench.event(NODE_ADD)


def unrelated_event(bench: Bench, pod: Pod) -> None:
    bench.event(CLASS_ADD)


def refused_event(bench: Bench, pod: Pod) -> None:
    bench.queue.move_all_to_active_or_backoff_queue(NODE_ADD, None, "node", lambda _: False)


def gated_event(bench: Bench, pod: Pod) -> None:
    bench.gate.closed.add(pod.name)
    bench.event(NODE_ADD)


def gate_event(bench: Bench, pod: Pod) -> None:
    """An event the gating plugin waits for; the gate has opened."""
    bench.gate.closed.clear()
    closed_gate_event(bench, pod)


def closed_gate_event(bench: Bench, pod: Pod) -> None:
    other = a_pod("other", node="n")
    bench.queue.move_all_to_active_or_backoff_queue(LABEL, other, changed(other, labels={"a": "b"}))


def activate(bench: Bench, pod: Pod) -> None:
    bench.queue.activate({pod.key: pod})


def activate_gated(bench: Bench, pod: Pod) -> None:
    bench.gate.closed.add(pod.name)
    activate(bench, pod)


def pop_specific(bench: Bench, pod: Pod) -> None:
    assert bench.queue.pop_specific(pod) is not None


def relabel(bench: Bench, pod: Pod) -> None:
    bench.queue.update(pod, changed(pod, labels={"x": "y"}))


def relabel_open(bench: Bench, pod: Pod) -> None:
    bench.gate.closed.clear()
    relabel(bench, pod)


def relabel_skip(bench: Bench, pod: Pod) -> None:
    bench.gate_hint.answer = QueueingHint.SKIP
    relabel(bench, pod)


def update_gated(bench: Bench, pod: Pod) -> None:
    bench.gate.closed.add(pod.name)
    relabel(bench, pod)


def flush_second(bench: Bench, pod: Pod) -> None:
    bench.clock.advance(2)
    bench.queue.flush_backoff_completed()


def flush_too_early(bench: Bench, pod: Pod) -> None:
    bench.clock.advance(1.9)
    bench.queue.flush_backoff_completed()


def flush_old(bench: Bench, pod: Pod) -> None:
    bench.clock.advance(300.5)
    bench.queue.flush_unschedulable_leftover()


def flush_not_old_enough(bench: Bench, pod: Pod) -> None:
    bench.clock.advance(300)
    bench.queue.flush_unschedulable_leftover()


def flush_old_gated(bench: Bench, pod: Pod) -> None:
    bench.gate.closed.add(pod.name)
    flush_old(bench, pod)


def error(bench: Bench, pod: Pod) -> None:
    bench.fail(bench.queue._in_flight.records()[0])


def error_gated(bench: Bench, pod: Pod) -> None:
    bench.gate.closed.add(pod.name)
    error(bench, pod)


def rejection(bench: Bench, pod: Pod) -> None:
    bench.fail(bench.queue._in_flight.records()[0], "Fit")


def rejection_after_event(bench: Bench, pod: Pod) -> None:
    bench.event(NODE_ADD)
    rejection(bench, pod)


def rejection_after_event_gated(bench: Bench, pod: Pod) -> None:
    bench.gate.closed.add(pod.name)
    rejection_after_event(bench, pod)


def pending_after_event(bench: Bench, pod: Pod) -> None:
    bench.event(NODE_ADD)
    bench.fail(bench.queue._in_flight.records()[0], "Spread", pending=["Fit"])


def pending_after_event_gated(bench: Bench, pod: Pod) -> None:
    bench.gate.closed.add(pod.name)
    pending_after_event(bench, pod)


def done(bench: Bench, pod: Pod) -> None:
    bench.queue.done(pod.uid)


def delete(bench: Bench, pod: Pod) -> None:
    bench.queue.delete(pod)


NO_BACKOFF = (("max_backoff", 0.0),)
FAILURE = "ScheduleAttemptFailure"
UPDATED = "UnschedulablePodUpdatePodLabel"

ROWS = [
    Row("add, PreEnqueue passes", nothing, active, "Active", ("active", "UnschedulablePodAdd")),
    Row("add, gated", nothing, gated, "Gated", ("unschedulable", "UnschedulablePodAdd")),
    Row("update of an unknown pod", nothing, relabel, "Active", ("active", "UnschedulablePodUpdate")),
    Row("update of an unknown pod, gated", nothing, update_gated, "Gated", ("unschedulable", "UnschedulablePodUpdate")),
    Row("active, pop", active, popped, "InFlight"),
    Row("active, update", active, relabel, "Active"),
    Row("active, event", active, node_event, "Active"),
    Row("active, activate", active, activate, "Active"),
    Row("backoff, pop with active empty", backoff, popped, "InFlight", ("active", "PopFromBackoffQ")),
    Row("error backoff, pop", error_backoff, popped, "ErrorBackoff"),
    Row("backoff, flush when over", backoff, flush_second, "Active", ("active", "BackoffComplete")),
    Row("error backoff, flush when over", error_backoff, flush_second, "Active", ("active", "BackoffComplete")),
    Row("backoff, flush too early", backoff, flush_too_early, "Backoff"),
    Row("error backoff, flush too early", error_backoff, flush_too_early, "ErrorBackoff"),
    Row("backoff, update", backoff, relabel, "Backoff"),
    Row("error backoff, update", error_backoff, relabel, "ErrorBackoff"),
    Row("backoff, activate asks no gate", backoff, activate_gated, "Active", ("active", "ForceActivate")),
    Row("error backoff, activate", error_backoff, activate, "Active", ("active", "ForceActivate")),
    Row("backoff, pop specific", backoff, pop_specific, "InFlight", ("active", "ForceActivate")),
    Row("error backoff, pop specific", error_backoff, pop_specific, "InFlight", ("active", "ForceActivate")),
    Row("backoff, event", backoff, node_event, "Backoff"),
    Row("error backoff, event", error_backoff, node_event, "ErrorBackoff"),
    Row("unschedulable, activate", unschedulable, activate, "Active", ("active", "ForceActivate")),
    Row("unschedulable, activate, gated", unschedulable, activate_gated, "Gated"),
    Row("gated, activate, still gated", gated, activate, "Gated"),
    Row("unschedulable, event of no interest", unschedulable, unrelated_event, "Unschedulable"),
    Row("unschedulable, event refused by the pre-check", unschedulable, refused_event, "Unschedulable"),
    Row("unschedulable, hint skips", unschedulable, skipped_event, "Unschedulable"),
    Row("unschedulable, hint queues while backing off", unschedulable, node_event, "Backoff", ("backoff", "NodeAdd")),
    Row("unschedulable, hint queues after backoff", rested, node_event, "Active", ("active", "NodeAdd")),
    Row("unschedulable, pending plugin queues", pending, node_event, "Active", ("active", "NodeAdd")),
    Row("unschedulable, requeued and gated", unschedulable, gated_event, "Gated", ("unschedulable", "NodeAdd")),
    Row("unschedulable, rested and gated", rested, gated_event, "Gated", ("unschedulable", "NodeAdd")),
    Row("gated, event the gate does not wait for", gated_after_attempt, node_event, "Gated"),
    Row("gated, event the gate waits for", gated_after_attempt, gate_event, "Backoff", ("backoff", LABEL.label)),
    Row("gated at once, event the gate waits for", gated, gate_event, "Active", ("active", LABEL.label)),
    Row("gated, event but still gated", gated, closed_gate_event, "Gated", ("unschedulable", LABEL.label)),
    Row("gated, update lifts the gate", gated, relabel_open, "Active", ("active", UPDATED)),
    Row("gated after an attempt, update lifts the gate", gated_after_attempt, relabel_open, "Backoff", ("backoff", UPDATED)),
    Row("gated, update but still gated", gated, relabel, "Gated"),
    Row("gated, update that all skip", gated, relabel_skip, "Gated"),
    Row("unschedulable, update that all skip", unschedulable, relabel, "Unschedulable"),
    Row("unschedulable, flush after 5 minutes", unschedulable, flush_old, "Active", ("active", "UnschedulableTimeout")),
    Row("unschedulable, flush at 5 minutes sharp", unschedulable, flush_not_old_enough, "Unschedulable"),
    Row("unschedulable, flush while backing off", unschedulable, flush_old, "Backoff", ("backoff", "UnschedulableTimeout"), (("initial_backoff", 900.0), ("max_backoff", 900.0))),
    Row("unschedulable, flush and gated", unschedulable, flush_old_gated, "Gated", ("unschedulable", "UnschedulableTimeout")),
    Row("gated, flush after 5 minutes", gated, flush_old, "Gated"),
    Row("in flight, error", in_flight, error, "ErrorBackoff", ("backoff", FAILURE)),
    Row("in flight, error without backoff", in_flight, error, "Active", ("active", FAILURE), NO_BACKOFF),
    Row("in flight, error, gated", in_flight, error_gated, "Gated", ("unschedulable", FAILURE)),
    Row("in flight, rejected, nothing happened", in_flight, rejection, "Unschedulable", ("unschedulable", FAILURE)),
    Row("in flight, rejected, an event helps", in_flight, rejection_after_event, "Backoff", ("backoff", FAILURE)),
    Row("in flight, rejected, an event helps, no backoff", in_flight, rejection_after_event, "Active", ("active", FAILURE), NO_BACKOFF),
    Row("in flight, rejected, an event helps, gated", in_flight, rejection_after_event_gated, "Gated", ("unschedulable", FAILURE)),
    Row("in flight, pending, an event helps", in_flight, pending_after_event, "Active", ("active", FAILURE)),
    Row("in flight, pending, an event helps, gated", in_flight, pending_after_event_gated, "Gated", ("unschedulable", FAILURE)),
    Row("in flight, update", in_flight, relabel, "InFlight"),
    Row("in flight, activate", in_flight, activate, "InFlight"),
    Row("in flight, delete", in_flight, delete, "InFlight"),
    Row("in flight, done", in_flight, done, ""),
    Row("active, delete", active, delete, ""),
    Row("backoff, delete", backoff, delete, ""),
    Row("error backoff, delete", error_backoff, delete, ""),
    Row("unschedulable, delete", unschedulable, delete, ""),
    Row("gated, delete", gated, delete, ""),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_state_transition(row: Row) -> None:
    bench = Bench(**dict(row.options))
    pod = a_pod()
    row.start(bench, pod)
    before = bench.incoming()
    row.trigger(bench, pod)
    assert bench.place(pod) == row.want
    added = {label: n - before.get(label, 0) for label, n in bench.incoming().items() if n != before.get(label, 0)}
    assert added == ({} if row.label is None else {row.label: 1})
    assert bench.queue.views.check() == []


def test_a_pod_in_flight_already_is_dropped_when_popped_again() -> None:
    bench = Bench()
    first, second = a_pod("a"), a_pod("b")
    bench.queue.add(first)
    bench.pop()
    bench.queue.add(first)
    bench.clock.advance(1)
    bench.queue.add(second)
    assert bench.pop().pod_info.pod is second
    assert bench.queue.views.where(first) == "InFlight"
    assert bench.queue.pop_nowait() is None
    assert bench.queue.views.check() == []


def test_a_pod_that_is_delivered_again_is_updated_where_it_is() -> None:
    bench = Bench()
    first = a_pod("a")
    bench.queue.add_or_update(first)
    assert bench.place(first) == "Active"
    record = bench.pop()
    bench.queue.add_or_update(first)
    assert bench.place(first) == "InFlight"
    record.unschedulable_plugins = {"fit"}
    bench.queue.add_unschedulable_if_not_present(record, 0)
    bench.queue.add_or_update(first)
    assert bench.queue.views.get_pod(first.name, first.namespace) is record, "with its history"
    successor = a_pod("a", uid="another")
    bench.queue.add_or_update(successor)
    assert bench.queue.views.where(first) == ""
    assert bench.place(successor) == "Active"
    assert bench.queue.views.check() == []


def test_gated_hints_are_not_run_without_an_event_for_the_gate() -> None:
    bench = Bench()
    gated_after_attempt(bench, a_pod())
    bench.fit.calls.clear()
    bench.event(NODE_ADD)
    assert bench.fit.calls == []
