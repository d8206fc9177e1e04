"""Long work as steps, so that one event loop can serve others in between.

Work is a generator that yields after each batch and returns its result. A caller without an event loop to share finishes it
at once; a coroutine does it in turns. Between two steps anything may change: work on many objects takes a list of
immutable ones first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable
from itertools import islice
from typing import TypeAlias, TypeVar

__all__ = ["Steps", "finish", "in_batches", "in_turns"]

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """The result, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


async def in_turns(steps: Steps[T]) -> T:
    """The result; other tasks get a turn after every step. When cancelled, the work is closed."""
    try:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: T = done.value
                return result
            await asyncio.sleep(0)
    finally:
        steps.close()


async def in_batches(items: Iterable[T], size: int) -> AsyncIterator[list[T]]:
    """The items in lists of that size at most; other tasks get a turn between two lists.

    What is iterated must not change meanwhile.
    """
    rest = iter(items)
    batch = list(islice(rest, size))
    while batch:
        yield batch
        if len(batch) < size:
            return
        await asyncio.sleep(0)
        batch = list(islice(rest, size))
