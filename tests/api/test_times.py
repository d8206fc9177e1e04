"""Clocks."""

from __future__ import annotations

import pytest

from kubesched.base import times
from kubesched.base.times import RealClock, SteadyClock


class FakeTime:
    """The time module's two clocks; the wall clock can be set."""

    def __init__(self) -> None:
        self.wall, self.passed = 1_700_000_000.0, 50.0

    def time(self) -> float:
        return self.wall + self.passed

    def monotonic(self) -> float:
        return self.passed


def test_a_steady_clock_does_not_follow_when_the_wall_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTime()
    monkeypatch.setattr(times, "time", fake)
    steady, real = SteadyClock(), RealClock()
    began = real.now()
    assert steady.now() == began
    fake.wall -= 7200.0
    fake.passed += 10.0
    assert real.now() == began - 7190.0
    assert steady.now() == began + 10.0
