"""A session with kubectl, wherever it is installed, against a whole cluster. Its transcript is docs/kubectl-session.md.

``KUBESCHED_WRITE_TRANSCRIPT=1`` writes the transcript again. ``KUBECTL`` names another program to use: every release
must pass, and the one the transcript was recorded with must say the same again.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from http_full import FullCluster, full_cluster
from kubectl_session import FILES, HIDDEN_FILES, POD, SESSION, Step

from kubesched.cluster.http import make_certificates, write_kubeconfig

KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
TRANSCRIPT = Path(__file__).parents[2] / "docs" / "kubectl-session.md"
#: Commands whose lines come in an order that names and moments decide.
_UNORDERED = ("get", "drain", "describe node")

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")


class _Now:
    """The real time: certificates are checked against it."""

    def now(self) -> float:
        return time.time()


@dataclass
class Terminal:
    """Terminal in which kubectl is typed."""

    cluster: FullCluster
    directory: Path
    environment: dict[str, str]

    def start(self, command: str) -> subprocess.Popen[str]:
        assert KUBECTL is not None
        return subprocess.Popen(
            [KUBECTL, *shlex.split(command)],
            cwd=self.directory,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, command: str) -> tuple[str, int]:
        process = self.start(command)
        output, _ = process.communicate(timeout=180)
        return output, process.returncode


@contextmanager
def _terminal(directory: Path) -> Iterator[Terminal]:
    """A cluster with a token and TLS when certificates can be made: kubectl sends tokens over TLS only."""
    token, ca = None, None
    options: dict[str, Any] = {}
    if importlib.util.find_spec("cryptography") is not None:
        made = make_certificates(directory / "tls", _Now())
        token, ca, options = "secret", made.ca, {"token": "secret", "tls_cert": made.cert, "tls_key": made.key}
    for name, text in FILES.items():
        (directory / name).write_text(text)
    with full_cluster(**options) as cluster:
        config = write_kubeconfig(directory / "config", cluster.server.url, token=token, ca=ca)
        environment = {
            **os.environ,
            "KUBECONFIG": str(config),
            "HOME": str(directory),
            "KUBE_EDITOR": "sed -i s/replicas:.5/replicas:\\ 6/",
        }
        yield Terminal(cluster, directory, environment)


def _eventually(condition: Callable[[], bool], what: str) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(what)


def _take(step: Step, terminal: Terminal) -> str:
    """Do one step; its output when it is right."""
    server = terminal.cluster.server
    if step.meanwhile:
        open_before = len(server.watches)
        process = terminal.start(step.command)
        _eventually(lambda: len(server.watches) > open_before, f"kubectl {step.command} does not watch")
        _, code = terminal.run(step.meanwhile)
        assert code == 0, step.meanwhile
        output, _ = process.communicate(timeout=180)
        code = process.returncode
    else:
        for _ in range(600):
            output, code = terminal.run(step.command)
            if not step.until or re.search(step.expect, output, re.MULTILINE):
                break
            time.sleep(0.1)
    assert re.search(step.expect, output, re.MULTILINE), f"kubectl {step.command}\n{output}"
    assert (code != 0) is step.fails, f"kubectl {step.command}\n{output}"
    return output


def test_a_session(tmp_path: Path) -> None:
    blocks: list[tuple[str, str]] = []
    pages: list[str] = []
    with _terminal(tmp_path) as terminal:
        for step in SESSION:
            if isinstance(step, str):
                pages.append(f"\n## {step}\n")
                continue
            output = _settled(_take(step, terminal), terminal.cluster.server.url)
            if not step.shown:
                continue
            typed = f"kubectl {step.command}"
            if step.meanwhile:
                typed += f"   # and, while it waits: kubectl {step.meanwhile}"
            blocks.append((typed, output))
            pages.append(f"```console\n$ {typed}\n{output.rstrip()}\n```\n")
    release = _release()
    if os.environ.get("KUBESCHED_WRITE_TRANSCRIPT"):
        _write(pages, release)
    recorded = TRANSCRIPT.read_text()
    assert recorded.endswith(_shown_files()), "the files have changed: write the transcript again"
    known = re.findall(r"```console\n\$ (.*)\n((?:.*\n)*?)```\n", recorded)
    assert [typed for typed, _ in known] == [typed for typed, _ in blocks], "write the transcript again"
    if f"kubectl {release}" in recorded:
        for (typed, output), (_, said) in zip(blocks, known, strict=True):
            assert _bare(typed, output) == _bare(typed, said), typed


_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
#: What differs from run to run, and what stands there instead.
_CHANGING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", "01234567-89ab-4cde-8f01-23456789abcd"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-01-02T03:04:05Z"),
    (r"\w{3}, \d\d \w{3} 20\d\d \d\d:\d\d:\d\d \+0000", "Fri, 02 Jan 2026 03:04:05 +0000"),
    (r'(?<=resourceVersion: ")\d+(?=")', "1000"),
    (rf"\b(?<=web-)({_LETTERS}{{8,10}})-{_LETTERS}{{5}}\b", r"\1-xxxxx"),
    (rf"\b(agent|once)-{_LETTERS}{{5}}\b", r"\1-xxxxx"),
    (r"\b10\.\d+\.\d+\.\d+\b", "10.0.0.1"),
    # An age as kubectl writes it; 500m is half a CPU.
    (r"(?<!\S)(?<!for )(?:\d{1,3}s|\d{1,2}m(?:\d{1,2}s)?|\d{1,2}h(?:\d{1,2}m)?)(?= |$)", "5s"),
)


def _settled(text: str, url: str) -> str:
    """An output without what differs from run to run, columns where they were."""
    text = text.replace(url, "https://127.0.0.1:6443")
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"(?m)^(WARNING: version difference.*|Kustomize Version.*|Client Version.*)\n", "", text)
    text = re.sub(r"(?m)^(Waiting for .*\n)(?:Waiting for .*\n)+", r"\1", text)
    lines = text.splitlines()
    for pattern, new in _CHANGING:
        lines = [re.sub(pattern, lambda found, new=new: _as_wide(found, new), line) for line in lines]  # type: ignore[misc]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _as_wide(found: re.Match[str], new: str) -> str:
    """The new text, filled up where a column follows."""
    text = found.expand(new)
    return text.ljust(len(found[0])) if found.string[found.end() : found.end() + 1] == " " else text


def _bare(typed: str, output: str) -> list[str]:
    """The lines that count: columns are as wide as their widest cell, and some orders are not guaranteed."""
    command = typed.removeprefix("kubectl ")
    if command.startswith("drain"):
        output = re.sub(r"Warning: |, |; |[\[\]]", "\n", output)  # its errors and warnings come in any order, too
    if "while it waits" not in command:
        output = re.sub(r"(?m)^Waiting for .*\n", "", output)  # what is done already need not be waited for
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    return sorted(lines) if command.startswith(_UNORDERED) else lines


def _release() -> str:
    """Major and minor version of the client, such as ``1.32``."""
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    version = json.loads(done.stdout)["clientVersion"]["gitVersion"]
    found = re.match(r"v(\d+\.\d+)", version)
    assert found is not None, version
    return found[1]


def _shown_files() -> str:
    """The last section of the transcript."""
    shown = {name: body for name, body in FILES.items() if name not in HIDDEN_FILES}
    return "".join(f"\n`{name}`:\n\n```yaml\n{body}```\n" for name, body in shown.items())


def _write(pages: list[str], release: str) -> None:
    head = (
        "# A session with kubectl\n\n"
        "This page shows kubectl at work on the cluster that `kubesched up` starts: scheduler, controllers and three hollow "
        "nodes in one process.\n"
        f"`tests/http/test_http_kubectl.py` recorded it with kubectl {release} and compares it wherever kubectl is installed. "
        "That test also runs\nfurther commands, such as `describe node` and `api-resources`. Times, identifiers, random ends of "
        "names and repeated progress lines\nare normalised. To record the page again: "
        "`KUBESCHED_WRITE_TRANSCRIPT=1 pytest tests/http/test_http_kubectl.py`.\n"
    )
    TRANSCRIPT.write_text(f"{head}{''.join(pages)}\n## The files\n{_shown_files()}")


def test_a_server_without_a_token_takes_what_kubectl_sends(tmp_path: Path) -> None:
    """It refuses what web pages send; kubectl names no content type with --raw."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "space.json").write_text('{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"space"}}')
    with full_cluster() as cluster:
        config = write_kubeconfig(tmp_path / "config", cluster.server.url)
        terminal = Terminal(cluster, tmp_path, {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)})
        for command in (
            "create --raw /api/v1/namespaces -f space.json",
            "replace --raw /api/v1/namespaces/space -f space.json",
            "create configmap c --from-literal=a=b",
            "label configmap c x=y",
            "annotate namespace space x=y",
            "apply --server-side -f space.json --force-conflicts",
            "apply -f space.json",
            "get namespaces -o wide",
            "delete --raw /api/v1/namespaces/space",
            "delete configmap c",
        ):
            output, code = terminal.run(command)
            assert code == 0, (command, output)


def test_a_watch_in_a_terminal(tmp_path: Path) -> None:
    with _terminal(tmp_path) as terminal:
        watch = terminal.start("get pods -w")
        server = terminal.cluster.server
        try:
            _eventually(lambda: len(server.watches) > 0, "no watch")
            terminal.run("create -f pod.yaml")
            assert watch.stdout is not None
            lines = []
            for line in watch.stdout:
                lines.append(line)
                if " Running " in line:
                    break
        finally:
            watch.terminate()
            watch.communicate(timeout=60)
    assert POD.count("name: p,") == 1
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:3] == ["p", "0/1", "Pending"]
    assert len([line for line in lines if line.startswith("NAME")]) == 1
