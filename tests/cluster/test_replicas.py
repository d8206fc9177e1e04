"""Pods created by the same request, one after the other, are what each would be alone."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kubesched.api.kinds import LIMIT_RANGES, NAMESPACES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS, RUNTIME_CLASSES
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.cluster.schema import StoredPod
from kubesched.cluster.store import Store

Data = dict[str, Any]


class Clock:
    seconds = 1_700_000_000.0

    def now(self) -> float:
        return self.seconds


def a_store() -> tuple[Store, Clock]:
    clock = Clock()
    return Store(clock, random=Random(1)), clock


def a_pod(**spec: Any) -> Data:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    metadata = {"generateName": "web-", "labels": {"app": "web"}, "ownerReferences": [owner]}
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def in_other_words(pod: Data) -> Data:
    """Return the same request, with the members in another order."""
    return dict(reversed(pod.items()))


def is_copied(store: Store) -> bool:
    """Return True if the last pod has all its texts from the one before."""
    pods = sorted(store.list(PODS).items, key=lambda item: item.resource_version)
    first, second = pods[-2:]
    assert isinstance(first, StoredPod)
    assert isinstance(second, StoredPod)
    return all(getattr(first, part) is getattr(second, part) for part in ("_metadata", "_spec", "_status", "owners"))


@pytest.mark.parametrize("spec", [{}, {"nodeName": "n"}, {"schedulingGates": [{"name": "g"}]}], ids=str)
def test_a_copy_is_what_the_whole_way_gives(spec: Data) -> None:
    (store, _), (other, _) = a_store(), a_store()
    request = a_pod(**spec)
    copies = [store.create(PODS, "default", request) for _ in range(4)]
    whole = [other.create(PODS, "default", body) for body in (request, in_other_words(request)) * 2]
    assert is_copied(store)
    assert len({item.name for item in copies}) == 4
    for copy, expected in zip(copies, whole, strict=True):
        assert (copy.raw, copy.key, copy.labels, copy.owners) == (
            expected.raw, expected.key, expected.labels, expected.owners
        )  # fmt: skip
        typed: Pod = copy.typed
        assert typed == expected.typed
        assert store.get(PODS, "default", copy.name) is copy
    assert store.resource_version == other.resource_version


def test_a_copy_has_the_time_of_its_own_creation() -> None:
    store, clock = a_store()
    store.create(PODS, "default", a_pod())
    clock.seconds += 1
    item = store.create(PODS, "default", a_pod())
    assert item.section("metadata")["creationTimestamp"] == "2023-11-14T22:13:21Z"


@pytest.mark.parametrize(
    ("kind", "made", "changed"),
    [
        (PRIORITY_CLASSES, {"value": 7, "globalDefault": True}, lambda pod: pod.spec.priority == 7),
        (
            LIMIT_RANGES,
            {"spec": {"limits": [{"type": "Container", "defaultRequest": {"memory": "1Gi"}}]}},
            lambda pod: pod.spec.containers[0].resources.requests["memory"] == "1Gi",
        ),
    ],
    ids=["priority class", "limits"],
)
def test_what_admission_reads_counts_for_the_next_pod(kind: Any, made: Data, changed: Any) -> None:
    store, _ = a_store()
    assert not changed_or_error(changed, store.create(PODS, "default", a_pod()).typed)
    namespace = "default" if kind.namespaced else ""
    store.create(kind, namespace, {"metadata": {"name": "x"}, **made})
    assert changed(store.create(PODS, "default", a_pod()).typed)
    store.delete(kind, namespace, "x")
    assert not changed_or_error(changed, store.create(PODS, "default", a_pod()).typed)


def changed_or_error(changed: Any, pod: Pod) -> bool:
    try:
        return bool(changed(pod))
    except KeyError:
        return False


def test_a_runtime_class_that_is_gone_is_missed() -> None:
    store, _ = a_store()
    store.create(RUNTIME_CLASSES, "", {"metadata": {"name": "r"}, "handler": "h"})
    store.create(PODS, "default", a_pod(runtimeClassName="r"))
    store.delete(RUNTIME_CLASSES, "", "r")
    with pytest.raises(ApiError, match='RuntimeClass "r" not found'):
        store.create(PODS, "default", a_pod(runtimeClassName="r"))


def test_quotas_and_namespaces_are_looked_at_for_each_pod() -> None:
    store, _ = a_store()
    store.create(NAMESPACES, "", {"metadata": {"name": "n"}})
    store.create(PODS, "n", a_pod())
    store.create(RESOURCE_QUOTAS, "n", {"metadata": {"name": "q"}, "spec": {"hard": {"count/pods": "2"}}})
    store.create(PODS, "n", a_pod())
    with pytest.raises(ApiError, match="exceeded quota: q"):
        store.create(PODS, "n", a_pod())
    store.create(PODS, "default", a_pod())
    store.delete(RESOURCE_QUOTAS, "n", "q")
    store.create(PODS, "n", a_pod())
    item = store.get(NAMESPACES, "", "n").data()
    store.update(NAMESPACES, "", "n", {**item, "metadata": {**item["metadata"], "finalizers": ["example.com/wait"]}})
    store.delete(NAMESPACES, "", "n")
    with pytest.raises(ApiError, match="being terminated"):
        store.create(PODS, "n", a_pod())


def test_a_request_for_another_namespace_is_refused_as_ever() -> None:
    store, _ = a_store()
    body = a_pod()
    body["metadata"]["namespace"] = "default"
    store.create(PODS, "default", body)
    assert store.create(PODS, "", body).namespace == "default"
    with pytest.raises(ApiError, match="does not match the namespace"):
        store.create(PODS, "kube-system", body)


def test_only_what_was_created_is_remembered() -> None:
    store, _ = a_store()
    dry = store.create(PODS, "default", a_pod(), dry_run=True)
    assert dry.section("metadata").get("resourceVersion") is None
    item = store.create(PODS, "default", a_pod())
    assert item.section("metadata")["resourceVersion"] == str(store.resource_version)
    with pytest.raises(ApiError, match="image: Required"):
        store.create(PODS, "default", a_pod(containers=[{"name": "c"}]))
    with pytest.raises(ApiError, match="image: Required"):
        store.create(PODS, "default", a_pod(containers=[{"name": "c"}]))
    with pytest.raises(ApiError, match="cannot be written as JSON"):
        store.create(PODS, "default", a_pod(hostname=object()))


def test_a_changed_pod_is_not_what_is_copied() -> None:
    store, _ = a_store()
    first = store.create(PODS, "default", a_pod())
    store.bind("default", first.name, first.uid, "n")
    store.delete(PODS, "default", first.name, grace_period_seconds=0)
    second: Pod = store.create(PODS, "default", a_pod()).typed
    assert (second.spec.node_name, second.metadata.deletion_timestamp) == ("", None)
