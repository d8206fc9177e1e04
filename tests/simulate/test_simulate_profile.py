"""Time by plugin in a simulation, with a timer that counts its readings."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kubesched.lab.simulate.results.report import render_json, render_table
from kubesched.lab.simulate.run.simulation import run_simulation
from kubesched.scheduler.plugins import in_tree_registry


def _pods() -> list[dict[str, Any]]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "spec": {"containers": [container]}}
        for number in range(3)
    ]


def test_each_call_is_measured_and_shares_add_up() -> None:
    ticks = itertools.count()
    result = run_simulation(_pods(), registry=in_tree_registry(), nodes=2, timer=lambda: float(next(ticks)))
    rows = {(row.plugin, row.point): row for row in result.plugin_times}
    assert sum(row.share for row in rows.values()) == pytest.approx(1)
    bind = rows["DefaultBinder", "Bind"]
    assert (bind.calls, bind.mean) == (3, bind.total / 3)
    assert rows["NodeResourcesFit", "Filter"].calls >= 3
    assert rows["NodeResourcesFit", "Filter"].pod.startswith("default/p")
    lines = [line.text for line in render_table(result)]
    assert "Time by plugin" in lines
    [row] = [line.split() for line in lines if line.startswith("DefaultBinder")]
    assert row[1:3] == ["Bind", "3"]
    assert '"pluginTimes"' in render_json(result)


def test_nothing_is_measured_unless_asked_for() -> None:
    result = run_simulation(_pods(), registry=in_tree_registry(), nodes=2)
    assert result.plugin_times == []
    assert "Time by plugin" not in [line.text for line in render_table(result)]
