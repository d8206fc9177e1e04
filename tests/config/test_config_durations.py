"""Durations in Go's notation, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.scheduler.config import Duration, DurationError


@pytest.mark.parametrize(
    ("text", "nanoseconds", "written"),
    [
        ("0", 0, "0s"),
        ("-0", 0, "0s"),
        ("0s", 0, "0s"),
        ("15s", 15_000_000_000, "15s"),
        ("1m30s", 90_000_000_000, "1m30s"),
        ("600s", 600_000_000_000, "10m0s"),
        ("1h", 3_600_000_000_000, "1h0m0s"),
        ("500ms", 500_000_000, "500ms"),
        ("1.5s", 1_500_000_000, "1.5s"),
        (".5s", 500_000_000, "500ms"),
        ("1.s", 1_000_000_000, "1s"),
        ("2us", 2_000, "2µs"),
        ("2\u00b5s", 2_000, "2µs"),
        ("2\u03bcs", 2_000, "2µs"),
        ("1ns", 1, "1ns"),
        ("1.0000000019s", 1_000_000_001, "1.000000001s"),
        ("-1.5h", -5_400_000_000_000, "-1h30m0s"),
        ("+3s", 3_000_000_000, "3s"),
        ("9223372036854775807ns", 2**63 - 1, "2562047h47m16.854775807s"),
        ("-9223372036854775808ns", -(2**63), "-2562047h47m16.854775808s"),
    ],
)
def test_a_duration_is_read_and_written(text: str, nanoseconds: int, written: str) -> None:
    assert Duration.parse(text) == Duration(nanoseconds)
    assert str(Duration(nanoseconds)) == written


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("soon", 'time: invalid duration "soon"'),
        (".s", 'time: invalid duration ".s"'),
        ("15", 'time: missing unit in duration "15"'),
        ("1s5", 'time: missing unit in duration "1s5"'),
        ("1x", 'time: unknown unit "x" in duration "1x"'),
        ("1 s", 'time: unknown unit " s" in duration "1 s"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("3000000h", 'time: invalid duration "3000000h"'),
        ("1s\n", 'time: unknown unit "s\n" in duration "1s\n"'),
    ],
)
def test_what_is_no_duration_is_refused(text: str, error: str) -> None:
    with pytest.raises(DurationError) as caught:
        Duration.parse(text)
    assert str(caught.value) == error


def test_endless_digits_are_refused_at_once() -> None:
    with pytest.raises(DurationError, match="invalid duration"):
        Duration.parse("1" * 100_000 + "s")


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_duration_survives_writing_and_reading(nanoseconds: int) -> None:
    assert Duration.parse(str(Duration(nanoseconds))).nanoseconds == nanoseconds


def test_durations_have_an_order_a_truth_and_seconds() -> None:
    assert Duration.of_seconds(1) < Duration.of_seconds(2)
    assert not Duration()
    assert Duration.of_seconds(0.25).seconds == 0.25
