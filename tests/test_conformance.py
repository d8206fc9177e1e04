"""Golden decisions, recorded from Kubernetes 1.36: every one of them must come out the same here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from golden_kit import GOLDEN, JSON, a_vector, pod, read, replayed, sequence, verdict_of, write
from kubesched.lab.conformance import AreaResult, Coverage, Verdict, golden_files, replay_file, replay_vector
from kubesched.lab.conformance.group_promises import contended
from kubesched.scheduler.config import IN_TREE
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.plugins.image_locality import ImageLocality
from kubesched.scheduler.plugins.node_name import NodeName
from kubesched.scheduler.plugins.volumes.volume_binding import VolumeBinding

#: Area to number of vectors. A file that is missing, cut short or new makes a test fail: it must be listed here.
COUNTS = {
    "balanced": 250,
    "cel": 8,
    "combined": 249,
    "config": 300,
    "config2": 63,
    "declaredfeatures": 100,
    "dra": 325,
    "fit": 250,
    "gang": 342,
    "gates": 7,
    "hints": 1000,
    "imagelocality": 250,
    "interpodaffinity": 250,
    "mixed": 300,
    "nodeaffinity": 250,
    "nodename": 250,
    "points": 122,
    "ports": 250,
    "preemption": 300,
    "protobuf": 440,
    "regressions": 42,
    "replay": 16,
    "taints": 250,
    "topologyspread": 250,
    "unschedulable": 250,
    "volumes": 300,
}
#: Area to number of vectors that agree only with a defect of the recording modelled, or a declared difference undone.
EXPLAINED = {"balanced": 2}
DECLARED = {"combined": 12, "replay": 8}
#: Most scenarios of pod groups that agree only so. How many there are depends on choices among nodes of equal score.
MOST_DECLARED_GROUPS = 75
#: Scenarios of pod groups that are played in a plain run, one in so many of each kind, and of each kind at least so many.
#: A scenario builds a cluster and a scheduler, and chance is undone by playing it again and again. All of them are played
#: with the profile for sweeps (``make sweep``), and by ``make conformance``.
ONE_IN, LEAST_OF_A_KIND = 3, 4
#: Why a record may be left out while every plugin that it needs is built.
REASONS = {
    "the wording of decoding errors is that of a particular parser",
    "which nodes are filtered before a plugin fails depends on chance",
    "how Kubernetes' queue takes groups up again is its own affair",
    "chance decides, and no recorded run came to this",
    "members that are not tried as often are not told as much",
}


IS_SWEEP = settings().max_examples > 100


def allowed_reasons() -> set[str]:
    return REASONS | {f"plugin {name} is not built" for name in IN_TREE.keys() - in_tree_registry().keys()}


def lines_of(result: AreaResult) -> list[str]:
    return [line for failure in result.failures for line in failure.lines]


def test_the_golden_files_are_the_ones_counted_here() -> None:
    assert [path.name.split(".", 1)[0] for path in golden_files([GOLDEN])] == sorted(COUNTS)


@pytest.mark.parametrize("area", sorted(COUNTS))
def test_every_recorded_decision_comes_out_the_same(area: str, tmp_path: Path) -> None:
    (path,), count = golden_files([GOLDEN], area), COUNTS[area]
    if area == "gang":
        every = read(area)
        assert len(every) == count
        if not IS_SWEEP:
            played = some_of_each_kind(every)
            path, count = write(tmp_path / path.name, *played), len(played)
    steps: list[None] = []
    result = replay_file(path, in_tree_registry(), lambda: steps.append(None))
    assert (result.area, result.total, len(steps)) == (area, count, count)
    shown = [f"{failure.vector}\n    " + "\n    ".join(failure.lines) for failure in result.failures[:5]]
    assert not result.failures, f"{len(result.failures)} of {result.total} vectors differ:\n" + "\n".join(shown)
    assert len(result.explained) == EXPLAINED.get(area, 0)
    if area == "gang":
        assert len(result.declared) <= MOST_DECLARED_GROUPS
    else:
        assert len(result.declared) == DECLARED.get(area, 0)
    assert set(result.reasons) <= allowed_reasons()
    assert {kind for kind, counts in result.kinds.items() if counts["failed"]} == set()
    recorded = recorded_members(area)
    assert recorded == {kind: counts.total() for kind, counts in result.kinds.items() if kind in recorded}


def some_of_each_kind(vectors: list[JSON]) -> list[JSON]:
    """Return one vector in ``ONE_IN`` of each kind, which is the first part of the name, and a few of small kinds.

    Vectors in which groups contend by evictions are left out: all ways to play them are tried, some in vain.
    """
    kinds: dict[str, list[JSON]] = {}
    for vector in vectors:
        if "phases" in vector["expected"] and contended(vector):
            continue
        kinds.setdefault(vector["name"].partition("/")[0], []).append(vector)
    return [
        vector
        for members in kinds.values()
        for vector in members[:: max(1, min(ONE_IN, len(members) // LEAST_OF_A_KIND))]
    ]


def test_some_scenarios_of_every_kind_are_played_in_a_plain_run() -> None:
    every, some = read("gang"), some_of_each_kind(read("gang"))
    kinds = [{vector["name"].partition("/")[0] for vector in vectors} for vectors in (every, some)]
    assert kinds[0] == kinds[1]
    assert len(every) > len(some) > len(every) // ONE_IN


def recorded_members(area: str) -> Counter[str]:
    """Count how often members with one record each occur in the attempts of a file."""
    single = ("outcome", "feasible", "best", "scoreSkipped", "totals", "message", "nominatedNodeUsed", "preEnqueue")
    counts: Counter[str] = Counter()
    for vector in read(area):
        expected = vector["expected"]
        for attempt in (*expected.get("pods", ()), *expected.get("steps", ())):
            counts.update(member for member in single if member in attempt)
        counts.update(member for member in ("hint", "matched", "derivedEvents", "effective") if member in expected)
    return counts


# -- a wrong answer is seen --------------------------------------------------------------------------------


class BlindNodeName(NodeName):
    """Passes every node."""

    def ask(self, pod: Any, nodes: Any) -> None:
        return None


class WordyNodeName(NodeName):
    """Right verdicts, wrong text."""

    def ask(self, pod: Any, nodes: Any) -> Any:
        question: Any = super().ask(pod, nodes)
        if question is not None:
            question.why = lambda verdict: Status.unresolvable("the node has another name")
        return question


class ForgetfulNodeName(NodeName):
    """Right answers, but a key that does not distinguish pods: what is remembered is wrong."""

    def ask(self, pod: Any, nodes: Any) -> Any:
        question: Any = NodeName.asks(pod, nodes)
        question.key = "any pod"
        if not pod.spec.node_name:
            question.verdicts = lambda rows: np.zeros(len(rows), np.uint64)
            question.verdict = lambda node: 0
        return question


class OffByOneImages(ImageLocality):
    """Scores one too many where there is a score."""

    def ask(self, pod: Any, nodes: Any) -> Any:
        question: Any = super().ask(pod, nodes)
        scores_of = question.scores

        def scores(rows: Any) -> Any:
            right = scores_of(rows)
            return np.where((right > 0) & (right < 100), right + 1, right)

        question.scores = scores
        return question


def registry_with(plugin: type) -> Registry:
    registry = in_tree_registry()
    registry.unregister(plugin.name)  # type: ignore[attr-defined]
    registry.register(plugin)
    return registry


def failures_with(plugin: type, area: str, tmp_path: Path) -> AreaResult:
    return replay_file(write(tmp_path / f"{area}.jsonl.gz", *read(area)[:60]), registry_with(plugin))


def test_a_filter_that_lets_too_much_through_is_reported_with_what_was_expected(tmp_path: Path) -> None:
    result = failures_with(BlindNodeName, "nodename", tmp_path)
    assert 0 < result.verdicts[Verdict.FAILED] <= result.total
    assert result.verdicts[Verdict.FAILED] == len(result.failures)
    assert all(failure.vector.startswith("nodename") for failure in result.failures)
    lines = lines_of(result)
    assert all("expected " in line and ", got " in line for line in lines)
    assert any(": feasible: expected " in line for line in lines)
    assert any(line.startswith("pod default/") for line in lines)
    assert result.kinds["feasible"]["failed"] > 0


def test_a_wrong_reason_is_reported_though_the_verdict_is_right(tmp_path: Path) -> None:
    lines = lines_of(failures_with(WordyNodeName, "nodename", tmp_path))
    assert any("filters" in line and "the node has another name" in line for line in lines)
    assert any("message" in line for line in lines)
    assert not any(": feasible: " in line for line in lines)


def test_a_score_that_is_off_by_one_is_reported_under_its_plugin(tmp_path: Path) -> None:
    lines = lines_of(failures_with(OffByOneImages, "imagelocality", tmp_path))
    assert any(": scores of ImageLocality: expected " in line for line in lines)
    assert any(": totals: expected " in line for line in lines)


def test_a_remembered_answer_that_is_wrong_is_reported_though_the_full_evaluation_is_right() -> None:
    """Two pods that only NodeName distinguishes: the second wants node a."""
    vector = a_vector()
    vector["scenario"]["pending"].append(pod("bound", nodeName="a"))
    elsewhere = {
        "plugin": "NodeName",
        "code": "UnschedulableAndUnresolvable",
        "reasons": ["node(s) didn't match the requested node name"],
    }
    small = vector["expected"]["pods"][0]
    scores = {name: {"a": each["a"]} for name, each in small["scores"].items()}
    bound = {"pod": "default/bound", "filters": {"b": elsewhere, "c": elsewhere}, "scores": scores}
    vector["expected"]["pods"].append({**small, **bound, "feasible": ["a"], "best": ["a"], "totals": {"a": 418}})
    assert replayed(vector).differences == []
    assert replayed(vector, registry_with(ForgetfulNodeName)).differences == [
        f"pod default/bound: find {number}: expected one of ['a'], got c" for number in (1, 2, 3)
    ]


def attempts_of(vector: JSON) -> list[JSON]:
    expected = vector["expected"]
    return [*expected.get("pods", ()), *expected.get("steps", ())]


def first_with(area: str, member: str) -> tuple[JSON, JSON]:
    """The first vector that has the member in an attempt and agrees, and that attempt."""
    for vector in read(area):
        for attempt in attempts_of(vector):
            if member in attempt and verdict_of(vector) in (Verdict.PASSED, Verdict.PARTLY):
                return vector, attempt
    raise AssertionError(f"no {member} in {area}")


@pytest.mark.parametrize(
    ("area", "member", "value"),
    [
        ("combined", "nominatedNodeUsed", "another"),
        ("nodename", "feasible", ["another"]),
        ("nodename", "best", ["another"]),
        ("nodename", "totals", {}),
        ("nodename", "scoreSkipped", []),
        ("nodename", "scores", {}),
        ("nodename", "outcome", "unschedulable"),
        ("combined", "preEnqueue", {"plugin": "SchedulingGates", "code": "Success", "reasons": []}),
        ("taints", "unschedulablePlugins", []),
        ("taints", "pendingPlugins", ["NodeName"]),
        ("taints", "filters", {}),
        ("volumes", "volumes", {}),
    ],
)
def test_a_record_that_was_changed_fails(area: str, member: str, value: Any) -> None:
    vector, attempt = first_with(area, "unschedulablePlugins" if member == "pendingPlugins" else member)
    if member == "preEnqueue":
        value = {**attempt[member], "code": "Unschedulable"}
    attempt[member] = value
    assert verdict_of(vector) is Verdict.FAILED


@pytest.mark.parametrize(
    ("member", "value"), [("code", "Error"), ("nodes", ["another"]), ("skipped", ["another"]), ("plugin", "NodeName")]
)
def test_every_part_of_pre_filter_is_compared(member: str, value: Any) -> None:
    vectors = [vector for vector in read("nodeaffinity") if vector["mode"] == "independent"]
    vector, attempt = next(
        (vector, attempt)
        for vector in vectors
        for attempt in attempts_of(vector)
        if attempt["preFilter"]["code"] != "Success" and verdict_of(vector) is not Verdict.FAILED
    )
    attempt["preFilter"][member] = value
    assert verdict_of(vector) is Verdict.FAILED


def test_the_text_that_post_filter_adds_is_compared() -> None:
    vector, attempt = next(
        (vector, attempt)
        for vector in read("taints")
        for attempt in attempts_of(vector)
        if "preemption: " in attempt.get("message", "")
    )
    assert verdict_of(vector) is Verdict.PASSED
    attempt["message"] += " And more."
    assert verdict_of(vector) is Verdict.FAILED


class RefusingBinding(VolumeBinding):
    """Finds volumes, and does not set them aside."""

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
        return Status.unschedulable("taken")


class ForgetfulBinding(VolumeBinding):
    """Finds volumes, and does not remember that they are taken."""

    def reserve(self, state: Any, pod: Any, node_name: str) -> None:
        return None


def sequences_with_volumes() -> list[JSON]:
    vectors = [vector for vector in read("volumes") if vector["mode"] == "sequential"]
    return [vector for vector in vectors if any("volumes" in step for step in vector["expected"]["steps"])]


def test_the_outcome_of_reserve_is_compared() -> None:
    vector = next(each for each in sequences_with_volumes() if "volumes" in each["expected"]["steps"][-1])
    differences = replayed(vector, registry_with(RefusingBinding)).differences
    assert any(": reserve: expected null" in line for line in differences)
    for step in vector["expected"]["steps"]:
        if step["outcome"] == "scheduled":
            step["reserve"] = {"code": "Unschedulable", "plugin": "VolumeBinding", "reasons": ["taken"]}
    comparison = replayed(vector, registry_with(RefusingBinding))
    assert comparison.passed["reserve"] > 0
    assert any(": reserve: expected {" in line for line in replayed(vector).differences)


def test_volumes_that_are_given_to_two_pods_are_reported() -> None:
    vectors = sequences_with_volumes()
    failed = [each["name"] for each in vectors if verdict_of(each, registry_with(ForgetfulBinding)) is Verdict.FAILED]
    assert len(failed) == 4
    assert [each["name"] for each in vectors if verdict_of(each) is Verdict.FAILED] == []


def test_filters_are_compared_where_a_nominated_node_decided() -> None:
    vector, attempt = next(
        (vector, attempt)
        for vector in read("combined")
        for attempt in attempts_of(vector)
        if "nominatedNodeUsed" in attempt and attempt.get("filters")
    )
    assert verdict_of(vector) is not Verdict.FAILED
    next(iter(attempt["filters"].values()))["reasons"] = ["another"]
    assert verdict_of(vector) is Verdict.FAILED


def test_records_of_failed_attempts_are_compared() -> None:
    vector, attempt = next(
        (vector, attempt)
        for vector in read("points")
        for attempt in attempts_of(vector)
        if attempt["outcome"] == "error" and attempt.get("filters") and attempt["feasible"] == []
    )
    assert verdict_of(vector) is not Verdict.FAILED
    for member, value in (("message", 'running "NodeName" filter plugin: x'), ("filters", {}), ("feasible", ["x"])):
        before = attempt[member]
        attempt[member] = value
        assert verdict_of(vector) is Verdict.FAILED, member
        attempt[member] = before


def test_nominations_that_end_are_carried_out_for_pods_that_are_not_pending() -> None:
    vector, attempt = next(
        (vector, attempt)
        for vector in read("combined")
        for attempt in attempts_of(vector)
        if set(attempt.get("clearedNominations", ()))
        - {f"{each['metadata'].get('namespace', 'default')}/{each['metadata']['name']}" for each in vector["scenario"]["pending"]}
    )  # fmt: skip
    comparison = replayed(vector)
    assert comparison.differences == []
    assert comparison.passed["clearedNominations"] > 0
    attempt["clearedNominations"] = ["default/another"]
    assert "clearedNominations: default/another is not nominated" in replayed(vector).differences[-1]


def test_what_a_preemption_does_is_compared_with_the_step() -> None:
    vector, attempt = next(
        (vector, attempt)
        for vector in read("preemption")
        for attempt in attempts_of(vector)
        if vector["mode"] == "sequential" and attempt.get("preemption", {}).get("nominated")
    )
    comparison = replayed(vector)
    assert comparison.differences == []
    assert min(comparison.passed[kind] for kind in ("victims", "clearedNominations", "node")) > 0
    candidate = attempt["preemption"]["candidates"][attempt["node"]]
    candidate["victims"] = candidate["victims"][:-1]
    assert any("victims: expected" in line for line in replayed(vector).differences)


def test_a_declared_difference_explains_itself_only() -> None:
    selecting = [each for each in read("combined") if "namespaceSelector" in repr(each["scenario"]["pending"])]
    vector = next(vector for vector in selecting if verdict_of(vector) is Verdict.DECLARED)
    attempt = attempts_of(vector)[0]
    attempt["best"] = ["another"]
    assert verdict_of(vector) is Verdict.FAILED


def test_the_recorded_pods_reach_every_path_and_form_of_the_search(tmp_path: Path) -> None:
    coverage = Coverage()
    some = [vector for vector in read("topologyspread") if vector["mode"] == "sequential"][:25]
    replay_file(write(tmp_path / "topologyspread.jsonl.gz", *some), in_tree_registry(), coverage=coverage)
    # No recorded pod of these is nominated.
    assert {path for path, number in coverage.paths.items() if number} == set(coverage.paths) - {"nomination layer"}
    assert set(coverage.paths) == {"signature layer", "interaction layer", "nomination layer", "full scan"}
    assert coverage.calls["Filter", "PodTopologySpread"]["vector"] > 0
    same = [pod(f"same-{number}") for number in range(3)]
    step = {"pass": 1, "outcome": "scheduled", "node": "c", "best": ["c"]}
    steps = [{**step, "pod": f"default/same-{number}"} for number in range(3)]
    rows = Coverage()
    vector = sequence(*steps, pending=same)
    replay_vector(vector, in_tree_registry(), rows)
    for point in ("Filter", "Score"):  # one node changes between two such pods
        assert rows.calls[point, "NodeResourcesFit"]["row"] > 0
    assert rows.paths["signature layer"] > 0
