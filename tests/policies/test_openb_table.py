"""The command that computes the table of the FGD study, on a small trace made up here."""

import random
from pathlib import Path

import pytest
from policy_kit import load

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
        figure = openb_table.run(trace, name, 42)
        assert 50 < figure <= 100
        assert openb_table.run(trace, name, 42) == figure
    assert set(openb_table.PUBLISHED) == set(gpu_sharing.__all__)


def test_the_command_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = small_trace(tmp_path)
    policies = ["GpuBestFit", "BalancedFragmentation"]
    options = [word for name in policies for word in ("--policy", name)]
    assert openb_table.main(["--trace", str(trace), "--seeds", "3", "--processes", "1", *options]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["policy", "published", "median", "least", "most", "runs"]
    assert [line.split()[:2] for line in lines] == [["GpuBestFit", "93.11"], ["BalancedFragmentation", "-"]]
    figures = sorted(openb_table.run(trace, "GpuBestFit", seed) for seed in (42, 43, 44))
    assert lines[0].split()[2:] == [*(f"{figures[place]:.2f}" for place in (1, 0, 2)), "3"]


def test_a_trace_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert openb_table.main(["--trace", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"{tmp_path}/openb_node_list_all_node.csv: cannot be read: No such file or directory\n"
    assert not captured.out
