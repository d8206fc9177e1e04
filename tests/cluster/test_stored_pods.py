"""Pods are stored in parts and read as a whole: the same bytes, and one text for all specs that differ in the node only."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.decode import DecodeError
from kubesched.api.kinds import PODS
from kubesched.api.types import Pod
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
    closed=st.booleans(),
)
def test_any_pod_has_the_bytes_of_its_document(node: str, spec: Any, status: Any, closed: bool) -> None:
    spec = {"nodeName": node, **spec}
    whole = document(spec, status=status)
    expected = encode_clean(whole)
    if closed:
        whole["spec"], whole["status"] = msgspec.Raw(encode_clean(spec)), msgspec.Raw(encode_clean(status))
    item = stored(PODS, whole, whole["metadata"], 7, None)
    assert item.raw == expected
    opened = {name: msgspec.json.decode(msgspec.json.encode(part)) for name, part in item.document().items()}
    assert opened == msgspec.json.decode(expected)


@pytest.mark.parametrize("more", [{"extra": 1}, {"spec": None}])
def test_other_objects_are_stored_as_a_whole(more: dict[str, Any]) -> None:
    whole = document(**more) if "extra" in more else {k: v for k, v in document().items() if k != "spec"}
    item = stored(PODS, whole, whole["metadata"], 7, None)
    assert type(item) is Stored
    assert item.raw == encode_clean(whole)


def test_a_section_that_cannot_be_read_is_named() -> None:
    item = stored(PODS, document({"containers": 5}), document()["metadata"], 7, None)
    with pytest.raises(DecodeError, match=r"spec\.containers"):
        _ = item.typed
    with pytest.raises(AttributeError):
        getattr(item, "nothing")  # noqa: B009 - a name that does not exist
