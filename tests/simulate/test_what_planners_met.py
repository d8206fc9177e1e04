"""Input and figures that planners stumble over: owners that are not there, failed nodes, amounts, zones, traces."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import kubesched
from kubesched.cli import console
from kubesched.cli.main import main
from kubesched.cluster.files import ManifestError, import_dump
from kubesched.lab.simulate.inputs.workload_table import parse_table

JSON = dict[str, Any]


def node(name: str, **metadata: Any) -> JSON:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}, "status": status}


def pod(name: str, node_name: str = "", cpu: str = "1", **metadata: Any) -> JSON:
    spec: JSON = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
    status: JSON = {}
    if node_name:
        spec["nodeName"] = node_name
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec, "status": status}


def owned(name: str, node_name: str) -> JSON:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-web", "controller": True}
    return pod(name, node_name, uid=f"u-{name}", namespace="default", ownerReferences=[owner])


def deployment(name: str, replicas: int) -> JSON:
    labels = {"app": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def written(path: Path, *objects: JSON) -> Path:
    path.write_text(yaml.safe_dump_all(objects))
    return path


# -- owners that are not in the input ----------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--from", "-f"])
def test_pods_whose_owner_is_not_in_a_dump_are_kept_by_the_controllers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    dump = written(tmp_path / "dump.yaml", node("n1"), owned("web-1", "n1"), owned("web-2", "n1"))
    assert main(["simulate", option, str(dump), "--controllers", "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["totals"]["placed"] == 2
    assert (
        "2 pods are owned by objects that are not in the input (ReplicaSet web): they are kept, and nothing"
        in captured.err
    )


def test_pods_of_an_imported_dump_are_marked_for_the_clusters_that_are_made_from_it(tmp_path: Path) -> None:
    dump = written(tmp_path / "dump.yaml", node("n1"), owned("web-1", "n1"), pod("bare", "n1"))
    found = import_dump([dump])
    marked = [item.name for item in found.objects if "kubesched.io/owner-absent" in str(item.data)]
    assert marked == ["web-1"]


# -- failed nodes ------------------------------------------------------------------------------------------


def test_a_failed_nodes_resources_and_pods_do_not_count() -> None:
    failed = node("n2", annotations={"kubesched.io/failed": "true"})
    result = kubesched.simulate([node("n1"), failed, pod("a", "n1"), pod("b", "n2")], until=20)
    assert [(one.name, one.status) for one in result.nodes] == [("n1", "Ready"), ("n2", "NotReady")]
    totals = result.totals
    assert (totals.pods, totals.placed, totals.on_failed_nodes, totals.pending) == (2, 1, 1, 0)
    cpu = result.resources[0]
    assert (cpu.allocatable, cpu.requested) == (4000, 1000)
    assert result.series.allocatable["cpu"][-1] == 4000
    assert [one.name for one in result.placements] == ["a"]
    assert result.table("nodes")["status"][-1] == "NotReady"


def test_failed_nodes_lose_their_pods_without_controllers_too() -> None:
    failed = node("n2", annotations={"kubesched.io/failed": "true"})
    result = kubesched.simulate([node("n1"), failed, deployment("web", 6)], until="1h")
    assert result.totals.placed + result.totals.pending + result.totals.on_failed_nodes == result.totals.pods
    assert {one.node for one in result.placements} == {"n1"}
    assert any("are not replaced" in text and "--controllers" in text for text in result.warnings)


# -- amounts, zones, durations -----------------------------------------------------------------------------


def test_an_amount_of_the_hollow_nodes_is_refused_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    manifests = written(tmp_path / "pods.yaml", pod("a"))
    assert main(["simulate", "-f", str(manifests), "--nodes", "200", "--node-cpu", "many"]) == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "--node-cpu many" in error


def test_zones_have_the_same_names_everywhere() -> None:
    result = kubesched.simulate([pod("a")], nodes=2, zones=2)
    assert [one.zone for one in result.nodes] == ["zone-a", "zone-b"]


@pytest.mark.parametrize("where", ["pod", "template"])
def test_a_bad_duration_is_an_error_as_a_bad_arrival_is(where: str) -> None:
    annotations = {"kubesched.io/duration": "-2h" if where == "pod" else "soon"}
    bad = pod("a", annotations=annotations) if where == "pod" else deployment("a", 1)
    if where == "template":
        bad["spec"]["template"]["metadata"]["annotations"] = annotations
    place = "metadata" if where == "pod" else "spec.template.metadata"
    with pytest.raises(ManifestError) as found:
        kubesched.simulate([bad], nodes=1)
    assert f"{place}.annotations[kubesched.io/duration]: {annotations['kubesched.io/duration']!r} is" in str(
        found.value
    )


# -- progress, traces --------------------------------------------------------------------------------------


def test_a_long_run_tells_its_progress_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, now = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with console.progress_bar("pods bound") as bar:
        for done in range(1, 31):
            now[0] += 1.0
            bar.update(done, 100)
    assert stderr.getvalue().splitlines() == [f"kubesched: pods bound: {done} of 100" for done in (10, 20, 30)]


def test_progress_is_told_while_pods_are_tried_in_vain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_LINE_SECONDS", 0.0)
    file = written(tmp_path / "pods.yaml", *(pod(f"p{number}", cpu="9") for number in range(3)))
    assert main(["simulate", "-f", str(file), "--nodes", "1"]) == 0
    assert capsys.readouterr().err.count("kubesched: pods bound: 0") >= 3


def test_pods_of_a_table_have_a_workload() -> None:
    table = "name,count,cpu,workload\ntrain,2,1,\nsingle,1,1,\nextra,1,1,nightly\n"
    result = kubesched.simulate(parse_table(table, "pods.csv"), nodes=2)
    found = dict(zip(result.table("pods")["name"], result.table("pods")["workload"], strict=True))
    assert found == {
        "train-0": "Trace/train",
        "train-1": "Trace/train",
        "single": "Trace/pods",
        "extra": "Trace/nightly",
    }


def deployed(name: str, node_name: str) -> JSON:
    """Pod of the Deployment ``web``, as a dump without ReplicaSets has it."""
    labels = {"app": "web", "pod-template-hash": "abc12"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc12", "uid": "u-set", "controller": True}
    return pod(name, node_name, uid=f"u-{name}", namespace="default", labels=labels, ownerReferences=[owner])


def test_a_deployment_without_its_replica_set_gets_it_back() -> None:
    web = deployment("web", 3)
    web["metadata"] |= {"uid": "u-web", "namespace": "default"}
    pods = [deployed("web-abc12-x", "n1"), deployed("web-abc12-y", "n1")]
    result = kubesched.simulate([node("n1"), web, *pods], controllers=True)
    assert result.totals.placed == 3  # the two, and the one that is missing
    assert {one.workload for one in result.placements} == {"Deployment/web"}
    assert {"web-abc12-x", "web-abc12-y"} < {one.name for one in result.placements}
    assert not any("owned by objects" in text for text in result.warnings)
