"""``kubesched bench --run`` and ``--kubeconfig``: a scheduler in a process of its own, measured from outside."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from cli_kit import run

from kubesched.api.kinds import PODS
from kubesched.cli.bench_processes import child, cluster, cpu_seconds, memory_mib
from kubesched.client.http import HttpTransport


def test_a_started_scheduler_binds_what_was_pending(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "bench", "--run", "--nodes", 3, "--pods", 20, "--runs", 1, "--json", "--quiet")
    assert (ran.code, ran.err) == (0, "")
    data = json.loads(ran.out)
    assert (data["kind"], data["mode"], data["nodes"]) == ("LiveBenchmarkResult", "run", 3)
    (figures,) = data["runs"]
    assert (figures["pods"], figures["events"]) == (20, 20)
    assert figures["firstBindingSeconds"] > 0
    assert figures["startupCpuSeconds"] > 0
    assert figures["peakMemoryMib"] >= figures["memoryMib"] > 0
    assert data["summary"]["boundPerSecond"]["best"] > 0


def test_a_scheduler_that_runs_is_measured_and_its_pods_are_deleted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with cluster(kubeconfig, 3, 0) as (url, process):
        argv = ["--kubeconfig", kubeconfig, "--pid", process, "--pods", 20, "--runs", 2]
        ran = run(capsys, "bench", *argv, "--json", "--quiet")
        assert (ran.code, ran.err) == (0, "")
        data = json.loads(ran.out)
        assert (data["mode"], data["nodes"]) == ("kubeconfig", None)
        for figures in data["runs"]:
            assert figures["events"] == 20
            assert figures["firstBindingSeconds"] is None
            assert figures["cpuUsPerPod"] >= 0

        async def left() -> list[str]:
            async with HttpTransport(url) as transport:
                return [item.name for item in (await transport.list(PODS)).items]

        assert asyncio.run(left()) == []


def test_a_cluster_that_does_not_answer_is_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ran = run(capsys, "bench", "--kubeconfig", tmp_path / "none", "--pods", 1, "--runs", 1)
    assert (ran.code, ran.out) == (1, "")
    assert str(tmp_path / "none") in ran.err


def test_pods_created_at_a_rate_over_tls_have_a_latency(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--run", "--tls", "--rate", 100, "--nodes", 3, "--pods", 20, "--runs", 1]
    ran = run(capsys, "bench", *argv, "--json", "--quiet")
    assert (ran.code, ran.err) == (0, "")
    (figures,) = json.loads(ran.out)["runs"]
    assert (figures["pods"], figures["events"]) == (20, 20)
    assert 0 < figures["latencyP50Ms"] <= figures["latencyP99Ms"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--run", "--shape", "mixed"], "--shape does not go with --run"),
        (["--run", "--kubeconfig", "f"], "it does not go with --kubeconfig"),
        (["--run", "--pid", "1"], "it does not go with --pid"),
        (["--kubeconfig", "f", "--nodes", "1"], "--nodes does not go with --kubeconfig"),
        (["--pid", "1"], "--pid needs --kubeconfig"),
        (["--kubeconfig", "f", "--tls"], "--tls goes with --run only"),
        (["--rate", "5"], "--rate needs --run or --kubeconfig"),
        (["--tls"], "--tls needs --run"),
        (["--scheduler-name", "mine"], "--scheduler-name needs --kubeconfig"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    ran = run(capsys, "bench", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_the_system_is_read_where_it_tells() -> None:
    used, memory = cpu_seconds(os.getpid()), memory_mib(os.getpid())
    assert used is not None
    assert memory is not None
    assert used > 0
    assert 0 < memory[0] <= memory[1]
    with child(["sleep", "60"], "sleep") as (_, process):
        assert cpu_seconds(process) is not None
    assert cpu_seconds(process) is None
    assert memory_mib(process) is None
