"""The command that computes the table of the FGD study, on a small trace made up here."""

import random
from pathlib import Path

import pytest
from policy_kit import POLICIES, load

from kubesched.cli.main import main
from kubesched.lab.sweeps.sweep_file import read_sweep

openb_table = load("openb_table")
gpu_sharing = load("gpu_sharing")


def small_trace(folder: Path) -> Path:
    rng = random.Random(3)
    nodes = [
        f"n{index},{cpu}000,262144,{gpus},{'T4' if gpus else ''}"
        for index, (cpu, gpus) in enumerate([(96, 8), (64, 2), (16, 2), (32, 4), (32, 0)])
    ]
    shapes = rng.choices([(8, 1, 1000), (4, 1, 810), (6, 1, 320), (8, 0, 0), (16, 2, 1000)], (5, 2, 3, 1, 1), k=16)
    pods = [
        f"p{index},{cpu}000,4096,{gpus},{milli},,LS,Running,0,1,0" for index, (cpu, gpus, milli) in enumerate(shapes)
    ]
    (folder / "openb_node_list_all_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\n" + "\n".join(nodes) + "\n"
    )
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    (folder / "openb_pod_list_default.csv").write_text(f"{header}\n" + "\n".join(pods) + "\n")
    return folder


def test_a_run_is_reproducible_and_a_plausible_figure(tmp_path: Path) -> None:
    trace = small_trace(tmp_path)
    for name in gpu_sharing.__all__:
        found = openb_table.run(trace, name, 42)
        assert 50 < found["allocation"] <= 100
        assert openb_table.run(trace, name, 42) == found
    assert set(openb_table.PUBLISHED) == set(gpu_sharing.__all__)


def test_the_sweep_makes_all_runs_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = small_trace(tmp_path)
    file = str(POLICIES / "config/openb.yaml")
    assert main(["sweep", file, "--set", f"trace={trace}", "--grid", "seed=42-44", "--processes", "2"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["policy", "figure", "runs", "mean"]
    rows = {(words[0], words[1]): words[2:] for words in map(str.split, lines)}
    assert {policy for policy, figure in rows if figure == "allocation"} == set(gpu_sharing.__all__)
    assert rows["GpuBestFit", "published"][:2] == ["3", "93.11"]
    figures = sorted(openb_table.run(trace, "GpuBestFit", seed)["allocation"] for seed in (42, 43, 44))
    assert rows["GpuBestFit", "allocation"][-3:] == [f"{figures[place]:.2f}" for place in (1, 0, 2)]


def test_the_study_has_ten_seeds_of_six_policies() -> None:
    runs = read_sweep(POLICIES / "config/openb.yaml").runs
    assert len(runs) == 60
    assert {run.arguments["seed"] for run in runs} == set(range(42, 52))
    assert {run.arguments["policy"] for run in runs} == set(gpu_sharing.__all__)


def test_a_trace_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", f"trace={tmp_path}", "--grid", "seed=1", "--processes", "1"]
    assert main(["sweep", str(POLICIES / "config/openb.yaml"), *options]) == 1
    captured = capsys.readouterr()
    reason = f"TraceError: {tmp_path}/openb_node_list_all_node.csv: cannot be read: No such file or directory"
    assert reason in captured.err
    assert "6 of 6 runs failed" in captured.err
    assert not captured.out
