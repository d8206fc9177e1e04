"""``docs/where.md``: each place that it names exists, and its examples work in a copy of the package."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kubesched"
PAGE = (ROOT / "docs" / "where.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE[PAGE.index("## The places") : PAGE.index("## An in-tree plugin")].splitlines()
    if line.startswith("| ") and not line.startswith(("| to add", "|--"))
]

#: Runs in the copy: the life of everything that the examples add, as JSON.
LIFE = """
import json
import kubesched
from kubesched.scheduler.config.features import FEATURES
from kubesched.scheduler.framework.metrics import SchedulerMetrics

def node(name):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}

pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
result = kubesched.simulate(pod, nodes=[node("day-1"), node("night-1"), node("day-2")])
metrics = SchedulerMetrics()
metrics.naps_total.inc()
print(json.dumps({
    "node": [each.node for each in result.placements],
    "metric": any(family.name.endswith("naps_total") for family in metrics.collect()),
    "gate": FEATURES["Napping"].since,
}))
"""


def names_of(path: Path) -> set[str]:
    """Names that a module defines at its top level."""
    found: set[str] = set()
    for statement in ast.parse(path.read_text()).body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_place_exists(row: list[str]) -> None:
    _, place, noticed = row
    for path in re.findall(r"`([a-z_./]*/[a-z_./]*)`", place):
        assert (PACKAGE / path).exists(), path
    for name, path in re.findall(r"`(\w+)` of `([\w/.]+)`", place) + re.findall(r"`(Contract)` in `([\w/.]+)`", place):
        assert name in names_of(PACKAGE / path), f"{path} has no {name}"
    for path in re.findall(r"`(tests/[\w/.]+)`", noticed):
        assert (ROOT / path).exists(), path


def test_every_area_has_its_line() -> None:
    lines = PAGE[PAGE.index("## The areas") : PAGE.index("## The places")]
    # A folder without modules is what an older checkout left behind.
    folders = {f"{init.parent.name}/" for init in PACKAGE.glob("*/__init__.py")}
    areas = folders | {path.name for path in PACKAGE.iterdir() if path.is_file() and path.name[0] not in "_."}
    assert set(re.findall(r"^\| `([\w/.]+)`", lines, re.MULTILINE)) == areas - {"py.typed"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder for PYTHONPATH with a copy of the package to which the examples of the page were added."""
    folder = tmp_path_factory.mktemp("where")
    package = folder / "kubesched"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    modules = re.findall(r"```text\n# ([\w/]+\.py)\n(.*?)```", PAGE, re.DOTALL)
    rows = re.findall(
        r"(?:row|word) in\s`([\w/.]+)`, after `([^`]+)`:\n\n```text\n(.*?)```", PAGE, re.DOTALL | re.IGNORECASE
    )
    assert (len(modules), len(rows)) == (2, 5)
    for path, text in modules:
        (package / path).write_text(text)
    for path, marker, text in rows:
        lines = (package / path).read_text().splitlines(keepends=True)
        at = [number for number, line in enumerate(lines) if marker in line]
        assert len(at) == 1, f"{path}: {marker} is in {len(at)} lines"
        lines.insert(at[0] + 1, text)
        (package / path).write_text("".join(lines))
    return folder


def run(copy: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_of_plugin_metric_and_gate_work(copy: Path) -> None:
    assert json.loads(run(copy, "-c", LIFE)) == {"node": ["night-1"], "metric": True, "gate": "1.36"}
    listed = {row["name"]: row for row in json.loads(run(copy, "-m", "kubesched", "plugins", "-o", "json"))}
    assert listed["NightShift"] == {"name": "NightShift", "source": "in-tree", "default": True, "points": ["filter"]}


def test_the_example_of_a_flag_works(copy: Path) -> None:
    assert "--nap" in run(copy, "-m", "kubesched", "run", "--help")


def test_the_example_of_a_command_works(copy: Path) -> None:
    assert run(copy, "-m", "kubesched", "nap") == "zzz\n"
    assert "sleep a little" in run(copy, "-m", "kubesched", "--help")
