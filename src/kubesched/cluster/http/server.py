"""The embedded cluster's API server: sockets, TLS, tokens, limits, and the life of it all.

    request ──▶ token? ──▶ body within limits? ──▶ dispatch ──▶ answer, or Status of the refusal

Callers: the command line and tests. The store is the one the rest of the process uses: writes made over HTTP are
seen by in-process watches at once, and the other way round.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from ...api.wire import ApiError
from ..store import Store
from .answers import refusal, wants_pretty
from .bodies import MAX_BODY
from .connection import Connections
from .dispatch import Dispatcher
from .negotiation import Accepted

__all__ = ["HttpServer"]

logger = logging.getLogger("kubesched.cluster")

_LINE_SIZE: Final = 64 * 1024
_PRETTY: Final = re.compile(r"(?:^|&)pretty=([^&]*)")
_OPEN_PATHS: Final = ("/healthz", "/livez", "/readyz", "/version")


class HttpServer:
    """Serves a store over HTTP.

    ``port`` 0 takes a free one; ``url`` says which once started. With ``token`` every request but health and version
    needs ``Authorization: Bearer TOKEN``. With ``tls_cert`` and ``tls_key`` (PEM files) it speaks HTTPS.
    ``max_watches`` streams may be open, and bodies of ``max_body_bytes_in_flight`` in all be under way, before
    clients are told 429. ``rng`` spreads the ends of watches without a timeout.

    Raises:
        OSError: from ``start``, when the address is taken.
        ValueError: for a certificate without a key, or a key without a certificate.
    """

    def __init__(
        self,
        store: Store,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
        rng: Random | None = None,
        max_watches: int = 5_000,
        max_body_bytes_in_flight: int = 64 * 1024 * 1024,
        bookmark_seconds: float = 30.0,
    ) -> None:
        if (tls_cert is None) is not (tls_key is None):
            raise ValueError("a TLS certificate needs its key: give both tls_cert and tls_key, or neither")
        self.store = store
        self._host = host
        self._port = port
        self._token = token
        self._tls = (Path(tls_cert), Path(tls_key)) if tls_cert is not None and tls_key is not None else None
        self._dispatcher = Dispatcher(
            store,
            rng=rng or Random(0),
            token=token,
            max_watches=max_watches,
            bookmark_seconds=bookmark_seconds,
            address=lambda: f"{self._host}:{self._port}",
        )
        self._free_bytes = max_body_bytes_in_flight
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Where it listens, such as ``http://127.0.0.1:8001``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    @property
    def open_watches(self) -> int:
        """How many watches are being served."""
        return len(self._dispatcher.watches)

    # -- life --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Call once, in the event loop the store is used in."""
        context = None
        if self._tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_cert_chain(*self._tls)
        server = Connections(
            self._handle,
            request_factory=_make_request,
            handler_cancellation=True,
            access_log=None,
            logger=logger,
            max_line_size=_LINE_SIZE,
            max_field_size=_LINE_SIZE,
            keepalive_timeout=90.0,
        )
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=context, backlog=1024)
        try:
            await site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        addresses: Sequence[Any] = self._runner.addresses
        self._port = addresses[0][1]
        logger.info("embedded cluster listens on %s", self.url)

    async def stop(self) -> None:
        """End the streams, answer what is under way, stop listening. May be called twice."""
        self._dispatcher.is_closing = True
        self._dispatcher.watches.close()
        # Streams see that their watch is closed and write their end before connections are cut.
        for _ in range(100):
            if not len(self._dispatcher.watches):
                break
            await asyncio.sleep(0.01)
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.shutdown()
            await runner.cleanup()

    async def __aenter__(self) -> HttpServer:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    # -- requests ----------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request; whatever happens the client gets an answer it can read."""
        path, _, query = _raw_path(request)
        try:
            self._authenticate(request, path)
            return await self._dispatcher.answer(request, path, query, lambda: self._read(request))
        except ApiError as error:
            return refusal(error, form=_form_of(request), pretty=_pretty(request, query))
        except web.HTTPException as error:
            text = error.reason or "the request cannot be read"
            return refusal(ApiError(error.status, "BadRequest", text))
        except ConnectionError:
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, path)
            text = "Internal error occurred: the embedded cluster failed on this request; see its log"
            return refusal(ApiError(500, "InternalError", text))

    def _authenticate(self, request: web.BaseRequest, path: str) -> None:
        if self._token is None or path.startswith(_OPEN_PATHS):
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise ApiError(401, "Unauthorized", "Unauthorized")

    async def _read(self, request: web.BaseRequest) -> bytes:
        """The body, within the limits for one and for all.

        Raises:
            ApiError: 413 for a body that is too large, 429 when too much is being read already.
        """
        if not request.can_read_body:
            return b""
        expected = request.content_length
        if expected is not None and expected > MAX_BODY:
            raise _too_large()
        reserved = MAX_BODY if expected is None else expected
        if reserved > self._free_bytes:
            text = "too many request bodies are being read; try again later"
            raise ApiError(429, "TooManyRequests", text, {"retryAfterSeconds": 1})
        self._free_bytes -= reserved
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise _too_large() from None
        except web.RequestPayloadError as error:
            # Chunks or a compression that do not hold what they say.
            what = str(error).rpartition("message:")[2].strip().split("\n", 1)[0] or "it ends too early"
            raise ApiError.bad_request(f"the body of the request cannot be read: {what[:200]}") from None
        finally:
            self._free_bytes += reserved


def _raw_path(request: web.BaseRequest) -> tuple[str, str, str]:
    """Path and query as they came, without an origin in front."""
    text = request.raw_path
    if not text.startswith("/"):
        text = request.rel_url.raw_path_qs
    return text.partition("?")


def _form_of(request: web.BaseRequest) -> Accepted:
    """Refusals are JSON unless YAML is all the client takes."""
    header = request.headers.get("Accept", "")
    return Accepted("application/yaml") if header in ("application/yaml", "text/yaml") else Accepted()


def _pretty(request: web.BaseRequest, query: str) -> bool:
    """Whether to indent a refusal; the query may be what was wrong, so it is only searched."""
    found = _PRETTY.search(query)
    return wants_pretty(found[1] if found else None, request.headers.get("User-Agent", ""))


def _too_large() -> ApiError:
    text = f"Request entity too large: limit is {MAX_BODY}"
    return ApiError(413, "RequestEntityTooLarge", text)


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)
