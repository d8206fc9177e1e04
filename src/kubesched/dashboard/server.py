"""Site of the dashboard: the page and its API, everything under ``/ui/``.

A listener has let the request in: the loopback listener by its login, the secure port of ``kubesched run`` as for metrics.
``docs/dashboard-api.md`` lists the paths. Answers are JSON, compressed if the client accepts it; errors are a
:class:`~kubesched.dashboard.schema.Fault`.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, unquote

import msgspec

from kubesched import __version__
from kubesched.base.extras import needing
from kubesched.base.large_json import large_json
from kubesched.base.lines import printable
from kubesched.base.pages import Answer, BadQueryError, accepts_gzip, check_names, one_value
from kubesched.base.tasks import EndedFirstError, unless

from .login import MOST_BODY, check_write
from .schema import Dashboard, Fault
from .schema_what_if import WhatIf
from .source import PodQuery, Refused, Source
from .static_files import static_files

with needing("the dashboard", "server"):
    from aiohttp import web

__all__ = ["Site", "refused"]

_log = logging.getLogger("kubesched.dashboard")

T = TypeVar("T")

#: Most streams of changes at a time, of all pages together.
MOST_STREAMS: Final = 32
#: Most characters of a path and of a query, most parameters, and most pods of a list.
_MOST_PATH: Final = 1024
_MOST_QUERY: Final = 4096
_MOST_PARAMETERS: Final = 32
_MOST_PODS: Final = 1000
#: Most changes of a recording in one answer.
_MOST_CHANGES: Final = 5000
#: Bytes from which on an answer is compressed, and from which on that is done in a thread.
_COMPRESSED: Final = 1024
_IN_THREAD: Final = 64 * 1024
#: Greatest number in a parameter: a time in the year 33658.
_MOST_NUMBER: Final = 1e12

_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURE: Final = {
    "Content-Security-Policy": _CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Server": "kubesched",
    "X-Frame-Options": "DENY",
}
_NO_STORE: Final = {"Cache-Control": "no-store", "Vary": "Accept-Encoding", **_SECURE}
_FOREVER: Final = {**_NO_STORE, "Cache-Control": "private, max-age=31536000, immutable"}
_STREAM: Final = {**_NO_STORE, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}

#: Characters that turn the direction of a text, in UTF-8. Names and messages with them look like others.
_TURNS: Final = re.compile(rb"\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")

_API: Final = "/ui/api/v1/"

Query = dict[str, list[str]]


class Site:
    """Site that shows one source, or two side by side."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = {str(number): source for number, source in enumerate(sources)}
        self._streams = 0
        #: Last large document that was encoded, with its JSON, and that compressed. Several pages ask for the same.
        self._kept: tuple[Any, bytes | bytearray, bytes | None] = (None, b"", None)
        #: Files of the page, compressed, by name.
        self._packed: dict[str, bytes] = {}
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all streams, and begin no more."""
        self._closing.set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request that may be made. What cannot be answered gets a Fault."""
        try:
            return await self._answer(request)
        except Refused as error:
            return refused(error)
        except BadQueryError as error:
            return refused(Refused(400, str(error)))
        except ConnectionError:
            raise
        except Exception:
            _log.exception("%s %s failed", request.method, ascii(request.path[:_MOST_PATH]))
            return refused(Refused(500, "the answer failed; the log of kubesched says why"))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query_text = _raw_path(request)
        if len(path) > _MOST_PATH or len(query_text) > _MOST_QUERY:
            raise Refused(414, f"the path may have {_MOST_PATH} characters, the query {_MOST_QUERY}")
        if not path.startswith(_API):
            return await self._file(request, path)
        query = _parameters(query_text)
        parts = [unquote(part, errors="replace") for part in path.removeprefix(_API).split("/")]
        if "" in parts:
            raise Refused(404, "no such path; docs/dashboard-api.md lists them")
        if request.method == "POST":
            return await self._posted(request, parts, query)
        if request.method not in ("GET", "HEAD"):
            return refused(Refused(405, "only GET, HEAD and POST are known here"), {"Allow": "GET, HEAD, POST"})
        if parts == ["dashboard"]:
            _check_names(query)
            document = Dashboard(version=__version__, runs=[source.info for source in self._sources.values()])
            return await self._json(request, document)
        source, rest = self._source(parts)
        if rest == ["changes"]:
            return await self._changes(request, source, query)
        if rest[0] == "explain":
            return await self._explained(request, source, rest, query)
        return await self._json(request, await _asked(source, rest, query))

    def _source(self, parts: Sequence[str]) -> tuple[Source, list[str]]:
        """Return the run that a path is about, and the rest of the path."""
        match parts:
            case ["runs", number, *rest] if rest:
                if number in self._sources:
                    return self._sources[number], list(rest)
                raise Refused(404, f"there is no run {printable(number[:32])!r}; the runs are in /ui/api/v1/dashboard")
        raise Refused(404, "no such path; docs/dashboard-api.md lists them")

    # -- kinds of answers ----------------------------------------------------------------------------------

    async def _file(self, request: web.BaseRequest, path: str) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return refused(Refused(405, "only GET and HEAD are known here"), {"Allow": "GET, HEAD"})
        if path == "/ui":
            return web.Response(status=308, headers={"Location": "/ui/", **_NO_STORE})
        name = path.removeprefix("/ui/") or "index.html"
        file = static_files().get(name)
        if file is None:
            raise Refused(404, "there is no such file")
        headers = {**(_FOREVER if file.immutable else _NO_STORE), "Content-Type": file.content_type}
        text = file.content_type.startswith(("text/", "application/")) or "svg" in file.content_type
        if text and len(file.body) >= _COMPRESSED and accepts_gzip(request.headers.get("Accept-Encoding", "")):
            if name not in self._packed:
                self._packed[name] = await asyncio.to_thread(_gzip, file.body)
            return web.Response(body=self._packed[name], headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=file.body, headers=headers)

    async def _json(self, request: web.BaseRequest, document: Any) -> web.Response:
        """Answer with a document. A large one that is asked for again is encoded once."""
        encoded = self._kept[1] if self._kept[0] is document else large_json(document)
        return await self._body(request, encoded, "application/json", document)

    async def _body(
        self, request: web.BaseRequest, body: bytes | bytearray, kind: str, document: Any = None
    ) -> web.Response:
        headers = {**_NO_STORE, "Content-Type": kind}
        body = _TURNS.sub(_escaped, body)
        if len(body) < _COMPRESSED or not accepts_gzip(request.headers.get("Accept-Encoding", "")):
            return web.Response(body=bytes(body), headers=headers)
        packed = await self._compressed(document, body)
        return web.Response(body=packed, headers={**headers, "Content-Encoding": "gzip"})

    async def _compressed(self, document: Any, body: bytes | bytearray) -> bytes:
        if document is not None and self._kept[0] is document and self._kept[2] is not None:
            return self._kept[2]
        packed = _gzip(body) if len(body) < _IN_THREAD else await asyncio.to_thread(_gzip, body)
        if document is not None and len(body) >= _IN_THREAD:
            self._kept = document, body, packed
        return packed

    async def _explained(
        self, request: web.BaseRequest, source: Source, rest: Sequence[str], query: Query
    ) -> web.Response:
        at = _number(query, "at")
        query.pop("at", None)
        answer = await source.explain("/" + "/".join(rest), query, at)
        if answer.status >= 400:
            raise _as_refused(answer)
        return await self._body(request, answer.body, answer.content_type)

    async def _changes(self, request: web.BaseRequest, source: Source, query: Query) -> web.StreamResponse:
        """Answer with a stream of events until the page goes, or this site closes."""
        _check_names(query, "since")
        since = request.headers.get("Last-Event-ID") or one_value(query, "since")
        version = int(since) if since.isascii() and since.isdigit() and len(since) < 17 else None
        if self._streams >= MOST_STREAMS:
            return refused(Refused(503, f"{MOST_STREAMS} streams are open, which is the limit"), {"Retry-After": "10"})
        found = source.changes(version)  # what is refused is refused before the stream begins
        response = web.StreamResponse(headers=_STREAM)
        self._streams += 1
        try:
            async with aclosing(_as_generator(found)) as events:
                await response.prepare(request)
                if request.method == "HEAD":
                    return response
                try:
                    await unless(self._closing, _send(response, events), "dashboard-stream")
                except (EndedFirstError, ConnectionError):
                    pass  # this site closes, or the page has gone
                except Exception:
                    _log.exception("a stream of changes failed")
        finally:
            self._streams -= 1
        return response

    async def _posted(self, request: web.BaseRequest, parts: Sequence[str], query: Query) -> web.Response:
        check_write(request, with_origin=False)
        _check_names(query)
        source, rest = self._source(parts)
        if rest not in (["what-if"], ["apply"]):
            raise Refused(404, "only what-if and apply take a POST")
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise Refused(413, f"the body may have {MOST_BODY:,} bytes") from None
        try:
            question = msgspec.json.decode(body, type=WhatIf)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(400, f"the body is no WhatIf: {printable(str(error)[:300])}") from None
        done = source.what_if(question) if rest == ["what-if"] else source.apply(question)
        return await self._json(request, await done)


async def _asked(source: Source, rest: Sequence[str], query: Query) -> Any:
    """Return the document of a path below a run."""
    match rest:
        case ["state"]:
            return await _at(source.state, query)
        case ["played"]:
            return await _played(source, query)
        case ["series"]:
            _check_names(query)
            return await source.series()
        case ["queues"]:
            return await _at(source.queues, query)
        case ["pods"]:
            wanted = _pod_query(query)
            return await source.pods(wanted, _number(query, "at"))
        case ["pods", namespace, name]:
            return await _at(lambda at: source.pod(namespace, name, at), query)
        case ["nodes", name]:
            return await _at(lambda at: source.node(name, at), query)
        case ["verdicts", namespace, name]:
            return await _at(lambda at: source.verdicts(namespace, name, at), query)
        case ["what-if"]:
            _check_names(query)
            return await source.choices()
    raise Refused(404, "no such path; docs/dashboard-api.md lists them")


async def _at(ask: Callable[[float | None], Awaitable[T]], query: Query) -> T:
    _check_names(query, "at")
    return await ask(_number(query, "at"))


async def _played(source: Source, query: Query) -> Any:
    _check_names(query, "from", "to", "most")
    start, end, most = _number(query, "from"), _number(query, "to"), _number(query, "most")
    if start is None or end is None or end < start:
        raise Refused(400, "from and to: expected two times in seconds, the earlier one first")
    most = _MOST_CHANGES if most is None else most
    if not (1 <= most <= _MOST_CHANGES and most == int(most)):
        raise Refused(400, f"most: expected a whole number from 1 to {_MOST_CHANGES}")
    return await source.played(start, end, int(most))


def _pod_query(query: Query) -> PodQuery:
    _check_names(query, "q", "namespace", "state", "node", "workload", "limit", "at")
    limit = _number(query, "limit")
    if limit is not None and not (0 <= limit <= _MOST_PODS and limit == int(limit)):
        raise Refused(400, f"limit: expected a whole number from 0 to {_MOST_PODS}")
    return PodQuery(
        text=one_value(query, "q"),
        namespace=one_value(query, "namespace"),
        state=one_value(query, "state"),
        node=one_value(query, "node"),
        workload=one_value(query, "workload"),
        limit=100 if limit is None else int(limit),
    )


async def _send(response: web.StreamResponse, events: AsyncIterator[bytes]) -> None:
    async for event in events:
        await response.write(event)


async def _as_generator(events: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield events. At the end their source is told that nobody listens any more."""
    try:
        async for event in events:
            yield event
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


# -- requests ------------------------------------------------------------------------------------------


def refused(error: Refused, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return the answer to a request that cannot be answered."""
    body = msgspec.json.encode(Fault(error=str(error)))
    answer = web.Response(status=error.status, body=body, headers={**_NO_STORE, **(headers or {})})
    answer.headers["Content-Type"] = "application/json"
    return answer


def _as_refused(answer: Answer) -> Refused:
    return Refused(answer.status, answer.body.decode("utf-8", "replace").strip())


def _raw_path(request: web.BaseRequest) -> tuple[str, str, str]:
    """Return path, "?" and query as they were sent, without a scheme and host."""
    text = request.raw_path
    if not text.startswith("/"):
        text = request.rel_url.raw_path_qs
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").partition("?")


def _parameters(text: str) -> Query:
    try:
        return parse_qs(text, keep_blank_values=True, errors="replace", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise Refused(400, f"a query may have {_MOST_PARAMETERS} parameters") from None


def _check_names(query: Query, *known: str) -> None:
    check_names(query, *known, of="path")


def _number(query: Query, name: str) -> float | None:
    text = one_value(query, name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) < _MOST_NUMBER:
        raise Refused(400, f"{name}: expected a number, got {printable(text[:32])!r}")
    return number


def _escaped(turn: re.Match[bytes]) -> bytes:
    """Return a character in words, within a JSON text."""
    return rb"\\u%04x" % ord(turn[0].decode())


def _gzip(body: bytes | bytearray) -> bytes:
    return gzip.compress(body, compresslevel=1, mtime=0)
