"""Events by time: what they do to nodes and pods, with and without controllers, and the messages for bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kubesched
from kubesched.cli.main import main
from kubesched.cluster.files import ManifestError
from kubesched.lab.simulate.inputs.events import planned_events

JSON = dict[str, Any]


def node(name: str, zone: str = "z", cpu: str = "8") -> JSON:
    labels = {"topology.kubernetes.io/zone": zone, "pool": name[:1]}
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def deployment(name: str = "web", replicas: int = 4) -> JSON:
    labels = {"app": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def budget(least: int, name: str = "web") -> JSON:
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": name}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def pod(name: str, cpu: str = "1", arrival: str = "0s", **spec: Any) -> JSON:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "annotations": {"kubesched.io/arrival": arrival}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def where(result: kubesched.SimulationResult) -> set[str]:
    return {one.node for one in result.placements}


# -- drains ------------------------------------------------------------------------------------------------


def test_a_drain_moves_the_pods_and_the_node_stays_cordoned() -> None:
    events = [{"at": "1m", "do": "drain", "nodes": ["a"]}]
    result = kubesched.simulate([node("a"), node("b"), deployment()], events=events, controllers=True)
    [event] = result.events
    [drain] = event.drains
    assert (event.at, event.action, event.targets, event.undone) == (60.0, "drain", ["a"], None)
    assert drain.evicted
    assert drain.blocked == []
    assert drain.finished is not None
    assert where(result) == {"b"}
    assert result.totals.placed == 4
    assert [(one.name, one.status) for one in result.nodes] == [("a", "Ready,SchedulingDisabled"), ("b", "Ready")]
    assert result.warnings == []


def test_a_drain_respects_budgets_and_says_what_blocks_it() -> None:
    events = [{"at": "1m", "do": "drain", "nodes": ["a"]}]
    result = kubesched.simulate([node("a"), deployment(), budget(3)], events=events, controllers=True)
    [drain] = result.events[0].drains
    assert (len(drain.evicted), drain.finished, len(drain.blocked)) == (1, None, 3)
    assert {one.why for one in drain.blocked} == {
        "is blocked: The disruption budget web needs 3 healthy pods and has 3 currently"
    }
    assert any("the drain of node a, begun after 60 s, did not finish" in text for text in result.warnings)
    assert result.stopped == "settled"


def test_a_drain_goes_on_when_the_budget_allows_it_again() -> None:
    events = [{"at": "1m", "do": "drain", "nodes": ["a"], "for": "1h"}]
    result = kubesched.simulate([node("a"), node("b"), deployment(), budget(3)], events=events, controllers=True)
    [event] = result.events
    assert event.drains[0].finished is not None
    assert event.drains[0].finished > 65
    assert event.undone == 3660.0
    assert {one.status for one in result.nodes} == {"Ready"}
    assert result.totals.placed == 4


def test_pods_without_a_controller_block_a_drain_unless_it_is_forced() -> None:
    objects = [node("a"), pod("bare")]
    blocked = kubesched.simulate(objects, events=[{"at": 1, "do": "drain", "nodes": "a"}])
    assert "has no controller" in blocked.events[0].drains[0].blocked[0].why
    assert blocked.totals.placed == 1
    forced = kubesched.simulate(objects, events=[{"at": 1, "do": "drain", "nodes": "a", "force": True}])
    assert forced.totals.pods == 0
    assert any("1 evicted or deleted pods have no controller" in text for text in forced.warnings)
    assert forced.events[0].drains[0].evicted == ["default/bare"]


def test_without_controllers_the_difference_is_said() -> None:
    events = [{"at": "1m", "do": "drain", "nodes": ["a"]}]
    result = kubesched.simulate([node("a"), deployment()], events=events)
    assert result.totals.removed == 4
    assert [text for text in result.warnings if "4 evicted or deleted pods of" in text and "not replaced" in text]


# -- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("controllers", [False, True])
def test_a_zone_that_is_gone_for_two_hours(controllers: bool) -> None:
    nodes = [node("a1", "zone-a"), node("b1", "zone-b"), node("b2", "zone-b")]
    events = [{"at": "09:00", "do": "fail", "nodes": {"zone": "zone-b"}, "for": "2h"}]
    during = kubesched.simulate([*nodes, deployment()], events=events, controllers=controllers, until="10h")
    assert during.events[0].targets == ["b1", "b2"]
    assert [one.status for one in during.nodes] == ["Ready", "NotReady", "NotReady"]
    assert during.resources[0].allocatable == 8000
    assert where(during) == {"a1"}
    assert during.totals.placed == (4 if controllers else 4 - during.totals.on_failed_nodes)
    after = kubesched.simulate([*nodes, deployment()], events=events, controllers=controllers, until="12h")
    assert after.events[0].undone == 39_600.0
    assert {one.status for one in after.nodes} == {"Ready"}
    assert after.resources[0].allocatable == 24_000
    assert after.totals.on_failed_nodes == 0


# -- other changes -----------------------------------------------------------------------------------------


def test_nodes_are_resized_labelled_tainted_and_deleted() -> None:
    events = [
        {"at": 10, "do": "resize", "nodes": ["a"], "resources": {"cpu": 2}, "for": 100},
        {"at": 20, "do": "label", "nodes": ["b"], "labels": {"pool": "spot"}},
        {"at": 30, "do": "taint", "nodes": ["b"], "taints": [{"key": "k", "effect": "NoSchedule"}], "for": 100},
        {"at": 40, "do": "delete", "nodes": ["c"]},
    ]
    pods = [pod("large", "7", "1m"), pod("spot", "1", "1m", nodeSelector={"pool": "spot"})]
    result = kubesched.simulate([node("a"), node("b"), node("c"), *pods], events=events)
    bound = {one.name: (one.node, one.bound_at) for one in result.placements}
    assert bound["large"][0] in ("a", "b")
    assert bound["large"][1] == pytest.approx(110, abs=25)
    assert bound["spot"][0] == "b"
    assert bound["spot"][1] == pytest.approx(130, abs=5)
    assert [one.name for one in result.nodes] == ["a", "b"]
    assert [one.undone for one in result.events] == [110.0, None, 130.0, None]


def test_an_object_may_be_deleted_and_a_choice_is_random_by_the_seed() -> None:
    events = [
        {"at": 1, "do": "delete", "object": {"kind": "deployment", "name": "web"}},
        {"at": 2, "do": "cordon", "nodes": {"labels": {"pool": "n"}, "count": 2}},
    ]
    nodes = [node(f"n{number}") for number in range(9)]
    results = [kubesched.simulate([*nodes, deployment()], events=events, controllers=True, seed=s) for s in (1, 1, 2)]
    assert results[0].totals.pods == 0
    chosen = [one.events[1].targets for one in results]
    assert chosen[0] == chosen[1] != chosen[2]
    assert len(chosen[0]) == 2


def test_another_configuration_takes_over_while_the_run_goes_on() -> None:
    packing: JSON = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "pluginConfig": [
                    {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
                ],
                "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}},
            }
        ],
    }
    pods = [pod(f"p{number}", "1", f"{number}s") for number in range(8)]
    events = [{"at": "4500ms", "do": "configure", "config": packing, "for": "1h"}]
    result = kubesched.simulate([node("a"), node("b"), *pods], events=events)
    counts = sorted([one.node for one in result.placements].count(name) for name in ("a", "b"))
    assert counts == [2, 6]  # spread over both nodes at first, packed later
    assert result.totals.attempts == 8
    assert result.events[0].targets == ["scheduler"]
    assert result.resources[0].peak == 8000


# -- bad input ---------------------------------------------------------------------------------------------

_BAD: list[tuple[JSON | str, str]] = [
    ({"do": "drian", "nodes": ["a"]}, "events[0].do: 'drian': expected one of cordon, uncordon, drain"),
    ({"do": "drain", "at": "soon", "nodes": ["a"]}, "events[0].at: 'soon': expected seconds or a duration"),
    ({"do": "drain", "at": -1, "nodes": ["a"]}, "events[0].at: -1: expected seconds"),
    ({"do": "drain"}, "events[0].nodes: None: expected a list of names, or a mapping with names, zone"),
    ({"do": "drain", "nodes": {"zones": "a"}}, "events[0].nodes: {'zones': 'a'}: expected a list"),
    ({"do": "drain", "nodes": ["a"], "nods": 1}, "events[0].nods: is not known for drain; there are at, do, nodes"),
    ({"do": "fail", "nodes": ["a"], "for": "x"}, "events[0].for: 'x': expected a number of seconds"),
    ({"do": "fail", "nodes": {"count": 0}}, "events[0].nodes.count: 0: expected a whole number, 1 or more"),
    ({"do": "resize", "nodes": ["a"]}, "events[0].resources: None: expected amounts such as"),
    (
        {"do": "resize", "nodes": ["a"], "resources": {"cpu": "x"}},
        "events[0].resources.cpu: 'x': 'x' is not a quantity",
    ),
    ({"do": "label", "nodes": ["a"], "labels": {"a": 1}}, "events[0].labels.a: 1: expected the value of a label"),
    ({"do": "taint", "nodes": ["a"], "taints": [{"key": "k", "effect": "No"}]}, "taints[0].effect: 'No': expected one"),
    ({"do": "delete", "object": {"kind": "Nothing", "name": "x"}}, "events[0].object.kind: 'Nothing': expected a kind"),
    ({"do": "configure", "config": {"kind": "x"}}, "events[0].config: "),
    ("drain", "events[0]: 'drain': expected an event"),
]


@pytest.mark.parametrize(("event", "message"), _BAD)
def test_a_bad_event_is_named_by_its_path_and_value(event: Any, message: str) -> None:
    with pytest.raises(ManifestError) as found:
        kubesched.simulate([node("a")], events=[event])
    assert message in str(found.value)
    assert len(found.value.problems) == 1


def test_an_event_that_meets_no_node_is_a_warning() -> None:
    result = kubesched.simulate([node("a")], events=[{"at": 1, "do": "fail", "nodes": {"zone": "q"}}])
    assert "events[0]: fail: no node matches zone: q" in result.warnings


def test_a_file_of_events_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, cluster = tmp_path / "events.yaml", tmp_path / "cluster.yaml"
    cluster.write_text("\n---\n".join(json.dumps(one) for one in (node("a"), node("b"), deployment())))
    file.write_text("apiVersion: kubesched.io/v1alpha1\nkind: Events\nevents:\n- {at: 1m, do: drain, nodes: [a]}\n")
    assert main(["simulate", "-f", str(cluster), "--events", str(file), "--controllers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "after 60s: drain a" in lines
    assert any(line.startswith("  a: 2 pods evicted, drained after ") for line in lines)
    file.write_text("kind: Event\nevents: []\n")
    assert main(["simulate", "-f", str(cluster), "--events", str(file)]) == 1
    error = capsys.readouterr().err
    assert "events.yaml: apiVersion: None; a file of events has apiVersion: kubesched.io/v1alpha1" in error
    assert "events.yaml: kind: 'Event'; a file of events has kind: Events" in error


def test_times_are_durations_times_of_day_or_timestamps() -> None:
    times = ["90m", 5400, "01:30", "2025-01-01T01:30:00Z"]
    found = planned_events([{"at": at, "do": "cordon", "nodes": ["a"]} for at in times])
    assert [one.at for one in found] == [5400.0] * 4
    with pytest.raises(ManifestError, match="or a timestamp not before 2025-01-01T00:00:00Z"):
        planned_events([{"at": "2024-12-31T23:00:00Z", "do": "cordon", "nodes": ["a"]}])


# -- step by step ------------------------------------------------------------------------------------------


def test_a_simulation_drains_cordons_fails_and_recovers_nodes() -> None:
    with kubesched.Simulation([node("a"), node("b"), node("c"), deployment()], controllers=True) as simulation:
        assert simulation.cordon("c") == ["c"]
        [drain] = simulation.drain("a")
        assert (drain.node, drain.finished) == ("a", None)
        simulation.advance("1m")
        assert "a" not in {one.spec.node_name for one in simulation.pods}
        assert simulation.uncordon(["a", "c"]) == ["a", "c"]
        assert simulation.fail({"labels": {"pool": "b"}}) == ["b"]
        simulation.advance("10m")
        assert [one.status for one in simulation.nodes] == ["Ready", "NotReady", "Ready"]
        assert simulation.result().totals.placed == 4
        simulation.recover("b")
        simulation.advance("1m")
        assert {one.status for one in simulation.nodes} == {"Ready"}
        assert [one.action for one in simulation.result().events] == ["cordon", "drain", "uncordon", "fail", "recover"]
        with pytest.raises(ValueError, match="no node matches zone: q"):
            simulation.drain({"zone": "q"})


def test_a_simulation_applies_new_and_changed_objects() -> None:
    with kubesched.Simulation([node("a"), node("b"), deployment(replicas=2)], controllers=True) as simulation:
        simulation.advance("1m")
        simulation.apply([deployment(replicas=5), deployment("other", 1), node("c")])
        simulation.advance("1m")
        names = [one.metadata.labels["app"] for one in simulation.pods]
        assert (names.count("web"), names.count("other"), len(simulation.nodes)) == (5, 1, 3)
