"""``kubesched up`` and ``kubesched import``: a cluster that answers, stops when told, and survives in a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubesched.cli.main import main

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


def test_a_pod_is_placed_and_the_cluster_survives_in_a_file(tmp_path: Path) -> None:
    saved = tmp_path / "cluster.jsonl.gz"
    with cluster(tmp_path, "--nodes", "3", "--zones", "3", "--snapshot", str(saved)) as running:
        nodes = running.request("/api/v1/nodes")["items"]
        assert sorted(node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes) == [
            "zone-a",
            "zone-b",
            "zone-c",
        ]
        running.request("/api/v1/namespaces/default/pods", POD)
        node = running.wait_bound("one")
        assert running.stop() == (0, "")
    with cluster(tmp_path, "--snapshot", str(saved)) as again:
        assert again.pod("one")["spec"]["nodeName"] == node
        assert len(again.request("/api/v1/nodes")["items"]) == 3
        assert again.stop() == (0, "")


def test_the_kubeconfig_leads_to_the_cluster_and_a_token_is_asked_for(tmp_path: Path) -> None:
    with cluster(tmp_path, "--nodes", "1", "--token") as running:
        config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
        assert config["clusters"][0]["cluster"]["server"] == running.url
        token = config["users"][0]["user"]["token"]
        assert len(running.request("/api/v1/nodes", token=token)["items"]) == 1
        with pytest.raises(urllib.error.HTTPError, match="401"):
            running.request("/api/v1/nodes")
        assert running.stop()[0] == 0


def test_without_a_scheduler_pods_stay_pending_and_manifests_are_created(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(POD))
    with cluster(tmp_path, "--nodes", "1", "--no-scheduler", "--speed", "100", "-f", str(manifest)) as running:
        pod = running.pod("one")
        assert "nodeName" not in pod["spec"]
        assert pod["status"]["phase"] == "Pending"
        assert running.stop()[0] == 0


def test_a_running_cluster_is_imported_by_its_kubeconfig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "copy.jsonl"
    with cluster(tmp_path, "--nodes", "2") as running:
        running.request("/api/v1/namespaces/default/pods", POD)
        node = running.wait_bound("one")
        assert main(["import", "--kubeconfig", str(tmp_path / "kubeconfig"), "-o", str(saved)]) == 0
        assert running.stop()[0] == 0
    assert f"to {saved}" in capsys.readouterr().out
    objects = [json.loads(line) for line in saved.read_text().splitlines()[1:]]
    pods = [item for item in objects if item.get("kind") == "Pod" or item.get("object", {}).get("kind") == "Pod"]
    text = saved.read_text()
    assert pods or '"one"' in text
    assert node in text


def test_dumps_are_imported_without_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = tmp_path / "dump.yaml"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "default"},
        "data": {"k": "aGV5"},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1"}}}
    bound = {**POD, "spec": {**POD["spec"], "nodeName": "n"}}  # type: ignore[dict-item]
    dump.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [secret, node, bound]}))
    saved = tmp_path / "copy.jsonl"
    assert main(["import", str(dump), "-o", str(saved)]) == 0
    assert "left out: 1 secrets" in capsys.readouterr().out
    assert "aGV5" not in saved.read_text()
    assert '"one"' in saved.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "-f", "absent.yaml"], "absent.yaml"),
        (["up", "--node-template", "pod.yaml", "--nodes", "1"], "holds no Node"),
        (["up", "--snapshot", "pod.yaml"], "is not a saved cluster"),
        (["up", "--tls-cert", "pod.yaml"], "needs its key"),
        (["up", "--stages", "pod.yaml"], "pod.yaml"),
        (["up", "--config", "absent.yaml"], "absent.yaml"),
        (["import", "-o", "x.jsonl"], "give either dumps"),
        (["import", "absent.yaml", "-o", "x.jsonl"], "absent.yaml"),
        (["import", "--kubeconfig", "absent", "-o", "x.jsonl"], "absent"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_used_is_said_in_one_message(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
    assert main(arguments) in (1, 2)
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors
