"""The event loop in virtual time: everything of asyncio that waits, and nothing that touches the world."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.lab.simulate.run.virtual_time import (
    VirtualClock,
    VirtualDeadlockError,
    VirtualTimeError,
    VirtualTimeLoop,
    run_virtual,
)


def now() -> float:
    return asyncio.get_running_loop().time()


def this_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def test_a_century_passes_in_no_time() -> None:
    async def main() -> float:
        for _ in range(100):
            await asyncio.sleep(365 * 86400)
        return now()

    started = time.monotonic()
    assert run_virtual(main()) == 100 * 365 * 86400
    assert time.monotonic() - started < 60


def test_the_clock_counts_from_its_epoch() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        clocks = [VirtualClock(loop), VirtualClock(loop, 0.0)]
        await asyncio.sleep(2.5)
        return [clock.now() for clock in clocks]

    assert run_virtual(main(), start=1000.0) == [1002.5, 2.5]


async def waits_for_sleep() -> None:
    await asyncio.sleep(5)


async def waits_with_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.sleep(100)


async def waits_with_timeout_at() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout_at(now() + 5):
            await asyncio.Event().wait()


async def waits_with_wait_for() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 5)


async def waits_for_the_first() -> None:
    sleepers = {asyncio.create_task(asyncio.sleep(delay)) for delay in (5, 6, 7)}
    done, pending = await asyncio.wait(sleepers, return_when=asyncio.FIRST_COMPLETED)
    assert (len(done), len(pending)) == (1, 2)


async def waits_for_a_callback() -> None:
    called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(5, called.set_result, None)
    await called


async def waits_for_a_queue() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    asyncio.get_running_loop().call_at(now() + 5, queue.put_nowait, 1)
    assert await queue.get() == 1


async def waits_for_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(5))
        group.create_task(asyncio.sleep(3))


async def waits_past_a_cancelled_timer() -> None:
    for delay in range(200):
        asyncio.get_running_loop().call_later(delay / 100, print).cancel()
    await asyncio.sleep(5)


WAITS = [
    waits_for_sleep,
    waits_with_timeout,
    waits_with_timeout_at,
    waits_with_wait_for,
    waits_for_the_first,
    waits_for_a_callback,
    waits_for_a_queue,
    waits_for_a_group,
    waits_past_a_cancelled_timer,
]


@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: wait.__name__)
@pytest.mark.parametrize("start", [0.0, 1e8])
def test_every_way_of_waiting_takes_its_virtual_time(wait: Callable[[], Awaitable[None]], start: float) -> None:
    async def main() -> None:
        await asyncio.sleep(start)
        await wait()
        assert now() == start + 5

    run_virtual(main())


def test_timers_of_one_time_fire_in_the_order_they_were_set() -> None:
    fired: list[int] = []

    async def main() -> None:
        for number in range(50):
            asyncio.get_running_loop().call_at(7.0, fired.append, number)
        await asyncio.sleep(7)

    run_virtual(main())
    assert fired == list(range(50))


def test_time_stands_still_while_there_is_work() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(0.001, pytest.fail, "time moved")
        for _ in range(1000):
            await asyncio.sleep(0)
        assert now() == 0.0

    run_virtual(main())


def trace(seed: int) -> list[tuple[float, str]]:
    """A tangle of tasks, sets of tasks and cancellations, and what happened in which order."""
    rng = Random(seed)
    log: list[tuple[float, str]] = []

    async def worker(depth: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        name = task.get_name()
        try:
            await asyncio.sleep(rng.choice([0, 0, 0.5, 1, 1, rng.random()]))
            log.append((now(), name))
            if depth:
                children = {asyncio.create_task(worker(depth - 1)) for _ in range(rng.randrange(4))}
                if children:
                    done, pending = await asyncio.wait(children, timeout=1, return_when=asyncio.FIRST_COMPLETED)
                    for child in [*done, *pending]:
                        log.append((now(), f"{name} > {child.get_name()}"))
                        child.cancel()
        except asyncio.CancelledError:
            log.append((now(), f"{name} cancelled"))
            raise

    async def main() -> None:
        for _ in range(3):
            try:
                async with asyncio.timeout(2.0), asyncio.TaskGroup() as group:
                    for _ in range(8):
                        group.create_task(worker(3))
                    await asyncio.sleep(5)
            except TimeoutError:
                log.append((now(), "out of time"))

    run_virtual(main())
    return log


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_two_runs_are_the_same(seed: int) -> None:
    first = trace(seed)
    litter = [object() for _ in range(1000)]  # other addresses the second time
    assert trace(seed) == first
    assert len(first) > 10
    assert litter


async def thread() -> None:
    await asyncio.to_thread(print)


async def connection() -> None:
    await asyncio.open_connection("localhost", 80)


async def server() -> None:
    await asyncio.start_server(lambda *streams: None, "localhost", 0)


async def subprocess() -> None:
    await asyncio.create_subprocess_exec("true")


async def reader() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def signal_handler() -> None:
    asyncio.get_running_loop().add_signal_handler(15, print)


async def name_lookup() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


@pytest.mark.parametrize(
    "attempt", [thread, connection, server, subprocess, reader, signal_handler, name_lookup], ids=lambda it: it.__name__
)
def test_the_real_world_is_refused(attempt: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        with pytest.raises(VirtualTimeError, match="not possible in virtual time"):
            await attempt()

    run_virtual(main())


def test_calls_from_other_threads_are_refused_and_own_ones_are_not() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        errors: list[Exception] = []

        def intrude() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except VirtualTimeError as error:
                errors.append(error)

        other = threading.Thread(target=intrude)
        other.start()
        other.join()
        assert len(errors) == 1
        called: asyncio.Future[None] = loop.create_future()
        loop.call_soon_threadsafe(called.set_result, None)
        await called

    run_virtual(main())


def test_waiting_without_end_is_an_error_that_names_the_waiters() -> None:
    async def main() -> None:
        stuck = asyncio.create_task(asyncio.Event().wait(), name="stuck one")
        await asyncio.sleep(3)
        await stuck

    with pytest.raises(VirtualDeadlockError, match=r"at virtual time 3 s.*these tasks wait: Task-1, stuck one"):
        run_virtual(main())


def test_results_and_exceptions_come_through() -> None:
    async def main(fail: bool) -> int:
        await asyncio.sleep(1)
        if fail:
            raise KeyError("mine")
        return 42

    assert run_virtual(main(False)) == 42
    with pytest.raises(KeyError, match="mine"):
        run_virtual(main(True))


def test_background_tasks_are_cancelled_at_the_end() -> None:
    ended: list[float] = []

    async def background() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(now())

    async def main() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        assert not task.done()

    run_virtual(main())
    assert ended == [1.0]


def test_tasks_left_behind_are_cancelled_oldest_first() -> None:
    ended: list[int] = []

    async def background(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def main() -> None:
        this_loop().tasks = [asyncio.create_task(background(number)) for number in range(100)]  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    run_virtual(main())
    assert ended == list(range(100))


def test_a_task_that_fails_while_being_cancelled_is_reported() -> None:
    reported: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            raise ValueError("clumsy")

    async def main() -> None:
        this_loop().set_exception_handler(lambda loop, context: reported.append(str(context["exception"])))
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        assert not task.done()

    run_virtual(main())
    assert reported == ["clumsy"]


def test_next_timer_skips_cancelled_ones() -> None:
    async def main() -> None:
        loop = this_loop()
        assert loop.next_timer() is None
        first = loop.call_later(1, pytest.fail)
        second = loop.call_later(2, print)
        assert loop.next_timer() == 1.0
        first.cancel()
        assert loop.next_timer() == 2.0
        second.cancel()
        assert loop.next_timer() is None
        await asyncio.sleep(5)
        assert now() == 5.0

    run_virtual(main())


def test_many_cancelled_timers_are_dropped_and_the_others_fire_in_their_order() -> None:
    fired: list[int] = []

    async def main() -> None:
        loop = this_loop()
        timers = [loop.call_later(1_000 - number % 7, fired.append, number) for number in range(500)]
        for number, timer in enumerate(timers):
            if number % 10:
                timer.cancel()
        assert len(loop._scheduled) == 500
        await asyncio.sleep(1)
        assert len(loop._scheduled) == 50
        timers[490].cancel()
        await asyncio.sleep(2_000)

    run_virtual(main())
    assert fired == sorted(range(0, 490, 10), key=lambda number: (-(number % 7), number))


def test_the_loop_is_the_same_with_asyncio_debugging() -> None:
    async def main() -> None:
        this_loop().set_debug(True)
        fired: list[str] = []
        this_loop().call_later(3, fired.append, "timer")
        await asyncio.sleep(5)
        assert (fired, now()) == (["timer"], 5.0)

    run_virtual(main())


def test_idle_waits_for_all_other_tasks_but_not_for_time() -> None:
    steps: list[str] = []

    async def busy(name: str) -> None:
        for number in range(3):
            await asyncio.sleep(0)
            steps.append(f"{name}{number}")
        await asyncio.sleep(10)
        steps.append("late")

    async def main() -> None:
        loop = this_loop()
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(busy(name)) for name in "ab"]
        await loop.idle()
        assert steps == ["a0", "b0", "a1", "b1", "a2", "b2"]
        assert now() == 0.0
        await asyncio.gather(loop.idle(), loop.idle())
        assert now() == 0.0
        await asyncio.gather(*tasks)
        assert now() == 10.0

    run_virtual(main())


def test_idle_with_nothing_at_all_to_come_is_no_deadlock() -> None:
    async def main() -> None:
        await this_loop().idle()

    run_virtual(main())


def test_advance_drives_the_loop_from_outside() -> None:
    loop = VirtualTimeLoop(start_epoch=100.0)
    clock = VirtualClock(loop)
    seen: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(clock.now())
            await asyncio.sleep(0)

    task = loop.create_task(tick())
    loop.advance(3)
    assert seen == [101.0, 102.0, 103.0]
    assert loop.time() == 3.0
    loop.advance(0.5)
    assert loop.time() == 3.5
    assert len(seen) == 3
    loop.call_later(0.5, lambda: loop.call_later(0, seen.append, -1.0))
    loop.advance(0.5)
    assert seen[3:] == [104.0, -1.0]
    with pytest.raises(ValueError, match="backwards"):
        loop.advance(-1)
    task.cancel()
    loop.advance(0)
    assert task.cancelled()
    loop.close()


def test_a_timer_at_no_time_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match="number"):
            asyncio.get_running_loop().call_at(float("nan"), print)

    run_virtual(main())
