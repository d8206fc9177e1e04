"""Watches over HTTP: a stream of JSON lines, fed in batches from the store's history.

    open ──▶ initial state (when asked) ──▶ changes ──▶ bookmark now and then ──▶ time is up, or 410 as ERROR event

Caller: :mod:`.dispatch`. A slow reader blocks no other: its position in the history lags until it gets 410.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec
from aiohttp import web

from ...api.turns import Steps, in_turns
from ...api.wire import ApiError, Item, WatchEvent
from ..schema import encode
from ..store import Store, Watch
from .answers import YAML, begin_stream
from .calls import Call, shutting_down
from .reading import Shape

__all__ = ["Watches"]

#: A watch without ``timeoutSeconds`` lasts between one and two times this long.
MIN_SECONDS: Final = 1800.0
#: Events written in one go before other tasks get a turn.
BATCH: Final = 1000
_END: Final = b"}\n"


class Watches:
    """The open watches of a server, and how they end."""

    def __init__(self, store: Store, rng: Random, *, limit: int, bookmark_seconds: float) -> None:
        self._store = store
        self._rng = rng
        self._limit = limit
        self._bookmark_seconds = bookmark_seconds
        self._open: dict[Watch, None] = {}
        self._closing = False

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """End all streams; their handlers return soon."""
        self._closing = True
        for watch in list(self._open):
            watch.close()

    async def serve(self, call: Call) -> web.StreamResponse:
        """Answer a watch request until it ends."""
        query = call.query
        query.check_list(watch=True)
        if call.form.media_type == YAML:
            raise ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")
        if self._closing:
            raise shutting_down()
        if len(self._open) >= self._limit:
            text = "too many watches are open on this server; close some, or try again later"
            raise ApiError(429, "TooManyRequests", text, {"retryAfterSeconds": 1})
        shaper = _Shaper(self._store, call)
        timeout = query.number("timeoutSeconds")
        seconds = float(timeout) if timeout and timeout > 0 else MIN_SECONDS * (1.0 + self._rng.random())
        bookmarks = query.flag("allowWatchBookmarks")
        watch: Watch | None = None
        expired = b""
        try:
            watch = await in_turns(self._begin(call))
            self._open[watch] = None
            if self._closing:
                watch.close()
        except ApiError as error:
            if error.code != 410:
                raise
            expired = _error_line(error)  # upstream reports an expired version inside the stream
        try:
            response = web.StreamResponse(
                headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
            )
            await begin_stream(response, call.request)
            if watch is None:
                await response.write(expired)
            else:
                await self._stream(response, watch, shaper, seconds, bookmarks=bookmarks)
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
        version, initial = query.text("resourceVersion"), False
        if query.has("sendInitialEvents"):
            initial = query.flag("sendInitialEvents")
            if not initial and version in ("", "0"):
                version = str(self._store.resource_version)
        selector = query.text("fieldSelector")
        if target.name:
            selector = f"{selector},metadata.name={target.name}" if selector else f"metadata.name={target.name}"
        return self._store.watching(
            call.resource.kind,
            target.namespace,
            resource_version=version,
            label_selector=query.text("labelSelector"),
            field_selector=selector,
            send_initial_events=initial,
        )

    async def _stream(
        self, response: web.StreamResponse, watch: Watch, shaper: _Shaper, seconds: float, *, bookmarks: bool
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
                lines = shaper.lines(events[start : start + BATCH], bookmarks=bookmarks)
                if lines:
                    await response.write(lines)
                await asyncio.sleep(0)
            left = deadline - loop.time()
            if left <= 0 and not watch.begins:
                if bookmarks and not watch.pending:
                    await response.write(shaper.lines([watch.bookmark()], bookmarks=True))
                return
            quiet = min(left, self._bookmark_seconds)
            if not await watch.wait(quiet) and bookmarks and not watch.pending and quiet < left:
                await response.write(shaper.lines([watch.bookmark()], bookmarks=True))


def _error_line(error: ApiError) -> bytes:
    return encode({"type": "ERROR", "object": error.to_status()}) + b"\n"


class _Shaper:
    """Writes events in the form one watch asked for."""

    def __init__(self, store: Store, call: Call) -> None:
        self._resource = call.resource
        self._shape = Shape(store, call)
        self._headers = True

    def lines(self, events: Sequence[WatchEvent], *, bookmarks: bool) -> bytes:
        parts: list[bytes] = []
        for type_, item in events:
            if type_ == "BOOKMARK" and not bookmarks:
                continue
            parts += (b'{"type":"', type_.encode(), b'","object":', self._object(type_, item), _END)
        return b"".join(parts)

    def _object(self, type_: str, item: Item) -> bytes:
        if type_ == "BOOKMARK":
            if self._shape.tables is not None:
                return self._shape.tables.bookmark(item)
            if self._shape.is_plain and self._resource.is_converted:
                return msgspec.json.encode({**item.data(), "apiVersion": self._resource.api_version})
            return self._shape.object(item)
        raw = self._shape.object(item, headers=self._headers)
        self._headers = False  # the columns of a table are sent once
        return raw
