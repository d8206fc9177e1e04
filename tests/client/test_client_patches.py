"""Conditions and the patches that write them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.decode import from_builtins, to_builtins
from kubesched.api.types import ObjectMeta, Pod, PodCondition, PodStatus
from kubesched.client.patches import StatusPatches, pod_status_patch, update_pod_condition

NOW = 1_700_000_000.0
NOW_TEXT = "2023-11-14T22:13:20Z"
BEFORE = "2023-01-01T00:00:00Z"

READY = PodCondition(type="Ready", status="False", last_transition_time=BEFORE)
PENDING = PodCondition(
    type="PodScheduled",
    status="False",
    reason="Unschedulable",
    message="0/1 nodes are available",
    last_transition_time=BEFORE,
    observed_generation=1,
)


def pending(**changes: Any) -> PodCondition:
    return msgspec.structs.replace(PENDING, **changes)


class Update(NamedTuple):
    name: str
    before: tuple[PodCondition, ...]
    condition: PodCondition
    after: tuple[PodCondition, ...]
    changed: bool


UPDATES = [
    Update(
        "a new type is appended, from now", (READY,), PENDING, (READY, pending(last_transition_time=NOW_TEXT)), True
    ),
    Update("the same again is no change", (PENDING,), PENDING, (PENDING,), False),
    Update("a later generation alone is no change", (PENDING,), pending(observed_generation=7), (PENDING,), False),
    Update(
        "a claimed transition time does not count", (PENDING,), pending(last_transition_time="x"), (PENDING,), False
    ),
    Update(
        "another message keeps the transition time and takes the generation along",
        (PENDING, READY),
        pending(message="other", observed_generation=7),
        (pending(message="other", observed_generation=7), READY),
        True,
    ),
    Update("another reason is a change", (PENDING,), pending(reason="X"), (pending(reason="X"),), True),
    Update(
        "a probe time is a change",
        (PENDING,),
        pending(last_probe_time=BEFORE),
        (pending(last_probe_time=BEFORE),),
        True,
    ),
    Update(
        "another status is a transition",
        (PENDING,),
        pending(status="True"),
        (pending(status="True", last_transition_time=NOW_TEXT),),
        True,
    ),
]


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case.name)
def test_update_pod_condition(case: Update) -> None:
    before = PodStatus(phase="Pending", conditions=case.before)
    after, changed = update_pod_condition(before, case.condition, NOW)
    assert changed is case.changed
    assert after == PodStatus(phase="Pending", conditions=case.after)


class Diff(NamedTuple):
    name: str
    old: PodStatus
    new: PodStatus
    patch: dict[str, Any] | None


def order(*names: str) -> dict[str, Any]:
    return {"$setElementOrder/conditions": [{"type": name} for name in names]}


DIFFS = [
    Diff("nothing", PodStatus(conditions=(READY,)), PodStatus(conditions=(READY,)), None),
    Diff("a nomination", PodStatus(), PodStatus(nominated_node_name="n1"), {"status": {"nominatedNodeName": "n1"}}),
    Diff(
        "a nomination taken back",
        PodStatus(nominated_node_name="n1"),
        PodStatus(),
        {"status": {"nominatedNodeName": None}},
    ),
    Diff(
        "the first condition",
        PodStatus(),
        PodStatus(conditions=(PodCondition(type="PodScheduled", status="False"),)),
        {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}},
    ),
    Diff(
        "one more condition",
        PodStatus(conditions=(READY,)),
        PodStatus(conditions=(READY, PodCondition(type="PodScheduled", status="False"))),
        {
            "status": {
                **order("Ready", "PodScheduled"),
                "conditions": [{"type": "PodScheduled", "status": "False"}],
            }
        },
    ),
    Diff(
        "a changed condition sends its changed fields and its type",
        PodStatus(conditions=(PENDING, READY)),
        PodStatus(conditions=(pending(message="other"), READY), nominated_node_name="n1"),
        {
            "status": {
                **order("PodScheduled", "Ready"),
                "conditions": [{"message": "other", "type": "PodScheduled"}],
                "nominatedNodeName": "n1",
            }
        },
    ),
    Diff(
        "a cleared field is null",
        PodStatus(conditions=(PENDING,)),
        PodStatus(conditions=(pending(message=""),)),
        {"status": {**order("PodScheduled"), "conditions": [{"message": None, "type": "PodScheduled"}]}},
    ),
    Diff(
        "a condition taken away",
        PodStatus(conditions=(PENDING, READY)),
        PodStatus(conditions=(READY,)),
        {"status": {**order("Ready"), "conditions": [{"$patch": "delete", "type": "PodScheduled"}]}},
    ),
    Diff("all taken away", PodStatus(conditions=(READY,)), PodStatus(), {"status": {"conditions": None}}),
    Diff(
        "only the order changed",
        PodStatus(conditions=(PENDING, READY)),
        PodStatus(conditions=(READY, PENDING)),
        {"status": order("Ready", "PodScheduled")},
    ),
    Diff("other fields are not ours", PodStatus(phase="Pending"), PodStatus(phase="Running"), None),
]


@pytest.mark.parametrize("case", DIFFS, ids=lambda case: case.name)
def test_pod_status_patch(case: Diff) -> None:
    assert pod_status_patch(case.old, case.new) == case.patch


def apply(status: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A strategic merge of a status, as a server does it: conditions by type, in the order given."""
    merged = dict(status)
    for name, value in patch.items():
        if name == "conditions" and value is not None:
            known = {condition["type"]: dict(condition) for condition in status.get("conditions", [])}
            for change in value:
                if change.get("$patch") == "delete":
                    known.pop(change["type"], None)
                    continue
                target = known.setdefault(change["type"], {})
                target.update(change)
                known[change["type"]] = {field: value for field, value in target.items() if value is not None}
            merged["conditions"] = list(known.values())
        elif value is None:
            merged.pop(name, None)
        elif not name.startswith("$"):
            merged[name] = value
    wanted = [element["type"] for element in patch.get("$setElementOrder/conditions", [])]
    if wanted:
        merged["conditions"].sort(key=lambda condition: wanted.index(condition["type"]))
    return merged


CONDITIONS = st.lists(
    st.builds(
        PodCondition,
        type=st.sampled_from(["PodScheduled", "Ready", "DisruptionTarget"]),
        status=st.sampled_from(["True", "False"]),
        reason=st.sampled_from(["", "Unschedulable"]),
        message=st.sampled_from(["", "a", "b"]),
        last_transition_time=st.sampled_from([None, BEFORE]),
        observed_generation=st.integers(0, 2),
    ),
    unique_by=lambda condition: condition.type,
    max_size=3,
).map(tuple)
STATUSES = st.builds(PodStatus, conditions=CONDITIONS, nominated_node_name=st.sampled_from(["", "n1", "n2"]))


@given(STATUSES, STATUSES)
def test_a_patch_applied_to_the_old_status_gives_the_new(old: PodStatus, new: PodStatus) -> None:
    patch = pod_status_patch(old, new)
    if patch is None:
        assert old == new
    else:
        assert from_builtins(apply(to_builtins(old), patch["status"]), PodStatus) == new


WRITES = st.tuples(
    st.sampled_from([PodStatus(), PodStatus(conditions=(PodCondition(type="PodScheduled", status="False"),))])
    | STATUSES,
    st.none() | st.builds(PodCondition, type=st.just("PodScheduled"), message=st.sampled_from(["", "a"])),
    st.none() | st.sampled_from(["", "n1"]),
    st.integers(0, 1),
    st.floats(0, 2),
)


@given(st.lists(WRITES, max_size=8))
def test_a_remembered_patch_is_the_one_that_is_computed(
    writes: list[tuple[PodStatus, PodCondition | None, str | None, int, float]],
) -> None:
    patches = StatusPatches()
    for status, condition, node, generation, now in writes:
        pod = Pod(metadata=ObjectMeta(name="p", uid="u", generation=generation), status=status)
        after = status
        if condition is not None:
            observed = msgspec.structs.replace(condition, observed_generation=generation)
            after, _ = update_pod_condition(after, observed, now)
        if node is not None:
            after = msgspec.structs.replace(after, nominated_node_name=node)
        expected = pod_status_patch(status, after)
        patch = patches.patch(pod, condition, node, now)
        assert patch == (None if expected is None else {"metadata": {"uid": "u"}, **expected})
