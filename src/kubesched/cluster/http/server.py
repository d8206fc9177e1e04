"""API server of the embedded cluster: sockets, TLS, tokens, limits, start and stop::

    request ──▶ not from a web page? user allowed? ──▶ dispatch, which reads the body ──▶ answer, or refusal as Status

Callers: the command line and tests. The store is the one the rest of the process uses: writes made over HTTP are seen
by in-process watches at once, and the other way round.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong

from kubesched.api.wire import ApiError
from kubesched.base.connections import Connection, Connections
from kubesched.base.followed_files import FollowedContext
from kubesched.base.pages import Page
from kubesched.base.small_file import check_small_files

from ..store import Store
from .access import Access
from .answers import YAML, Style, failed, refusal, style_of, text_answer
from .bodies import Intake
from .calls import Call, attributes_of, shutting_down, wrong_method
from .dispatch import Dispatcher
from .metrics import Requests
from .origins import Origins, is_loopback
from .reading import Watches
from .users import User

__all__ = ["HttpServer"]

logger = logging.getLogger("kubesched.cluster")

_LINE_SIZE: Final = 64 * 1024
#: Seconds for which the rest of a refused body is read and dropped, so that its sender sees the answer.
_LINGER: Final = 2.0
#: Seconds that open requests get when the server stops, and again once they have been cancelled.
_SHUTDOWN: Final = 0.5
#: Seconds after which a connection without a request is closed.
_IDLE: Final = 90.0
#: Most connections in addition to the connections of watches.
_MORE_CONNECTIONS: Final = 1000
_PRETTY: Final = re.compile(r"(?:^|&)pretty=([^&]*)")
#: Errors caused by clients, or by their networks.
_THEIRS: Final = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
#: Well-formed request line with an unknown method, as the parser's message shows it.
_UNKNOWN_METHOD: Final = re.compile(r"""b['"][!#$%&'*+.^_`|~0-9A-Za-z-]+ [^ ]+ HTTP/1\.[01]['"]""")


class HttpServer:
    """HTTP server of a store.

    ``port`` 0 takes a free port; ``url`` shows it after the start. With ``token`` every request but health and version
    needs ``Authorization: Bearer TOKEN``, or the token of a service account. Without ``token``, requests that a web
    page may have made are refused (see :mod:`.origins`; ``allowed_hosts`` are further names of this server), and
    ``host`` must be a loopback address unless ``insecure_without_token``. With ``tls_cert`` and ``tls_key`` (PEM files)
    it serves HTTPS. ``authorization_mode`` "RBAC" limits users to the stored roles; the administrator may do
    everything.

    Limits, beyond which clients get 429: ``max_watches`` open streams, and ``max_body_bytes_in_flight`` of bodies in
    all. There may be a thousand more connections than watches. A request has ``head_seconds`` for its head, then
    ``body_seconds`` for its body. ``rng`` spreads the ends of watches without a timeout.

    ``pages`` are further pages, by the first segment of their paths; who may read the API may read them.

    Raises:
        OSError: from ``start``, when the address is taken.
        ValueError: for a certificate without a key, or a key without a certificate; for an address that others can
            reach without a token; for an allowed host that is no host name; for an unknown authorization mode.
    """

    def __init__(
        self,
        store: Store,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        authorization_mode: str = "AlwaysAllow",
        allowed_hosts: Sequence[str] = (),
        insecure_without_token: bool = False,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
        rng: Random | None = None,
        max_watches: int = 5_000,
        max_body_bytes_in_flight: int = 64 * 1024 * 1024,
        head_seconds: float = 32.0,
        body_seconds: float = 60.0,
        bookmark_seconds: float = 30.0,
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        if (tls_cert is None) is not (tls_key is None):
            raise ValueError("a TLS certificate needs its key: give both tls_cert and tls_key, or neither")
        if token is None and not insecure_without_token and not is_loopback(host):
            raise ValueError(f"others can reach {host}: give a token, or insecure_without_token")
        self.store = store
        self._host = host
        self._port = port
        self.access = Access(store, token, authorization_mode)
        self._origins = Origins(host, allowed_hosts) if token is None else None
        self._tls = (Path(tls_cert), Path(tls_key)) if tls_cert is not None and tls_key is not None else None
        self.watches = Watches(store, rng or Random(0), limit=max_watches, bookmark_seconds=bookmark_seconds)
        self._dispatcher = Dispatcher(
            store, self.watches, self.access, lambda: f"{self._host}:{self._port}", pages or {}
        )
        self.intake = Intake(allowance=max_body_bytes_in_flight, seconds=body_seconds)
        self._head_seconds = head_seconds
        self._requests = Requests(self._dispatcher.catalog, store, self.watches)
        self._most_connections = max_watches + _MORE_CONNECTIONS
        self.connections: Connections | None = None
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Address of the server, such as ``http://127.0.0.1:8001``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    # -- life --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Call once, in the event loop the store is used in."""
        context = None
        if self._tls is not None:
            context = _following(*self._tls)
        server = Connections(
            self._handle,
            _Connection,
            most=self._most_connections,
            log=logger,
            max_line_size=_LINE_SIZE,
            max_field_size=_LINE_SIZE,
            keepalive_timeout=_IDLE,
            lingering_time=_LINGER,
            head_seconds=self._head_seconds,
        )
        sockets = await _bound(self._host, self._port)
        self._port = sockets[0].getsockname()[1]
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN)
        await self._runner.setup()
        server.listen(sockets, context)
        self.connections = server
        logger.info("embedded cluster listens on %s", self.url)

    async def close(self) -> None:
        """Stop listening, refuse watches and writes on open connections, and end the streams. Waits for nothing.

        A cluster saved after this has every write that a client got an answer for. May be called twice.
        """
        runner = self._runner
        if runner is None or self.watches.is_closing:
            return
        self.watches.is_closing = True
        # Clients reconnect at once when their streams end, so listening ends first.
        if self.connections is not None:
            self.connections.close()
        self.watches.close()

    async def stop(self) -> None:
        """Close, let open answers and streams end, and cut off the remaining ones. May be called twice."""
        await self.close()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    # -- requests ----------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Every error becomes an answer that the client can read."""
        path, _, query = _raw_path(request)
        response = await self._answer(request, path, query)
        self._requests.count(request.method, path, response.status)
        return response

    async def _answer(self, request: web.BaseRequest, path: str, query: str) -> web.StreamResponse:
        try:
            user = self._admit(request, path, query)
            if path == "/metrics" and request.method == "GET":
                return text_answer(self._requests.text())
            return await self._dispatcher.answer(request, user, path, query, self._read)
        except ApiError as error:
            return refusal(error, style=_style(request, query))
        except web.HTTPException as error:
            text = error.reason or "the request cannot be read"
            return refusal(ApiError(error.status, "BadRequest", text))
        except ConnectionError:
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, path)
            return refusal(failed())

    async def _read(self, call: Call) -> bytes:
        """Return the body of a request. Refused if the server was closed meanwhile. Long YAML is decoded as well."""
        raw = await self.intake.read(call.request)
        call.decoded = await self.intake.decode(raw, call.content_type)
        if self.watches.is_closing:
            raise shutting_down()
        return raw

    def _admit(self, request: web.BaseRequest, path: str, query: str) -> User:
        """Return the user of a request. Refuses requests that may not be made."""
        if self._origins is not None:
            self._origins.check(request)
        user = self.access.user_of(request, path)
        self.access.check_request(user, path, lambda: attributes_of(request.method, path, query))
        return user


async def _bound(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to every address of a host, as asyncio's servers bind theirs."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    try:
        return [bound.dup() for bound in server.sockets]
    finally:
        server.close()


def _following(cert: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of a listener. At each handshake it switches to the context of the current files."""

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        check_small_files((cert, key))
        context.load_cert_chain(cert, key, password="")
        return context

    followed = FollowedContext(make, lambda: (cert, key))

    def choose(connection: Any, server_name: str | None, _: ssl.SSLContext) -> None:
        connection.context = followed.current()

    listening = make()
    listening.sni_callback = choose
    return listening


def _raw_path(request: web.BaseRequest) -> tuple[str, str, str]:
    """Return path, "?" and query as sent, without a scheme and host.

    Bytes that are not UTF-8, such as %FF, are replaced.
    """
    text = request.raw_path
    if not text.startswith("/"):
        text = request.rel_url.raw_path_qs
    if not text.isascii():
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text.partition("?")


def _style(request: web.BaseRequest, query: str) -> Style:
    """Return the style of a refusal: YAML if the client takes nothing else.

    The query may be the error itself, so it is searched, not parsed.
    """
    accept, agent = request.headers.get("Accept", ""), request.headers.get("User-Agent", "")
    pretty = _PRETTY.search(query)
    return style_of(YAML if accept in (YAML, "text/yaml") else "", pretty[1] if pretty else None, agent)


# -- connections: aiohttp answers malformed requests in plain text, with a traceback in the log. Here they get a Status
# like every other refusal, and nothing is logged: a client's malformed request is no defect of the server.


class _Connection(Connection):
    """Connection whose malformed requests are answered with a Status."""

    def explained(self, status: int, error: BaseException | None) -> web.StreamResponse:
        return refusal(_explained(error) if status < 500 else failed())

    def log_exception(self, *args: Any, **kw: Any) -> None:
        if isinstance(kw.get("exc_info"), _THEIRS):
            logger.debug(*args, **kw)
        else:
            super().log_exception(*args, **kw)


def _explained(error: BaseException | None) -> ApiError:
    """Return the error of a malformed request, without the request's bytes where possible."""
    if isinstance(error, BadHttpMethod):
        if _UNKNOWN_METHOD.search(error.message):
            return wrong_method()
        if "HTTPS" in error.message:
            return ApiError.bad_request("this is an HTTP server, and the request came by HTTPS; use http://")
    if isinstance(error, LineTooLong):
        limit = error.args[1] if len(error.args) > 1 else "allowed"
        text = f"the request line or a header is longer than {limit} bytes"
        return ApiError(431, "RequestHeaderFieldsTooLarge", text)
    text = error.message if isinstance(error, HttpProcessingError) else ""
    first = text.strip().split("\n", 1)[0].rstrip(":")[:200] or "the request cannot be read"
    return ApiError.bad_request(f"malformed HTTP request: {first}")
