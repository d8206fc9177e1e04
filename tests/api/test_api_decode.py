"""From bytes and manifests to objects: nulls are absent, unknown fields are skipped, errors name the field."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from builders import a_node, a_pod, a_port, a_taint, a_toleration
from kubesched.api.declared_features import FEATURES, feature_mask
from kubesched.api.decode import DecodeError, decode_object, from_builtins, strip_nulls, to_builtins
from kubesched.api.kinds import KINDS, NODES, PODS, kind_by_plural, kind_of
from kubesched.api.taints import first_untolerated, tolerated, tolerates
from kubesched.api.tombstone import DeletedFinalStateUnknown, final_state
from kubesched.api.types import Node, Pod, Taint, Toleration

MANIFEST: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": None, "managedFields": [{"manager": "x"}]},
    "spec": {
        "nodeSelector": None,
        "containers": [
            {"name": "c", "ports": None, "resources": {"requests": {"cpu": 1, "memory": "1Gi", "x.io/y": 0.5}}}
        ],
        "initContainers": None,
        "affinity": {"nodeAffinity": None},
        "tolerations": [None, {"key": "k", "tolerationSeconds": None}],
        "unknownField": {"a": [1]},
    },
    "status": None,
}


def test_nulls_are_absent_and_unknown_fields_are_skipped() -> None:
    for pod in (decode_object(msgspec.json.encode(MANIFEST), Pod), from_builtins(MANIFEST, Pod)):
        assert (pod.key, pod.uid, pod.metadata.labels) == ("ns/p", "u", {})
        assert pod.spec.node_selector is None
        assert pod.spec.init_containers == ()
        assert pod.spec.containers[0].resources.requests == {"cpu": 1, "memory": "1Gi", "x.io/y": 0.5}
        assert pod.spec.affinity is not None
        assert pod.spec.affinity.node_affinity is None
        assert pod.spec.tolerations == (Toleration(key="k"),)
        assert pod.status == Pod().status


def test_absent_differs_from_empty_where_it_matters() -> None:
    assert from_builtins({"spec": {"nodeSelector": {}}}, Pod).spec.node_selector == {}
    assert from_builtins({"spec": {}}, Pod).spec.node_selector is None


def test_stripping_nulls_leaves_the_original_alone() -> None:
    data = {"a": None, "b": [None, {"c": None, "d": 0}], "e": "", "f": False}
    assert strip_nulls(data) == {"b": [{"d": 0}], "e": "", "f": False}
    assert "a" in data


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"spec": {"containers": {}}}, r"\$\.spec\.containers"),
        (
            {"spec": {"containers": [{"name": 1}]}},
            r"\$\.spec\.containers\[0\]\.name|\$\.spec\.containers\[\.\.\.\]\.name",
        ),
        ({"spec": {"priority": "high"}}, r"\$\.spec\.priority"),
        ({"metadata": {"labels": {"a": None, "b": 1}}}, r"\$\.metadata\.labels"),
        ([], "Expected `object`"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(data: Any, path: str) -> None:
    with pytest.raises(DecodeError, match=path):
        from_builtins(data, Pod)
    with pytest.raises(DecodeError, match=path):
        decode_object(msgspec.json.encode(data), Pod)


@pytest.mark.parametrize("text", ["", "{", "nonsense", b"\xff\xfe"])
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(DecodeError, match="not valid JSON"):
        decode_object(text, Pod)


def test_objects_come_back_from_their_wire_form() -> None:
    pod = a_pod("p", cpu="1", ports=[a_port(80, ip="10.0.0.1")], tolerations=[a_toleration("k=v:NoSchedule")])
    wire = to_builtins(pod)
    assert wire["spec"]["containers"][0]["ports"][0]["hostIP"] == "10.0.0.1"
    assert wire["spec"]["schedulerName"] == "default-scheduler"
    assert from_builtins(wire, Pod) == pod
    node = a_node("n", zone="z", taints=[a_taint("k:NoSchedule")])
    assert decode_object(msgspec.json.encode(node), Node) == node


def test_objects_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        a_pod().metadata.name = "other"  # type: ignore[misc]
    moved = a_pod(cpu="1").on_node("n")
    assert (moved.spec.node_name, moved.spec.containers) == ("n", a_pod(cpu="1").spec.containers)


# -- kinds -------------------------------------------------------------------------------------------------


def test_kinds_are_found_by_name_and_by_path() -> None:
    assert kind_of("v1", "Pod") is kind_by_plural("", "pods") is PODS
    assert kind_of("v1", "Node") is NODES
    assert kind_of("v2", "Pod") is None
    assert kind_by_plural("nowhere", "pods") is None
    for kind in KINDS:
        assert kind_of(kind.api_version, kind.kind) is kind
        assert kind_by_plural(kind.group, kind.plural) is kind
        assert str(kind) == kind.group_resource


def test_a_tombstone_is_unwrapped() -> None:
    pod = a_pod()
    assert final_state(pod) is pod
    assert final_state(DeletedFinalStateUnknown("ns/p", pod)) is pod


# -- taints and features -----------------------------------------------------------------------------------

TAINT = Taint(key="k", value="5", effect="NoSchedule")
TOLERATIONS: list[tuple[str, Toleration, bool, bool]] = [
    # name, toleration, tolerated, tolerated with comparison operators
    ("the same", Toleration(key="k", operator="Equal", value="5", effect="NoSchedule"), True, True),
    ("no operator is Equal", Toleration(key="k", value="5"), True, True),
    ("another value", Toleration(key="k", value="6"), False, False),
    ("another key", Toleration(key="l", operator="Exists"), False, False),
    ("another effect", Toleration(key="k", operator="Exists", effect="NoExecute"), False, False),
    ("any effect", Toleration(key="k", operator="Exists"), True, True),
    ("any key", Toleration(operator="Exists"), True, True),
    ("any key of that value", Toleration(value="5"), True, True),
    ("any key of no value", Toleration(), False, False),
    ("seconds do not matter", Toleration(key="k", operator="Exists", toleration_seconds=0), True, True),
    ("Exists ignores the value", Toleration(key="k", operator="Exists", value="x"), True, True),
    ("an unknown operator", Toleration(key="k", operator="Like", value="5"), False, False),
    ("greater", Toleration(key="k", operator="Gt", value="4"), False, True),
    ("not greater", Toleration(key="k", operator="Gt", value="5"), False, False),
    ("less", Toleration(key="k", operator="Lt", value="6"), False, True),
    ("a negative bound", Toleration(key="k", operator="Gt", value="-1"), False, True),
    *[(f"{value!r} is not canonical", Toleration(key="k", operator="Gt", value=value), False, False) for value in ("04", "+4", "-0", "", "4.0", "4\n", "-9223372036854775809")],
]  # fmt: skip


@pytest.mark.parametrize(("name", "toleration", "plain", "comparing"), TOLERATIONS)
def test_toleration(name: str, toleration: Toleration, plain: bool, comparing: bool) -> None:
    assert tolerates(toleration, TAINT) is plain, name
    assert tolerates(toleration, TAINT, comparison_operators=True) is comparing
    assert tolerated(TAINT, [Toleration(key="x"), toleration]) is plain


def test_the_value_of_the_taint_must_be_canonical_too() -> None:
    for value, want in (("05", False), ("5", True), ("", False), ("many", False)):
        taint = Taint(key="k", value=value, effect="NoSchedule")
        assert tolerates(Toleration(key="k", operator="Gt", value="4"), taint, comparison_operators=True) is want


def test_the_first_untolerated_taint_that_counts() -> None:
    taints = [a_taint("a:PreferNoSchedule"), a_taint("b:Odd"), a_taint("c:NoExecute"), a_taint("d:NoSchedule")]
    assert first_untolerated(taints, []) == taints[2]
    assert first_untolerated(taints, [a_toleration("c")]) == taints[3]
    assert first_untolerated(taints, [a_toleration("")]) is None
    assert first_untolerated(taints, [], lambda taint: True) == taints[0]
    assert first_untolerated([], []) is None


def test_features_are_bits_in_the_order_of_their_names() -> None:
    assert list(FEATURES) == sorted(FEATURES)
    assert feature_mask([]) == feature_mask(["Unknown"]) == 0
    assert [feature_mask([name]) for name in FEATURES] == [1, 2, 4, 8, 16]
    assert feature_mask(FEATURES) == 31


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"topologySpreadConstraints": [{"maxSkew": 1 << 70}]},
            r"Expected `int` <= 2147483647 - at `\$.spec.topologySpreadConstraints\[0\].maxSkew`",
        ),
        ({"tolerations": [{"tolerationSeconds": 1 << 63}]}, r"<= 9223372036854775807 - at `\$.spec.tolerations"),
        ({"priority": -(1 << 31) - 1}, r">= -2147483648 - at `\$.spec.priority`"),
    ],
)
def test_numbers_wider_than_the_field_are_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_builtins({"spec": spec}, Pod)
    with pytest.raises(ValueError, match=said):
        decode_object(json.dumps({"spec": spec}).encode(), Pod)
