"""Checks of the scheduling queue: backoff, Pop, the in-flight list, hints, gates, activation, time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from queue_kit import (
    CLASS_ADD,
    NODE_ADD,
    NODE_LABEL,
    SCHEDULER,
    WILDCARD,
    Action,
    Bench,
    ByLess,
    Hint,
    VirtualLoop,
    a_pod,
    changed,
)

from kubesched.api.quantity import QuantityError
from kubesched.api.types import Container, Pod, PodSpec, ResourceRequirements
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, EventResource, QueueingHint
from kubesched.scheduler.framework.queued import QueuedPodInfo, by_priority
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.queue import QueueError, SchedulingQueue
from kubesched.scheduler.queue.backoff import NEVER, BackoffQueue
from kubesched.scheduler.queue.heap import KeyedHeap
from kubesched.scheduler.queue.order import order_of


def a_record(timestamp: float = 0.0, **fields: Any) -> QueuedPodInfo:
    return QueuedPodInfo(
        PodInfo(a_pod(fields.pop("name", "p"), priority=fields.pop("priority", None))), timestamp, **fields
    )


def a_backoff(initial: float = 1.0, maximum: float = 10.0) -> BackoffQueue:
    return BackoffQueue(initial, maximum, by_priority)


# -- backoff


@pytest.mark.parametrize(
    ("count", "seconds"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (64, 10), (10**6, 10)]
)
def test_backoff_doubles_up_to_the_maximum(count: int, seconds: float) -> None:
    assert a_backoff().duration(count) == seconds


def test_backoff_ends_one_second_after_the_floored_expiry() -> None:
    queue, record = a_backoff(), a_record(12.4, unschedulable_count=1)
    assert queue.expiry(record) == 13.0
    assert queue.backing_off(record, 13.99)
    assert not queue.backing_off(record, 14.0)


def test_errors_in_a_row_count_before_rejections() -> None:
    assert a_backoff().expiry(a_record(0.0, unschedulable_count=1, consecutive_errors_count=3)) == 4.0


def test_no_backoff_with_a_maximum_of_zero_or_without_failures() -> None:
    assert a_backoff(maximum=0).expiry(a_record(5.0, unschedulable_count=4)) == NEVER
    assert a_backoff().expiry(a_record(5.0)) == NEVER


def test_inside_one_second_priority_decides_but_not_in_the_error_heap() -> None:
    for rejectors, want in (({"Fit"}, ["high", "low"]), (set[str](), ["low", "high"])):
        queue = a_backoff()
        for name, priority, at in (("low", 0, 0.1), ("high", 9, 0.9)):
            record = a_record(
                at, name=name, priority=priority, unschedulable_count=1, unschedulable_plugins=set(rejectors)
            )
            assert queue.put(record.key, record)
        assert not list(queue.pop_completed(1.9))
        assert [record.pod_info.name for record in queue.pop_completed(2.0)] == want
        assert queue.check() == []


# -- heap


def test_heap_keeps_order_of_arrival_among_equals_and_stays_small() -> None:
    heap: KeyedHeap[list[int]] = KeyedHeap(lambda item: item[0])
    items = {str(number): [1] for number in range(100)}
    for key, item in items.items():
        assert heap.put(key, item)
    for turn in range(5000):
        item = items["7"]
        item[0] = turn % 3
        assert not heap.put("7", item)
    assert heap.check("heap") == []
    assert len(heap._heap) < 400
    items["7"][0] = 0
    heap.put("7", items["7"])
    order = [heap.pop() for _ in range(len(heap))]
    assert order[0] is items["7"]
    assert [id(item) for item in order[1:]] == [id(item) for key, item in items.items() if key != "7"]
    assert heap.pop() is None
    assert heap.peek() is None


def test_heap_check_sees_an_order_changed_in_place() -> None:
    heap: KeyedHeap[list[int]] = KeyedHeap(lambda item: item[0])
    item = [1]
    heap.put("a", item)
    item[0] = 2
    assert heap.check("heap") == ["heap: the order of a changed in place"]


def test_heap_check_sees_entries_that_nothing_removes() -> None:
    heap: KeyedHeap[list[int]] = KeyedHeap(lambda item: item[0])
    heap.put("a", [0])
    heap._heap += [(1, number, "gone", [1]) for number in range(1000)]
    assert heap.check("heap") == ["heap: 1001 entries for 1 items"]


# -- Pop


def test_pop_waits_and_wakes_with_the_best_pod() -> None:
    bench = Bench()

    async def main() -> str:
        waiting = asyncio.ensure_future(bench.queue.wait_pop())
        await asyncio.sleep(0)
        assert not waiting.done()
        bench.queue.add(a_pod("low"))
        bench.queue.add(a_pod("high", priority=5))
        record = await waiting
        assert record is not None
        return record.pod_info.name

    assert asyncio.run(main()) == "high"


def test_close_lets_waiters_go_and_hands_out_what_is_left() -> None:
    bench = Bench()

    async def main() -> None:
        waiting = [asyncio.ensure_future(bench.queue.wait_pop()) for _ in range(2)]
        await asyncio.sleep(0)
        bench.queue.close()
        assert await asyncio.gather(*waiting) == [None, None]
        bench.queue.add(a_pod("late"))
        assert (await bench.queue.wait_pop()) is not None
        assert (await bench.queue.wait_pop()) is None

    asyncio.run(main())


def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    bench = Bench()

    async def main() -> None:
        waiting = asyncio.ensure_future(bench.queue.wait_pop())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(bench.queue._waiters) == 0

    asyncio.run(main())


def test_active_comes_before_backoff_and_errors_are_never_popped() -> None:
    bench = Bench()
    resting, failed, fresh = a_pod("resting", priority=100), a_pod("failed"), a_pod("fresh")
    bench.in_backoff(resting)
    record = bench.queue.pop_specific(failed)
    assert record is None
    bench.queue.add(failed)
    bench.fail(bench.pop())
    bench.queue.add(fresh)
    assert [bench.pop().pod_info.name, bench.pop().pod_info.name] == ["fresh", "resting"]
    assert bench.queue.pop_nowait() is None
    assert bench.place(failed) == "ErrorBackoff"


def test_a_retried_pod_queues_behind_those_that_waited_longer() -> None:
    bench = Bench(max_backoff=0.0)
    bench.queue.add(a_pod("tried"))
    record = bench.pop()
    bench.clock.advance(1)
    bench.queue.add(a_pod("waited"))
    bench.clock.advance(1)
    bench.fail(record)
    assert [bench.pop().pod_info.name, bench.pop().pod_info.name] == ["waited", "tried"]


# -- in flight


@pytest.mark.parametrize(
    ("finished", "left"),
    [
        (["a-uid"], ["b-uid", "NodeUpdateNodeLabel", "c-uid"]),
        (["b-uid"], ["a-uid", "NodeAdd", "NodeUpdateNodeLabel", "c-uid"]),
        (["c-uid"], ["a-uid", "NodeAdd", "b-uid", "NodeUpdateNodeLabel"]),
        (["b-uid", "a-uid"], ["c-uid"]),
        (["c-uid", "b-uid", "a-uid"], []),
        (["stranger"], ["a-uid", "NodeAdd", "b-uid", "NodeUpdateNodeLabel", "c-uid"]),
    ],
)
def test_events_are_pruned_when_no_older_pod_is_in_flight(finished: list[str], left: list[str]) -> None:
    bench = Bench()
    bench.event(NODE_ADD)  # nothing in flight: not recorded
    for name, event in (("a", NODE_ADD), ("b", NODE_LABEL), ("c", CLASS_ADD)):
        bench.queue.add(a_pod(name))
        bench.pop()
        bench.event(event)
    for uid in finished:
        bench.queue.done(uid)
    assert bench.queue.views.in_flight_trace() == left
    assert bench.queue.views.check() == []
    events = bench.metrics.inflight_events
    assert {values[0]: child.value for values, child in events.children.items() if child.value} == {
        **({"PodPopped": flying} if (flying := sum(text.endswith("-uid") for text in left)) else {}),
        **{text: 1 for text in left if not text.endswith("-uid")},
    }


def test_the_event_list_stays_small_over_time() -> None:
    bench = Bench()
    bench.queue.add(a_pod("p0"))
    bench.pop()
    for number in range(1, 3000):
        bench.queue.add(a_pod(f"p{number}"))
        bench.pop()
        bench.event(NODE_ADD)
        bench.queue.done(f"p{number - 1}-uid")
    assert len(bench.queue._in_flight._events) < 1000
    assert bench.queue._in_flight.event_count <= 2


def test_an_event_before_pop_does_not_count() -> None:
    bench = Bench()
    bench.queue.add(a_pod("other"))
    bench.pop()
    bench.queue.add(a_pod())
    bench.event(NODE_ADD)
    bench.fail(bench.pop(), "Fit")
    assert bench.queue.views.where(a_pod()) == "Unschedulable"


def test_an_event_without_waiting_pods_costs_no_pre_check_and_no_record() -> None:
    bench = Bench()
    bench.rejected(a_pod(), "Fit")
    bench.queue.add(a_pod("flying"))
    bench.pop()
    asked: list[Pod] = []

    def ask(pod: Pod) -> bool:
        asked.append(pod)
        return True

    bench.queue.move_all_to_active_or_backoff_queue(CLASS_ADD, None, "class", ask)
    assert asked == []
    assert bench.queue.views.in_flight_trace() == ["flying-uid"]


def test_an_event_is_recorded_whatever_the_pre_check_says() -> None:
    bench = Bench()
    bench.rejected(a_pod(), "Fit")
    bench.queue.add(a_pod("flying"))
    bench.pop()
    bench.queue.move_all_to_active_or_backoff_queue(NODE_ADD, None, "node", lambda _: False)
    assert bench.queue.views.in_flight_trace() == ["flying-uid", "NodeAdd"]


def test_activating_a_pod_in_flight_brings_it_back_after_backoff() -> None:
    bench = Bench()
    pod = a_pod()
    bench.queue.add(pod)
    record = bench.pop()
    bench.queue.activate({pod.key: pod, "ns/unknown": a_pod("unknown")})
    assert bench.queue.views.in_flight_trace() == [pod.uid, "ForceActivate"]
    bench.fail(record, "Fit")
    assert bench.queue.views.where(pod) == "Backoff"


def put_active(bench: Bench, pod: Pod) -> None:
    bench.queue.add(pod)


def put_unschedulable(bench: Bench, pod: Pod) -> None:
    bench.rejected(pod, "Fit")


def put_backoff(bench: Bench, pod: Pod) -> None:
    bench.in_backoff(pod)


@pytest.mark.parametrize(
    ("put", "text"),
    [
        (put_active, "the active queue"),
        (put_unschedulable, "unschedulable queue"),
        (put_backoff, "the backoff queue"),
    ],
)
def test_giving_back_a_queued_pod_is_refused_and_ends_its_flight(put: Action, text: str) -> None:
    bench = Bench()
    pod, twin = a_pod(), a_pod(uid="twin")
    bench.queue.add(pod)
    record = bench.pop()
    put(bench, twin)
    record.unschedulable_plugins = {"Fit"}
    with pytest.raises(QueueError, match=f"^Pod ns/p is already present in {text}$"):
        bench.queue.add_unschedulable_if_not_present(record, 1)
    assert record.unschedulable_count == 0
    assert not bench.queue.views.is_in_flight(pod.uid)
    assert bench.queue.views.where(twin) != ""
    assert bench.queue.views.check() == []


# -- hints


def test_a_pending_plugin_skips_backoff_and_a_failing_hint_queues(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.fit.answer = RuntimeError("boom")
    pending, rejected = a_pod("pending"), a_pod("rejected")
    bench.rejected(pending, "Spread", pending=["Fit"])
    bench.rejected(rejected, "Fit")
    with caplog.at_level(logging.ERROR, "kubesched.scheduler.queue"):
        bench.event(NODE_ADD)
    assert (bench.queue.views.where(pending), bench.queue.views.where(rejected)) == ("Active", "Backoff")
    assert sum("boom" in (record.exc_text or "") for record in caplog.records) == 2


def test_hints_of_plugins_that_did_not_reject_are_not_run() -> None:
    bench = Bench()
    bench.rejected(a_pod(), "Spread")
    bench.event(NODE_ADD, None, "n1")
    assert bench.fit.calls == []
    assert bench.spread.calls == [("p", None, "n1")]


def test_plans_for_many_kinds_of_events_take_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.queue.queueing_hints._MAX_PLANS", 4)
    bench = Bench()
    bench.rejected(a_pod("p"), "Fit")
    for number in range(20):
        bench.event(ClusterEvent(EventResource.STORAGE_CLASS, ActionType.ADD, f"Custom{number}"))
        assert bench.queue.views.where(a_pod("p")) == "Unschedulable"
    assert len(bench.queue._hints._plans) <= 4
    bench.event(NODE_ADD)
    assert bench.queue.views.where(a_pod("p")) == "Backoff"


def test_a_wildcard_about_another_pod_is_skipped() -> None:
    bench = Bench()
    pod = a_pod()
    bench.rejected(pod, "Fit")
    bench.event(WILDCARD, None, a_pod("other"))
    assert bench.queue.views.where(pod) == "Unschedulable"
    bench.event(WILDCARD, None, pod)
    assert bench.queue.views.where(pod) == "Backoff"


def test_moves_keep_the_order_in_which_pods_came() -> None:
    bench = Bench(max_backoff=0.0, order=lambda record: 0)
    for number, plugin in enumerate(["Spread", "Fit", "Spread", "Fit", "Fit"]):
        bench.queue.add(a_pod(f"p{number}"))
        bench.fail(bench.pop(), plugin)
    bench.event(NODE_ADD)
    assert [bench.pop().pod_info.name for _ in range(5)] == ["p0", "p1", "p2", "p3", "p4"]


def test_a_pod_of_a_scheduler_without_hints_is_moved_by_any_event_of_interest() -> None:
    bench = Bench()
    pod = a_pod(scheduler="unknown")
    bench.rejected(pod, "Whatever")
    bench.event(CLASS_ADD)
    assert bench.queue.views.where(pod) == "Unschedulable"
    bench.event(NODE_ADD)
    assert bench.queue.views.where(pod) == "Backoff"


# -- gates


def test_two_gates_in_sequence() -> None:
    bench = Bench()
    pod = a_pod()
    bench.gate.closed.add("p")
    bench.gate2.closed.add("p")
    bench.queue.add(pod)
    record = bench.queue.views.get_pod("p", "ns")
    assert record is not None
    assert (record.gating_plugin, record.unschedulable_plugins) == ("Gate", {"Gate"})
    assert record.initial_attempt_timestamp is None
    bench.gate.closed.clear()
    bench.queue.activate({pod.key: pod})
    assert (record.gating_plugin, record.unschedulable_plugins) == ("Gate2", {"Gate", "Gate2"})
    bench.gate.calls.clear()
    bench.queue.activate({pod.key: pod})
    assert bench.gate.calls == []  # the gate that holds the pod is asked first, and still holds
    bench.gate2.closed.clear()
    bench.clock.advance(5)
    bench.queue.activate({pod.key: pod})
    assert bench.queue.views.where(pod) == "Active"
    assert record.initial_attempt_timestamp == bench.clock.now()
    assert record.unschedulable_plugins == {"Gate", "Gate2"}


@pytest.mark.parametrize("how", ["status", "raise"])
def test_a_gate_that_fails_holds_its_pod_and_is_logged_once(how: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.gate.closed.add("p")
    if how == "raise":
        bench.gate.raises = RuntimeError("boom")
    else:
        bench.gate.status = Status.from_error("boom")
    with caplog.at_level(logging.ERROR, "kubesched.scheduler.queue"):
        bench.queue.add(a_pod())
    bench.queue.add(a_pod("fine"))
    assert bench.queue.views.where(a_pod()) == "Gated"
    assert bench.queue.views.where(a_pod("fine")) == "Active"
    assert len(caplog.records) == 1


# -- updates and signatures


@pytest.mark.parametrize("put", [None, put_active, put_unschedulable, put_backoff])
def test_a_malformed_request_changes_nothing(put: Action | None) -> None:
    bench = Bench()
    good = a_pod()
    wrong = Container(name="c", resources=ResourceRequirements(requests={"cpu": "lots"}))
    bad = Pod(metadata=good.metadata, spec=PodSpec(scheduler_name=SCHEDULER, containers=(wrong,)))
    if put is not None:
        put(bench, good)
    else:
        with pytest.raises(QuantityError):
            bench.queue.add(bad)
    with pytest.raises(QuantityError):
        bench.queue.update(good, bad)
    assert bench.queue.views.pending_pods()[0] == ([good] if put is not None else [])
    assert bench.queue.views.check() == []


def test_an_update_reorders() -> None:
    bench = Bench()
    first, second = a_pod("first"), a_pod("second")
    bench.queue.add(first)
    bench.queue.add(second)
    bench.queue.update(second, changed(second, priority=7))
    record = bench.pop()
    assert (record.pod_info.name, record.pod_info.priority) == ("second", 7)


def test_an_update_without_an_old_version_is_a_generic_one() -> None:
    bench = Bench()
    pod = a_pod()
    bench.queue.add(pod)
    bench.pop()
    bench.queue.update(None, pod)
    assert bench.queue.views.in_flight_trace() == [pod.uid, "UnschedulablePodUpdate"]


def test_less_and_its_records_survive_updates() -> None:
    bench = Bench(order=order_of(ByLess()))
    for name, priority in (("a", 1), ("b", 2), ("c", 3)):
        bench.queue.add(a_pod(name, priority=priority))
    bench.queue.update(a_pod("c", priority=3), a_pod("c", priority=0))
    assert [bench.pop().pod_info.name for _ in range(3)] == ["b", "a", "c"]


# -- time


def test_the_next_timer_is_the_first_flush_that_moves_something() -> None:
    bench = Bench()
    assert bench.queue.next_timer() is None
    waiting = a_pod("waiting")
    bench.rejected(waiting, "Fit")
    bench.gate.closed.add("gated")
    bench.queue.add(a_pod("gated"))
    at = bench.queue.next_timer()
    assert at is not None
    assert at == pytest.approx(bench.clock.now() + 300)
    bench.rejected(a_pod("failed"))
    soon = bench.queue.next_timer()
    assert soon == bench.clock.now() + 2
    bench.clock.time = soon - 0.001
    bench.queue.flush_backoff_completed()
    assert bench.place(a_pod("failed")) == "ErrorBackoff"
    bench.clock.time = soon
    bench.queue.flush_backoff_completed()
    assert bench.place(a_pod("failed")) == "Active"
    assert bench.queue.next_timer() == at
    bench.clock.time = at
    bench.queue.flush_unschedulable_leftover()
    assert bench.queue.views.where(waiting) == "Active"
    assert bench.queue.next_timer() is None


def test_the_loops_flush_at_whole_seconds_and_every_half_minute() -> None:
    fit = Hint(QueueingHint.SKIP)
    moved: dict[str, float] = {}

    async def main(loop: VirtualLoop) -> None:
        queue = SchedulingQueue(
            clock=loop, order=by_priority, pre_enqueue={}, queueing_hints={SCHEDULER: {NODE_ADD: [("Fit", fit)]}}
        )
        running = asyncio.ensure_future(queue.run())
        start = loop.now()
        for name, plugins in (("failed", set[str]()), ("rejected", {"Fit"})):
            queue.add(a_pod(name))
            record = queue.pop_nowait()
            assert record is not None
            record.unschedulable_plugins = plugins
            queue.add_unschedulable_if_not_present(record, 1)
        await asyncio.sleep(0)
        for _ in range(2):
            expected = queue.next_timer()
            record = await queue.wait_pop()
            assert record is not None
            assert expected == pytest.approx(loop.now(), abs=1e-6)
            moved[record.pod_info.name] = loop.now() - start
            queue.done(record.uid)
        assert record is not None
        assert record.was_flushed_from_unschedulable
        queue.close()
        queue.close()
        await running
        await queue.run()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        runner.run(main(loop))
    # 1 s of backoff from x.25 is over at x + 2; 300 s are first exceeded at the flush after 330 s.
    assert moved == {"failed": pytest.approx(1.75), "rejected": pytest.approx(330)}


def test_views_of_the_queue() -> None:
    bench = Bench()
    parked, resting, flying, fresh = a_pod("parked"), a_pod("resting"), a_pod("flying"), a_pod("fresh")
    bench.in_backoff(resting)
    bench.queue.add(parked)
    bench.fail(bench.pop(), "Spread")
    bench.queue.add(flying)
    bench.pop()
    bench.queue.add(fresh)
    queue = bench.queue
    assert queue.views.pending_pods() == ([fresh, resting, parked], "activeQ:1; backoffQ:1; unschedulablePods:1")
    assert queue.views.in_flight_pods() == [flying]
    assert queue.views.is_queued(parked)
    assert not queue.views.is_queued(flying)
    assert [queue.views.is_in_flight(pod.uid) for pod in (flying, parked, fresh)] == [True, False, False]
    reborn = Pod(metadata=msgspec.structs.replace(fresh.metadata, uid="new"), spec=fresh.spec)
    assert [queue.views.where(pod) for pod in (fresh, resting, parked, flying, reborn)] == [
        "Active",
        "Backoff",
        "Unschedulable",
        "InFlight",
        "",
    ]
    assert queue.scheduling_cycle == 3
