"""The queue with the gate SchedulerPopFromBackoffQ off (rules/queue §4, §6 and §7)."""

from __future__ import annotations

import pytest
from queue_kit import Bench, a_pod


@pytest.fixture
def bench() -> Bench:
    return Bench(pop_from_backoff=False)


def test_nothing_is_popped_from_backoff(bench: Bench) -> None:
    pod = a_pod()
    bench.in_backoff(pod)
    assert bench.queue.pop_nowait() is None
    bench.clock.advance(2)
    bench.queue.flush_backoff_completed()
    assert bench.pop().pod_info.pod is pod
    assert ("active", "PopFromBackoffQ") not in bench.incoming()
    assert bench.incoming()["active", "BackoffComplete"] == 1


def test_backoff_ends_when_it_is_over_and_not_at_whole_seconds(bench: Bench) -> None:
    bench.clock.advance(0.4)
    pod = a_pod()
    bench.in_backoff(pod)  # for a second
    bench.clock.advance(0.99)
    bench.queue.flush_backoff_completed()
    assert bench.place(pod) == "Backoff"
    bench.clock.advance(0.02)
    bench.queue.flush_backoff_completed()
    assert bench.place(pod) == "Active"


def test_the_first_to_end_its_backoff_is_active_first_whatever_its_priority(bench: Bench) -> None:
    first, second = a_pod("first", priority=1), a_pod("second", priority=9)
    bench.in_backoff(first)
    bench.clock.advance(0.1)
    bench.in_backoff(second)
    heads = [record.pod_info.name for record in bench.queue._queues.backoff.pop_completed(bench.clock.now() + 5)]
    assert heads == ["first", "second"]


def test_a_flush_that_will_move_a_pod_is_foreseen(bench: Bench) -> None:
    bench.clock.advance(0.4)
    bench.in_backoff(a_pod())
    assert bench.queue._queues.backoff.next_completion() == 1_000_002.0


def test_pre_enqueue_is_asked_when_a_pod_leaves_backoff(bench: Bench) -> None:
    pod = a_pod()
    record = bench.rejected(pod, "Fit")
    bench.gate.calls.clear()
    bench.gate.closed.add(pod.name)
    bench.queue._moves.to_backoff(record.key, record, "label")
    assert (bench.gate.calls, bench.place(pod)) == ([], "Backoff")
    bench.clock.advance(2)
    bench.queue.flush_backoff_completed()
    assert (bench.gate.calls, bench.place(pod)) == (["p"], "Gated")
    assert record.gating_plugin == "Gate"
    assert bench.queue.views.check() == []
