"""``kubesched view``: every kind of file over HTTP, two runs side by side, and files that cannot be shown."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

import kubesched
from kubesched.cli.main import main
from kubesched.dashboard import files as shown_files
from kubesched.dashboard.files import kind_of_file, recording_of
from kubesched.explain.records import Recorder
from kubesched.explain.records.file import DecisionFile
from kubesched.lab.simulate.entry import options_of
from kubesched.lab.simulate.results.report import render_json, render_yaml
from kubesched.lab.simulate.run.simulation import run_simulation
from kubesched.scheduler.config import DEFAULT_GATES, default_config
from kubesched.scheduler.plugins import in_tree_registry
from recording_kit import EVENTS, node, objects, pod

JSON = dict[str, Any]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of each kind, all of one cluster."""
    folder = tmp_path_factory.mktemp("files")
    recorder = Recorder(kept=0, file=DecisionFile(folder / "decisions.gz"))
    result = run_simulation(**options_of(objects(pods=25), events=EVENTS), recorder=recorder)
    (folder / "run.json").write_text(render_json(result))
    (folder / "run.yaml").write_text(render_yaml(result))
    (folder / "run.json.gz").write_bytes(gzip.compress((folder / "run.json").read_bytes()))
    placed = pod("placed", 500, 0, 0)
    placed["metadata"] |= {"uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    placed["spec"]["nodeName"], placed["status"] = "n0", {"phase": "Running"}
    listed = [node("n0", "a"), node("n1", "b"), placed, pod("giant", 9000, 0, 0), pod("small", 100, 0, 0)]
    (folder / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": listed}))
    return folder


class Served:
    """Program that serves some files, and the session of a page."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kubesched", *arguments, "--port", "0", "-q"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        link = next((line.split()[-1] for line in self.process.stdout if "/ui/?key=" in line), "")
        assert link, self.process.communicate()
        self.address = link.removeprefix("http://").partition("/")[0]
        self.connection = http.client.HTTPConnection(self.address, timeout=120)
        self.connection.request("GET", link.removeprefix(f"http://{self.address}"))
        answer = self.connection.getresponse()
        answer.read()
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def get(self, path: str, status: int = 200) -> JSON:
        self.connection.request("GET", f"/ui/api/v1/{path}", headers={"Cookie": self.cookie})
        return self._answer(status)

    def post(self, path: str, body: JSON, status: int = 200) -> JSON:
        headers = {"Cookie": self.cookie, "Content-Type": "application/json", "X-Kubesched": "1"}
        headers["Origin"] = f"http://{self.address}"
        self.connection.request("POST", f"/ui/api/v1/{path}", json.dumps(body), headers)
        return self._answer(status)

    def _answer(self, status: int) -> JSON:
        answer = self.connection.getresponse()
        body: JSON = json.loads(answer.read())
        assert answer.status == status, body
        return body

    def stop(self) -> int:
        self.connection.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=120)
        return self.process.returncode


@pytest.fixture(scope="module")
def two(files: Path) -> Iterator[Served]:
    served = Served(files, "view", "run.json.gz", "decisions.gz")
    yield served
    assert served.stop() == 0


@pytest.fixture(scope="module")
def standing(files: Path) -> Iterator[Served]:
    served = Served(files, "view", "dump.json")
    yield served
    assert served.stop() == 0


def test_two_files_are_two_runs(two: Served) -> None:
    runs = two.get("dashboard")["runs"]
    assert [(one["id"], one["name"], one["mode"]) for one in runs] == [
        (0, "run.json.gz", "recording"),
        (1, "decisions.gz", "recording"),
    ]
    assert [one["explains"] for one in runs] == [False, True]
    states = [two.get(f"runs/{one['id']}/state?at={one['start'] + 40}") for one in runs]
    assert states[0]["nodes"]["names"] == states[1]["nodes"]["names"]
    assert states[0]["nodes"]["resources"] == states[1]["nodes"]["resources"]
    assert [one["name"] for one in states[1]["profiles"]] == ["default-scheduler"]


def test_a_recording_is_played_and_explained_over_http(two: Served) -> None:
    start, end = (two.get("dashboard")["runs"][1][key] for key in ("start", "end"))
    changes = two.get(f"runs/1/played?from={start}&to={end}&most=50")["changes"]
    assert 1 < len(changes) <= 50
    assert two.get("runs/1/series")["samples"]
    assert two.get(f"runs/1/verdicts/default/giant?at={end}")["reasons"]
    assert two.get(f"runs/1/explain/pods/default/giant?at={end}")["kind"] == "Explanation"
    assert two.get("runs/1/queues")["places"]
    assert two.get("runs/0/pods?q=giant")["total"] == 1
    assert "at the end" in two.get("runs/0/pods/default/giant")["message"]
    assert two.get("runs/0/nodes/n0")["labels"] == {"topology.kubernetes.io/zone": "a"}
    assert "--decisions FILE" in two.get("runs/0/verdicts/default/giant", 404)["error"]
    assert "save the cluster" in two.post("runs/0/what-if", {"changes": []}, 409)["error"]


def test_a_dump_stands_still_and_is_explained(standing: Served) -> None:
    [info] = standing.get("dashboard")["runs"]
    assert (info["mode"], info["writable"], info["start"], info["end"]) == (
        "snapshot",
        False,
        1767225600.0,
        1767225600.0,
    )
    state = standing.get("runs/0/state")
    cpu = next(one for one in state["nodes"]["resources"] if one["name"] == "cpu")
    used = dict(zip(state["nodes"]["names"], cpu["requested"], strict=True))
    assert used == {"n0": 500, "n1": 0}
    assert standing.get("runs/0/verdicts/default/giant")["verdict"] == [0, 0]
    pending = standing.get("runs/0/explain/pending")["pending"]
    assert sorted(one["pods"] for one in pending) == [["default/giant"], ["default/small"]]
    assert all(one.get("queue") is None for one in pending)
    places = {one["place"]: one["groups"] for one in standing.get("runs/0/queues")["places"]}
    assert [(one["pod"], one["rejectedBy"]) for one in places["Unschedulable"]] == [
        ("default/giant", ["NodeResourcesFit"])
    ]
    assert [one["pod"] for one in places["Active"]] == ["default/small"]
    assert standing.get("runs/0/pods/default/giant")["pod"]["state"] == "Unschedulable"
    assert (state["sample"]["queue"]["active"], state["sample"]["queue"]["unschedulable"]) == (1, 1)
    assert standing.get("runs/0/what-if")["applicable"] == []
    outcome = standing.post("runs/0/what-if", {"changes": [{"kind": "add-nodes", "like": "n0", "count": 2}]})
    assert (outcome["changes"], outcome["after"]["nodes"]) == (["2 nodes are added, like n0"], 4)
    refused = standing.post("runs/0/what-if", {"changes": [{"kind": "drain", "node": "n9"}]}, 400)
    assert refused["error"] == "changes[0].node: 'n9': there is no such node"
    assert "never changed" in standing.post("runs/0/apply", {"changes": []}, 409)["error"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty; expected a result of kubesched simulate"),
        (b"\x1f\x8b broken", "cannot be read"),
        (b'{"apiVersion":"kubesched.io/v1alpha1","kind":"SimulationResult","seed":0', "is cut short"),
        (b'{"apiVersion":"kubesched.io/v1alpha1","kind":"SimulationResult","seed":"x"}', "is no result of kubesched simulate"),
        (b"kind: SimulationResult\nseed: [\n", "is no result of kubesched simulate"),
        (b"a: b: c", "expected a result of kubesched simulate"),
        (b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n", "expected a result of kubesched simulate"),
        (b'{"format":"kubesched.io/cluster","version":1,"resourceVersion":9,"objects":5}\n', "is cut short: 5 objects were saved"),
        (b'{"type":"header","format":"kubesched.io/decisions","formatVersion":2}\nnonsense\n', "line 2"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_shown_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    assert main(["view", str(path)]) == 1
    error = capsys.readouterr().err
    assert f"{path}: " in error
    assert message in error
    assert "Traceback" not in error


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    assert main(["view", str(path)]) == 1
    assert f"{path}: is a pipe or a device" in capsys.readouterr().err


def test_a_file_that_unpacks_to_very_much_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_files, "_MOST_BYTES", 5 << 20)
    for beginning in (b'{"apiVersion":"kubesched.io/v1alpha1","kind":"SimulationResult","x":"', b"kind: List\nx: "):
        path = tmp_path / "bomb.gz"
        path.write_bytes(gzip.compress(beginning + b" " * (50 << 20), 9))
        assert path.stat().st_size < 200_000
        assert main(["view", str(path)]) == 1
        assert "has more than 5 MiB unpacked, which is the most" in capsys.readouterr().err


def test_the_cluster_of_up_is_changed_from_the_page(files: Path) -> None:
    served = Served(files, "up", "--nodes", "3", "--ui", "0", "--kubeconfig-out", "kc")
    [info] = served.get("dashboard")["runs"]
    assert (info["mode"], info["whatIf"], info["writable"]) == ("embedded", True, True)
    assert served.get("runs/0/what-if")["applicable"] == ["drain", "fail", "add-nodes", "scale"]
    done = served.post("runs/0/apply", {"changes": [{"kind": "add-nodes", "like": "hollow-00001", "count": 2}]})
    assert done == {"done": ["added hollow-00001-more-0, hollow-00001-more-1"], "remarks": []}
    names = {name for name in served.get("runs/0/state")["nodes"]["names"] if name}
    assert names == {"hollow-00000", "hollow-00001", "hollow-00002", "hollow-00001-more-0", "hollow-00001-more-1"}
    refused = served.post("runs/0/apply", {"changes": [{"kind": "scale", "workload": "x", "replicas": 1}]}, 400)
    assert "expected Kind/namespace/name" in refused["error"]
    assert served.stop() == 0


def test_a_result_in_yaml_and_of_an_earlier_version_is_shown(files: Path) -> None:
    """Before node states were part of results there were only the nodes at the end."""
    data = yaml.safe_load((files / "run.yaml").read_text())
    del data["nodeTimes"]
    for one in data["pods"]:
        del one["priority"]
    path = files / "old.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    assert kind_of_file(path) == "result"
    source = recording_of(path, "result", 0, (in_tree_registry(), default_config(), DEFAULT_GATES), AsyncExitStack())
    assert set(asyncio.run(source.state(None)).nodes.names) == {one["name"] for one in data["nodes"]}


def test_a_torn_last_line_is_a_remark_of_the_recording(files: Path, tmp_path: Path) -> None:
    lines = gzip.decompress((files / "decisions.gz").read_bytes()).splitlines(keepends=True)
    path = tmp_path / "torn"
    path.write_bytes(b"".join(lines)[:-9])
    with ExitStack() as closed:
        stack = AsyncExitStack()
        closed.callback(lambda: asyncio.run(stack.aclose()))
        setup = (in_tree_registry(), default_config(), DEFAULT_GATES)
        source = recording_of(path, "decisions", 0, setup, stack)
    assert source.info.remarks == [
        f"Line {len(lines)} is torn and left out: the scheduler that wrote it was killed, or is still writing."
    ]


def test_the_port_must_be_of_loopback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["view", "x", "--port", "0.0.0.0:1"])
    assert "--port" in capsys.readouterr().err


def test_the_package_still_simulates_what_is_viewed() -> None:
    assert kubesched.simulate([node("n", "a"), pod("p", 100, 0, 1)]).node_times[0].name == "n"
