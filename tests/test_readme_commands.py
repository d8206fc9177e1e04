"""The commands of the README, run as they stand there: each either to its end, or as far as it goes without a cluster."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kubesched.cli.main import build_parser
from kubesched.simulate.result import Result

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: Not run here: they install, run this whole suite, or talk to the cluster that a command before them has started.
ELSEWHERE = ("make", "pip", "export", "kubectl")
#: Commands that go on until they are stopped, and what they have printed by then.
LASTING = {"up": "stop with Ctrl-C"}
#: Commands that need files or a cluster of the reader's, and what they say without.
NEEDS = {"run": "scheduler.yaml"}
#: Commands that take minutes; the tests that run the same work are named.
LONG = {"conformance": "tests/test_conformance.py"}


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line for block in _BLOCK.findall(text) for line in block.splitlines() if line.startswith("$ ")]
    return [line.removeprefix("$ ").split("  #")[0].split(" # ")[0].strip() for line in lines]


KUBESCHED = [line for line in commands() if line.startswith("kubesched ")]


def test_every_command_is_run_or_known_to_be_run_elsewhere() -> None:
    others = [line for line in commands() if line not in KUBESCHED]
    assert len(KUBESCHED) >= 6
    assert [line for line in others if not line.startswith(ELSEWHERE)] == []


@pytest.mark.parametrize("line", KUBESCHED)
def test_a_command_of_the_readme_works(line: str, tmp_path: Path) -> None:
    for folder in ("examples", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shutil.copy(ROOT / "examples/plugins/zone_maintenance.py", tmp_path / "my_plugin.py")
    argv = [sys.executable, "-m", "kubesched.cli", *shlex.split(line)[1:]]
    command = shlex.split(line)[1]
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    if command in LONG:
        build_parser().parse_args(shlex.split(line)[1:])
        assert all((tmp_path / name).exists() for name in shlex.split(line)[2:])
        assert (ROOT / LONG[command]).exists()
        return
    if command in LASTING:
        with subprocess.Popen(argv, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert any(LASTING[command] in text for text in process.stdout)
            process.terminate()
            process.stdout.read()
        assert process.returncode == 0
        return
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    if command in NEEDS:
        assert done.returncode == 1
        assert NEEDS[command] in done.stderr
        assert "Traceback" not in done.stderr
        return
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert done.stdout
    if "-o json" in line:
        assert msgspec.json.decode(done.stdout, type=Result).totals.pending == 0
