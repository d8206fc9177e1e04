"""Schedules of CronJobs, compared with a plain minute-by-minute search and with what the parser of Kubernetes refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from kubesched.api.cron import CronError, parse_cron, time_zone

BERLIN, LORD_HOWE = time_zone("Europe/Berlin"), time_zone("Australia/Lord_Howe")


def at(*parts: int, zone: tzinfo = UTC, fold: int = 0) -> float:
    return datetime(*parts, tzinfo=zone, fold=fold).timestamp()  # type: ignore[arg-type,misc]


def times(schedule: str, begin: float, count: int, zone: tzinfo = UTC) -> list[float]:
    cron, found = parse_cron(schedule), [begin]
    for _ in range(count):
        following = cron.after(found[-1], zone)
        assert following is not None
        found.append(following)
    return found[1:]


def plainly(schedule: str, begin: float, end: float, zone: tzinfo = UTC) -> list[float]:
    """Every minute in between whose clock on the wall matches."""
    minutes, hours, days, months, weekdays = schedule.split()

    def matches(field: str, value: int) -> bool:
        for part in field.split(","):
            span, _, step = part.partition("/")
            low, _, high = span.partition("-")
            first = 0 if low == "*" else int(low)
            last = int(high) if high else (999 if low == "*" or step else first)
            if first <= value <= last and (value - first) % int(step or 1) == 0:
                return True
        return False

    found = []
    moment = (begin // 60 + 1) * 60
    while moment <= end:
        local = datetime.fromtimestamp(moment, zone)
        month_day, week_day = matches(days, local.day), matches(weekdays, local.isoweekday() % 7)
        both = "*" in (days, weekdays)
        by_day = (month_day and week_day) if both else (month_day or week_day)
        if matches(minutes, local.minute) and matches(hours, local.hour) and matches(months, local.month) and by_day:
            found.append(moment)
        moment += 60
    return found


@pytest.mark.parametrize(
    "schedule",
    ["*/7 * * * *", "0 3 * * *", "5,50 1-3 * * *", "30 2 * * 0", "15 */6 29 10 3", "10/20 2 * * *", "0 0 30,31 * 1-5"],
)
@pytest.mark.parametrize("zone", [UTC, BERLIN, LORD_HOWE], ids=["utc", "berlin", "lord howe"])
@pytest.mark.parametrize("day", [datetime(2025, 3, 28, 22, 7, tzinfo=UTC), datetime(2025, 10, 24, 21, 59, tzinfo=UTC)])
def test_times_are_those_of_a_search_minute_by_minute_also_when_clocks_change(
    schedule: str, zone: tzinfo, day: datetime
) -> None:
    begin, end = day.timestamp(), (day + timedelta(days=3)).timestamp()
    expected = plainly(schedule, begin, end, zone)
    found: list[float] = []
    following = parse_cron(schedule).after(begin, zone)
    while following is not None and following <= end:
        found.append(following)
        following = parse_cron(schedule).after(following, zone)
    assert found == expected


def test_rare_days_shorthands_names_and_periods() -> None:
    begin = at(2025, 1, 1)
    assert times("0 0 29 2 *", begin, 2) == [at(2028, 2, 29), at(2032, 2, 29)]
    assert parse_cron("0 0 31 2 *").after(begin) is None
    assert times("@weekly", begin, 1) == [at(2025, 1, 5)]
    assert times("@hourly", begin, 2) == [begin + 3600, begin + 7200]
    assert times("0 9 * JAN,jul MON-Fri", at(2025, 1, 31, 10), 1) == [at(2025, 7, 1, 9)]
    assert times("@every 1h30m", begin + 0.5, 2) == [begin + 5400, begin + 10800]
    assert times("0 12 1 * ?", begin, 1) == [at(2025, 1, 1, 12)]


def test_a_step_counts_as_a_restriction_of_days() -> None:
    # The 1st or a Monday; upstream's parser treats */2 of days as restricted, plain * as not.
    assert times("0 0 */10 * 1", at(2025, 1, 1), 4) == [at(2025, 1, day) for day in (6, 11, 13, 20)]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("", "expected exactly 5 fields, found 0"),
        ("* * * *", "expected exactly 5 fields, found 4"),
        ("60 * * * *", "minute: end of range (60) above maximum (59)"),
        ("* * 0 * *", "day of month: beginning of range (0) below minimum (1)"),
        ("* * * * 7", "day of week: end of range (7) above maximum (6)"),
        ("5-1 * * * *", "minute: beginning of range (5) beyond end of range (1)"),
        ("*/0 * * * *", "minute: step of range should be a positive number"),
        ("a * * * *", "minute: 'a' is not a number, range or step"),
        ("* * * foo *", "month: 'foo' is not a number, range or step or one of jan"),
        ("1-2-3 * * * *", "minute: '1-2-3'"),
        ("* - * * *", "hour: '-'"),
        ("1,,2 * * * *", "minute: ''"),
        ("\u0661 * * * *", "minute: "),
        ("99999999999999999999 * * * *", "minute: "),
        ("@sometimes", "unrecognized descriptor: @sometimes"),
        ("@every soon", "'soon' is not a duration"),
        ("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in schedule"),
    ],
)
def test_a_schedule_that_cannot_be_read_says_why(schedule: str, message: str) -> None:
    with pytest.raises(CronError) as raised:
        parse_cron(schedule)
    assert message in str(raised.value)


def test_unknown_time_zones_are_refused() -> None:
    for name in ("Mars/Olympus", "../etc/passwd", "Europe", "/etc/localtime"):
        with pytest.raises(CronError, match="unknown time zone"):
            time_zone(name)
    assert time_zone("") is UTC
