"""Garbage collection of a process that runs a cluster or a scheduler.

Nearly every object is either freed at once or kept for long (a pod's versions, its event). Almost no object is part of
a reference cycle: seven objects of each closed connection are, but no object of a pod. So the collector traverses each
object once, soon after it was made, and leaves the survivors out of later passes. Python's own passes over the
survivors hold a large cluster's event loop for 0.3 s and more.

An object in a cycle that was still in use at its pass is not found by later passes over new objects. It waits for a
full pass, which is rare. A full pass is made after much CPU time since the last one, once there is little to do
(:class:`CollectorTimer`), or after many connections have ended (:mod:`.connections`).
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

__all__ = [
    "PASS_SECONDS",
    "CollectorTimer",
    "all_objects",
    "collector_off",
    "collector_paused",
    "full_pass",
    "settle_collector",
]

#: Seconds between two passes over new objects in an event loop. With 8,000 pods/s each pass takes 3 ms.
PASS_SECONDS: Final = 0.1
#: Number of new objects, minus freed objects, that starts a pass early. Python counts freed objects of any age, so this
#: bounds nothing while old objects are replaced by new ones.
_YOUNG: Final = 20_000
#: Seconds of CPU time that the process uses after a full pass until the next full pass is due.
_FULL_SECONDS: Final = 600.0
#: A pass that is due waits until the process has been quiet for _QUIET_SECONDS: it used less than this share of a CPU.
_QUIET_SHARE: Final = 0.1
_QUIET_SECONDS: Final = 10.0
#: A pass that is due is made at the latest after this multiple of _FULL_SECONDS.
_OVERDUE: Final = 10


def settle_collector(every: float = PASS_SECONDS) -> Callable[[], None]:
    """Make the collector traverse new objects only, from now on. Return a function that undoes it.

    In an event loop there is a pass every ``every`` seconds of that loop. Without a loop only the number of new objects
    starts a pass. The interpreter does not look for cycles when the process ends, either.
    """
    settled = _Settled()
    gc.collect()
    settled.begin(every)
    return settled.undo


@contextmanager
def collector_off() -> Iterator[None]:
    """Turn the collector off while data is read. Nearly all objects made meanwhile stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def collector_paused(at_end: Callable[[Callable[[], None]], object], every: float = PASS_SECONDS) -> Iterator[None]:
    """Turn the collector off while something is set up; then settle the collector.

    Use it only if nearly all objects made meanwhile stay. ``at_end`` receives the function that undoes the
    settling.
    """
    settled = _Settled()
    at_end(settled.undo)
    with collector_off():
        yield
        settled.begin(every)


def all_objects() -> list[Any]:
    """Return every object that the collector knows, including those that later passes leave out."""
    if _leave_survivors not in gc.callbacks:
        return gc.get_objects()
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()


def full_pass() -> None:
    """Traverse every object now. For callers that have left many objects in cycles."""
    gc.unfreeze()
    gc.collect()


def forget_frames(error: BaseException) -> None:
    """Drop the stack frames from an error and from the errors that caused it.

    For errors of connections. A frame holds the connection, and when the connection keeps the error they form a cycle.
    """
    found: list[BaseException] = [error]
    for one in found:
        one.__traceback__ = None
        found += [other for other in (one.__cause__, one.__context__) if other is not None and other not in found]


class _Settled:
    """State of the collector while it traverses new objects only."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._timer: CollectorTimer | None = None

    def begin(self, every: float) -> None:
        atexit.unregister(gc.freeze)
        atexit.register(gc.freeze)
        gc.freeze()
        gc.set_threshold(_YOUNG, *self._before[1:])
        if _leave_survivors not in gc.callbacks:
            gc.callbacks.append(_leave_survivors)
        with suppress(RuntimeError):  # no loop is running
            self._timer = CollectorTimer(asyncio.get_running_loop(), every)

    def undo(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        if _leave_survivors in gc.callbacks:
            gc.callbacks.remove(_leave_survivors)
        gc.unfreeze()
        gc.set_threshold(*self._before)


def _leave_survivors(phase: str, info: Mapping[str, Any]) -> None:
    """Exclude all present objects from later passes, after a pass of any kind. Takes constant time."""
    if phase == "stop":
        gc.freeze()


class CollectorTimer:
    """Timer on an event loop. It makes the passes over new objects, and a full pass when one is due."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        every: float,
        *,
        cpu: Callable[[], float] = time.process_time,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``cpu`` is a clock of the CPU time of the process, ``now`` a clock of real time; both in seconds."""
        self._loop = loop
        self._every = every
        self._cpu_clock = cpu
        self._clock = now
        self._cpu = self._full_cpu = cpu()
        self._time = self._busy_until = now()
        self._handle = loop.call_later(every, self._tick)

    def stop(self) -> None:
        self._handle.cancel()

    def _tick(self) -> None:
        self.look()
        self._handle = self._loop.call_later(self._every, self._tick)

    def look(self) -> None:
        """Make one pass, and a full one if it is due."""
        gc.collect(0)
        if self._full_is_due():
            full_pass()
            self._full_cpu = self._cpu_clock()

    def _full_is_due(self) -> bool:
        cpu, now = self._cpu_clock(), self._clock()
        if cpu - self._cpu >= _QUIET_SHARE * (now - self._time):
            self._busy_until = now
        self._cpu, self._time = cpu, now
        used = cpu - self._full_cpu
        return used >= _FULL_SECONDS and (now - self._busy_until >= _QUIET_SECONDS or used >= _OVERDUE * _FULL_SECONDS)
