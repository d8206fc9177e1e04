"""Garbage collection of a process that runs a cluster or a scheduler.

Nearly all that is allocated is either gone at once or kept (a pod's versions, its event), and next to nothing of it is in
cycles: at Python's own thresholds the collector takes a seventh of the time and finds nothing.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["collector_off", "collector_paused", "settle_collector"]

_THRESHOLDS: Final = (50_000, 20, 20)


def settle_collector() -> Callable[[], None]:
    """Leave what is there now out of later collections, and make those rarer; the result undoes both.

    The interpreter does not look for cycles either when the process ends.
    """
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)

    def undo() -> None:
        gc.unfreeze()
        gc.set_threshold(*before)

    return undo


@contextmanager
def collector_off() -> Iterator[None]:
    """No collection while something is read, nearly all of which stays."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collection while something is set up, nearly all of which stays; then the collector is settled."""
    with collector_off():
        yield
        settle_collector()
