"""Event loop on which single processes of a bad day stand still for a while, as by SIGSTOP or a moved virtual machine.

Everything that a process does runs in a context in which :data:`PROCESS` names it. While the process is paused, its
callbacks and timers are kept. When it goes on, they run in their order, later than they were due.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any

from kubesched.lab.simulate.run.virtual_time import VirtualTimeLoop, _Timer, close

__all__ = ["PROCESS", "PausingLoop", "run_pausing"]

#: Name of the process that the current code belongs to; empty for the API server and for the world.
PROCESS: ContextVar[str] = ContextVar("process", default="")


class PausingLoop(VirtualTimeLoop):
    """Virtual-time loop with processes that can be paused."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, list[asyncio.Handle]] = {}
        self._pauses: dict[str, tuple[float, float]] = {}

    def pause(self, process: str) -> None:
        self._kept.setdefault(process, [])
        self._pauses[process] = (self.time(), -1.0)

    def resume(self, process: str) -> None:
        """Let a process go on; nothing happens if it is not paused."""
        kept = self._kept.pop(process, None)
        if kept is not None:
            self._pauses[process] = (self._pauses[process][0], self.time())
            self._ready.extend(handle for handle in kept if not handle.cancelled())

    def is_paused(self, process: str) -> bool:
        return process in self._kept

    def step_began(self, process: str) -> float:
        """Return the time at which what the process does now began: earlier than now if it was paused in between."""
        began, ended = self._pauses.get(process, (0.0, -1.0))
        return began if ended == self.time() else self.time()

    def keeps(self, handle: asyncio.Handle) -> bool:
        """Keep a handle whose process is paused; False if it may run."""
        kept = self._kept.get(handle._context.get(PROCESS, ""))  # type: ignore[attr-defined]  # asyncio's own
        if kept is None:
            return False
        kept.append(handle)
        return True

    def call_soon(  # type: ignore[override]  # as the base class
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()
        handle = _PausingHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # as the base class
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        self._timers_set += 1
        timer = _PausingTimer(self._timers_set, when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer


class _PausingHandle(asyncio.Handle):
    def _run(self) -> None:
        if not self._loop.keeps(self):  # type: ignore[attr-defined]  # a PausingLoop
            super()._run()


class _PausingTimer(_Timer):
    def _run(self) -> None:
        if not self._loop.keeps(self):  # type: ignore[attr-defined]  # a PausingLoop
            super()._run()


def run_pausing(main: Coroutine[Any, Any, Any]) -> Any:
    """Run ``main`` to its end on such a loop."""
    loop = PausingLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        close(loop)
