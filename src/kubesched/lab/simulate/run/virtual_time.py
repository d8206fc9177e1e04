"""Event loop whose clock jumps: when every task waits, the time of the next timer is reached at once.

The simulator and tests run the whole scheduler on it, unchanged; hours pass in milliseconds and two runs of the same
program are equal, event by event. There is no outside world here: sockets, files, subprocesses, signals and threads are
refused, because waiting for them would take real time.

Determinism: callbacks run first in, first out. Timers run by time, then in the order they were set. Tasks have a fixed
hash, so that even sets of tasks (inside ``asyncio.wait`` or a task group) are walked in the same order in each run.
Sets of strings still depend on PYTHONHASHSEED.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import threading
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, NoReturn, TypeVar

from ..inputs.arrivals import DEFAULT_EPOCH

__all__ = [
    "VirtualClock",
    "VirtualDeadlockError",
    "VirtualTimeError",
    "VirtualTimeLoop",
    "cancel_all",
    "close",
    "run_virtual",
]

T = TypeVar("T")

#: Cancelled timers above which they are dropped together, if they are most of all timers.
_MANY_CANCELLED: Final = 100


class VirtualTimeError(RuntimeError):
    """Operation that the virtual-time loop does not support, since it needs real I/O or time."""


class VirtualDeadlockError(VirtualTimeError):
    """Every task waits, no timer is set: nothing can ever happen again. The message names the tasks."""


class _Timer(asyncio.TimerHandle):
    """Timer that fires after other timers of the same time that were set before it."""

    __slots__ = ("order",)

    # Attribute of the base class.
    _when: float
    _scheduled: bool

    def __init__(
        self,
        order: int,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.order = order

    def __lt__(self, other: object) -> bool:
        assert isinstance(other, _Timer)
        return self._when < other._when or (self._when == other._when and self.order < other.order)


class _Task(asyncio.Task[Any]):
    """Task whose hash is its number, not its address."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        # The number is set before the base class registers the task in a set.
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Jump:
    """Selector that moves the clock instead of waiting for time to pass."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> tuple[()]:
        if timeout is None or timeout > 0:
            self._loop._jump()
        return ()


class VirtualTimeLoop(BaseEventLoop):
    """Asyncio event loop in virtual time. ``time()`` starts at 0 and moves only when all is quiet.

    ``start_epoch`` is the meaning of time 0 for :class:`VirtualClock`, in seconds since the epoch.
    """

    # Internals of the base class that are used here; the same in Python 3.11 to 3.13.
    _ready: deque[asyncio.Handle]
    _scheduled: list[_Timer]
    _timer_cancelled_count: int
    _thread_id: int | None
    _debug: bool
    _stopping: bool
    _check_closed: Callable[[], None]

    def __init__(self, start_epoch: float = DEFAULT_EPOCH) -> None:
        super().__init__()
        self.start_epoch = start_epoch
        self._now = 0.0
        self._clock_resolution = math.ulp(0.0)
        self._selector = _Jump(self)
        self._timers_set = 0
        self._tasks_made = 0
        self._quiet: list[asyncio.Future[None]] = []
        #: Waiters in :meth:`idle`, for a time or for quiet.
        self._idle: list[asyncio.Future[None]] = []
        #: Number of rounds the loop has made.
        self.rounds = 0

    # -- time ----------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def next_timer(self) -> float | None:
        """Time of the next timer that is not cancelled; None when there is none."""
        scheduled = self._scheduled
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)._scheduled = False
            self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)
        return scheduled[0].when() if scheduled else None

    def advance(self, seconds: float) -> None:
        """Run everything that happens within the next ``seconds``, then stop at that time. From outside the loop.

        Raises:
            RuntimeError: when the loop is running; inside it, ``await asyncio.sleep(seconds)``.
            ValueError: when ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds}")
        arrival = self.call_at(self._now + seconds, self.stop)
        try:
            self.run_forever()
            while self._ready or (self._scheduled and (self.next_timer() or math.inf) <= self._now):
                self.call_soon(self.stop)
                self.run_forever()
        finally:
            arrival.cancel()

    async def idle(self, when: float | None = None) -> None:
        """Wait until nothing else can happen at the current instant. Called from inside the loop.

        Without ``when``, no time passes; with it, time may pass up to ``when``.
        """
        quiet: asyncio.Future[None] = self.create_future()
        timer = None
        if when is None or when <= self._now:
            self._quiet.append(quiet)
        else:
            timer = self.call_at(when, self._quiet.append, quiet)
        self._idle.append(quiet)
        try:
            await quiet
        finally:
            self._idle.remove(quiet)
            if timer is not None:
                timer.cancel()

    def end_idle(self) -> None:
        """Resume all waiters in :meth:`idle`, although more can happen at this instant. Called from inside the loop."""
        for future in self._idle:
            if not future.done():
                future.set_result(None)

    def _jump(self) -> None:
        """Resume the waiters for quiet if nothing is ready, or else advance to the next timer."""
        if self._quiet:
            quiet = list(self._quiet)
            self._quiet.clear()
            for future in quiet:
                if not future.done():
                    future.set_result(None)
            return
        self._drop_cancelled()
        when = self.next_timer()
        if when is None:
            names = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise VirtualDeadlockError(
                f"nothing can happen any more at virtual time {self._now:g} s: no timer is set and these tasks wait: "
                + (", ".join(names) or "none")
            )
        self._now = max(self._now, when)
        # Only timers of exactly this time are due; see BaseEventLoop._run_once.
        self._clock_resolution = math.ulp(self._now)

    def _run_once(self) -> None:
        """Run one round of the loop: the ready callbacks, and the timers that are due.

        The base class's method would call the selector, and read the clock again because a selector may wait. This one
        is faster: it runs some twenty times for a pod.
        """
        self.rounds += 1
        if self._debug:
            super()._run_once()  # type: ignore[misc]  # asyncio's own
            return
        ready = self._ready
        if not (ready or self._stopping):
            when = self.next_timer()
            if when is None or when > self._now:
                self._jump()
        scheduled, now = self._scheduled, self._now
        while scheduled and scheduled[0]._when <= now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled(self) -> None:
        """Drop cancelled timers when they are many."""
        if self._timer_cancelled_count > max(_MANY_CANCELLED, len(self._scheduled) // 2):
            kept = []
            for timer in self._scheduled:
                if timer.cancelled():
                    timer._scheduled = False
                else:
                    kept.append(timer)
            heapq.heapify(kept)
            self._scheduled = kept
            self._timer_cancelled_count = 0

    def call_soon(  # type: ignore[override]  # as call_at
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        # This does the work of the base class's method, without its checks for threads and debugging.
        if self._debug:
            return super().call_soon(callback, *args, context=context)
        self._check_closed()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # one signature where the stubs use type variables
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if when is None or math.isnan(when):
            raise TypeError("when must be a number")
        self._check_closed()
        self._timers_set += 1
        timer = _Timer(self._timers_set, when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def create_task(
        self, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], *, name: object = None, **options: Any
    ) -> asyncio.Task[T]:
        self._check_closed()
        self._tasks_made += 1
        if name is None:
            name = f"Task-{self._tasks_made}"  # asyncio's own numbers continue from run to run
        return _Task(self._tasks_made, coro, name=name, loop=self, **options)

    @property
    def thread(self) -> int | None:
        """Identifier of the thread that runs the loop now; None when it stands still."""
        return self._thread_id

    # -- BaseEventLoop's hooks -----------------------------------------------------------------------------

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no I/O events."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread uses this loop."""

    def call_soon_threadsafe(  # type: ignore[override]  # as call_at
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._thread_id is not None and self._thread_id != threading.get_ident():
            _refuse("call_soon_threadsafe from another thread")
        return self.call_soon(callback, *args, context=context)


def _refuse(what: str) -> NoReturn:
    raise VirtualTimeError(f"{what} is not possible in virtual time: it would have to wait for the real world")


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refused(self: VirtualTimeLoop, *args: object, **kwargs: object) -> NoReturn:
        _refuse(f"loop.{name}()")

    refused.__name__ = name
    refused.__doc__ = "Refused: raises VirtualTimeError."
    return refused


for _name in (
    *("add_reader", "remove_reader", "add_writer", "remove_writer", "add_signal_handler", "remove_signal_handler"),
    *("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto"),
    *("sock_connect", "sock_accept", "sock_sendfile", "sendfile", "start_tls", "getaddrinfo", "getnameinfo"),
    *("create_connection", "create_server", "create_datagram_endpoint", "connect_accepted_socket"),
    *("create_unix_connection", "create_unix_server", "connect_read_pipe", "connect_write_pipe"),
    *("subprocess_shell", "subprocess_exec", "run_in_executor", "set_default_executor"),
):
    setattr(VirtualTimeLoop, _name, _refusal(_name))


class VirtualClock:
    """Clock of the scheduler on a virtual-time loop: ``start_epoch`` plus the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_epoch: float | None = None) -> None:
        if start_epoch is None:
            start_epoch = loop.start_epoch if isinstance(loop, VirtualTimeLoop) else DEFAULT_EPOCH
        self._loop = loop
        self.start_epoch = start_epoch

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self.start_epoch + self._loop.time()


def run_virtual(main: Coroutine[Any, Any, T], *, start: float = DEFAULT_EPOCH) -> T:
    """Run ``main`` to its end in virtual time and return its result; ``asyncio.run`` without the waiting.

    ``start`` is the loop's ``start_epoch``: ``VirtualClock(asyncio.get_running_loop())`` reads from there.

    Raises:
        VirtualDeadlockError: when ``main`` waits for something that can never happen.
    """
    # asyncio.Runner is not used. At an interrupt it only cancels the main task, which does not stop a plugin that never
    # returns.
    loop = VirtualTimeLoop(start)
    try:
        return loop.run_until_complete(_to_the_end(main))
    finally:
        close(loop)


def close(loop: VirtualTimeLoop) -> None:
    """Cancel the tasks left on a loop that stands still, wait for them, and close the loop.

    Their errors are dropped.
    """
    if loop.is_closed():
        return
    try:
        cancel_all(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks of a loop that stands still and wait for them. Their errors are dropped."""
    while left := sorted(asyncio.all_tasks(loop), key=hash):
        for task in left:
            task.cancel()
        # A future is used instead of a task, because the tasks may themselves cancel all tasks.
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


async def _to_the_end(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main``, then cancel the tasks that it leaves, oldest first; asyncio's own order is arbitrary."""
    loop = asyncio.get_running_loop()
    try:
        return await main
    finally:
        left = sorted((task for task in asyncio.all_tasks() if task is not asyncio.current_task()), key=hash)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for task in left:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                loop.call_exception_handler(
                    {"message": "a task failed while being cancelled", "exception": error, "task": task}
                )
