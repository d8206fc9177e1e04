"""Capacity and plans: what is counted, what is told, and that a simulation stays as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kubesched
from kubesched.cli.main import main
from kubesched.cluster.files import ManifestError
from planning_kit import node, pod

GROUPS = """\
apiVersion: kubesched.io/v1alpha1
kind: NodeGroup
metadata: {name: small}
spec: {resources: {cpu: 2, memory: 8Gi}, price: 0.1, zones: [a, b]}
---
apiVersion: kubesched.io/v1alpha1
kind: NodeGroup
metadata: {name: large}
spec: {resources: {cpu: 8, memory: 32Gi}, price: 0.36, zones: [a, b]}
"""
JSON = dict[str, Any]


def _asking(cpu: str, name: str = "web", **spec: Any) -> JSON:
    return pod(name, {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}], **spec})


def _owned(cpu: str, name: str, app: str = "web", on: str = "") -> JSON:
    made = pod(name, _asking(cpu)["spec"] | ({"nodeName": on} if on else {}), app)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


NODES = [node(f"n{number}", zone, 4, 16) for number, zone in enumerate("abc")]


# -- capacity --------------------------------------------------------------------------------------------------


def test_what_stops_the_next_pod_is_explained_and_nodes_and_zones_add_up() -> None:
    found = kubesched.capacity(NODES, _asking("1500m"))
    (answer,) = found.answers
    assert (found.copies, answer.placed, answer.stopped) == (6, 6, "full")
    assert answer.stops[0].message == "0/3 nodes are available: 3 Insufficient cpu."
    assert [(one.node, one.pods) for one in answer.nodes] == [("n0", 2), ("n1", 2), ("n2", 2)]
    assert [(one.zone, one.pods) for one in answer.zones] == [("a", 2), ("b", 2), ("c", 2)]
    assert [(one.before, one.after) for one in answer.resources if one.name == "cpu"] == [(0, 9000)]


def test_pods_that_wait_in_the_cluster_are_placed_before() -> None:
    found = kubesched.capacity([*NODES, _asking("3", "first"), _asking("9", "never")], _asking("4"))
    assert (found.copies, found.pending) == (2, 1)


def test_a_workload_counts_with_its_replicas_and_a_mix_with_other_proportions() -> None:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": _asking("2")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "db"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "db"}, "spec": spec}
    asked = [_asking("1"), deployment]
    (answer,) = kubesched.capacity(NODES, asked).answers
    assert (answer.copies, [one.share for one in answer.pods]) == (2, [1, 2])
    (answer,) = kubesched.capacity(NODES, asked, mix={"web": 2, "db": 1}).answers
    assert (answer.copies, [one.placed for one in answer.pods]) == (2, [6, 2])
    alone = kubesched.capacity(NODES, asked, until_full=True).answers
    assert [(one.pods[0].name, one.copies) for one in alone] == [("web", 12), ("Deployment/db", 6)]


def test_a_pod_and_a_workload_of_one_name_are_one_mix() -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": _asking("1")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    (answer,) = kubesched.capacity(NODES, [_asking("2"), workload]).answers
    assert (answer.copies, [one.placed for one in answer.pods]) == (3, [3, 6])


def test_pods_with_claims_are_counted_by_a_run_in_which_their_volumes_are_made() -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    template = {"metadata": {"labels": {"app": "db"}}, "spec": _asking("2")["spec"]}
    spec = {"serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template}
    data = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}}
    (answer,) = kubesched.capacity(NODES, {**data, "spec": {**spec, "volumeClaimTemplates": [claim]}}).answers
    assert (answer.copies, answer.how, answer.why_run) == (6, "run", "the pod uses claims")


def test_with_preemption_pods_of_lower_priority_go() -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    low = [_owned("3", f"low-{number}") for number in range(2)]
    asked = [_asking("4", priorityClassName="high"), high]
    (answer,) = kubesched.capacity([*NODES, *low], asked, preemption=True).answers
    assert answer.copies == 1
    assert answer.preempting is not None
    assert (answer.preempting.copies, answer.preempting.victims) == (3, 2)
    assert answer.preempting.evicted == {"ReplicaSet/web": 2}


def test_a_quota_stops_counting_and_is_named() -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    (answer,) = kubesched.capacity([*NODES, quota], _asking("1")).answers
    assert (answer.copies, answer.stopped) == (2, "refused")
    assert "exceeded quota: few" in answer.refused


def test_gated_pods_and_pods_of_another_scheduler_do_not_fit() -> None:
    (gated,) = kubesched.capacity(NODES, _asking("1", schedulingGates=[{"name": "wait"}])).answers
    assert (gated.copies, gated.stops[0].reason) == (0, "SchedulingGated")
    (other,) = kubesched.capacity(NODES, _asking("1", schedulerName="mine")).answers
    assert (other.copies, other.stopped) == (0, "refused")
    assert 'no profile is named "mine"' in other.refused


def test_counting_ends_at_the_most() -> None:
    (answer,) = kubesched.capacity(NODES, _asking("1"), most=5).answers
    assert (answer.copies, answer.stopped) == (5, "most")


def test_a_simulation_stays_as_it_is() -> None:
    with (
        kubesched.Simulation([*NODES, _asking("1", "old")]) as simulation,
        kubesched.Simulation([*NODES, _asking("1", "old")]) as other,
    ):
        assert simulation.capacity(_asking("1")).copies == 11
        assert simulation.capacity(_asking("1", "a"), until_full=True).copies == 11
        assert simulation.plan(GROUPS, _asking("5", "big")).counts == {"large": 1}
        assert simulation.embedded.check() == []
        assert [one.name for one in simulation.pods] == ["old"]
        simulation.create([_asking("1", f"p{number}") for number in range(5)])
        other.create([_asking("1", f"p{number}") for number in range(5)])
        assert [one.spec.node_name for one in simulation.pods] == [one.spec.node_name for one in other.pods]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([], "there is no pod to ask about"),
        ({**NODES[0]}, "pods: Node n0: nodes belong into the cluster"),
        (
            {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {}},
            "CronJob c: give its jobTemplate as a Job",
        ),
    ],
)
def test_what_cannot_be_asked_about_is_named(asked: Any, expected: str) -> None:
    with pytest.raises(ManifestError) as error:
        kubesched.capacity(NODES, asked)
    assert expected in str(error.value)


# -- plans -----------------------------------------------------------------------------------------------------


def test_the_cheapest_nodes_are_found_and_simulated() -> None:
    pods = [_asking("1500m", f"p{number}") for number in range(5)] + [
        _asking("500m", f"q{number}") for number in range(7)
    ]
    plan = kubesched.plan([], pods, groups=GROUPS)
    assert (plan.counts, plan.cost, plan.exact, plan.verified) == ({"small": 2, "large": 1}, 0.56, True, True)
    assert sum(len(one.pods) for one in plan.nodes) == plan.placed == 12
    assert repr(plan) == "<PlanResult: 2 small, 1 large, 0.56 per hour (the cheapest), for 12 of 12 pods>"


def test_a_large_plan_says_how_far_it_is_from_the_bound() -> None:
    pods = [_asking("1500m", f"p{number}") for number in range(60)] + [
        _asking("700m", f"q{number}") for number in range(40)
    ]
    plan = kubesched.plan([], pods, groups=GROUPS, effort=3_000)
    assert plan.verified
    assert 0 < plan.bound <= plan.cost < 1.2 * plan.bound


def test_pods_that_no_group_can_hold_are_told_apart_and_explained() -> None:
    plan = kubesched.plan([], [_asking("1"), _asking("20", "huge")], groups=GROUPS)
    assert (plan.counts, plan.placed, plan.wanted) == ({"small": 1}, 1, 2)
    assert [one.pods for one in plan.unplaced] == [["default/huge"]]


def test_nodes_come_in_steps_where_pods_would_spread_over_nodes_that_others_need_whole() -> None:
    groups = (
        GROUPS.split("---\n", maxsplit=1)[0].replace("cpu: 2", "cpu: 4").replace("price: 0.1,", "price: 0.1, max: 2,")
    )
    pods = [_asking("1", "a"), _asking("1", "b"), _asking("4", "whole")]
    plan = kubesched.plan([], pods, groups=groups)
    assert (plan.counts, plan.steps, plan.verified, plan.exact) == (
        {"small": 2},
        [{"small": 1}, {"small": 1}],
        True,
        False,
    )
    assert sorted(one.pods for one in plan.nodes) == [["default/a", "default/b"], ["default/whole"]]


def test_new_nodes_run_the_pods_of_daemon_sets_too() -> None:
    template = {"metadata": {"labels": {"app": "log"}}, "spec": _asking("500m")["spec"]}
    spec = {"selector": {"matchLabels": {"app": "log"}}, "template": template}
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "log"}, "spec": spec}
    assert kubesched.plan([], [_asking("2")], groups=GROUPS).counts == {"small": 1}
    assert kubesched.plan([daemon], [_asking("2")], groups=GROUPS).counts == {"large": 1}


def test_limits_of_a_pool_and_bounds_of_a_group_hold() -> None:
    limited = GROUPS.replace("price: 0.1,", "price: 0.1, pool: p, limits: {cpu: 4},")
    pods = [_asking("2", f"p{number}") for number in range(3)]
    assert kubesched.plan([], pods, groups=GROUPS).counts == {"small": 3}
    assert kubesched.plan([], pods, groups=limited).counts == {"large": 1}
    there = node("small-9", "a", 1, 1)
    there["metadata"]["labels"]["kubesched.io/node-group"] = "small"
    capped = GROUPS.replace("price: 0.1,", "price: 0.1, min: 2, max: 2,")
    assert kubesched.plan([there], pods, groups=capped).counts == {"small": 1, "large": 1}


def test_pods_with_claims_are_planned_for_by_runs() -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    plan = kubesched.plan([], [claim, _asking("3", volumes=volumes)], groups=GROUPS)
    assert (plan.counts, plan.exact, plan.verified) == ({"large": 1}, True, True)


def test_nodes_that_can_go_are_drained_within_budgets() -> None:
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}  # fmt: skip
    pods = [_owned("1", f"web-{number}", on=f"n{number}") for number in range(3)]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "uid": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": _asking("1")["spec"]}}}  # fmt: skip
    removal = kubesched.plan([*NODES, *pods, owner, budget], remove=True).removal
    assert removal is not None
    assert (len(removal.drains), removal.exact) == (2, True)
    assert {move.budget for drain in removal.drains for move in drain.moves} == {"web"}
    stays = {one.node for one in removal.kept}
    assert {move.to for drain in removal.drains for move in drain.moves} == stays
    strict = {**budget, "spec": {**budget["spec"], "minAvailable": 3}}  # type: ignore[dict-item]
    blocked = kubesched.plan([*NODES, *pods, owner, strict], remove=True).removal
    assert blocked is not None
    assert blocked.drains == []
    assert "budget web allows no eviction of default/web-0: 3 healthy, 3 needed" in {one.why for one in blocked.kept}


def test_pods_without_a_controller_keep_their_node() -> None:
    removal = kubesched.plan([*NODES, {**_asking("1", "alone")}], remove=True).removal
    assert removal is not None
    assert len(removal.drains) == 2
    assert [one.why for one in removal.kept] == ["pod default/alone has no controller: nothing would make it again"]


# -- commands --------------------------------------------------------------------------------------------------


def test_the_commands_write_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"pod.json": _asking("1"), "cluster.json": {"apiVersion": "v1", "kind": "List", "items": NODES}}
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data))
    (tmp_path / "groups.yaml").write_text(GROUPS)
    (tmp_path / "demand.csv").write_text("name,count,cpu,memory\nweb,15,1,1Gi\n")
    cluster = ["--cluster", str(tmp_path / "cluster.json")]
    assert main(["capacity", "-f", str(tmp_path / "pod.json"), *cluster, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["answers"][0]["copies"]) == ("Capacity", 12)
    assert main(["capacity", "--like", "default/web", *cluster, str(tmp_path / "pod.json"), "-o", "json"]) == 0
    [answer] = json.loads(capsys.readouterr().out)["answers"]
    assert (answer["pods"][0]["name"], answer["copies"]) == ("web", 11)
    groups = ["--node-groups", str(tmp_path / "groups.yaml")]
    assert main(["plan", *groups, "--demand", str(tmp_path / "demand.csv"), *cluster, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["cost"], document["placed"]) == ("Plan", 0.2, 3)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["capacity", "-f", "pod.json"],
            "give the cluster: --kubeconfig FILE, --from FILE (a dump or saved cluster), or --cluster MANIFESTS",
        ),
        (
            ["capacity", "-f", "pod.json", "--zones", "2", "--cluster", "pod.json"],
            "are about hollow nodes: add --nodes N",
        ),
        (
            ["capacity", "-f", "pod.json", "--nodes", "1", "--mix", "db=2"],
            "--mix db=2: no pod has this name; there are web",
        ),
        (["capacity", "-f", "pod.json", "--nodes", "1", "--mix", "db"], "must be NAME=VALUE: 'db'"),
        (["capacity", "--nodes", "1"], "give the pods: -f FILE, or --like POD, a pod of the cluster"),
        (
            ["capacity", "--like", "wep", "--cluster", "pod.json", "--nodes", "1"],
            "--like wep: the cluster has no pod of this name; did you mean web?",
        ),
        (
            ["capacity", "--like", "web", "--like", "default/web", "--cluster", "pod.json", "--nodes", "1"],
            "--like default/web: is given twice",
        ),
        (["plan", "--nodes", "1"], "give the kinds of nodes that can be added"),
        (
            ["plan", "--nodes", "1", "--group", "1:2:m5"],
            "--group: '1:2:m5': the catalogue has no row m5 with its price; it has no row at all",
        ),
        (
            ["plan", "--node-groups", "groups.yaml", "--demand", "demand.csv"],
            "demand.csv:2: column count: '-1': expected a whole number from 1 to 250000",
        ),
        (["plan", "--node-groups", "pod.json", "--nodes", "1"], "kind: 'Pod': expected NodeGroup"),
    ],
)
def test_mistakes_are_one_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    (tmp_path / "pod.json").write_text(json.dumps(_asking("1")))
    (tmp_path / "groups.yaml").write_text(GROUPS)
    (tmp_path / "demand.csv").write_text("name,count,cpu\nweb,-1,1\n")
    monkeypatch.chdir(tmp_path)
    try:
        code: object = main(arguments)
    except SystemExit as error:
        code = error.code
    assert code
    assert expected in capsys.readouterr().err
