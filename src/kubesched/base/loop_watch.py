"""Watch for callbacks that hold the event loop: a thread samples the loop from outside.

A scheduler or a cluster runs on one event loop, so its longest callback is a lower bound of every latency. The loop
beats every few milliseconds. When a beat is late, the thread asks the main thread to note the function it executes.
A machine that gives the process no CPU delays the beat as well, so both real and CPU time are kept. Callers:
``kubesched run``, ``up`` and ``bench``.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

from .main_stack import MainStack

__all__ = ["LIMIT_SECONDS", "Hold", "HoldLog", "HoldReporter", "watch_loop"]

#: Seconds that a callback may hold the loop before it is noted.
LIMIT_SECONDS: Final = 0.05
#: Seconds for which a function that was logged is not logged again.
_QUIET_SECONDS: Final = 60.0
#: The package whose functions are named. A frame of a library is named after its caller in this package.
_PACKAGE: Final = __name__.partition(".")[0]
#: Functions in which an event loop waits.
_IDLE: Final = ("select", "poll")


@dataclass(frozen=True, slots=True)
class Hold:
    """One period in which a callback held the loop.

    Attributes:
        seconds: real time between two beats, less the beats' interval.
        cpu_seconds: CPU time of the loop's thread in that period; much less if the machine was busy with other things.
        where: ``module.function:line`` in which the thread was seen most often. Empty if it was not seen working: the
            machine was late, the hold was over too soon, or the loop's thread is not the main one.
    """

    seconds: float
    cpu_seconds: float
    where: str


@contextmanager
def watch_loop(on_hold: Callable[[Hold], None], *, limit: float = LIMIT_SECONDS) -> Iterator[None]:
    """Watch the running loop until the end of the block.

    ``on_hold`` is called on the loop, after each period in which the loop was held for more than ``limit`` seconds.

    Raises:
        RuntimeError: without a running loop.
    """
    watch = _Watch(asyncio.get_running_loop(), on_hold, limit)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


class HoldLog:
    """The longest holds, and the number of all holds."""

    def __init__(self, keep: int = 5) -> None:
        self.count = 0
        self.longest: list[Hold] = []
        self._keep = keep

    def add(self, hold: Hold) -> None:
        self.count += 1
        self.longest = sorted((*self.longest, hold), key=lambda one: -one.seconds)[: self._keep]


class HoldReporter:
    """Log of the functions that held the loop, each at most once a minute.

    Only CPU time counts here, because a reader of this log cannot change the load of the machine.
    """

    def __init__(
        self,
        logger: logging.Logger,
        observe: Callable[[float], None] = lambda seconds: None,
        *,
        least: float = LIMIT_SECONDS,
    ) -> None:
        """``observe`` receives the CPU seconds of each hold. Holds with less than ``least`` are not logged."""
        self._logger = logger
        self._least = least
        self._observe = observe
        #: For each function: the time until which it is not logged again, and the number of its holds since it was
        #: logged.
        self._quiet: dict[str, tuple[float, int]] = {}

    def __call__(self, hold: Hold) -> None:
        if hold.cpu_seconds < LIMIT_SECONDS:
            return
        self._observe(hold.cpu_seconds)
        if hold.cpu_seconds < self._least:
            return
        now, name = time.monotonic(), hold.where.rpartition(":")[0] or "a function that was not seen"
        until, more = self._quiet.get(name, (0.0, 0))
        if now < until:
            self._quiet[name] = (until, more + 1)
            return
        self._quiet[name] = (now + _QUIET_SECONDS, 0)
        again = f", and {more} more times since it was last logged" if more else ""
        self._logger.warning(
            "the event loop was held for %.0f ms (%.0f ms of CPU) by %s%s",
            1e3 * hold.seconds,
            1e3 * hold.cpu_seconds,
            hold.where or name,
            again,
        )


class _Watch:
    def __init__(self, loop: asyncio.AbstractEventLoop, on_hold: Callable[[Hold], None], limit: float) -> None:
        self._loop = loop
        self._on_hold = on_hold
        self._limit = limit
        self._interval = limit / 4
        ident = threading.get_ident()
        #: None if the loop runs in another thread than the main one, whose stack cannot be sampled.
        self._stack = MainStack(self._note) if ident == threading.main_thread().ident else None
        self._cpu = _thread_clock(ident)
        self._beat_at = time.perf_counter()
        self._beat_cpu = self._cpu()
        self._handle: asyncio.TimerHandle | None = None
        self._ended = threading.Event()
        #: Samples by place. Written and replaced by the loop's thread.
        self._seen: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._look, name="loop-watch", daemon=True)

    def start(self) -> None:
        self._handle = self._loop.call_later(self._interval, self._beat)
        self._thread.start()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._ended.set()
        self._thread.join()
        if self._stack is not None:
            self._stack.stop()

    def _beat(self) -> None:
        now, cpu = time.perf_counter(), self._cpu()
        held = now - self._beat_at - self._interval
        # A sample may be taken between any two instructions here.
        seen, self._seen = self._seen, Counter()
        if held > self._limit:
            where = seen.most_common(1)
            self._on_hold(Hold(held, cpu - self._beat_cpu, where[0][0] if where else ""))
        # Read again, so that the time of on_hold is not counted.
        self._beat_at, self._beat_cpu = time.perf_counter(), self._cpu()
        self._handle = self._loop.call_later(self._interval, self._beat)

    def _look(self) -> None:
        """Run the watching thread.

        It looks often enough to see a hold several times, and otherwise does almost nothing.
        """
        while not self._ended.wait(self._limit / 2):
            self._look_once()

    def _look_once(self) -> None:
        if self._stack is not None and self._is_late():
            self._stack.request()

    def _is_late(self) -> bool:
        return time.perf_counter() - self._beat_at > self._interval + self._limit

    def _note(self, frame: FrameType) -> None:
        # A loop that waits for work is late only if the machine is.
        if self._is_late() and frame.f_code.co_name not in _IDLE:
            self._seen[_place(frame)] += 1


def _thread_clock(ident: int) -> Callable[[], float]:
    """Return a clock of the thread's CPU time, or of real time if the system has no such clock."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.perf_counter
    clock = time.pthread_getcpuclockid(ident)
    return lambda: time.clock_gettime(clock)


def _place(frame: FrameType) -> str:
    """Name the innermost function of this package, or the innermost of all if there is none."""
    innermost = frame
    current: FrameType | None = frame
    while current is not None:
        module = current.f_globals.get("__name__", "")
        if module.partition(".")[0] == _PACKAGE and module != __name__:
            innermost = current
            break
        current = current.f_back
    code = innermost.f_code
    return f"{innermost.f_globals.get('__name__', '?')}.{code.co_qualname}:{innermost.f_lineno or code.co_firstlineno}"
