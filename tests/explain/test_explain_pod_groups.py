"""Explanations of pod groups: the numbers are those of the group's trials, and what would help does help when it is done."""

from __future__ import annotations

import asyncio
import json
import random
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import json as wire

import kubesched
from builders import create_nodes
from kubesched.api.kinds import NODES, POD_GROUPS, PODS
from kubesched.base.lines import printable
from kubesched.cli.explain_server import explanation_from_server
from kubesched.cluster.files import Manifests, parse_manifests
from kubesched.cluster.kubelets import node_template
from kubesched.explain.live import LivePages
from kubesched.explain.pod_groups import GroupExplainer
from kubesched.explain.report import Explanation, PodGroupReport
from kubesched.explain.text import explanation_lines
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.standing import explain_standing
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.config import FeatureGates, default_config
from kubesched.scheduler.plugins import in_tree_registry

JSON = dict[str, Any]
GATES = FeatureGates.parse("AllPodGroups=true")


def a_node(name: str, cpu: int, rack: str = "") -> JSON:
    labels = {"kubernetes.io/hostname": name, **({"rack": rack} if rack else {})}
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }


def a_pod(name: str, cpu: int, group: str = "", **spec: Any) -> JSON:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    given: JSON = {"containers": [container], **spec}
    if group:
        given["schedulingGroup"] = {"podGroupName": group}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": given}


def a_group(name: str, least: int | None, key: str = "", **spec: Any) -> JSON:
    policy: JSON = {"basic": {}} if least is None else {"gang": {"minCount": least}}
    constraints = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, **constraints, **spec},
    }


def a_gang(members: int, cpu: int, *, key: str = "", least: int | None = None, **spec: Any) -> list[JSON]:
    group = a_group("g", members if least is None else least, key)
    return [group, *(a_pod(f"g-{number}", cpu, "g", **spec) for number in range(members))]


def read(objects: Sequence[JSON]) -> Manifests:
    return parse_manifests("\n---\n".join(json.dumps(one) for one in objects))


def explained(objects: Sequence[JSON], *names: str) -> Explanation:
    found = explain_standing(
        read(objects), names, registry=in_tree_registry(), config=default_config(gates=GATES), gates=GATES
    )
    return found.document


def group_of(objects: Sequence[JSON]) -> PodGroupReport:
    document = explained(objects)
    assert document.pending == []
    return document.pod_groups[0]


def placed(objects: Sequence[JSON]) -> dict[str, str]:
    """Return the nodes of the group's members after a simulation, by name."""
    result = kubesched.simulate(list(objects), gates="AllPodGroups=true")
    return {one.name: one.node for one in result.placements if one.name.startswith("g-")}


RACKS = [a_node("a1", 4, "a"), a_node("a2", 4, "a"), a_node("b1", 4, "b"), a_node("b2", 2, "b")]


def test_the_nearest_placement_comes_first_and_the_next_member_names_what_it_lacks() -> None:
    report = group_of([*RACKS, a_pod("old", 2, nodeName="a1"), *a_gang(4, 2, key="rack")])
    assert report.state == "Unschedulable"
    assert [(one.name, one.nodes, one.fit, one.lacking) for one in report.placements] == [
        ("a", 2, 3, 1),
        ("b", 2, 3, 1),
    ]
    assert (report.members, report.queued, report.min_count, report.fit, report.lacking) == (4, 4, 4, 3, 1)
    assert report.summary == (
        "gang of 4 waits: 3 fit, 1 lacks cpu in a; the nearest rack that would hold all of it is a after evicting default/old"
    )
    assert report.next == "default/g-3"
    assert [one.plugin for one in report.obstacles] == ["NodeResourcesFit"]
    assert report.obstacles[0].examples == ["a1", "a2"]


@pytest.mark.parametrize("seed", range(4))
def test_numbers_are_those_of_the_nodes_and_proposals_hold_in_a_simulation(seed: int) -> None:
    rng = random.Random(seed)
    cpus = {f"{rack}{number}": rng.randint(2, 6) for rack in "abc" for number in range(2)}
    nodes = [a_node(name, cpu, name[0]) for name, cpu in cpus.items()]
    used = dict.fromkeys(cpus, 0)
    old = []
    for number in range(8):
        name = rng.choice(list(cpus))
        if used[name] < cpus[name]:
            used[name] += 1
            old.append(a_pod(f"old-{number}", 1, nodeName=name))
    gang = a_gang(rng.randint(3, 5), 2, key="rack")
    objects, members = [*nodes, *old, *gang], len(gang) - 1
    report = group_of(objects)
    free = {rack: sum((cpus[name] - used[name]) // 2 for name in cpus if name[0] == rack) for rack in "abc"}
    assert {one.name: one.fit for one in report.placements} == {rack: min(members, n) for rack, n in free.items()}
    if report.state == "Waiting":
        assert len(placed(objects)) == members
        return
    assert report.state == "Unschedulable"
    assert placed(objects) == {}
    if report.evictions is not None:
        gone = {key.partition("/")[2] for key in report.evictions.pods}
        left = [one for one in objects if one["metadata"]["name"] not in gone]
        assert {node[0] for node in placed(left).values()} == {report.evictions.placement}
        for name in gone:  # none of them is needless
            assert placed([*left, next(one for one in old if one["metadata"]["name"] == name)]) == {}
    for new in report.new_nodes:
        assert new.placement == report.placements[0].name
        more = [a_node(f"new-{number}", cpus[new.like], new.placement) for number in range(new.count)]
        assert len(placed([*objects, *more])) == members
        assert placed([*objects, *more[1:]]) == {}
    least = [one for one in report.remedies if "minCount" in one.changes[0]]
    for one in least:
        assert len(placed([*nodes, *old, *a_gang(members, 2, key="rack", least=one.fit)])) >= one.fit


def test_the_document_has_names_of_json() -> None:
    report = group_of([*RACKS, a_pod("old", 2, nodeName="a1"), *a_gang(4, 2, key="rack")])
    assert json.loads(wire.encode(report))["evictions"] == {
        "placement": "a",
        "pods": ["default/old"],
        "nodes": ["a1"],
        "lowerPriority": False,
    }


def test_a_smaller_request_of_each_member_is_the_least_that_helps() -> None:
    objects = [a_node("n1", 6), a_node("n2", 6), *a_gang(4, 5)]
    report = group_of(objects)
    assert (report.fit, report.lacking, report.topology) == (2, 2, "")
    assert "let each member ask for 2 less cpu" in [text for one in report.remedies for text in one.changes]
    assert len(placed([*objects[:2], *a_gang(4, 3)])) == 4
    assert placed([*objects[:2], *a_gang(4, 4)]) == {}


def test_without_its_topology_a_gang_may_fit() -> None:
    objects = [*RACKS, *a_gang(6, 2, key="rack")]
    report = group_of(objects)
    assert ["make the group again without the topology constraint rack"] in [one.changes for one in report.remedies]
    assert len(placed([*RACKS, *a_gang(6, 2)])) == 6


def test_evictions_of_lower_priority_come_before_fewer_of_others() -> None:
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100},
    ]
    low = [a_pod(f"low-{number}", 2, nodeName="n1") for number in range(2)]
    high = [a_pod("top", 4, nodeName="n2", priorityClassName="high")]
    gang = [
        a_group("g", 2, priorityClassName="high"),
        *(a_pod(f"g-{n}", 2, "g", priorityClassName="high") for n in "01"),
    ]
    objects = [*classes, a_node("n1", 4), a_node("n2", 4), *low, *high, *gang]
    report = group_of(objects)
    assert report.evictions is not None
    assert report.evictions.pods == ["default/low-0", "default/low-1"]
    assert report.evictions.lower_priority
    # The scheduler evicts them by itself.
    assert len(placed(objects)) == 2


def test_a_gang_waits_for_members_and_says_how_many_of_those_that_exist_would_fit() -> None:
    objects = [a_node("n1", 8), *a_gang(2, 2, least=4)]
    report = group_of(objects)
    assert (report.state, report.members, report.queued, report.fit, report.lacking) == ("Incomplete", 2, 2, 2, 2)
    assert report.summary == "gang of 2 waits: 2 members of 4 exist, 2 fit"
    assert report.hints == ["create 2 more members", "make the group again with minCount 2: the group would fit"]
    assert len(placed([a_node("n1", 8), *a_gang(4, 2)])) == 4


def test_gated_members_are_counted_and_the_group_is_tried_without_their_gates() -> None:
    gated = a_pod("g-1", 2, "g", schedulingGates=[{"name": "example.com/wait"}])
    objects = [a_node("n1", 8), a_group("g", 2), a_pod("g-0", 2, "g"), gated]
    report = group_of(objects)
    assert (report.state, report.queued, report.gated) == ("SchedulingGated", 1, 1)
    assert report.hints[0] == "remove the scheduling gates: the group would fit"
    tight = group_of([a_node("n1", 3), *objects[1:]])
    assert not any("gates" in hint for hint in tight.hints)


def test_a_group_that_does_not_exist_is_named_by_its_pods() -> None:
    report = group_of([a_node("n1", 8), a_pod("g-0", 2, "g")])
    assert (report.state, report.hints) == (
        "Missing",
        ["create the PodGroup default/g (a dump without podgroups lacks it, too)"],
    )
    assert report.summary == "1 pod waits for the PodGroup default/g, which does not exist"


def test_basic_groups_count_all_members() -> None:
    objects = [a_node("n1", 4), a_group("g", None), *(a_pod(f"g-{number}", 2, "g") for number in range(3))]
    report = group_of(objects)
    assert (report.state, report.policy, report.fit, report.lacking) == ("Unschedulable", "basic", 2, 1)


def test_a_group_or_a_member_is_asked_for_by_name() -> None:
    objects = [a_node("n1", 2), *a_gang(2, 2)]
    by_name = explained(objects, "default/g")
    assert ([one.group for one in by_name.pod_groups], by_name.pending, by_name.absent) == (["default/g"], [], [])
    member = explained(objects, "default/g-1")
    assert [one.group for one in member.pod_groups] == ["default/g"]
    assert [one.pods for one in member.pending] == [["default/g-1"]]
    lines = [printable(line.text) for line in explanation_lines(member)]
    assert lines.index("Pod groups") < lines.index("Pending")
    assert explained(objects, "default/none").absent == ["default/none"]


def test_without_the_gates_nothing_is_about_groups() -> None:
    objects = [a_node("n1", 2), a_pod("g-0", 4, "g")]
    found = explain_standing(read(objects), registry=in_tree_registry(), config=default_config())
    assert found.document.pod_groups == []
    assert found.document.pending[0].pods == ["default/g-0"]


def test_explanations_change_nothing_of_a_simulation() -> None:
    nodes = [
        *(a_node(f"a{number}", 4, "a") for number in range(4)),
        *(a_node(f"b{number}", 4, "b") for number in range(4)),
    ]
    objects = [*nodes, *a_gang(6, 4, key="rack")]
    later = [a_group("h", 4, "rack"), *(a_pod(f"h-{number}", 2, "h") for number in range(4))]

    def run(ask: bool) -> str:
        with kubesched.Simulation(objects, gates="AllPodGroups=true", seed=3) as simulation:
            if ask:
                document = simulation.explain("g")
                assert [one.state for one in document.pod_groups] == ["Unschedulable"]
                assert document.pod_groups[0].evictions is None
            simulation.create(later)
            simulation.advance(10)
            if ask:
                assert [one.state for one in simulation.explain("h-0").pod_groups] == ["Scheduled"]
                assert [one.group for one in simulation.explain().pod_groups] == ["default/g"]
            simulation.create([a_node(f"a{number}", 4, "a") for number in (4, 5, 6)])
            problems = check_cache(simulation.embedded.scheduler.cache)
            assert problems == []
            return simulation.run().to_json()

    assert run(ask=True) == run(ask=False)


def test_a_live_scheduler_answers_about_groups() -> None:
    async def run() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        config = default_config(gates=GATES)
        embedded = Embedded(config, in_tree_registry(), clock=clock, gates=GATES)
        pages = LivePages(embedded.scheduler)
        create_nodes(embedded.store, 2, node_template(cpu="4"))
        async with embedded.running():
            embedded.store.create(POD_GROUPS, "default", a_group("g", 3))
            for number in range(3):
                embedded.store.create(PODS, "default", a_pod(f"g-{number}", 3, "g"))
            await asyncio.sleep(20)
            for path in ("pods/default/g", "podgroups/default/g", "pending"):
                answer = await pages.answer(f"/explain/{path}", {}, "application/json")
                document = wire.decode(answer.body, type=Explanation)
                assert [(one.group, one.fit, one.lacking) for one in document.pod_groups] == [("default/g", 2, 1)]
                assert document.pending == []
                on_the_wire = json.loads(answer.body)["podGroups"][0]
                assert on_the_wire["newNodes"][0]["count"] == 1
                assert on_the_wire["minCount"] == 3
                assert "pod group is unschedulable" in document.pod_groups[0].message
            text = await pages.answer("/explain/pending", {}, "text/plain")
            assert text.body.startswith(b"Pod groups\ndefault/g: Unschedulable\n")
            absent = await pages.answer("/explain/podgroups/default/none", {}, "application/json")
            assert (absent.status, absent.body) == (404, b"no pod group is named default/none\n")

    run_virtual(run())


def test_the_cluster_may_change_between_the_steps_of_an_explanation() -> None:
    async def run() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(default_config(gates=GATES), in_tree_registry(), clock=clock, gates=GATES)
        for name in ("a1", "a2", "b1", "b2", "c1"):
            embedded.store.create(NODES, "", a_node(name, 4, name[0]))
        async with embedded.running():
            for number in range(10):
                embedded.store.create(PODS, "default", a_pod(f"old-{number}", 1))
            await asyncio.sleep(1)
            embedded.store.create(POD_GROUPS, "default", a_group("g", 4, "rack"))
            for number in range(4):
                embedded.store.create(PODS, "default", a_pod(f"g-{number}", 2, "g"))
            await asyncio.sleep(20)
            steps = GroupExplainer(embedded.scheduler).explaining(["default/g"])
            gone = [(PODS, "default", f"old-{number}") for number in range(10)]
            gone[1:1] = [(NODES, "", "a1"), (PODS, "default", "g-0"), (NODES, "", "c1")]
            reports = None
            while reports is None:
                try:
                    next(steps)
                except StopIteration as done:
                    reports = done.value
                assert check_cache(embedded.scheduler.cache) == []
                if gone:
                    kind, namespace, name = gone.pop(0)
                    embedded.store.delete(kind, namespace, name, grace_period_seconds=0)
                await asyncio.sleep(0)
            (report,) = reports
            assert "the group changed while it was explained" in report.remarks

    run_virtual(run())


def test_members_of_one_group_asked_of_a_server_have_one_entry_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    document = explained([a_node("n1", 2), *a_gang(2, 2)], "default/g-0")
    monkeypatch.setattr("kubesched.cli.explain_server._ask", lambda options, path, query: document)
    found = explanation_from_server(Namespace(node=[], server="", request_timeout=30.0), ["default/g-0", "default/g-1"])
    assert [one.group for one in found.pod_groups] == ["default/g"]
    assert len(found.pending) == 2


def test_what_was_not_tried_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.explain.pod_groups.engine.MOST_OF_GROUP", 7)
    report = group_of([*RACKS, *a_gang(5, 2, key="rack")])
    assert (report.placements_tried, [one.name for one in report.placements]) == (1, ["a"])
    assert report.remarks[0] == "only 1 of 2 placements were tried"
    assert "not every change was tried" in report.remarks[-1]
