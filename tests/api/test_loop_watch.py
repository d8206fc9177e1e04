"""The watch names what holds the event loop, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest

from kubesched.base import loop_watch
from kubesched.base.loop_watch import Hold, HoldLog, HoldReporter, watch_loop
from kubesched.scheduler.queue.heap import KeyedHeap


class _SeenWatch(loop_watch._Watch):
    """Says when something was noted."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.noted = False

    def _note(self, frame: FrameType) -> None:
        super()._note(frame)
        self.noted = bool(self._seen)


def until_noted(watch: _SeenWatch) -> int:
    ends = time.monotonic() + 60
    while not watch.noted:
        assert time.monotonic() < ends
    return 0


def test_what_holds_the_loop_is_named() -> None:
    async def main() -> Hold:
        arrived: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()

        def on_hold(hold: Hold) -> None:
            if not arrived.done():
                arrived.set_result(hold)

        watch = _SeenWatch(asyncio.get_running_loop(), on_hold, 0.01)
        watch.start()
        try:
            KeyedHeap(until_noted).put("a", watch)  # holds the loop
            return await asyncio.wait_for(arrived, 60)
        finally:
            watch.stop()

    hold = asyncio.run(main())
    assert hold.seconds > 0.01
    assert hold.cpu_seconds >= 0
    # The innermost function of the package.
    assert hold.where.rpartition(":")[0] == "kubesched.scheduler.queue.heap.KeyedHeap.put"


def test_a_sample_that_is_taken_while_the_others_are_counted_does_not_change_them() -> None:
    async def main() -> None:
        watch = loop_watch._Watch(asyncio.get_running_loop(), lambda hold: None, 60)
        before = watch._seen
        watch._beat()
        watch._seen["later"] += 1
        assert not before
        assert watch._handle is not None
        watch._handle.cancel()

    asyncio.run(main())


def test_a_function_of_the_package_is_named_when_it_calls_something_else() -> None:
    found: list[str] = []

    def place(item: int) -> float:
        found.append(loop_watch._place(sys._getframe()))
        return 0.0

    KeyedHeap(place).put("a", 1)
    assert [name.rpartition(":")[0] for name in found] == ["kubesched.scheduler.queue.heap.KeyedHeap.put"]


def test_a_free_loop_has_no_holds_and_the_thread_ends() -> None:
    holds: list[Hold] = []

    async def main() -> None:
        before = threading.active_count()
        with watch_loop(holds.append, limit=60):
            assert threading.active_count() == before + 1
            for _ in range(100):
                await asyncio.sleep(0)
        assert threading.active_count() == before

    asyncio.run(main())
    assert holds == []


def test_the_log_keeps_the_longest() -> None:
    log = HoldLog(keep=2)
    for seconds in (0.1, 0.4, 0.2, 0.3):
        log.add(Hold(seconds, 0.0, f"f{seconds}"))
    assert log.count == 4
    assert [hold.where for hold in log.longest] == ["f0.4", "f0.3"]


def test_a_function_is_logged_once_a_minute_and_only_for_its_own_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    observed: list[float] = []
    monkeypatch.setattr("kubesched.base.loop_watch.time.monotonic", lambda: now)
    report = HoldReporter(logging.getLogger("held"), observed.append, least=0.06)
    for hold in (
        Hold(0.5, 0.01, "m.late:1"),
        Hold(0.5, 0.055, "m.short:1"),
        Hold(0.08, 0.07, "m.f:7"),
        Hold(0.08, 0.07, "m.f:9"),
        Hold(0.2, 0.1, ""),
    ):
        report(hold)
    now = 161.0
    report(Hold(0.09, 0.09, "m.f:8"))
    assert observed == [0.055, 0.07, 0.07, 0.1, 0.09]
    assert [record.getMessage() for record in caplog.records] == [
        "the event loop was held for 80 ms (70 ms of CPU) by m.f:7",
        "the event loop was held for 200 ms (100 ms of CPU) by a function that was not seen",
        "the event loop was held for 90 ms (90 ms of CPU) by m.f:8, and 1 more times since it was last logged",
    ]
