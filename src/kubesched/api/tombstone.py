"""What a delete handler gets when the deletion itself was never seen.

Made by informers, read by the scheduler's event handlers; it lives here because both may import it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["DeletedFinalStateUnknown", "final_state"]


class DeletedFinalStateUnknown(NamedTuple):
    """An object that vanished between two lists: its key, and the last state known, which may be stale."""

    key: str
    last_known: Any


def final_state(deleted: Any) -> Any:
    """The object of a delete notification, unwrapped when it came as a tombstone."""
    return deleted.last_known if isinstance(deleted, DeletedFinalStateUnknown) else deleted
