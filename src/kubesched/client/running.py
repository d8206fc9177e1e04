"""Life of a background activity: run once, stop from anywhere.

Informers and the event broadcaster derive from it. The assembly of the program runs ``run()`` in a task.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

__all__ = ["Background"]


class Background(ABC):
    """Activity with one ``run()`` that lasts until ``stop()``, or until its task is cancelled."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._running = False
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """True if ``stop()`` was called or ``run()`` has ended."""
        return self._stopped

    async def run(self) -> None:
        """Work until stopped. Returns after ``stop()``; a cancellation from outside passes through.

        Raises:
            RuntimeError: if called a second time.
        """
        if self._task is not None:
            raise RuntimeError(f"{type(self).__name__}.run() may be called only once")
        if self._stopped:
            return
        task = self._task = asyncio.current_task()
        assert task is not None
        self._running = True
        try:
            await self._main()
        except asyncio.CancelledError:
            # ``stop()`` has cancelled the task once. Any other cancellation came from outside and must not be
            # swallowed.
            if not self._stopped or task.uncancel() > 0:
                raise
        finally:
            self._running = False
            self._stopped = True
            self._ended()

    def stop(self) -> None:
        """End ``run()``, at its next wait. Safe from handlers, safe to repeat, safe before ``run()``."""
        if self._stopped:
            return
        self._stopped = True
        if self._running and self._task is not None:
            self._task.cancel()
        else:
            self._ended()

    @abstractmethod
    async def _main(self) -> None:
        """Do the work. Never returns on its own."""

    @abstractmethod
    def _ended(self) -> None:
        """Release all waiters. Called once the work is over."""
