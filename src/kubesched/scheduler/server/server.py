"""HTTPS server of ``kubesched run``: its socket, tasks, start and stop.

    Server(...) ──▶ bind() ──▶ start() ──▶ … requests: pipeline … ──▶ stop()

Caller: the command line, which passes plain values and live parts. Source: rules/serving §1 and §9.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from random import Random
from typing import Any, Final

from aiohttp import web

from kubesched.api.wire import Transport
from kubesched.base.connections import Connection, Connections
from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock

from .answers import internal_error, text_answer
from .authentication import Authenticator
from .authorization import Authorizer
from .endpoints import Endpoints, Pages
from .options import AuthenticationOptions, AuthorizationOptions, ServingError, ServingOptions
from .pipeline import Pipeline
from .process_metrics import ProcessMetrics
from .reviews import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Reviews
from .tls import TlsContexts
from .trust import TrustSources

__all__ = ["Server"]

_log = logging.getLogger("kubesched.scheduler.server")

_HEADER_BYTES: Final = 2**20
_READ_HEADER_SECONDS: Final = 32.0
_IDLE_SECONDS: Final = 90.0
_TCP_KEEPALIVE_SECONDS: Final = 180
_BODY_BYTES: Final = 2**20
#: Most connections at a time. Probes, scrapes and people need a few; each takes 256 KiB for TLS.
_MOST_CONNECTIONS: Final = 256


class Server:
    """Server of health, metrics and configuration over HTTPS.

    ``authn_transport`` reaches the API server for token reviews and the configmap of authorities, ``authz_transport``
    for access reviews. Without the first, only certificates of authorities given as files authenticate; without the
    second, only masters and the always-allow paths are let through. Limits on requests to the API server are the
    transports' own.

    Raises:
        ServingError: for options that cannot be used, naming them.
    """

    def __init__(
        self,
        pages: Pages,
        *,
        metrics: ProcessMetrics,
        clock: Clock,
        rng: Random,
        serving: ServingOptions | None = None,
        authentication: AuthenticationOptions | None = None,
        authorization: AuthorizationOptions | None = None,
        authn_transport: Transport | None = None,
        authz_transport: Transport | None = None,
    ) -> None:
        self._options = serving or ServingOptions()
        authn = authentication or AuthenticationOptions()
        self._tls = TlsContexts(self._options, clock)
        self._trust = TrustSources(authn, self._tls, transport=authn_transport, rng=Random(rng.getrandbits(64)))
        token_reviews = access_reviews = None
        if authn_transport is not None:
            token_reviews = Reviews(
                authn_transport,
                TOKEN_REVIEWS,
                rng=Random(rng.getrandbits(64)),
                clock=clock,
                requests=metrics.apiserver_delegated_authn_request_total,
                durations=metrics.apiserver_delegated_authn_request_duration_seconds,
            )
        else:
            _log.warning("No authentication kubeconfig: bearer tokens are not reviewed, their bearers are anonymous")
        if authz_transport is not None:
            access_reviews = Reviews(
                authz_transport,
                SUBJECT_ACCESS_REVIEWS,
                rng=Random(rng.getrandbits(64)),
                clock=clock,
                requests=metrics.apiserver_delegated_authz_request_total,
                durations=metrics.apiserver_delegated_authz_request_duration_seconds,
            )
        else:
            _log.warning("No authorization kubeconfig: only the always-allow paths and system:masters are let through")
        self._authenticator = Authenticator(
            clock=clock,
            metrics=metrics,
            reviews=token_reviews,
            token_cache_ttl=authn.token_cache_ttl,
            trust=lambda: self._trust.current,
        )
        self._authorizer = Authorizer(
            authorization or AuthorizationOptions(), clock=clock, metrics=metrics, reviews=access_reviews
        )
        self._endpoints = Endpoints(pages, clock=clock, rng=Random(rng.getrandbits(64)), started=clock.now())
        self._pipeline = Pipeline(self._authenticator, self._authorizer, self._endpoints, clock=clock)
        self._socket: socket.socket | None = None
        self._runner: web.ServerRunner | None = None
        self.connections: Connections | None = None
        self._tasks = Supervisor("server")
        #: Reasons why files that were read again cannot be used, by source; each is logged once.
        self._problems: dict[TlsContexts | TrustSources, str] = {}

    @property
    def port(self) -> int:
        """Port that is listened on; until :meth:`bind` the port that was asked for."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else self._options.port

    # -- start and stop ------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Open the socket; connections wait until :meth:`start`.

        Raises:
            ServingError: when the address cannot be used.
        """
        if self._socket is None:
            self._socket = _listen(self._options)

    async def start(self) -> None:
        """Read the authorities and serve. Calls :meth:`bind` first if that was not done.

        Raises:
            ServingError: when the address, a CA file or a lookup that is not tolerated fails.
        """
        self.bind()
        assert self._socket is not None
        try:
            await self._trust.start()
            server = Connections(
                self._pipeline.handle,
                _Connection,
                most=_MOST_CONNECTIONS,
                log=_log,
                request_factory=_request,
                max_line_size=_HEADER_BYTES,
                max_field_size=_HEADER_BYTES,
                keepalive_timeout=_IDLE_SECONDS,
                head_seconds=_READ_HEADER_SECONDS,
            )
            self._runner = web.ServerRunner(server, shutdown_timeout=self._options.shutdown_seconds)
            await self._runner.setup()
            server.listen((self._socket,), self._tls.listening)
            self.connections = server
        except BaseException:
            await self.stop()
            raise
        if self._trust.follows_configmap:
            self._tasks.spawn(self._trust.run(), "authentication-config")
        self._tasks.spawn(self._reload_files(), "serving-files")
        host = self._options.bind_address
        _log.info("Serving securely on %s:%d", f"[{host}]" if ":" in host else host, self.port)

    async def run(self) -> None:
        """Serve until cancelled: :meth:`start`, then :meth:`stop`.

        Raises:
            ServingError: see :meth:`start`.
            TaskCrashedError: when the task that follows files or authorities fails.
        """
        await self.start()
        try:
            with self._tasks.guard():
                await self._tasks.ended()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop listening, let open requests end within their time, then cut them off. May be called twice.

        Raises:
            TaskCrashedError: when a task failed and :meth:`run` was not running to report it.
        """
        connections, self.connections = self.connections, None
        runner, self._runner = self._runner, None
        opened, self._socket = self._socket, None
        self._endpoints.close()
        try:
            if connections is not None:
                connections.close()
                _log.info("[graceful-termination] secure server has stopped listening")
            if runner is not None:
                await runner.cleanup()
                _log.info("[graceful-termination] secure server is exiting")
            if opened is not None:
                opened.close()
            await self._authenticator.close()
            await self._authorizer.close()
        finally:
            await self._tasks.stop()

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    # -- following files ---------------------------------------------------------------------------------------

    def reload(self) -> bool:
        """Check certificates and CA files now. True if something changed. A file that cannot be used is logged."""
        changed = False
        for source in (self._tls, self._trust):
            problem = ""
            try:
                changed = source.reload() or changed
            except ServingError as error:
                problem = str(error)
            if problem and problem != self._problems.get(source):
                _log.error("%s; what was read before stays in use", problem)
            self._problems[source] = problem
        return changed

    async def _reload_files(self) -> None:
        while True:
            await asyncio.sleep(self._options.reload_seconds)
            self.reload()


def _listen(options: ServingOptions) -> socket.socket:
    host, port = options.bind_address, options.port
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        raise ServingError(f"bind-address: {host!r} is not an IP address") from None
    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix" or options.permit_address_sharing:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if options.permit_port_sharing:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _TCP_KEEPALIVE_SECONDS)
        if version == 6 and host == "::":
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.bind((host, port))
        opened.listen(1024)
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        reason = {errno.EADDRINUSE: "address already in use", errno.EADDRNOTAVAIL: "cannot assign requested address"}
        why = reason.get(error.errno or 0, (error.strerror or str(error)).lower())
        text = f"failed to create listener: failed to listen on {shown}: listen tcp {shown}: bind: {why}"
        raise ServingError(text) from None
    return opened


# -- connections -----------------------------------------------------------------------------------------------


def _request(*parts: Any) -> web.BaseRequest:
    message, payload, protocol, writer, task = parts
    return web.BaseRequest(
        message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=_BODY_BYTES
    )


class _Connection(Connection):
    """Connection whose malformed bytes are not logged."""

    def explained(self, status: int, error: BaseException | None) -> web.StreamResponse:
        """Answer a malformed request without quoting the error, whose bytes may be a secret."""
        return internal_error() if status >= 500 else text_answer(f"{status} Bad Request", status)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log an error at debug level, without the bytes: clients cause the errors of connections."""
        error = kw.get("exc_info")
        _log.debug("a connection failed: %s", type(error).__name__ if isinstance(error, BaseException) else args[:1])
