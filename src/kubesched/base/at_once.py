"""Coroutines that run without a task as long as they have nothing to wait for.

An embedded cluster answers a write at once, a server after a while. Both writes are the same coroutine. A caller that
must not wait calls :func:`begin`, and starts a task only for the part that still has to wait.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["begin", "completed"]

T = TypeVar("T")


def begin(work: Coroutine[Any, Any, T], at_once: bool) -> T | Coroutine[Any, Any, T]:
    """Run ``work`` until it waits for something. Return its result if it ended, otherwise the rest as a coroutine.

    The first part runs in the caller's task, not in a task of its own: it must have no time limit and must not ask for
    its task. Without ``at_once`` nothing runs and ``work`` itself is returned.

    Raises:
        Exception: any error that ``work`` raises before it waits.
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
    """Continue work that has begun and is waiting for ``awaited``, as ``yield from`` would."""
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
    """Run work that has nothing to wait for, and return its result.

    Raises:
        TypeError: if it waits after all.
    """
    try:
        next(work.__await__())
    except StopIteration as result:
        value: T = result.value
        return value
    raise TypeError("work waits, although it must have nothing to wait for")
