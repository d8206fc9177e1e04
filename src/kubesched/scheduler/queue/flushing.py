"""Flush loops: they move pods at fixed times, without an event: at the end of a backoff, or after too long a wait.

One loop flushes the backoff queue each whole second. The other flushes pods that have waited too long for an event,
every 30 seconds. If these are many, it flushes a part of them each half second (:mod:`.leftovers`), and pods that just came need
not wait for all of them. A loop without pods to flush rests, so that idle time costs nothing. This does not change the times of
later flushes.

Source: rules/queue §7.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sized
from typing import Final

from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock

from .leftovers import PART_PERIOD
from .slices import Slices
from .sub_queues import SubQueues

__all__ = ["FlushLoops"]

#: Seconds between two flushes of pods that have waited too long for an event.
_LEFTOVER_PERIOD: Final = 30.0


class FlushLoops:
    """Flush loops of a queue.

    ``max_in_unschedulable`` is in seconds; a pod is flushed when it has waited longer than that.
    """

    def __init__(
        self,
        clock: Clock,
        queues: SubQueues,
        max_in_unschedulable: float,
        slices: Slices,
        *,
        flush_backoff: Callable[[], None],
        flush_leftover: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._queues = queues
        self._slices = slices
        self._max_in_unschedulable = max_in_unschedulable
        self._flush_backoff = flush_backoff
        self._flush_leftover = flush_leftover
        self._next_leftover_flush: float | None = None
        self._cancelled = asyncio.Event()
        self._resting: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        """Run both loops, and the slices of long operations, until :meth:`cancel`."""
        async with Supervisor("scheduling queue") as tasks:
            tasks.spawn(self._each_second(), "queue-flush-backoff")
            tasks.spawn(self._each_period(), "queue-flush-unschedulable")
            tasks.spawn(self._slices.run(), "queue-slices")
            await self._cancelled.wait()

    def cancel(self) -> None:
        self._cancelled.set()

    def resume(self) -> None:
        """Wake resting loops. Call it when a pod begins to wait."""
        if self._resting:
            resting, self._resting = self._resting, []
            for future in resting:
                if not future.done():
                    future.set_result(None)

    async def _rest_without(self, pods: Sized) -> None:
        """Wait until there are pods; return at once if there are."""
        while not len(pods):
            future = asyncio.get_running_loop().create_future()
            self._resting.append(future)
            await future

    async def _each_second(self) -> None:
        while True:
            await self._rest_without(self._queues.backoff)
            now = self._clock.now()
            await asyncio.sleep(math.floor(now) + 1 - now)
            self._flush_backoff()

    async def _each_period(self) -> None:
        while True:
            self._flush_leftover()
            due = self._clock.now() + _LEFTOVER_PERIOD
            while self._is_overdue(now := self._clock.now()):
                self._next_leftover_flush = now + PART_PERIOD
                await asyncio.sleep(PART_PERIOD)
                self._flush_leftover()
            self._next_leftover_flush = due
            while (wait := due - self._clock.now()) > 0:  # noqa: ASYNC110 - a timer may fire early by the clock
                await asyncio.sleep(wait)
            if not len(self._queues.unschedulable):
                await self._rest_without(self._queues.unschedulable)
                now = self._clock.now()
                while due <= now:
                    due += _LEFTOVER_PERIOD
                # The pod that ended the rest may have come at the very time of a flush. That flush would not have moved
                # the pod, so the loop waits for the next flush.
                self._next_leftover_flush = due
                while (wait := due - self._clock.now()) > 0:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(wait)

    def _is_overdue(self, now: float) -> bool:
        """True if a pod has waited too long, because a flush has left it for the next part."""
        oldest = self._queues.unschedulable.oldest()
        return oldest is not None and now - oldest > self._max_in_unschedulable

    def next_timer(self) -> float | None:
        """Return the next time at which a flush could move a pod, in epoch seconds; None when no pod waits on time.

        A time in the past means that the flush is overdue. Before :meth:`run` has started, the time is the exact end of
        a pod's timeout, not the flush after it.
        """
        times = []
        completion = self._queues.backoff.next_completion()
        if completion is not None:
            times.append(completion)
        oldest = self._queues.unschedulable.oldest()
        if oldest is not None:
            times.append(self._timeout_seen_at(oldest))
        return min(times) if times else None

    def _timeout_seen_at(self, timestamp: float) -> float:
        """Return the time of the first flush at which a pod with this timestamp has waited longer than the limit."""
        limit, flush = self._max_in_unschedulable, self._next_leftover_flush
        if flush is None:
            at = timestamp + limit
            while not at - timestamp > limit:
                at = math.nextafter(at, math.inf)
            return at
        while not flush - timestamp > limit:
            flush += _LEFTOVER_PERIOD
        return flush
