"""Listener of the dashboard on loopback: its socket, the login, and the checks that the secure port makes by itself.

    Listener(site, ...) ──▶ start() ──▶ link ──▶ … ──▶ stop()

Callers: ``kubesched up``, ``run`` and ``view``.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Any, Final

from kubesched.base.connections import Connection, Connections
from kubesched.base.extras import needing
from kubesched.base.times import RealClock

from .login import COOKIE, MOST_BODY, SESSION_SECONDS, Login, check_write, session_key
from .server import Site, refused
from .source import Refused

with needing("the dashboard", "server"):
    from aiohttp import web
    from aiohttp.http_exceptions import HttpProcessingError

__all__ = ["Listener"]

_log = logging.getLogger("kubesched.dashboard")

_HEADER_BYTES: Final = 16 * 1024
_MOST_CONNECTIONS: Final = 128
_HEAD_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 90.0
_SHUTDOWN_SECONDS: Final = 0.5
#: Errors that clients cause.
_THEIRS: Final = (HttpProcessingError, web.RequestPayloadError, ConnectionError)


class Listener:
    """Listener of a site. ``announce`` is called with each link that can be used: the first one, and a new one after each use.

    ``speed`` is the number of seconds that the event loop counts in a real one; timeouts are real ones.
    """

    def __init__(
        self,
        site: Site,
        address: tuple[str, int],
        *,
        announce: Callable[[str], None],
        warn: Callable[[str], None],
        speed: float = 1.0,
        option: str = "--ui",
    ) -> None:
        """``option`` is the command line option that gave the address, for messages."""
        self._site = site
        self._option = option
        self._host, self._port = address
        self._warn = warn
        self._announce = announce
        self._speed = speed
        key, self._remark = session_key(os.environ)
        self._login = Login(key, RealClock(), lambda key: announce(self.link))
        self._runner: web.ServerRunner | None = None
        self._connections: Connections | None = None

    @property
    def url(self) -> str:
        """Address of the page."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/ui/"

    @property
    def link(self) -> str:
        """Link that logs in; it works once."""
        return f"{self.url}?key={self._login.link_key}"

    async def start(self, *, announce: bool = True) -> None:
        """Listen, and announce the first link, unless the caller does so with :meth:`announce`.

        Raises:
            OSError: when the address cannot be used; the text says which and why.
        """
        opened = _bound(self._host, self._port, self._option)
        self._port = opened.getsockname()[1]
        server = Connections(
            self._handle,
            _Connection,
            most=_MOST_CONNECTIONS,
            log=_log,
            request_factory=_request,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            keepalive_timeout=_IDLE_SECONDS * self._speed,
            head_seconds=_HEAD_SECONDS * self._speed,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS * self._speed)
        await self._runner.setup()
        server.listen((opened,), None)
        self._connections = server
        if self._remark:
            self._warn(f"{self._option}: {self._remark}")
        if announce:
            self.announce()

    def announce(self) -> None:
        """Announce the link that works now."""
        self._announce(self.link)

    async def stop(self) -> None:
        """Stop listening, end the streams, and close all connections. May be called twice."""
        if self._connections is not None:
            self._connections.close()
        self._site.close()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except Refused as error:
            return refused(error)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._login.check_host(request)
        if request.path in ("/", "/ui") and request.method in ("GET", "HEAD"):
            return web.Response(status=303, headers={"Location": "/ui/", "Cache-Control": "no-store"})
        if not request.path.startswith("/ui/"):
            raise Refused(404, "the dashboard is at /ui/")
        has_session = self._login.is_session(request.headers.get("Cookie", ""))
        if request.path == "/ui/" and request.method == "GET" and "key" in request.rel_url.query:
            return self._log_in(request.rel_url.query["key"])
        if request.path.startswith("/ui/api/") and not has_session:
            raise Refused(401, "you are not logged in; open the newest link that the command printed")
        if request.method == "POST":
            check_write(request, with_origin=True)
        return await self._site.answer(request)

    def _log_in(self, key: str) -> web.Response:
        answer = web.Response(
            status=303,
            headers={"Location": "/ui/", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"},
        )
        try:
            session = self._login.use(key)
        except Refused:
            return answer  # without a session the page itself says what to do
        answer.set_cookie(COOKIE, session, max_age=SESSION_SECONDS, path="/ui", httponly=True, samesite="Strict")
        return answer


def _bound(host: str, port: int, option: str) -> socket.socket:
    """Return a socket that is bound to an address.

    Raises:
        OSError: with a text for people.
    """
    name = "127.0.0.1" if host.lower().removesuffix(".") == "localhost" else host
    opened = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((name, port))
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        hint = "; stop what listens there or give another port" if error.errno == errno.EADDRINUSE else ""
        text = f"{option}: cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}{hint}"
        raise OSError(text) from None
    return opened


def _request(*parts: Any) -> web.BaseRequest:
    message, payload, protocol, writer, task = parts
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MOST_BODY)


class _Connection(Connection):
    """Connection whose malformed requests are answered in words, and not logged."""

    def explained(self, status: int, error: BaseException | None) -> web.StreamResponse:
        return refused(
            Refused(status, "the request cannot be answered" if status >= 500 else "the request cannot be read")
        )

    def log_exception(self, *args: Any, **kw: Any) -> None:
        if isinstance(error := kw.get("exc_info"), _THEIRS):
            _log.debug("a connection failed: %s", type(error).__name__)
        else:
            super().log_exception(*args, **kw)
