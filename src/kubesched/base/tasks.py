"""Tasks, and supervisors that notice when one ends. No other module of the project starts an asyncio task.

    async with Supervisor("kubelets") as tasks:
        tasks.spawn(follow(), "hollow-pods")
        tasks.spawn(run_timers(), "hollow-timers")
        await tasks.ended()

A *lasting* task works until its supervisor stops it. If it raises, returns or is cancelled before that, it has
crashed. The supervisor keeps the first crash and raises it as :class:`TaskCrashedError` in every block that it
guards. A component with tasks of its own supervises them inside its ``run()``, so that a crash passes from
supervisor to supervisor up to the program. All this works in real and in virtual time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ["EndedFirstError", "Supervisor", "TaskCrashedError", "child", "ended_from_outside", "running_task", "unless"]

T = TypeVar("T")

logger = logging.getLogger("kubesched.tasks")


class TaskCrashedError(Exception):
    """A task ended that should not have. ``__cause__`` is the error it raised; None if it returned or was cancelled.

    Attributes:
        task: name of the task, or of the callback.
    """

    def __init__(self, task: str, message: str) -> None:
        super().__init__(message)
        self.task = task


class EndedFirstError(Exception):
    """The event that :func:`unless` watches was set before the work was done."""


class _Entry:
    """Supervisor's record of one task."""

    __slots__ = ("lasting", "on_crash")

    def __init__(self, lasting: bool, on_crash: Callable[[TaskCrashedError], None] | None) -> None:
        self.lasting = lasting
        self.on_crash = on_crash


class _Guard:
    """Block of code that a crash ends, by cancelling the task that runs it."""

    __slots__ = ("cancelling", "fired", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.cancelling = task.cancelling()
        self.fired = False

    def fire(self) -> None:
        if not self.fired:
            self.fired = True
            self.task.cancel()


class Supervisor:
    """Parent of some tasks.

    As an async context manager it guards the block and stops all tasks at its end. Otherwise the owner calls
    :meth:`spawn` at any time, waits for the tasks only inside ``with tasks.guard()``, and calls :meth:`stop`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: dict[asyncio.Task[Any], _Entry] = {}
        self._guards: list[_Guard] = []
        self._crash: TaskCrashedError | None = None
        self._raised = False
        self._stopping = False
        self._own: _Guard | None = None
        self._restore: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<Supervisor {self.name} of {', '.join(self.names) or 'no tasks'}>"

    @property
    def names(self) -> list[str]:
        """Names of the running tasks, oldest first."""
        return [task.get_name() for task in self._tasks]

    @property
    def crash(self) -> TaskCrashedError | None:
        """The first crash, or None."""
        return self._crash

    def spawn(
        self,
        work: Coroutine[Any, Any, T],
        name: str,
        *,
        lasting: bool = True,
        on_crash: Callable[[TaskCrashedError], None] | None = None,
    ) -> asyncio.Task[T]:
        """Start a task.

        A task that is not ``lasting`` may return at any time, and its creator may cancel it. ``on_crash`` repairs
        what a crash of this task left behind; the supervisor then continues as if nothing had happened. It is also
        called after a cancellation that the supervisor did not order. An error that it raises is a crash of the
        supervisor.
        """
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = _Entry(lasting, on_crash)
        task.add_done_callback(self._ended)
        return task

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Guard a block: a crash cancels the running task at its next wait.

        Raises:
            TaskCrashedError: instead of the cancellation, or at once if there was a crash before.
        """
        if self._crash is not None:
            raise self._take_crash()
        guard = _enter(self._guards)
        try:
            yield
        except BaseException as error:
            self._leave(guard, error)
            raise
        self._leave(guard, None)

    async def ended(self) -> None:
        """Wait, inside a guard, until all tasks have ended. Lasting tasks end only by a crash."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def begin_stop(self) -> None:
        """Allow lasting tasks to end, as their owner is about to stop them one by one. Their errors still count."""
        self._stopping = True

    def catch_callbacks(self) -> None:
        """Treat an error in a callback of this project (a timer, for example) as a crash, until :meth:`stop`.

        Otherwise the running loop would log the error and go on. Callbacks of other libraries are left to the loop's
        handler.
        """
        if self._restore is not None:
            return
        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            name = _callback_of_ours(error) if "handle" in context else ""
            if error is not None and name:
                self._record(_crashed(f"callback {name}", name, error))
            elif before is not None:
                before(loop, context)
            else:
                loop.default_exception_handler(context)

        loop.set_exception_handler(handle)
        self._restore = lambda: loop.set_exception_handler(before)

    async def stop(self) -> None:
        """Cancel all tasks and wait for them. Further calls do nothing.

        Raises:
            TaskCrashedError: if there was a crash that no guard has raised.
        """
        self._stopping = True
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self._restore is not None:
            self._restore()
            self._restore = None
        if self._crash is not None and not self._raised:
            raise self._take_crash()

    async def __aenter__(self) -> Self:
        self._own = _enter(self._guards)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._own is not None
        try:
            self._leave(self._own, error)
        finally:
            await self.stop()

    # -- inside ----------------------------------------------------------------------------------------

    def _ended(self, task: asyncio.Task[Any]) -> None:
        entry = self._tasks.pop(task)
        crash = self._crash_of(task, entry)
        if crash is None:
            return
        if entry.on_crash is not None:
            try:
                entry.on_crash(crash)
                return
            except Exception as error:
                error.__context__ = crash
                crash = _crashed(f"task {task.get_name()}", task.get_name(), error)
        self._record(crash, is_end=task.cancelled())

    def _record(self, crash: TaskCrashedError, *, is_end: bool = False) -> None:
        # Neither is logged: the end of a program, which cancels all its tasks, nor an interrupt, which the loop's
        # runner raises again.
        is_end = is_end or isinstance(crash.__cause__, KeyboardInterrupt)
        if self._crash is not None:
            if crash.__cause__ is not None and not is_end:
                logger.error("%s: %s, after %s", self.name, crash, self._crash, exc_info=crash)
            return
        self._crash = crash
        if not self._guards and not self._stopping and not is_end:
            logger.error("%s: %s", self.name, crash, exc_info=crash)
        for guard in self._guards:
            guard.fire()

    def _crash_of(self, task: asyncio.Task[Any], entry: _Entry) -> TaskCrashedError | None:
        if task.cancelled():
            if self._stopping or not (entry.lasting or entry.on_crash):
                return None
            return TaskCrashedError(task.get_name(), f"task {task.get_name()} was cancelled without being stopped")
        error = task.exception()
        if error is not None:
            return _crashed(f"task {task.get_name()}", task.get_name(), error)
        if entry.lasting and not self._stopping:
            return TaskCrashedError(task.get_name(), f"task {task.get_name()} returned without being stopped")
        return None

    def _leave(self, guard: _Guard, error: BaseException | None) -> None:
        """Leave a guarded block that ended with ``error``.

        A crash is raised in place of the cancellation that it caused.
        """
        self._guards.remove(guard)
        if not guard.fired:
            return
        cancelled_by_others = guard.task.uncancel() > guard.cancelling
        if error is None or (isinstance(error, asyncio.CancelledError) and not cancelled_by_others):
            raise self._take_crash() from (None if self._crash is None else self._crash.__cause__)

    def _take_crash(self) -> TaskCrashedError:
        assert self._crash is not None
        self._raised = True
        return self._crash


def _enter(guards: list[_Guard]) -> _Guard:
    task = asyncio.current_task()
    assert task is not None
    guard = _Guard(task)
    guards.append(guard)
    return guard


def _crashed(what: str, name: str, error: BaseException) -> TaskCrashedError:
    if isinstance(error, TaskCrashedError):
        return error  # name the innermost task
    crash = TaskCrashedError(name, f"{what} failed: {type(error).__name__}: {error}")
    crash.__cause__ = error
    return crash


def _callback_of_ours(error: BaseException | None) -> str:
    """Return ``module.function`` of the callback that raised, or "" if it belongs to another library.

    The outermost frame belongs to the event loop, the next frame to the callback.
    """
    trace = error.__traceback__ if error is not None else None
    frame = trace.tb_next.tb_frame if trace is not None and trace.tb_next is not None else None
    module = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    return f"{module}.{frame.f_code.co_name}" if frame is not None and module.startswith("kubesched.") else ""


def running_task() -> asyncio.Task[Any] | None:
    """Return the current task. None if no event loop runs, as in a coroutine whose steps are sent by hand."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def ended_from_outside(task: asyncio.Task[Any] | None, error: BaseException) -> bool:
    """True if ``error``, raised at an ``await`` of ``task``, is the end of the task itself.

    False if the awaited work has raised it.
    """
    return running_task() is not task or (
        isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    )


def child(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Start a task for a part of its creator's own work.

    The creator awaits the task, and so receives its result, error or cancellation; or it cancels the task and then
    awaits it. The end of the task is reported nowhere else.
    """
    return asyncio.get_running_loop().create_task(work, name=name)


async def unless(end: asyncio.Event, work: Coroutine[Any, Any, T], name: str) -> T:
    """Return the result of ``work``. Cancel it when ``end`` is set.

    Raises:
        EndedFirstError: if ``end`` was set before the work was done.
    """
    task, ending = child(work, name), child(end.wait(), f"end of {name}")
    try:
        await asyncio.wait((task, ending), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in (task, ending):
            one.cancel()
        await asyncio.wait((task, ending))
    if end.is_set():
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("%s: %r, while it was being ended", name, error)
        raise EndedFirstError(name)
    return task.result()
