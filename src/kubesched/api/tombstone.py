"""Tombstone: a delete handler receives it if the deletion itself was never seen.

Made by informers, read by the scheduler's event handlers. It is in this package because both may import it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["DeletedFinalStateUnknown", "final_state"]


class DeletedFinalStateUnknown(NamedTuple):
    """Object that vanished between two lists: its key, and its last known state, which may be stale."""

    key: str
    last_known: Any


def final_state(deleted: Any) -> Any:
    """Return the object of a delete notification, unwrapped if it came as a tombstone."""
    return deleted.last_known if isinstance(deleted, DeletedFinalStateUnknown) else deleted
