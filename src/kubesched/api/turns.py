"""Long work as steps, so that one event loop can serve others in between.

Work is a generator that yields after each batch and returns its result. A caller without an event loop to share finishes it
at once; a coroutine does it in turns. Between two steps anything may change: work on many objects takes a list of
immutable ones first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

__all__ = ["Steps", "finish", "in_turns"]

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
