"""The queue of objects to reconcile: each key once, retries with growing delays, timers that can be asked for.

    add ──▶ ready ──get──▶ processing ──done──▶ (ready again if added meanwhile)
    add_after / failed ──▶ waiting ──time──▶ ready

Two kinds of timer: *loud* ones will change something when they are due; *quiet* ones merely look again (a heartbeat
that is probably fine, a retry that has failed ten times). Only loud ones keep a simulation going. Caller: :mod:`.base`.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Final

__all__ = ["WorkQueue"]

FIRST_RETRY_SECONDS: Final = 0.005
LONGEST_RETRY_SECONDS: Final = 1000.0
#: After so many failures in a row a key counts as stuck and its retries as quiet.
STUCK_AFTER: Final = 10


class _Timers:
    """One due time per key, the earliest wins."""

    def __init__(self) -> None:
        self.due: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._number = 0

    def set(self, key: str, due: float) -> bool:
        known = self.due.get(key)
        if known is not None and known <= due:
            return False
        self.due[key] = due
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, key))
        return True

    def drop(self, key: str) -> None:
        self.due.pop(key, None)

    def first(self) -> float | None:
        heap = self._heap
        while heap and self.due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now: float) -> str | None:
        due = self.first()
        if due is None or due > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self.due[key]
        return key


class WorkQueue:
    """Keys in the order in which they were added; see the module. Must be used in a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready: dict[str, None] = {}
        self._processing = ""
        self._again = False
        self._loud, self._quiet = _Timers(), _Timers()
        self._failures: dict[str, int] = {}
        #: Set while nothing is ready and nothing is processed; timers may be set.
        self.drained = asyncio.Event()
        self.drained.set()
        self._waiter: asyncio.Future[None] | None = None
        self._handle: asyncio.TimerHandle | None = None
        #: How many keys were ever added, counting each waiting one once; and how many retries there were.
        self.adds = 0
        self.retries = 0

    # -- adding ----------------------------------------------------------------------------------------

    def add(self, key: str) -> None:
        """Reconcile a key soon; once, however often it is added before that."""
        if key == self._processing:
            self._again = True
        elif key not in self._ready:
            self.adds += 1
            self._ready[key] = None
            self.drained.clear()
            self._wake()

    def add_after(self, key: str, seconds: float, *, quiet: bool = False) -> None:
        """Reconcile a key after a delay; an earlier date that is set already stays."""
        if seconds <= 0:
            self.add(key)
        elif (self._quiet if quiet else self._loud).set(key, self._loop.time() + seconds):
            self._arm()

    def forget_timers(self, key: str) -> None:
        """A key need not be looked into at a later time any more, such as a deadline of an object that is gone."""
        self._loud.drop(key)
        self._quiet.drop(key)

    def failed(self, key: str) -> float:
        """Plan the next try of a key; returns the delay in seconds, doubling with every failure in a row."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** min(count - 1, 30), LONGEST_RETRY_SECONDS)
        self.retries += 1
        self.add_after(key, delay, quiet=count > STUCK_AFTER)
        return delay

    def succeeded(self, key: str) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)

    # -- taking ----------------------------------------------------------------------------------------

    async def get(self) -> str:
        """The next key; wait for one if there is none."""
        while not self._ready:
            self._waiter = self._loop.create_future()
            await self._waiter
        key = next(iter(self._ready))
        del self._ready[key]
        self._processing, self._again = key, False
        return key

    def done(self) -> None:
        """The key last taken has been dealt with."""
        key, self._processing = self._processing, ""
        if self._again:
            self.add(key)
        elif not self._ready:
            self.drained.set()

    # -- timers ----------------------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        """When the next key will be reconciled, on the loop's clock: now if anything is ready."""
        if self._ready or self._processing:
            return self._loop.time()
        return self._loud.first()

    @property
    def stuck(self) -> list[str]:
        """Keys whose retries go on failing."""
        return [key for key, count in self._failures.items() if count > STUCK_AFTER]

    def __len__(self) -> int:
        return len(self._ready) + bool(self._processing)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _arm(self) -> None:
        times = [time for time in (self._loud.first(), self._quiet.first()) if time is not None]
        if not times:
            return
        due = min(times)
        if self._handle is not None:
            if not self._handle.cancelled() and self._handle.when() <= due:
                return
            self._handle.cancel()
        self._handle = self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._handle = None
        now = self._loop.time()
        for timers in (self._loud, self._quiet):
            while (key := timers.pop(now)) is not None:
                self.add(key)
        self._arm()

    def close(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
