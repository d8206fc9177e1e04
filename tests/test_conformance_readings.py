"""Readings of a replay: what it takes as given, what it leaves out, and in how many ways a record may be right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from golden_kit import JSON, a_vector, big, pod, read, replayed, verdict_of
from kubesched.lab.conformance import Comparison, Verdict, read_gates, replay_file, replay_vector
from kubesched.scheduler.framework.gated_fields import POD_FIELD_GATES
from kubesched.scheduler.plugins import in_tree_registry

V1 = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def named(area: str, name: str) -> JSON:
    return next(vector for vector in read(area) if vector["name"] == name)


# -- feature gates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "vector",
    [vector for vector in read("gates") if POD_FIELD_GATES.keys() & vector["gates"].keys()],
    ids=lambda vector: vector["name"],
)
def test_a_vector_that_needs_gates_differs_without_them(vector: JSON) -> None:
    assert verdict_of(vector) is Verdict.PASSED
    del vector["gates"]
    assert verdict_of(vector) is Verdict.FAILED


def test_gates_of_a_file_count_in_addition_to_those_of_a_vector(tmp_path: Path) -> None:
    path = Path(__file__).parent / "golden" / "gates.jsonl.gz"
    (vector, *_) = read("gates")
    assert replay_file(path, in_tree_registry(), gates={vector["name"]: {"NoSuchGate": True}}).failures[0].lines == [
        "the replay stopped: FeatureGateError: gates: unrecognized feature gate: NoSuchGate"
    ]
    file = tmp_path / "gates.txt"
    file.write_text("# comment\n\nclass one A=true,B=false\ntwo C=1\n")
    assert read_gates(file) == {"one": {"A": True, "B": False}, "two": {"C": True}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lonely\n", ":1: 'lonely': expected the name of a vector and gates such as A=true,B=false"),
        ("one A=true\none A=maybe\n", ":2: invalid value of A=maybe"),
    ],
)
def test_a_file_of_gates_that_cannot_be_read_is_named(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "gates.txt"
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{file}{problem}")):
        read_gates(file)
    with pytest.raises(ValueError, match=r"nowhere: No such file"):
        read_gates(tmp_path / "nowhere")


def test_gates_are_true_or_false() -> None:
    vector = {**a_vector(), "gates": {"VolumeLimitScaling": "true"}}
    assert "is not an object of feature gates, each true or false" in replayed(vector).differences[0]


# -- what is left out ------------------------------------------------------------------------------------------


def crowded(count: int) -> list[JSON]:
    (node, *_) = a_vector()["scenario"]["nodes"]
    return [{**node, "metadata": {"name": f"n{number}"}} for number in range(count)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"gates": {"DRANodeAllocatableResources": True}},
            "feature gate DRANodeAllocatableResources is not available",
        ),
        (
            {"config": {**V1, "apiVersion": "kubescheduler.config.k8s.io/v1beta3"}},
            "Kubernetes 1.36 reads configurations of kubescheduler.config.k8s.io/v1 only, not of "
            "kubescheduler.config.k8s.io/v1beta3",
        ),
        (
            {"config": {**V1, "extenders": [{"urlPrefix": "http://127.0.0.1:9", "filterVerb": "f", "weight": 1}]}},
            "the extenders of the configuration are not there to answer",
        ),
        ({"nodes": crowded(300)}, "which part of the nodes Kubernetes evaluated is not recorded"),
        (
            {"nodes": crowded(300), "config": {**V1, "profiles": [{"percentageOfNodesToScore": 50}]}},
            "which part of the nodes Kubernetes evaluated is not recorded",
        ),
    ],
    ids=["gate", "version", "extender", "sampling", "sampling of a profile"],
)
def test_what_a_record_does_not_tell_is_not_compared(changes: JSON, reason: str) -> None:
    vector = a_vector()
    vector["gates"] = changes.get("gates", {})
    vector["scenario"].update({name: value for name, value in changes.items() if name != "gates"})
    comparison = replayed(vector)
    assert comparison.verdict is Verdict.NOT_COMPARED
    assert dict(comparison.left) == {("scenario", reason): 1}


@pytest.mark.parametrize(
    ("devices", "verdict"), [([], Verdict.NOT_COMPARED), ([{"device": "gpu-0"}], Verdict.FAILED)], ids=["empty", "full"]
)
def test_only_an_empty_claim_for_extended_resources_is_a_declared_difference(
    devices: list[JSON], verdict: Verdict
) -> None:
    vector = a_vector()
    (expected, *_) = vector["expected"]["pods"]
    expected["devices"] = {"n0": [{"claim": "<extended-resources>", "devices": devices}]}
    comparison = replayed(vector)
    assert comparison.verdict is verdict
    assert any("makes an empty claim" in reason for _, reason in comparison.left) is (devices == [])


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {**V1, "extenders": [{"urlPrefix": "http://127.0.0.1:9", "managedResources": [{"name": "a.b/c"}]}]}},
        {"config": {**V1, "percentageOfNodesToScore": 30}},
    ],
    ids=["an extender without verbs", "few nodes"],
)
def test_settings_that_change_nothing_are_compared(changes: JSON) -> None:
    vector = a_vector()
    vector["scenario"].update(changes)
    assert verdict_of(vector) is Verdict.PASSED


def test_a_record_that_differs_is_left_out_only_where_a_claim_is_named_twice() -> None:
    vector = a_vector()
    vector["expected"]["pods"][0]["best"] = ["a"]
    assert verdict_of(vector) is Verdict.FAILED
    claims = [{"name": name, "resourceClaimName": "gpu"} for name in ("one", "two")]
    vector["scenario"]["pending"] = [pod("small", resourceClaims=claims)]
    comparison, verdict, _ = replay_vector(vector, in_tree_registry())
    assert verdict is Verdict.NOT_COMPARED
    assert "ResourceClaim twice" in next(iter(comparison.left))[1]
    claims[1]["resourceClaimName"] = "other"
    assert verdict_of(vector) is Verdict.FAILED


def test_a_sequence_that_differs_is_left_out_where_two_claims_hold_one_device() -> None:
    vector = named("replay", "mix2-7301-00013-min")
    claims = [obj for obj in vector["scenario"]["objects"] if obj["kind"] == "ResourceClaim" and "status" in obj]
    vector["expected"]["steps"][0]["message"] += " And more."
    assert verdict_of(vector) is Verdict.FAILED
    (claim, *_) = claims
    other = {**claim, "metadata": {"name": "other", "namespace": "default"}}
    vector["scenario"]["objects"].append(other)
    assert verdict_of(vector) is Verdict.NOT_COMPARED


def differing(**scenario: Any) -> JSON:
    vector = a_vector()
    vector["scenario"].update(scenario)
    vector["expected"]["pods"][0]["best"] = ["a"]
    return vector


@pytest.mark.parametrize(("other", "verdict"), [(2, Verdict.NOT_COMPARED), (1, Verdict.FAILED)])
def test_a_record_that_differs_is_left_out_where_slices_state_different_numbers(other: int, verdict: Verdict) -> None:
    slices = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"s{number}"},
            "spec": {
                "driver": "d",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": number},
                "nodeName": "a",
            },
        }
        for number in (1, other)
    ]
    assert verdict_of(differing(objects=slices)) is verdict


def test_a_preemption_that_differs_is_left_out_where_a_claim_was_deallocated() -> None:
    vector = big()
    record = vector["expected"]["pods"][0]["preemption"]
    record["nominated"] = ["a"]
    assert verdict_of(vector) is Verdict.FAILED
    record["status"] = {
        "code": "Unschedulable",
        "reasons": ["deallocation of ResourceClaim completed", "preemption: x"],
    }
    assert verdict_of(vector) is Verdict.NOT_COMPARED


def test_a_record_that_differs_is_left_out_where_a_running_pod_drifts() -> None:
    drifting: JSON = {"resources": {"requests": {"memory": "0.1Gi"}}, "overhead": {"memory": "1Mi"}}
    vector = a_vector()
    vector["scenario"]["pods"].append(pod("drifting", nodeName="a", status={"phase": "Running"}, **drifting))
    vector["expected"]["pods"][0]["best"] = ["a"]
    assert verdict_of(vector) is Verdict.NOT_COMPARED


# -- chance ----------------------------------------------------------------------------------------------------


def with_equal_victims(*starts: str) -> tuple[JSON, JSON]:
    """Three pods on a node, of which one has to leave; the vector, and the recorded candidate."""
    vector = big()
    vector["scenario"]["pods"] = [
        pod(
            name,
            "500m",
            nodeName="b",
            priority=1,
            status={"phase": "Running", **({"startTime": start} if start else {})},
        )
        for name, start in zip("xyz", starts, strict=True)
    ]
    vector["scenario"]["pending"] = [pod("big", "1", priority=9, nodeSelector={"kubernetes.io/hostname": "b"})]
    return vector, vector["expected"]["pods"][0]["preemption"]["candidates"]["b"]


@pytest.mark.parametrize("start", ["2026-01-01T00:00:00Z", ""], ids=["started together", "not started"])
def test_any_of_equal_victims_is_right(start: str) -> None:
    vector, candidate = with_equal_victims(start, start, start)
    verdicts = {}
    for name in "xyz":
        candidate["victims"] = [f"default/{name}"]
        verdicts[name] = verdict_of(vector)
    assert verdicts == {"x": Verdict.DECLARED, "y": Verdict.DECLARED, "z": Verdict.PASSED}
    candidate["victims"] = ["default/y", "default/z"]  # more than have to leave
    assert verdict_of(vector) is Verdict.FAILED


def test_a_victim_that_matters_more_than_another_is_wrong() -> None:
    vector, candidate = with_equal_victims("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z")
    candidate["victims"] = ["default/y"]
    assert verdict_of(vector) is Verdict.DECLARED
    candidate["victims"] = ["default/x"]
    assert verdict_of(vector) is Verdict.FAILED


def test_victims_that_are_not_in_order_of_importance_fail() -> None:
    vector = big()
    old = vector["scenario"]["pods"][0]
    old["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "900m"
    for name, start in (("equal", "2026-01-01T00:00:00Z"), ("younger", "2026-01-02T00:00:00Z")):
        more = pod(name, "500m", nodeName="b", priority=1, status={"phase": "Running", "startTime": start})
        vector["scenario"]["pods"].append(more)
    attempt = vector["expected"]["pods"][0]
    victims = attempt["preemption"]["candidates"]["b"]["victims"]

    def verdict_with(*names: str) -> Verdict:
        victims[:] = [f"default/{name}" for name in names]
        return verdict_of(vector)

    assert verdict_with("old", "equal", "younger") is Verdict.PASSED
    assert verdict_with("equal", "old", "younger") is Verdict.DECLARED
    assert verdict_with("younger", "old", "equal") is Verdict.FAILED


def test_any_of_the_errors_of_single_nodes_may_end_an_attempt() -> None:
    errors = {f'running "{name}" filter plugin' for name in ("A", "B")}
    comparison = Comparison()
    assert comparison.check_error(
        "message", "x", 'running "A" filter plugin: 1', 'running "B" filter plugin: 2', errors
    )
    assert not comparison.check_error(
        "message", "x", 'running "A" filter plugin: 1', 'running "C" filter plugin', errors
    )
    assert comparison.differences == [
        'x: expected "running \\"A\\" filter plugin", got "running \\"C\\" filter plugin"'
    ]


# -- what an attempt leads to ------------------------------------------------------------------------------------


def test_a_claim_that_is_deallocated_is_free_though_the_step_preempts() -> None:
    vector = named("replay", "mix2-7301-00013-min")
    assert verdict_of(vector) is Verdict.PASSED
    steps = vector["expected"]["steps"]
    last = next(step for step in steps if "devices" in step)
    for listed in last["devices"].values():
        del listed[0]
    assert any(": devices: expected " in line for line in replayed(vector).differences)


def test_an_error_of_reserve_is_compared_for_every_plugin() -> None:
    vectors = [
        vector for vector in read("replay") if any("reserve" in step for step in vector["expected"].get("steps", ()))
    ]
    assert vectors
    for vector in vectors:
        assert verdict_of(vector) is Verdict.PASSED
        step = next(step for step in vector["expected"]["steps"] if "reserve" in step)
        step["reserve"]["reasons"] = ["another"]
        assert any(": reserve: expected " in line for line in replayed(vector).differences)


def test_the_volumes_of_other_profiles_are_known_here_and_not_upstream() -> None:
    vector: Any = named("replay", "volumes-7104-00127-min")
    _, verdict, why = replay_vector(vector, in_tree_registry())
    assert (verdict, why) == (
        Verdict.DECLARED,
        "Volumes: upstream's profiles do not know each other's reserved volumes",
    )
