"""A binding task that ends unexpectedly: its pod is tried again, and the scheduler continues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from harness import World, a_pod, play
from recording import Answers, holder

from kubesched.scheduler.framework.status import Status
from task_kit import HOWS, How, kill, task_names


def kill_task(prefix: str, how: How) -> None:
    main = asyncio.current_task()
    assert main is not None
    [name] = [name for name in task_names(main) if name.startswith(prefix)]
    kill(main, name, how)


def _what_is_logged(how: How) -> str:
    """A cancelled binding has ended; an error at an await is that of the plugin that waits."""
    return r"plugin \w+ failed" if how == "raise" else "binding pod default/p ended unexpectedly"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_binding_that_dies_while_it_is_written(when: Any, how: How) -> None:
    """The answer is on its way, or the request: only the API server knows whether the pod is bound.

    After an error the pod is read. After a cancellation it is not.
    """
    is_read = when == "after" and how == "raise"

    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.faults.delay("bind", 5, when=when, times=1)
        world.create(a_pod("p", "600m"))
        await world.sleep(1)
        kill_task("bind default/p", how)
        await world.step()
        world.create(a_pod("q", "300m"))
        await world.settle()
        assert world.node_of("p") == world.node_of("q") == "n1"
        assert len(world.binds) == 2
        assert world.metric("schedule_attempts_total", "error", "default-scheduler") == int(not is_read)
        assert world.metric("goroutines", "binding") == 0

    play(scenario, expect_errors=[_what_is_logged(how), "?cannot forget pod"])


@pytest.mark.parametrize("how", HOWS)
def test_a_binding_that_dies_while_it_waits_on_permit(how: How) -> None:
    tries: list[str] = []

    def permit(state: Any, pod: Any, node_name: str) -> Any:
        tries.append(pod.name)
        return (Status.wait(), 60.0) if len(tries) == 1 else (None, 0.0)

    diary = Answers(permit=permit)

    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("p", "600m"))
        await world.sleep(1)
        kill_task("bind default/p", how)
        await world.settle()
        assert world.node_of("p") == "n1"
        assert len(world.binds) == 1
        assert not len(world.scheduler.waiting_pods)

    play(
        scenario,
        plugins=[holder(diary, "Gate", "permit")],
        expect_errors=["binding pod default/p ended unexpectedly"],
    )


@pytest.mark.parametrize(
    ("task", "how"),
    [("bind default/p", "cancel"), ("PreBind default/p", "cancel"), ("PreBind default/p", "raise")],
)
def test_a_binding_whose_pre_bind_work_dies(task: str, how: How) -> None:
    begun: list[str] = []

    async def work(state: Any, pod: Any, node_name: str) -> None:
        begun.append(pod.name)
        if len(begun) == 1:
            await asyncio.sleep(30)

    diary = Answers(pre_bind=work)

    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("p", "600m"))
        await world.sleep(1)
        kill_task(task, how)
        await world.settle()
        assert world.node_of("p") == "n1"
        assert begun == ["p", "p"]
        assert len(world.binds) == 1

    play(
        scenario,
        plugins=[holder(diary, "Slow", "pre_bind")],
        expect_errors=[_what_is_logged(how)],
    )


def test_a_binding_that_dies_after_it_was_written_stays_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        def broken(*arguments: Any) -> None:
            raise KeyError("a defect in counting")

        monkeypatch.setattr(world.scheduler.bindings._attempts, "scheduled", broken)
        world.nodes(1, "1")
        world.create(a_pod("p", "600m"), a_pod("q", "600m"))
        await world.settle()
        assert len(world.binds) == 1

    play(scenario, expect_errors=["binding pod default/. ended unexpectedly"])


def test_a_pod_that_cannot_even_be_given_back_does_not_end_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        real = world.scheduler.bindings._failures.fail
        failed: list[Any] = []

        def broken(*arguments: Any) -> None:
            if len(failed) < 2:
                failed.append(arguments)
                raise KeyError("a defect in failing")
            real(*arguments)

        monkeypatch.setattr(world.scheduler.bindings._failures, "fail", broken)
        world.nodes(1, "1")
        world.faults.delay("bind", 5, times=1)
        world.create(a_pod("p", "600m"))
        await world.sleep(1)
        kill_task("bind default/p", "raise")
        await world.step()
        world.create(a_pod("q", "100m"))
        await world.sleep(1)
        assert world.node_of("q") == "n1"
        world.patch("p", {"metadata": {"labels": {"try": "again"}}})
        await world.settle()
        assert world.node_of("p") == "n1"

    errors = [
        _what_is_logged("raise"),
        "binding pod default/p ended unexpectedly",
        "pod default/p cannot be given back",
    ]
    play(scenario, expect_errors=errors)
