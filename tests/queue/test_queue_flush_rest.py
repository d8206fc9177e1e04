"""The flush loops rest while no pod waits, and flush at the same times as if they had not."""

from __future__ import annotations

import asyncio
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import pytest

from builders import a_pod, info
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.framework.metrics import GaugeValue
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.queue.flushing import FlushLoops
from kubesched.scheduler.queue.leftovers import MOST_AT_ONCE
from kubesched.scheduler.queue.slices import Slices
from kubesched.scheduler.queue.unschedulable import UnschedulablePods

START = 1_735_689_600.25


class Waiting(list[float]):
    """Stands in for a sub-queue: pods are times."""

    def oldest(self) -> float | None:
        return min(self, default=None)

    def next_completion(self) -> float | None:
        return min(self, default=None)


class Queues:
    def __init__(self) -> None:
        self.backoff = Waiting()
        self.unschedulable = Waiting()


async def flushes(arrivals: dict[float, str], until: float) -> list[tuple[str, float]]:
    """Return when pods would be flushed, in seconds since the start, if they come at the times given and stay."""
    loop = asyncio.get_running_loop()
    clock, queues, seen = VirtualClock(loop), Queues(), []

    def note(what: str, pods: Waiting) -> None:
        if pods:
            seen.append((what, round(loop.time(), 6)))
            pods.clear()

    loops = FlushLoops(
        clock,
        queues,  # type: ignore[arg-type]  # the part that the loops use
        300.0,
        Slices(loop.time, lambda: None),
        flush_backoff=lambda: note("backoff", queues.backoff),
        flush_leftover=lambda: note("unschedulable", queues.unschedulable),
    )

    def arrive(where: str) -> None:
        getattr(queues, where).append(clock.now())
        loops.resume()

    for when, where in arrivals.items():
        loop.call_at(when, arrive, where)
    task = loop.create_task(loops.run())
    await asyncio.sleep(until)
    loops.cancel()
    await task
    return seen


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        # Backoff ends are looked at in whole seconds of the clock, which began at a quarter past one.
        ({0.5: "backoff"}, [("backoff", 0.75)]),
        ({0.75: "backoff"}, [("backoff", 1.75)]),
        ({1000.1: "backoff", 5000.8: "backoff"}, [("backoff", 1000.75), ("backoff", 5001.75)]),
        # The other flush is every 30 seconds from the start on.
        ({1.0: "unschedulable"}, [("unschedulable", 30.0)]),
        ({1000.0: "unschedulable"}, [("unschedulable", 1020.0)]),
        ({86_400.5: "unschedulable", 86_500.0: "backoff"}, [("unschedulable", 86_430.0), ("backoff", 86_500.75)]),
    ],
)
def test_flushes_are_when_they_would_be_without_rest(
    arrivals: dict[float, str], expected: list[tuple[str, float]]
) -> None:
    assert run_virtual(flushes(arrivals, 100_000.0), start=START) == expected


def test_many_pods_that_waited_too_long_are_flushed_in_parts_and_gated_ones_do_not_count() -> None:
    """Pods that come meanwhile wait for one part."""

    async def main() -> list[tuple[float, int]]:
        loop = asyncio.get_running_loop()
        clock, gauge = VirtualClock(loop), GaugeValue()
        pods, seen = UnschedulablePods(["default-scheduler"], gauge, gauge), []
        for number in range(2 * MOST_AT_ONCE + 10):
            record = QueuedPodInfo(info(a_pod(f"pod-{number}")), clock.now())
            record.gating_plugin = "Gate" if number < 400 else ""
            pods.put(f"pod-{number}", record)
        queues = SimpleNamespace(unschedulable=pods, backoff=Waiting())

        def flush() -> None:
            old = [parked.key for parked in islice(pods.overdue(clock.now(), 300.0), MOST_AT_ONCE)]
            if old:
                seen.append((loop.time(), len(old)))
            for key in old:
                pods.remove(key)

        loops = FlushLoops(
            clock,
            cast("Any", queues),
            300.0,
            Slices(loop.time, lambda: None),
            flush_backoff=lambda: None,
            flush_leftover=flush,
        )
        task = loop.create_task(loops.run())
        await asyncio.sleep(1000)
        loops.cancel()
        await task
        return seen

    assert run_virtual(main(), start=START) == [(330.0, MOST_AT_ONCE), (330.5, MOST_AT_ONCE + 10 - 400)]
