"""Helpers for the tests of the HTTPS server: certificates, an API server that reviews, and a running server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from cryptography import x509
from cryptography.x509.oid import NameOID
from multidict import CIMultiDict

from certificate_kit import NOW, Authority
from kubesched.client.http import HttpTransport
from kubesched.scheduler.config import DEFAULT_GATES
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.server import (
    AuthenticationOptions,
    AuthorizationOptions,
    Exposition,
    Pages,
    ProcessMetrics,
    Server,
    ServingOptions,
)


class StoppedClock:
    """A clock that moves on demand, starting at the real time."""

    def __init__(self) -> None:
        self.time = NOW.timestamp()

    def now(self) -> float:
        return self.time


@dataclass
class ReviewingApi:
    """An API server that only reviews: ``tokens`` to users, ``allowed`` (user, verb, path)."""

    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    allowed: set[tuple[str, str, str]] = field(default_factory=set)
    reason: str = ""
    #: Statuses to answer first, before reviewing.
    failures: list[int] = field(default_factory=list)
    #: Everything posted: kind and spec.
    posted: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def count(self, kind: str) -> int:
        return sum(1 for name, _ in self.posted if name == kind)

    async def _review(self, request: web.Request) -> web.Response:
        body = await request.json()
        kind, spec = body["kind"], body["spec"]
        self.posted.append((kind, spec))
        if self.failures:
            # The worst case: it quotes the request.
            return web.Response(status=self.failures.pop(0), text=f"no: {msgspec.json.encode(body).decode()}")
        if kind == "TokenReview":
            user = self.tokens.get(spec["token"])
            status = {"authenticated": True, "user": user} if user else {"error": f"bad token {spec['token']}"}
        else:
            wanted = spec["nonResourceAttributes"]
            status = {"allowed": (spec["user"], wanted["verb"], wanted["path"]) in self.allowed, "reason": self.reason}
        return web.json_response({**body, "status": status}, status=201)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[HttpTransport]:
        app = web.Application()
        app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", self._review)
        app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self._review)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address: Any = runner.addresses[0]
        try:
            async with HttpTransport(f"http://127.0.0.1:{address[1]}") as transport:
                yield transport
        finally:
            await runner.cleanup()


@dataclass
class Answer:
    """A response, read to its end."""

    status: int
    headers: Any
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.body)


class Client:
    """Requests to a running server."""

    def __init__(self, server: Server, clock: StoppedClock, metrics: ProcessMetrics) -> None:
        self.server = server
        self.clock = clock
        self.metrics = metrics

    async def __call__(
        self,
        path: str,
        method: str = "GET",
        *,
        token: str = "",
        cert: tuple[Path, Path] | None = None,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
    ) -> Answer:
        """``headers`` may have a name twice."""
        sent = CIMultiDict(headers)
        sent.setdefault("User-Agent", "tests/1")
        sent.setdefault("Accept-Encoding", "identity")
        if token:
            sent["Authorization"] = f"Bearer {token}"
        context = trusting_all()
        if cert is not None:
            context.load_cert_chain(*cert)
        url = f"https://127.0.0.1:{self.server.port}{path}"
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(method, url, headers=sent, data=body, ssl=context, allow_redirects=False) as response,
        ):
            return Answer(response.status, response.headers.copy(), await response.read())

    async def shown(self, server_name: str = "localhost", *, alpn: tuple[str, ...] = ()) -> ssl.SSLObject:
        """A TLS connection: what the server shows to those who ask for this name."""
        context = trusting_all()
        if alpn:
            context.set_alpn_protocols(list(alpn))
        _, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.port, ssl=context, server_hostname=server_name
        )
        found: ssl.SSLObject = writer.get_extra_info("ssl_object")
        writer.close()
        await writer.wait_closed()
        return found

    async def common_name(self, server_name: str = "localhost") -> str:
        shown = (await self.shown(server_name)).getpeercert(binary_form=True)
        assert shown is not None
        subject = x509.load_der_x509_certificate(shown).subject
        return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def trusting_all() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def serving(folder: Path, **options: Any) -> ServingOptions:
    """Options with a certificate from a file: quicker than to make one."""
    cert, key = folder / "server.crt", folder / "server.key"
    if not cert.exists():
        Authority().write(folder, "server", "server", hosts=("localhost",))
    return ServingOptions("127.0.0.1", 0, cert_file=cert, key_file=key, **options)


def a_client(
    options: ServingOptions,
    *,
    pages: dict[str, Any] | None = None,
    authentication: AuthenticationOptions | None = None,
    authorization: AuthorizationOptions | None = None,
    api: Any = None,
    scheduler_metrics: SchedulerMetrics | None = None,
) -> Client:
    """A client of a server that is not started yet; ``api`` is the transport for both kinds of reviews."""
    clock = StoppedClock()
    metrics = ProcessMetrics(DEFAULT_GATES, {"git_version": "v0"})
    exposition = Exposition(metrics, scheduler_metrics or SchedulerMetrics())
    server = Server(
        Pages(**{"exposition": exposition, **(pages or {})}),
        metrics=metrics,
        clock=clock,
        rng=Random(7),
        serving=options,
        authentication=authentication or AuthenticationOptions(skip_lookup=True),
        authorization=authorization,
        authn_transport=api,
        authz_transport=api,
    )
    return Client(server, clock, metrics)


@asynccontextmanager
async def running(options: ServingOptions, **more: Any) -> AsyncIterator[Client]:
    """A client of a running server; arguments as for :func:`a_client`."""
    client = a_client(options, **more)
    async with client.server:
        yield client


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until ``check`` holds."""
    for _ in range(2000):
        if await check():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


#: For tests of endpoints: everyone may see everything.
OPEN = AuthorizationOptions(always_allow_paths=("/*",))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run one test; everything must be over in half a minute."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main

    asyncio.run(bounded())
