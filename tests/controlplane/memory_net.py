"""A network in memory: real HTTP bytes between aiohttp's client and two embedded API servers, in virtual time.

Connections break, hesitate and end in the middle of an answer as seeded rules say. Everything above the sockets is
what ``kubesched run`` uses: the HTTP transport with its retries, the server with its routes and watches. The API
servers have one store, and each its own :mod:`watch_cache`. A load balancer chooses one for each connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from kubesched.api.wire import WatchEvent
from kubesched.base.connections import Connection, Connections
from kubesched.client.http import FencedConnector
from kubesched.cluster.http import HttpServer
from kubesched.cluster.store import Store
from kubesched.cluster.store.table import Watch

from pausing import PROCESS, PausingLoop  # isort: skip
from watch_cache import Past, WatchCache  # isort: skip

_log = logging.getLogger("kubesched.tests")
TOKEN = "campaign-token"
URL = "http://127.0.0.1:6443"
#: True where an API server handles the second copy of a write. It may come after the client has read that the first one had
#: no effect, and no client can prevent that.
IS_REPETITION: ContextVar[bool] = ContextVar("is_repetition", default=False)
_VERSION = re.compile(r"(?:^|&)resourceVersion=([0-9]+)")


#: Chance that the load balancer sends a connection elsewhere than the client's last one.
_CHANGES_OVER = 0.25
#: Seconds that a list waits for a watch cache that has not reached its version, as in kube-apiserver.
_FRESH_SECONDS = 3.0


class Network:
    """Connects clients to API servers over one store. ``storm`` scales every fault, 0 is fair weather."""

    def __init__(self, store: Store, rng: Random) -> None:
        self.rng = rng
        self.storm = 0.0
        self.disk_seconds = 0.0
        self.counts: dict[str, int] = {}
        self._dead: set[str] = set()
        self._ends: set[End] = set()
        self._watches: dict[_Watch, None] = {}
        self._partitioned: dict[str, asyncio.Event] = {}
        self._one_way: set[str] = set()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PausingLoop)
        self.loop = loop
        #: Context of the API server, which is never paused.
        self.context = copy_context()
        past = Past(store)
        self.servers = [ApiServer(self, WatchCache(store, past), Random(rng.getrandbits(32))) for _ in range(2)]
        self._last: dict[str, ApiServer] = {}

    # -- faults ------------------------------------------------------------------------------------------

    def strikes(self, what: str, chance: float, rng: Random | None = None) -> bool:
        """Return True if a fault happens now, and count it by name. A connection draws from an ``rng`` of its own, because
        aiohttp closes connections in an order that differs from run to run."""
        struck = self.storm > 0 and (rng or self.rng).random() < chance * self.storm
        if struck:
            self.count(what)
        return struck

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def delay(self, rng: Random) -> float:
        if not self.storm:
            return 0.001
        return rng.choice((0.001, 0.001, 0.001, 0.02, 0.3)) if not self.strikes("slow", 0.02, rng) else 4.0

    def partition(self, client: str, *, one_way: bool = False) -> None:
        """Hold back everything to and from a client; TCP delivers it once the partition heals.

        ``one_way``: what it sends arrives, and the answers are held back.
        """
        self._partitioned.setdefault(client, asyncio.Event())
        if one_way:
            self._one_way.add(client)

    def heal(self, client: str) -> None:
        event = self._partitioned.pop(client, None)
        self._one_way.discard(client)
        if event is not None:
            event.set()
            self._release()

    def _release(self) -> None:
        for end in sorted(self._ends, key=lambda end: end.number):
            end.release()
            if end.peer is not None and end.peer.is_closing():
                end.abort()

    def pause(self, client: str) -> None:
        """Let a process stand still: what it has sent arrives, what is sent to it waits."""
        if client not in self._dead:
            self.count("pause")
            self.loop.pause(client)

    def resume(self, client: str) -> None:
        if self.loop.is_paused(client):
            self.loop.resume(client)
            self._release()

    def holds_back(self, client: str, process: str) -> bool:
        """True if nothing reaches this end of a client's connections, which a process has (empty: the API server)."""
        if self.loop.is_paused(process):
            return True
        return client in self._partitioned and not (client in self._one_way and not process)

    def is_partitioned(self, client: str) -> bool:
        return client in self._partitioned

    def cut(self, client: str = "", server: ApiServer | None = None) -> None:
        """Break the connections of a client, or of all; only those with one API server, if it is given."""
        for end in sorted(self._ends, key=lambda end: end.number):
            if client in ("", end.client) and server in (None, end.server):
                end.abort()

    def kill(self, client: str) -> None:
        """End a client's connections for good, as the end of its process does."""
        self.heal(client)
        self.resume(client)
        self._dead.add(client)
        self.cut(client)

    def expire_watches(self) -> None:
        """Answer 410 on every watch, as after a compaction."""
        for watch in list(self._watches):
            watch.expire()

    # -- connections -------------------------------------------------------------------------------------

    async def connect(self, client: str, factory: Callable[[], Any], on_send: Callable[[bytes], None]) -> Any:
        while client in self._partitioned:
            await self._partitioned[client].wait()
        await asyncio.sleep(self.delay(self.rng))
        server = self._balance(client)
        if server is None or client in self._dead or self.strikes("refused", 0.03):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        near = factory()
        here, _ = self._join(client, server, near, self.context, on_send)
        near.connection_made(here)
        return near

    def _balance(self, client: str) -> ApiServer | None:
        """Return the API server for a new connection: mostly that of the client's last one. None if all are away."""
        up = [server for server in self.servers if not server.is_down]
        last = self._last.get(client)
        if up and (last not in up or self.rng.random() < _CHANGES_OVER):
            self._last[client] = self.rng.choice(up)
            if last not in (None, self._last[client]):
                self.count("change of server")
        return self._last[client] if up else None

    def _join(
        self, client: str, server: ApiServer, near: Any, context: Context, on_send: Callable[[bytes], None] | None
    ) -> tuple[End, End]:
        """Connect a client's protocol with an API server, which has this context. Return both ends."""
        far = server.front()
        here = End(self, client, server, near, copy_context(), on_send)
        there = End(self, client, server, far, context, None)
        here.peer, there.peer = there, here
        self._ends |= {here, there}
        context.copy().run(far.connection_made, there)
        return here, there

    def repeat(self, client: str, raw: bytes) -> None:
        """Let a write arrive once more, later and on a connection of its own; nobody reads the answer."""
        context = self.context.copy()
        context.run(IS_REPETITION.set, True)
        _, there = self._join(client, self.rng.choice(self.servers), _Nobody(), context, None)
        self.loop.call_later(self.rng.choice((0.0, 0.5, 5.0)), there.receive, raw, context=context)
        self.loop.call_later(20.0, there.abort, context=context)

    def forget(self, end: End) -> None:
        self._ends.discard(end)

    def watched(self, watch: Watch) -> _Watch:
        """Return a watch as it arrives."""
        spoiled = _Watch(self, watch)
        self._watches[spoiled] = None
        return spoiled

    def ended(self, watch: _Watch) -> None:
        self._watches.pop(watch, None)


class ApiServer:
    """One of the API servers."""

    def __init__(self, network: Network, cache: WatchCache, rng: Random) -> None:
        self._network = network
        self.cache = cache
        self.is_down = False
        real = cache.watching

        def watching(*args: Any, **options: Any) -> Any:
            return network.watched((yield from real(*args, **options)))

        cache.watching = watching  # type: ignore[method-assign]  # the network's own view of watches
        self._server = HttpServer(cache, token=TOKEN, rng=rng)  # type: ignore[arg-type]  # it stands for its store
        self.front = Connections(self._answer, Connection, most=1000, log=_log, head_seconds=32.0)

    def restart(self) -> None:
        """Come back after a restart."""
        if self.is_down:
            self.is_down = False
            self.cache.restart()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Some requests are refused before they have an effect; the answers of others are lost after it."""
        network = self._network
        if network.strikes("429", 0.04):
            return _status(429, "TooManyRequests", retry_after=network.rng.choice((1, 5)))
        if network.strikes("5xx", 0.04):
            code, reason = network.rng.choice(((500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout")))
            return _status(code, reason, retry_after=network.rng.choice((0, 1)))
        if network.disk_seconds and request.method != "GET":
            network.count("slow disk")
            await asyncio.sleep(network.disk_seconds)
        is_watch = "watch=" in request.query_string
        if request.method == "GET" and (version := _VERSION.search(request.query_string)):
            await self._wait(request.path.rpartition("/")[2], int(version[1]), is_watch=is_watch)
        response = await self._server._handle(request)
        if not is_watch and network.strikes("answer lost", 0.04):
            return _status(500, "InternalError")
        return response

    async def _wait(self, plural: str, version: int, *, is_watch: bool) -> None:
        """Let a list wait for the cache."""
        if self.cache.lacks(plural, version):
            self._network.count("watch from the future" if is_watch else "list from the future")
            if not is_watch:
                await asyncio.sleep(_FRESH_SECONDS)


class _Nobody(asyncio.Protocol):
    """Protocol of a client that reads nothing."""


class _Watch:
    """A watch that repeats events, and swaps neighbours."""

    def __init__(self, network: Network, inner: Watch) -> None:
        self._network = network
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def drain(self, most: int | None = None) -> list[WatchEvent]:
        events: list[WatchEvent] = []
        for event in self._inner.drain(most):
            events.append(event)
            if event.type == "BOOKMARK":
                continue
            if len(events) > 1 and self._network.strikes("reordered event", 0.05):
                events[-1], events[-2] = events[-2], events[-1]
            if self._network.strikes("repeated event", 0.05):
                events.append(event)
        return events

    def close(self) -> None:
        self._network.ended(self)
        self._inner.close()


def _status(code: int, reason: str, *, retry_after: int = 0) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": "x"}
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return web.Response(status=code, body=msgspec.json.encode(body), content_type="application/json", headers=headers)


def _is_whole_write(raw: bytes) -> bool:
    """Return True if bytes are one request that changes something, with its body."""
    head, end, body = raw.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return (
        bool(end) and raw.startswith((b"POST", b"PUT", b"PATCH")) and length is not None and len(body) == int(length[1])
    )


class End(asyncio.Transport):
    """One end of a connection."""

    made = 0

    def __init__(
        self,
        network: Network,
        client: str,
        server: ApiServer,
        protocol: Any,
        context: Context,
        on_send: Callable[[bytes], None] | None,
    ) -> None:
        """``context`` is that of the process which has this end."""
        super().__init__()
        End.made += 1
        self.number = End.made
        self.client = client
        self.server = server
        self.peer: End | None = None
        self._network = network
        self._rng = Random(network.rng.getrandbits(64))
        self._protocol = protocol
        self.context = context
        self._process = context.get(PROCESS, "")
        self._on_send = on_send
        self._loop = network.loop
        self._next = 0.0
        self._closed = False
        self._paused = False
        self._waiting: list[bytes | None] = []

    # -- sending -----------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        raw = bytes(data)
        if self._closed or not raw:
            return
        if self._on_send is not None:
            self._on_send(raw)
        network = self._network
        if network.strikes("cut", 0.01, self._rng):
            self._send(raw[: self._rng.randrange(len(raw) + 1)])
            self._send(None)
        else:
            self._send(raw)
            if self._on_send is not None and _is_whole_write(raw) and network.strikes("doubled", 0.05, self._rng):
                network.repeat(self.client, raw)

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(bytes(part) for part in parts))

    def _send(self, raw: bytes | None) -> None:
        """None ends the connection."""
        self._next = max(self._next, self._loop.time() + self._network.delay(self._rng))
        peer = self.peer
        assert peer is not None
        self._loop.call_at(self._next, peer.receive, raw, context=peer.context)

    # -- receiving ---------------------------------------------------------------------------------------

    def receive(self, raw: bytes | None) -> None:
        self._waiting.append(raw)
        self.release()

    def release(self) -> None:
        """Hand over what has arrived, unless reading is paused or the client is cut off."""
        while self._waiting and not self._closed and not self._paused:
            if self._network.holds_back(self.client, self._process):
                return
            raw = self._waiting.pop(0)
            if raw is None:
                self.abort()
            elif raw:
                self.context.copy().run(self._protocol.data_received, raw)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self.release, context=self.context)

    def is_reading(self) -> bool:
        return not self._paused

    # -- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._closed:
            self._send(None)
            self._lose()

    def abort(self) -> None:
        """Both ends see the connection break now."""
        if not self._closed:
            self._lose()
            assert self.peer is not None
            if not self._network.is_partitioned(self.client):
                self.peer.abort()

    def _lose(self) -> None:
        self._closed = True
        self._network.forget(self)
        self._loop.call_soon(self._protocol.connection_lost, None, context=self.context)

    def is_closing(self) -> bool:
        return self._closed

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: what is written is on its way at once."""

    def can_write_eof(self) -> bool:
        return False


class MemoryConnector(FencedConnector):
    """aiohttp's connector for one client of a :class:`Network`. ``on_send`` receives what the client writes."""

    def __init__(self, network: Network, client: str, on_send: Callable[[bytes], None]) -> None:
        super().__init__(limit=0)
        self._network = network
        self._client = client
        self._on_send = on_send

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - as aiohttp
        try:
            async with asyncio.timeout(timeout.sock_connect):
                return await self._network.connect(self._client, self._factory, self._on_send)
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error


def session(network: Network, client: str, on_send: Callable[[bytes], None]) -> aiohttp.ClientSession:
    """A client session whose connections go through the network."""
    return aiohttp.ClientSession(
        connector=MemoryConnector(network, client, on_send), cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=2**18
    )
