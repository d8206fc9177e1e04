"""One connection: the answer to a request that cannot even be read, and the time limit for the head of a request.

aiohttp answers those itself, in plain text and with a traceback in the log. Here they get a ``Status`` like every other
refusal, and the log keeps quiet: what clients send is no defect of ours. Caller: :mod:`.server`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from ...api.wire import ApiError
from .answers import failed, refusal
from .calls import wrong_method

__all__ = ["Connections"]

logger = logging.getLogger("kubesched.cluster")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

#: What clients do wrong, or their networks.
_THEIRS: Final = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
#: A request line that is one but for its method, as the parser's message shows it.
_UNKNOWN_METHOD: Final = re.compile(r"""b['"][!#$%&'*+.^_`|~0-9A-Za-z-]+ [^ ]+ HTTP/1\.[01]['"]""")


class Connections(web.Server):
    """A server whose connections are ours. A request has ``head_seconds`` for its first line and its headers."""

    def __init__(self, handler: Handler, *, head_seconds: float, **options: Any) -> None:
        super().__init__(handler, **options)
        self._head_seconds = head_seconds

    def __call__(self) -> RequestHandler:
        return _Connection(self, self._head_seconds, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
    def __init__(self, server: web.Server, head_seconds: float, **options: Any) -> None:
        super().__init__(server, **options)
        self._head_seconds = head_seconds
        self._head_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Bytes came in. When they do not complete the head of a request, the rest must come within the limit."""
        super().data_received(data)
        waiter = self._waiter
        if self._request_count and (waiter is None or waiter.done()):
            self._stop_timer()
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        timer, self._head_timer = self._head_timer, None
        if timer is not None:
            timer.cancel()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that did not reach the handler, or that the handler gave up."""
        self.log_exception("a request could not be answered", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has been begun; there is no place for another")
        response = refusal(_explained(exc) if status < 500 else failed())
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        if isinstance(kw.get("exc_info"), _THEIRS):
            logger.debug(*args, **kw)
        else:
            super().log_exception(*args, **kw)


def _explained(error: BaseException | None) -> ApiError:
    """What was wrong with a request, as far as its bytes need not be shown."""
    if isinstance(error, BadHttpMethod):
        if _UNKNOWN_METHOD.search(error.message):
            return wrong_method()
        if "HTTPS" in error.message:
            return ApiError.bad_request("this is an HTTP server, and the request came by HTTPS; use http://")
    if isinstance(error, LineTooLong):
        text = (
            f"the request line or a header is longer than {error.args[1] if len(error.args) > 1 else 'allowed'} bytes"
        )
        return ApiError(431, "RequestHeaderFieldsTooLarge", text)
    text = error.message if isinstance(error, HttpProcessingError) else ""
    first = text.strip().split("\n", 1)[0].rstrip(":")[:200] or "the request cannot be read"
    return ApiError.bad_request(f"malformed HTTP request: {first}")
