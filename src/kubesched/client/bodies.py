"""Bodies of answers, read within a limit: a peer that never stops sending must not fill the memory.

Bytes are counted as they arrive and after decompression. Lists are generous, as large clusters have them. Callers: :mod:`.http`
and the extenders.
"""

from __future__ import annotations

from typing import Final

from kubesched.api.extras import needing

from .http_reading import AnswerTooLongError

with needing("the client of an API server", "server"):
    import aiohttp

__all__ = ["MOST_LIST", "MOST_REFUSAL", "AnswerTooLongError", "read_body"]

#: Bytes of an answer to a read. 300,000 pods of 5 KB each, sent as one list, take 1.5 GB.
MOST_LIST: Final = 2 << 30
#: Bytes of the answer that refuses a request.
MOST_REFUSAL: Final = 1 << 20
_LARGE: Final = 1 << 20


async def read_body(response: aiohttp.ClientResponse, limit: int) -> bytes | bytearray:
    """All of an answer. One that is large grows as it arrives: joining 160 MB at its end would hold the event loop for 65 ms.

    Raises:
        AnswerTooLongError: when it has more bytes than ``limit``.
        aiohttp.ClientError: when it ends too early.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        if len(body) + len(piece) > limit:
            response.close()
            raise AnswerTooLongError(limit)
        body += piece
    return body if len(body) > _LARGE else bytes(body)
