"""What a long-running cluster gives back to the machine. Caller: ``kubesched up``, at its start and once a minute."""

from __future__ import annotations

import ctypes
import sys

from kubesched.cluster.store import Store

__all__ = ["give_back"]


def give_back(store: Store) -> None:
    """Release what was read from old versions, and memory that is free but still this process's.

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
