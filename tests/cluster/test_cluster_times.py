"""Instants with microseconds: written as the standard library would write them."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from kubesched.base.times import micro_time, timestamp


@given(st.floats(-1e9, 4e9))
@example(1_750_000_000.9999996)
@example(0.0000005)
@example(-0.25)
def test_microseconds_are_rounded_as_datetime_does(seconds: float) -> None:
    text = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    assert micro_time(seconds) == text


@given(st.floats(-1e9, 4e9))
def test_whole_seconds_are_cut_off(seconds: float) -> None:
    text = datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert timestamp(seconds) == text
