"""Supervisors: which ends of tasks are crashes, who is interrupted, and what is raised where."""

from __future__ import annotations

import ast
import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

import kubesched
from kubesched.base.tasks import EndedFirstError, Supervisor, TaskCrashedError, child, unless
from kubesched.lab.simulate.run.virtual_time import run_virtual

T = TypeVar("T")


async def forever() -> None:
    await asyncio.Event().wait()


async def fail_after(seconds: float, error: Exception | None = None) -> None:
    await asyncio.sleep(seconds)
    raise error or ValueError("boom")


RUNNERS: list[Any] = [asyncio.run, run_virtual]


@pytest.fixture(params=RUNNERS, ids=["real", "virtual"])
def play(request: pytest.FixtureRequest) -> Any:
    def run(main: Coroutine[Any, Any, T]) -> T:
        result: T = request.param(main)
        return result

    return run


def test_a_crash_ends_the_block_and_the_other_tasks_and_names_the_task(play: Any) -> None:
    ended: list[str] = []

    async def sibling() -> None:
        try:
            await forever()
        finally:
            ended.append("sibling")

    async def main() -> None:
        async with Supervisor("parts") as tasks:
            tasks.spawn(sibling(), "sibling")
            tasks.spawn(fail_after(0.01), "broken")
            try:
                await forever()
            finally:
                ended.append("block")

    with pytest.raises(TaskCrashedError, match="task broken failed: ValueError: boom") as caught:
        play(main())
    assert caught.value.task == "broken"
    assert isinstance(caught.value.__cause__, ValueError)
    assert ended == ["block", "sibling"]


def test_a_lasting_task_that_returns_or_is_cancelled_has_crashed(play: Any) -> None:
    async def returns() -> None:
        await asyncio.sleep(0.01)

    async def main(how: str) -> None:
        async with Supervisor("parts") as tasks:
            if how == "returned":
                tasks.spawn(returns(), "part")
            else:
                asyncio.get_running_loop().call_later(0.01, tasks.spawn(forever(), "part").cancel)
            await tasks.ended()

    for how in ("returned", "was cancelled"):
        with pytest.raises(TaskCrashedError, match=f"task part {how} without being stopped") as caught:
            play(main(how))
        assert caught.value.__cause__ is None


def test_the_end_of_the_block_stops_the_tasks_without_a_crash(play: Any) -> None:
    async def main() -> list[str]:
        async with Supervisor("parts") as tasks:
            tasks.spawn(forever(), "a")
            tasks.spawn(forever(), "b")
            names = tasks.names
            await asyncio.sleep(0.01)
        assert tasks.names == []
        assert tasks.crash is None
        return names

    assert play(main()) == ["a", "b"]


def test_tasks_that_need_not_last_may_return_and_be_cancelled(play: Any) -> None:
    async def main() -> int:
        async def answer() -> int:
            return 42

        async with Supervisor("parts") as tasks:
            task = tasks.spawn(answer(), "answer", lasting=False)
            tasks.spawn(forever(), "cancelled", lasting=False).cancel()
            await tasks.ended()
        return task.result()

    assert play(main()) == 42


def test_a_crash_before_a_guard_is_logged_and_raised_at_its_entry(caplog: pytest.LogCaptureFixture, play: Any) -> None:
    async def main() -> None:
        tasks = Supervisor("parts")
        tasks.spawn(fail_after(0), "broken")
        await asyncio.sleep(0.01)
        assert "parts: task broken failed: ValueError: boom" in caplog.text
        with pytest.raises(TaskCrashedError), tasks.guard():
            raise AssertionError("the block is not entered")
        await tasks.stop()  # raised once, that is enough

    play(main())


def test_a_cancellation_before_a_guard_is_raised_and_not_logged(caplog: pytest.LogCaptureFixture, play: Any) -> None:
    """A program that is interrupted cancels all its tasks, in any order; it has said that it was interrupted."""

    async def main() -> None:
        tasks = Supervisor("parts")
        task = tasks.spawn(forever(), "part")
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        await tasks.stop()

    with pytest.raises(TaskCrashedError, match="task part was cancelled without being stopped"):
        play(main())
    assert caplog.text == ""


def test_stop_raises_a_crash_that_no_guard_has_raised(play: Any) -> None:
    async def main() -> None:
        tasks = Supervisor("parts")
        tasks.spawn(fail_after(0), "broken")
        await asyncio.sleep(0.01)
        await tasks.stop()

    with pytest.raises(TaskCrashedError, match="task broken"):
        play(main())


def test_what_a_task_raises_while_it_is_stopped_is_not_lost(play: Any) -> None:
    async def clumsy() -> None:
        try:
            await forever()
        finally:
            raise ValueError("cleaning up")

    async def main() -> None:
        async with Supervisor("parts") as tasks:
            tasks.spawn(clumsy(), "clumsy")
            await asyncio.sleep(0.01)

    with pytest.raises(TaskCrashedError, match="task clumsy failed: ValueError: cleaning up"):
        play(main())


def test_later_crashes_are_logged(caplog: pytest.LogCaptureFixture, play: Any) -> None:
    async def main() -> None:
        async with Supervisor("parts") as tasks:
            tasks.spawn(fail_after(0.01), "first")
            tasks.spawn(fail_after(0.01, KeyError("two")), "second")
            await tasks.ended()

    with caplog.at_level(logging.ERROR), pytest.raises(TaskCrashedError, match="task first"):
        play(main())
    assert "task second failed: KeyError: 'two', after task first failed" in caplog.text


def test_a_cancellation_from_outside_passes_through(play: Any) -> None:
    async def block() -> None:
        async with Supervisor("parts") as tasks:
            tasks.spawn(forever(), "part")
            await tasks.ended()

    async def main() -> bool:
        task = child(block(), "block")
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert play(main())


def test_a_cancellation_from_outside_wins_over_a_crash_of_the_same_moment(play: Any) -> None:
    async def block() -> None:
        async with Supervisor("parts") as tasks:
            tasks.spawn(fail_after(0.01), "part")
            try:
                await forever()
            except asyncio.CancelledError:
                this = asyncio.current_task()
                assert this is not None
                this.cancel()
                raise

    async def main() -> asyncio.Task[None]:
        task = child(block(), "block")
        await asyncio.wait([task])
        return task

    task = play(main())
    # The crash is what stop() raises then: it is never lost, and the task ends either way.
    assert isinstance(task.exception(), TaskCrashedError)


def test_a_crash_passes_through_nested_supervisors_with_the_innermost_name(play: Any) -> None:
    async def component() -> None:
        async with Supervisor("inner") as tasks:
            tasks.spawn(fail_after(0.01), "innermost")
            await tasks.ended()

    async def main() -> None:
        async with Supervisor("outer") as tasks:
            tasks.spawn(component(), "component")
            await tasks.ended()

    with pytest.raises(TaskCrashedError, match="task innermost"):
        play(main())


def test_nested_guards_of_one_task_each_raise_their_own_crash(play: Any) -> None:
    raised: list[str] = []

    async def main() -> None:
        outer, inner = Supervisor("outer"), Supervisor("inner")
        try:
            with outer.guard():
                outer.spawn(fail_after(0.01), "a")
                inner.spawn(forever(), "b")
                try:
                    with inner.guard():
                        await forever()
                except TaskCrashedError as crash:
                    raised.append(f"inner {crash.task}")
        except TaskCrashedError as crash:
            raised.append(f"outer {crash.task}")
        await inner.stop()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    play(main())
    assert raised == ["outer a"]


def test_a_repaired_crash_does_not_end_anything(play: Any) -> None:
    repaired: list[str] = []

    async def main() -> None:
        both = asyncio.Event()

        def note(crash: TaskCrashedError) -> None:
            repaired.append(str(crash))
            if len(repaired) == 2:
                both.set()

        async with Supervisor("parts") as tasks:
            tasks.spawn(fail_after(0.01), "broken", lasting=False, on_crash=note)
            tasks.spawn(forever(), "killed", lasting=False, on_crash=note).cancel()
            await both.wait()
        assert tasks.crash is None

    play(main())
    assert repaired == ["task killed was cancelled without being stopped", "task broken failed: ValueError: boom"]


def test_a_repair_that_fails_is_a_crash(play: Any) -> None:
    def repair(crash: TaskCrashedError) -> None:
        raise KeyError("no way")

    async def main() -> None:
        async with Supervisor("parts") as tasks:
            tasks.spawn(fail_after(0.01), "broken", lasting=False, on_crash=repair)
            await forever()

    with pytest.raises(TaskCrashedError, match="task broken failed: KeyError: 'no way'"):
        play(main())


def test_unless_gives_the_result_or_says_that_the_end_came_first(play: Any) -> None:
    async def main() -> None:
        async def work(seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "done"

        end = asyncio.Event()
        assert await unless(end, work(0.01), "work") == "done"
        with pytest.raises(ValueError, match="boom"):
            await unless(end, fail_after(0), "work")
        asyncio.get_running_loop().call_later(0.01, end.set)
        with pytest.raises(EndedFirstError):
            await unless(end, work(60), "work")

    play(main())


def test_an_error_in_a_callback_of_ours_is_a_crash(play: Any) -> None:
    names: dict[str, Any] = {"__name__": "kubesched.made_up"}
    exec("def ring():\n    raise ValueError('boom')", names)

    async def main() -> None:
        async with Supervisor("parts") as tasks:
            tasks.catch_callbacks()
            asyncio.get_running_loop().call_later(0.01, names["ring"])
            await forever()

    with pytest.raises(TaskCrashedError, match=r"callback kubesched\.made_up\.ring failed: ValueError: boom"):
        play(main())


def test_an_error_in_a_callback_of_others_goes_to_the_handler_there_was(play: Any) -> None:
    seen: list[Any] = []

    def broken() -> None:
        raise ValueError("boom")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        keep = lambda loop, context: seen.append(context["exception"])  # noqa: E731 - one line
        loop.set_exception_handler(keep)
        async with Supervisor("parts") as tasks:
            tasks.catch_callbacks()
            loop.call_soon(broken)
            await asyncio.sleep(0.01)
        assert loop.get_exception_handler() is keep

    play(main())
    assert [repr(error) for error in seen] == ["ValueError('boom')"]


# -- the rule ----------------------------------------------------------------------------------------------

#: What starts a task, by the last part of what is called.
STARTERS = {"create_task", "ensure_future", "TaskGroup", "gather", "as_completed", "shield", "run_coroutine_threadsafe"}
SOURCES = Path(kubesched.__file__).parent


def starts(source: str) -> list[str]:
    """The calls in a module that start a task, as ``line: name``."""
    tree = ast.parse(source)
    from_asyncio = {
        name.asname or name.name: name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio"
        for name in node.names
    }
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute):
            owner = ast.unparse(called.value)
            # Other modules have a "gather" of their own, columns for one.
            is_start = called.attr in STARTERS and (owner == "asyncio" or called.attr == "create_task")
            name = called.attr
        else:
            name = from_asyncio.get(ast.unparse(called), "")
            is_start = name in STARTERS
        if is_start:
            found.append(f"{node.lineno}: {name}")
    return found


def test_the_rule_is_able_to_find_something() -> None:
    assert starts("import asyncio\nasyncio.ensure_future(x)\nloop.create_task(x)\ntable.gather(y)") == [
        "2: ensure_future",
        "3: create_task",
    ]
    assert starts("from asyncio import gather as g, TaskGroup\ng(x)\nasync with TaskGroup() as t: pass") == [
        "2: gather",
        "3: TaskGroup",
    ]


def test_no_other_module_starts_tasks() -> None:
    found = {
        str(path.relative_to(SOURCES)): calls
        for path in sorted(SOURCES.rglob("*.py"))
        if (calls := starts(path.read_text(encoding="utf-8"))) and path.name != "tasks.py"
    }
    assert {name: [call.split()[1] for call in calls] for name, calls in found.items()} == {
        # These wrap tasks that they got from child().
        "dashboard/shared.py": ["shield"],
        "dashboard/trials/trials.py": ["shield"],
        "scheduler/framework/binding_points.py": ["as_completed"],
        # These drive a loop from outside, as asyncio.run does: they wait for the one task that they start or end.
        "lab/simulate/stepping.py": ["create_task", "ensure_future"],
        "lab/simulate/run/virtual_time.py": ["gather"],
    }
