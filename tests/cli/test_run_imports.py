"""Modules that ``kubesched run`` loads: its memory and its start are paid by every replica."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_cluster import POD, cluster

#: Runs the command until it would bind its first pod, and prints what has been loaded. Then others import the library.
_PROGRAM = """
import gc, json, os, sys
from kubesched.cli import first
from kubesched.client.port import ApiPort

def passes():
    return sum(each["collections"] for each in gc.get_stats())

def bind(port, pod, node):
    loaded, passed = sorted(sys.modules), passes() - before
    import kubernetes_asyncio
    print(json.dumps([loaded, passed, kubernetes_asyncio.client.CoreV1Api.__name__]), flush=True)
    os._exit(0)

ApiPort.bind = bind
before = passes()
first.main()
"""


@dataclass(frozen=True)
class Loaded:
    """Modules that a scheduler has loaded when it binds its first pod, and passes of the collector by then."""

    modules: list[str]
    passes: int


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder: Path = tmp_path_factory.mktemp("run")
    with cluster(folder, "--no-scheduler", "--nodes", "1") as running:
        running.request("/api/v1/namespaces/default/pods", POD)
        flags = ["--kubeconfig", str(folder / "kubeconfig"), "--secure-port", "0", "--leader-elect=false"]
        command = [sys.executable, "-c", _PROGRAM, "run", *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    modules, passes, client = json.loads(done.stdout.splitlines()[-1])
    assert client == "CoreV1Api", "an import elsewhere finds the whole library"
    return Loaded(modules, passes)


def test_it_is_the_whole_scheduler(loaded: Loaded) -> None:
    assert {"kubesched.scheduler.scheduler", "kubesched.client.access", "aiohttp"} <= set(loaded.modules)


@pytest.mark.parametrize(
    "package",
    [
        "kubesched.cluster",
        "kubesched.lab",
        "kubesched.dashboard",
        "kubesched.retired.config",
        "kubesched.api.cel.environment",
        "cel_expr_python",
        "kubernetes_asyncio",
        "prometheus_client",
        "rich",
        "pygments",
    ],
)
def test_a_package_is_not_loaded(loaded: Loaded, package: str) -> None:
    assert [name for name in loaded.modules if name == package or name.startswith(f"{package}.")] == []


def test_explanations_are_loaded_when_they_are_asked_for(loaded: Loaded) -> None:
    modules = [name for name in loaded.modules if name.startswith("kubesched.explain.")]
    parts = {name.split(".")[2] for name in modules}
    assert parts == {"watchers", "preemptions", "records", "report"}


def test_the_collector_does_not_pass_over_modules_while_they_are_imported(loaded: Loaded) -> None:
    assert loaded.passes < 20  # 130 with the interpreter's own threshold
