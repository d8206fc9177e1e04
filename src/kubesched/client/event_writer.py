"""Events: building and sending them. Everything that records events uses this module.

An :class:`EventWriter` keeps recorded events by key, builds the API object and sends it: POST first, PATCH for a
repetition, POST again if the server has lost it. A :class:`.event_counting.Counting` decides which events are
repetitions and which are sent.

Callers: :mod:`.events`, which adds a queue and tasks for the scheduler. Controllers and hollow kubelets await
:meth:`EventWriter.record`.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import takewhile
from random import Random
from typing import Any, Final
from uuid import UUID

from kubesched.api.wire import ApiError, Item, Transport
from kubesched.base.times import Clock

from .connection_log import reason_of
from .event_counting import LEAST_RECENT, Counting, Entry, Key, Reference, head

__all__ = ["CACHE_SIZE", "NORMAL", "WARNING", "EventWriter"]

logger = logging.getLogger("kubesched.client")

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

#: Most events that the scheduler keeps so that repetitions are recognised. The least recently recorded one goes first. Upstream's
#: series have no bound, but an event storm must not fill the memory.
CACHE_SIZE: Final = 20_000

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class EventWriter:
    """Counts events and sends those that are due. Each event has at most one request under way.

    ``report`` receives a text about each event that is given up. ``retry`` receives an event and the number of tries
    made, after an error of the connection, or when the server already has the series that was to be created. It returns
    True if it will call :meth:`send` again. Without ``retry``, and after any other refusal, the event is given up until
    it is repeated.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        counting: Counting,
        *,
        rng: Random,
        report: Callable[[str], None],
        retry: Callable[[Entry, int], bool] | None = None,
        cache_size: int = LEAST_RECENT,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._counting = counting
        self._rng = rng
        self._report = report
        self._retry = retry
        self._cache_size = cache_size
        self._entries: OrderedDict[Key, Entry] = OrderedDict()  # the least recently recorded first
        self._nanoseconds = 0
        self.posted = self.patched = self.absorbed = self.failed = 0

    def __len__(self) -> int:
        """Number of events that are kept so that repetitions are recognised."""
        return len(self._entries)

    async def record(
        self, about: Item, component: str, type_: str, reason: str, message: str, *, host: str = ""
    ) -> None:
        """Record an event about an object in the name of a component, now. Errors of the transport are not raised."""
        now = self._clock.now()
        await self.take(Key(type_, "", reason, component, host, Reference.to(about)), message, now, now)

    async def take(self, event: Key, note: str, time: float, seen: float) -> None:
        """Count an event recorded at ``time`` (epoch seconds) and send it if it is due.

        ``seen`` is the present time, by the clock that is passed to :meth:`expire`.
        """
        for entry in self.take_now(event, note, time, seen):
            await self.send(entry)

    def take_now(self, event: Key, note: str, time: float, seen: float) -> Sequence[Entry]:
        """Do the part of :meth:`take` that needs no waiting. Return the entries that are left for :meth:`send`."""
        key, note = self._counting.identify(event, note, time)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(key, event.regarding, note, time, time, seen)
        else:
            self._entries.move_to_end(key)
            if self._counting.newest:
                entry.regarding, entry.note = event.regarding, note
        entry.count += 1
        entry.last = time
        entry.seen = seen
        left: list[Entry] = []
        if not self._counting.is_due(entry, time):
            self.absorbed += 1
        elif not self._is_recorded(entry):
            left.append(entry)
        if len(self._entries) > self._cache_size:
            dropped = self._entries.popitem(last=False)[1]
            if self._closes(dropped):
                left.append(dropped)
        return left

    def _is_recorded(self, entry: Entry) -> bool:
        """Send an event for the first time, if that needs no waiting. Return False if it is left to :meth:`send`."""
        if entry.sending or entry.posted:
            return False
        entry.name = entry.name or self._name(entry.regarding.name, entry.time)
        record = self._counting.record(entry)
        if record is None:
            return False
        try:
            entry.posted = self._transport.record(record)
        except Exception as error:
            entry.posted = isinstance(error, ApiError) and error.reason == "AlreadyExists"
            self._failed(entry, error, 0)
            return True
        self.posted += entry.posted
        return entry.posted

    async def expire(self, seen: float, seconds: float) -> None:
        """Drop the events that were last counted ``seconds`` ago or earlier. The final count of a series is sent."""
        expired = list(takewhile(lambda entry: seen - entry.seen >= seconds, self._entries.values()))
        for entry in expired:
            del self._entries[entry.key]
        for entry in expired:
            if self._closes(entry):
                await self.send(entry)

    async def refresh(self) -> None:
        """Send the count of every event that was repeated, so that it does not expire at the server."""
        for entry in [entry for entry in self._entries.values() if entry.count > 1]:
            await self.send(entry)

    def _closes(self, entry: Entry) -> bool:
        """True if the count of an event has to be sent when the event is dropped."""
        return self._counting.closes and entry.count > 1

    async def send(self, entry: Entry, tries: int = 0) -> None:
        """Send an event or its count. If a request about it is under way, the count is sent after that."""
        if entry.sending:
            entry.again = True
            return
        entry.sending = True
        try:
            await self._try(entry, tries)
            while entry.again:
                entry.again = False
                await self._try(entry, 0)
        finally:
            entry.sending = entry.again = False

    async def _try(self, entry: Entry, tries: int) -> None:
        try:
            if entry.posted:
                await self._patch(entry)
            if not entry.posted:
                await self._post(entry, tries)
        except Exception as error:
            self._failed(entry, error, tries)

    def _failed(self, entry: Entry, error: Exception, tries: int) -> None:
        # A series that was to be created again exists: the next try is a PATCH.
        there = isinstance(error, ApiError) and error.reason == "AlreadyExists" and entry.count > 1
        passing = there or isinstance(error, OSError)
        if not (passing and self._retry is not None and self._retry(entry, tries + 1)):
            self._give_up(entry, error)

    async def _patch(self, entry: Entry) -> None:
        """Send the count. If the server does not know the event (any more), mark it as not posted."""
        counting = self._counting
        try:
            await self._transport.patch(counting.kind, entry.namespace, entry.name, counting.repetition(entry))
            self.patched += 1
        except ApiError as error:
            if error.code != 404:
                raise
            entry.posted = False

    async def _post(self, entry: Entry, tries: int) -> None:
        counting = self._counting
        while not entry.posted:
            entry.name = entry.name or self._name(entry.regarding.name, entry.time)
            try:
                await self._transport.create(counting.kind, entry.namespace, self._build(entry))
            except ApiError as error:
                taken = error.reason == "AlreadyExists"
                if taken and tries and entry.count == 1:  # an earlier try was carried out, and its answer was lost
                    entry.posted = True
                    self.posted += 1
                    return
                if not (taken and counting.renames):
                    entry.posted = taken
                    raise
                entry.name = ""  # another component recorded an event of this name in the same instant
            else:
                entry.posted = True
                self.posted += 1

    def _build(self, entry: Entry) -> dict[str, Any]:
        fields = head(self._counting.kind, entry.key, entry.namespace, entry.name, entry.time)
        return {**fields, **self._counting.fields(entry)}

    def _name(self, regarding: str, time: float) -> str:
        """Return a new name ``REGARDING.HEX``. HEX is the time in nanoseconds, but always greater than the last one.

        If the object's name does not lead to a valid name, the result is random.
        """
        self._nanoseconds = max(int(time * 1e9), self._nanoseconds + 1)
        name = f"{regarding}.{self._nanoseconds:x}"
        if len(name) <= 253 and _SUBDOMAIN.fullmatch(name):
            return name
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    def _give_up(self, entry: Entry, error: Exception) -> None:
        self.failed += 1
        if isinstance(error, ApiError) and error.code in self._counting.expected:
            return
        if not isinstance(error, ApiError | OSError):  # this is a defect of this program, so the traceback is needed
            logger.error("event %s/%s could not be sent", entry.namespace, entry.name, exc_info=error)
        about, text = entry.regarding, reason_of(error)
        self._report(f"event {entry.key.reason} about {about.kind} {entry.namespace}/{about.name} given up: {text}")
