"""The simulation as a library: what is expanded, who goes first, when it ends, and that its numbers add up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kubesched.api.kinds import REPLICA_SETS
from kubesched.cluster.files import ManifestError, parse_manifests
from kubesched.lab.simulate import Result, run_simulation, simulate
from kubesched.lab.simulate.results.report import render_table
from kubesched.lab.simulate.results.result import Stopped
from kubesched.lab.simulate.results.turnover import Turnover
from kubesched.lab.simulate.run.simulation import Session
from kubesched.lab.simulate.run.virtual_time import VirtualTimeError, run_virtual
from kubesched.scheduler.config import API_VERSION, KIND, ConfigError, load_config_data
from kubesched.scheduler.extenders.interface import FilterAnswer, InProcessExtender
from kubesched.scheduler.framework.interface import Plugin
from kubesched.scheduler.framework.question import Question
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry

JSON = dict[str, Any]


def node(name: str, cpu: str = "4", **metadata: Any) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "20"}},
    }


def pod(name: str, cpu: str = "1", *, duration: str = "", **spec: Any) -> JSON:
    annotations = {"kubesched.io/duration": duration} if duration else {}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def workload(kind: str, name: str, version: str = "apps/v1", **spec: Any) -> JSON:
    template: JSON = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec.setdefault("selector", {"matchLabels": {"app": name}})
    body = {"template": template, **spec}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": body}


def run(*objects: JSON, **options: Any) -> Result:
    return run_simulation(objects, registry=options.pop("registry", in_tree_registry()), **options)


def where(result: Result) -> dict[str, str]:
    return {item.name: item.node for item in result.placements}


def test_room_that_a_finished_pod_leaves_is_used_by_the_next() -> None:
    result = run(node("n", "1"), pod("first", duration="10m"), pod("second", duration="5m"))
    bound = {item.name: item.bound_at for item in result.placements}
    assert bound["first"] == 0
    assert bound["second"] is not None
    assert 601 <= bound["second"] <= 620
    assert (result.totals.succeeded, result.stopped) == (2, "settled")
    assert 901 <= result.virtual_seconds <= 925
    [cpu] = [use for use in result.resources if use.name == "cpu"]
    assert (cpu.requested, cpu.peak, cpu.allocatable) == (0, 1000, 1000)


def test_pods_are_taken_in_the_order_of_the_manifests_and_by_priority() -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    result = run(pod("z"), pod("a"), pod("m", priorityClassName="high"), node("n", "2"), high)
    assert sorted(where(result)) == ["m", "z"]
    assert result.pending[0].pods == ["default/a"]


def test_numbers_add_up() -> None:
    result = run(node("a", "2"), node("b", "3"), *(pod(f"p{number}") for number in range(8)), seed=3)
    assert (result.totals.pods, result.totals.placed, result.totals.pending) == (8, 5, 3)
    assert sum(group.count for group in result.pending) == result.totals.pending
    for name in ("cpu", "pods"):
        [whole] = [use for use in result.resources if use.name == name]
        parts = [use for item in result.nodes for use in item.resources if use.name == name]
        assert whole.requested == sum(use.requested for use in parts)
        assert whole.allocatable == sum(use.allocatable for use in parts)
        assert all(use.requested <= use.allocatable for use in parts)
    assert result.totals.attempts >= 8


@pytest.mark.parametrize(
    ("manifest", "pods", "owner"),
    [
        (workload("Deployment", "w", replicas=3), 3, "Deployment/w"),
        (workload("ReplicaSet", "w", replicas=2), 2, "ReplicaSet/w"),
        (workload("StatefulSet", "w", replicas=2, serviceName="w"), 2, "StatefulSet/w"),
        (workload("Job", "w", "batch/v1", parallelism=2, completions=2), 2, "Job/w"),
        (workload("DaemonSet", "w"), 4, "DaemonSet/w"),
    ],
    ids=lambda item: item["kind"] if isinstance(item, dict) else None,
)
def test_workloads_become_pods_that_know_their_owner(manifest: JSON, pods: int, owner: str) -> None:
    result = run(manifest, node("extra"), nodes=3)
    assert result.totals.placed == pods
    assert {item.workload for item in result.placements} == {owner}


def test_thousands_of_replicas_have_distinct_names() -> None:
    # Names end in five letters: by chance some of 6,000 are equal, which a controller would notice too.
    result = run(workload("Deployment", "w", replicas=6000), until=0)
    assert (result.totals.pods, result.totals.refused) == (6000, 0)


def test_a_daemon_set_makes_no_pods_for_nodes_it_may_not_run_on() -> None:
    tainted = {**node("tainted"), "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}
    cordoned = {**node("cordoned"), "spec": {"unschedulable": True}}
    result = run(workload("DaemonSet", "w"), node("plain"), tainted, cordoned)
    assert set(where(result).values()) <= {"plain", "cordoned"}
    assert result.totals.pending <= 1
    assert not any("tainted" in key for group in result.pending for key in group.pods)


def test_a_job_whose_pods_do_not_end_says_what_is_simulated() -> None:
    result = run(workload("Job", "w", "batch/v1", parallelism=2, completions=9), nodes=1)
    assert result.totals.placed == 2
    assert "only the 2 of its 9 pods that may run at once are simulated" in result.warnings[0]


def test_an_export_of_a_live_cluster_is_taken_as_it_is() -> None:
    owner = workload("ReplicaSet", "w", replicas=5)
    owner["metadata"]["uid"] = "rs-1"
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "rs-1", "controller": True}
    running = pod("w-abc", nodeName="n")
    running["metadata"].update(uid="pod-1", resourceVersion="77", ownerReferences=[reference])
    running["status"] = {"phase": "Running"}
    result = run(owner, running, node("n"))
    assert where(result) == {"w-abc": "n"}
    assert result.placements[0].bound_at is None
    assert result.placements[0].phase == "Running"


def test_namespaces_and_built_in_objects_need_not_be_defined_but_may() -> None:
    elsewhere = pod("p")
    elsewhere["metadata"]["namespace"] = "team-a"
    default = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    result = run(elsewhere, default, pod("q"), nodes=1)
    assert [item.namespace for item in result.placements] == ["default", "team-a"]


def test_pending_pods_are_grouped_and_every_hint_is_true() -> None:
    tainted = {**node("t", "8"), "spec": {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}}
    objects = [node("n", "1"), tainted, workload("Deployment", "w", replicas=3)]
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    objects[2]["spec"]["template"]["spec"]["containers"] = [container]
    [group] = run(*objects).pending
    assert (group.reason, group.count, group.workload) == ("Unschedulable", 3, "Deployment/w")
    assert {(reason.text, reason.nodes, reason.preemptable) for reason in group.reasons} == {
        ("Insufficient cpu", 1, False),
        ("node(s) had untolerated taint(s)", 1, False),
    }
    assert "tolerate the taint team=x:NoSchedule: 1 node would fit" in group.hints
    assert "ask for 1 less cpu: 1 node would fit" in group.hints
    assert [(one.plugin, one.text, one.examples) for one in group.obstacles] == [
        ("NodeResourcesFit", "cpu: asks for 2, but the largest of these nodes has 1; at most 1 is free (n)", ["n"]),
        ("TaintToleration", "taint team=x:NoSchedule", ["t"]),
    ]
    objects[2]["spec"]["template"]["spec"]["tolerations"] = [{"key": "team", "operator": "Exists"}]
    assert run(*objects).totals.pending == 0


def test_hints_name_selector_and_missing_resources() -> None:
    lonely = pod("lonely", nodeSelector={"disk": "ssd"})
    fpga = pod("fpga")
    fpga["spec"]["containers"][0]["resources"] = {"limits": {"example.com/fpga": "1"}}
    hints = {group.pods[0]: group.hints for group in run(node("n"), lonely, fpga).pending}
    assert hints["default/lonely"] == ["drop nodeSelector disk=ssd: 1 node would fit"]
    assert hints["default/fpga"] == ["ask for no example.com/fpga: 1 node would fit"]


class HoldForEver(Plugin):
    """Permit waits longer than any simulation."""

    name = "HoldForEver"

    def permit(self, state: Any, pod: Any, node_name: str) -> Any:
        return Status.wait(), 600.0


def test_pods_held_by_permit_are_waited_for_and_reported() -> None:
    from kubesched.scheduler.loading import with_plugins

    registry = in_tree_registry()
    registry.register(HoldForEver)
    options: JSON = {"registry": registry, "config": with_plugins(["HoldForEver"]), "until": 100.0}
    result = run(node("n"), pod("p"), **options)
    assert (result.stopped, result.virtual_seconds) == ("until", 100)
    assert result.pending[0].reason in ("Waiting", "Unschedulable")


class _TalksNonsense(Plugin):
    name = "TalksNonsense"

    def pre_enqueue(self, pod: Any) -> Any:
        return 5


def test_a_pod_held_by_a_plugin_with_invalid_results_is_reported_as_an_error() -> None:
    from kubesched.scheduler.loading import with_plugins

    registry = in_tree_registry()
    registry.register(_TalksNonsense)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    result = run_simulation([pod], nodes=1, registry=registry, config=with_plugins(["TalksNonsense"]))
    assert [(group.reason, group.message) for group in result.pending] == [
        (
            "SchedulerError",
            'running PreEnqueue plugin "TalksNonsense": returned 5 from pre_enqueue; expected None or a Status',
        )
    ]


def test_nothing_at_all_is_a_settled_simulation() -> None:
    result = run()
    assert (result.stopped, result.virtual_seconds, result.totals.pods) == ("settled", 0, 0)


def test_an_object_other_than_a_pod_that_is_refused_is_an_error() -> None:
    bad = node("n", "-1")
    with pytest.raises(ManifestError, match=r"object 0: Node n was refused: .*cpu"):
        run(bad)


def test_it_runs_on_an_ordinary_event_loop_too_in_real_time() -> None:
    manifests = parse_manifests(
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "g"}], "containers": [{"name": "c", "image": "i"}]}}'
    )
    result = asyncio.run(simulate(manifests, registry=in_tree_registry(), nodes=2))
    assert (result.stopped, result.pending[0].gates) == ("settled", ["g"])


def test_progress_counts_every_binding() -> None:
    seen: list[tuple[int, int]] = []

    async def main() -> Result:
        return await simulate(
            [pod("a"), pod("b")],
            registry=in_tree_registry(),
            nodes=1,
            on_progress=lambda done, total: seen.append((done, total)),
        )

    run_virtual(main())
    assert seen == [(1, 2), (2, 2)]


def extended(**fields: Any) -> Any:
    extender = {"urlPrefix": "http://gpu.example", "filterVerb": "filter", **fields}
    return load_config_data({"apiVersion": API_VERSION, "kind": KIND, "extenders": [extender]})


def test_http_extenders_are_refused_and_not_left_out() -> None:
    with pytest.raises(ConfigError, match=r"a simulation does not call HTTP extenders \(http://gpu.example\)"):
        run_simulation([node("n1"), pod("p")], registry=in_tree_registry(), config=extended())


def test_an_object_takes_the_place_of_an_http_extender() -> None:
    class Gpu(InProcessExtender):
        name = "http://gpu.example"

        async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterAnswer:
            await asyncio.sleep(3600)
            return FilterAnswer(["n2"])

    result = run_simulation(
        [node("n1"), node("n2"), pod("p")], registry=in_tree_registry(), config=extended(), extenders=[Gpu()]
    )
    (placed,) = result.placements
    assert placed.node == "n2"
    assert placed.bound_at is not None
    assert placed.bound_at >= 3600


def test_preemptions_are_listed_with_those_that_lost_and_why() -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    result = run(
        node("a"),
        node("b"),
        node("tiny", "1"),
        high,
        pod("low1", "3", nodeName="a"),
        pod("low2", "2", nodeName="b"),
        pod("low3", "2", nodeName="b"),
        pod("big", "3", priorityClassName="high"),
    )
    (item,) = result.preemptions
    assert (item.pod, item.priority, item.node, item.candidates) == ("default/big", 9, "a", 2)
    assert item.victims == ["default/low1"]
    (lost,) = item.lost
    assert (lost.node, lost.why) == ("b", "a greater sum of priorities")
    assert sorted(lost.victims) == ["default/low2", "default/low3"]
    lines = [line.text for line in render_table(result)]
    at = lines.index("Preempted")
    assert lines[at + 1 : at + 4] == [
        "default/big (priority 9) on a after 0s",
        "  evicted: default/low1",
        "  not b: a greater sum of priorities",
    ]
    assert where(result)["big"] == "a"


# -- never wrong in silence ------------------------------------------------------------------------------------


def test_pods_on_a_node_that_does_not_exist_are_not_placed() -> None:
    result = run(pod("here"), pod("ghost", nodeName="gone"), pod("other", nodeName="gone"), nodes=1)
    totals = result.totals
    assert (totals.pods, totals.placed, totals.pending, totals.on_missing_nodes) == (3, 1, 0, 2)
    assert where(result).keys() == {"here"}
    (missing,) = result.missing_nodes
    assert (missing.node, missing.count, missing.pods) == ("gone", 2, ["default/ghost", "default/other"])
    (warning,) = result.warnings
    assert warning == (
        "node gone does not exist, but pods are bound to it, which are not counted as placed: default/ghost, default/other"
    )


def test_a_finished_pod_may_have_been_on_a_node_that_is_gone() -> None:
    result = run({**pod("done", nodeName="gone"), "status": {"phase": "Succeeded"}}, nodes=1)
    assert (result.totals.placed, result.missing_nodes, result.warnings) == (1, [], [])


def test_what_has_no_effect_is_said_once_for_each_kind() -> None:
    job = {"template": workload("Job", "x", "batch/v1")["spec"]["template"]}
    crons = [
        workload("CronJob", f"cron-{number}", "batch/v1", schedule="* * * * *", jobTemplate={"spec": job})
        for number in range(3)
    ]
    pods = [{**pod(f"p{number}"), "colour": "red"} for number in range(4)]
    things = [{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}} for name in "ab"]
    jobs = [workload("Job", f"w{number}", "batch/v1", parallelism=1, completions=2) for number in range(2)]
    loaded = parse_manifests("\n---\n".join(json.dumps(item) for item in (*crons, *pods, *things, *jobs)), "in.yaml")
    warnings = run_simulation(loaded, registry=in_tree_registry(), nodes=1, until=10.0).warnings
    for text in (
        "CronJob cron-0: its pods run without end, as they have no kubesched.io/duration (and so for 2 more objects)",
        'Pod p0: unknown field "colour" is ignored (and so for 3 more objects)',
        "left out: example.com/v1 Thing is not known here (and 1 more like it)",
        "so only the 1 of its 2 pods that may run at once are simulated (and so for 1 more object)",
    ):
        assert [warning for warning in warnings if text in warning], (text, warnings)
    assert not [warning for warning in warnings if "cron-1" in warning or "p1" in warning]


def test_objects_that_the_cluster_refuses_are_named_together() -> None:
    bad = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("Bad_1", "Bad_2")]
    with pytest.raises(ManifestError) as caught:
        run(*bad)
    assert len(str(caught.value).splitlines()) == 2
    assert "Bad_1" in str(caught.value)
    assert "Bad_2" in str(caught.value)


def test_a_plugin_that_raises_is_in_the_result_with_its_place() -> None:
    class Odd(Plugin):
        name = "Odd"

        def filter(self, state: Any, pod: PodInfo, node: NodeInfo) -> Status | None:
            raise ValueError("odd")

    registry = in_tree_registry()
    registry.register(Odd)
    config = load_config_data(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "Odd"}]}}}],
        }
    )
    result = run(pod("a"), pod("b"), nodes=1, registry=registry, config=config)
    (error,) = result.errors
    assert (error.type, error.file, error.line > 0, error.count) == (
        "ValueError",
        __file__,
        True,
        result.totals.attempts,
    )
    assert 'running "Odd" filter plugin: odd' in error.text


@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        ("score", "high", "score returned 'high'; expected an int"),
        ("score", 500, "returns an invalid score 500"),
        ("reserve", 7, "returned 7 from reserve; expected None or a Status"),
    ],
)
def test_a_plugin_that_answers_what_it_must_not_is_in_the_result_with_its_place(
    method: str, answer: Any, said: str
) -> None:
    def wrong(self: Plugin, *given: Any) -> Any:
        return answer

    expect_wrong_answer(type("Odd", (Plugin,), {"name": "Odd", method: wrong}), wrong, said)


@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        ("pre_filter", 7, "returned 7 from pre_filter; expected None, a Status or a frozenset of node names"),
        ("verdicts", None, "verdicts returned None; expected uint64[2]"),
        ("scores", np.full(2, 500), "returns an invalid score 500"),
        ("normalized", 7, "normalized returned 7; expected int64[2]"),
    ],
)
def test_a_question_that_answers_what_it_must_not_is_in_the_result_with_its_place(
    method: str, answer: Any, said: str
) -> None:
    def wrong(*given: Any) -> Any:
        return answer

    def fine(self: Question, rows: Any) -> Any:
        return np.zeros(len(rows), np.int64)

    asks = type(
        "Asked", (Question,), {"scores": fine, method: wrong, **({"why": wrong} if method == "verdicts" else {})}
    )
    odd = type("Odd", (Plugin,), {"name": "Odd", "asks": asks, "ask": lambda self, pod, nodes: asks()})
    expect_wrong_answer(odd, wrong, said)


def expect_wrong_answer(odd: type, wrong: Any, said: str) -> None:
    """The plugin named Odd fails the pods of a run: ``wrong`` is the method to blame."""
    registry = in_tree_registry()
    registry.register(odd)
    enabled = {"plugins": {"multiPoint": {"enabled": [{"name": "Odd"}]}}}
    config = load_config_data({"apiVersion": API_VERSION, "kind": KIND, "profiles": [enabled]})
    result = run(pod("a"), nodes=2, registry=registry, config=config)
    (error,) = result.errors
    assert (error.type, error.file, error.line) == ("WrongAnswerError", __file__, wrong.__code__.co_firstlineno)
    assert said in error.text


def test_what_on_progress_raises_is_raised_by_the_run_and_disturbs_no_binding() -> None:
    calls = []

    def report(done: int, total: int) -> None:
        calls.append(done)
        raise LookupError("of the caller")

    with pytest.raises(LookupError, match="of the caller"):
        run(pod("a"), pod("b"), nodes=1, on_progress=report)
    assert calls == [1]


@pytest.mark.parametrize("grace", [0, 30])
def test_pods_that_are_replaced_without_end_in_one_moment_end_the_run(grace: int) -> None:
    """Each is evicted as soon as it is there, since its node has a taint that the scheduler never evaluates."""
    tainted = {**node("n"), "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}
    replica_set = workload("ReplicaSet", "r", replicas=2)
    replica_set["spec"]["template"]["spec"] |= {"nodeName": "n", "terminationGracePeriodSeconds": grace}
    found = run(tainted, replica_set, pod("other"), controllers=True, until=600.0)
    assert found.stopped == "noProgress"
    (warning,) = [text for text in found.warnings if "stands still" in text]
    assert "each new pod of ReplicaSet/r is deleted in the moment in which it is created" in warning
    assert 1_000 < found.totals.removed + found.totals.pods < 1_100


def test_time_that_cannot_pass_is_an_error_for_who_lets_it_pass() -> None:
    tainted = {**node("n"), "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}
    replica_set = workload("ReplicaSet", "r", replicas=1)
    replica_set["spec"]["template"]["spec"] |= {"nodeName": "n", "terminationGracePeriodSeconds": 0}
    said: list[str] = []

    async def drive(session: Session) -> Stopped:
        assert not await session.step()
        with pytest.raises(VirtualTimeError, match="stands still"):
            await session.advance(10)
        session.embedded.store.delete(REPLICA_SETS, "default", "r")
        await session.advance(10)
        said.append(f"{session.now:g}")
        return "until"

    found = run(tainted, replica_set, controllers=True, drive=drive)
    assert said == ["10"]
    assert found.totals.pods == 0


def test_many_pods_may_come_and_go_in_one_moment() -> None:
    counts = Turnover(pytest.fail)
    for _ in range(3_000):
        counts.created("ReplicaSet/r", 1.0)
    for _ in range(3_000):
        counts.deleted("ReplicaSet/r", 1.0, 1.0)
    for moment in range(2, 2_000):
        counts.created("ReplicaSet/r", moment)
        counts.deleted("ReplicaSet/r", moment, moment)
        counts.deleted("ReplicaSet/r", 1.0, moment)
