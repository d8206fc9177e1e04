"""Ages as kubectl shows them.

Caller: :mod:`.columns`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...api.times import parse_time

__all__ = ["age", "human_duration"]


def human_duration(seconds: float) -> str:
    """A duration in one or two units, coarser the longer it is."""
    total = int(seconds)
    if total < 0:
        return "<invalid>" if total < -1 else "0s"
    if total < 120:
        return f"{total}s"
    minutes = total // 60
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(first: int, first_unit: str, second: int, second_unit: str) -> str:
    return f"{first}{first_unit}{second}{second_unit}" if second else f"{first}{first_unit}"


@lru_cache(maxsize=4096)
def _moment(text: str) -> float | None:
    try:
        return parse_time(text)
    except ValueError:
        return None


def moment(text: Any) -> float | None:
    """Seconds since the epoch of a timestamp; None for anything else."""
    return _moment(text) if isinstance(text, str) and text else None


def age(text: Any, now: float) -> str:
    """How long ago a timestamp was."""
    then = moment(text)
    return "<unknown>" if then is None else human_duration(now - then)
