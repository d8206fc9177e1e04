"""``kubesched bench DIR --labels``: which workloads run, one table, thresholds, and upstream's result files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_kit import run


def folder(tmp_path: Path) -> Path:
    def case(name: str, *workloads: dict[str, Any], count: int = 3) -> dict[str, Any]:
        operations = [
            {"opcode": "createNodes", "count": 2},
            {"opcode": "createPods", "count": count, "collectMetrics": True},
        ]
        return {"name": name, "workloadTemplate": operations, "workloads": list(workloads)}

    topics = {
        "misc": [
            case("Quick", {"name": "w", "labels": ["performance"], "threshold": 0.5}),
            case("Other", {"name": "w", "labels": ["integration-test"]}),
            case("Slow", {"name": "w", "labels": ["performance", "slow"], "threshold": 1e9}),
        ],
        "dra/sub": [case("TooMany", {"name": "w", "labels": ["performance", "broken"], "params": {"spare": 1}})],
    }
    for topic, cases in topics.items():
        path = tmp_path / topic
        path.mkdir(parents=True)
        (path / "performance-config.yaml").write_text(yaml.safe_dump(cases))
    return tmp_path


def test_one_table_of_the_chosen_workloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results"
    argv = ["bench", folder(tmp_path), "--labels", "performance,-slow", "--runs", 1, "--results", results, "--json"]
    ran = run(capsys, *argv)
    assert ran.code == 1  # one of the two is wrong
    broken, quick = json.loads(ran.out)["rows"]
    assert (broken["workload"], broken["topic"], broken["passed"]) == ("TooMany/w", "dra_sub", False)
    assert "nothing asks for the parameters spare" in broken["error"]
    assert (quick["workload"], quick["nodes"], quick["pods"], quick["bound"]) == ("Quick/w", 2, 3, 3)
    assert quick["passed"]
    assert quick["compared"] == quick["podsPerSecond"] > quick["threshold"] == 0.5
    assert quick["throughput"] is None  # over within two seconds
    assert "[2/2] Quick/w: " in ran.err
    [file] = results.iterdir()
    assert file.name.startswith("BenchmarkPerfScheduling_benchmark_misc_")
    items = json.loads(file.read_text())["dataItems"]
    names = {item["labels"]["Name"] for item in items}
    assert names == {"BenchmarkPerfScheduling/Quick/w/namespace-1"}
    assert "scheduler_scheduling_attempt_duration_seconds" in {item["labels"]["Metric"] for item in items}


def test_a_missed_threshold_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "bench", folder(tmp_path), "--labels", "performance", "--case", "Slow", "--runs", 1, "-q")
    assert (ran.code, ran.err) == (1, "")
    assert "WORKLOAD" in ran.out
    assert "1 did not pass upstream's threshold:\n  Slow/w: " in ran.out
    assert "threshold 1,000,000,000" in ran.out


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["--labels", "nope"], 1, "no workload has the labels 'nope' (labels there: broken, integration-test"),
        (["--labels", "", "--set", "a=1"], 2, "--set does not go with --labels"),
        (["--labels", "", "--http"], 2, "--http does not go with --labels"),
        (["--labels", "", "--run"], 2, "--run does not go with --labels"),
        (["--results", "x"], 2, "--results needs --labels"),
        (["--http", "--results", "x"], 2, "--results needs --labels"),
    ],
)
def test_what_cannot_be_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, text: str
) -> None:
    ran = run(capsys, "bench", folder(tmp_path), *argv)
    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err
