"""Transport that waits for the rate limiter and counts its requests.

:class:`~kubesched.client.port.ApiPort` wraps its transports in it. Everything else in the package sees only
:class:`~kubesched.api.wire.Transport`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from kubesched.api.event_record import EventRecord
from kubesched.api.kinds import Kind
from kubesched.api.wire import (
    ApiError,
    DeleteOptions,
    Item,
    ListOptions,
    ListPage,
    NotLeaderError,
    PatchOptions,
    Transport,
    WatchEvent,
    WatchOptions,
)

from .backoff import TokenBucket
from .connection_log import log_of
from .http_reading import held_of

__all__ = ["NO_RESPONSE", "MeteredTransport"]

T = TypeVar("T")

#: Code under which a request without an answer is counted, as upstream writes it.
NO_RESPONSE = "<error>"


class MeteredTransport:
    """Transport ``inner`` behind a token bucket.

    Every request takes a token, and so does every page of a list. Opening a watch takes none.

    ``limiter`` may be set at any time; None means no limit. ``requests`` counts by (HTTP method, code) and may be
    shared between transports. ``on_request`` receives each request: method, code, seconds without the wait.
    ``on_wait`` receives the method and the seconds waited for the limiter. ``may_write`` is evaluated right before each
    write is sent, after the wait for the limiter.

    Raises (every write):
        NotLeaderError: if ``may_write`` returns False; nothing was sent.
    """

    def __init__(
        self,
        inner: Transport,
        *,
        limiter: TokenBucket | None = None,
        requests: dict[tuple[str, str], int] | None = None,
        on_request: Callable[[str, str, float], None] | None = None,
        on_wait: Callable[[str, float], None] | None = None,
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        self._inner = inner
        self.connection_log = log_of(inner)
        self.held = held_of(inner)
        self.limiter = limiter
        self.requests: dict[tuple[str, str], int] = {} if requests is None else requests
        self.on_request = on_request
        self.on_wait = on_wait
        self.may_write = may_write

    @property
    def at_once(self) -> bool:
        return self._inner.at_once and self.limiter is None and (self.may_write is None or self.may_write())

    async def _request(self, method: str, success: str, call: Coroutine[Any, Any, T]) -> T:
        if self.limiter is not None:
            try:
                waited = await self.limiter.acquire()
            except BaseException:
                call.close()
                raise
            if self.on_wait is not None:
                self.on_wait(method, waited)
        if method != "GET" and self.may_write is not None and not self.may_write():
            call.close()
            raise NotLeaderError
        started = asyncio.get_running_loop().time() if self.on_request is not None else 0.0
        code = NO_RESPONSE
        try:
            answer = await call
            code = success
        except ApiError as error:
            code = str(error.code)
            raise
        finally:
            seconds = asyncio.get_running_loop().time() - started if self.on_request is not None else 0.0
            self._answered(method, code, seconds)
        return answer

    def _answered(self, method: str, code: str, seconds: float | None) -> None:
        """Count a request. ``seconds`` is its duration; None for a watch."""
        key, requests = (method, code), self.requests
        requests[key] = requests.get(key, 0) + 1
        if seconds is not None and self.on_request is not None:
            self.on_request(method, code, seconds)

    # -- Transport -----------------------------------------------------------------------------------------

    async def list(self, kind: Kind, namespace: str = "", **options: Unpack[ListOptions]) -> ListPage:
        call = self._inner.list(kind, namespace, **options)
        return await self._request("GET", "200", call)

    async def watch(
        self, kind: Kind, namespace: str = "", **options: Unpack[WatchOptions]
    ) -> AsyncIterator[Sequence[WatchEvent]]:
        stream = self._inner.watch(kind, namespace, **options)
        code = "200"
        try:
            async for batch in stream:
                yield batch
        except ApiError as error:
            code = str(error.code)
            raise
        except OSError:
            code = NO_RESPONSE
            raise
        finally:
            self._answered("GET", code, None)
            aclose = getattr(stream, "aclose", None)
            if aclose is not None:
                await aclose()

    def get(self, kind: Kind, namespace: str, name: str) -> Coroutine[Any, Any, Item]:
        return self._request("GET", "200", self._inner.get(kind, namespace, name))

    def create(
        self, kind: Kind, namespace: str, obj: Mapping[str, Any], *, dry_run: bool = False
    ) -> Coroutine[Any, Any, Item]:
        return self._request("POST", "201", self._inner.create(kind, namespace, obj, dry_run=dry_run))

    def update(
        self, kind: Kind, namespace: str, name: str, obj: Mapping[str, Any], *, subresource: str = ""
    ) -> Coroutine[Any, Any, Item]:
        return self._request("PUT", "200", self._inner.update(kind, namespace, name, obj, subresource=subresource))

    def patch(
        self, kind: Kind, namespace: str, name: str, patch: Any, **options: Unpack[PatchOptions]
    ) -> Coroutine[Any, Any, Item]:
        return self._request("PATCH", "200", self._inner.patch(kind, namespace, name, patch, **options))

    def delete(
        self, kind: Kind, namespace: str, name: str, **options: Unpack[DeleteOptions]
    ) -> Coroutine[Any, Any, None]:
        return self._request("DELETE", "200", self._inner.delete(kind, namespace, name, **options))

    def bind(self, namespace: str, name: str, uid: str, node_name: str) -> Coroutine[Any, Any, None]:
        return self._request("POST", "201", self._inner.bind(namespace, name, uid, node_name))

    def record(self, event: EventRecord) -> bool:
        if not self.at_once:
            return False
        try:
            done = self._inner.record(event)
        except ApiError as error:
            self._answered("POST", str(error.code), 0.0)
            raise
        if done:
            self._answered("POST", "201", 0.0)
        return done

    def evict(self, namespace: str, name: str, *, grace_period_seconds: int | None = None) -> Coroutine[Any, Any, None]:
        call = self._inner.evict(namespace, name, grace_period_seconds=grace_period_seconds)
        return self._request("POST", "201", call)
