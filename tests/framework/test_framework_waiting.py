"""Pods that wait on Permit, and pods in PreBind: the first verdict is final."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from framework_kit import shown

from builders import info
from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.framework.waiting import PodInPreBind, PodsInPreBind, WaitingPod, WaitingPods, go_duration

DURATIONS = [
    (0, "0s"), (1.5, "1.5s"), (0.1, "100ms"), (0.0015, "1.5ms"), (0.000002, "2µs"), (60, "1m0s"), (300, "5m0s"),
    (900, "15m0s"), (3600, "1h0m0s"), (3661.25, "1h1m1.25s"), (-5, "-5s"),
]  # fmt: skip


@pytest.mark.parametrize(("seconds", "text"), DURATIONS)
def test_durations_are_written_as_upstream_does(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run in virtual time."""
    return run_virtual(main())


def test_a_pod_goes_on_when_the_last_plugin_allows_it() -> None:
    async def main() -> Status:
        waiting = WaitingPod(info(), {"A": 10, "B": 20})
        waiting.allow("stranger")
        waiting.allow("A")
        assert waiting.pending_plugins == ["B"]
        waiting.allow("A")
        waiting.allow("B")
        assert waiting.pending_plugins == []
        assert not waiting.reject("B", "too late")
        return await waiting.wait()

    assert run(main).code is Code.SUCCESS


def test_the_shortest_timer_decides() -> None:
    async def main() -> tuple[Status, float]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        waiting = WaitingPod(info(), {"A": 300, "B": 90})
        return await waiting.wait(), loop.time() - start

    status, elapsed = run(main)
    assert shown(status) == ("Unschedulable", "rejected due to timeout after waiting 1m30s at plugin B", "B")
    assert elapsed == pytest.approx(90)


def test_a_timer_goes_with_its_plugins_permission() -> None:
    async def main() -> Status:
        waiting = WaitingPod(info(), {"A": 10, "B": 100})
        waiting.allow("A")
        await asyncio.sleep(50)
        assert waiting.pending_plugins == ["B"]
        return await waiting.wait()

    assert run(main).plugin == "B"


@pytest.mark.parametrize(
    ("first", "want"),
    [
        (lambda pod: pod.reject("P", "why"), ("Unschedulable", "why", "P")),
        (lambda pod: pod.preempt("P", "for another"), ("Error", "for another", "P")),
    ],
)
def test_the_first_verdict_is_final(first: Any, want: tuple[str, str, str]) -> None:
    async def main() -> Status:
        waiting = WaitingPod(info(), {"A": 10, "B": 10})
        assert first(waiting)
        assert waiting.pending_plugins == []
        assert not waiting.reject("Q", "me too")
        assert not waiting.preempt("Q", "me too")
        waiting.allow("A")
        waiting.allow("B")
        await asyncio.sleep(60)
        return await waiting.wait()

    assert shown(run(main)) == want


def test_waiting_pods_are_found_by_uid_and_can_be_removed() -> None:
    async def main() -> None:
        pods = WaitingPods()
        assert not pods.reject("p-uid")
        waiting = WaitingPod(info(), {"A": 10})
        pods.add(waiting)
        assert pods.get("p-uid") is waiting
        assert list(pods) == [waiting]
        assert len(pods) == 1
        assert pods.reject("p-uid")
        assert not pods.reject("p-uid")
        assert shown(await waiting.wait()) == ("Unschedulable", "removed", "")
        pods.remove("p-uid")
        pods.remove("p-uid")
        assert pods.get("p-uid") is None

    run(main)


# -- pods in PreBind ---------------------------------------------------------------------------------------


def test_work_that_ends_in_time_cannot_be_called_off_any_more() -> None:
    async def main() -> None:
        async def work() -> Status | None:
            return Status.unschedulable("no")

        entry = PodInPreBind(asyncio.ensure_future(work()))
        assert shown(await entry.result()) == ("Unschedulable", "no", "")
        assert entry.mark_prebound()
        assert not entry.cancel("too late")

    run(main)


def test_work_that_is_called_off_fails_with_the_cause() -> None:
    async def main() -> None:
        async def work() -> Status | None:
            await asyncio.sleep(1000)
            return None

        entry = PodInPreBind(asyncio.ensure_future(work()))
        await asyncio.sleep(1)
        assert entry.cancel("preempted")
        assert entry.cancel("again")
        assert shown(await entry.result()) == ("Error", "preempted", "")
        assert not entry.mark_prebound()

    run(main)


def test_a_write_under_way_ends_before_the_work_is_called_off() -> None:
    async def main() -> None:
        pods, log = PodsInPreBind(), []

        async def work() -> Status | None:
            for name in ("first", "second"):
                with pods.writing("u"):
                    log.append(f"{name} begun")
                    await asyncio.sleep(10)
                    log.append(f"{name} written")
            return None

        entry = PodInPreBind(asyncio.ensure_future(work()))
        pods.add("u", entry)
        await asyncio.sleep(1)
        assert entry.cancel("preempted")
        assert entry.cancel("by another one")
        assert shown(await entry.result()) == ("Error", "preempted", "")
        assert log == ["first begun", "first written"]
        assert not entry.mark_prebound()

    run(main)


def test_work_of_a_pod_that_is_not_in_pre_bind_is_called_off_at_once() -> None:
    async def main() -> None:
        pods, task = PodsInPreBind(), asyncio.ensure_future(asyncio.sleep(1000))
        with pods.writing("u"):
            pods.end("u", [task])
            await asyncio.sleep(0)
            assert task.cancelled()

    run(main)


def test_an_unrequested_cancellation_is_passed_on() -> None:
    async def main() -> None:
        async def work() -> Status | None:
            await asyncio.sleep(1000)
            return None

        task = asyncio.ensure_future(work())
        entry = PodInPreBind(task)
        with entry.writing():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entry.result()

    run(main)


def test_pods_in_pre_bind_are_found_by_uid() -> None:
    async def main() -> None:
        pods = PodsInPreBind()
        task: asyncio.Future[Status | None] = asyncio.get_running_loop().create_future()
        entry = PodInPreBind(task)
        pods.add("u", entry)
        assert pods.get("u") is entry
        pods.remove("u")
        pods.remove("u")
        assert pods.get("u") is None
        task.cancel()

    run(main)
