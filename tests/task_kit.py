"""Killing the tasks of a running program, for tests of what becomes of it."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

__all__ = ["HOWS", "How", "KilledError", "kill", "task_names"]

How = Literal["raise", "cancel"]
HOWS: tuple[How, ...] = ("raise", "cancel")


class KilledError(BaseException):
    """Error that a killed task raises where it waits; no ``except Exception`` stops it."""


def tasks_but(main: asyncio.Task[Any]) -> dict[str, asyncio.Task[Any]]:
    return {task.get_name(): task for task in asyncio.all_tasks() if task is not main}


def task_names(main: asyncio.Task[Any]) -> list[str]:
    """The tasks that are running now, but for the main one."""
    return sorted(tasks_but(main))


def kill(main: asyncio.Task[Any], name: str, how: How) -> None:
    """End a task of this loop as a defect would: by an error at the point where it waits, or by a stray cancellation."""
    task = tasks_but(main)[name]
    if how == "cancel":
        task.cancel()
        return
    waits_for = task._fut_waiter  # type: ignore[attr-defined]  # asyncio's own; there is no public way to ask
    assert waits_for is not None, f"{name} is about to run"
    waits_for.set_exception(KilledError(name))
