"""Time as this room needs it: a clock to be handed in, and the two ways Kubernetes writes an instant.

Timers (sleeping, backoff, rate limits) come from the running event loop instead, so that everything here
works in virtual time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from math import modf
from typing import Protocol

__all__ = ["Clock", "rfc3339", "rfc3339_micro"]


class Clock(Protocol):
    """Where timestamps come from."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def rfc3339(seconds: float) -> str:
    """An instant as ``metav1.Time`` writes it: UTC, whole seconds."""
    return f"{_second(int(seconds))}Z"


def rfc3339_micro(seconds: float) -> str:
    """An instant as ``metav1.MicroTime`` writes it: UTC, always six decimals."""
    part, whole = modf(seconds)
    carry, micros = divmod(round(part * 1e6), 1_000_000)
    return f"{_second(int(whole) + carry)}.{micros:06d}Z"
