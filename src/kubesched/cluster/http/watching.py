"""Watches over HTTP: a stream of JSON lines, fed in batches from the store's history.

    open ──▶ initial state (when asked) ──▶ changes ──▶ bookmark now and then ──▶ time is up, or 410 as ERROR event

Caller: :mod:`.dispatch`. A slow reader blocks no other: its position in the history lags until it gets 410.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from aiohttp import web

from ...api.turns import Steps, in_turns
from ...api.wire import ApiError, WatchEvent
from ..schema import encode
from ..store import Store, Watch
from .answers import PLAIN, YAML, begin_stream, set_headers
from .calls import Call, shutting_down
from .tables import Form, form_of

__all__ = ["Watches"]

#: A watch without ``timeoutSeconds`` lasts between one and two times this long.
MIN_SECONDS: Final = 1800.0
#: Events written in one go before other tasks get a turn.
BATCH: Final = 1000


class Watches:
    """The open watches of a server, and how they end."""

    def __init__(self, store: Store, rng: Random, *, limit: int, bookmark_seconds: float) -> None:
        self._store = store
        self._rng = rng
        self._limit = limit
        self._bookmark_seconds = bookmark_seconds
        self._open: dict[Watch, None] = {}
        #: The server does not begin anything any more.
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
        if len(self._open) >= self._limit:
            text = "too many watches are open on this server; close some, or try again later"
            raise ApiError(429, "TooManyRequests", text, {"retryAfterSeconds": 1})
        form = form_of(call)
        timeout = query.number("timeoutSeconds")
        seconds = float(timeout) if timeout and timeout > 0 else MIN_SECONDS * (1.0 + self._rng.random())
        bookmarks = query.flag("allowWatchBookmarks")
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
        set_headers(response, PLAIN.content_type, ())
        try:
            await begin_stream(response, call.request)
            if watch is None:
                await response.write(expired)
            else:
                await self._stream(response, watch, form, seconds, bookmarks=bookmarks)
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
        self, response: web.StreamResponse, watch: Watch, form: Form, seconds: float, *, bookmarks: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not watch.closed:
            try:
                events = watch.drain()
            except ApiError as error:
                await response.write(_error_line(error))
                return
            for start in range(0, len(events), BATCH):
                lines = _lines(form, events[start : start + BATCH], bookmarks=bookmarks)
                if lines:
                    await response.write(lines)
                await asyncio.sleep(0)
            left = deadline - loop.time()
            is_over = left <= 0 and not watch.begins
            quiet = min(left, self._bookmark_seconds)
            is_quiet = is_over or (not await watch.wait(quiet) and quiet < left)
            if is_quiet and bookmarks and not watch.pending:
                await response.write(_lines(form, [watch.bookmark()], bookmarks=True))
            if is_over:
                return


def _error_line(error: ApiError) -> bytes:
    return encode({"type": "ERROR", "object": error.to_status()}) + b"\n"


def _lines(form: Form, events: Sequence[WatchEvent], *, bookmarks: bool) -> bytes:
    """Events in the form that a watch asked for."""
    parts: list[bytes] = []
    for type_, item in events:
        if type_ != "BOOKMARK":
            parts += (b'{"type":"', type_.encode(), b'","object":', form.object(item), b"}\n")
        elif bookmarks:
            parts += (b'{"type":"BOOKMARK","object":', form.bookmark(item), b"}\n")
    return b"".join(parts)
