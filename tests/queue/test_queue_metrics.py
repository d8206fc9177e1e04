"""Metrics of the queue, and the table of the scheduler's metrics."""

from __future__ import annotations

import pytest
from queue_kit import LABELLED, NODE_ADD, Bench, a_pod, changed

from kubesched.scheduler.framework.metrics import DEFINITIONS, HistogramSample, SchedulerMetrics, exponential_buckets


def gauges(active: int = 0, backoff: int = 0, unschedulable: int = 0, gated: int = 0) -> dict[str, float]:
    return {"active": active, "backoff": backoff, "unschedulable": unschedulable, "gated": gated}


def rejectors(bench: Bench) -> dict[str, float]:
    children = bench.metrics.unschedulable_pods.children
    return {values[0]: child.value for values, child in children.items() if child.value}


def test_gauges_follow_every_change_between_gated_and_not() -> None:
    bench = Bench()
    pod = a_pod()
    bench.gate.closed.add("p")
    bench.queue.add(pod)
    assert (bench.gauges(), rejectors(bench)) == (gauges(gated=1), {"Gate": 1})
    bench.event(LABELLED)  # requeued and gated again
    assert (bench.gauges(), rejectors(bench)) == (gauges(gated=1), {"Gate": 1})
    bench.gate.closed.clear()
    bench.queue.activate({pod.key: pod})
    assert (bench.gauges(), rejectors(bench)) == (gauges(active=1), {"Gate": 1})
    record = bench.pop()
    assert (bench.gauges(), rejectors(bench)) == (gauges(), {})
    bench.fail(record, "Fit", "Spread")
    assert (bench.gauges(), rejectors(bench)) == (gauges(unschedulable=1), {"Fit": 1, "Spread": 1})
    bench.gate.closed.add("p")
    bench.queue.activate({pod.key: pod})  # ungated to gated in place
    assert (bench.gauges(), rejectors(bench)) == (gauges(gated=1), {"Fit": 1, "Spread": 1, "Gate": 1})
    bench.gate.closed.clear()
    bench.queue.update(pod, changed(pod, labels={"a": "b"}))  # gated to backoff
    assert bench.gauges() == gauges(backoff=1)
    bench.clock.advance(2)
    bench.queue.flush_backoff_completed()
    assert bench.gauges() == gauges(active=1)
    bench.fail(bench.pop(), "Fit")
    bench.gate.closed.add("p")
    bench.event(NODE_ADD)  # ungated to gated by an event
    assert bench.gauges() == gauges(gated=1)
    bench.queue.delete(pod)
    assert (bench.gauges(), rejectors(bench)) == (gauges(), {})


@pytest.mark.parametrize("place", ["active", "backoff", "errors", "unschedulable"])
def test_rejector_counts_go_back_to_zero_when_a_pod_is_deleted_or_replaced(place: str) -> None:
    for replace in (False, True):
        bench = Bench()
        pod = a_pod()
        if place == "errors":
            bench.rejected(pod)
        elif place == "backoff":
            bench.in_backoff(pod)
        else:
            bench.rejected(pod, "Fit")
        if place == "active":
            bench.queue.activate({pod.key: pod})
        if replace:
            bench.queue.add(a_pod(uid="another"))
        else:
            bench.queue.delete(pod)
        assert rejectors(bench) == {}
        assert bench.queue.views.check() == []


def test_a_gated_newcomer_does_not_replace_an_active_pod() -> None:
    bench = Bench()
    pod = a_pod()
    bench.queue.add(pod)
    bench.gate.closed.add("p")
    bench.queue.add(a_pod(uid="another"))
    assert bench.queue.views.pods_in_active() == [pod]
    assert rejectors(bench) == {}


def test_durations_are_recorded() -> None:
    bench = Bench()
    for number in range(200):
        bench.rejected(a_pod(f"p{number}"), "Fit")
    bench.event(NODE_ADD)
    points = bench.metrics.framework_extension_point_duration_seconds.children
    assert [(values, child.count) for values, child in points.items()] == [
        (("PreEnqueue", "Success", "default-scheduler"), 400)
    ]
    hints = bench.metrics.queueing_hint_execution_duration_seconds.labels("Fit", "NodeAdd", "Queue").count
    plugins = bench.metrics.plugin_execution_duration_seconds.labels("Gate", "PreEnqueue", "Success").count
    assert 5 <= hints <= 40
    assert 15 <= plugins <= 75


def test_every_definition_has_its_attribute() -> None:
    declared = {name: kind for name, kind in SchedulerMetrics.__annotations__.items() if not name.startswith("_")}
    assert declared == {definition.name: definition.kind.capitalize() for definition in DEFINITIONS}
    assert len({definition.full_name for definition in DEFINITIONS}) == len(DEFINITIONS)
    for definition in DEFINITIONS:
        assert bool(definition.buckets) == (definition.kind == "histogram")


def test_buckets_are_exponential() -> None:
    assert exponential_buckets(1, 2, 5) == (1, 2, 4, 8, 16)
    by_name = {definition.name: definition.buckets for definition in DEFINITIONS}
    assert by_name["scheduling_attempt_duration_seconds"][-1] == pytest.approx(16.384)


def test_collect_gives_what_an_exposition_needs() -> None:
    metrics = SchedulerMetrics()
    metrics.queue_incoming_pods_total.inc("active", "NodeAdd")
    for value in (1, 2, 3, 99):
        metrics.pod_scheduling_attempts.observe(value)
    families = {family.name: family for family in metrics.collect()}
    assert families["scheduler_pending_pods"].samples == [
        ((queue,), 0) for queue in ("active", "backoff", "unschedulable", "gated")
    ]
    incoming = families["scheduler_queue_incoming_pods_total"]
    assert (incoming.type, incoming.label_names) == ("counter", ("queue", "event"))
    assert incoming.help.startswith("[STABLE] ")
    assert incoming.samples == [(("active", "NodeAdd"), 1)]
    buckets = ((1, 1), (2, 2), (4, 3), (8, 3), (16, 3))
    assert families["scheduler_pod_scheduling_attempts"].samples == [((), HistogramSample(buckets, 105, 4))]
    assert "scheduler_schedule_attempts_total" not in families  # a vector without series
    metrics.reset()
    again = {family.name: family for family in metrics.collect()}
    assert again["scheduler_queue_incoming_pods_total"].samples == [(("active", "NodeAdd"), 0)]


@pytest.mark.parametrize(
    ("gates", "batching", "calls"),
    [({}, True, False), ({"OpportunisticBatching": False, "SchedulerAsyncAPICalls": True}, False, True)],
)
def test_gates_decide_what_is_registered(gates: dict[str, bool], batching: bool, calls: bool) -> None:
    metrics = SchedulerMetrics(gates)
    metrics.batch_attempts_total.inc("default-scheduler", "no_hint")
    metrics.pending_async_api_calls.labels("pod_binding").inc()
    names = {family.name for family in metrics.collect()}
    assert ("scheduler_batch_attempts_total" in names) is batching
    assert ("scheduler_pending_async_api_calls" in names) is calls


def test_wrong_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="scheduler_pending_pods has the labels"):
        SchedulerMetrics().pending_pods.labels("active", "too many")
