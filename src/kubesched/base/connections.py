"""Connections of an HTTP server, within limits of number, memory and time.

    accept ──▶ hand-shake ──▶ waiting ◀──▶ request under way
      │           └─ at most HAND_SHAKE_SECONDS   └─ closed if the client reads nothing for STALL_SECONDS
      └─ at the limit: the connection that has waited the longest is closed; if none waits, the new one is

A TLS connection takes 256 KiB from its first byte on. So the number of clients that connect and send nothing is
limited, before and after the hand-shake. This limit does not depend on the number of requests under way, and new
clients still get in.

A connection that has ended may be part of a cycle, for example by an error that keeps the frames it came through.
Cycles are looked for rarely (see :mod:`.collector`). So common errors keep no frames, and a full pass is made
after many other connections have ended.

Each server words its own answers to requests that cannot be read. Callers: the HTTPS server of ``kubesched run``
and the API server of the embedded cluster. Needs aiohttp.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from weakref import WeakSet

from .collector import forget_frames, full_pass
from .extras import needing
from .tasks import Supervisor

with needing("an HTTP server", "server"):
    from aiohttp import web
    from aiohttp.web_protocol import RequestHandler

try:
    import resource
except ImportError:  # pragma: no cover - not a POSIX system
    resource = None  # type: ignore[assignment]

__all__ = ["HAND_SHAKE_SECONDS", "STALL_SECONDS", "Connection", "Connections"]

#: Most seconds that a TLS hand-shake may take.
HAND_SHAKE_SECONDS: Final = 10.0
#: Most TLS connections without a request under way, unfinished hand-shakes included.
_MOST_WAITING_TLS: Final = 512
#: Seconds after which a client that takes none of its waiting bytes is given up; twice that at most.
STALL_SECONDS: Final = 30.0
#: Bytes that the system buffers for a client. Its default is megabytes, a third of which must go before progress shows.
_SEND_BUFFER: Final = 256 * 1024
#: Connections accepted before other tasks get a turn.
_ACCEPTED_AT_ONCE: Final = 64
#: Seconds until the next attempt to accept, when there was no descriptor or memory for a connection.
_PAUSE: Final = 1.0
#: If this number of ended connections is still in memory, the collector makes a full pass.
_MOST_LEFT: Final = 256
#: Seconds for which ended connections must be in memory before that pass.
_LEFT_SECONDS: Final = 2.0
#: Number of ended connections after which a full pass is made in any case: asyncio leaves 1 KiB of each in a cycle.
_MOST_ENDED: Final = 100_000
#: Seconds between two log lines about connections that had to be closed.
_LOG_SECONDS: Final = 10.0
_NO_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: Most connections to skip in the search for one to close, because they still send an answer.
_SENDING: Final = 8

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connections(web.Server):
    """Server that accepts connections and passes their requests to ``handler``.

    At most ``most`` connections are open, or fewer if the limit of descriptors is lower. Over TLS only few of them may
    be without a request. ``kind`` is the class of a connection, ``options`` are its keyword arguments. Call
    :meth:`listen` to begin. After :meth:`close` no new connection is accepted; :meth:`shutdown` ends the open ones.
    """

    def __init__(
        self,
        handler: Handler,
        kind: type[Connection],
        *,
        most: int,
        log: logging.Logger,
        request_factory: Callable[..., web.BaseRequest] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(self._handle, request_factory=request_factory, handler_cancellation=True)
        self._answer = handler
        self._kind = kind
        self._most = self._most_waiting = min(most, _descriptors())
        self._options = {"logger": log, "access_log": None, **options}
        self._context: ssl.SSLContext | None = None
        self._sockets: Sequence[socket.socket] = ()
        self._tasks = Supervisor("connections")
        #: Connections without a request under way, longest first. A hand-shake is keyed by its task, with its socket
        #: until it begins.
        self._waiting: dict[asyncio.Task[None] | Connection, socket.socket | None] = {}
        self._busy: dict[Connection, None] = {}
        self._log = _RareLog(log)
        self._ended = 0
        self._left: WeakSet[Connection] = WeakSet()
        self._pass: asyncio.TimerHandle | None = None

    def __call__(self) -> Connection:
        return self._kind(self, **self._options)

    @property
    def open(self) -> int:
        """Number of connections, unfinished hand-shakes included."""
        return len(self._waiting) + len(self._busy)

    # -- life --------------------------------------------------------------------------------------------

    def listen(self, sockets: Sequence[socket.socket], context: ssl.SSLContext | None) -> None:
        """Accept connections on bound sockets; over TLS if ``context`` is given. :meth:`close` closes the sockets."""
        self._sockets, self._context = sockets, context
        if context is not None:
            self._most_waiting = min(self._most, _MOST_WAITING_TLS)
        loop = asyncio.get_running_loop()
        for listening in sockets:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)  # accepted sockets inherit this
            listening.listen(1024)
            loop.add_reader(listening.fileno(), self._accept, loop, listening)

    def close(self) -> None:
        """Stop listening. May be called twice."""
        sockets, self._sockets = self._sockets, ()
        loop = asyncio.get_running_loop()
        for listening in sockets:
            loop.remove_reader(listening.fileno())
            listening.close()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """End hand-shakes, then all connections. Requests under way have ``timeout`` seconds."""
        for unbegun in self._waiting.values():
            if unbegun is not None:
                unbegun.close()
        await self._tasks.stop()
        await super().shutdown(timeout)
        self._log.close()
        if self._pass is not None:
            self._pass.cancel()

    # -- accepting -----------------------------------------------------------------------------------------

    def _accept(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_RESOURCES:
                    raise
                self._log.warn(f"no connection can be accepted: {error.strerror}")
                self._close_longest_waiting()
                loop.remove_reader(listening.fileno())
                loop.call_later(_PAUSE, self._resume, loop, listening)
                return
            accepted.setblocking(False)
            if limit := self._limit_reached():
                self._log.warn(f"{limit}, which is the limit; one had to be closed")
                if not self._close_longest_waiting():
                    accepted.close()
                    continue
            task = self._tasks.spawn(self._begin(accepted), "connection", lasting=False)
            self._waiting[task] = accepted

    def _limit_reached(self) -> str:
        if self.open >= self._most:
            return f"there are {self._most} connections"
        waiting = len(self._waiting)
        return f"{waiting} connections have no request under way" if waiting >= self._most_waiting else ""

    def _resume(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        if listening in self._sockets:
            loop.add_reader(listening.fileno(), self._accept, loop, listening)

    async def _begin(self, accepted: socket.socket) -> None:
        """Shake hands. From then on the connection lives without this task."""
        connection = self()
        connection.begun_by = task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = None
        try:
            await self._shake_hands(connection, accepted)
        except (OSError, asyncio.CancelledError) as error:
            forget_frames(error)
            connection.connection_lost(error)
            if not isinstance(error, OSError):
                raise
            # This is no defect of the server: the client sent wrong bytes, or none. ssl.SSLError is an OSError.
            self._options["logger"].debug("a connection ended before its first request: %s", error)
        finally:
            self._waiting.pop(task, None)
            del connection, task

    async def _shake_hands(self, connection: Connection, accepted: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection,
            accepted,
            ssl=self._context,
            ssl_handshake_timeout=None if self._context is None else HAND_SHAKE_SECONDS,
        )

    def _close_longest_waiting(self) -> bool:
        """Close the connection that has waited the longest, except those that still send an answer.

        Return True if there was such a connection.
        """
        for _ in range(min(_SENDING, len(self._waiting))):
            longest = next(iter(self._waiting))
            unbegun = self._waiting.pop(longest)
            if not isinstance(longest, Connection):
                longest.cancel()
                if unbegun is not None:
                    unbegun.close()
                return True
            if longest.is_sending:
                self._waiting[longest] = None
                continue
            longest.abort()
            return True
        return False

    # -- what connections report -----------------------------------------------------------------------------

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        assert isinstance(handler, Connection)
        if handler.begun_by is not None:  # the hand-shake and its connection count as one
            self._waiting.pop(handler.begun_by, None)
        self._waiting[handler] = None

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        assert isinstance(handler, Connection)
        self._waiting.pop(handler, None)
        self._busy.pop(handler, None)
        self._ended += 1
        self._left.add(handler)
        if self._pass is None and self._leaves_much():
            self._pass = asyncio.get_running_loop().call_later(_LEFT_SECONDS, self._collect)

    def _leaves_much(self) -> bool:
        return self._ended >= _MOST_ENDED or len(self._left) >= _MOST_LEFT

    def _collect(self) -> None:
        self._pass = None
        if self._leaves_much():
            full_pass()
            self._ended = 0
            self._left.clear()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        self._waiting.pop(connection, None)
        self._busy[connection] = None
        try:
            return await self._answer(request)
        finally:
            if connection in self._busy:
                del self._busy[connection]
                self._waiting[connection] = None


class Connection(RequestHandler):
    """Connection whose requests, the first included, have ``head_seconds`` for their first line and headers."""

    def __init__(self, server: Connections, *, head_seconds: float, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._head_seconds = head_seconds
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._left = 0
        #: Task of the TLS hand-shake.
        self.begun_by: asyncio.Task[None] | None = None

    @property
    def is_sending(self) -> bool:
        """True if a part of an answer is waiting for the client."""
        return self.transport is not None and self.transport.get_write_buffer_size() > 0

    def abort(self) -> None:
        """Close the connection at once. Bytes that were not sent are lost."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Receive bytes. Unless they complete the head of a request, the rest of it must come within the limit."""
        super().data_received(data)
        self._forget_frames()
        waiter = self._waiter
        if self._request_count and (waiter is None or waiter.done()):
            self._stop_head_timer()
        elif self._head_timer is None:
            self._start_head_timer()

    def _forget_frames(self) -> None:
        """Drop the frames of an error about unreadable bytes: their variables refer to the error."""
        error = getattr(self._messages[-1][0], "exc", None) if self._messages else None
        if error is not None:
            forget_frames(error)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_timer()
        self._stop_stall_timer()
        super().connection_lost(exc)
        self._messages.clear()

    def _start_head_timer(self) -> None:
        self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)

    def _stop_head_timer(self) -> None:
        timer, self._head_timer = self._head_timer, None
        if timer is not None:
            timer.cancel()

    # -- requests that cannot be read ----------------------------------------------------------------------

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that did not reach the handler, or that the handler gave up."""
        self.log_exception("a request could not be answered", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has been begun; there is no place for another")
        response = self.explained(status, exc)
        response.force_close()
        return response

    def explained(self, status: int, error: BaseException | None) -> web.StreamResponse:
        """Return the answer for a request that cannot be read. Servers override it with their own words."""
        return web.Response(status=status)

    # -- clients that do not read --------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Watch for progress: the client has not taken what was sent, and the buffer is full."""
        super().pause_writing()
        self._await_progress()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()

    def _await_progress(self) -> None:
        if self.transport is not None:
            self._left = self.transport.get_write_buffer_size()
            self._stall_timer = self._loop.call_later(STALL_SECONDS, self._check_progress)

    def _check_progress(self) -> None:
        if self.transport is not None and self.transport.get_write_buffer_size() >= self._left:
            self.logger.debug("a client took nothing for %g s; its connection is closed", STALL_SECONDS)
            self.abort()
        else:
            self._await_progress()

    def _stop_stall_timer(self) -> None:
        timer, self._stall_timer = self._stall_timer, None
        if timer is not None:
            timer.cancel()


class _RareLog:
    """Log that writes the first warning at once, and later ones as one line every _LOG_SECONDS, with their number."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._text = ""
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def warn(self, text: str) -> None:
        if self._timer is not None:
            self._text = text
            self._count += 1
            return
        self._log.warning("%s", text)
        self._timer = asyncio.get_running_loop().call_later(_LOG_SECONDS, self._pass)

    def _pass(self) -> None:
        self._timer = None
        count, self._count = self._count, 0
        if count:
            self.warn(f"{self._text} ({count} times in {_LOG_SECONDS:g} s)")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _descriptors() -> int:
    """Return the number of connections that the limit of descriptors allows, less a reserve for files and clients."""
    if resource is None:
        return 1 << 30
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(16, soft - min(256, soft // 4))
