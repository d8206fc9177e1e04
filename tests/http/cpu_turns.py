"""The longest turn of the event loop, by the time of the CPU: others may be using the machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    def __init__(self) -> None:
        #: Seconds.
        self.longest = 0.0


@contextmanager
def timed_turns() -> Iterator[Turns]:
    """Time every callback of the loop until the block ends."""
    turns, run = Turns(), asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begun = time.thread_time()
        try:
            run(handle)
        finally:
            turns.longest = max(turns.longest, time.thread_time() - begun)

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]
    try:
        yield turns
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
