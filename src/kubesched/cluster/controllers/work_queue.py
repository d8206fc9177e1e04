"""Queue of objects to reconcile: each key once, retries with growing delays, timers that can be asked for.

    add ──▶ ready ──get──▶ processing ──done──▶ (ready again if added meanwhile)
    add_after / failed ──▶ waiting ──time──▶ ready

There are two kinds of timers. A *loud* one will change something when it is due. A *quiet* one merely looks again (a
heartbeat that is probably fine, a retry that has failed ten times). Only loud ones keep a simulation going. Caller:
:mod:`.base`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from itertools import count
from math import inf
from typing import Final

__all__ = ["WorkQueue"]

FIRST_RETRY_SECONDS: Final = 0.005
LONGEST_RETRY_SECONDS: Final = 1000.0
#: Failures in a row after which a key counts as stuck and its retries as quiet.
STUCK_AFTER: Final = 10


class _Timers:
    """Due times, one per key; the earliest wins."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._number = count()

    def set(self, key: str, due: float) -> None:
        if due < self._due.get(key, inf):
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._number), key))

    def drop(self, key: str) -> None:
        self._due.pop(key, None)

    def first(self) -> float:
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else inf

    def pop(self, now: float) -> Iterator[str]:
        """Yield the keys that are due, and remove their times."""
        while self.first() <= now:
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            yield key


class WorkQueue:
    """Queue of keys, in the order in which they were added; see the module. Must be used in a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready: dict[str, None] = {}
        self._filled = asyncio.Event()
        self._processing = ""
        self._again = False
        self._loud, self._quiet = _Timers(), _Timers()
        self._handle: asyncio.TimerHandle | None = None
        self._failures: dict[str, int] = {}
        #: Set while no key is ready or being processed. Timers may be set.
        self.drained = asyncio.Event()
        self.drained.set()

    def add(self, key: str) -> None:
        """Reconcile a key soon. Adding it again before that has no effect."""
        if key == self._processing:
            self._again = True
        elif key not in self._ready:
            self._ready[key] = None
            self.drained.clear()
            self._filled.set()

    def add_after(self, key: str, seconds: float, *, quiet: bool = False) -> None:
        """Reconcile a key after a delay. An earlier time that is already set stays."""
        if seconds <= 0:
            self.add(key)
        else:
            (self._quiet if quiet else self._loud).set(key, self._loop.time() + seconds)
            self._arm()

    def forget_timers(self, key: str) -> None:
        """Drop the timers of a key, such as the deadline of an object that is gone."""
        self._loud.drop(key)
        self._quiet.drop(key)

    def failed(self, key: str) -> float:
        """Plan the next try of a key. Returns the delay in seconds, which doubles with every failure in a row."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 30), LONGEST_RETRY_SECONDS)
        self.add_after(key, delay, quiet=failures > STUCK_AFTER)
        return delay

    def succeeded(self, key: str) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """Return the next key; wait for one if there is none."""
        while not self._ready:
            self._filled.clear()
            await self._filled.wait()
        key = next(iter(self._ready))
        del self._ready[key]
        self._processing, self._again = key, False
        return key

    def done(self) -> None:
        """Mark the key last taken as processed."""
        key, self._processing = self._processing, ""
        if self._again:
            self.add(key)
        elif not self._ready:
            self.drained.set()

    @property
    def stuck(self) -> list[str]:
        """Keys whose retries go on failing."""
        return [key for key, failures in self._failures.items() if failures > STUCK_AFTER]

    def __len__(self) -> int:
        return len(self._ready) + bool(self._processing)

    def next_timer(self) -> float | None:
        """Return the time of the next reconcile, on the loop's clock: now if a key is ready."""
        due = self._loop.time() if len(self) else self._loud.first()
        return due if due < inf else None

    def _arm(self) -> None:
        due = min(self._loud.first(), self._quiet.first())
        if self._handle is None or due < self._handle.when():
            self.close()
            self._handle = self._loop.call_at(due, self._ring) if due < inf else None

    def _ring(self) -> None:
        self._handle = None
        now = self._loop.time()
        for timers in (self._loud, self._quiet):
            for key in timers.pop(now):
                self.add(key)
        self._arm()

    def close(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
