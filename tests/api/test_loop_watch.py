"""The watch names what holds the event loop, and nothing else."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from kubesched.api import loop_watch
from kubesched.api.loop_watch import Hold, HoldLog, watch_loop
from kubesched.queue.heap import KeyedHeap


class _SeenWatch(loop_watch._Watch):
    """Says when its thread has noted something."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.noted = threading.Event()

    def _look_once(self) -> None:
        super()._look_once()
        if self._seen:
            self.noted.set()


def test_what_holds_the_loop_is_named() -> None:
    async def main() -> Hold:
        arrived: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()
        watch = _SeenWatch(asyncio.get_running_loop(), lambda hold: arrived.done() or arrived.set_result(hold), 0.01)
        watch.start()
        try:
            assert watch.noted.wait(60)  # holds the loop
            return await asyncio.wait_for(arrived, 60)
        finally:
            watch.stop()

    hold = asyncio.run(main())
    assert hold.seconds > 0.01
    assert hold.cpu_seconds >= 0
    # No function of the package was running, so the innermost of all is named.
    assert hold.where.startswith("threading.")


def test_a_function_of_the_package_is_named_when_it_calls_something_else() -> None:
    found: list[str] = []

    def place(item: int) -> float:
        found.append(loop_watch._place(sys._getframe()))
        return 0.0

    KeyedHeap(place).put("a", 1)
    assert [name.rpartition(":")[0] for name in found] == ["kubesched.queue.heap.KeyedHeap.put"]


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
