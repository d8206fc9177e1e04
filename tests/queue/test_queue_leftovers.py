"""Pods that have waited too long for an event: of pods that are alike a part is tried, and the others take over its result."""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Set as AbstractSet

import pytest
from queue_kit import SCHEDULER, Bench, a_pod, changed

from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.queue import leftovers

LIMIT = 300.0


class Hold:
    """Holder of all pods but those named ``free-…``; deletions help them by the label ``room``."""

    def hold_key(self, pod: PodInfo, rejectors: AbstractSet[str]) -> Hashable | None:
        return None if pod.name.startswith("free-") else pod.labels.get("room", "")

    def may_help(self, key: Hashable, node_name: str) -> bool:
        return False

    def may_help_nominated(self, pod: PodInfo, key: Hashable, node_name: str) -> bool:
        return False


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A queue that tries two pods at once, in which pods with an equal label ``selector`` are equal for filters."""
    monkeypatch.setattr(leftovers, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(leftovers, "_TURNS_AT_ONCE", 1)
    monkeypatch.setattr(leftovers, "_TURN", 100.0)
    monkeypatch.setattr(leftovers, "_ROUND", 1e9)
    return Bench(holders={SCHEDULER: Hold()}, kind_of=lambda pod: pod.labels.get("selector", ""))


def wait(bench: Bench, *names: str, plugin: str = "Fit") -> None:
    """Let pods wait, from one second on after the other."""
    for name in names:
        bench.rejected(a_pod(name), plugin)
        bench.clock.advance(1)


def flush(bench: Bench, seconds: float) -> list[QueuedPodInfo]:
    """Let time pass and flush. Return the pods that are tried."""
    bench.clock.advance(seconds)
    bench.queue.flush_unschedulable_leftover()
    assert bench.queue.views.check() == []
    tried = []
    while (record := bench.queue.pop_nowait()) is not None:
        tried.append(record)
    return tried


def names(records: list[QueuedPodInfo]) -> list[str]:
    return [record.pod_info.name for record in records]


def give_back(bench: Bench, records: list[QueuedPodInfo], *plugins: str) -> None:
    for record in records:
        bench.fail(record, *plugins)


def test_pods_that_are_alike_wait_for_their_turn(case: Bench) -> None:
    wait(case, *"abcde")
    first = flush(case, LIMIT)
    assert names(first) == ["a", "b"], "the part that is tried at once"
    give_back(case, first, "Fit")
    case.clock.advance(5)
    assert flush(case, 0.5) == [], "c is not tried: it would be rejected, too"
    record = case.queue.views.get_pod("c", "ns")
    assert record is not None
    assert (record.attempts, record.timestamp) == (1, first[1].timestamp), "it takes over the time"
    for name in "cde":
        part = flush(case, 100.1)
        assert names(part) == [name], "it has its turn"
        give_back(case, part, "Fit")


def test_no_more_than_some_pods_have_their_turn_in_one_part(case: Bench) -> None:
    wait(case, *"abcde")
    give_back(case, flush(case, LIMIT), "Fit")
    flush(case, 5.5)
    tried = []
    for seconds in (250, 0.5, 0.5, 40):
        part = flush(case, seconds)
        tried.append(names(part))
        give_back(case, part, "Fit")
    assert tried == [["c"], ["d"], [], []]


def test_pods_that_are_not_alike_and_pods_that_are_not_held_are_tried(case: Bench) -> None:
    wait(case, "a", "b")
    for labels in ({"room": "1"}, {"selector": "1"}):
        case.rejected(a_pod(f"other-{len(case.queue.views.unschedulable_pods())}", labels=labels), "Fit")
    wait(case, "free-1", "free-2", "free-3")
    tried = []
    for seconds in (LIMIT + 10, 0.5, 0.5, 0.5, 0.5):
        part = flush(case, seconds)
        tried.append(names(part))
        give_back(case, part, "Fit")
    assert tried == [["a", "b"], ["other-2", "other-3"], ["free-1", "free-2"], ["free-3"], []]


def test_nominated_pods_are_tried(case: Bench) -> None:
    for name in "abc":
        case.rejected(a_pod(name, nominated="n1"), "Fit")
    give_back(case, flush(case, LIMIT + 1), "Fit")
    assert names(flush(case, 0.5)) == ["c"]


def test_others_wait_for_a_pod_whose_attempt_is_not_over(case: Bench) -> None:
    wait(case, *"abc")
    under_way = flush(case, LIMIT)
    assert flush(case, 5) == []
    give_back(case, under_way, "Fit")
    assert flush(case, 20) == [], "not yet"
    assert flush(case, 12) == [], "rejected like b"


def test_others_do_not_wait_longer_for_it_than_half_a_minute(case: Bench) -> None:
    wait(case, *"abc")
    under_way = flush(case, LIMIT)
    assert flush(case, 5) == []
    for record in under_way:
        case.queue.done(record.uid)
    assert flush(case, 29) == []
    assert names(flush(case, 2)) == ["c"]


@pytest.mark.parametrize("end", ["bound", "deleted", "relabelled", "nominated"])
def test_the_others_are_tried_when_the_first_do_not_end_as_before(case: Bench, end: str) -> None:
    wait(case, *"abcdef")
    first = flush(case, LIMIT)
    assert names(first) == ["a", "b"]
    if end == "bound":
        for record in first:
            case.queue.done(record.uid)
    else:
        give_back(case, first, "Fit")
        for record in first:
            old = record.pod_info.pod
            if end == "deleted":
                case.queue.delete(old)
            elif end == "relabelled":
                case.queue.update(old, changed(old, labels={"room": "1"}))
            else:
                case.queue.update(old, changed(old, nominated="n1"))
    second = flush(case, 10)
    assert names(second) == ["c", "d"]
    give_back(case, second, "Fit")
    assert flush(case, 0.5) == [], "as c and d were rejected"


def test_the_others_take_over_the_plugins_that_rejected_the_first(case: Bench) -> None:
    wait(case, *"abcd")
    give_back(case, flush(case, LIMIT), "Fit", "Spread")
    assert flush(case, 5) == []
    records = [case.queue.views.get_pod(name, "ns") for name in "abcd"]
    assert [record.unschedulable_plugins for record in records if record is not None] == [{"Fit", "Spread"}] * 4
    gauge = case.metrics.unschedulable_pods
    assert [gauge.labels(plugin, SCHEDULER).value for plugin in ("Fit", "Spread")] == [4, 4]


def test_a_result_is_not_taken_over_after_five_minutes(case: Bench) -> None:
    wait(case, *"abcd")
    give_back(case, flush(case, LIMIT), "Fit")
    case.queue.delete(a_pod("a"))
    case.rejected(a_pod("late"), "Fit")
    assert names(flush(case, 2 * LIMIT)) == ["c", "d"]


def test_the_view_says_when_a_pod_is_tried_again(case: Bench) -> None:
    wait(case, *"abc")
    give_back(case, flush(case, LIMIT), "Fit")
    flush(case, 5)
    record = case.queue.views.get_pod("c", "ns")
    assert record is not None
    assert case.queue.views.retry_at(record) == pytest.approx(case.clock.time + 100)
