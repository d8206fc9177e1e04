"""Every directory of manifests in ``examples`` is applied by one ``kubectl apply -f DIR``, as on a real cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
from http_thread import cluster

from kubesched.api.kinds import PODS
from kubesched.base.times import FixedClock
from kubesched.cluster.files import Manifest, load_manifests
from kubesched.cluster.store import Store

EXAMPLES = Path(__file__).parents[2] / "examples"
KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
#: What kubectl reads of a directory: these files, in name order, and none of the directories in it.
SUFFIXES = (".json", ".yaml", ".yml")


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.suffix in SUFFIXES)


def manifests(folder: Path) -> list[Manifest]:
    return [item for path in files(folder) for item in load_manifests([path]).objects]


#: Files of kubesched itself are in directories of this name, so that kubectl does not meet them.
OWN = "config"
FOLDERS = [path for path in sorted((EXAMPLES, *EXAMPLES.rglob("*"))) if path.is_dir() and files(path)]
#: Directories of clusters to be read, with pods that are on nodes, as in a dump.
READ = ("audit", "explain")
APPLIED = [path for path in FOLDERS if path.name not in (OWN, *READ)]


def test_manifests_and_files_of_kubesched_are_in_different_directories() -> None:
    assert {str(path.relative_to(EXAMPLES)) for path in APPLIED} >= {"web-shop", "gpu-dra", "extender", "policies"}
    for folder in FOLDERS:
        found = [load_manifests([path]) for path in files(folder)]
        if folder.name == OWN:
            assert not any(one.objects for one in found), folder
        else:
            assert all(one.objects and not one.warnings for one in found), folder


@pytest.mark.parametrize("folder", APPLIED, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_a_directory_is_accepted_in_the_order_in_which_kubectl_sends_it(folder: Path) -> None:
    store = Store(FixedClock(), random=Random(1))  # which makes no namespace by itself
    made: set[str] = set()
    for item in manifests(folder):
        store.create(item.kind, item.namespace, item.data)
        if item.kind.plural == "namespaces":
            made.add(item.name)
        # A real cluster refuses pods until the service account of a new namespace is there.
        assert item.kind != PODS or item.namespace not in made, item.source


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")
@pytest.mark.parametrize("folder", APPLIED, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_kubectl_applies_a_directory(folder: Path, tmp_path: Path) -> None:
    with cluster(0) as server:
        command = [str(KUBECTL), "--server", server.url, "--cache-dir", str(tmp_path), "apply", "-f", str(folder)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "KUBECONFIG": os.devnull}
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert [line.endswith(" created") for line in done.stdout.splitlines()] == [True] * len(manifests(folder))
