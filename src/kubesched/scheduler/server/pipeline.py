"""Pipeline of one request, from the connection to the answer.

    authenticate ──▶ authorize ──▶ endpoint ──▶ Cache-Control, access log
         └─ 401          └─ 403, or 500 when the review fails

Caller: :mod:`.server`. Only the always-allow paths are answered without permission.
Source: rules/serving §1, §5 and §6.
"""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from kubesched.api.wire import ApiError
from kubesched.base.times import Clock

from .answers import internal_error, refusal
from .authentication import Authenticator, Unauthorized, User
from .authorization import Authorizer
from .endpoints import Endpoints
from .reviews import ReviewError
from .tls import peer_certificate

__all__ = ["Pipeline"]

_log = logging.getLogger("kubesched.scheduler.server")
_access_log = logging.getLogger("kubesched.scheduler.server.access")

#: Entities for characters that may be markup: browsers show the messages.
_SAFE: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Pipeline:
    """Pipeline that answers requests."""

    def __init__(
        self, authenticator: Authenticator, authorizer: Authorizer, endpoints: Endpoints, *, clock: Clock
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._endpoints = endpoints
        self._clock = clock

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. A failure within is logged and answered with 500."""
        started = self._clock.now()
        response: web.StreamResponse
        try:
            response = await self._answer(request)
        except ConnectionError:  # the client left in the middle of a stream
            raise
        except Exception:
            _log.exception("%s %s failed", request.method, ascii(request.path))
            response = internal_error()
        if not response.prepared:  # a stream has sent its headers
            response.headers.setdefault("Cache-Control", "no-cache, private")
            response.headers["Server"] = "kubesched"
        if _access_log.isEnabledFor(logging.DEBUG):
            # The query is left out, because it may hold a secret.
            _access_log.debug(
                '"HTTP" verb=%s path=%s status=%d seconds=%.6f userAgent=%s srcIP=%s',
                request.method,
                ascii(request.path),
                response.status,
                self._clock.now() - started,
                ascii(request.headers.get("User-Agent", "")),
                request.remote,
            )
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.get_extra_info("ssl_object")
        try:
            user = await self._authenticator.authenticate(request.headers, peer_certificate(connection))
        except Unauthorized as error:
            _log.error("Unable to authenticate the request: %s", error)
            return refusal(request, ApiError(401, "Unauthorized", "Unauthorized"))
        verb, path = request.method.lower(), request.path
        try:
            decision = await self._authorizer.authorize(user, verb, path)
        except ReviewError as error:
            _log.error("%s %s cannot be authorized: %s", request.method, ascii(path), error)
            return internal_error(f'Internal Server Error: "{path.translate(_SAFE)}": the access review failed')
        if not decision.allowed:
            return refusal(request, ApiError(403, "Forbidden", _forbidden(user, verb, path, decision.reason), {}))
        return await self._endpoints.answer(request)


def _forbidden(user: User, verb: str, path: str, reason: str) -> str:
    text = f"forbidden: User {_quoted(user.name)} cannot {verb} path {_quoted(path)}".translate(_SAFE)
    return f"{text}: {reason}" if reason else text


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
