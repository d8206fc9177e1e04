"""``kubesched explain``: pods of files, dumps and running clusters, by name or all that are pending."""

from __future__ import annotations

import gc
import json
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from cli_cluster import cluster
from cli_kit import run

from kubesched.cli import explain_command, explain_server
from kubesched.lab.simulate.run.standing import Standing, explain_standing

EXAMPLE = Path(__file__).parents[2] / "examples" / "explain" / "two-causes.yaml"
PLACED = """
apiVersion: v1
kind: Pod
metadata: {name: runs, namespace: shop, labels: {app: w}}
spec: {nodeName: cpu-1, containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 80}]}]}
"""
SAME = """
---
apiVersion: v1
kind: Pod
metadata: {{name: same-{number}}}
spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: "{cpu}"}}}}}}]}}
"""


def test_no_pass_for_cycles_is_made_while_a_cluster_is_read_and_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def spied(*arguments: Any, **options: Any) -> Standing:
        seen.append(gc.isenabled())
        return explain_standing(*arguments, **options)

    monkeypatch.setattr(explain_command, "explain_standing", spied)
    assert run(capsys, "explain", "-f", EXAMPLE).code == 0
    assert (seen, gc.isenabled()) == ([False], True)


def test_causes_that_come_together_are_named_together(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "explain", "-f", EXAMPLE, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert (document["apiVersion"], document["kind"], document["placed"]) == (
        "kubesched.io/v1alpha1",
        "Explanation",
        [],
    )
    (group,) = document["pending"]
    assert {(one["plugin"], one["nodes"]) for one in group["obstacles"]} == {
        ("NodeResourcesFit", 4),
        ("NodeAffinity", 2),
        ("TaintToleration", 2),
    }
    assert group["remedies"] == [
        {
            "changes": ["ask for 4 less cpu", "drop nodeSelector accelerator=a100"],
            "nodes": 2,
            "examples": ["cpu-1", "cpu-2"],
        },
        {
            "changes": ["ask for 4 less cpu", "tolerate the taint dedicated=gpu:NoSchedule"],
            "nodes": 2,
            "examples": ["gpu-1", "gpu-2"],
        },
    ]


def test_pods_are_named_with_and_without_their_namespace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "placed.yaml").write_text(PLACED)
    files = ("-f", EXAMPLE, tmp_path / "placed.yaml")
    named = run(capsys, "explain", "shop/runs", *files).out
    assert "\nshop/runs on cpu-1: place 1 of 2 nodes that fit, of 4\n" in named
    assert run(capsys, "explain", "runs", "-n", "shop", *files).out == named
    assert "default/trainer: Unschedulable" in run(capsys, "explain", "trainer", *files).out
    missing = run(capsys, "explain", "trainer", "runs", *files)
    assert (missing.code, missing.out) == (1, "")
    assert missing.err == "kubesched: default/runs: there is no such pod in the cluster\n"


def test_the_holder_of_a_host_port_is_named_and_its_eviction_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = PLACED.replace("name: runs, ", "name: new, ").replace("nodeName: cpu-1, ", "nodeSelector: {x: y}, ")
    nodes = 'apiVersion: v1\nkind: Node\nmetadata: {name: cpu-1, labels: {x: "y"}}\nstatus: {allocatable: {cpu: "8", memory: 1Gi, pods: "9"}}\n'
    (tmp_path / "all.yaml").write_text(f"{nodes}---{PLACED}---{new}".replace("{x: y}", '{x: "y"}'))
    out = run(capsys, "explain", "-f", tmp_path / "all.yaml").out
    assert "host port 80/TCP: held by shop/runs on cpu-1 [NodePorts]: cpu-1" in out
    assert "what would help: do without the host port 80/TCP: 1 node would fit" in out
    assert "what would help: remove shop/runs from cpu-1 (1 of its 1 pods): it would fit there" in out


def test_many_groups_are_cut_unless_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pods.yaml").write_text("".join(SAME.format(number=number, cpu=20 + number) for number in range(12)))
    short = run(capsys, "explain", "-f", EXAMPLE, tmp_path / "pods.yaml")
    assert short.out.count(": Unschedulable") == 5
    assert short.out.endswith("8 more groups with 8 pods: --wide shows all\n")
    assert run(capsys, "explain", "-f", EXAMPLE, tmp_path / "pods.yaml", "--wide").out.count(": Unschedulable") == 13


def test_equal_pods_without_a_workload_are_one_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pods.yaml").write_text("".join(SAME.format(number=number, cpu=20) for number in range(300)))
    out = run(capsys, "explain", "-f", EXAMPLE, tmp_path / "pods.yaml").out
    assert "300 pods: Unschedulable" in out
    assert len(out.splitlines()) < 30


def test_a_dump_is_read_and_a_pod_that_fits_is_said_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pods.yaml").write_text(SAME.format(number=1, cpu=1))
    out = run(capsys, "explain", "same-1", "--from", EXAMPLE, "-f", tmp_path / "pods.yaml").out
    assert "default/same-1: Waiting" in out
    assert "nodes that fit now: 2" in out


def test_nothing_is_pending(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "placed.yaml").write_text(PLACED)
    assert run(capsys, "explain", "-f", tmp_path / "placed.yaml").out == "no pod is pending\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            (),
            "give the cluster: --kubeconfig FILE, --from FILE (a dump or saved cluster), -f MANIFESTS, or --server URL",
        ),
        (("--from", "a", "--kubeconfig", "b"), "--from and --kubeconfig: give one of them"),
        (("-f", EXAMPLE, "--context", "c"), "--context NAME needs --kubeconfig FILE"),
    ],
)
def test_sources_that_contradict_each_other_are_refused(
    given: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(capsys, "explain", *given)
    assert (ran.code, ran.out, ran.err) == (2, "", f"kubesched: {message}\n")


def test_a_pod_with_a_node_is_compared_with_other_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "placed.yaml").write_text(PLACED)
    files = ("-f", EXAMPLE, tmp_path / "placed.yaml")
    shown = run(capsys, "explain", "shop/runs", "--node", "cpu-2", "--node", "gpu-1", *files).out
    assert "  cpu-2 is as good as cpu-1\n" in shown
    assert "  gpu-1 does not fit:\n    taint dedicated=gpu:NoSchedule [TaintToleration]\n" in shown
    document = json.loads(run(capsys, "explain", "shop/runs", "--node", "cpu-2", *files, "-o", "json").out)
    (placed,) = document["placed"]
    assert (placed["node"], placed["rank"], placed["feasible"]) == ("cpu-1", 1, 2)
    (other,) = placed["alternatives"]
    assert (other["node"], other["fits"], other["lostBy"]) == ("cpu-2", True, 0)
    unknown = run(capsys, "explain", "shop/runs", "--node", "moon", *files)
    assert (unknown.code, unknown.err) == (1, "kubesched: --node moon: there is no such node in the cluster\n")


def test_pending_pods_of_one_namespace_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "explain", "-n", "shop", "-f", EXAMPLE).out == "no pod is pending\n"
    everywhere = run(capsys, "explain", "-A", "-f", EXAMPLE).out
    assert everywhere == run(capsys, "explain", "--all-pending", "-f", EXAMPLE).out
    assert "default/trainer: Unschedulable" in everywhere


def test_a_simulation_explains_pods_at_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "placed.yaml").write_text(PLACED)
    files = ("-f", EXAMPLE, tmp_path / "placed.yaml")
    shown = run(capsys, "simulate", *files, "--explain", "shop/runs", "--explain", "trainer", "--until", "60").out
    assert "Why on this node\nshop/runs on cpu-1" in shown
    assert "  in the queue: waits for an event that may help; tried 1 time; queued for 1s; rejected by " in shown
    missing = run(capsys, "simulate", *files, "--explain", "moon")
    assert missing.code == 1
    assert "--explain default/moon: no such pod is in the cluster" in missing.err


def test_a_cluster_tells_who_evicted_a_pod_that_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with cluster(tmp_path, "--nodes", "1") as running:
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "gone.1", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "gone"},
            "reason": "Preempted",
            "message": "Preempted by pod 1-2-3 on node n1",
            "type": "Normal",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "source": {"component": "default-scheduler"},
        }
        running.request("/api/v1/namespaces/default/events", event)
        files = ("--kubeconfig", tmp_path / "kubeconfig", "--quiet")
        shown = run(capsys, "explain", "gone", *files)
        missing = run(capsys, "explain", "never-there", *files)
    assert (shown.code, shown.out) == (
        0,
        "default/gone was evicted at 2026-01-01T00:00:00Z, says default-scheduler: Preempted by pod 1-2-3 on node n1\n",
    )
    assert (missing.code, missing.err) == (1, "kubesched: default/never-there: there is no such pod in the cluster\n")


ESCAPES = "a\x1b[2J\x9b31m\x07\nb"
SAID: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": ESCAPES}]},
        },
    ],
}


def test_escape_sequences_of_texts_do_not_reach_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "said.json"
    path.write_text(json.dumps(SAID))
    ran = run(capsys, "explain", "-f", path)
    assert (ran.code, ran.err) == (0, "")
    assert "\n  a\\x1b[2J\\x9b31m\\x07 b (nodes that fit now: 1" in ran.out


class _Hostile(BaseHTTPRequestHandler):
    """Server whose answers try to write to the terminal, and that sends a client elsewhere."""

    tokens: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.tokens.append(self.headers["Authorization"])
        if self.path.endswith(("/slow", "/endless")):
            piece, pause = (b"x", 0.01) if self.path.endswith("/slow") else (b"x" * (1 << 20), 0.0)
            with suppress(OSError):
                self.send_response(200)
                self.end_headers()
                for _ in range(200):  # each byte ends the time-out of a socket
                    self.wfile.write(piece)
                    time.sleep(pause)
            return
        if self.path.endswith("/moved"):
            self.send_response(302)
            self.send_header("Location", "/explain/pods/default/refused")
            self.end_headers()
            return
        self.send_response(502)
        self.end_headers()
        self.wfile.write(ESCAPES.encode())

    def log_message(self, *_: object) -> None:
        pass


def test_a_hostile_server_neither_writes_to_the_terminal_nor_gets_the_token_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("secret")
    _Hostile.tokens.clear()
    with HTTPServer(("127.0.0.1", 0), _Hostile) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        ran = run(capsys, "explain", "moved", "--server", address, "--token-file", tmp_path / "token")
        server.shutdown()
        thread.join()
    assert (ran.code, ran.out) == (1, "")
    assert "502 Bad Gateway: a\\x1b[2J\\x9b31m\\x07" in ran.err
    assert _Hostile.tokens == ["Bearer secret", None]


def test_an_answer_is_bounded_in_time_and_bytes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain_server, "_MOST_BYTES", 1 << 20)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hostile) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        slow = run(capsys, "explain", "slow", "--server", address, "--request-timeout", "300ms")
        endless = run(capsys, "explain", "endless", "--server", address)
        server.shutdown()
        thread.join()
    assert (slow.code, slow.out, endless.code, endless.out) == (1, "", 1, "")
    assert f"--server {address}: no whole answer within 0.3 s; --request-timeout gives it more time" in slow.err
    assert "the answer has more than 1 MiB" in endless.err


def test_a_gated_pod_says_which_gate_and_whether_it_would_fit_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node, waiting = SAID["items"]
    for name, cpu in (("small", "1"), ("large", "6")):
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        spec = {"containers": [container], "schedulingGates": [{"name": "example.com/quota"}]}
        path = tmp_path / f"{name}.json"
        gated = {**waiting, "spec": spec, "status": {}}
        path.write_text(json.dumps({**SAID, "items": [node, gated]}))
    small, large = (run(capsys, "explain", "-f", tmp_path / f"{name}.json").out for name in ("small", "large"))
    assert "what would help: remove the gate example.com/quota from the pod: 1 node would fit\n" in small
    assert "1 node: cpu: asks for 6, but the largest of these nodes has 4" in large
    gate = (
        "what would help: remove the gate example.com/quota from the pod; then ask for 2 less cpu: 1 node would fit\n"
    )
    assert gate in large
    remedies = []
    for name in ("small", "large"):
        ran = run(capsys, "explain", "-f", tmp_path / f"{name}.json", "-o", "json")
        (group,) = json.loads(ran.out)["pending"]
        remedies.append(group["remedies"])
    remove = "remove the gate example.com/quota from the pod"
    (node_name,) = remedies[0][0]["examples"]
    assert remedies == [
        [{"changes": [remove], "nodes": 1, "examples": [node_name]}],
        [{"changes": [remove, "ask for 2 less cpu"], "nodes": 1, "examples": [node_name]}],
    ]


def test_where_nothing_helps_there_is_advice_about_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node, waiting = SAID["items"]
    full = {**node, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "0"}}}
    claims = {"resourceClaims": [{"name": "r", "resourceClaimName": "gone"}], **waiting["spec"]}
    said = []
    for there, spec in ((full, waiting["spec"]), (node, claims)):
        path = tmp_path / "pods.json"
        path.write_text(json.dumps({**SAID, "items": [there, {**waiting, "spec": spec, "status": {}}]}))
        (group,) = json.loads(run(capsys, "explain", "-f", path, "-o", "json").out)["pending"]
        assert not group["remedies"]
        said.append(group["hints"])
    assert said[0][0].startswith("Too many pods: ")
    assert said[0][1:] == ["no change that was tried, no eviction, and no more nodes like these"]
    assert said[1] == [
        'could not find ResourceClaim "default/gone": Create it, or correct `resourceClaimName`: '
        "`kubectl get resourceclaims -n NAMESPACE`."
    ]


@pytest.mark.parametrize("flag", ["--annotate-why-pending", "--event-why-pending", "--annotate-simulator-results"])
def test_a_cluster_without_a_scheduler_explains_no_attempts(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "up", "--no-scheduler", flag)
    assert (ran.code, ran.out) == (2, "")
    assert f"{flag}: nothing is attempted with --no-scheduler" in ran.err
