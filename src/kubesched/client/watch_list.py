"""An open watch, and the list that a streaming watch begins with (rules/metrics-and-client §6.2).

    ADDED … (MODIFIED, DELETED) … BOOKMARK with "k8s.io/initial-events-end" │ changes, as of any watch

Caller: :class:`.reflector.Reflector`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from kubesched.api.wire import ApiError, Item, WatchEvent, ends_initial_events

from .http_reading import error_of

__all__ = ["InitialEvents", "OpenWatch", "read_initial_events", "stream_error"]

logger = logging.getLogger("kubesched.client")

#: Seconds after which a streamed list that has not ended is logged; the line is repeated at this interval.
SLOW_SECONDS: Final = 10.0


class OpenWatch:
    """Stream of batches, cut off ``seconds`` after it was opened (None: never).

    ``events`` is the number of events so far.
    """

    def __init__(self, stream: AsyncIterator[Sequence[WatchEvent]], seconds: float | None) -> None:
        self._stream = stream
        self._deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        self.events = 0

    async def next_batch(self) -> Sequence[WatchEvent] | None:
        """Return the next events; None if the stream has ended or its time is over.

        Raises:
            ApiError, OSError: any error of the transport.
        """
        if self._deadline is None:
            batch = await anext(self._stream, None)
        else:
            try:
                async with asyncio.timeout_at(self._deadline) as deadline:
                    batch = await anext(self._stream, None)
            except TimeoutError:
                if not deadline.expired():
                    raise
                return None
        self.events += len(batch or ())
        return batch

    async def close(self) -> None:
        aclose = getattr(self._stream, "aclose", None)
        if aclose is not None:
            await aclose()


class InitialEvents(NamedTuple):
    """A complete list, its version, and the changes that arrived together with its end."""

    items: list[Item]
    version: int
    rest: Sequence[WatchEvent]


async def read_initial_events(watch: OpenWatch, what: str, charge: Callable[[int], None]) -> InitialEvents | None:
    """Read the list at the beginning of a watch. None if the watch ends before the list does. ``what`` is for the log,
    ``charge`` is called with the bytes of each object before it is kept.

    Raises:
        ApiError, OSError: any error of the transport or in the stream.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None
    started = loop.time()

    def warn() -> None:
        nonlocal timer
        logger.warning("%s: the list has been streamed for %.0f s and has not ended", what, loop.time() - started)
        timer = loop.call_later(SLOW_SECONDS, warn)

    timer = loop.call_later(SLOW_SECONDS, warn)
    found: dict[str, Item] = {}
    try:
        while (batch := await watch.next_batch()) is not None:
            for place, event in enumerate(batch, 1):
                kind, item = event
                if kind == "ERROR":
                    raise stream_error(item)
                if kind == "BOOKMARK":
                    if ends_initial_events(event):
                        return InitialEvents(list(found.values()), item.resource_version, batch[place:])
                elif not item.name or kind not in ("ADDED", "MODIFIED", "DELETED"):
                    logger.warning("%s: watch event %.40s %.80s skipped", what, kind, item.name or "without a name")
                elif kind == "DELETED":
                    found.pop(item.key, None)
                else:
                    charge(item.size - (found[item.key].size if item.key in found else 0))
                    found[item.key] = item
    finally:
        timer.cancel()
    return None


def stream_error(item: Item) -> ApiError:
    """Return the error in the ``Status`` of an ERROR event."""
    try:
        status = item.data()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = {}
    return error_of(status, 500, "the watch reported an error without a message")
