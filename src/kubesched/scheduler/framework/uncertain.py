"""Reading of an object after a write whose effect is unknown, because its answer was lost.

Callers: the binding cycle, for pods; the plugins DynamicResources and VolumeBinding, for claims and volumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol, TypeVar

from kubesched.api.decode import DecodeError
from kubesched.api.kinds import Kind
from kubesched.api.types import ObjectMeta
from kubesched.api.wire import ApiError, NotLeaderError

from .interface import Handle

__all__ = ["NO_CLEAR_ANSWER", "causes", "is_open", "read_again", "read_until_answered"]

#: Errors of a request whose effect may be unknown. A body that cannot be decoded is no answer either.
NO_CLEAR_ANSWER: Final = (ApiError, OSError, DecodeError)

#: Seconds within which the API server has to answer. A leader that cannot reach it for that long has lost the lease; without
#: a lease, room must not stay reserved for ever.
_WITHIN: Final = 60.0
#: Seconds before an object is read again, and the longest pause, to which it is doubled.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 2.0


class _Object(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=_Object)


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
    read: Callable[[], Awaitable[T | None]], *, closing: Callable[[], bool] = lambda: False
) -> T | None:
    """Return an object as soon as the API server shows it.

    None if there is none (404, 410, or ``read`` returns None), if the server does not answer for a minute, or after a failure while ``closing`` is
    true. A read that is refused, for example while a token is renewed, says nothing of the object and is repeated. So is
    one that is answered by something else: an object without a UID was not stored.
    """
    pause = _FIRST_PAUSE
    try:
        async with asyncio.timeout(_WITHIN):
            while True:
                try:
                    found = await read()
                    if found is None or found.metadata.uid:
                        return found
                except NO_CLEAR_ANSWER as error:
                    if isinstance(error, ApiError) and error.code in (404, 410):
                        return None
                if closing():
                    return None
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
    except TimeoutError:
        return None


async def read_again(handle: Handle, kind: Kind, meta: ObjectMeta) -> Any | None:
    """Return this very object as soon as the API server shows it; None as for :func:`read_until_answered`, or if another
    object has its name.
    """
    found: Any = await read_until_answered(
        lambda: handle.client.get_object(kind, meta.namespace, meta.name),
        closing=lambda: handle.pods_in_pre_bind.stopping,
    )
    return found if found is not None and found.metadata.uid == meta.uid else None
