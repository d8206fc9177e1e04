"""Pods are stored in parts and read as a whole: the same bytes, and one text for all specs that differ in the node only."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.decode import DecodeError
from kubesched.api.kinds import PODS
from kubesched.api.types import Pod
from kubesched.api.wire import MERGE_PATCH, ApiError
from kubesched.cluster.schema.objects import Stored, encode_clean
from kubesched.cluster.schema.stored_pods import StoredPod, stored
from kubesched.cluster.store import Store

SPEC = {"containers": [{"name": "c", "image": "i"}], "priority": 0}


class StillClock:
    def now(self) -> float:
        return 1_700_000_000.0


def document(spec: Any = SPEC, name: str = "p", status: Any = None, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"}
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status or {}}
    return {**whole, **more}


def test_pods_on_nodes_share_the_text_of_their_spec() -> None:
    store = Store(StillClock(), random=Random(1))
    pods = [store.create(PODS, "default", {"metadata": {"name": name}, "spec": SPEC}) for name in "abc"]
    bound = [store.bind("default", pod.name, pod.uid, f"node-{pod.name}") for pod in pods]
    written = [
        store.patch(PODS, "default", pod.name, {"status": {"phase": "Running"}}, subresource="status") for pod in bound
    ]
    found = [item for item in (*pods, *bound, *written) if isinstance(item, StoredPod)]
    assert len(found) == 9
    assert len({id(item._spec) for item in found}) == 1
    for item in found:
        assert item.raw == msgspec.json.encode(item.data()), "compact JSON, in the order of the document"
        assert item.typed == msgspec.json.decode(item.raw, type=Pod)
        assert item.section("spec") == item.data()["spec"]
    assert [item.typed.spec.node_name for item in bound] == ["node-a", "node-b", "node-c"]


@pytest.mark.parametrize("is_read", [True, False])
def test_every_version_is_read_as_what_it_is(is_read: bool) -> None:
    """The view of a version may be made from the one before, if that was read."""
    store = Store(StillClock(), random=Random(1))
    item = store.create(PODS, "default", {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": SPEC})
    versions = [item, store.bind("default", "p", item.uid, "node-1")]
    scheduled = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    for status in (
        {"conditions": [scheduled]},
        {"conditions": [{**scheduled, "status": "False"}]},
        {"nominatedNodeName": "n"},
        {"conditions": [{**scheduled, "status": "True"}]},
    ):
        if is_read:
            assert versions[-1].typed.metadata.resource_version == str(versions[-1].resource_version)
        versions.append(store.patch(PODS, "default", "p", {"status": status}, subresource="status"))
    versions.append(store.delete(PODS, "default", "p", grace_period_seconds=0))
    assert len({item.resource_version for item in versions}) == 7
    for item in versions:
        assert isinstance(item, StoredPod)
        assert item.typed == msgspec.json.decode(item.raw, type=Pod)


def running(name: str, ip: str, node: str = "10.1.0.1", **more: Any) -> dict[str, Any]:
    """The document of a pod as a kubelet and a controller leave it."""
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "qosClass": "Burstable"}
    whole = document(name=name, status={**status, "hostIP": node, "hostIPs": [{"ip": node}], **more})
    whole["metadata"]["labels"] = {"app": "web"}
    return whole


def test_a_running_pod_takes_little_memory() -> None:
    store = Store(StillClock(), random=Random(1), history=10)
    body = {"metadata": {"generateName": "web-", "labels": {"app": "web"}}, "spec": SPEC}

    def run(count: int) -> list[Any]:
        views = []
        for number in range(count):
            pod = store.create(PODS, "default", body)
            store.bind("default", pod.name, pod.uid, f"node-{number % 9}")
            status = running(pod.name, f"10.0.{number // 200}.{number % 200}")["status"]
            views.append(
                store.patch(
                    PODS, "default", pod.name, {"status": status}, subresource="status", patch_type=MERGE_PATCH
                ).typed
            )
        return views

    kept = run(300)
    tracemalloc.start()
    try:
        kept += run(600)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / 600 < 1_700, "bytes for the store's record, its indexes and the decoded view"
    assert len({id(view.status) for view in kept}) == 1


def test_what_was_decoded_of_old_versions_is_dropped_as_the_history_grows() -> None:
    store = Store(StillClock(), random=Random(1), history=300)
    for name in ("a", "b", "c"):
        store.create(PODS, "default", {"metadata": {"name": name}, "spec": SPEC})
    old, kept = store.get(PODS, "default", "a"), store.get(PODS, "default", "c")
    store.delete(PODS, "default", "b", grace_period_seconds=0)
    last = store.table(PODS).since(0)[-1].item  # type: ignore[index]
    seen = [old.typed, last.typed, kept.typed]
    for number in range(520):  # two steps of the history
        label = {"metadata": {"labels": {"number": str(number)}}}
        newest = store.patch(PODS, "default", "a", label, patch_type=MERGE_PATCH)
    assert [item._typed for item in (old, last)] == [None, None]
    assert kept._typed is seen[2]
    assert [item.typed for item in (old, last, kept)] == seen
    assert newest.typed.metadata.labels == {"number": "519"}


def test_pods_of_a_template_share_the_texts_and_views_of_metadata_and_status() -> None:
    wholes = [running("a", "10.0.0.1"), running("b", "10.0.0.2", "10.1.0.2")]
    items = [stored(PODS, whole, 7, None) for whole in wholes]
    one, two = items
    assert isinstance(one, StoredPod)
    assert isinstance(two, StoredPod)
    assert one._metadata is two._metadata
    assert one._status is two._status
    assert [item.raw for item in items] == [encode_clean(whole) for whole in wholes]
    assert one.typed.status is two.typed.status
    assert [item.typed.name for item in items] == ["a", "b"]
    for item in items:
        assert item.typed == msgspec.json.decode(item.raw, type=Pod)
    assert b"uid" not in one._metadata
    assert b"10.0.0.1" not in one._status


@pytest.mark.parametrize(
    "status",
    [
        {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        {"podIP": ""},
        {"podIP": "10.0.0.9"},
        {"podIP": '1"0'},
        {"podIP": None},
        {"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}]},
        {"message": '"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]'},
        {"message": "\0\1", "nominatedNodeName": "10.0.0.1"},
    ],
)
def test_addresses_in_any_form_are_given_back(status: dict[str, Any]) -> None:
    other = running("b", "10.0.0.2")
    _ = stored(PODS, other, 7, None).typed
    whole = running("a", "10.0.0.1", **status)
    item = stored(PODS, whole, 7, None)
    assert item.raw == encode_clean(whole)
    assert item.typed == msgspec.json.decode(item.raw, type=Pod)


@pytest.mark.parametrize(
    "metadata",
    [
        {"uid": "u", "name": "a", "resourceVersion": "7"},
        {"name": "a", "resourceVersion": "7", "uid": "u"},
        {"name": "a", "labels": {"x": "y"}, "uid": "u", "resourceVersion": "7"},
        {"name": "a", "uid": "u", "resourceVersion": "8"},
        {"name": 'a"\\', "uid": "\0", "resourceVersion": "7", "annotations": {"x": '"uid":"\0"'}},
    ],
)
def test_metadata_in_any_order_is_given_back(metadata: dict[str, Any]) -> None:
    for name in ("first", "a"):
        whole = document(name=name)
        whole["metadata"] = {**metadata, "name": metadata["name"] if name == "a" else name}
        item = stored(PODS, whole, 7, None)
        assert item.raw == encode_clean(whole)
        assert item.typed == msgspec.json.decode(item.raw, type=Pod)


_texts = st.text(st.sampled_from('ab"\\,:{}ü\u2028\0'), max_size=4)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | _texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_texts, inner, max_size=2),
    max_leaves=6,
)


@given(
    node=_texts,
    spec=st.dictionaries(_texts | st.just("nodeName"), _values, max_size=3),
    status=st.dictionaries(_texts, _values, max_size=2),
    metadata=st.dictionaries(_texts | st.sampled_from(["labels", "generateName"]), _values, max_size=2),
    addresses=st.dictionaries(
        st.sampled_from(["podIP", "podIPs", "hostIP", "hostIPs"]),
        st.sampled_from(["", "1", '"', [{"ip": "1"}], [{"ip": ""}], [{"ip": '"'}]]),
    ),
    closed=st.booleans(),
)
def test_any_pod_has_the_bytes_of_its_document(
    node: str, spec: Any, status: Any, metadata: Any, addresses: Any, closed: bool
) -> None:
    spec, status = {"nodeName": node, **spec}, {**status, **addresses}
    whole = document(spec, status=status)
    whole["metadata"].update(metadata, labels={})
    expected = encode_clean(whole)
    if closed:
        whole["spec"], whole["status"] = msgspec.Raw(encode_clean(spec)), msgspec.Raw(encode_clean(status))
    item = stored(PODS, whole, 7, None)
    assert item.raw == expected
    opened = {name: msgspec.json.decode(msgspec.json.encode(part)) for name, part in item.document().items()}
    assert opened == msgspec.json.decode(expected)


@pytest.mark.parametrize("more", [{"extra": 1}, {"spec": None}])
def test_other_objects_are_stored_as_a_whole(more: dict[str, Any]) -> None:
    whole = document(**more) if "extra" in more else {k: v for k, v in document().items() if k != "spec"}
    item = stored(PODS, whole, 7, None)
    assert type(item) is Stored
    assert item.raw == encode_clean(whole)


def test_a_section_that_cannot_be_read_is_named() -> None:
    item = stored(PODS, document({"containers": 5}), 7, None)
    with pytest.raises(DecodeError, match=r"spec\.containers"):
        _ = item.typed
    with pytest.raises(AttributeError):
        getattr(item, "nothing")  # noqa: B009 - a name that does not exist


class MovingClock(StillClock):
    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        return self.time


FALSE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
BINDINGS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("plain", {}, {}, "n-2"),
    ("rejected before", {}, {"conditions": [{"type": "X", "status": "True"}, FALSE]}, "n-2"),
    ("nominated", {}, {"nominatedNodeName": "n-9", "phase": "Pending"}, "n-2"),
    ("labels, finalizers and owners", {"labels": {"a": "b"}, "finalizers": ["a/b"], "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}]}, {}, "n-2"),
    ("an annotation with braces", {"annotations": {"a/b": '{"uid":"x"}'}}, {}, "n-2"),
    ("an address", {}, {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}, "n-2"),
    ("a name to be escaped", {}, {}, 'n"\\2'),
    ("a name in another alphabet", {}, {}, "Knöten"),
]  # fmt: skip


@pytest.mark.parametrize(("metadata", "status", "node"), [c[1:] for c in BINDINGS], ids=[c[0] for c in BINDINGS])
def test_a_pod_bound_like_another_of_its_template_is_what_it_is_without_one(
    metadata: dict[str, Any], status: dict[str, Any], node: str
) -> None:
    def bound(nodes: list[str], pause: float) -> Stored:
        """The last of the pods, each bound to its node, with a pause before the last."""
        clock = MovingClock()
        store = Store(clock, random=Random(1))
        pods = []
        for number in range(len(nodes)):
            whole = {"metadata": {"name": f"p{number}", **metadata}, "spec": SPEC, "status": status}
            pods.append(store.create(PODS, "default", whole, restore=True))
        for pod, name in zip(pods[:-1], nodes[:-1], strict=True):
            store.bind("default", pod.name, pod.uid, name)
        clock.time += pause
        last = store.bind("default", pods[-1].name, "", nodes[-1])
        assert last.labels == pods[-1].labels
        assert last.owners == pods[-1].owners
        assert store.get(PODS, "default", last.name) is last
        with pytest.raises(ApiError, match="is already assigned to node"):
            store.bind("default", last.name, "", "n-1")
        return last

    for before in ("n-1", 'n"1'):
        alike, alone = bound([before, "n-1", node], 0.0), bound([before, "n-1", node], 5.0)
        data = alone.data()
        scheduled = next(item for item in data["status"]["conditions"] if item["type"] == "PodScheduled")
        scheduled["lastTransitionTime"] = "2023-11-14T22:13:20Z"  # when the others were bound
        assert alike.data() == data
        assert alike.raw == msgspec.json.encode(alike.data())
        assert alike.typed == msgspec.json.decode(alike.raw, type=Pod)
        assert alike.typed.spec.node_name == node


def test_a_pod_that_is_being_deleted_or_gated_is_not_bound_like_another() -> None:
    store = Store(StillClock(), random=Random(1))
    for name in "abc":
        metadata = {"name": name, "finalizers": ["a/b"]}
        spec = {**SPEC, "schedulingGates": [{"name": "g"}]} if name == "c" else SPEC
        store.create(PODS, "default", {"metadata": metadata, "spec": spec})
    store.bind("default", "a", "", "n-1")
    store.delete(PODS, "default", "b")
    for name, text in (("b", "is being deleted"), ("c", "non-empty .spec.schedulingGates")):
        with pytest.raises(ApiError, match=text):
            store.bind("default", name, "", "n-1")
