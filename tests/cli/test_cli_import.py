"""``kubesched import``: what a real cluster's objects may tell of its users stays behind."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_kit import run

from kubesched.api.kinds import Kind
from kubesched.api.wire import ApiError
from kubesched.cli import import_command
from kubesched.cluster.files import read
from kubesched.cluster.http import write_kubeconfig

WORDS = "password=hunter2"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    "status": {
        "phase": "Running",
        "message": WORDS,
        "reason": "Kept",
        "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": WORDS}],
        "containerStatuses": [
            {
                "name": "c",
                "image": "i",
                "imageID": "",
                "ready": False,
                "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": WORDS}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": WORDS}},
            }
        ],
    },
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": WORDS}],
    },
}
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    "status": {
        "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}},
        "devices": [
            {
                "driver": "d",
                "pool": "p",
                "device": "x",
                "conditions": [
                    {
                        "type": "A",
                        "status": "True",
                        "reason": "R",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                        "message": WORDS,
                    }
                ],
            }
        ],
    },
}


def test_messages_and_termination_logs_stay_behind_and_reasons_come_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump, saved = tmp_path / "dump.json", tmp_path / "c.jsonl"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [POD, NODE, CLAIM]}))
    ran = run(capsys, "import", dump, "-o", saved)
    assert (ran.code, ran.err) == (0, "")
    assert saved.stat().st_mode & 0o777 == 0o600
    text = saved.read_text()
    assert WORDS not in text
    assert {"p", "n", "c"} <= {item.name for item in read(saved).items}
    for reason in ("Kept", "ContainersNotReady", "CrashLoopBackOff", "Error", "KubeletReady"):
        assert f'"reason":"{reason}"' in text
    assert '"exitCode":1' in text


def test_a_server_that_cannot_be_reached_is_named_with_what_to_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        config = write_kubeconfig(tmp_path / "config", url)
        ran = run(capsys, "import", "--kubeconfig", config, "-o", tmp_path / "saved.jsonl")
    assert ran.code == 1
    assert ran.err.startswith(f"kubesched: API server {url}: nothing accepts connections: ")
    assert ran.err.endswith("; check the server address of the kubeconfig, and whether the API server runs\n")
    assert not (tmp_path / "saved.jsonl").exists()


def test_groups_of_other_projects_and_the_annotations_that_name_them_come_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {
        "kueue.x-k8s.io/pod-group-total-count": "2",
        "scheduling.k8s.io/group-name": "a",
        "scheduling.volcano.sh/group-min-member": "3",
        "scheduling.volcano.sh/group-name": "b",
    }
    others = {"kueue.x-k8s.io/note": WORDS, "scheduling.volcano.sh/note": WORDS}
    metadata = {"name": "p", "namespace": "default", "annotations": {**named, **others}}
    items: list[dict[str, Any]] = [{**POD, "metadata": metadata}]
    items += [
        {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"}, "spec": {}}
        for version in ("scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1")
    ]
    dump, saved = tmp_path / "dump.json", tmp_path / "saved.jsonl"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert run(capsys, "import", dump, "-o", saved, "-q").code == 0
    text = saved.read_text()
    assert WORDS not in text
    found = [json.loads(line) for line in text.splitlines()]
    assert [one["metadata"]["annotations"] for one in found if one.get("kind") == "Pod"] == [named]
    assert len([one for one in found if one.get("kind") == "PodGroup"]) == 2


def test_groups_of_other_projects_that_may_not_be_listed_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Server:
        async def list(self, kind: Kind, **how: Any) -> Any:
            raise ApiError(403 if kind.custom else 404, "Forbidden", f"may not list {kind.group_resource}")

    @asynccontextmanager
    async def connected(kubeconfig: str, context: str | None) -> AsyncIterator[tuple[Server, str]]:
        yield Server(), ""

    monkeypatch.setattr(import_command, "connected", connected)
    found = asyncio.run(import_command.from_server("kubeconfig", None, quiet=True))
    assert [text.partition(": ")[0] for text in found.warnings] == [
        "podgroups.scheduling.x-k8s.io were not read",
        "podgroups.scheduling.volcano.sh were not read",
    ]
