"""Streams of changes: each change is encoded once, and sent to every page as a server-sent event.

A page that takes its events too slowly loses them and gets the event ``resync``: it asks for the state anew. So does a page
that comes back after more changes than are kept. Nothing is done while no page listens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import dropwhile
from typing import Final

import msgspec

from .schema import Change

__all__ = ["Streams"]

#: Most events, and most bytes, that wait for one page, and that are kept for pages that come back.
MOST_WAITING: Final = 64
MOST_BYTES: Final = 1 << 20
#: Seconds without an event after which a comment keeps the connection open.
_KEEP_OPEN: Final = 15.0

_RESYNC: Final = b"event: resync\ndata: {}\n\n"
_COMMENT: Final = b": still here\n\n"

_encode = msgspec.json.Encoder().encode


class _Events:
    """Events with their versions, the last ones within bounds. ``lost``: one was dropped since the last :meth:`take`."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self.lost = False

    def add(self, version: int, event: bytes) -> None:
        self._events.append((version, event))
        self._bytes += len(event)
        while self._events and (len(self._events) > MOST_WAITING or self._bytes > MOST_BYTES):
            self._bytes -= len(self._events.popleft()[1])
            self.lost = True

    def clear(self) -> None:
        self._events.clear()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._events)

    def after(self, version: int) -> list[tuple[int, bytes]] | None:
        """Return the events after a version; None if they are not all here."""
        if not self._events or self._events[0][0] > version + 1:
            return None
        return list(dropwhile(lambda event: event[0] <= version, self._events))

    def pop(self) -> bytes:
        _, event = self._events.popleft()
        self._bytes -= len(event)
        return event


class _Page:
    """Page that listens, with the events that wait for it."""

    def __init__(self) -> None:
        self.events = _Events()
        self.must_resync = False
        self.wake = asyncio.Event()

    def put(self, version: int, event: bytes) -> None:
        self.events.add(version, event)
        if self.events.lost:
            self.resync()
        self.wake.set()

    def resync(self) -> None:
        self.events.clear()
        self.events.lost = False
        self.must_resync = True
        self.wake.set()

    def take(self) -> bytes | None:
        """Return the next event; None if there is none yet."""
        if self.must_resync:
            self.must_resync = False
            return _RESYNC
        if self.events:
            return self.events.pop()
        self.wake.clear()
        return None


class Streams:
    """Streams of one run. ``version`` is that of the last change.

    ``watched`` is called with True before the first page listens, and with False after the last one has gone. ``speed`` is the
    number of seconds that the event loop counts in a real one.
    """

    def __init__(self, version: int, watched: Callable[[bool], None], *, speed: float = 1.0) -> None:
        self.version = version
        self._watched = watched
        self._keep_open = _KEEP_OPEN * speed
        self._pages: set[_Page] = set()
        self._kept = _Events()

    @property
    def pages(self) -> int:
        """Number of pages that listen."""
        return len(self._pages)

    def publish(self, change: Change) -> None:
        """Send the next change to all pages. Its version must be ``version + 1``."""
        assert change.version == self.version + 1
        self.version = change.version
        event = b"event: change\nid: %d\ndata: %b\n\n" % (change.version, _encode(change))
        self._kept.add(change.version, event)
        for page in self._pages:
            page.put(change.version, event)

    def reset(self) -> None:
        """Have all pages ask for the state anew: changes do not lead to it."""
        self.version += 1
        self._kept.clear()
        for page in self._pages:
            page.resync()

    async def events(self, since: int | None) -> AsyncIterator[bytes]:
        """Yield the events for a page whose state is of the version ``since``; None if it has no state yet."""
        page = _Page()
        if not self._pages:
            self._watched(True)
        try:
            self._begin(page, since)
            self._pages.add(page)
            while True:
                event = page.take()
                if event is None:
                    try:
                        async with asyncio.timeout(self._keep_open):
                            await page.wake.wait()
                    except TimeoutError:
                        event = _COMMENT
                if event is not None:
                    yield event
        finally:
            self._pages.discard(page)
            if not self._pages:
                self._watched(False)

    def _begin(self, page: _Page, since: int | None) -> None:
        """Put the events that a page has missed."""
        if since == self.version:
            return
        missed = self._kept.after(since) if since is not None and since < self.version else None
        if missed is None:
            page.resync()
            return
        for version, event in missed:
            page.put(version, event)
