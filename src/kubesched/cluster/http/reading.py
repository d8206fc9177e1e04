"""Get, list and watch over HTTP: stored bytes, or tables and metadata when asked for.

A short list is one answer. A long one is sent in parts, so that it neither blocks the event loop nor is held whole in
memory::

    head ── "items": [ ── part, part, part ── ]        as JSON, indented JSON or YAML; joined, the bytes are the same

A part has the bytes of some objects. The length is not known beforehand, so the answer is sent in chunks. A slow client
delays its own answer only. A watch is a stream of JSON lines, fed in batches from the store's history::

    open ──▶ initial state (when asked) ──▶ changes ──▶ bookmark now and then ──▶ time is up, or 410 as ERROR event

A slow reader blocks no other reader: its position in the history lags until it gets 410. It holds a piece of the stream
and refers to stored objects; own copies of large objects are few. The server closes a watch that takes nothing, as
upstream (:mod:`kubesched.base.connections`). Caller: :mod:`.dispatch`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from random import Random
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from kubesched.api.wire import ApiError, Item, ListPage, WatchEvent
from kubesched.base.turns import Steps, in_turns

from ..schema import encode
from ..store import Store, Watch
from .answers import PLAIN, YAML, begin_stream, set_headers, whole
from .calls import Call, shutting_down
from .tables import Form, form_of

__all__ = ["Lists", "Watches", "answer_list", "answer_object", "list_objects", "read_page"]

_Send = Callable[[list[WatchEvent]], Awaitable[None]]
_log = logging.getLogger("kubesched.cluster")
#: Shortest duration of a watch without ``timeoutSeconds``, in seconds; the longest is twice this.
MIN_SECONDS: Final = 1800.0
#: Bytes of objects per part of an answer. A client that does not read holds about this much memory.
_PART: Final = 256 * 1024
#: Bytes of events that a watch joins. A client that does not read holds at most four times this much memory.
_PIECE: Final = 32 * 1024
#: Copies of objects longer than a piece, about 1.5 MiB at most, that all watches together may hold.
_MOST_COPIES: Final = 64
#: Most events that a watch takes from the history at a time.
_EVENTS: Final = 256
#: Number of selector terms whose comparison with a change takes as long as passing the change on to a watch.
_TERMS: Final = 5


def answer_object(call: Call, item: Item, status: int = 200) -> web.Response:
    """Answer a read or a write with an object, in the form asked for."""
    return call.answer(form_of(call).object(item), status)


async def list_objects(call: Call) -> web.StreamResponse:
    """Answer with a page of objects. A long page is made with pauses, but shows one moment."""
    call.query.check_list(watch=False)
    return await answer_list(call, await in_turns(read_page(call)))


def read_page(call: Call) -> Steps[ListPage]:
    """Return the page that a list request asks for."""
    query = call.query
    version, match = query.text("resourceVersion"), query.text("resourceVersionMatch")
    limit, token = max(0, query.number("limit") or 0), query.text("continue")
    if token:
        version = match = ""
    elif version == "0":
        limit = 0  # as upstream's watch cache, which does not page
    elif version and limit and not match:
        match = "Exact"  # upstream's older rule: a limited list at a version means exactly this version
    return call.store.listing(
        call.resource.kind,
        call.target.namespace,
        label_selector=query.text("labelSelector"),
        field_selector=query.text("fieldSelector"),
        limit=limit,
        continue_token=token,
        resource_version=version,
        resource_version_match=match,
    )


async def answer_list(call: Call, page: ListPage) -> web.StreamResponse:
    """Answer with a page as a list, a table, or bare metadata. A long one is sent in parts."""
    metadata: dict[str, Any] = {"resourceVersion": page.resource_version}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    form, style, items = form_of(call), call.style, page.items
    head = form.head(metadata)
    parts = _parts(items, style.batch)
    first = next(parts, ())
    if len(first) == len(items):
        return call.answer(whole(head, form.member, [form.part(items)] if items else []) + b"\n")
    begin, end = style.around(whole(head, form.member, [b"0"]) + b"\n")
    before, after = style.around(b'{"items":[0]}\n')
    response = web.StreamResponse()
    set_headers(response, style.content_type, call.warnings)
    begun = False
    try:
        for part in chain((first,), parts):
            text = style.write(b'{"items":[%b]}\n' % form.part(part))
            if not begun:
                await begin_stream(response, call.request)
            await response.write((style.between if begun else begin) + text[len(before) : len(text) - len(after)])
            begun = True
            await asyncio.sleep(0)
        await response.write(end)
        await response.write_eof()
    except ConnectionError:
        pass  # the client has disconnected
    except Exception:
        if not begun:
            raise
        # An answer that has begun cannot become an error. The client sees that the end of the answer is missing.
        _log.exception("%s %s failed after the answer had begun", call.request.method, call.request.path)
        if call.request.transport is not None:
            call.request.transport.abort()
    return response


def _parts(items: Sequence[Item], count: int) -> Iterator[Sequence[Item]]:
    """Yield the parts of a list: at most ``count`` objects each, and fewer if they have enough bytes."""
    start = held = 0
    for place, item in enumerate(items):
        if place - start == count or held >= _PART:
            yield items[start:place]
            start, held = place, 0
        held += item.size
    if items:
        yield items[start:]


class Lists:
    """Lists that are being answered, at most ``limit`` at a time.

    Each holds its objects until the client has taken them.

    Raises:
        ApiError: 429, on entering one more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open = 0

    def __enter__(self) -> None:
        if self._open >= self._limit:
            text = "too many lists are being sent by this server; try again later"
            raise ApiError(429, "TooManyRequests", text, {"retryAfterSeconds": 1})
        self._open += 1

    def __exit__(self, *exception: object) -> None:
        self._open -= 1


# -- watches -----------------------------------------------------------------------------------------------


class Watches:
    """Open watches of a server.

    At most ``limit`` may be open. A watch with a long selector counts as several, since each change is compared with
    it.
    """

    def __init__(self, store: Store, rng: Random, *, limit: int, bookmark_seconds: float) -> None:
        self._store = store
        self._rng = rng
        self._limit = limit
        self._bookmark_seconds = bookmark_seconds
        self._open: dict[Watch, None] = {}
        self._copies = asyncio.Semaphore(_MOST_COPIES)
        #: Places taken by watches. Watches that are just beginning count, and a watch with a long selector takes
        #: several places.
        self._taken = 0
        #: True once the server no longer begins a watch.
        self.is_closing = False

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """End all streams; their handlers return soon."""
        self.is_closing = True
        for watch in list(self._open):
            watch.close()

    async def serve(self, call: Call) -> web.StreamResponse:
        """Answer a watch request until it ends."""
        query = call.query
        query.check_list(watch=True)
        if call.form.media_type == YAML:
            raise ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")
        if self.is_closing:
            raise shutting_down()
        terms = query.text("labelSelector").count(",") + query.text("fieldSelector").count(",")
        weight = 1 + terms // _TERMS
        if self._taken + weight > self._limit:
            text = "too many watches are open on this server; close some, or try again later"
            raise ApiError(429, "TooManyRequests", text, {"retryAfterSeconds": 1})
        self._taken += weight
        try:
            return await self._answer(call)
        finally:
            self._taken -= weight

    async def _answer(self, call: Call) -> web.StreamResponse:
        query, form = call.query, form_of(call)
        timeout = query.number("timeoutSeconds")
        seconds = float(timeout) if timeout and timeout > 0 else MIN_SECONDS * (1.0 + self._rng.random())
        bookmarks = query.flag("allowWatchBookmarks")
        if is_log := call.target.subresource == "log":
            seconds = math.inf if query.flag("follow") else 0.0
        watch: Watch | None = None
        expired = b""
        try:
            watch = await in_turns(self._begin(call))
            self._open[watch] = None
            if self.is_closing:
                watch.close()
        except ApiError as error:
            if error.code != 410:
                raise
            expired = _error_line(error)  # upstream reports an expired version inside the stream
        response = web.StreamResponse()
        set_headers(response, "text/plain" if is_log else PLAIN.content_type, call.warnings)
        try:
            await begin_stream(response, call.request)
            if call.request.transport is not None:
                call.request.transport.set_write_buffer_limits(high=1)  # a piece waits until the one before is gone
            if watch is None:
                await response.write(expired)
            else:
                send = None if is_log else partial(self._send, call.request.writer, form, bookmarks)
                await self._stream(response, watch, send, seconds, bookmarks=bookmarks)
            await response.write_eof()
        except ConnectionError:
            pass  # the client has disconnected; most watches end this way
        finally:
            if watch is not None:
                self._open.pop(watch, None)
                watch.close()
        return response

    def _begin(self, call: Call) -> Steps[Watch]:
        query, target = call.query, call.target
        version, initial = query.text("resourceVersion"), query.flag("sendInitialEvents")
        if "sendInitialEvents" in query and not initial and version in ("", "0"):
            version = str(self._store.resource_version)
        selectors = (query.text("fieldSelector"), f"metadata.name={target.name}" if target.name else "")
        return self._store.watching(
            call.resource.kind,
            target.namespace,
            resource_version=version,
            label_selector=query.text("labelSelector"),
            field_selector=",".join(filter(None, selectors)),
            send_initial_events=initial,
        )

    async def _stream(
        self, response: web.StreamResponse, watch: Watch, send: _Send | None, seconds: float, *, bookmarks: bool
    ) -> None:
        """Send the events of a watch. Without ``send``, send nothing and end with the pod that is watched."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not watch.closed:
            try:
                events = watch.drain(_EVENTS)
            except ApiError as error:
                await response.write(_error_line(error))
                return
            if send is None and any(map(_is_end, events)):
                return
            if send is not None:
                await send(events)
            await asyncio.sleep(0)
            left = deadline - loop.time()
            is_over = left <= 0 and not watch.begins
            quiet = min(left, self._bookmark_seconds)
            is_quiet = is_over or (not await watch.wait(quiet) and quiet < left)
            if is_quiet and bookmarks and send is not None and not watch.pending:
                await send([watch.bookmark()])
            if is_over:
                return

    async def _send(self, writer: AbstractStreamWriter, form: Form, bookmarks: bool, events: list[WatchEvent]) -> None:
        """Send events, and empty their list. Small ones are joined; a copy of a large one is made when there is room."""
        parts: list[bytes] = []
        held = 0
        events.reverse()
        while events:
            type_, item = events.pop()
            if type_ == "BOOKMARK" and not bookmarks:
                continue
            make = form.bookmark if type_ == "BOOKMARK" else form.object
            parts += (b'{"type":"', type_.encode(), b'","object":')
            if item.size > _PIECE:
                await _write(writer, parts)
                async with self._copies if form.copies else nullcontext():
                    await _write(writer, [make(item)])
            else:
                parts.append(text := make(item))
                held += len(text)
            parts.append(b"}\n")
            if held >= _PIECE:
                await _write(writer, parts)
                held = 0
        await _write(writer, parts)


async def _write(writer: AbstractStreamWriter, parts: list[bytes]) -> None:
    """Write parts, joined, and empty their list. At most two pieces wait for the client at a time."""
    view = memoryview(b"".join(parts))  # one part alone is not copied
    parts.clear()
    for start in range(0, len(view), 2 * _PIECE):
        await writer.write(view[start : start + 2 * _PIECE])
        await writer.drain()


def _is_end(event: WatchEvent) -> bool:
    """True if an event about a pod says that its containers do not run any more."""
    return event.type == "DELETED" or (event.item.data().get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _error_line(error: ApiError) -> bytes:
    return encode({"type": "ERROR", "object": error.to_status()}) + b"\n"
