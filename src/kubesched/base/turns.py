"""Long work in steps, so that the event loop can serve other tasks in between.

Such work is a generator that yields after each batch and returns its result. A caller without an event loop finishes it
at once; a coroutine takes turns. Anything may change between two steps, so work on many objects first takes a list of
immutable ones.
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
    """Run all steps without a pause and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


async def in_turns(steps: Steps[T]) -> T:
    """Run all steps and return the result. Other tasks get a turn after every step. A cancellation closes the work."""
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
    """Yield the items in lists of at most ``size``. Other tasks get a turn between two lists.

    ``items`` must not change meanwhile.
    """
    rest = iter(items)
    batch = list(islice(rest, size))
    while batch:
        yield batch
        if len(batch) < size:
            return
        await asyncio.sleep(0)
        batch = list(islice(rest, size))
