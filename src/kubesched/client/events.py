"""Events about objects (events.k8s.io/v1), sent in the background, so that recording never waits.

Each profile has an :class:`EventRecorder`. All recorders feed one :class:`EventBroadcaster`: a queue and tasks in front
of an :class:`~.event_writer.EventWriter`, which turns repetitions into series (rules/metrics-and-client §5).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import TypeAlias

from kubesched.api.wire import Transport
from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock

from .event_counting import Entry, Key, Referable, Reference, Series
from .event_writer import CACHE_SIZE, EventWriter
from .running import Background

__all__ = ["NOTE_LIMIT", "QUEUE_SIZE", "EventBroadcaster", "EventRecorder", "EventStatistics", "limit_note"]

logger = logging.getLogger("kubesched.client")

#: Most bytes of UTF-8 in a note.
NOTE_LIMIT = 1024
QUEUE_SIZE = 1000
ATTEMPTS = 12
RETRY_SECONDS = 10.0
RETRY_JITTER = 0.25
#: Seconds without a repetition after which a series is finished; also the interval of that check.
FINISH_SECONDS = 360.0
#: Seconds between two reports of running series to the server, so that they do not expire.
REFRESH_SECONDS = 1800.0
#: Events sent before other tasks get a turn, for transports that never wait.
YIELD_INTERVAL = 32
#: Most events on their way at one time. Upstream has no bound. With a single one, the queue would fill when pods are
#: bound faster than events are sent.
SENDERS = 128

#: type, action, reason, reporting controller, reporting instance
_Words: TypeAlias = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class EventStatistics:
    """Snapshot of the broadcaster's counters. ``dropped`` events were never sent: queue full, or sender stopped."""

    recorded: int
    dropped: int
    posted: int
    patched: int
    absorbed: int
    retries: int
    failed: int
    queued: int
    waiting_for_retry: int
    remembered: int


class EventBroadcaster(Background):
    """Sends recorded events in order, up to ``senders`` at a time, but only one at a time of each series.

    The count of a series is sent every 30 minutes, and once more when the series has not grown for 6 minutes. After an
    error of the connection an event is tried again (12 tries, 10 s and up to 25 % apart) while later events go ahead.
    An event that the server refuses is logged and given up.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        rng: Random,
        queue_size: int = QUEUE_SIZE,
        cache_size: int = CACHE_SIZE,
        senders: int = SENDERS,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        """``refresh_seconds`` is the interval of the reports of running series; infinite if events do not expire."""
        super().__init__()
        self._writer = EventWriter(
            transport, clock, Series(), rng=rng, report=logger.warning, retry=self._again, cache_size=cache_size
        )
        self._clock = clock
        self._rng = rng
        self._queue_size = queue_size
        self._queue: deque[tuple[_Words, Referable, Referable | None, str, float]] = deque()
        self._retries: list[tuple[float, int, Entry, int]] = []  # due, order, entry, tries made
        self._order = 0
        self._refresh_seconds = refresh_seconds
        self._next_finish: float | None = None
        self._next_refresh: float | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._busy = 0  # senders that are not waiting
        self._helpers = 0
        self._helpers_at_most = senders - 1
        self._idle: deque[asyncio.Future[None]] = deque()
        self._drained: list[asyncio.Future[None]] = []
        self._recorded = self._dropped = self._retried = 0

    def offer(self, words: _Words, regarding: Referable, related: Referable | None, note: str) -> None:
        """Queue an event, or drop it if the queue is full. Called by :class:`EventRecorder`."""
        self._recorded += 1
        queue = self._queue
        if self._stopped or len(queue) >= self._queue_size:
            self._dropped += 1
            return
        queue.append((words, regarding, related, note, self._clock.now()))
        if self._waiter is not None:
            _wake(self._waiter)
        elif self._idle:
            _wake(self._idle.popleft())

    async def drain(self) -> None:
        """Wait until every event recorded so far was offered to the server once. Does not wait for retries.

        Returns at once after ``stop()``.

        Raises:
            RuntimeError: if events are queued and ``run()`` was not started.
        """
        if self._stopped or not (self._queue or self._busy):
            return
        if not self._running:
            raise RuntimeError("drain() needs the broadcaster's run() in a task")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drained.append(done)
        await done

    def statistics(self) -> EventStatistics:
        return EventStatistics(
            recorded=self._recorded,
            dropped=self._dropped,
            posted=self._writer.posted,
            patched=self._writer.patched,
            absorbed=self._writer.absorbed,
            retries=self._retried,
            failed=self._writer.failed,
            queued=len(self._queue),
            waiting_for_retry=len(self._retries),
            remembered=len(self._writer),
        )

    # -- the task ------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        async with Supervisor("events") as tasks:
            await self._work(tasks)

    async def _work(self, tasks: Supervisor) -> None:
        """Run the first sender, which also does the work that is due at a certain time."""
        loop = asyncio.get_running_loop()
        sent = 0
        self._busy += 1
        while True:
            now = loop.time()
            if self._queue:
                if left := self._take(now):
                    await self._send(tasks, left)
            elif self._retries and self._retries[0][0] <= now:
                _, _, entry, tries = heappop(self._retries)
                await self._writer.send(entry, tries)
            elif self._next_finish is not None and self._next_finish <= now:
                await self._finish(now)
            elif self._next_refresh is not None and self._next_refresh <= now:
                await self._refresh(now)
            else:
                self._rests()
                await self._wait(loop)
                self._busy += 1
                continue
            sent += 1
            if sent % YIELD_INTERVAL == 0:
                await asyncio.sleep(0)

    def _take(self, now: float) -> Sequence[Entry]:
        """Begin to send the first queued event, without waiting. Return the entries that still have to be sent."""
        words, regarding, related, note, time = self._queue.popleft()
        if self._next_finish is None:
            self._next_finish = now + FINISH_SECONDS
            self._next_refresh = now + self._refresh_seconds
        event = Key(*words, Reference.to(regarding), None if related is None else Reference.to(related))
        return self._writer.take_now(event, note, time, now)

    async def _send(self, tasks: Supervisor, entries: Sequence[Entry]) -> None:
        """Send events. Start another sender if more events are queued and no other sender is free."""
        if self._queue and not self._idle and self._helpers < self._helpers_at_most:
            self._helpers += 1
            tasks.spawn(self._help(tasks), f"events-{self._helpers}")
        for entry in entries:
            await self._writer.send(entry)

    async def _help(self, tasks: Supervisor) -> None:
        """Run one more sender, for the queue only."""
        loop = asyncio.get_running_loop()
        sent = 0
        self._busy += 1
        while True:
            while self._queue:
                if left := self._take(loop.time()):
                    await self._send(tasks, left)
                sent += 1
                if sent % YIELD_INTERVAL == 0:
                    await asyncio.sleep(0)
            self._rests()
            idle: asyncio.Future[None] = loop.create_future()
            self._idle.append(idle)
            await idle
            self._busy += 1

    def _rests(self) -> None:
        self._busy -= 1
        if not self._busy and not self._queue:
            self._release()

    async def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until an event is recorded or work is due.

        Without events there is no timer, so that a simulation can end.
        """
        due = [time for time in (self._next_finish, self._next_refresh) if time is not None]
        if self._retries:
            due.append(self._retries[0][0])
        waiter = self._waiter = loop.create_future()
        timer = loop.call_at(min(due), _wake, waiter) if due else None
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _release(self) -> None:
        for done in self._drained:
            _wake(done)
        self._drained.clear()

    def _ended(self) -> None:
        self._dropped += len(self._queue) + len(self._retries)
        self._queue.clear()
        self._retries.clear()
        self._busy = 0
        self._release()

    # -- what is due at a time -----------------------------------------------------------------------------

    async def _finish(self, now: float) -> None:
        await self._writer.expire(now, FINISH_SECONDS)
        self._next_finish = now + FINISH_SECONDS if len(self._writer) else None
        if self._next_finish is None:
            self._next_refresh = None

    async def _refresh(self, now: float) -> None:
        self._next_refresh = now + self._refresh_seconds
        await self._writer.refresh()

    def _again(self, entry: Entry, tries: int) -> bool:
        # Retries have the same bound as the queue, so that an outage cannot fill the memory.
        if tries >= ATTEMPTS or len(self._retries) >= self._queue_size:
            return False
        self._retried += 1
        self._order += 1
        pause = RETRY_SECONDS * (1.0 + RETRY_JITTER * self._rng.random())
        heappush(self._retries, (asyncio.get_running_loop().time() + pause, self._order, entry, tries))
        return True


class EventRecorder:
    """Recorder of events in the name of one profile. ``record`` only queues: it never waits and never raises."""

    def __init__(self, broadcaster: EventBroadcaster, reporting_controller: str, reporting_instance: str) -> None:
        self._broadcaster = broadcaster
        self.reporting_controller = reporting_controller
        self.reporting_instance = reporting_instance

    def record(
        self,
        regarding: Referable,
        type: str,  # noqa: A002 - upstream's word
        reason: str,
        action: str,
        note: str,
        related: Referable | None = None,
    ) -> None:
        """Queue an event. ``type`` is Normal or Warning; the note is cut to 1024 bytes.

        A repetition continues a series. Two events are repetitions if they differ in nothing except the note. The
        object's version must be equal, too.
        """
        # A character takes at most four bytes.
        if len(note) > NOTE_LIMIT // 4:
            note = limit_note(note)
        names = self.reporting_controller, self.reporting_instance
        self._broadcaster.offer((type, action, reason, *names), regarding, related, note)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def limit_note(note: str) -> str:
    """Limit a note to 1024 bytes: a longer one keeps its first 1020 and ends in `` ...``."""
    encoded = note.encode("utf-8", "replace")
    if len(encoded) <= NOTE_LIMIT:
        return note
    # A character cut in half is dropped.
    return encoded[: NOTE_LIMIT - 4].decode("utf-8", "ignore") + " ..."
