"""Coroutines that are carried out without a task where nothing has to be waited for.

An embedded cluster answers a write at once, a server after a while. The write is the same coroutine for both; who must not
wait for it begins it here, and leaves to a task what is not done then.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["begin", "completed"]

T = TypeVar("T")


def begin(work: Coroutine[Any, Any, T], at_once: bool) -> T | Coroutine[Any, Any, T]:
    """Carry work out until it has to wait for something; its result, or the rest of it.

    The first part is then the caller's own, not that of a task of its own: it must have no time limit and not ask for its
    task. Without ``at_once`` nothing is done, and all is left.

    Raises:
        Exception: what the work raises before it waits.
    """
    if not at_once:
        return work
    try:
        awaited = work.send(None)
    except StopIteration as result:
        value: T = result.value
        return value
    return _finish(work, awaited)


async def _finish(work: Coroutine[Any, Any, T], awaited: Any) -> T:
    return await _rest(work, awaited)


@types.coroutine
def _rest(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """``yield from`` work that has begun and waits."""
    try:
        while True:
            try:
                answer = yield awaited
            except BaseException as error:
                awaited = work.throw(error)
            else:
                awaited = work.send(answer)
    except StopIteration as result:
        value: T = result.value
        return value


def completed(work: Awaitable[T]) -> T:
    """The result of work that has nothing to wait for.

    Raises:
        TypeError: when it waits.
    """
    try:
        next(work.__await__())
    except StopIteration as result:
        value: T = result.value
        return value
    raise TypeError("work waits for something, though it should not have to")
