"""List, then watch, until stopped: the half of an informer that talks to the API server.

A round is a complete list followed by watches that pick up where the last one ended. :class:`Informer`
owns a reflector and receives its findings through :class:`Sink`. With ``watch_list`` the list comes as the beginning of
the first watch, in pages only when the server cannot do that (:mod:`.watch_list`).

    ended normally            -> watch again from the last version, at once
    connection lost, 429, 5xx -> back off, watch again from the last version
    410, anything else        -> back off, new round; the sink keeps its objects until the list is complete. 410s have a
                                 backoff of their own
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from kubesched.api.kinds import Kind
from kubesched.api.wire import ApiError, Item, ListPage, Transport, WatchEvent, WatchOptions, version_number

from .backoff import Backoff, retry_after
from .connection_log import log_of, reason_of
from .http_reading import has_cause, held_of
from .watch_list import OpenWatch, read_initial_events, stream_error

__all__ = ["PAGE_SIZE", "WATCH_TIMEOUT", "Reflector", "Sink", "VeryShortWatchError"]

logger = logging.getLogger("kubesched.client")

PAGE_SIZE = 500
#: Range of seconds that a watch is asked to last. Drawn for each watch, so that clients do not reconnect in step.
WATCH_TIMEOUT = (300.0, 600.0)
#: Seconds after its timeout at which this side cuts a stream off, because the server seems to have forgotten it.
WATCH_GRACE = 30.0
SHORT_WATCH = 1.0
#: Changes handled in one batch before other tasks get a turn.
YIELD_INTERVAL = 512
#: Most pages in a row that may come without an object.
_MOST_EMPTY_PAGES = 100


class VeryShortWatchError(Exception):
    """A watch ended within a second without an event: something is wrong with the stream or the version."""


class _SinkFailedError(Exception):
    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Sink(Protocol):
    """Receiver of a reflector's findings. Only one call is under way at a time.

    An error that a sink raises ends the reflector: a new list would not repeat objects that the sink believes to have
    already.
    """

    async def replace(self, items: list[Item], version: int) -> None:
        """Take a complete list, as of ``version``, in place of all that was known."""
        ...

    def upsert(self, item: Item) -> None:
        """Take an object as added or modified. Stale and repeated deliveries must have no effect."""
        ...

    def remove(self, items: Sequence[Item]) -> None:
        """Take the final states of deleted objects, in this order. No other change came between them."""
        ...


class Reflector:
    """Lists and watches one kind of object, and feeds a sink.

    With ``skip_ended`` a change is left out if the object's deletion arrives together with it: no one would see it.
    ``watch_timeout`` is the range of seconds a watch may last, None for no limit. ``on_error`` receives every error
    that made the reflector back off.
    Counters are plain attributes, read by the informer.
    """

    def __init__(
        self,
        transport: Transport,
        kind: Kind,
        sink: Sink,
        *,
        rng: Random,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        page_size: int = PAGE_SIZE,
        watch_timeout: tuple[float, float] | None = WATCH_TIMEOUT,
        watch_list: bool = False,
        skip_ended: bool = False,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._connection = log_of(transport)
        self._held = held_of(transport)
        self._skip_ended = skip_ended
        self._transport = transport
        self._kind = kind
        self._sink = sink
        self._rng = rng
        self._namespace = namespace
        self._field_selector = field_selector
        self._label_selector = label_selector
        self._page_size = page_size
        self._watch_timeout = watch_timeout
        self._watch_list = watch_list
        self._on_error = on_error
        self._backoff = Backoff(rng)
        self._expiry_backoff = Backoff(rng)
        self._listed = False
        self._server_pages = False  # True if a list from the cache came in pages: this server honours limits
        self.version = 0
        self.lists = 0
        self.watches = 0
        self.events = 0
        self.bookmarks = 0
        self.skipped = 0
        self.errors = 0

    async def run(self) -> None:
        """Run until cancelled, or until the sink raises an error, which is passed on."""
        while True:
            try:
                await self._round()
            except _SinkFailedError as failed:
                raise failed.error from None
            except Exception as error:
                await self._rest(error, "new list")

    async def _round(self) -> None:
        begun = await self._streamed_list() if self._watch_list else None
        if begun is None:
            await self._list()
        refused = False  # the last watch met a server fault, and no event has come since
        while True:
            started = asyncio.get_running_loop().time()
            seen = self.events
            try:
                watch, begun = begun or self._open(str(self.version)), None
                await self._watch(watch)
            except OSError as error:
                await self._rest(error, "watch again")
                continue
            except ApiError as error:
                repeated = refused and self.events == seen
                if error.code != 429 and (error.code < 500 or repeated):
                    raise
                refused = error.code != 429
                await self._rest(error, "watch again")
                continue
            refused = False
            if self.events == seen and asyncio.get_running_loop().time() - started < SHORT_WATCH:
                raise VeryShortWatchError(f"watch of {self._kind} ended within a second without an event")

    async def _rest(self, error: Exception, then: str) -> None:
        self.errors += 1
        # The server forgets its history when it is restarted, and says so for every kind. It answers by then, so the tries
        # that failed before do not delay the new list.
        backoff = self._expiry_backoff if _is_expired(error) else self._backoff
        delay = backoff.next_delay(asyncio.get_running_loop().time())
        if isinstance(error, ApiError):
            delay = max(delay, retry_after(error.details.get("retryAfterSeconds")) or 0.0)
        if self._connection.failed(error):
            logger.debug("%s: %s in %.1f s", self._kind, then, delay)
        elif isinstance(error, ApiError | OSError | VeryShortWatchError):
            level = logging.INFO if _is_expired(error) else logging.WARNING
            logger.log(level, "%s: %s; %s in %.1f s", self._kind, reason_of(error), then, delay)
        else:
            logger.error("%s: unexpected error; %s in %.1f s", self._kind, then, delay, exc_info=error)
        if self._on_error is not None:
            self._on_error(error)
        await asyncio.sleep(delay)

    # -- list ----------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """List from the server's cache first, later at least the known version (rules/metrics-and-client §6.3)."""
        version = str(self.version) if self._listed else "0"
        limit = self._page_size if version == "0" or self._server_pages else 0
        try:
            items, found = await self._pages(version, limit)
        except ApiError as error:
            if not (_is_expired(error) or _is_too_large(error)):
                raise
            items, found = await self._pages("", self._page_size)
        await self._replace(items, found)

    async def _replace(self, items: list[Item], version: int) -> None:
        self.lists += 1
        self._connection.worked()
        try:
            await self._sink.replace(items, version)
        except Exception as error:
            raise _SinkFailedError(error) from error
        self.version = version
        self._listed = True

    async def _streamed_list(self) -> OpenWatch | None:
        """Read the list from the beginning of a watch, and return the open watch (rules/metrics-and-client §6.2).

        None if the list has to come in pages.
        """
        version = str(self.version) if self._listed else ""
        while True:
            watch = self._open(version, initial=True)
            started = asyncio.get_running_loop().time()
            try:
                with self._held.share() as charge:
                    found = await read_initial_events(watch, str(self._kind), charge)
                if found is not None:
                    await self._replace(found.items, found.version)
                    await self._consume(found.rest)
                    return watch
                await watch.close()
                if not watch.events and asyncio.get_running_loop().time() - started < SHORT_WATCH:
                    raise VeryShortWatchError(f"watch of {self._kind} ended within a second without an event")
            except _SinkFailedError:
                await watch.close()
                raise
            except Exception as error:
                await watch.close()
                if isinstance(error, ApiError) and version and (_is_expired(error) or _is_too_large(error)):
                    version = ""
                elif isinstance(error, ConnectionRefusedError) or (isinstance(error, ApiError) and error.code == 429):
                    await self._rest(error, "watch again")
                elif isinstance(error, ApiError) and error.code in (400, 422):
                    self._connection.not_streamed(error)
                    return None
                else:
                    # The list in pages will be refused as well, without permission or kind. That refusal is logged.
                    refused = isinstance(error, ApiError) and error.code in (403, 404)
                    is_said = refused or self._connection.failed(error)
                    level = logging.DEBUG if is_said else logging.WARNING
                    text = "%s: the list cannot be streamed and comes in pages: %s"
                    logger.log(level, text, self._kind, reason_of(error))
                    return None
            except BaseException:
                await watch.close()
                raise

    async def _pages(self, version: str, limit: int) -> tuple[list[Item], int]:
        page = await self._page(limit=limit, resource_version=version)
        # The first page's version is right even if later pages show later states. The watch delivers the changes in
        # between again, and they are recognised as known.
        found = self._version_of(page)
        items = list(page.items)
        if page.continue_token and version == "0":
            self._server_pages = True
        empty = 0
        with self._held.share() as charge:
            while page.continue_token:
                charge(sum(item.size for item in page.items))
                empty = 0 if page.items else empty + 1
                if empty > _MOST_EMPTY_PAGES:
                    text = (
                        f"list of {self._kind}: {empty} pages without an object, and each has a token for another page"
                    )
                    raise ApiError(500, "InternalError", text)
                try:
                    page = await self._page(limit=limit, continue_token=page.continue_token)
                except ApiError as error:
                    if not _is_expired(error):
                        raise
                    page = await self._page(resource_version=version)
                    return list(page.items), self._version_of(page)
                items.extend(page.items)
                await asyncio.sleep(0)  # a transport in the same process never waits here
        return items, found

    def _version_of(self, page: ListPage) -> int:
        text = page.resource_version
        number = version_number(text)
        if not number and text not in ("", "0"):
            problem = f"the server's answer cannot be read: resourceVersion {text[:40]!r} is no number"
            raise ApiError(500, "InternalError", f"list of {self._kind}: {problem}")
        return number

    async def _page(self, *, limit: int = 0, continue_token: str = "", resource_version: str = "") -> ListPage:
        return await self._transport.list(
            self._kind,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
        )

    # -- watch ---------------------------------------------------------------------------------------------

    def _open(self, version: str, *, initial: bool = False) -> OpenWatch:
        timeout = None if self._watch_timeout is None else self._rng.uniform(*self._watch_timeout)
        self.watches += 1
        options: WatchOptions = {
            "resource_version": version,
            "label_selector": self._label_selector,
            "field_selector": self._field_selector,
            "timeout_seconds": timeout,
        }
        if initial:
            options["send_initial_events"] = True
        stream = self._transport.watch(self._kind, self._namespace, **options)
        return OpenWatch(stream, None if timeout is None else timeout + WATCH_GRACE)

    async def _watch(self, watch: OpenWatch) -> None:
        try:
            while (batch := await watch.next_batch()) is not None:
                if batch and watch.events == len(batch):  # a stream that is older says nothing of new requests
                    self._connection.worked()
                await self._consume(batch)
        finally:
            await watch.close()

    async def _consume(self, batch: Sequence[WatchEvent]) -> None:
        for start in range(0, len(batch), YIELD_INTERVAL):
            if start:
                await asyncio.sleep(0)
            part = batch[start : start + YIELD_INTERVAL]
            ended = {item.key: item for kind, item in part if kind == "DELETED"} if self._skip_ended else {}
            gone: list[Item] = []  # deletions since the last change of another type
            for event_type, item in part:
                if event_type == "ERROR":
                    self._deliver(gone)
                    raise stream_error(item)
                if event_type == "BOOKMARK":
                    self.bookmarks += 1
                elif not item.name:
                    logger.warning("%s: watch event %.40s without a name skipped", self._kind, event_type)
                    continue
                elif event_type == "DELETED":
                    gone.append(item)
                elif event_type == "MODIFIED" and ended and _is_before(item, ended.get(item.key)):
                    self.skipped += 1
                elif event_type in {"MODIFIED", "ADDED"}:
                    self._deliver(gone, item)
                    gone = []
                else:
                    logger.warning("%s: watch event of unknown type %.40s skipped", self._kind, event_type)
                    continue
                self.events += 1
                if item.resource_version > self.version:
                    self.version = item.resource_version
            self._deliver(gone)

    def _deliver(self, gone: Sequence[Item], changed: Item | None = None) -> None:
        """Deliver deletions, then an addition or a modification."""
        try:
            if gone:
                self._sink.remove(gone)
            if changed is not None:
                self._sink.upsert(changed)
        except Exception as error:
            raise _SinkFailedError(error) from error


def _is_before(item: Item, final: Item | None) -> bool:
    """True if the same object is deleted in a later version, ``final``."""
    return final is not None and item.uid == final.uid and item.resource_version < final.resource_version


def _is_expired(error: Exception) -> bool:
    return isinstance(error, ApiError) and (error.code == 410 or error.reason in {"Expired", "Gone"})


def _is_too_large(error: ApiError) -> bool:
    """True if the server has not yet seen the version known here: it was restarted, or is another replica."""
    return "too large resource version" in error.message.lower() or has_cause(error, "ResourceVersionTooLarge")
