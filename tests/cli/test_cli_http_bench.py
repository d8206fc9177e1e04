"""``kubesched bench --http``: a real cluster in a process of its own, and a client that creates pods."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from cli_kit import run

from kubesched.api.kinds import Kind
from kubesched.cli.console import ProgressBar
from kubesched.cli.http_bench import PLAIN_POD, create_pods


def test_pods_are_created_over_http_bound_and_run(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bench", "--http", "--nodes", "3", "--pods", "20", "--connections", "4", "--runs", "2", "--json", "--quiet"]
    ran = run(capsys, *argv)
    assert (ran.code, ran.err) == (0, "")
    data = json.loads(ran.out)
    assert (data["kind"], data["nodes"], data["connections"]) == ("HttpBenchmarkResult", 3, 4)
    assert data["machine"]["cores"] > 0
    for figures in data["runs"]:
        assert figures["created"] == 20
        assert 0 <= figures["boundByThen"] <= 20
        assert 0 <= figures["boundAfterSeconds"] <= figures["runningAfterSeconds"]
        assert figures["latencyMs"]["p99"] >= figures["latencyMs"]["p50"] > 0
    rate = data["summary"]["creationsPerSecond"]
    assert rate["best"] >= rate["median"] >= rate["worst"] > 0
    share = data["summary"]["boundByThenPercent"]
    assert 100 >= share["best"] >= share["worst"] >= 0


def test_the_table_names_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "bench", "--http", "--nodes", 1, "--pods", 2, "--connections", 2, "--runs", 1)
    assert ran.code == 0
    assert ran.out.startswith("pods over HTTP: 1 nodes, 2 pods, 1 run\n")
    for text in ("pods created", "bound by the last creation", "all running after it", "one creation, p99", "start-up"):
        assert text in ran.out


@pytest.mark.parametrize(
    ("option", "argv"),
    [
        ("FILE", ["some.yaml"]),
        ("--shape", ["--shape", "mixed"]),
        ("--case", ["--case", "Basic"]),
        ("--set", ["--set", "initPods=1"]),
        ("--decisions", ["--decisions"]),
    ],
)
def test_options_of_other_workloads_are_refused(
    capsys: pytest.CaptureFixture[str], option: str, argv: list[str]
) -> None:
    ran = run(capsys, "bench", "--http", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert f"{option} does not go with --http" in ran.err


def test_a_cluster_that_cannot_start_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "false")
    ran = run(capsys, "bench", "--http", "--nodes", 1, "--pods", 1, "--runs", 1)
    assert ran.code == 1
    assert "kubesched up did not start" in ran.err


def test_names_of_pods_do_not_rest_on_five_random_letters() -> None:
    prefixes: list[str] = []

    class Writes:
        async def create(self, kind: Kind, namespace: str, obj: Any) -> None:
            prefixes.append(obj["metadata"]["generateName"])

    transport: Any = Writes()
    asyncio.run(create_pods(transport, PLAIN_POD, 30, 4, ProgressBar()))
    assert len(set(prefixes)) == 30
