"""Long work in steps, so that the event loop can serve other tasks in between.

Such work is a generator that yields after each batch and returns its result. A caller without an event loop finishes it
at once; a coroutine takes turns. Anything may change between two steps, so work on many objects first takes a list of
immutable ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from itertools import islice
from typing import TypeAlias, TypeVar

__all__ = ["Pace", "Steps", "finish", "in_batches", "in_turns"]

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


class Pace:
    """Pace of work in steps that several callers share: it takes at most a share of the event loop while the loop is busy.

    The share is counted by the clock, because other processes then slow the work and the rest of the loop down alike.
    """

    def __init__(self, share: float, is_idle: Callable[[], bool], time: Callable[[], float]) -> None:
        """``is_idle`` returns True while nothing else has to be done. ``time`` is usually the event loop's."""
        self._rest = 1 / share - 1
        self._is_idle = is_idle
        self._time = time
        #: Time before which no further step begins.
        self._free_at = 0.0

    async def run(self, steps: Steps[T]) -> T:
        """Run all steps and return the result. Rest after each so long that the steps take their share and no more."""
        time = self._time
        try:
            while True:
                if not self._is_idle() and (rest := self._free_at - time()) > 0:
                    await asyncio.sleep(rest)
                    continue  # another caller may have made a step meanwhile
                start = time()
                try:
                    next(steps)
                except StopIteration as done:
                    result: T = done.value
                    return result
                finally:
                    end = time()
                    self._free_at = end + (end - start) * self._rest
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
