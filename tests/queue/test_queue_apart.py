"""Pods that only a second loop pops: otherwise they are queued like all others."""

from __future__ import annotations

import asyncio

from queue_kit import NODE_ADD, Bench, a_pod, changed

from kubesched.api.types import Pod
from kubesched.scheduler.framework.queued import QueuedPodInfo


def a_bench() -> Bench:
    return Bench(is_apart=is_apart)


def is_apart(record: QueuedPodInfo) -> bool:
    return "gpu" in record.pod_info.labels


def apart(name: str, priority: int = 0) -> Pod:
    return a_pod(name, priority=priority, labels={"gpu": "yes"})


def popped(bench: Bench, *, apart: bool = False) -> list[str]:
    names = []
    while (record := bench.queue.pop_nowait(apart=apart)) is not None:
        names.append(record.pod_info.name)
    return names


def test_each_loop_pops_its_own_pods_in_order() -> None:
    bench = a_bench()
    for pod in (apart("a1"), a_pod("u1"), apart("a2", 5), a_pod("u2", priority=5)):
        bench.queue.add(pod)
    assert bench.gauges()["active"] == 4
    assert bench.queue.views.check() == []
    assert popped(bench) == ["u2", "u1"]
    assert popped(bench, apart=True) == ["a2", "a1"]
    assert bench.gauges()["active"] == 0


def test_a_changed_pod_changes_sides() -> None:
    bench = a_bench()
    bench.queue.add(a_pod("p"))
    bench.queue.update(a_pod("p"), changed(a_pod("p"), labels={"gpu": "yes"}))
    assert (bench.gauges()["active"], bench.queue.views.check()) == (1, [])
    assert bench.queue.pop_nowait() is None
    assert popped(bench, apart=True) == ["p"]


def test_a_pod_in_backoff_is_taken_early_by_its_own_loop_only() -> None:
    bench = a_bench()
    pod = apart("p")
    bench.queue.add(pod)
    record = bench.queue.pop_nowait(apart=True)
    assert record is not None
    bench.fail(record, "Fit")
    bench.event(NODE_ADD)
    assert bench.queue.views.where(pod) == "Backoff"
    assert bench.gauges()["backoff"] == 1
    assert bench.queue.pop_nowait() is None
    assert popped(bench, apart=True) == ["p"]
    assert bench.queue.views.check() == []


def test_backoff_ends_for_pods_apart_as_for_others() -> None:
    bench = a_bench()
    pod = apart("p")
    bench.queue.add(pod)
    record = bench.queue.pop_nowait(apart=True)
    assert record is not None
    bench.fail(record, "Fit")
    bench.event(NODE_ADD)
    bench.clock.time += 5
    bench.queue.flush_backoff_completed()
    assert bench.queue.views.where(pod) == "Active"
    assert popped(bench, apart=True) == ["p"]


def test_a_deleted_pod_is_gone_on_either_side() -> None:
    bench = a_bench()
    for pod in (apart("a"), a_pod("u")):
        bench.queue.add(pod)
        bench.queue.delete(pod)
    assert popped(bench) == popped(bench, apart=True) == []
    assert bench.gauges()["active"] == 0


def test_each_loop_waits_for_its_own_pods() -> None:
    bench = a_bench()

    async def main() -> list[str]:
        waiting = [asyncio.ensure_future(bench.queue.wait_pop(apart=side)) for side in (False, True)]
        await asyncio.sleep(0)
        bench.queue.add(apart("a"))
        first = await waiting[1]
        assert not waiting[0].done()
        bench.queue.add(a_pod("u"))
        second = await waiting[0]
        assert first is not None
        assert second is not None
        bench.queue.close()
        assert await bench.queue.wait_pop(apart=True) is None
        return [first.pod_info.name, second.pod_info.name]

    assert asyncio.run(main()) == ["a", "u"]


def test_the_check_sees_a_pod_on_the_wrong_side() -> None:
    bench = a_bench()
    bench.queue.add(a_pod("u"))
    record = bench.queue._queues.active.get("ns/u")
    assert record is not None
    record.pod_info.pod.metadata.labels["gpu"] = "yes"
    assert bench.queue.views.check() == ["activeQ: ns/u should be among the pods apart"]
