"""The notebooks in the examples run from top to bottom, and their plots are shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))


#: Notebooks whose cells are run in this process, without a kernel, which would take several seconds.
LIGHT = ("how_many_more", "what_if", "which_nodes")


def test_all_notebooks_are_known() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["batch_queue", "capacity", *LIGHT]


# The client's own event loop and sockets are left to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem not in LIGHT], ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_results(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # the library has types for some
    assert all(not cell.get("outputs") for cell in notebook.cells), "a notebook is kept without its outputs"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    data = [output.data for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    assert any("text/html" in one for one in data) or path.stem == "batch_queue"
    assert any("image/png" in one for one in data)


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem in LIGHT], ids=lambda path: path.stem)
def test_the_cells_of_a_light_notebook_run_one_after_the_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # the library has types for some
    assert all(not cell.get("outputs") for cell in notebook.cells), "a notebook is kept without its outputs"
    names: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, str(path), "exec"), names)
    if path.stem == "how_many_more":
        assert names["found"].copies == 24
        assert names["axes"].patches
    elif path.stem == "which_nodes":
        assert (names["plan"].counts, names["plan"].exact) == ({"general": 3}, True)
        assert len(names["removal"].drains) == 3
    else:
        assert names["after"].events[0].targets == ["hollow-00001", "hollow-00004"]
        assert names["comparison"].differs
        assert "needs 4 healthy pods" in names["drain"].blocked[0].why
