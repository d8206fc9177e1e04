"""The bounds of what a long-running cluster keeps, and what it gives back to the machine. Caller: ``kubesched up``."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

from kubesched.cluster.store import Store

__all__ = ["EVENT_CACHE", "MOST_EVENTS", "give_back"]

#: So many events are kept, or two for each pod if that is more, and none for more than an hour: each takes about 1 kB.
MOST_EVENTS: Final = 2_500
#: So many events the scheduler knows again when they are repeated: as many as upstream's recorders.
EVENT_CACHE: Final = 4_096


def give_back(store: Store) -> None:
    """Release what was read from old versions, and memory that is free but still this process's. For now and then.

    A pod is written four times until it runs, each time as new bytes, and a list of 50,000 pods is 90 MB of bytes for
    a moment. glibc keeps the holes that this leaves, some 100 MB of them, until it is trimmed.
    """
    for table in store.tables.values():
        table.slim()
    if sys.platform == "linux":
        # musl and others have no such function; they return free memory by themselves or not at all.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
