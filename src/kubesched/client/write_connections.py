"""Connections for writes: one small request, one short answer, again and again.

A scheduler writes a binding and an event for every pod. aiohttp's client makes about twenty objects and 250 calls for
each request, which was half of the CPU time of ``kubesched run``. A write needs only a connection, one piece of bytes
to send and a future. aiohttp still makes reads, watches and requests through proxies. Caller: :mod:`.http`.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import cast
from urllib.parse import urlsplit

from kubesched.api.wire import NotLeaderError
from kubesched.base.collector import forget_frames
from kubesched.base.followed_files import FollowedContext

from .http_answer import Answer, AnswerReader

__all__ = ["WriteConnections"]


class WriteConnections:
    """Connections to one server, each with one request at a time.

    ``tls`` is for HTTPS. ``server_name`` is the name that the certificate must have, if it is not the one in the
    address. ``timeout`` is in seconds, for the connection and again for the answer. ``keep`` is the seconds that an
    idle connection is kept. ``may_write`` is evaluated whenever a request is about to be sent; None allows all.
    """

    def __init__(
        self,
        base_url: str,
        *,
        tls: FollowedContext | None = None,
        server_name: str = "",
        timeout: float = 60.0,
        keep: float = 15.0,
    ) -> None:
        parts = urlsplit(base_url)
        self._host = parts.hostname or ""
        self._is_https = parts.scheme == "https"
        self._port = parts.port or (443 if self._is_https else 80)
        #: Seconds after which the next address of a host name is tried, too, because the addresses of one family may
        #: lead nowhere.
        self._next_address_after = None if _is_address(self._host) else 0.25
        self._path = parts.path
        self._head = f" HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        self._tls = tls
        self._server_name = server_name
        self._timeout = timeout
        self._keep = keep
        self.may_write: Callable[[], bool] | None = None
        self._is_closed = False
        self._open: set[_Connection] = set()
        #: Idle connections, each with the time of its last request. The one used last is at the end and is taken first.
        self._idle: list[tuple[_Connection, float]] = []
        self._pruning: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        """Close all connections for good. Requests under way fail."""
        self._is_closed = True
        for connection in list(self._open):
            connection.close()
        self._idle.clear()
        if self._pruning is not None:
            self._pruning.cancel()
            self._pruning = None
        await asyncio.sleep(0)  # the loop closes sockets on its next turn

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send a request to ``target``, a path below the base URL with its query, and read the answer.

        Raises:
            NotLeaderError: if this process may not write; nothing was sent.
            OSError: if the server cannot be reached, does not answer in time or not in HTTP/1.1, or the connection
                breaks; the write may or may not have happened.
            ValueError: if a header has a line break.
        """
        lines = [f"{method} {self._path}{target}{self._head}"]
        for name, value in headers.items():
            if "\r" in value or "\n" in value:
                raise ValueError(f"the header {name} has a line break")
            lines.append(f"{name}: {value}\r\n")
        lines.append(f"Content-Length: {len(body)}\r\n\r\n")
        head = "".join(lines).encode()
        self._check_lease()
        context = self._tls.current() if self._tls is not None else None
        connection = self._free(context)
        if connection is None:
            connection = await self._connect(context)
            try:
                self._check_lease()  # connecting may take as long as a lease lasts
            except NotLeaderError:
                self._release(connection)
                raise
        loop = asyncio.get_running_loop()
        waiting = connection.send(head + body, loop)
        timer = loop.call_later(self._timeout, connection.expire)
        try:
            answer = await waiting
        except BaseException as error:
            connection.close()
            forget_frames(error)
            raise
        finally:
            timer.cancel()
            del waiting  # breaks a cycle: the future refers to the error, and the error to this frame
        if answer.is_last:
            connection.close()
        else:
            self._release(connection)
        return answer

    def _check_lease(self) -> None:
        if self.may_write is not None and not self.may_write():
            raise NotLeaderError

    def _free(self, context: ssl.SSLContext | None) -> _Connection | None:
        idle = self._idle
        while idle:
            connection, _ = idle.pop()
            if connection.is_open:
                if connection.context is context:
                    return connection
                connection.close()  # the connection was made with earlier certificates
        return None

    async def _connect(self, context: ssl.SSLContext | None) -> _Connection:
        try:
            async with asyncio.timeout(self._timeout):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._open.discard, context),
                    self._host,
                    self._port,
                    ssl=(context or True) if self._is_https else None,
                    server_hostname=(self._server_name or self._host) if self._is_https else None,
                    happy_eyeballs_delay=self._next_address_after,
                )
        except TimeoutError as error:
            forget_frames(error)
            raise TimeoutError(f"no connection to {self._host}:{self._port} within {self._timeout:g} s") from None
        except OSError as error:
            forget_frames(error)
            text = f"cannot connect to {self._host}:{self._port}: {error.strerror or error}"
            # If there are several addresses, the error has no number.
            if error.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(error):
                raise ConnectionRefusedError(errno.ECONNREFUSED, text) from error
            raise ConnectionError(text) from error
        if self._is_closed:
            connection.close()
            raise ConnectionResetError(errno.ECONNRESET, "the connections were closed")
        self._open.add(connection)
        return connection

    def _release(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle.append((connection, loop.time()))
        if self._pruning is None:
            self._pruning = loop.call_later(self._keep, self._prune, loop)

    def _prune(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections that were idle for long, and set a timer for the next one."""
        before, idle = loop.time() - self._keep, self._idle
        while idle and idle[0][1] <= before:
            idle.pop(0)[0].close()
        self._pruning = loop.call_at(idle[0][1] + self._keep, self._prune, loop) if idle else None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class _Connection(asyncio.Protocol):
    """One connection, and the future of the answer that it waits for."""

    def __init__(self, lost: Callable[[_Connection], None], context: ssl.SSLContext | None) -> None:
        self.context = context
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._reader: AnswerReader
        self._waiting: asyncio.Future[Answer] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Answer]:
        """Send a request. Return a future of its answer."""
        self._reader = AnswerReader()
        waiting = self._waiting = loop.create_future()
        if self._transport is not None:
            self._transport.write(request)
        return waiting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def expire(self) -> None:
        """Fail the request: the answer did not come in time."""
        self._fail(TimeoutError("the server did not answer in time"))

    def _take(self) -> asyncio.Future[Answer] | None:
        """Return the future to settle, or None if no one awaits it."""
        waiting, self._waiting = self._waiting, None
        return waiting if waiting is not None and not waiting.done() else None

    def _fail(self, error: OSError) -> None:
        if (waiting := self._take()) is not None:
            waiting.set_exception(error)
        self.close()

    # -- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self.close()  # these bytes belong to no request
            return
        try:
            answer = self._reader.feed(data)
        except OSError as error:
            self._fail(error)
            return
        if answer is not None and (waiting := self._take()) is not None:
            waiting.set_result(answer)

    def eof_received(self) -> None:
        answer = self._reader.end() if self._waiting is not None else None
        if answer is not None and (waiting := self._take()) is not None:
            waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)
        text = "the server closed the connection" if exc is None else getattr(exc, "strerror", None) or str(exc)
        self._fail(ConnectionResetError(errno.ECONNRESET, text))
