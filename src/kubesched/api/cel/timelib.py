"""Timestamps and durations."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .functions import function
from .values import INT_MAX, INT_MIN, Duration, EvaluationError, Timestamp

_T: Final = "google.protobuf.Timestamp"
_D: Final = "google.protobuf.Duration"
_SECOND: Final = 10**9
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Nanoseconds since 1970 of the first and the last moment of the years 1 to 9999.
_FIRST: Final = -62135596800 * _SECOND
_LAST: Final = 253402300800 * _SECOND - 1
_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d):(\d\d))\Z", re.ASCII
)
_UNITS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": _SECOND, "m": 60 * _SECOND, "h": 3600 * _SECOND}
#: Digits of a number that are read. Further digits are beyond any duration, or less than a nanosecond.
_MANY_DIGITS: Final = 20
_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|ms|s|m|h)", re.ASCII)


def _timestamp(nanos: int) -> Timestamp:
    if not _FIRST <= nanos <= _LAST:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanos)


def _duration(nanos: int) -> Duration:
    if not INT_MIN <= nanos <= INT_MAX:
        raise EvaluationError("duration overflow")
    return Duration(nanos)


@function("timestamp", "string")
def _parse_timestamp(text: str) -> Timestamp:
    match = _RFC3339.match(text)
    try:
        if match is None:
            raise ValueError
        moment = datetime(*(int(match[part]) for part in range(1, 7)), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError:
        raise EvaluationError(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse') from None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if match[9]:
        offset = int(match[10]) * 3600 + int(match[11]) * 60
        seconds -= offset if match[9] == "+" else -offset
    return _timestamp(seconds * _SECOND + int((match[7] or "0")[:9].ljust(9, "0")))


@function("timestamp", _T)
def _same_timestamp(value: Timestamp) -> Timestamp:
    return value


@function("timestamp", "int")
def _timestamp_of_seconds(seconds: int) -> Timestamp:
    return _timestamp(seconds * _SECOND)


@function("int", _T)
def _seconds_of(value: Timestamp) -> int:
    return value.nanos // _SECOND


@function("string", _T)
def _show_timestamp(value: Timestamp) -> str:
    text = f"{_EPOCH + timedelta(seconds=value.nanos // _SECOND):%Y-%m-%dT%H:%M:%S}".rjust(19, "0")
    fraction = f"{value.nanos % _SECOND:09}".rstrip("0")
    return f"{text}.{fraction}Z" if fraction else f"{text}Z"


@function("duration", "string")
def _parse_duration(text: str) -> Duration:
    body = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    nanos, at = 0, 0
    while at < len(body):
        match = _PART.match(body, at)
        if match is None or not (match[1] or match[2]):
            break
        unit, whole, fraction = _UNITS[match[3]], match[1].lstrip("0"), (match[2] or "")[:_MANY_DIGITS]
        nanos += int(whole[: _MANY_DIGITS + 1] or "0") * unit + int(int(fraction or "0") * unit / 10 ** len(fraction))
        if nanos > INT_MAX + 1:
            raise EvaluationError(f'time: invalid duration "{text}"')
        at = match.end()
    if body != "0" and (not body or at < len(body)):
        raise EvaluationError(f'time: invalid duration "{text}"')
    return _duration(-nanos if text.startswith("-") else nanos)


@function("duration", _D)
def _same_duration(value: Duration) -> Duration:
    return value


@function("duration", "int")
def _duration_of_seconds(seconds: int) -> Duration:
    return _duration(seconds * _SECOND)


@function("int", _D)
def _nanos_of(value: Duration) -> int:
    return value.nanos


@function("string", _D)
def _show_duration(value: Duration) -> str:
    seconds = f"{abs(value.nanos) // _SECOND}.{abs(value.nanos) % _SECOND:09}".rstrip("0").rstrip(".")
    return f"{'-' if value.nanos < 0 else ''}{seconds}s"


function("_+_", _T, _D)(lambda a, b: _timestamp(a.nanos + b.nanos))
function("_+_", _D, _T)(lambda a, b: _timestamp(a.nanos + b.nanos))
function("_+_", _D, _D)(lambda a, b: _duration(a.nanos + b.nanos))
function("_-_", _T, _D)(lambda a, b: _timestamp(a.nanos - b.nanos))
function("_-_", _T, _T)(lambda a, b: _duration(a.nanos - b.nanos))
function("_-_", _D, _D)(lambda a, b: _duration(a.nanos - b.nanos))


def _zone(text: str) -> tzinfo:
    match = re.match(r"([+-]?)(\d\d):(\d\d)\Z", text, re.ASCII)
    if match:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvaluationError(f"unknown time zone {text}") from None


_GETTERS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDate": lambda at: at.day,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
    "getMilliseconds": lambda at: at.microsecond // 1000,
}


def _moment(value: Timestamp, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(microseconds=value.nanos // 1000)).astimezone(zone)


def _register(name: str, getter: Callable[[datetime], int]) -> None:
    function(name, _T)(lambda value: getter(_moment(value, UTC)))
    function(name, _T, "string")(lambda value, zone: getter(_moment(value, _zone(zone))))


for _name, _getter in _GETTERS.items():
    _register(_name, _getter)


def _truncated(value: Duration, unit: int) -> int:
    return value.nanos // unit if value.nanos >= 0 else -(-value.nanos // unit)


function("getHours", _D)(lambda value: _truncated(value, 3600 * _SECOND))
function("getMinutes", _D)(lambda value: _truncated(value, 60 * _SECOND))
function("getSeconds", _D)(lambda value: _truncated(value, _SECOND))
function("getMilliseconds", _D)(lambda value: _truncated(value, 10**6) % 1000)
