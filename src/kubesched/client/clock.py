"""Time as this room needs it: a clock to be handed in, and the two ways Kubernetes writes an instant.

Timers (sleeping, backoff, rate limits) come from the running event loop instead, so that everything here
works in virtual time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "rfc3339", "rfc3339_micro"]


class Clock(Protocol):
    """Where timestamps come from."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...


def rfc3339(seconds: float) -> str:
    """An instant as ``metav1.Time`` writes it: UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """An instant as ``metav1.MicroTime`` writes it: UTC, always six decimals."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
