"""Bodies of answers, read within a limit: a peer that never stops sending must not fill the memory.

Bytes are counted as they arrive and after decompression. The limit for lists is generous, as large clusters need it.
Callers: :mod:`.http` and the extenders.
"""

from __future__ import annotations

from typing import Final

from kubesched.base.extras import needing

from .http_reading import AnswerTooLongError

with needing("the client of an API server", "server"):
    import aiohttp

__all__ = ["MOST_LIST", "MOST_REFUSAL", "AnswerTooLongError", "Held", "read_body"]

#: Most bytes of answers to reads that are under way at one time. 300,000 pods of 5 KB each, as one list, take 1.5 GB.
MOST_LIST: Final = 2 << 30
#: Most bytes of an answer that refuses a request.
MOST_REFUSAL: Final = 1 << 20
_LARGE: Final = 1 << 20


class Held:
    """Bytes of all answers being read at one time. Several kinds are listed together, and any list may be endless."""

    def __init__(self) -> None:
        self.bytes = 0


async def read_body(response: aiohttp.ClientResponse, limit: int, held: Held | None = None) -> bytes | bytearray:
    """Read the body of an answer.

    A large body is joined as it arrives: joining 160 MB at the end would hold the event loop for 65 ms.

    Raises:
        AnswerTooLongError: if this body and those that others have ``held`` so far exceed ``limit`` bytes together.
        aiohttp.ClientError: if the body ends too early.
    """
    body = bytearray()
    held = held or Held()
    try:
        async for piece in response.content.iter_any():
            if held.bytes + len(piece) > limit:
                response.close()
                raise AnswerTooLongError(limit)
            held.bytes += len(piece)
            body += piece
    except BaseException:
        held.bytes -= len(body)
        body.clear()  # the error keeps this frame alive while its receiver waits
        raise
    held.bytes -= len(body)
    return body if len(body) > _LARGE else bytes(body)
