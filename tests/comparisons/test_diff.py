"""Comparisons: which pods differ and why, between results, clusters and recorded runs, in all forms of output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import kubesched
from kubesched.cli.main import main
from kubesched.cluster.files import ManifestError
from kubesched.lab.comparisons import Comparison
from kubesched.lab.simulate.results.report import render_yaml

JSON = dict[str, Any]


def node(name: str, cpu: str = "4") -> JSON:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}


def pod(name: str, cpu: str = "1", node_name: str = "", duration: str = "", exit_: str = "") -> JSON:
    spec: JSON = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
    status: JSON = {}
    if node_name:
        spec["nodeName"] = node_name
        status = {"phase": "Running"}
    given = {"kubesched.io/duration": duration, "kubesched.io/exit": exit_}
    metadata: JSON = {"name": name, "annotations": {key: value for key, value in given.items() if value}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def deployment(name: str, replicas: int) -> JSON:
    labels = {"app": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def kinds(comparison: Comparison) -> dict[str, str]:
    return {one.pod.removeprefix("default/"): one.kind for one in comparison.pods}


def figure(comparison: Comparison, name: str) -> tuple[Any, Any]:
    [found] = [one for one in comparison.figures if one.name == name]
    return found.a, found.b


def written(path: Path, *objects: JSON) -> Path:
    path.write_text(yaml.safe_dump_all(objects))
    return path


def test_equal_results_do_not_differ() -> None:
    results = [kubesched.simulate([pod("a"), pod("b")], nodes=2) for _ in range(2)]
    comparison = kubesched.diff(*results)
    assert comparison.pods == []
    assert comparison.counts["same"] == 2
    assert not comparison.differs


def test_pods_are_lost_gained_and_only_on_one_side_with_the_reason() -> None:
    a = kubesched.simulate([node("n", "2"), pod("first", "2"), pod("second", "1"), pod("gone")])
    b = kubesched.simulate([node("n", "3"), pod("first", "4"), pod("second", "1"), pod("new")])
    comparison = kubesched.diff(a, b, names=("before", "after"))
    assert kinds(comparison) == {"first": "lost", "second": "gained", "gone": "onlyA", "new": "onlyB"}
    by_name = {one.pod: one for one in comparison.pods}
    assert by_name["default/first"].why.startswith(
        "in after: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu"
    )
    assert by_name["default/second"].why.startswith("in before: Unschedulable: ")
    assert (by_name["default/first"].a, by_name["default/first"].b) == ("n", "")
    assert figure(comparison, "pending") == (2, 1)
    assert comparison.differs


def test_moves_are_explained_by_nodes_that_are_gone_or_cordoned() -> None:
    a = kubesched.simulate([node("old"), node("x", "1"), pod("p", "3")])
    cordoned = {**node("old"), "spec": {"unschedulable": True}}
    for nodes, why in (
        ([node("new")], "B has no node old"),
        ([cordoned, node("new")], "old is Ready,SchedulingDisabled in B"),
    ):
        comparison = kubesched.diff(a, kubesched.simulate([*nodes, pod("p", "3")]))
        [moved] = comparison.pods
        assert (moved.kind, moved.a, moved.b, moved.why) == ("moved", "old", "new", why)


def test_drained_and_preempted_pods_say_so() -> None:
    objects = [node("n"), pod("p")]
    events = [{"at": 5, "do": "drain", "nodes": "n", "force": True}]
    [lost] = kubesched.diff(kubesched.simulate(objects), kubesched.simulate(objects, events=events)).pods
    assert (lost.kind, lost.why) == ("lost", "in B: evicted by the drain after 5 s")


def test_ends_and_waits_differ() -> None:
    def run(first: str, exit_: str) -> kubesched.SimulationResult:
        return kubesched.simulate([node("n"), pod("a", "4", duration=first, exit_=exit_), pod("b", "4", duration="1m")])

    comparison = kubesched.diff(run("10s", "Succeeded"), run("1h", "Failed"))
    assert kinds(comparison) == {"a": "outcome", "b": "wait"}
    assert comparison.pods[0].why == "Succeeded in A, Failed in B"
    assert comparison.pods[1].wait_b == pytest.approx(3601, abs=2)


def test_pods_whose_names_controllers_made_up_are_matched_by_workload() -> None:
    nodes = [node(f"n{number}") for number in range(3)]
    results = [kubesched.simulate([*nodes, deployment("web", size)], controllers=True, seed=size) for size in (5, 6)]
    comparison = kubesched.diff(*results)
    assert comparison.counts["onlyB"] == 1
    assert comparison.counts["onlyA"] == comparison.counts["lost"] == 0
    assert sum(comparison.counts.values()) == 6
    [workload] = comparison.workloads
    assert (workload.workload, workload.zones_a, workload.zones_b) == ("Deployment/web", {"": 5}, {"": 6})
    assert (workload.nodes_a, workload.nodes_b) == (3, 3)
    again = kubesched.diff(results[0], kubesched.simulate([*nodes, deployment("web", 5)], controllers=True, seed=9))
    assert again.workloads == []
    assert comparison.table("workloads")["zones_b"] == [{"": 6}]
    assert "<td>6 on 3 nodes</td>" in comparison.to_html().replace(' class="t"', "")


def test_dumps_are_compared_as_they_stand(tmp_path: Path) -> None:
    a = written(tmp_path / "a.yaml", node("n1"), node("n2"), pod("p", "1", "n1"), pod("q", "1", "n1"))
    b = written(tmp_path / "b.yaml", node("n1"), node("n2"), pod("p", "1", "n2"), pod("q", "5"))
    comparison = kubesched.diff(a, str(b))
    assert (comparison.a.form, comparison.b.form) == ("cluster", "cluster")
    assert kinds(comparison) == {"p": "moved", "q": "lost"}
    assert figure(comparison, "requested cpu") == (0.25, 0.125)
    assert "Insufficient cpu" in next(one.why for one in comparison.pods if one.kind == "lost")
    same = kubesched.diff(a, kubesched.simulate([node("n1"), node("n2"), pod("p", "1", "n1"), pod("q", "1", "n1")]))
    assert same.pods == []


def test_recorded_runs_say_which_score_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = written(tmp_path / "c.yaml", node("big", "64"), node("small", "4"), pod("p"))
    packing = Path(__file__).parents[2] / "examples/config/packing.yaml"
    for name, more in (("a", []), ("b", ["--config", str(packing)])):
        assert main(["simulate", "-f", str(cluster), "--decisions", str(tmp_path / name), "-q", *more]) == 0
    capsys.readouterr()
    comparison = kubesched.diff(tmp_path / "a", tmp_path / "b")
    [moved] = comparison.pods
    assert (moved.kind, moved.a, moved.b) == ("moved", "big", "small")
    assert "small has " in moved.why
    assert "most by NodeResourcesFit (+" in moved.why
    assert figure(comparison, "succeeded") == (None, None)
    assert len(comparison.warnings) == 2


def test_the_command_prints_figures_and_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, page = tmp_path / "a.json", tmp_path / "b.yaml", tmp_path / "diff.html"
    a.write_text(kubesched.simulate([node("n", "2"), pod("p", "2")]).to_json())
    b.write_text(render_yaml(kubesched.simulate([node("n", "1"), pod("p", "2")])))
    assert main(["diff", str(a), str(b), "--report", str(page), "--exit-code"]) == 1
    out = capsys.readouterr().out
    assert "\nplaced" in out
    assert "1 placed in A, not in B\n  default/p  n → -: in " in out
    assert page.read_text().count("<table>") == 2
    assert main(["diff", str(a), str(b), "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert msgspec.convert(data, Comparison).counts["lost"] == 1
    assert main(["diff", str(a), str(a), "--exit-code"]) == 0


def test_views_in_python() -> None:
    comparison = kubesched.diff(kubesched.simulate([pod("<b>")], nodes=1), kubesched.simulate([], nodes=1))
    assert len(repr(comparison).splitlines()) <= 5
    assert set(comparison.table()) == {"pod", "kind", "workload", "a", "b", "wait_a", "wait_b", "why"}
    assert set(comparison.table("figures")) == {"name", "a", "b"}
    assert "<b>" not in comparison._repr_html_()
    with pytest.raises(ValueError, match="there are pods, figures"):
        comparison.table("nodes")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "SimulationResult", "seed": ', "is no result: "),
        ('{"kind": "SimulationResult", "seed": "x"}', "is no result of kubesched simulate -o json or yaml: "),
        ("", "has no objects; expected a result, a file of decisions, a dump"),
    ],
)
def test_a_side_that_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(ManifestError) as found:
        kubesched.diff(tmp_path / "a", tmp_path / "a")
    assert message in str(found.value)
    assert str(tmp_path / "a") in str(found.value)
