"""Replay of golden vectors: what is compared, what is left out and why, and vectors that are not as they should be."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from golden_kit import GOLDEN, JSON, SKIPPED, a_vector, big, pod, read, replayed, sequence, verdict_of, write
from kubesched.lab.conformance import Verdict, golden_files, replay_file, replay_vector
from kubesched.lab.conformance.world import World
from kubesched.lab.conformance.written_attempt import evaluated
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.interface import NodeToStatus, PostFilterResult
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nominating import NominatingInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.plugins.node_ports import NodePorts


def test_the_example_of_the_format_agrees() -> None:
    comparison = replayed(a_vector())
    assert (comparison.verdict, comparison.differences) == (Verdict.PASSED, [])
    assert comparison.passed["scores"] == 5
    assert comparison.passed["find"] == 3


def test_a_preemption_is_not_compared_while_its_plugin_is_not_built() -> None:
    registry = in_tree_registry()
    if "DefaultPreemption" in registry:
        registry.unregister("DefaultPreemption")
    comparison = replayed(big(), registry)
    assert (comparison.verdict, comparison.differences) == (Verdict.PARTLY, [])
    assert dict(comparison.left) == {
        (f"preemption.{member}", "plugin DefaultPreemption is not built"): 1
        for member in ("status", "nominated", "candidates")
    }


# -- plugins that are not built ----------------------------------------------------------------------------


def without(*names: str) -> Registry:
    registry = in_tree_registry()
    for name in names:
        if name in registry:
            registry.unregister(name)
    return registry


class Idle:
    """A plugin that is built and has nothing to do."""

    def __init__(self, args: Any, handle: Any) -> None:
        pass

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Any) -> Status:
        return Status.skip()

    def filter(self, state: CycleState, pod: PodInfo, node: Any) -> None:
        return None


NEEDED_BY_SOME = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "DynamicResources")


def missing_only(plugin: str) -> Registry:
    registry = without(*NEEDED_BY_SOME)
    for name in NEEDED_BY_SOME:
        if name != plugin:
            registry.register(type(name, (Idle,), {"name": name}))
    return registry


@pytest.mark.parametrize(
    ("spec", "plugin"),
    [
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]}, "VolumeBinding"),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "VolumeZone"),
        ({"volumes": [{"name": "v", "rbd": {"pool": "p"}}]}, "VolumeRestrictions"),
        ({"volumes": [{"name": "v", "azureDisk": {"diskName": "d"}}]}, "NodeVolumeLimits"),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}, "DynamicResources"),
    ],
)
def test_a_pod_that_needs_a_plugin_that_is_not_built_is_not_compared(spec: JSON, plugin: str) -> None:
    vector = a_vector()
    vector["scenario"]["pending"] = [pod("small", **spec)]
    comparison, verdict, _ = replay_vector(vector, missing_only(plugin))
    assert (verdict, comparison.passed, comparison.differences) == (Verdict.NOT_COMPARED, {}, [])
    kinds = {"outcome", "feasible", "best", "totals", "scores", "scoreSkipped", "find"}
    assert kinds <= {kind for kind, _ in comparison.left}
    assert {reason for _, reason in comparison.left} == {f"plugin {plugin} is not built"}


def test_a_resource_that_a_device_class_offers_needs_dynamic_resources() -> None:
    vector = a_vector()
    claimed = pod("small")
    claimed["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
    vector["scenario"]["pending"] = [claimed]
    registry = without("DynamicResources")
    assert verdict_of(vector, registry) is Verdict.FAILED  # an ordinary extended resource
    vector["scenario"]["objects"] = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"extendedResourceName": "example.com/gpu"},
        }
    ]
    assert verdict_of(vector, registry) is Verdict.NOT_COMPARED


def test_volumes_that_concern_no_plugin_are_compared() -> None:
    vector = a_vector()
    vector["scenario"]["pending"] = [pod("small", volumes=[{"name": "v", "emptyDir": {}}])]
    assert verdict_of(vector, without("VolumeBinding", "VolumeRestrictions")) is Verdict.PASSED


def test_a_profile_that_names_a_plugin_that_is_not_built_is_not_compared() -> None:
    vector = a_vector()
    profile = {"plugins": {"filter": {"enabled": [{"name": "VolumeZone"}]}}}
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    vector["scenario"]["config"] = {**head, "profiles": [profile]}
    comparison = replayed(vector, without("VolumeZone"))
    assert comparison.verdict is Verdict.NOT_COMPARED
    assert set(comparison.left) == {("scenario", "plugin VolumeZone is not built")}


def test_a_plugin_that_is_not_built_must_have_been_skipped() -> None:
    vector = a_vector()
    vector["expected"]["pods"][0]["preFilter"]["skipped"] = [name for name in SKIPPED if name != "VolumeZone"]
    comparison = replayed(vector, without("VolumeZone"))
    assert comparison.failed == {"preFilter.skipped": 1}


def test_a_plugin_that_is_not_built_must_have_scored_zero() -> None:
    vector = a_vector()
    vector["expected"]["pods"][0]["scores"]["DynamicResources"]["a"] = 200
    comparison = replayed(vector, without("DynamicResources"))
    assert comparison.failed == {"scores": 1}


# -- preemption --------------------------------------------------------------------------------------------


class Preempting:
    """A PostFilter plugin of which the tests decide what it finds."""

    name = "DefaultPreemption"
    node = "b"
    victims: Sequence[str] = ("default/old",)
    violations = 0
    rejected: Mapping[str, Status] = {}
    status: Status | None = None

    def __init__(self, args: Any, handle: Any) -> None:
        self._handle = handle

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: NodeToStatus
    ) -> tuple[PostFilterResult | None, Status | None]:
        return PostFilterResult(NominatingInfo.override(self.node)), self.status

    def list_candidates(
        self, state: CycleState, pod: PodInfo, statuses: NodeToStatus
    ) -> tuple[dict[str, tuple[list[PodInfo], int]], Mapping[str, Status]]:
        running = [each for node in self._handle.snapshot.nodes() for each in node.pods.values()]
        found = [each for each in running if each.key in self.victims]
        return ({self.node: (found, self.violations)} if self.node else {}), self.rejected


def preempting(*missing: str, **members: Any) -> Registry:
    registry = without("DefaultPreemption", *missing)
    registry.register(type("DefaultPreemption", (Preempting,), members))
    return registry


def test_a_preemption_is_compared_once_its_plugin_is_built() -> None:
    comparison = replayed(big(), preempting())
    assert (comparison.verdict, comparison.differences) == (Verdict.PASSED, [])
    members = ("status", "nominated", "candidates")
    assert {f"preemption.{member}" for member in members} <= comparison.passed.keys()


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("nominated", {"node": "a"}),
        ("candidates", {"victims": ()}),
        ("candidates", {"violations": 1}),
        ("rejected", {"rejected": {"c": Status.unschedulable("in vain")}}),
        ("status", {"status": Status.unschedulable("preemption: nothing")}),
        ("cleared", {"node": ""}),
    ],
)
def test_a_preemption_that_differs_is_reported(kind: str, members: JSON) -> None:
    comparison = replayed(big(), preempting(**members))
    assert comparison.failed[f"preemption.{kind}"] == 1
    assert any(f"preemption.{kind}: expected " in line for line in comparison.differences)


def in_vain() -> JSON:
    """The record of a preemption that finds nothing, as both PostFilter plugins leave it."""
    vector = big()
    text = "preemption: 0/3 nodes are available: 1 in vain, 2 Preemption is not helpful for scheduling."
    attempt = vector["expected"]["pods"][0]
    reasons = ["no new claims to deallocate", text]
    attempt["message"] += f" {', '.join(reasons)}"
    attempt["preemption"] = {
        "status": {"code": "Unschedulable", "plugin": "DynamicResources", "reasons": reasons},
        "nominated": [],
        "cleared": True,
        "rejected": {"b": {"code": "Unschedulable", "reasons": ["in vain"]}},
    }
    return vector


def test_a_preemption_in_vain_has_the_reasons_of_both_plugins() -> None:
    text = "preemption: 0/3 nodes are available: 1 in vain, 2 Preemption is not helpful for scheduling."
    rejected = {"b": Status.unschedulable("in vain")}
    agreeing = preempting(node="", status=Status.unschedulable(text), rejected=rejected)
    assert verdict_of(in_vain(), agreeing) is Verdict.PASSED
    differing = preempting(node="", status=Status.unschedulable("preemption: no"), rejected=rejected)
    assert replayed(in_vain(), differing).failed == {"preemption.status": 1}


def test_a_stage_that_a_plugin_that_is_not_built_ended_is_not_compared() -> None:
    vector = in_vain()
    attempt = vector["expected"]["pods"][0]
    attempt["message"] = attempt["message"].split(" no new claims")[0] + " not found"
    attempt["preemption"] = {
        "status": {"code": "Error", "plugin": "DynamicResources", "reasons": ["not found"]},
        "nominated": [],
    }
    comparison = replayed(vector, preempting("DynamicResources"))
    assert comparison.differences == []
    assert {reason for _, reason in comparison.left} == {"plugin DynamicResources is not built"}


def test_a_plugin_that_cannot_list_its_candidates_leaves_them_out() -> None:
    comparison = replayed(big(), preempting(list_candidates=None))
    assert comparison.verdict is Verdict.PARTLY
    assert {kind for kind, _ in comparison.left} == {"preemption.candidates"}


# -- sequences ---------------------------------------------------------------------------------------------


def recorded(vector: JSON, key: str) -> JSON:
    """The first attempt of a pending pod as a step of a sequence."""
    world = World(vector["scenario"], in_tree_registry())
    answer = evaluated(world, next(each for each in world.pending if each.key == key))
    members = ("outcome", "feasible", "best", "scoreSkipped", "totals", "message", "unschedulablePlugins")
    step = {"pod": key, **{member: answer[member] for member in members if member in answer}}
    if "scoreSkipped" in step:
        step["scoreSkipped"] = sorted({*step["scoreSkipped"], "VolumeBinding"})
    if answer["outcome"] == "scheduled":
        step["node"] = min(answer["best"])
    return step


def test_a_nomination_that_the_record_clears_is_gone_for_later_pods() -> None:
    """The first pod fits nowhere and holds node c by its nomination; the second fits on c once that is cleared."""
    first = pod("first", "2500m", priority=9, nodeSelector={"gone": "1"}, status={"nominatedNodeName": "c"})
    second = pod("second", "2500m", priority=1)
    attempt = recorded(sequence(pending=[first]), "default/first")
    reasons = [
        "no new claims to deallocate",
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
    ]
    attempt["preemption"] = {
        "status": {"code": "Unschedulable", "reasons": reasons},
        "nominated": [],
        "cleared": True,
    }
    attempt["message"] += f" {', '.join(reasons)}"
    placed = recorded(sequence(pending=[second]), "default/second")
    assert (placed["outcome"], placed["node"]) == ("scheduled", "c")
    vector = sequence(attempt, placed, pending=[first, second])
    assert replayed(vector).differences == []
    del attempt["preemption"]["cleared"]
    vector = sequence(attempt, placed, pending=[first, second])
    assert any("outcome: expected " in line for line in replayed(vector).differences)


def test_a_nominated_pod_with_scheduling_gates_does_not_count() -> None:
    """A pod that waits elsewhere holds all of node c, unless it is gated."""
    holder = pod("holder", "2500m", priority=9, status={"nominatedNodeName": "c"})
    vector = a_vector()
    vector["scenario"]["pods"].append(holder)
    assert verdict_of(vector) is Verdict.FAILED
    holder["spec"]["schedulingGates"] = [{"name": "later"}]
    assert verdict_of(vector) is Verdict.PASSED


def test_a_nominated_node_that_decides_is_compared() -> None:
    vector = a_vector()
    vector["scenario"]["pending"] = [pod("small", status={"nominatedNodeName": "a"})]
    attempt = vector["expected"]["pods"][0]
    attempt.update(
        feasible=["a"], best=["a"], nominatedNodeUsed="a", totals={"a": 418},
        scores={name: {"a": scores["a"]} for name, scores in attempt["scores"].items()},
    )  # fmt: skip
    comparison = replayed(vector)
    assert (comparison.verdict, comparison.differences) == (Verdict.PASSED, [])
    assert comparison.passed["nominatedNodeUsed"] == 1
    del attempt["nominatedNodeUsed"]
    assert replayed(vector).failed == {"nominatedNodeUsed": 1}


def test_attempts_in_another_order_are_reported() -> None:
    first, second = pod("first", priority=1), pod("second", priority=9)
    vector = sequence(pending=[first, second])
    vector["expected"]["steps"] = [{"pass": 1, **recorded(vector, f"default/{name}")} for name in ("first", "second")]
    comparison = replayed(vector)
    assert comparison.failed["order"] == 1
    assert comparison.differences[0].startswith("order of attempts: expected ")


# -- decimals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantity", ["1.00000000000000000", "0.00048828125Ki"])
def test_overhead_that_upstream_counted_several_times_at_filter_is_explained(quantity: str) -> None:
    """Half a core or one for the pod and one of overhead fit on node c, until the overhead is counted three times."""
    level: JSON = {"resources": {"requests": {"cpu": quantity}}, "overhead": {"cpu": "1"}}
    vector = a_vector()
    vector["scenario"]["pending"] = [pod("small", **level)]
    attempt = vector["expected"]["pods"][0]
    lacking = {"plugin": "NodeResourcesFit", "code": "Unschedulable", "reasons": ["Insufficient cpu"]}
    never = {**lacking, "code": "UnschedulableAndUnresolvable"}
    attempt.update(
        feasible=[], best=[], outcome="unschedulable", filters={"a": never, "b": never, "c": never},
        message="0/3 nodes are available: 3 Insufficient cpu.", unschedulablePlugins=["NodeResourcesFit"],
    )  # fmt: skip
    for member in ("scores", "totals", "scoreSkipped"):
        del attempt[member]
    _, verdict, why = replay_vector(vector, in_tree_registry())
    assert verdict is Verdict.EXPLAINED
    assert "default/small (cpu)" in why
    attempt["message"] = "0/3 nodes are available: 3 Insufficient memory."
    assert verdict_of(vector) is Verdict.NOT_COMPARED  # no number of times explains it
    plain: JSON = {"resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "1"}}
    vector["scenario"]["pending"] = [pod("small", **plain)]
    assert verdict_of(vector) is Verdict.FAILED


# -- hints and configurations ------------------------------------------------------------------------------


def test_a_wrong_hint_is_reported_and_a_plugin_that_is_not_built_is_not_compared() -> None:
    registry = without("VolumeZone")
    vectors = read("hints")
    built = next(vector for vector in vectors if vector["scenario"]["plugin"] == "NodeAffinity")
    assert verdict_of(built, registry) is Verdict.PASSED
    built["expected"]["hint"] = "QueueSkip" if built["expected"]["hint"] == "Queue" else "Queue"
    assert replayed(built, registry).differences[0].startswith("hint: expected ")
    missing = next(vector for vector in vectors if vector["scenario"]["plugin"] == "VolumeZone")
    left = replayed(missing, registry).left
    assert left["hint", "plugin VolumeZone is not built"] == 1
    assert left["matched", "plugin VolumeZone is not built"] == 1


class CrashingPorts(NodePorts):
    """Its hint raises."""

    def _after_pod_delete(self, pod: PodInfo, old: Any, new: Any) -> Any:
        raise ValueError("lost")


def test_a_hint_that_raises_is_a_failure_unless_the_record_has_an_error() -> None:
    registry = without("NodePorts")
    registry.register(CrashingPorts)
    vector = next(
        vector
        for vector in read("hints")
        if vector["scenario"]["plugin"] == "NodePorts" and vector["expected"]["matched"] == ["Pod/Delete"]
    )
    vector["expected"]["hint"] = "Queue"
    assert replayed(vector, registry).differences == ["hint: Pod/Delete failed: ValueError: lost"]
    vector["expected"]["error"] = "lost"
    assert replayed(vector, registry).differences == []


@pytest.mark.parametrize(("member", "value"), [("stage", "decode"), ("effective", {}), ("defaulted", {})])
def test_a_wrong_configuration_outcome_is_reported(member: str, value: Any) -> None:
    vector = next(vector for vector in read("config") if "effective" in vector["expected"])
    assert verdict_of(vector) is Verdict.PASSED
    vector["expected"][member] = value
    assert any(line.startswith(f"{member}: expected ") for line in replayed(vector).differences)


@pytest.mark.parametrize(("stage", "verdict"), [("validate", Verdict.PASSED), ("framework", Verdict.PASSED)])
def test_errors_of_a_configuration_are_compared(stage: str, verdict: Verdict) -> None:
    vector = next(vector for vector in read("config") if vector["expected"].get("stage") == stage)
    assert verdict_of(vector) is verdict
    vector["expected"]["errors"] = ["another: error"]
    assert replayed(vector).failed == {"errors": 1}


def test_a_body_is_compared_member_by_member() -> None:
    vector = read("protobuf")[0]
    members = len(vector["expected"])
    comparison = replayed(vector)
    assert (comparison.verdict, comparison.passed) == (Verdict.PASSED, {"body": members})
    vector["expected"]["metadata"]["name"] = "another"
    comparison = replayed(vector)
    assert (comparison.passed, comparison.failed) == ({"body": members - 1}, {"body": 1})
    assert comparison.differences[0].startswith("metadata: expected ")
    del vector["expected"]["spec"]
    assert any(line.startswith("spec: expected null") for line in replayed(vector).differences)


def test_a_body_that_cannot_be_read_is_a_failure() -> None:
    vector = {"name": "x", "area": "protobuf", "mode": "body", "scenario": {"body": "azhzAA=="}, "expected": {"any": 1}}
    assert replayed(vector).differences == ["body: type  is not known here in protobuf; send application/json"]


def test_bodies_are_not_compared_without_the_extra_for_http(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("kubesched.cluster.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    comparison = replayed(read("protobuf")[0])
    assert comparison.verdict is Verdict.NOT_COMPARED
    ((left, reason),) = comparison.left
    assert left == "body"
    assert reason.startswith(
        "the API server of an embedded cluster needs the package aiohttp, which is not installed: pip "
    )


# -- vectors that are not as they should be ----------------------------------------------------------------

BAD: list[tuple[list[str | int], Any, str]] = [
    (
        ["extra"],
        1,
        "vector: unknown member 'extra'; known members: area, expected, gates, kind, mode, name, note, scenario",
    ),
    (["mode"], "guess", "mode: 'guess' is unknown; known modes: independent, sequential, hints, config, body"),
    (["mode"], ["guess"], "mode: ['guess'] is unknown; known modes: independent, sequential, hints, config, body"),
    (["scenario", "extra"], 1, "scenario: unknown member 'extra'"),
    (["scenario", "nodes"], None, "scenario: member 'nodes' is missing"),
    (["expected", "extra"], 1, "expected: unknown member 'extra'; known members: pods"),
    (["expected", "pods"], {}, "expected.pods: {} is not a list"),
    (["expected", "pods", 0], [], "expected.pods[0]: [] is not an object"),
    (["expected", "pods", 0, "extra"], 1, "expected.pods[0]: unknown member 'extra'"),
    (["expected", "pods", 0, "outcome"], None, "expected.pods[0]: member 'outcome' is missing"),
    (["expected", "pods", 0, "pod"], "default/other", "expected.pods: not the pods of scenario.pending"),
    (["expected", "pods", 0, "preFilter", "extra"], 1, "expected.pods[0].preFilter: unknown member 'extra'"),
    (["expected", "pods", 0, "filters", "b", "extra"], 1, "expected.pods[0].filters.b: unknown member 'extra'"),
    (["expected", "pods", 0, "preemption", "extra"], 1, "expected.pods[0].preemption: unknown member 'extra'"),
    (["expected", "pods", 0, "preemption", "status", "extra"], 1, "expected.pods[0].preemption.status: unknown"),
    (["expected", "pods", 0, "preemption", "candidates", "b", "extra"], 1, "expected.pods[0].preemption.candidates.b"),
    (["scenario", "nodes", 0, "status", "allocatable", "cpu"], "many", "the replay stopped: "),
]


def changed(vector: JSON, path: list[str | int], value: Any) -> JSON:
    """The vector with one member set; None removes it."""
    place: Any = vector
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return vector


@pytest.mark.parametrize(("path", "value", "text"), BAD, ids=[".".join(map(str, row[0])) for row in BAD])
def test_a_bad_vector_fails_and_the_others_are_still_replayed(
    path: list[str | int], value: Any, text: str, tmp_path: Path
) -> None:
    bad = changed(big(), path, value)
    result = replay_file(write(tmp_path / "some.jsonl.gz", a_vector(), bad, a_vector()), in_tree_registry())
    assert result.verdicts == {Verdict.PASSED: 2, Verdict.FAILED: 1}
    (failure,) = result.failures
    assert text in failure.lines[0]
    assert result.kinds["vector"]["failed"] == 1


def test_a_step_of_a_pod_that_is_not_pending_fails() -> None:
    vector = sequence({"pod": "default/other", "outcome": "scheduled"}, pending=[pod("small")])
    assert "expected.steps[0].pod: default/other is not in scenario.pending" in replayed(vector).differences[-1]


@pytest.mark.parametrize(("name", "text"), [("no JSON", "nonsense"), ("no object", "[1]"), ("empty line", "")])
def test_a_line_that_is_not_an_object_fails_and_the_others_are_still_replayed(
    name: str, text: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "some.jsonl.gz", a_vector(), text, a_vector())
    result = replay_file(path, in_tree_registry())
    assert result.verdicts == {Verdict.PASSED: 2, Verdict.FAILED: 1}
    assert result.failures[0].vector == "line 2"
    assert result.failures[0].lines[0].startswith(f"{path}: line 2: not a JSON object")


def test_a_line_that_is_nested_too_deep_fails_and_a_binary_file_is_one_error(tmp_path: Path) -> None:
    path = write(tmp_path / "some.jsonl.gz", a_vector(), '{"a":' * 60_000)
    assert (
        replay_file(path, in_tree_registry()).failures[0].lines[0]
        == f"{path}: line 2: nested more than 200 levels deep"
    )
    with pytest.raises(ValueError, match=r"binary\.jsonl: line 1: a NUL byte: not a file of JSON lines"):
        replay_file(write(tmp_path / "binary.jsonl", "x\0y", a_vector()), in_tree_registry())


def test_an_unknown_action_of_an_event_is_named() -> None:
    vector = changed(read("hints")[0], ["scenario", "event", "action"], "Wave")
    assert "scenario.event.action: 'Wave' is unknown; known actions: " in replayed(vector).differences[0]


# -- files that cannot be read -----------------------------------------------------------------------------


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such file or directory"):
        golden_files([tmp_path / "nowhere"])


def test_a_file_that_is_not_gzipped_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fit.jsonl.gz"
    path.write_text("{}\n")
    with pytest.raises(ValueError, match=r"fit\.jsonl\.gz: not a gzipped file of JSON lines"):
        replay_file(path, in_tree_registry())


@pytest.mark.parametrize("name", ["pipe.jsonl", "/dev/zero"])
def test_a_file_without_an_end_is_named(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(ValueError, match=f"{name}: is no regular file"):
        replay_file(tmp_path / name, in_tree_registry())


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fit.jsonl.gz"
    path.write_bytes((GOLDEN / "fit.jsonl.gz").read_bytes()[:200])
    with pytest.raises(ValueError, match=r"fit\.jsonl\.gz: not a gzipped file of JSON lines"):
        replay_file(path, in_tree_registry())


def test_only_the_files_of_an_area_are_taken(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz", "notes.txt"):
        (tmp_path / name).write_bytes(gzip.compress(b""))
    assert [path.name for path in golden_files([tmp_path])] == ["a.jsonl.gz", "b.jsonl.gz"]
    assert [path.name for path in golden_files([tmp_path], "b")] == ["b.jsonl.gz"]
    # A file given by name counts once, though its folder was given too.
    assert [path.name for path in golden_files([tmp_path, tmp_path / "a.jsonl.gz"])] == ["a.jsonl.gz", "b.jsonl.gz"]
