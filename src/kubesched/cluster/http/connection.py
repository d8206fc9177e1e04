"""One connection: what is said to a client whose request cannot even be read.

aiohttp answers those itself, in plain text and with a traceback in the log. Here they get a ``Status`` like every other
refusal, and the log keeps quiet: what clients send is no defect of ours. Caller: :mod:`.server`.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from ...api.wire import ApiError
from .answers import refusal
from .calls import wrong_method

__all__ = ["Connections"]

logger = logging.getLogger("kubesched.cluster")

#: What clients do wrong, or their networks.
_THEIRS: Final = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
#: A request line that is one but for its method, as the parser's message shows it.
_UNKNOWN_METHOD: Final = re.compile(r"""b['"][!#$%&'*+.^_`|~0-9A-Za-z-]+ [^ ]+ HTTP/1\.[01]['"]""")


class Connections(web.Server):
    """A server whose connections are ours."""

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
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
        response = refusal(_explained(exc) if status < 500 else _failed())
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


def _failed() -> ApiError:
    text = "Internal error occurred: the embedded cluster failed on this request; see its log"
    return ApiError(500, "InternalError", text)
