"""Idle virtual time costs nothing: what has nothing to do sets no timers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubesched.lab.simulate import Result, run_simulation
from kubesched.lab.simulate.run.virtual_time import VirtualTimeLoop
from kubesched.scheduler.plugins import in_tree_registry

DAY = 86_400.0


def pod(name: str, duration: str, cpu: str = "1") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"kubesched.io/duration": duration}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
    }


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of all timers set on virtual loops."""
    found: list[float] = []
    call_at: Callable[..., Any] = VirtualTimeLoop.call_at

    def counted(self: VirtualTimeLoop, when: float, *rest: Any, **options: Any) -> Any:
        found.append(when)
        return call_at(self, when, *rest, **options)

    monkeypatch.setattr(VirtualTimeLoop, "call_at", counted)
    return found


def simulate(*pods: dict[str, Any], until: float) -> Result:
    return run_simulation(pods, registry=in_tree_registry(), nodes=2, until=until)


def test_a_pod_that_runs_for_a_month_sets_a_handful_of_timers(timers: list[float]) -> None:
    result = simulate(pod("long", "720h"), until=40 * DAY)
    assert (result.stopped, result.totals.succeeded, result.virtual_seconds) == ("settled", 1, 30 * DAY + 1)
    assert len(timers) < 20


def test_waiting_pods_are_flushed_after_a_long_rest(timers: list[float]) -> None:
    """The first week is idle; then a pod has to wait for another one, in backoff and for events."""
    week = "168h"
    result = simulate(pod("a", week, "8"), pod("b", week, "8"), pod("late", "1h", "8"), until=40 * DAY)
    assert (result.stopped, result.totals.succeeded) == ("settled", 3)
    (late,) = [item for item in result.placements if item.name == "late"]
    assert late.bound_at is not None
    assert 7 * DAY < late.bound_at < 7 * DAY + 3
    # It was tried again every five minutes or so, found by a check every 30 seconds; nothing ticks each second.
    assert result.totals.attempts > 7 * DAY / 331
    assert len(timers) < 3 * 7 * DAY / 30
