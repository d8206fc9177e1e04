"""Limit of the requests that are under way at one time, adapted to what the server takes.

A server that is short of resources answers 429 ("too many requests"). Each such answer halves the limit. Each request
that is taken, even if it is refused for another reason, raises it again, by one for three rounds of requests (additive
increase, multiplicative decrease). The request that was refused waits as long as the answer asks; the others go on
below the lower limit. If the server has taken none since the last decrease, all wait: they would be refused, too, and
every refusal costs the server time and the pod one of its tries.

Caller: :mod:`.http`, one for the writes and one for the reads of each transport.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

__all__ = ["MOST_PAUSE", "Pace"]

#: Most seconds that one answer holds back all requests. The request itself waits longer if the server says so.
MOST_PAUSE: Final = 10.0
#: Increase of the limit by one round of requests that are taken. One request in each step up is refused in vain.
_INCREASE: Final = 0.3


class Pace:
    """Limit of requests under way, at most ``most``. Requests begin in the order in which they ask."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(most)
        self._busy = 0
        #: Number of decreases so far. A refusal of a request that began before the last one is not a new sign.
        self._round = 0
        #: True if the server has taken a request since the last decrease.
        self._has_taken = False
        self._paused_until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """Requests that may be under way at one time now; at least 1."""
        return int(self._limit)

    async def __aenter__(self) -> int:
        """Wait for a place. Returns the token for :meth:`refused`."""
        loop = asyncio.get_running_loop()
        if not self._waiting and self._busy < self.limit and loop.time() >= self._paused_until:
            self._busy += 1
            return self._round
        turn = loop.create_future()
        self._waiting.append(turn)
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # a cancelled one is passed over
                self._leave()  # the place was given away in the same turn of the loop
            raise
        return self._round

    async def __aexit__(self, *exception: object) -> None:
        self._leave()

    def taken(self) -> None:
        """Take note that the server took a request."""
        self._has_taken = True
        if self._limit < self._most:
            self._limit = min(self._limit + _INCREASE / self._limit, float(self._most))

    def refused(self, token: int, seconds: float) -> None:
        """Take note of a 429 that asks for a pause of ``seconds``. ``token`` is from the request's begin."""
        if token != self._round:
            return
        self._round += 1
        self._limit = max(self._limit / 2.0, 1.0)
        if self._has_taken:
            self._has_taken = False
            return
        now = asyncio.get_running_loop().time()
        self._paused_until = max(self._paused_until, now + min(seconds, MOST_PAUSE))

    def _leave(self) -> None:
        self._busy -= 1
        self._let_in()

    def _let_in(self) -> None:
        """Give free places to those who wait, now or when the pause is over."""
        if not self._waiting or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._paused_until:
            self._timer = loop.call_at(self._paused_until, self._pause_over)
            return
        while self._waiting and self._busy < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._busy += 1
                turn.set_result(None)

    def _pause_over(self) -> None:
        self._timer = None
        self._let_in()
