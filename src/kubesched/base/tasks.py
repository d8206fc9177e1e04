"""Tasks and the parents that notice their end. No other module of the project starts an asyncio task.

    async with Supervisor("kubelets") as tasks:
        tasks.spawn(follow(), "hollow-pods")
        tasks.spawn(run_timers(), "hollow-timers")
        await tasks.ended()

A *lasting* task works until its supervisor stops it. If it raises, returns or is cancelled before that, it has
crashed: the supervisor keeps the first crash and raises it as :class:`TaskCrashedError` in every block that it
guards. A component that has tasks of its own supervises them inside its ``run()``, so that a crash passes from
supervisor to supervisor up to the program. It works in real and in virtual time.
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
    """A task ended that should not have; ``__cause__`` is what it raised, None when it returned or was cancelled.

    Attributes:
        task: the name of the task, or of the callback.
    """

    def __init__(self, task: str, message: str) -> None:
        super().__init__(message)
        self.task = task


class EndedFirstError(Exception):
    """The event that :func:`unless` watches was set before the work was done."""


class _Entry:
    """What a supervisor knows of one of its tasks."""

    __slots__ = ("lasting", "on_crash")

    def __init__(self, lasting: bool, on_crash: Callable[[TaskCrashedError], None] | None) -> None:
        self.lasting = lasting
        self.on_crash = on_crash


class _Guard:
    """A block that a crash ends, by cancelling the task that runs it."""

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
    """The parent of some tasks.

    Used as an async context manager it guards the block and stops all tasks at its end. Otherwise the owner calls
    :meth:`spawn` at any time, puts what waits for the tasks into ``with tasks.guard()``, and calls :meth:`stop`.
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
        """The names of the tasks that are running, oldest first."""
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

        One that is not ``lasting`` may return at any time, and its creator may cancel it. ``on_crash`` repairs what a
        crash of this task left behind: the supervisor then continues as if nothing had happened. Any cancellation that
        the supervisor did not order is a crash for it. What ``on_crash`` raises is a crash of the supervisor's.
        """
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = _Entry(lasting, on_crash)
        task.add_done_callback(self._ended)
        return task

    @contextmanager
    def guard(self) -> Iterator[None]:
        """A block that a crash ends. The running task is cancelled at its next wait.

        Raises:
            TaskCrashedError: instead of the cancellation, or at once when there was a crash before.
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
        """Wait, inside a guard, until all tasks have ended; lasting ones only end by a crash."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def begin_stop(self) -> None:
        """From now on lasting tasks may end, as their owner is stopping them one by one. What they raise still counts."""
        self._stopping = True

    def catch_callbacks(self) -> None:
        """Until :meth:`stop`, what a timer or another callback of this project raises on the running loop is a crash.

        Without this the event loop would log it and go on. Callbacks of other libraries are left to the loop's handler.
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
        """Cancel all tasks and wait for them; again it does nothing.

        Raises:
            TaskCrashedError: when there was a crash that no guard has raised.
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
        # A program that ends cancels all its tasks, and the runner of its loop raises an interrupt again: neither is logged.
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
        """End a guarded block that ``error`` ended: raise the crash in place of the cancellation it caused."""
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
        return error  # the innermost task is the one to name
    crash = TaskCrashedError(name, f"{what} failed: {type(error).__name__}: {error}")
    crash.__cause__ = error
    return crash


def _callback_of_ours(error: BaseException | None) -> str:
    """``module.function`` of the callback that raised, empty for one of another library's.

    The outermost frame is the event loop's, the next one the callback's.
    """
    trace = error.__traceback__ if error is not None else None
    frame = trace.tb_next.tb_frame if trace is not None and trace.tb_next is not None else None
    module = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    return f"{module}.{frame.f_code.co_name}" if frame is not None and module.startswith("kubesched.") else ""


def running_task() -> asyncio.Task[Any] | None:
    """The current task; None where no event loop runs, as in a coroutine that is sent its steps by hand."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def ended_from_outside(task: asyncio.Task[Any] | None, error: BaseException) -> bool:
    """Whether ``error``, raised at an ``await`` of ``task``, is the task's own end: it is cancelled, or its coroutine closed.

    Otherwise what was awaited has raised it.
    """
    return running_task() is not task or (
        isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    )


def child(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """A task for a part of its creator's own work.

    The creator awaits it, and with that receives its result, its error or its cancellation; or it cancels the task
    and awaits that. Its end is reported nowhere else.
    """
    return asyncio.get_running_loop().create_task(work, name=name)


async def unless(end: asyncio.Event, work: Coroutine[Any, Any, T], name: str) -> T:
    """The result of ``work``, which is cancelled when ``end`` is set.

    Raises:
        EndedFirstError: when ``end`` was set before the work was done.
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
