"""Transport over HTTP: an API server, real or embedded, as :class:`kubesched.api.wire.Transport`.

Objects travel as JSON bytes. A list is split into its items without decoding them; a watch is read line by line, in
batches. Needs the ``server`` extra (aiohttp). Callers: :class:`.port.ApiPort` and tests. Rate limits are in
:mod:`.metered`.

    refused by the server       -> ApiError; details["retryAfterSeconds"] if the server said when to come back
    not reached, cut off        -> OSError (ConnectionRefusedError if nothing listens)
    lease lost meanwhile        -> NotLeaderError: a write that waited for a connection is not sent, or not repeated
    5xx, and a retry in vain    -> the 5xx, because the first request may have been carried out
    401                         -> one more try with new credentials, if they can be renewed; then ApiError
    429 or 5xx with Retry-After -> wait, at most a minute, and retry, at most ``max_retries`` times; after a 429 to a
                                   write all writes of this transport slow down, after one to a read all reads
                                   except watches (:mod:`.pace`)
    more bytes than a limit     -> AnswerTooLongError, which is an OSError
"""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, Unpack
from urllib.parse import urlencode

import msgspec

from kubesched.api.event_record import EventRecord
from kubesched.api.kinds import PODS, Kind
from kubesched.api.wire import (
    STRATEGIC_PATCH,
    ApiError,
    DeleteOptions,
    Item,
    ListOptions,
    ListPage,
    NotLeaderError,
    PatchOptions,
    WatchEvent,
    WatchOptions,
)
from kubesched.base.collector import forget_frames
from kubesched.base.extras import needing
from kubesched.base.followed_files import FollowedContext
from kubesched.base.turns import in_turns

from .access import AccessError, ClusterAccess, Credentials
from .backoff import retry_after
from .bodies import MOST_LIST, MOST_REFUSAL, Held, read_body
from .connection_log import ConnectionLog
from .http_paths import path_of, query_of
from .http_reading import has_cause, read_events, read_item, reading_list, status_error
from .metered import NO_RESPONSE
from .pace import Pace
from .proxies import environment_proxy
from .write_connections import WriteConnections

with needing("the client of an API server", "server"):
    import aiohttp

__all__ = ["FencedConnector", "HttpTransport", "RequestObserver"]

logger = logging.getLogger("kubesched.client")

#: Seconds that a request other than a watch may take.
REQUEST_TIMEOUT: Final = 60.0
#: Most retries of one request (rules/metrics-and-client §7.2).
MAX_RETRIES: Final = 10
#: Most requests of a transport under way at one time, each on its own connection. Watches do not count. A TLS connection
#: takes 0.1 to 0.3 MB and a hand-shake, and a server that answers a write within 20 ms takes 3,200 a second through 64.
REQUESTS_AT_A_TIME: Final = 64
#: Seconds before a read whose connection broke is tried again.
RESET_DELAY: Final = 1.0
#: Answers to a request that was not carried out. They say nothing of an earlier one.
_TURNED_AWAY: Final = {401, 403, 429}
_LARGE: Final = 2**20  # bytes; aiohttp wants a longer body as a file, to send it piece by piece


_encode = msgspec.json.Encoder().encode


class RequestObserver(Protocol):
    """Observer of HTTP requests. ``code`` is the status code, or ``<error>`` if there was no answer."""

    def finished(self, method: str, code: str, seconds: float) -> None:
        """Take note that a request was answered or failed. A watch is counted when it was opened."""
        ...

    def transferred(self, method: str, sent: int, received: int) -> None:
        """Take note of the bytes of a request's body and of its answer. Not called for watches."""
        ...

    def repeated(self, method: str, code: str) -> None:
        """Take note that a request is sent again because of this answer."""
        ...


class FencedConnector(aiohttp.BaseConnector):
    """Connector that evaluates ``may_write`` for each write as soon as its connection is ready.

    A check before the request is not enough: connecting may take as long as a lease lasts, and aiohttp repeats some
    requests by itself.
    """

    may_write: Callable[[], bool] | None = None

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - aiohttp's signature
        """Return a connection for a request.

        Raises:
            NotLeaderError: if the request is a write, and this process may not write.
        """
        connection = await super().connect(req, traces, timeout)
        if req.method != "GET" and self.may_write is not None and not self.may_write():
            connection.release()
            raise NotLeaderError
        return connection


class _TcpConnector(FencedConnector, aiohttp.TCPConnector):
    """Fenced connector over TCP."""


class HttpTransport:
    """Requests to the API server at ``base_url``.

    ``token`` or ``credentials`` are sent with every request. ``context`` is for HTTPS, fixed or following its files.
    ``server_name`` is the name that the certificate must have, if it is not the one in the address. ``proxy`` is a
    proxy's URL; by default the environment decides. A given ``session`` is used and left open; otherwise one is made,
    and closed by ``close``. ``observer`` is told of each request, retries included. ``connection_log`` is the log of
    all who use the transport; by default it has one of its own. ``may_write`` may be set at any time; a given session
    then needs a :class:`FencedConnector`.
    """

    at_once: Final = False

    def __init__(
        self,
        base_url: str,
        *,
        session: aiohttp.ClientSession | None = None,
        token: str | None = None,
        credentials: Credentials | None = None,
        context: ssl.SSLContext | FollowedContext | None = None,
        server_name: str = "",
        proxy: str = "",
        user_agent: str = "kubesched",
        timeout: float = REQUEST_TIMEOUT,
        max_retries: int = MAX_RETRIES,
        observer: RequestObserver | None = None,
        connection_log: ConnectionLog | None = None,
    ) -> None:
        self._base = base_url.rstrip("/")
        self.connection_log = connection_log or ConnectionLog(self._base)
        self._session = session
        self._owns_session = session is None
        self._token = token
        self._credentials = credentials
        self._tls = FollowedContext(lambda: context) if isinstance(context, ssl.SSLContext) else context
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._max_retries = max_retries
        #: Paces of writes and of reads. A server limits them apart, and a long list must not hold up bindings.
        self._writes, self._reads = Pace(REQUESTS_AT_A_TIME), Pace(REQUESTS_AT_A_TIME)
        #: Bytes of lists that are being read, here and by reflectors.
        self.held = Held(MOST_LIST)
        self._headers_without_body = {"Accept": "application/json", "User-Agent": user_agent}
        #: Options of every request.
        # The proxy is read from the environment here. The session would do it in a thread for every request, and would
        # take passwords from ~/.netrc.
        self._options: dict[str, Any] = {"proxy": proxy or environment_proxy(self._base, os.environ) or None}
        if server_name:
            self._options["server_hostname"] = server_name
        self._observer = observer
        self._may_write: Callable[[], bool] | None = None
        #: Connections for writes; None if writes need a session, for a proxy or for a password in the address.
        self._writing: WriteConnections | None = None
        if session is None and not self._options["proxy"] and "@" not in self._base:
            self._writing = WriteConnections(self._base, tls=self._tls, server_name=server_name, timeout=timeout)

    @classmethod
    def connect(cls, access: ClusterAccess, **options: Any) -> HttpTransport:
        """Return a transport for an access that was read from a kubeconfig or elsewhere."""
        return cls(
            access.url,
            credentials=access.credentials,
            context=access.ssl,
            server_name=access.server_name,
            proxy=access.proxy,
            **options,
        )

    async def close(self) -> None:
        """Close the connections. A session is closed too, unless it was given."""
        if self._writing is not None:
            await self._writing.close()
        session, self._session = self._session, None
        if session is not None and self._owns_session:
            await session.close()

    async def __aenter__(self) -> HttpTransport:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @property
    def may_write(self) -> Callable[[], bool] | None:
        """Function that is called before a write is sent, retries included, and allows it or not. None allows all.

        Raises:
            TypeError: if set on a transport whose session cannot call it.
        """
        return self._may_write

    @may_write.setter
    def may_write(self, value: Callable[[], bool] | None) -> None:
        self._may_write = value
        if self._writing is not None:
            self._writing.may_write = value
        connector = self._opened().connector
        if not isinstance(connector, FencedConnector):
            raise TypeError(f"a session with a {type(connector).__name__} cannot be fenced; give a FencedConnector")
        connector.may_write = value

    # -- plumbing ----------------------------------------------------------------------------------------

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = _TcpConnector(limit=0)
            # No automatic decompression and no cookies: API servers use neither here.
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=2**18
            )
            self._owns_session = True
            connector.may_write = self._may_write
        return self._session

    def _context(self) -> ssl.SSLContext | bool:
        """Return the context for a request through the session.

        Its connections belong to the context they were made with.
        """
        return self._tls.current() if self._tls is not None else True

    def _refused(self) -> None:
        """Mark the credentials as refused by the server, so that they are renewed if that is possible."""
        if self._credentials is not None:
            self._credentials.rejected()
        if self._tls is not None:
            self._tls.refused()

    async def _headers(self, content_type: str) -> dict[str, str]:
        headers = dict(self._headers_without_body)
        if content_type:
            headers["Content-Type"] = content_type
        if self._credentials is not None:
            try:
                authorization = await self._credentials.header()
            except AccessError as error:
                raise ApiError(401, "Unauthorized", f"getting credentials: {error}") from None
            if authorization:
                headers["Authorization"] = authorization
        elif self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        retry: bool = True,
    ) -> bytes | bytearray:
        """Return the answer's body; a large one is a bytearray."""
        raw = None if body is None else _encode(body)
        pace = self._reads if method == "GET" else self._writes
        tries = token = 0
        renewed = False
        unclear: ApiError | None = None
        while True:
            try:
                async with pace as token:
                    answer = await self._once(method, path, query, raw, content_type)
                pace.taken()
                return answer
            except ApiError as error:
                if error.code < 500 and error.code != 429:
                    pace.taken()
                if error.code == 401 and self._credentials is not None and not renewed:
                    renewed = True
                    self._refused()
                    continue
                after = retry_after(error.details.get("retryAfterSeconds"))
                may = retry and (error.code == 429 or error.code >= 500)
                if error.code == 429 and not has_cause(error, "DisruptionBudget"):
                    pace.refused(token, after or 0.0)
                # The server has not yet seen the requested version. Waiting does not help; the reflector asks without a
                # version.
                if (
                    after is None
                    or not may
                    or has_cause(error, "ResourceVersionTooLarge")
                    or tries >= self._max_retries
                ):
                    if unclear is None or error.code not in _TURNED_AWAY:
                        raise
                    break
                delay, code = after, str(error.code)
                unclear = error if error.code >= 500 else unclear
            except (NotLeaderError, ConnectionRefusedError):
                if unclear is None:
                    raise
                break
            except ConnectionResetError:
                if method != "GET" or not retry or tries >= self._max_retries:
                    raise
                delay, code = RESET_DELAY, NO_RESPONSE
            tries += 1
            if self._observer is not None:
                self._observer.repeated(method, code)
            logger.debug("%s %s is repeated in %.1f s", method, path, delay)
            await asyncio.sleep(delay)
        raise unclear  # the retry was not carried out, but an earlier request may have been

    async def _once(
        self, method: str, path: str, query: Mapping[str, str] | None, raw: bytes | None, content_type: str
    ) -> bytes | bytearray:
        started, code = asyncio.get_running_loop().time(), NO_RESPONSE
        try:
            headers = await self._headers(content_type if raw is not None else "")
            answer: bytes | bytearray
            if method != "GET" and self._writing is not None:
                target = f"{path}?{urlencode(query)}" if query else path
                status, answered, answer, _ = await self._writing.request(method, target, headers, raw or b"")
            else:
                async with self._opened().request(
                    method,
                    self._base + path,
                    params=query,
                    data=io.BytesIO(raw) if raw is not None and len(raw) > _LARGE else raw,
                    headers=headers,
                    timeout=self._timeout,
                    ssl=self._context(),
                    **self._options,
                ) as response:
                    status, answered = response.status, response.headers
                    answer = await read_body(response, self.held if status < 300 else Held(MOST_REFUSAL))
            code = str(status)
            if self._observer is not None:
                self._observer.transferred(method, len(raw or b""), len(answer))
            if status >= 300:
                raise _refusal(status, answered.get("retry-after", ""), answer)
            return answer
        except aiohttp.ClientError as error:
            raise _network_error(error) from error.__cause__
        finally:
            if code == NO_RESPONSE and self._tls is not None:
                self._tls.refused()
            self._finished(method, code, started)

    def _finished(self, method: str, code: str, started: float) -> None:
        if self._observer is not None:
            self._observer.finished(method, code, asyncio.get_running_loop().time() - started)

    # -- Transport ---------------------------------------------------------------------------------------

    async def list(self, kind: Kind, namespace: str = "", **options: Unpack[ListOptions]) -> ListPage:
        query = query_of(options)
        raw = await self._request("GET", path_of(kind, namespace), query=query)
        return await in_turns(reading_list(kind, raw))

    async def watch(
        self, kind: Kind, namespace: str = "", **options: Unpack[WatchOptions]
    ) -> AsyncIterator[Sequence[WatchEvent]]:
        """Yield a batch of events for each piece that arrives.

        Raises:
            ApiError: an error that the server reports, in the stream too.
            OSError: if the connection cannot be made, or breaks.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", **query_of(options)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30.0)
        started, is_open = asyncio.get_running_loop().time(), False
        try:
            async with self._opened().get(
                self._base + path_of(kind, namespace),
                params=query,
                headers=await self._headers(""),
                timeout=timeout,
                ssl=self._context(),
                **self._options,
            ) as response:
                is_open = True
                self._finished("GET", str(response.status), started)
                if response.status >= 400:
                    if response.status == 401:
                        self._refused()
                    raise _refusal(
                        response.status,
                        response.headers.get("Retry-After", ""),
                        await read_body(response, Held(MOST_REFUSAL)),
                    )
                async for batch in read_events(kind, response.content.iter_any()):
                    yield batch
        except aiohttp.ClientError as error:
            raise _network_error(error) from error.__cause__
        finally:
            if not is_open:
                if self._tls is not None:
                    self._tls.refused()
                self._finished("GET", NO_RESPONSE, started)

    async def get(self, kind: Kind, namespace: str, name: str) -> Item:
        return read_item(kind, await self._request("GET", path_of(kind, namespace, name)))

    async def create(self, kind: Kind, namespace: str, obj: Mapping[str, Any], *, dry_run: bool = False) -> Item:
        if kind.namespaced and not namespace:
            namespace = (obj.get("metadata") or {}).get("namespace") or "default"
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        query = {"dryRun": "All"} if dry_run else None
        return read_item(kind, await self._request("POST", path_of(kind, namespace), query=query, body=body))

    async def update(
        self, kind: Kind, namespace: str, name: str, obj: Mapping[str, Any], *, subresource: str = ""
    ) -> Item:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        return read_item(kind, await self._request("PUT", path_of(kind, namespace, name, subresource), body=body))

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Any, **options: Unpack[PatchOptions]) -> Item:
        path = path_of(kind, namespace, name, options.get("subresource", ""))
        patch_type = options.get("patch_type", STRATEGIC_PATCH)
        return read_item(kind, await self._request("PATCH", path, body=patch, content_type=patch_type))

    async def delete(self, kind: Kind, namespace: str, name: str, **options: Unpack[DeleteOptions]) -> None:
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if options.get("uid"):
            body["preconditions"] = {"uid": options["uid"]}
        if options.get("grace_period_seconds") is not None:
            body["gracePeriodSeconds"] = options["grace_period_seconds"]
        if options.get("propagation_policy"):
            body["propagationPolicy"] = options["propagation_policy"]
        await self._request("DELETE", path_of(kind, namespace, name), body=body if len(body) > 2 else None)

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        metadata = {"name": name, "namespace": namespace, **({"uid": uid} if uid else {})}
        target = {"kind": "Node", "name": node_name}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self._request("POST", path_of(PODS, namespace, name, "binding"), body=body)

    def record(self, event: EventRecord) -> bool:
        return False

    async def evict(self, namespace: str, name: str, *, grace_period_seconds: int | None = None) -> None:
        """See :meth:`kubesched.api.wire.Transport.evict`. A disruption budget's 429 is not retried."""
        metadata = {"name": name, "namespace": namespace}
        body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        if grace_period_seconds is not None:
            body["deleteOptions"] = {"gracePeriodSeconds": grace_period_seconds}
        await self._request("POST", path_of(PODS, namespace, name, "eviction"), body=body, retry=False)


# -- errors -------------------------------------------------------------------------------------------


def _refusal(status: int, after: str, raw: bytes | bytearray) -> ApiError:
    """Return the error of a refusal. ``after`` is the answer's header Retry-After."""
    error = status_error(raw, status)
    error.code = status
    seconds = retry_after(after.strip())
    if seconds is not None:
        error.details["retryAfterSeconds"] = seconds
    else:
        # A request may be repeated unchanged only if the header is there.
        error.details.pop("retryAfterSeconds", None)
    return error


def _network_error(error: aiohttp.ClientError) -> OSError:
    """Convert a client error to the OSError that backoff rules check, without the library's remarks on TLS settings."""
    forget_frames(error)
    if isinstance(error.__cause__, NotLeaderError):
        return error.__cause__
    if isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
        text = f"cannot connect to {error.host}:{error.port}: {inner.strerror or inner}"
        refused = inner.errno == errno.ECONNREFUSED
        return ConnectionRefusedError(errno.ECONNREFUSED, text) if refused else ConnectionError(text)
    if isinstance(error, OSError) and not isinstance(error, aiohttp.ServerDisconnectedError):
        return error
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return ConnectionResetError(errno.ECONNRESET, str(error) or "the server closed the connection")
    return ConnectionError(str(error) or repr(error))
