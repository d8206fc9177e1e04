"""No task of a simulation ends unnoticed: each one is killed in turn, and the run must end with that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kubesched.base.tasks import TaskCrashedError
from kubesched.lab.simulate import Result, simulate
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry
from task_kit import HOWS, How, KilledError, kill, task_names

Hook = Callable[["asyncio.Task[Any]"], None]

#: In the middle of a simulation, when everything waits: its only pod runs.
MIDDLE = 7.25


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"kubesched.io/duration": "1m"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    }


def run(hook: Hook) -> Result:
    """A simulation of a minute that calls the hook in its middle."""

    async def main() -> Result:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_at(MIDDLE, hook, task)
        return await simulate([pod("p")], registry=in_tree_registry(), nodes=1)

    return run_virtual(main())


async def with_controllers(hook: Hook) -> None:
    """All parts there are, for ten seconds."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    clock = VirtualClock(loop)
    embedded = Embedded(
        default_config(),
        in_tree_registry(),
        clock=clock,
        controllers=True,
        kubelet_options={"heartbeat_seconds": 10.0},
    )
    loop.call_at(MIDDLE, hook, task)
    async with embedded.running():
        await asyncio.sleep(10)


def names_in(play: Callable[[Hook], Any]) -> list[str]:
    found: list[str] = []
    play(lambda main: found.extend(task_names(main)))
    return found


def play_with_controllers(hook: Hook) -> None:
    run_virtual(with_controllers(hook))


SIMULATION = names_in(run)
EVERYTHING = names_in(play_with_controllers)


def test_the_names_come_from_the_running_program() -> None:
    for name in ("scheduler", "events", "kubelets", "hollow-timers", "informer-pods", "queue-flush-backoff"):
        assert name in SIMULATION
    assert {name for name in EVERYTHING if name.startswith(("cache-", "controller-"))}
    assert len(set(EVERYTHING)) == len(EVERYTHING)
    assert set(SIMULATION) < set(EVERYTHING)


def test_an_undisturbed_simulation_ends_without_an_error() -> None:
    result = run(lambda main: None)
    assert result.stopped == "settled"
    assert result.totals.succeeded == 1


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", SIMULATION)
def test_a_task_that_dies_ends_the_simulation(name: str, how: How) -> None:
    with pytest.raises(TaskCrashedError) as caught:
        run(lambda main: kill(main, name, how))
    check(caught.value, name, how)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", [name for name in EVERYTHING if name not in SIMULATION])
def test_a_controllers_task_that_dies_ends_the_run(name: str, how: How) -> None:
    with pytest.raises(TaskCrashedError) as caught:
        play_with_controllers(lambda main: kill(main, name, how))
    check(caught.value, name, how)


def check(crash: TaskCrashedError, name: str, how: How) -> None:
    assert crash.task == name
    assert isinstance(crash.__cause__, KilledError) is (how == "raise")
