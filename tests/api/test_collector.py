"""The collector traverses new objects once, and all of them rarely."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from kubesched.api.kinds import NODES, PODS
from kubesched.base.collector import CollectorTimer, all_objects, collector_paused, settle_collector
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry


class _Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Every test leaves the collector as it was."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    assert gc.get_threshold() == thresholds
    assert gc.callbacks == callbacks
    assert gc.isenabled()


@dataclass
class _Clocks:
    """CPU and time of a process, as a test sets them."""

    cpu: float = 0.0
    now: float = 0.0
    timer: CollectorTimer = field(init=False)

    def look(self, *, seconds: float = 1.0, cpu: float = 0.0) -> None:
        self.now += seconds
        self.cpu += cpu
        self.timer.look()


@pytest.fixture
def clocks() -> Iterator[_Clocks]:
    """A settled collector and its timer, which only moves when it is told to."""
    undo = settle_collector()
    loop = asyncio.new_event_loop()
    clocks = _Clocks()
    clocks.timer = CollectorTimer(loop, 1.0, cpu=lambda: clocks.cpu, now=lambda: clocks.now)
    yield clocks
    clocks.timer.stop()
    loop.close()
    undo()


def test_what_survives_a_pass_is_not_traversed_again(clocks: _Clocks) -> None:
    kept = [[number] for number in range(5000)]
    clocks.look()
    assert not any(item is kept[0] for item in gc.get_objects())  # which leaves out what is frozen
    assert len(gc.get_objects()) < 500


def test_all_objects_are_those_too_that_are_left_alone(clocks: _Clocks) -> None:
    ring = _Ring()
    clocks.look()
    assert any(item is ring for item in all_objects())
    assert not any(item is ring for item in gc.get_objects())  # and are left alone afterwards


def test_a_cycle_that_ends_before_a_pass_is_freed_by_it(clocks: _Clocks) -> None:
    gone = weakref.ref(_Ring())
    assert gone() is not None
    clocks.look()
    assert gone() is None


def test_a_cycle_that_was_in_use_at_a_pass_waits_for_a_full_one_in_a_quiet_time(clocks: _Clocks) -> None:
    ring = _Ring()
    gone = weakref.ref(ring)
    clocks.look()
    del ring
    clocks.look(seconds=3600)  # quiet, but little CPU was used since the start
    clocks.look(seconds=700, cpu=601)  # busy
    clocks.look(seconds=9)
    assert gone() is not None
    clocks.look(seconds=2)
    assert gone() is None
    gone = weakref.ref(_Ring())
    clocks.look()
    assert gone() is None  # new objects are still traversed


def test_a_process_that_is_never_quiet_makes_a_full_pass_in_the_end(clocks: _Clocks) -> None:
    ring = _Ring()
    gone = weakref.ref(ring)
    clocks.look()
    del ring
    for _ in range(59):
        clocks.look(seconds=200, cpu=100)
    assert gone() is not None
    clocks.look(seconds=200, cpu=100)
    assert gone() is None


def test_after_a_full_pass_the_next_one_is_as_far_away_as_the_first() -> None:
    undo = settle_collector()
    loop = asyncio.new_event_loop()
    cpu, now, passes = 0.0, 0.0, []
    timer = CollectorTimer(loop, 1.0, cpu=lambda: cpu, now=lambda: now)

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            passes.append(cpu)

    gc.callbacks.append(note)
    for _ in range(3):
        cpu += 600.0
        now += 600.0
        for _ in range(3):
            timer.look()
            now += 20.0
    gc.callbacks.remove(note)
    timer.stop()
    loop.close()
    undo()
    assert passes == [600.0, 1200.0, 1800.0]


def test_in_an_event_loop_passes_come_by_themselves() -> None:
    async def main() -> None:
        undo = settle_collector(0.001)
        gone = weakref.ref(_Ring())
        freed = asyncio.get_running_loop().create_future()
        weakref.finalize(gone(), freed.set_result, None)
        await asyncio.wait_for(freed, 60)
        undo()

    asyncio.run(main())


def test_a_paused_collector_is_settled_afterwards_until_the_end() -> None:
    with ExitStack() as stack:
        with collector_paused(stack.callback):
            assert not gc.isenabled()
            kept = [[number] for number in range(1000)]
        assert gc.isenabled()
        assert not any(item is kept[0] for item in gc.get_objects())


def test_a_setup_that_fails_leaves_the_collector_as_it_was() -> None:
    with pytest.raises(ValueError, match="no"), ExitStack() as stack, collector_paused(stack.callback):
        raise ValueError("no")


def test_no_pod_leaves_garbage_in_cycles_whatever_becomes_of_it() -> None:
    def pod(number: int) -> dict[str, object]:
        requests = {"cpu": "100m" if number % 2 else "900"}
        containers = [{"name": "main", "image": "a", "resources": {"requests": requests}}]
        return {"metadata": {"name": f"pod-{number}"}, "spec": {"containers": containers}}

    async def main() -> list[int]:
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(default_config(), in_tree_registry(), clock=clock, seed=1, controllers=True)
        store, found = embedded.store, []
        async with embedded.running():
            await asyncio.sleep(10)
            for number in range(3):
                node = {"metadata": {"name": f"node-{number}"}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}}
                store.create(NODES, "", node)
            for _ in range(2):  # what happens once, as the compiling of decoders, happens in the first round
                gc.collect()
                for number in range(60):
                    store.create(PODS, "default", pod(number))
                await asyncio.sleep(60)
                assert {pod.status.phase for pod in embedded.pods()} == {"Pending", "Running"}
                for number in range(60):
                    store.delete(PODS, "default", f"pod-{number}")
                await asyncio.sleep(60)
                found.append(gc.collect())
        return found

    assert run_virtual(main())[1] == 0
