"""Waiters: callers that wait until a pod can be popped."""

from __future__ import annotations

import asyncio

__all__ = ["Waiters"]


class Waiters:
    """Futures of waiting callers, all released by one notification."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait for the next :meth:`notify`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def notify(self) -> None:
        """Wake all waiters. They run after the current operation, so they see all its moves."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    def __len__(self) -> int:
        return len(self._waiting)
