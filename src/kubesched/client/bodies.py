"""Bodies of answers, read within a limit: a peer that never stops sending must not fill the memory.

Bytes are counted as they arrive and after decompression. The limit for lists is generous, as large clusters need it.
Callers: :mod:`.http` and the extenders.
"""

from __future__ import annotations

from typing import Final

from kubesched.base.extras import needing

from .http_reading import MOST_LIST, AnswerTooLongError, Held

with needing("the client of an API server", "server"):
    import aiohttp

__all__ = ["MOST_LIST", "MOST_REFUSAL", "AnswerTooLongError", "Held", "read_body"]

#: Most bytes of an answer that refuses a request.
MOST_REFUSAL: Final = 1 << 20
_LARGE: Final = 1 << 20


async def read_body(response: aiohttp.ClientResponse, held: Held) -> bytes | bytearray:
    """Read the body of an answer. Its bytes are charged to ``held`` meanwhile.

    A large body is joined as it arrives: joining 160 MB at the end would hold the event loop for 65 ms.

    Raises:
        AnswerTooLongError: if all that is held exceeds its limit.
        aiohttp.ClientError: if the body ends too early.
    """
    body = bytearray()
    try:
        with held.share() as charge:
            async for piece in response.content.iter_any():
                charge(len(piece))
                body += piece
    except BaseException as error:
        if isinstance(error, AnswerTooLongError):
            response.close()
        body.clear()  # the error keeps this frame alive while its receiver waits
        raise
    return body if len(body) > _LARGE else bytes(body)
