"""An installation without the folder ``retired``: it runs, reads v1 and refuses older versions by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kubesched

EXAMPLES = Path(__file__).parents[2] / "examples"
OLD = "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n"


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder for PYTHONPATH that holds the package without ``retired``."""
    folder = tmp_path_factory.mktemp("without")
    package = Path(kubesched.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__", "retired")
    shutil.copytree(package, folder / "kubesched", ignore=ignored)
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kubesched", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_it_reads_v1_and_schedules(without: Path) -> None:
    done = run(without, "config", "check", str(EXAMPLES / "config/packing.yaml"))
    assert (done.returncode, done.stderr) == (0, "")
    done = run(without, "simulate", "-f", str(EXAMPLES / "web-shop"), "--nodes", "20")
    assert done.returncode == 0, done.stderr


def test_it_refuses_an_older_version_by_name(without: Path, tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(OLD)
    done = run(without, "config", "check", str(tmp_path / "old.yaml"))
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "kubescheduler.config.k8s.io/v1beta3" in done.stderr


def test_it_has_no_retired_flags(without: Path) -> None:
    assert "--policy-config-file" not in run(without, "run", "--help").stdout
    done = run(without, "run", "--policy-config-file=x.json")
    assert done.returncode != 0
    assert "unknown flag: --policy-config-file" in done.stderr
