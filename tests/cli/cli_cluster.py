"""``kubesched up`` as a process of its own, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}]},
}


class Running:
    """A cluster in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def request(self, path: str, body: Any = None, token: str = "") -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=30) as answer:
            return json.load(answer)

    def pod(self, name: str) -> Any:
        return self.request(f"/api/v1/namespaces/default/pods/{name}")

    def wait_bound(self, name: str) -> str:
        """The node a pod is bound to; a watch waits for it, not a clock."""
        path = f"/api/v1/namespaces/default/pods?watch=1&fieldSelector=metadata.name={name}&timeoutSeconds=60"
        with urllib.request.urlopen(self.url + path, timeout=90) as lines:
            for line in lines:
                node: str = json.loads(line)["object"]["spec"].get("nodeName", "")
                if node:
                    return node
        raise AssertionError(f"pod {name} was not bound")

    def stop(self) -> tuple[int, str]:
        """Ask it to stop as Ctrl-C does: exit code, and what was left on stderr."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@contextmanager
def cluster(folder: Path, *arguments: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "kubesched.cli", "up", "--quiet", *arguments]
    command += ["--kubeconfig-out", str(folder / "kubeconfig")]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    if not url:
        _, errors = process.communicate(timeout=60)
        raise AssertionError(f"did not start: {errors}")
    try:
        yield Running(process, url)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
