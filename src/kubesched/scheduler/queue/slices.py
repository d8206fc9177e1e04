"""Long operations of the queue in slices, so that one event may concern any number of waiting pods.

An operation is made of steps (:mod:`kubesched.base.turns`). One that is short is done at once. One that takes longer than a
slice goes on in the next turns of the event loop; until it is done nothing is popped, and every operation that comes meanwhile
waits behind it. So all operations take effect one after the other, in the order they came, as if each were done at once. After
each long one there is a turn in which pods are popped, however many others wait: for them it is as if what waits came later.

Virtual time stands still while code runs, so that a slice never ends: a simulation does everything at once.

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

#: How long an operation goes on, in seconds, before other tasks get a turn.
_SLICE_SECONDS: Final = 0.005


class Slices:
    """The operation that is under way, and those that wait for it.

    Attributes:
        busy: whether what comes has to wait: an operation is under way, or others wait.
        moving: whether an operation is under way, between two of its slices.
    """

    __slots__ = ("_later", "_on_done", "_steps", "_time", "_wake", "_watched", "busy", "moving")

    def __init__(self, time: Callable[[], float], on_done: Callable[[], None]) -> None:
        """``time``, in seconds, says when a slice ends. ``on_done`` is called when pods can be popped again."""
        self._time = time
        self._on_done = on_done
        self.busy = self.moving = False
        #: Whether :meth:`run` continues what is begun.
        self._watched = False
        self._steps: Steps[object] | None = None
        self._later: deque[Callable[[], object]] = deque()
        self._wake = asyncio.Event()

    def begin(self, steps: Steps[object]) -> None:
        """Do an operation, at once if it is short. Only to be called while none is under way."""
        if not self._watched:
            finish(steps)
        elif not self._advance(steps, self._time() + _SLICE_SECONDS):
            self._steps, self.busy, self.moving = steps, True, True
            self._wake.set()

    def defer(self, operation: Callable[[], object]) -> None:
        """Do this when all before it is done. What it raises then is logged, as its caller cannot be notified any more."""
        self._later.append(operation)

    def settle(self) -> None:
        """Do all that is left, without a pause."""
        watched, self._watched = self._watched, False
        try:
            while self.busy:
                self._slice(math.inf)
        finally:
            self._watched = watched

    def end(self) -> None:
        """The same, and from now on do everything at once."""
        self.settle()
        self._watched = False

    async def run(self) -> None:
        """Continue what takes longer than a slice, until cancelled; what is left then is done without a pause."""
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
        """Whether the steps were all done before that time."""
        time = self._time
        return all(time() < ends for _ in steps)

    def _slice(self, ends: float) -> None:
        """Continue the operation that is under way, or else begin those that wait."""
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
