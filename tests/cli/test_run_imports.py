"""Modules that ``kubesched run`` loads: its memory and its start are paid by every replica."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

#: Runs the command up to the assembled scheduler, and prints what has been loaded. Then others import the library.
_PROGRAM = """
import json, sys
from kubesched.cli.run.command import main
assert main([*sys.argv[1:], "--secure-port", "0", "--leader-elect=false"]) == 0
loaded = sorted(sys.modules)
import kubernetes_asyncio
print(json.dumps([loaded, kubernetes_asyncio.client.CoreV1Api.__name__]))
"""

_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder: Path = tmp_path_factory.mktemp("run")
    (folder / "kubeconfig").write_text(_KUBECONFIG)
    flags = ["--kubeconfig", str(folder / "kubeconfig"), "--write-config-to", str(folder / "written")]
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modules, client = json.loads(done.stdout.splitlines()[-1])
    assert client == "CoreV1Api", "an import elsewhere finds the whole library"
    return list(modules)


def test_it_is_the_whole_scheduler(loaded: list[str]) -> None:
    assert {"kubesched.scheduler.scheduler", "kubesched.client.access", "aiohttp"} <= set(loaded)


@pytest.mark.parametrize(
    "package",
    ["kubesched.cluster", "kubesched.lab", "kubesched.retired.config", "kubernetes_asyncio", "rich", "pygments"],
)
def test_a_package_is_not_loaded(loaded: list[str], package: str) -> None:
    assert [name for name in loaded if name == package or name.startswith(f"{package}.")] == []


def test_explanations_are_loaded_when_they_are_asked_for(loaded: list[str]) -> None:
    modules = [name for name in loaded if name.startswith("kubesched.explain.")]
    parts = {name.split(".")[2] for name in modules}
    assert parts == {"watchers", "preemptions", "records", "report"}
