"""Ages as kubectl shows them.

Caller: :mod:`.cells`.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Any, Final

from ...api.times import parse_time

__all__ = ["age", "human_duration", "moment"]

_DAY: Final = 86400
#: Below so many seconds: a unit and its length, and the unit that is shown after it.
_SCALES: Final[tuple[tuple[float, str, int, str, int], ...]] = (
    (120, "s", 1, "", 0),
    (600, "m", 60, "s", 1),
    (3 * 3600, "m", 60, "", 0),
    (8 * 3600, "h", 3600, "m", 60),
    (2 * _DAY, "h", 3600, "", 0),
    (8 * _DAY, "d", _DAY, "h", 3600),
    (730 * _DAY, "d", _DAY, "", 0),
    (8 * 365 * _DAY, "y", 365 * _DAY, "d", _DAY),
    (inf, "y", 365 * _DAY, "", 0),
)


def human_duration(seconds: float) -> str:
    """A duration in one or two units, coarser the longer it is."""
    total = int(seconds)
    if total < 0:
        return "<invalid>" if total < -1 else "0s"
    _, unit, length, fine_unit, fine_length = next(scale for scale in _SCALES if total < scale[0])
    count, rest = divmod(total, length)
    fine = rest // fine_length if fine_length else 0
    return f"{count}{unit}{fine}{fine_unit}" if fine else f"{count}{unit}"


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
