"""Sweeps described in a file or on the command line, and the command's output."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubesched.cli.main import main
from kubesched.lab.sweeps import SweepError
from kubesched.lab.sweeps.sweep_file import read_sweep

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
HEAD = "apiVersion: kubesched.io/v1alpha1\nkind: Sweep\n"
SQUARE = f"{HERE / 'sweep_functions.py'}:square"


def written(folder: Path, text: str) -> Path:
    file = folder / "sweep.yaml"
    file.write_text(HEAD + text)
    return file


def test_a_file_with_overrides(tmp_path: Path) -> None:
    file = written(tmp_path, "arguments: {offset: 1}\ngrid: {x: [1, 2], seed: 0-9}\nfigures: [value]\nby: [x]\n"
                             f"function: {SQUARE}\n")  # fmt: skip
    plain = read_sweep(file)
    assert len(plain.runs) == 20
    assert (plain.figures, plain.by, plain.function) == (["value"], ["x"], SQUARE)
    other = read_sweep(file, grid={"seed": 3}, arguments={"x": 5, "offset": 2})
    assert [run.arguments for run in other.runs] == [{"offset": 2, "x": 5, "seed": 3}]
    assert [run.names for run in other.runs] == [{"seed": 3}]


def test_paths_of_a_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text("def f(x):\n    return {'y': x}\n")
    file = written(tmp_path, "function: functions.py:f\ngrid: {x: [functions.py]}\n")
    found = read_sweep(file)
    assert found.function == f"{tmp_path / 'functions.py'}:f"
    # Arguments of other functions are theirs.
    assert found.runs[0].arguments == {"x": "functions.py"}
    (tmp_path / "a.yaml").touch()
    file = written(
        tmp_path,
        "arguments: {manifests: [a.yaml, missing.yaml]}\n"
        "grid: {config: {default: null, own: a.yaml}, workload: [{stages: a.yaml}]}\n",
    )
    run = read_sweep(file).runs[1]
    own = str(tmp_path / "a.yaml")
    assert run.arguments == {"manifests": [own, "missing.yaml"], "config": own, "workload": {"stages": own}}
    assert run.names == {"config": "own", "workload": '{"stages":"a.yaml"}'}
    assert read_sweep(file, arguments={"config": "a.yaml"}).runs[0].arguments["config"] == "a.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "apiVersion: v1\nkind: Pod\n",
            "apiVersion and kind are 'v1' and 'Pod'; expected kubesched.io/v1alpha1 and Sweep",
        ),
        ("- 1\n", "expected a mapping with apiVersion"),
        (HEAD + "grids: {}\n", "unknown field `grids`"),
        (HEAD + "grid: [1]\n", r"Expected `object`, got `array` - at `\$.grid`"),
        (HEAD + "grid: {x: [}\n", "sweep.yaml: document 1, line 3: not valid YAML"),
        (HEAD + "grid: {}\n", "sweep.yaml: the sweep has no runs"),
        (HEAD + "grid: {seed: 9-1}\n", "sweep.yaml: seeds '9-1'"),
        (HEAD + "function: f\ngrid: {seed: 1}\n", "function 'f'; expected package.module:name"),
    ],
)
def test_a_file_that_cannot_be_used_names_the_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(SweepError, match=message):
        read_sweep(file)


def swept(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    code = main(["sweep", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_summarises_or_lists(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--function", SQUARE, "--grid", "x=1,2", "--grid", "seed=0-3", "--results", tmp_path / "r.jsonl"]
    code, out, err = swept(capsys, *options, "--processes", 0, "--figure", "half")
    assert (code, err) == (0, "")
    assert [line.split()[:4] for line in out.splitlines()[1:]] == [["1", "half", "4", "0.5"], ["2", "half", "4", "1"]]
    code, out, _ = swept(capsys, *options, "-o", "json")
    assert (code, len(json.loads(out))) == (0, 8)
    code, out, _ = swept(capsys, *options, "-o", "csv", "--processes", 1)
    assert out.splitlines()[0] == "x,seed,value,half,error"


def test_the_command_draws_a_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options = ["--function", SQUARE, "--grid", "x=1,2", "--grid", "seed=0-3", "--processes", 0]
    file = tmp_path / "plot.svg"
    code, _, err = swept(capsys, *options, "--plot", file, "--figure", "value", "--x", "x")
    assert (code, err) == (0, "")
    assert "<svg" in file.read_text()
    for name, message in (("plot.odd", "files are named by their format: "), ("no/plot.svg", "there is no directory")):
        code, out, err = swept(capsys, *options, "--plot", tmp_path / name)
        assert (code, out) == (1, "")
        assert message in err
    code, _, err = swept(capsys, *options, "--plot", file, "--x", "size")
    assert (code, err) == (1, "kubesched: --x size: no run has such a parameter\n")


def test_failed_runs_are_shown_once_for_each_error(capsys: pytest.CaptureFixture[str]) -> None:
    function = f"{HERE / 'sweep_functions.py'}:fragile"
    code, out, err = swept(capsys, "--function", function, "--grid", "x=[0, 1, 4, 7]", "--processes", 0)
    assert code == 1
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [["0", "value", "1"], ["7", "value", "1"]]
    assert "run x=1: ValueError: one is not accepted" in err
    assert "run x=4: SweepError: figure value is a list" in err
    assert err.endswith("2 of 4 runs failed\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the sweep has no runs"),
        (["nowhere.yaml"], "nowhere.yaml: No such file or directory"),
        (["--grid", "seed=a"], "seeds 'a'; expected numbers and ranges"),
        (["--grid", "x=[1"], "--grid x: document 1, line"),
        (["--grid", "x=1", "--function", "kubesched.lab.sweeps:nothing"], "has no function nothing"),
        (
            ["--grid", "y=1", "--function", SQUARE],
            "cannot be called for run {\"y\":1}: missing a required argument: 'x'",
        ),
        (
            ["--set", "maniests=x", "--grid", "seed=1"],
            "kubesched.simulate has no argument maniests; did you mean manifests?",
        ),
        (["--grid", "seed=1"], "a simulation needs manifests"),
        (["--grid", "workload=x", "--set", "manifests=y"], "argument manifests is given by itself and by the workload"),
        (["--grid", "x=1", "--function", SQUARE, "--ray", "127.0.0.1:1"], "there is no Ray cluster at 127.0.0.1:1: "),
        (["--grid", "x=1", "--function", SQUARE, "--ray", "local", "--timeout", "3"], "a timeout needs processes"),
        (
            ["--grid", "x=1", "--function", SQUARE, "--processes", "1", "--by", "z"],
            "--by z: no run has such a parameter",
        ),
    ],
)
def test_mistakes_are_one_message(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    code, out, err = swept(capsys, *argv)
    assert (code, out) == (1, "")
    assert message in err
    assert "Traceback" not in err


def test_a_parameter_given_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = swept(capsys, "--grid", "x=1", "--set", "x=2", "--function", SQUARE)
    assert (code, out) == (2, "")
    assert err == "kubesched: x is given twice by --grid or --set; give all its values at once: --grid x=a,b\n"


def test_simulations_are_swept(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--set", f"manifests={EXAMPLES / 'web-shop'}", "--grid", "nodes=1,6", "--grid", "seed=0-1", "-o", "json"]
    code, out, err = swept(capsys, *argv, "--processes", 0)
    assert (code, err) == (0, "")
    rows: list[dict[str, Any]] = json.loads(out)
    assert [row["nodes"] for row in rows] == [1, 1, 6, 6]
    assert all(row["placed"] + row["pending"] == row["pods"] for row in rows)
    assert rows[0]["pending"] > rows[2]["pending"]
    assert rows[0]["error"] is None
    assert 0 < rows[0]["requested cpu"] <= 1


def test_a_simulation_with_errors_is_a_failed_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plugin = tmp_path / "raising.py"
    plugin.write_text(
        "from kubesched.scheduler.framework import Plugin\n"
        "class Raising(Plugin):\n"
        "    name = 'Raising'\n"
        "    def filter(self, state, pod, node):\n"
        "        raise LookupError('no such table')\n"
    )
    shop = EXAMPLES / "web-shop"
    argv = ["--set", f"manifests={shop}", "--set", f"plugins=[{plugin}]", "--grid", "seed=1", "--set", "nodes=3"]
    code, _, err = swept(capsys, *argv, "--processes", 0)
    assert code == 1
    assert "no such table" in err
    code, _, err = swept(capsys, "--set", "manifests=nowhere", "--grid", "seed=1,2", "--processes", 0)
    assert code == 1
    assert "run seed=1 and 1 more: ManifestError: " in err


def test_the_example_is_a_sweep_of_simulations(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(read_sweep(EXAMPLES / "config/sweep.yaml").runs) == 40
    code, out, err = swept(capsys, EXAMPLES / "config/sweep.yaml", "--grid", "seed=0", "--processes", 0)
    assert (code, err) == (0, "")
    rows = {tuple(line.split()[:3]): line.split()[3:5] for line in out.splitlines()[1:]}
    assert rows["packing", "shop", "placed"] == ["1", "25"]
    assert rows["default", "batch", "pending"] == ["1", "0"]
