"""Bodies of answers, read within a limit: a peer that never stops sending must not fill the memory.

Bytes are counted as they arrive and after decompression. Lists are generous, as large clusters have them. Callers: :mod:`.http`
and the extenders.
"""

from __future__ import annotations

from typing import Final

from kubesched.base.extras import needing

from .http_reading import AnswerTooLongError

with needing("the client of an API server", "server"):
    import aiohttp

__all__ = ["MOST_LIST", "MOST_REFUSAL", "AnswerTooLongError", "Held", "read_body"]

#: Bytes of answers to reads that are under way at one time. 300,000 pods of 5 KB each, sent as one list, take 1.5 GB.
MOST_LIST: Final = 2 << 30
#: Bytes of the answer that refuses a request.
MOST_REFUSAL: Final = 1 << 20
_LARGE: Final = 1 << 20


class Held:
    """The bytes of answers that are being read at one time: kinds are listed together, and all of them may be without end."""

    def __init__(self) -> None:
        self.bytes = 0


async def read_body(response: aiohttp.ClientResponse, limit: int, held: Held | None = None) -> bytes | bytearray:
    """All of an answer. One that is large grows as it arrives: joining 160 MB at its end would hold the event loop for 65 ms.

    Raises:
        AnswerTooLongError: when it, and what others ``held`` by then, has more bytes than ``limit``.
        aiohttp.ClientError: when it ends too early.
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
        body.clear()  # the error keeps this frame for as long as its receiver waits
        raise
    held.bytes -= len(body)
    return body if len(body) > _LARGE else bytes(body)
