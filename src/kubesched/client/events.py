"""Events about objects (events.k8s.io/v1), sent in the background, so that recording never waits.

Each profile has an :class:`EventRecorder`; all of them feed one :class:`EventBroadcaster`, whose tasks
turn repetitions into series and do the sending (spec "Metrics, events and the API client" section 5).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict, deque
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import TypeAlias
from uuid import UUID

from kubesched.api.kinds import EVENTS
from kubesched.api.tasks import Supervisor
from kubesched.api.times import Clock
from kubesched.api.wire import ApiError, Transport

from .event_objects import NOTE_LIMIT, Entry, EventNames, Key, Referable, limit_note, reference_to
from .running import Background

__all__ = ["NOTE_LIMIT", "QUEUE_SIZE", "EventBroadcaster", "EventRecorder", "EventStatistics", "limit_note"]

logger = logging.getLogger("kubesched.client")

QUEUE_SIZE = 1000
ATTEMPTS = 12
RETRY_SECONDS = 10.0
RETRY_JITTER = 0.25
#: A series not repeated for this long is finished; also how often this is checked.
FINISH_SECONDS = 360.0
#: How often running series are reported to the server, so that they do not expire.
REFRESH_SECONDS = 1800.0
#: Events kept for repetition. Upstream has no bound; an event storm must not fill our memory.
CACHE_SIZE = 20_000
#: Events sent before other tasks run, for transports that never wait.
YIELD_INTERVAL = 32
#: Events on their way at a time. Upstream has no bound; one at a time fills the queue while pods are bound faster.
SENDERS = 128

#: recorder, regarding, type, reason, action, note, related, time
_Recorded: TypeAlias = "tuple[EventRecorder, Referable, str, str, str, str, Referable | None, float]"

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class EventStatistics:
    """A snapshot of the broadcaster's counters. ``dropped`` never left: queue full, or stopped."""

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
    """Sends what the recorders record, in order, up to ``senders`` events at a time, of one series one at a time.

    First of its kind: POST. Second: PATCH of ``series``. From the third on the count grows in memory only
    and is sent every 30 minutes, and once more when the series has not grown for 6 minutes.
    Errors of the connection are retried (12 tries, 10 s and up to 25 % apart) while later events go ahead;
    what the server refuses is logged and given up.
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
    ) -> None:
        super().__init__()
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._queue_size = queue_size
        self._cache_size = cache_size
        self._queue: deque[_Recorded] = deque()
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._retries: list[tuple[float, int, Entry, bool, int]] = []  # due, order, entry, patch?, tries made
        self._order = 0
        self._names = EventNames()
        self._next_finish: float | None = None
        self._next_refresh: float | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._busy = 0  # senders that are not waiting
        self._helpers = 0
        self._helpers_at_most = senders - 1
        self._idle: deque[asyncio.Future[None]] = deque()
        self._drained: list[asyncio.Future[None]] = []
        self._recorded = self._dropped = self._posted = self._patched = 0
        self._absorbed = self._retried = self._failed = 0

    def offer(
        self,
        recorder: EventRecorder,
        regarding: Referable,
        type: str,  # noqa: A002 - upstream's word
        reason: str,
        action: str,
        note: str,
        related: Referable | None,
    ) -> None:
        """Queue an event; drop it when the queue is full. Called by :class:`EventRecorder`."""
        self._recorded += 1
        queue = self._queue
        if self._stopped or len(queue) >= self._queue_size:
            self._dropped += 1
            return
        queue.append((recorder, regarding, type, reason, action, note, related, self._clock.now()))
        if self._waiter is not None:
            _wake(self._waiter)
        elif self._idle:
            _wake(self._idle.popleft())

    async def drain(self) -> None:
        """Wait until every event recorded so far was offered to the server once. Retries are not waited for.

        Returns at once after ``stop()``.

        Raises:
            RuntimeError: when events are queued and ``run()`` was not started.
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
            posted=self._posted,
            patched=self._patched,
            absorbed=self._absorbed,
            retries=self._retried,
            failed=self._failed,
            queued=len(self._queue),
            waiting_for_retry=len(self._retries),
            remembered=len(self._entries),
        )

    # -- the task ------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        async with Supervisor("events") as tasks:
            await self._work(tasks)

    async def _work(self, tasks: Supervisor) -> None:
        """The first sender: it also does what is due at a time."""
        loop = asyncio.get_running_loop()
        sent = 0
        self._busy += 1
        while True:
            now = loop.time()
            if self._queue:
                self._call_for_help(tasks)
                await self._take(self._queue.popleft(), now)
            elif self._retries and self._retries[0][0] <= now:
                _, _, entry, patch, tries = heappop(self._retries)
                await self._send(entry, patch, tries)
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

    def _call_for_help(self, tasks: Supervisor) -> None:
        """Another sender, when more is queued than this one takes now and no other sender is free."""
        if len(self._queue) > 1 and not self._idle and self._helpers < self._helpers_at_most:
            self._helpers += 1
            tasks.spawn(self._help(tasks), f"events-{self._helpers}")

    async def _help(self, tasks: Supervisor) -> None:
        """One more sender, for the queue only."""
        loop = asyncio.get_running_loop()
        sent = 0
        self._busy += 1
        while True:
            while self._queue:
                self._call_for_help(tasks)
                await self._take(self._queue.popleft(), loop.time())
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
        """Until something is recorded or due. With no events kept there is no timer: a simulation may end."""
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

    # -- series --------------------------------------------------------------------------------------------

    async def _take(self, recorded: _Recorded, now: float) -> None:
        recorder, regarding, event_type, reason, action, note, related, time = recorded
        key = Key(
            event_type,
            action,
            reason,
            recorder.reporting_controller,
            recorder.reporting_instance,
            reference_to(regarding),
            None if related is None else reference_to(related),
        )
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(key, note, time, self._name(key.regarding.name, time), now)
            if self._next_finish is None:
                self._next_finish = now + FINISH_SECONDS
                self._next_refresh = now + REFRESH_SECONDS
            await self._send(entry, False)
            if len(self._entries) > self._cache_size:
                _, oldest = self._entries.popitem(last=False)
                if oldest.count > 1:
                    await self._send(oldest, True)
            return
        entry.count += 1
        entry.last = time
        entry.seen = now
        if entry.count == 2:
            await self._send(entry, True)
        else:
            self._absorbed += 1

    async def _finish(self, now: float) -> None:
        """Drop events not repeated lately; the final count of a series is sent."""
        finished = [entry for entry in self._entries.values() if now - entry.seen >= FINISH_SECONDS]
        for entry in finished:
            del self._entries[entry.key]
        self._next_finish = now + FINISH_SECONDS if self._entries else None
        if not self._entries:
            self._next_refresh = None
        for entry in finished:
            if entry.count > 1:
                await self._send(entry, True)

    async def _refresh(self, now: float) -> None:
        self._next_refresh = now + REFRESH_SECONDS
        for entry in [entry for entry in self._entries.values() if entry.count > 1]:
            await self._send(entry, True)

    def _name(self, regarding: str, time: float) -> str:
        """A name for an event; a random one when the object's does not make one."""
        name = self._names.next(regarding, time)
        if len(name) <= 253 and _SUBDOMAIN.fullmatch(name):
            return name
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    # -- sending -------------------------------------------------------------------------------------------

    async def _send(self, entry: Entry, patch: bool, tries: int = 0) -> None:
        """Send an event or its count. While the same one is on its way, its count follows when that has ended."""
        if entry.sending:
            entry.again = True
            return
        entry.sending = True
        try:
            await self._try(entry, patch, tries)
            while entry.again:
                entry.again = False
                await self._try(entry, True, 0)
        finally:
            entry.sending = False

    async def _try(self, entry: Entry, patch: bool, tries: int) -> None:
        try:
            if not patch or not await self._patch(entry):
                await self._transport.create(EVENTS, entry.namespace, entry.to_wire())
                self._posted += 1
        except OSError as error:
            self._again(entry, patch, tries + 1, error)
        except ApiError as error:
            if patch and error.reason == "AlreadyExists":
                self._again(entry, patch, tries + 1, error)
            else:
                self._give_up(entry, error)
        except Exception:
            self._failed += 1
            logger.exception("event %s/%s could not be sent", entry.namespace, entry.name)

    async def _patch(self, entry: Entry) -> bool:
        """Send the count to the server; False when it does not know the event (any more)."""
        try:
            await self._transport.patch(EVENTS, entry.namespace, entry.name, {"series": entry.series()})
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        self._patched += 1
        return True

    def _again(self, entry: Entry, patch: bool, tries: int, error: Exception) -> None:
        # As many may wait for another try as for the first: an outage must not fill the memory.
        if tries >= ATTEMPTS or len(self._retries) >= self._queue_size:
            self._give_up(entry, error)
            return
        self._retried += 1
        self._order += 1
        pause = RETRY_SECONDS * (1.0 + RETRY_JITTER * self._rng.random())
        due = asyncio.get_running_loop().time() + pause
        heappush(self._retries, (due, self._order, entry, patch, tries))

    def _give_up(self, entry: Entry, error: Exception) -> None:
        self._failed += 1
        key = entry.key
        text = str(error) or repr(error)
        logger.warning("event %s about %s/%s given up: %s", key.reason, entry.namespace, key.regarding.name, text)


class EventRecorder:
    """Records events in the name of one profile. ``record`` only queues: it never waits and never raises."""

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

        The same event again (everything but the note equal, the object's version included) makes a series.
        """
        # No character takes more than four bytes.
        if len(note) > NOTE_LIMIT // 4:
            note = limit_note(note)
        self._broadcaster.offer(self, regarding, type, reason, action, note, related)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
