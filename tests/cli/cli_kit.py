"""Running commands in tests: in this process with captured output, or as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubesched.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
BENCH = Path(__file__).parents[2] / "bench"
GOLDEN = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class Ran:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> Ran:
    """A command in this process; usage errors give their exit code too."""
    try:
        code = main([str(item) for item in argv])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    captured = capsys.readouterr()
    return Ran(code, captured.out, captured.err)


def spawn(*argv: object, **environment: str) -> Ran:
    """A command as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "kubesched.cli", *(str(item) for item in argv)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    return Ran(done.returncode, done.stdout, done.stderr)
