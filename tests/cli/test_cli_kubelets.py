"""``kubesched kubelets`` as a process beside ``kubesched up``, whose own kubelets leave its nodes alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from cli_cluster import POD, Running, cluster
from cli_kit import run


def watch_pod(running: Running, phase: str) -> None:
    """Wait by a watch until the pod has a phase, or is gone."""
    path = "/api/v1/namespaces/default/pods?watch=1&fieldSelector=metadata.name=one&timeoutSeconds=60"
    with urllib.request.urlopen(running.url + path, timeout=90) as lines:
        for line in lines:
            event = json.loads(line)
            if phase in (event["type"], event["object"].get("status", {}).get("phase")):
                return
    raise AssertionError(f"the pod was not {phase}")


def test_hollow_nodes_of_another_process_run_pods_and_go_when_it_ends(tmp_path: Path) -> None:
    with cluster(tmp_path, "--nodes", "1") as running:
        command = [sys.executable, "-m", "kubesched.cli", "kubelets", "--kubeconfig", str(tmp_path / "kubeconfig")]
        command += ["--nodes", "2", "--zones", "2", "--name", "far", "--delete-nodes"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert "2 made, 0 there before (label kubesched.io/kubelets=far;" in first, first
            selector = {"kubesched.io/kubelets": "far"}
            spec = {"containers": [{"name": "c", "image": "app:1"}], "nodeSelector": selector}
            running.request("/api/v1/namespaces/default/pods", {**POD, "spec": spec})
            assert running.wait_bound("one") in ("far-00000", "far-00001")
            watch_pod(running, "Running")
            path = f"{running.url}/api/v1/namespaces/default/pods/one"
            urllib.request.urlopen(urllib.request.Request(path, method="DELETE"), timeout=30).close()
            watch_pod(running, "DELETED")
            process.send_signal(signal.SIGTERM)
            out, errors = process.communicate(timeout=60)
            assert (process.returncode, out.splitlines()[-1], errors) == (0, "deleted 2 nodes", "")
        nodes = running.request("/api/v1/nodes")["items"]
        assert [node["metadata"]["name"] for node in nodes] == ["hollow-00000"]
        leases = running.request("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")["items"]
        assert {lease["metadata"]["name"] for lease in leases} <= {"hollow-00000"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --kubeconfig FILE"),
        (("--kubeconfig", "missing", "--nodes", "1"), "missing"),
        (("--kubeconfig", "missing", "--nodes", "5001"), "one process runs 5000 nodes at most"),
        (("--kubeconfig", "missing", "--name", "Far_"), "must be 1 to 40 lower-case letters"),
    ],
    ids=["nothing", "no such file", "too many", "a bad name"],
)
def test_what_cannot_be_used_is_said_in_one_message(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(capsys, "kubelets", *arguments)
    assert ran.code in (1, 2)
    assert message in ran.err
    assert "Traceback" not in ran.err
