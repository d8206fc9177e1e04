"""``kubesched audit``: findings of files, dumps and running clusters, as text and as documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_cluster import POD, cluster
from cli_kit import EXAMPLES, run

SHOP = EXAMPLES / "audit" / "shop.yaml"
NODE = """
apiVersion: v1
kind: Node
metadata: {name: node, labels: {kubernetes.io/hostname: node}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
"""


def test_the_example_has_the_findings_that_its_comment_names(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "audit", "-f", SHOP, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert (document["apiVersion"], document["kind"]) == ("kubesched.io/v1alpha1", "Audit")
    assert document["asOf"] == "2026-03-02T11:30:00Z"
    assert document["totals"] == {"nodes": 3, "pods": 6, "pending": 1, "error": 4, "warning": 7, "info": 0}
    assert {(one["rule"], one["plugin"], *one["objects"]) for one in document["findings"]} == {
        ("pod-never-schedulable", "", "shop/report"),
        ("node-overcommitted", "", "node-2"),
        ("node-missing", "", "shop/mail"),
        ("budgets-overlap", "", "shop/db-0"),
        ("pod-rejected-by-its-node", "PodTopologySpread", "shop/web-1", "shop/web-2"),
        ("pod-rejected-by-its-node", "TaintToleration", "shop/cart"),
        ("pod-rejected-by-its-node", "NodeAffinity", "shop/db-0"),
        ("pod-rejected-by-its-node", "NodeResourcesFit", "shop/db-0"),
        ("pod-rejected-by-its-node", "NodeResourcesFit", "shop/web-1"),
        ("budget-blocks-evictions", "", "shop/db"),
        ("budget-blocks-evictions", "", "shop/web"),
    }
    (over,) = (one for one in document["findings"] if one["rule"] == "node-overcommitted")
    assert over["amounts"] == [{"resource": "cpu", "requested": 5000, "allocatable": 4000}]


def test_a_dump_gives_the_same_and_yaml_is_the_same_document(capsys: pytest.CaptureFixture[str]) -> None:
    from_dump = run(capsys, "audit", "--from", SHOP, "-o", "json")
    as_yaml = run(capsys, "audit", "-f", SHOP, "-o", "yaml")
    assert json.loads(from_dump.out) == yaml.safe_load(as_yaml.out)


@pytest.mark.parametrize(
    ("level", "taint", "code"),
    [("error", "", 0), ("info", "", 0), ("error", "x", 0), ("warning", "x", 1), ("info", "x", 1), ("never", "x", 0)],
)
def test_the_exit_code_tells_whether_there_are_findings_of_a_level(
    level: str, taint: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = "spec: {taints: [{key: x, effect: NoSchedule}]}\n" if taint else ""
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeName: node, containers: [{name: c, image: i}]}\n"
    (tmp_path / "all.yaml").write_text(f"{NODE}{spec}---\n{pod}")
    ran = run(capsys, "audit", "-f", tmp_path / "all.yaml", "--fail-on", level)
    assert ran.code == code
    assert ("nothing was found" in ran.out) == (not taint)


def test_text_is_cut_to_the_first_groups_unless_it_is_wide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = "".join(
        f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{number:02}}}\n"
        f"spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: '{number + 5}'}}}}}}]}}\n"
        for number in range(14)
    )
    (tmp_path / "all.yaml").write_text(NODE + pods)
    short = run(capsys, "audit", "-f", tmp_path / "all.yaml").out
    assert short.count("pod-never-schedulable") == 10
    assert "Errors (14)" in short
    assert short.endswith("4 more findings: -o wide shows all\n")
    for wide in (("-o", "wide"), ("--wide",)):
        assert run(capsys, "audit", "-f", tmp_path / "all.yaml", *wide).out.count("pod-never-schedulable") == 14


def test_a_running_cluster_is_only_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with cluster(tmp_path, "--nodes", "2", "--port", "0") as running:
        large = {**POD, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "99"}}}]}}
        running.request("/api/v1/namespaces/default/pods", large)
        ran = run(capsys, "audit", "--kubeconfig", tmp_path / "kubeconfig", "-o", "json", "-q", "--fail-on", "error")
        assert [pod["metadata"]["name"] for pod in running.request("/api/v1/pods")["items"]] == ["one"]
    assert ran.code == 1
    (found,) = json.loads(ran.out)["findings"]
    assert (found["rule"], found["objects"]) == ("pod-never-schedulable", ["default/one"])
    assert "none of 2 nodes would take it" in found["message"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\n", "apiVersion"),
        (NODE.replace('"4"', '"many"'), "many"),
        ("[1, 2", "not valid YAML"),
    ],
)
def test_input_that_cannot_be_used_is_named(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    ran = run(capsys, "audit", "-f", tmp_path / "bad.yaml")
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_a_source_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "audit")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("kubesched: give the cluster: --kubeconfig FILE")


def test_pods_of_a_dump_that_are_being_deleted_hold_resources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leaving = """---
apiVersion: v1
kind: Pod
metadata:
  {name: leaving, namespace: default, uid: a, creationTimestamp: "2026-01-01T00:00:00Z", deletionTimestamp: "2026-01-01T00:00:30Z"}
spec: {nodeName: node, containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}]}
status: {phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: default, uid: b, creationTimestamp: "2026-01-01T01:00:00Z"}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "2"}}}]}
"""
    (tmp_path / "dump.yaml").write_text(NODE + leaving)
    found = json.loads(run(capsys, "audit", "--from", tmp_path / "dump.yaml", "-o", "json").out)["findings"]
    assert [(one["rule"], one["objects"]) for one in found] == [("pod-stuck-terminating", ["default/leaving"])]
    assert "for up to 59 min, and holding 3 cpu" in found[0]["message"]
    assert "Insufficient cpu" in run(capsys, "explain", "waits", "--from", tmp_path / "dump.yaml").out
