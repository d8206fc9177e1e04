"""The installation matrix covers every command and every extra, and reports what does not work."""

from __future__ import annotations

import argparse
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from matrix import (
    BASE,
    CHECKS,
    DEVELOPMENT,
    LOWEST,
    NEWEST,
    ROOT,
    TESTS,
    Check,
    Installation,
    check,
    installations,
    requirements,
)

from kubesched.cli.main import build_parser

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _all(checks: Iterable[Check]) -> Iterator[Check]:
    for each in checks:
        yield each
        yield from _all(each.during)


def test_every_command_is_in_the_matrix() -> None:
    (commands,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    assert {each.argv[1] for each in CHECKS if each.argv[0] == "kubesched"} >= set(commands.choices)


def test_every_extra_has_an_environment_and_a_command_that_needs_it(tmp_path: Path) -> None:
    extras = {name for name in _PROJECT["optional-dependencies"] if name not in DEVELOPMENT}
    cells = {(cell.extra, cell.resolution) for cell in installations(tmp_path, tmp_path, ())}
    assert cells >= {(extra, NEWEST) for extra in (BASE, *extras)}
    assert {extra for extra, resolution in cells if resolution == LOWEST} == {BASE, *extras} - {"ray"}
    assert {each.extra for each in _all(CHECKS)} == {BASE, *extras}


def test_the_tests_that_run_in_the_matrix_exist() -> None:
    assert [name for name in TESTS if not (ROOT / name).is_file()] == []


def test_an_extra_brings_what_it_includes(tmp_path: Path) -> None:
    wheel = tmp_path / "kubesched-1-py3-none-any.whl"
    lines = [
        "Name: kubesched", "Requires-Dist: numpy>=1.26", "Requires-Dist: aiohttp>=3.10; extra == 'server'",
        "Requires-Dist: kubesched[server]; extra == 'run'", "Requires-Dist: cryptography>=42; extra == 'run'",
        "Requires-Dist: pyarrow; extra == 'parquet'", "Requires-Dist: tomli; python_version < '3'",
    ]  # fmt: skip
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kubesched-1.dist-info/METADATA", "\n".join(lines))
    assert requirements(wheel) == ["numpy>=1.26"]
    assert requirements(wheel, "run") == ["aiohttp>=3.10", "cryptography>=42", "numpy>=1.26"]


_ADVICE = "needs aiohttp: pip install 'kubesched[server]' (in a checkout: pip install '.[server]')"


@pytest.mark.parametrize(
    ("script", "command", "problem"),
    [
        ("echo done", check("kubesched x", "done"), ""),
        ("echo done", check("kubesched x", "other"), "expected 0 and the text 'other'"),
        ("echo done; exit 70", check("kubesched x", "done"), "exit code 70"),
        (f'echo "{_ADVICE}" >&2; exit 1', check("kubesched x", "done", "server"), ""),
        (f'echo "Traceback\n{_ADVICE}" >&2; exit 1', check("kubesched x", "", "server"), "one line with pip install"),
        (f'echo "{_ADVICE}" >&2; exit 70', check("kubesched x", "", "server"), "exit code 70"),
        (f'echo "{_ADVICE}" >&2; exit 1', check("kubesched x", "", "parquet"), "pip install 'kubesched[parquet]'"),
        ("echo done", check("kubesched x", "done", "server"), "exit code 0"),
        ("echo ready; exec sleep 60", check("kubesched up", "ready", lasting=True), "exit code -15, expected 0"),
        ("echo broken; exit 70", check("kubesched up", "ready", lasting=True), "exit code 70"),
        (
            "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done",
            check("kubesched up", "ready", lasting=True),
            "",
        ),
        (
            "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done",
            check("kubesched up", "ready", lasting=True, during=[check("kubesched x", "", "parquet")]),
            "pip install 'kubesched[parquet]'",
        ),
    ],
)
def test_what_does_not_work_is_reported(script: str, command: Check, problem: str, tmp_path: Path) -> None:
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    program = tmp_path / "venv/bin/kubesched"
    program.write_text(
        f'#!/bin/sh\ncase "$1" in x) {script if command.argv[1] == "x" else "exit 9"};; esac\n{script}\n'
    )
    program.chmod(0o755)
    cell = Installation(BASE, NEWEST, tmp_path, tmp_path)
    cell.check(command)
    assert len(cell.problems) == bool(problem)
    assert problem in "".join(cell.problems)
