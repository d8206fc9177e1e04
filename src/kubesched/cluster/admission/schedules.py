"""Cron schedules, as CronJobs have them. Parsing and calendar are those of the library ``cronsim``.

Callers: the check of a CronJob, and the controller that starts its Jobs.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from .validation import Causes

__all__ = ["check_schedule", "last_due", "next_due"]

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    """A time zone of this machine's database or of the package ``tzdata``.

    Raises:
        ValueError: when there is none of that name.
    """
    try:
        return ZoneInfo(name or "UTC")
    except (OSError, KeyError, ValueError):
        raise ValueError(f"unknown time zone {name}") from None


def _moments(text: str, begin: datetime, *, back: bool = False) -> CronSim:
    """The moments of a schedule after one, or before it.

    Raises:
        ValueError: for a schedule that cannot be read.
    """
    fields = _MACROS.get(text.strip(), text).replace("?", "*").split()
    if len(fields) != 5:
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}")
    try:
        return CronSim(" ".join(fields), begin, reverse=back)
    except CronSimError as error:
        raise ValueError(str(error).lower()) from None


def _due(text: str, zone: str, time: float, *, back: bool) -> float | None:
    try:
        return next(_moments(text, datetime.fromtimestamp(time, _zone(zone)), back=back)).timestamp()
    except (StopIteration, OverflowError):
        return None


def next_due(text: str, zone: str, time: float) -> float | None:
    """The first moment of a schedule after ``time``, in seconds since the epoch; None when there is none.

    Raises:
        ValueError: for a schedule or a time zone that cannot be read.
    """
    return _due(text, zone, time, back=False)


def last_due(text: str, zone: str, time: float) -> float | None:
    """The last moment of a schedule not after ``time``; see :func:`next_due`."""
    return _due(text, zone, int(time) + 1, back=True)


def check_schedule(spec: dict[str, Any], causes: Causes) -> None:
    """Whether the schedule and the time zone of a CronJob can be read."""
    text, zone = spec.get("schedule") or "", spec.get("timeZone")
    if not text:
        causes.required("spec.schedule")
    elif text.startswith(("TZ=", "CRON_TZ=")):
        causes.invalid("spec.schedule", text, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    else:
        try:
            _moments(text, datetime.fromtimestamp(0, _zone("UTC")))
        except ValueError as error:
            causes.invalid("spec.schedule", text, str(error))
    if zone is not None:
        try:
            _zone(zone)
        except ValueError as error:
            causes.invalid("spec.timeZone", zone, str(error))
