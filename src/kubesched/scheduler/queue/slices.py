"""Slices of long queue operations: one event may concern any number of waiting pods without blocking the event loop.

An operation consists of steps (:mod:`kubesched.base.turns`). A short operation is done at once. An operation that takes
longer than a slice goes on in the next turns of the event loop. Until it ends, no pod is popped, and every operation
that comes meanwhile waits behind it. So all operations take effect one after the other, in the order of their arrival,
as if each were done at once. After each long operation there is a turn in which pods can be popped, even if other
operations wait.

In virtual time the clock stands still while code runs, so a slice never ends: a simulation does everything at once.

Used by :class:`.scheduling_queue.SchedulingQueue`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Final

from kubesched.base.turns import Steps, finish

__all__ = ["Slices"]

_log = logging.getLogger("kubesched.scheduler.queue")

#: Duration of a slice, in seconds: afterwards other tasks get a turn.
_SLICE_SECONDS: Final = 0.005


class Slices:
    """Divider of queue operations: holds the operation that is under way and the operations that wait for it.

    Attributes:
        busy: True if a new operation has to wait, because an operation is under way or waits.
        moving: True if an operation is under way, between two of its slices.
    """

    __slots__ = ("_later", "_on_done", "_steps", "_time", "_wake", "_watched", "busy", "moving")

    def __init__(self, time: Callable[[], float], on_done: Callable[[], None]) -> None:
        """``time`` returns seconds; slices are measured by it. ``on_done`` is called when pods can be popped again."""
        self._time = time
        self._on_done = on_done
        self.busy = self.moving = False
        #: True while :meth:`run` runs, which continues long operations.
        self._watched = False
        self._steps: Steps[object] | None = None
        self._later: deque[Callable[[], object]] = deque()
        self._wake = asyncio.Event()

    def begin(self, steps: Steps[object]) -> None:
        """Begin an operation, and end it if it is short. Call it only while no operation is under way."""
        if not self._watched:
            finish(steps)
        elif not self._advance(steps, self._time() + _SLICE_SECONDS):
            self._steps, self.busy, self.moving = steps, True, True
            self._wake.set()

    def defer(self, operation: Callable[[], object]) -> None:
        """Begin an operation when all earlier ones are done. An exception is logged: its caller is gone by then."""
        self._later.append(operation)

    def settle(self) -> None:
        """Finish the operation under way and all that wait, without a pause."""
        watched, self._watched = self._watched, False
        try:
            while self.busy:
                self._slice(math.inf)
        finally:
            self._watched = watched

    def end(self) -> None:
        """Finish all operations, and from now on do every operation at once."""
        self.settle()
        self._watched = False

    async def run(self) -> None:
        """Continue long operations until cancelled. Then finish all remaining operations without a pause."""
        self._watched = True
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self.busy:
                    await asyncio.sleep(0)
                    if self.busy:
                        self._slice(self._time() + _SLICE_SECONDS)
        finally:
            self.end()

    def _advance(self, steps: Steps[object], ends: float) -> bool:
        """Do steps until the time ``ends``; True if all are done."""
        time = self._time
        return all(time() < ends for _ in steps)

    def _slice(self, ends: float) -> None:
        """Continue the operation under way; without one, begin the operations that wait."""
        steps, self._steps = self._steps, None
        try:
            if steps is None:
                self._begin_waiting(ends)
            elif not self._advance(steps, ends):
                self._steps = steps
        except Exception:
            _log.exception("An operation of the scheduling queue failed; pods it concerns wait for their next event")
        self.moving = self._steps is not None
        self.busy = self.moving or bool(self._later)
        if not self.moving:
            self._on_done()

    def _begin_waiting(self, ends: float) -> None:
        while self._later:
            self.busy = False
            self._later.popleft()()
            if self._steps is not None or self._time() >= ends:
                break
