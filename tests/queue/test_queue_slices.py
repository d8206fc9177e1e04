"""Operations in slices: the queue ends as if each had been done at once, and holds nothing up meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from queue_kit import NODE_ADD, WILDCARD, Bench, a_pod, ticking

from kubesched.api.quantity import QuantityError
from kubesched.api.types import Container, ResourceRequirements
from kubesched.base.turns import finish
from kubesched.scheduler.queue.slices import Slices


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.queue.event_moves._STEP", 1)


def divided(bench: Bench) -> Slices:
    """The queue's operations, from now on divided at every step."""
    slices = bench.queue._slices
    slices._time, slices._watched = ticking(), True
    return slices


def state(bench: Bench) -> dict[str, Any]:
    """Everything that an operation may change."""
    views, queues = bench.queue.views, bench.queue._queues
    assert views.check() == []
    return {
        "places": {
            name: [
                (record.key, record.timestamp, record.attempts, record.was_flushed_from_unschedulable)
                for record in records
            ]
            for name, records in (
                ("active", queues.active.items()),
                ("backoff", queues.backoff.items()),
                ("unschedulable", queues.unschedulable.records()),
            )
        },
        "in flight": views.in_flight_trace(),
        "gauges": bench.gauges(),
        "incoming": bench.incoming(),
        "hints": [name for name, _, _ in bench.fit.calls + bench.spread.calls],
    }


def some_waiting(*, backing_off: bool = False) -> Bench:
    """Six pods that two plugins rejected, one gated, one in flight."""
    bench = Bench()
    for number in range(6):
        bench.rejected(a_pod(f"p{number}", priority=number % 3), *(("Fit",), ("Spread",))[number % 2])
        bench.clock.advance(0.1)
    bench.gate.closed.add("gated")
    bench.queue.add(a_pod("gated"))
    bench.queue.add(a_pod("flying"))
    bench.pop()
    if not backing_off:
        bench.clock.advance(400)
    return bench


OPERATIONS: dict[str, Callable[[Bench], object]] = {
    "node": lambda bench: bench.event(NODE_ADD),
    "everything": lambda bench: bench.event(WILDCARD, None, None),
    "deletions": lambda bench: bench.queue.move_after_deletions(
        [a_pod("x", node="n1"), a_pod("y"), a_pod("z", node="n2")]
    ),
    "timeout": lambda bench: bench.queue.flush_unschedulable_leftover(),
    "activate": lambda bench: bench.queue.activate({name: a_pod(name) for name in ("p1", "p3", "gated", "flying")}),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("backing_off", [False, True])
def test_an_operation_ends_as_if_it_had_been_done_at_once(name: str, backing_off: bool) -> None:
    at_once, bench = some_waiting(backing_off=backing_off), some_waiting(backing_off=backing_off)
    OPERATIONS[name](at_once)
    slices = divided(bench)
    OPERATIONS[name](bench)
    if name == "timeout" and backing_off:
        assert not slices.busy
    while slices.busy:
        assert finish(bench.queue.views.checking()) == []
        assert bench.queue.pop_nowait() is None
        assert not bench.queue.views.is_at_rest
        slices._slice(0.0)
    assert state(bench) == state(at_once)


def test_the_end_of_backoff_is_divided_as_well() -> None:
    def waiting() -> Bench:
        bench = some_waiting(backing_off=True)
        bench.event(NODE_ADD)
        bench.clock.advance(5)
        return bench

    at_once, bench = waiting(), waiting()
    slices, turns = divided(bench), 0
    at_once.queue.flush_backoff_completed()
    bench.queue.flush_backoff_completed()
    while slices.busy:
        slices._slice(0.0)
        turns += 1
    assert turns == 6
    assert state(bench) == state(at_once)
    assert len(bench.queue.views.pods_in_active()) == 6


def test_pods_that_cannot_be_read_are_refused_at_once() -> None:
    bench = some_waiting()
    slices = divided(bench)
    bench.event(NODE_ADD)
    assert slices.busy
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": "much"}))
    bad = a_pod("p2")
    bad = msgspec.structs.replace(bad, spec=msgspec.structs.replace(bad.spec, containers=[container]))
    for act in (bench.queue.add, bench.queue.add_or_update, lambda pod: bench.queue.update(None, pod)):
        with pytest.raises(QuantityError):
            act(bad)
    slices.settle()
    assert bench.queue.views.check() == []


def test_a_pod_that_is_delivered_meanwhile_enters_afterwards() -> None:
    bench = some_waiting()
    slices = divided(bench)
    bench.event(NODE_ADD)
    assert slices.busy
    fresh, again = a_pod("fresh"), a_pod("p1", priority=7)
    bench.queue.add_or_update(fresh)
    bench.queue.add_or_update(again)
    slices.settle()
    assert bench.place(fresh) == "Active"
    known = bench.queue.views.get_pod("p1", "ns")
    assert known is not None
    assert known.pod_info.pod is again
    assert bench.queue.views.check() == []


def test_an_operation_that_fails_is_logged_and_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    bench = some_waiting()
    slices = divided(bench)
    bench.event(NODE_ADD)

    def fail() -> None:
        raise ZeroDivisionError

    slices.defer(fail)
    bench.queue.delete(a_pod("p1"))
    slices.settle()
    assert "An operation of the scheduling queue failed" in caplog.text
    assert bench.place(a_pod("p1")) == ""


def test_a_pod_whose_place_is_taken_meanwhile_is_refused_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bench = some_waiting()
    slices = divided(bench)
    (flying,) = bench.queue.views.in_flight_pods()
    _, record = bench.queue._in_flight._pods[flying.uid]
    bench.event(NODE_ADD)
    bench.queue.add(a_pod("flying", uid="another"))
    bench.fail(record, "Fit")
    assert slices.busy
    slices.settle()
    assert "Pod ns/flying is already present in the active queue" in caplog.text
    assert not bench.queue.views.is_in_flight(flying.uid)


def test_other_tasks_have_turns_while_many_pods_are_moved_and_then_they_are_popped() -> None:
    async def main() -> None:
        bench = some_waiting(backing_off=True)
        bench.clock.advance(5)
        queue, slices, turns = bench.queue, bench.queue._slices, 0
        slices._time = ticking()
        running = asyncio.get_running_loop().create_task(queue.run())
        await asyncio.sleep(0.01)
        popping = asyncio.get_running_loop().create_task(queue.wait_pop())
        await asyncio.sleep(0)
        bench.event(NODE_ADD)
        while slices.busy:
            turns += 1
            assert not popping.done()
            await asyncio.sleep(0)
        record = await popping
        assert record is not None
        assert record.pod_info.priority == 2  # the best of all, not of those that were moved first
        assert turns >= 6
        queue.close()
        await running

    asyncio.run(main())


def test_pods_are_popped_between_two_long_operations() -> None:
    async def main() -> None:
        bench = some_waiting(backing_off=True)
        bench.clock.advance(5)
        queue, slices = bench.queue, bench.queue._slices
        slices._time = ticking()
        running = asyncio.get_running_loop().create_task(queue.run())
        await asyncio.sleep(0.01)
        bench.event(NODE_ADD)
        for number in range(20):
            queue.add(a_pod(f"new{number}"))
            bench.event(WILDCARD, None, None)
        popping = asyncio.get_running_loop().create_task(queue.wait_pop())
        record = await popping
        assert record is not None
        assert record.pod_info.priority == 2
        assert slices.busy  # others are still to be done
        queue.done(record.uid)
        queue.delete(record.pod_info.pod)
        slices.settle()
        assert queue.views.check() == []
        assert not queue.views.is_in_flight(record.uid)
        assert len(queue.views.pods_in_active()) == 25
        queue.close()
        await running

    asyncio.run(main())


def test_a_queue_that_is_closed_does_what_is_left_at_once() -> None:
    async def main() -> None:
        bench = some_waiting(backing_off=True)
        bench.clock.advance(5)
        queue, slices = bench.queue, bench.queue._slices
        slices._time = ticking()
        running = asyncio.get_running_loop().create_task(queue.run())
        await asyncio.sleep(0.01)
        bench.event(NODE_ADD)
        assert slices.busy
        queue.close()
        assert not slices.busy
        assert len(queue.views.pods_in_active()) == 6
        bench.rejected(a_pod("more", priority=99), "Fit")
        bench.event(NODE_ADD)
        assert not slices.busy
        await running

    asyncio.run(main())


def test_without_a_loop_that_runs_the_queue_everything_is_done_at_once() -> None:
    bench = some_waiting()
    bench.queue._slices._time = ticking()
    bench.event(NODE_ADD)
    assert not bench.queue._slices.busy
    assert len(bench.queue.views.pods_in_active()) == 6


def _file_twice(bench: Bench) -> None:
    waiting = bench.queue._queues.unschedulable
    bench.queue._queues.active.put("ns/p0", waiting.get("ns/p0"))  # type: ignore[arg-type]  # it is there


SABOTAGE: dict[str, tuple[Callable[[Bench], object], str]] = {
    "a pod in two places": (_file_twice, "ns/p0 is in Active and in Unschedulable"),
    "a bucket": (
        lambda bench: bench.queue._queues.unschedulable._by_rejector.clear(),
        "unschedulable: the index by rejector plugin is wrong",
    ),
    "one of two rejectors that is gone": (
        lambda bench: bench.rejected(a_pod("p9"), "Fit", "Spread").unschedulable_plugins.discard("Spread"),
        "unschedulable: the index by rejector plugin is wrong",
    ),
    "a stray entry in a bucket": (
        lambda bench: bench.queue._queues.unschedulable._by_rejector.setdefault(("s", "x"), {}),
        "unschedulable: the index by rejector plugin is wrong",
    ),
    "pods that any event helps": (
        lambda bench: bench.queue._queues.unschedulable._always.update(
            {"x": bench.queue._queues.unschedulable._entries["ns/p0"]}
        ),
        "unschedulable: the index by pods without rejector is wrong",
    ),
    "a timeout": (
        lambda bench: bench.queue._queues.unschedulable._timeouts.remove("ns/p0"),
        "unschedulable: ns/p0 has a wrong timeout entry",
    ),
    "a gauge": (
        lambda bench: bench.metrics.pending_pods.labels("unschedulable").set(77),
        "unschedulable: 1 gated of 7, the metrics say 1 gated and 77 not",
    ),
    "the pods that a plugin rejected": (
        lambda bench: bench.metrics.unschedulable_pods.labels("Fit", "default-scheduler").set(77),
        "unschedulable_pods: should be ",
    ),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_the_check_sees_what_is_wrong(name: str) -> None:
    bench = some_waiting()
    assert bench.queue.views.check() == []
    spoil, report = SABOTAGE[name]
    spoil(bench)
    problems = bench.queue.views.check()
    assert any(problem.startswith(report) for problem in problems), problems
