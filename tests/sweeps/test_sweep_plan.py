"""Grids, lists and seeds become runs; bad ones are refused with what would be right."""

from pathlib import Path
from typing import Any

import pytest

from kubesched.lab.sweeps import SweepError, make_runs, parse_seeds
from kubesched.lab.sweeps.inputs import Digests
from kubesched.lab.sweeps.plan import Run


def test_a_grid_is_every_combination_in_order() -> None:
    runs = make_runs({"config": {"default": None, "packing": "a.yaml"}, "nodes": [2, 3]}, arguments={"zones": 1})
    assert [run.names for run in runs] == [
        {"config": "default", "nodes": 2},
        {"config": "default", "nodes": 3},
        {"config": "packing", "nodes": 2},
        {"config": "packing", "nodes": 3},
    ]
    assert runs[2].arguments == {"zones": 1, "config": "a.yaml", "nodes": 2}


def test_single_runs_follow_the_grid_and_values_are_shown_in_short() -> None:
    runs = make_runs({"seed": "1-2"}, [{"seed": 9, "nodes": [1, {"cpu": "2"}], "path": Path("x/y")}])
    assert [run.names for run in runs] == [
        {"seed": 1},
        {"seed": 2},
        {"seed": 9, "nodes": '[1,{"cpu":"2"}]', "path": '"x/y"'},
    ]
    assert runs[2].arguments["nodes"] == [1, {"cpu": "2"}]
    assert make_runs({"seed": range(2), "nodes": 3})[1].names == {"seed": 1, "nodes": 3}


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("7", [7]), ("0-3", [0, 1, 2, 3]), ("1, 5-6,9", [1, 5, 6, 9]), ("-3", [-3]), ("-1-1", [-1, 0, 1])],
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "1-", "0-99999999999999", "1.5"])
def test_seeds_that_cannot_be_read(text: str) -> None:
    with pytest.raises(SweepError, match="expected"):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("grid", "runs", "arguments", "message"),
    [
        ({}, [], {}, "the sweep has no runs; expected a grid of parameters, or a list of runs"),
        ({"x": []}, [], {}, "grid.x: is empty; expected at least one value"),
        ({"x": [1, 1]}, [], {}, 'two runs are named {"x":1}; expected different parameters, or labels'),
        ({"x": [1]}, [{"x": 1}], {}, "two runs are named"),
        ({"x": [1]}, [], {"x": 2}, "parameter x is given for all runs and for single ones"),
        ({"x": [float("nan")]}, [], {}, r"grid.x\[0\]: nan; expected a finite number"),
        ({"x": [object()]}, [], {}, "a object is no plain data; expected plain data, or a label"),
        ({"x": ["y" * 999]}, [], {}, r"grid.x\[0\]: a value of 999 characters needs a label"),
        ({"a b": [1]}, [], {}, "grid: 'a b'; expected the name of a parameter"),
        ({}, [3], {}, r"runs\[0\]: 3; expected the parameters of one run by name"),
        ({"x": range(2000), "y": range(2000)}, [], {}, "makes 4,000,000 runs; expected at most 1,000,000"),
    ],
)
def test_what_makes_no_plan(grid: Any, runs: Any, arguments: Any, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        make_runs(grid, runs, arguments)


def test_a_label_has_any_value() -> None:
    class Plugin:
        pass

    (run,) = make_runs({"plugins": {"mine": [Plugin]}})
    assert (run.names, run.arguments) == ({"plugins": "mine"}, {"plugins": [Plugin]})


def test_the_digest_follows_arguments_and_the_files_they_name(tmp_path: Path) -> None:
    file, folder = tmp_path / "a.yaml", tmp_path / "folder"
    folder.mkdir()
    file.write_text("1")

    def digest(**arguments: Any) -> str:
        return Digests("m:f").of(Run({}, arguments))

    first = digest(workload={"manifests": [str(folder)]}, config=str(file))
    assert digest(config=file, workload={"manifests": [str(folder)]}) == first
    (folder / "new.yaml").write_text("x")
    second = digest(workload={"manifests": [str(folder)]}, config=str(file))
    assert second != first
    file.write_text("2")
    third = digest(workload={"manifests": [str(folder)]}, config=str(file))
    assert third not in (first, second)
    file.write_text(
        f"apiVersion: kubesched.io/v1alpha1\nkind: Events\nevents: [{{at: 1h, do: configure, config: {folder}/new.yaml}}]"
    )
    before = digest(events=str(file))
    (folder / "new.yaml").write_text("a file of events names it")
    assert digest(events=str(file)) != before
    assert digest(config="no\0path", text="x" * 10_000) == digest(config="no\0path", text="x" * 10_000)
    assert Digests("m:g").of(Run({}, {})) != Digests("m:f").of(Run({}, {}))
