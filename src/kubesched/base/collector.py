"""Garbage collection of a process that runs a cluster or a scheduler.

Nearly all that is allocated is either gone at once or kept (a pod's versions, its event), and next to nothing of it is in
cycles: seven objects of each closed connection, none of a pod. So every object is traversed once, soon after it was made; what
survives is left out of later passes. Python's own passes over what survived hold a large cluster's event loop
for 0.3 s and more.

Objects in cycles that were in use at such a pass are never found by another one. They wait for a full pass, which is made rarely:
when much CPU time has been used since the last one, and then when there is little to do; or when so many connections have ended.
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

#: New objects are traversed this often in an event loop: with 8,000 pods/s that is 3 ms each time.
PASS_SECONDS: Final = 0.1
#: And whenever there are so many more of them than were freed. Python counts the freed ones of any age, so this bounds nothing while
#: old objects are replaced by new ones.
_YOUNG: Final = 20_000
#: A full pass is due when the process has used so many seconds of CPU since the last one.
_FULL_SECONDS: Final = 600.0
#: It waits until the process has used less than this part of a CPU for so many seconds,
_QUIET_SHARE: Final = 0.1
_QUIET_SECONDS: Final = 10.0
#: but at most so many times longer.
_OVERDUE: Final = 10


def settle_collector(every: float = PASS_SECONDS) -> Callable[[], None]:
    """From now on, traverse new objects only; the result undoes that.

    In an event loop this happens every so many of its seconds, otherwise by the number of objects alone. The interpreter does not
    look for cycles either when the process ends.
    """
    settled = _Settled()
    gc.collect()
    settled.begin(every)
    return settled.undo


@contextmanager
def collector_off() -> Iterator[None]:
    """No collection while something is read, nearly all of which stays."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def collector_paused(at_end: Callable[[Callable[[], None]], object], every: float = PASS_SECONDS) -> Iterator[None]:
    """No collection while something is set up, nearly all of which stays; then the collector is settled.

    ``at_end`` is given what undoes that.
    """
    settled = _Settled()
    at_end(settled.undo)
    gc.collect()  # now, when there is little: afterwards it would hold up what has begun
    with collector_off():
        yield
        settled.begin(every)


def all_objects() -> list[Any]:
    """Every object that the collector knows, those that are left alone included."""
    if _leave_survivors not in gc.callbacks:
        return gc.get_objects()
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()


def full_pass() -> None:
    """Traverse every object now. For who has left many in cycles."""
    gc.unfreeze()
    gc.collect()


def forget_frames(error: BaseException) -> None:
    """Have an error, and those that caused it, keep none of the frames they came through.

    For errors of connections: the frames hold the connection, and are in a cycle with the error when one of them keeps it.
    """
    found: list[BaseException] = [error]
    for one in found:
        one.__traceback__ = None
        found += [other for other in (one.__cause__, one.__context__) if other is not None and other not in found]


class _Settled:
    """The collector while only new objects are traversed."""

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
    """After a pass of any kind: none of the objects that are there now is traversed again. This takes the same time for any number."""
    if phase == "stop":
        gc.freeze()


class CollectorTimer:
    """Passes over the new objects, from a timer of an event loop; and a full one when it is due."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        every: float,
        *,
        cpu: Callable[[], float] = time.process_time,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``cpu`` and ``now`` are clocks, in seconds."""
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
        """One pass."""
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
