"""Reading request bodies within limits of size, memory and time.

What counts against the memory for all bodies is what has arrived, not what was announced: requests that are opened and
left half-sent take up next to nothing, and end at the time limit. Caller: :mod:`.server`.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from ...api.wire import ApiError
from .bodies import MAX_BODY

__all__ = ["Intake"]


class Intake:
    """Reads bodies for one server: ``allowance`` bytes at once, ``seconds`` for each."""

    def __init__(self, *, allowance: int, seconds: float) -> None:
        self._free = allowance
        self._seconds = seconds
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many bodies have begun to come in and are not complete."""
        return self._waiting

    async def read(self, request: web.BaseRequest) -> bytes:
        """The body of a request.

        Raises:
            ApiError: 400 for a body that cannot be read, 408 for one that takes too long, 413 for one that is too
                large, 429 when too much is being read already.
        """
        if not request.can_read_body:
            return b""
        expected = request.content_length
        if expected is not None and expected > MAX_BODY:
            raise _too_large()
        try:
            if request.content.is_eof():  # all of it has arrived, as nearly always
                return await self._read(request)
            self._waiting += 1
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._read(request)
            finally:
                self._waiting -= 1
        except TimeoutError:
            text = f"the body of the request was not complete after {self._seconds:g} seconds"
            raise ApiError(408, "Timeout", text) from None
        except web.RequestPayloadError as error:
            # Chunks or a compression that do not hold what they say.
            what = str(error).rpartition("message:")[2].strip().split("\n", 1)[0] or "it ends too early"
            raise ApiError.bad_request(f"the body of the request cannot be read: {what[:200]}") from None

    async def _read(self, request: web.BaseRequest) -> bytes:
        parts: list[bytes] = []
        held = 0
        try:
            while part := await request.content.readany():
                if held + len(part) > MAX_BODY:
                    raise _too_large()
                if len(part) > self._free:
                    text = "too many request bodies are being read; try again later"
                    raise ApiError(429, "TooManyRequests", text, {"retryAfterSeconds": 1})
                self._free -= len(part)
                held += len(part)
                parts.append(part)
            return b"".join(parts)
        finally:
            self._free += held


def _too_large() -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY}")
