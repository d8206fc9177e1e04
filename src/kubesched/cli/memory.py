"""Memory of a long-running cluster: its bounds, and the release of unused memory. Caller: ``kubesched up``."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

from kubesched.base.kept import forget
from kubesched.cluster.store import Store

__all__ = ["EVENT_CACHE", "FORGET_SECONDS", "MOST_EVENTS", "TIMED_SECONDS", "give_back"]

#: Most events that are kept, for an hour at most; two for each pod if that is more. An event takes about 1 kB.
MOST_EVENTS: Final = 2_500
#: Most events that the scheduler recognises when they are repeated: as many as upstream's recorders.
EVENT_CACHE: Final = 4_096
#: Seconds after which texts are forgotten. Most of them have names or times of pods that are gone; the others are read again.
FORGET_SECONDS: Final = 3_600.0
#: Seconds after which texts with times are forgotten.
TIMED_SECONDS: Final = 600.0


def give_back(store: Store, *, seconds: float | None = None) -> None:
    """Release memory that old versions took, and free memory that this process still holds. Call it now and then.

    ``seconds`` are those since the start. At multiples of :data:`TIMED_SECONDS` and of :data:`FORGET_SECONDS` texts are forgotten, too.

    A pod is written four times until it runs, each time as new bytes, and a list of 50,000 pods takes 90 MB of bytes
    for a moment. That leaves holes of about 100 MB, which glibc keeps until it is trimmed.
    """
    for table in store.tables.values():
        table.slim()
    if seconds is not None and seconds % TIMED_SECONDS == 0.0:
        forget(timed_only=seconds % FORGET_SECONDS != 0.0)
    if sys.platform == "linux":
        # musl and others lack this function: they return free memory by themselves, or not at all.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
