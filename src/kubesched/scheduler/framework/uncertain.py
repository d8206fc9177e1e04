"""Reading of an object after a write whose effect is unknown, because its answer was lost.

Callers: the binding cycle, for pods; the plugins DynamicResources and VolumeBinding, for claims and volumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

from kubesched.api.wire import ApiError, NotLeaderError

__all__ = ["causes", "is_open", "read_until_answered"]

#: Seconds within which the API server has to answer. A leader that cannot reach it for that long has lost the lease; without
#: a lease, room must not stay reserved for ever.
_WITHIN: Final = 60.0
#: Seconds before an object is read again, and the longest pause, to which it is doubled.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 2.0

T = TypeVar("T")


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and the errors that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_open(error: BaseException) -> bool:
    """Return True if a write may have had its effect although it failed with this error.

    A conflict does not say no either: the client may have repeated the write after a 5xx with Retry-After.
    """
    for each in causes(error):
        if isinstance(each, ApiError):
            return each.code >= 500 or each.code == 409
        if isinstance(each, ConnectionRefusedError | NotLeaderError):
            return False
    return True


async def read_until_answered(
    read: Callable[[], Awaitable[T]], *, closing: Callable[[], bool] = lambda: False
) -> T | None:
    """Return an object as soon as the API server shows it.

    None if there is none (404, 410), if the server does not answer for a minute, or after a failure while ``closing`` is
    true. A read that is refused, for example while a token is renewed, says nothing of the object and is repeated.
    """
    pause = _FIRST_PAUSE
    try:
        async with asyncio.timeout(_WITHIN):
            while True:
                try:
                    return await read()
                except (ApiError, OSError) as error:
                    is_gone = isinstance(error, ApiError) and error.code in (404, 410)
                    if is_gone or closing():
                        return None
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
    except TimeoutError:
        return None
