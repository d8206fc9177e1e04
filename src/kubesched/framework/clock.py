"""Time and chance are passed in, never taken from a module: that is what makes a simulation repeatable."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "RealClock", "rfc3339"]


class Clock(Protocol):
    """Where the scheduler gets the time from."""

    def now(self) -> float:
        """Seconds since the epoch. Used for timestamps, backoff and durations alike."""
        ...


class RealClock:
    """The wall clock."""

    def now(self) -> float:
        return time.time()


def rfc3339(seconds: float) -> str:
    """A timestamp as Kubernetes writes it: UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
