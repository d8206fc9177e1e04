"""Pod groups in results of simulations: table, text, HTML and Python; nothing without groups."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import kubesched
from kubesched.base.lines import printable
from kubesched.cli.main import main
from kubesched.lab.simulate.results.html_report import render_html
from kubesched.lab.simulate.results.report import render_table

EXAMPLE = Path(__file__).parents[2] / "examples" / "gang"
GATES = "AllPodGroups=true"
JSON = dict[str, Any]


def a_node(name: str, cpu: str) -> JSON:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}


def a_group(name: str, least: int) -> JSON:
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
    return {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def a_pod(name: str, group: str = "", duration: str = "") -> JSON:
    spec: JSON = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    annotations = {"kubesched.io/duration": duration} if duration else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


def test_groups_have_their_members_their_placement_and_the_reason_why_they_wait() -> None:
    result = kubesched.simulate(EXAMPLE, gates=GATES)
    rows = [
        (one.name, one.members, one.min_count, one.placed, one.waiting, one.placement, one.nodes)
        for one in result.groups
    ]
    assert rows == [
        ("large", 4, 4, 4, 0, "rack-1", 4),
        ("small", 2, 2, 2, 0, "rack-2", 2),
        ("waiting", 3, 3, 0, 3, "", 0),
    ]
    assert [one.why is not None for one in result.groups] == [False, False, True]
    assert {pod.group for pod in result.pods} == {"large", "small", "waiting"}
    lines = [printable(line.text) for line in render_table(result)]
    head = lines.index("Pod groups")
    assert lines[head + 2].split()[:7] == ["default", "waiting", "gang", "3", "3", "0", "3"]
    assert "Waiting pod groups" in lines
    assert "Pending" not in lines
    page = render_html(result)
    assert "<td>waiting</td><td>gang</td><td>3</td>" in page
    assert "3 lack nvidia.com/gpu" in page


def test_the_wait_of_a_gang_ends_when_its_last_needed_member_is_bound() -> None:
    first = [a_pod(f"first-{number}", duration="100s") for number in range(2)]
    gang = [a_group("g", 2), a_pod("g-0", "g", "50s"), a_pod("g-1", "g", "50s")]
    result = kubesched.simulate([a_node("n1", "2"), *first, *gang], gates=GATES)
    (group,) = result.groups
    assert (group.placed, group.waiting, group.since, group.why) == (2, 0, 0.0, None)
    assert group.bound is not None
    assert group.bound >= 100
    assert group.wait == group.bound
    assert {pod.bound for pod in result.pods if pod.group} == {group.bound}


def test_a_group_without_members_has_no_times() -> None:
    with kubesched.Simulation([a_node("n1", "2"), a_group("empty", 2)], gates=GATES) as simulation:
        (group,) = simulation.run().groups
        assert (group.name, group.members, group.since, group.wait) == ("empty", 0, None, None)


def test_the_table_of_groups_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "groups.csv"
    assert main(["simulate", "-f", str(EXAMPLE), "--feature-gates", GATES, "--save", f"groups={file}", "-q"]) == 0
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["name"], row["placed"], row["min_count"]) for row in rows] == [
        ("large", "4", "4"),
        ("small", "2", "2"),
        ("waiting", "0", "3"),
    ]
    assert rows[2]["why"].startswith("gang of 3 waits: 0 fit")


@pytest.mark.parametrize("gates", ["", GATES])
def test_without_groups_nothing_is_shown(gates: str) -> None:
    result = kubesched.simulate([a_node("n1", "2"), a_pod("p")], gates=gates)
    assert result.groups == []
    assert not any("group" in line.text.lower() for line in render_table(result))
    assert "group" not in render_html(result).lower()
    assert result.table("groups")["name"] == []
