"""The walk through docs/pod-groups.md with kubectl: ``kubesched up``, ``kubesched run`` against it, and each command of the page."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
KUBESCHED = [sys.executable, "-m", "kubesched"]
#: Seconds until a command shows what the page says; it shows it at once on an idle machine.
_SECONDS = 60.0

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")


def steps() -> list[tuple[str, list[str]]]:
    """Return the commands of the block with kubectl, each with the lines below it."""
    page = (ROOT / "docs" / "pod-groups.md").read_text(encoding="utf-8")
    (block,) = [
        one for one in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "kubectl" in one
    ]
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


def plain(lines: list[str]) -> list[str]:
    """Return lines without what differs from run to run: ages, random endings of names, widths of columns."""
    text = "\n".join(line for line in lines if line.strip())
    text = re.sub(r"-[a-z0-9]{5}\b", "-RANDOM", re.sub(r"\b\d+s$", "AGE", text, flags=re.MULTILINE))
    text = re.sub(r"evicting default/\w+-\d-RANDOM", "evicting POD", text)
    return [re.sub(r" +", " ", line).replace(" from default namespace", "") for line in text.splitlines()]


@contextmanager
def running(command: list[str], folder: Path, ready: str) -> Iterator[None]:
    """Run a process of kubesched until the end of the block; enter the block when it has printed ``ready``."""
    environment = {**os.environ, "HOME": str(folder)}
    with subprocess.Popen(
        [*KUBESCHED, *command], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            assert process.stdout is not None
            assert any(ready in line for line in process.stdout)
            yield
        finally:
            process.terminate()
            process.communicate(timeout=60)


def expect(command: list[str], expected: list[str], folder: Path) -> None:
    """Run a command until it shows these lines."""
    environment = {**os.environ, "HOME": str(folder), "KUBECONFIG": str(folder / "kubesched.kubeconfig")}
    wanted = plain(expected)
    most = wanted.index("…") if "…" in wanted else None
    end = time.monotonic() + _SECONDS
    while True:
        done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)
        shown = plain(done.stdout.splitlines())
        if shown[:most] == wanted[:most]:
            return
        assert time.monotonic() < end, (command, shown, done.stderr)
        time.sleep(0.2)


def test_the_walk_of_the_page(tmp_path: Path) -> None:
    assert KUBECTL is not None
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    client = f"clientConnection: {{kubeconfig: {tmp_path / 'kubesched.kubeconfig'}}}"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (tmp_path / "scheduler.yaml").write_text(f"{head}leaderElection: {{leaderElect: false}}\n{client}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ExitStack() as stack:
        for line, expected in steps():
            words = shlex.split(line)
            if words[:2] == ["kubesched", "up"]:
                stack.enter_context(running(words[1:], tmp_path, "stop with Ctrl-C"))
            elif words[:2] == ["kubesched", "run"]:
                flags = ["--bind-address=127.0.0.1", f"--secure-port={port}"]
                stack.enter_context(running([*words[1:], *flags], tmp_path, "Serving securely"))
            elif words[:2] == ["kubectl", "kubesched"]:
                kubeconfig = ["--kubeconfig", str(tmp_path / "kubesched.kubeconfig")]
                expect([*KUBESCHED, *words[2:], *kubeconfig], expected, tmp_path)
            else:
                expect([KUBECTL, *words[1:]], expected, tmp_path)
