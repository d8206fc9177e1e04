"""Clocks, and the API's timestamps and durations.

Time and randomness are passed in, never read at module level, so that a simulation is repeatable. Timers (sleeping,
backoff, rate limits) come from the running event loop, so that everything works in virtual time.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from math import modf
from typing import Final, Protocol

from .kept import remembered

__all__ = [
    "Clock",
    "FixedClock",
    "RealClock",
    "SteadyClock",
    "cached_time",
    "micro_time",
    "parse_duration",
    "parse_time",
    "timestamp",
]


class Clock(Protocol):
    """Source of time."""

    def now(self) -> float:
        """Return seconds since the epoch. Used for timestamps, backoff and durations alike."""
        ...


class FixedClock:
    """Clock that stands still, at ``seconds`` since the epoch."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return self._seconds


class RealClock:
    """The wall clock."""

    def __init__(self) -> None:
        #: The function itself, for speed: it is called about twenty times for each pod.
        self.now = time.time


class SteadyClock:
    """Clock that starts at the wall clock's time and then advances steadily.

    Used for backoff and durations, which therefore stay right when someone sets the machine's clock.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def timestamp(seconds: float) -> str:
    """Format a ``Time``: UTC, whole seconds."""
    return f"{_second(int(seconds))}Z"


def micro_time(seconds: float) -> str:
    """Format a ``MicroTime``: UTC, six decimals. Leases and events use it."""
    part, whole = modf(seconds)
    carry, micros = divmod(round(part * 1e6), 1_000_000)
    return f"{_second(int(whole) + carry)}.{micros:06d}Z"


def parse_time(text: str) -> float:
    """Parse an RFC 3339 text to seconds since the epoch.

    Raises:
        ValueError: if the text is not a timestamp with a zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it as 2026-01-02T03:04:05Z")
    return moment.timestamp()


@remembered(8 << 20, is_timed=True)
def cached_time(text: str) -> float | None:
    """Parse a timestamp like :func:`parse_time`, for texts that recur. None if the text is not a timestamp."""
    try:
        return parse_time(text)
    except ValueError:
        return None


_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@remembered(1 << 17)
def parse_duration(text: str) -> float:
    """Parse a duration such as ``1m30s``, ``250ms``, ``-1h`` or ``0`` to seconds.

    Raises:
        ValueError: if the text is not a duration; the message shows right ones.
    """
    rest, sign = text.strip(), 1.0
    if rest[:1] in ("-", "+"):
        sign, rest = (-1.0 if rest[0] == "-" else 1.0), rest[1:]
    if rest == "0":
        return 0.0
    total, position = 0.0, 0
    for match in _DURATION.finditer(rest):
        if match.start() != position:
            break
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not rest or position != len(rest):
        raise ValueError(f"{text!r} is not a duration; write numbers with units, such as 30s, 1m30s, 250ms or 2h")
    return sign * total
