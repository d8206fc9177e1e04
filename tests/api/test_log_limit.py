"""Lines that are alike: a burst passes, then one every ten seconds, and it says how many were left out."""

from __future__ import annotations

import io
import logging
import re

import pytest

from kubesched.base import log_limit
from kubesched.base.log_limit import LogLimit
from kubesched.cli.run import logs


def _record(text: str, at: float, *, line: int = 1, level: int = logging.WARNING) -> logging.LogRecord:
    record = logging.LogRecord("kubesched.x", level, "module.py", line, "%s is bad", (text,), None)
    record.created = at
    return record


def _passing(limit: LogLimit, records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if limit.filter(record)]


def test_a_burst_passes_and_then_a_line_every_ten_seconds_with_the_number_left_out() -> None:
    limit = LogLimit()
    flood = [_record(f"pod {number}", number / 100) for number in range(5_000)]  # fifty seconds
    passed = _passing(limit, flood)
    assert passed[:20] == [f"pod {number} is bad" for number in range(20)]
    assert len(passed) == 24
    passed += _passing(limit, [_record("one", 500.0), _record("two", 500.0)])
    assert passed[-1] == "two is bad"
    left_out = [
        int(number) for number in re.findall(r"is bad \((\d+) more lines like this were left out\)", "\n".join(passed))
    ]
    assert len(left_out) == 5
    assert len(passed) + sum(left_out) == 5_002


def test_other_statements_and_lower_levels_are_not_limited_by_a_flood() -> None:
    limit = LogLimit()
    _passing(limit, [_record("x", 1.0) for _ in range(100)])
    assert _passing(limit, [_record("y", 1.0, line=2)]) == ["y is bad"]
    assert len(_passing(limit, [_record("z", 1.0, line=3, level=logging.INFO) for _ in range(100)])) == 100


def test_a_clock_that_goes_back_leaves_nothing_out_for_longer() -> None:
    limit = LogLimit()
    assert len(_passing(limit, [_record("x", 1e9) for _ in range(100)])) == 20
    assert len(_passing(limit, [_record("x", second) for second in (0.0, 10.0, 20.0)])) == 2


def test_the_number_of_known_kinds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_limit, "_MOST_KINDS", 2)
    limit = LogLimit()
    for line in (1, 2, 3):
        _passing(limit, [_record("x", 1.0, line=line) for _ in range(100)])
    assert len(_passing(limit, [_record("x", 1.0, line=3) for _ in range(30)])) == 0
    assert len(_passing(limit, [_record("x", 1.0, line=1) for _ in range(30)])) == 20  # forgotten


@pytest.mark.parametrize(("verbosity", "lines"), [(0, 20), (3, 20), (4, 100)])
def test_the_scheduler_leaves_nothing_out_from_verbosity_4_on(verbosity: int, lines: int) -> None:
    before, stream = list(logging.getLogger().handlers), io.StringIO()
    logs.configure(verbosity=verbosity, stream=stream)
    try:
        for number in range(100):
            logging.getLogger("kubesched.test").warning("bad object %d", number)
    finally:
        logging.getLogger().handlers[:] = before
    assert len(stream.getvalue().splitlines()) == lines
