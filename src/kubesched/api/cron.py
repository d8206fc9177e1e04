"""Schedules of CronJobs: five fields, shorthands such as ``@hourly``, and ``@every`` with a duration.

The rules are those of the parser that Kubernetes uses (robfig/cron, standard parser). Days of month and of week are
alternatives if both are restricted. Sunday is 0. Names of months and days work. ``5/15`` begins at 5. A time that a
daylight-saving change leaves out does not happen; a time that it repeats happens twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kubesched.base.kept import remembered
from kubesched.base.times import parse_duration

__all__ = ["Cron", "CronError", "parse_cron", "time_zone"]

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: Name, least and greatest value, and names of values of each field.
_FIELDS: Final[tuple[tuple[str, int, int, Mapping[str, int]], ...]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of week", 0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_SHORTHANDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NUMBER: Final = re.compile(r"[0-9]{1,6}")
#: Years to search for a matching day; a schedule without one never matches (29 February needs up to eight years).
_YEARS: Final = 9


class CronError(ValueError):
    """The schedule or time zone cannot be used. The message says what would be right."""


def time_zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name; UTC if the name is empty.

    Raises:
        CronError: if there is no such zone.
    """
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CronError(f"unknown time zone {name}") from None


@dataclass(frozen=True, slots=True)
class Cron:
    """Schedule. The fields hold the values that match. ``every`` is a period in seconds that replaces the fields; 0 if
    the fields count.
    """

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    #: True if a day must match by month and by week, because one of the two is ``*``.
    both: bool = True
    every: float = 0.0

    def after(self, moment: float, zone: tzinfo = UTC) -> float | None:
        """Return the first time after ``moment``, in epoch seconds; None if there is none within some years."""
        if self.every:
            return math.floor(moment) + self.every
        now = datetime.fromtimestamp(moment, zone)
        for offset in range(366 * _YEARS):
            day = now.date() + timedelta(days=offset)
            if day.month in self.months and self._matches(day):
                # The search begins an hour earlier, because that hour comes again if clocks are set back.
                found = self._on_day(day, moment, zone, 0 if offset else now.hour - 1)
                if found is not None:
                    return found
        return None

    def _matches(self, day: date) -> bool:
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_month and by_week) if self.both else (by_month or by_week)

    def _on_day(self, day: date, moment: float, zone: tzinfo, first_hour: int) -> float | None:
        """Return the first matching time after ``moment`` on a local day, from ``first_hour`` on."""
        for hour in sorted(self.hours):
            if hour >= first_hour:
                found = [at for at in self._in_hour(day, hour, zone) if at > moment]
                if found:
                    return min(found)
        return None

    def _in_hour(self, day: date, hour: int, zone: tzinfo) -> list[float]:
        """Return the matching times in one hour of local time."""

        def at(minute: int, fold: int) -> float:
            return datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone, fold=fold).timestamp()

        begin, end = at(0, 0), at(59, 0)
        if end - begin == 59 * 60 and (begin, end) == (at(0, 1), at(59, 1)):
            return [begin + 60 * minute for minute in self.minutes]
        times = {at(minute, fold): minute for minute in self.minutes for fold in (0, 1)}
        # A time that was left out converts back to another time.
        real = {moment: datetime.fromtimestamp(moment, zone) for moment in times}
        return [
            moment for moment, minute in times.items() if (real[moment].hour, real[moment].minute) == (hour, minute)
        ]


@remembered(1 << 18)
def parse_cron(text: str) -> Cron:
    """Read a schedule.

    Raises:
        CronError: if it cannot be read; the message names the field.
    """
    schedule = text.strip()
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        raise CronError("cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    if schedule.startswith("@every "):
        try:
            seconds = parse_duration(schedule.removeprefix("@every "))
        except ValueError as error:
            raise CronError(str(error)) from None
        return Cron(every=float(max(1, math.floor(seconds))))
    if schedule.startswith("@"):
        if schedule not in _SHORTHANDS:
            raise CronError(f"unrecognized descriptor: {schedule}; there are {', '.join(_SHORTHANDS)} and @every 1h30m")
        schedule = _SHORTHANDS[schedule]
    parts = schedule.split()
    if len(parts) != len(_FIELDS):
        raise CronError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
    values, stars = [], []
    for part, (name, least, most, names) in zip(parts, _FIELDS, strict=True):
        found: set[int] = set()
        star = False
        for one in part.split(","):
            numbers, is_star = _range(one, name, least, most, names)
            found |= numbers
            star |= is_star
        values.append(frozenset(found))
        stars.append(star)
    minutes, hours, days, months, weekdays = values
    return Cron(minutes, hours, days, months, weekdays, both=stars[2] or stars[4])


def _range(text: str, name: str, least: int, most: int, names: Mapping[str, int]) -> tuple[set[int], bool]:
    """Return the values of ``5``, ``1-5``, ``*/15`` or ``mon-fri``, and True for an unrestricted ``*``."""
    span, slash, step_text = text.partition("/")
    low, dash, high = span.partition("-")
    if low in ("*", "?") and not dash:
        first, last = least, most
    else:
        first = _value(low, name, names, text)
        last = _value(high, name, names, text) if dash else (most if slash else first)
    step = _value(step_text, name, {}, text) if slash else 1
    if first < least:
        raise CronError(f"{name}: beginning of range ({first}) below minimum ({least}): {text}")
    if last > most:
        raise CronError(f"{name}: end of range ({last}) above maximum ({most}): {text}")
    if first > last:
        raise CronError(f"{name}: beginning of range ({first}) beyond end of range ({last}): {text}")
    if step == 0:
        raise CronError(f"{name}: step of range should be a positive number: {text}")
    return set(range(first, last + 1, step)), low in ("*", "?") and step == 1


def _value(text: str, name: str, names: Mapping[str, int], whole: str) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not _NUMBER.fullmatch(text):
        allowed = f" or one of {', '.join(names)}" if names else ""
        raise CronError(f"{name}: {whole!r} is not a number, range or step{allowed}")
    return int(text)
