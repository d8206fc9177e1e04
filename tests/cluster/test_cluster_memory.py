"""Sharing, releasing and trimming memory changes nothing that a client reads."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from kubesched.api.kinds import PODS
from kubesched.api.types import Pod
from kubesched.api.wire import Item
from kubesched.base import kept
from kubesched.cli.memory import FORGET_SECONDS, give_back
from kubesched.cluster.store import Store


class StillClock:
    def now(self) -> float:
        return 1_800_000_000.0


def pod(name: str, *, owner: str = "rs", cpu: str = "1", labels: dict[str, str] | None = None) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels or {"app": "a"}, "ownerReferences": [reference]},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": resources}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
        },
    }  # fmt: skip


def view(obj: dict[str, Any]) -> Any:
    return Item(PODS, msgspec.json.encode(obj), "default", obj["metadata"]["name"], "u", 1).typed


def test_pods_of_one_owner_share_what_is_equal_and_nothing_else() -> None:
    first, same, other = view(pod("a", owner="o1")), view(pod("b", owner="o1")), view(pod("c", owner="o1", cpu="2"))
    assert same.spec.containers is first.spec.containers
    assert same.metadata.labels is first.metadata.labels
    assert same.metadata.name == "b"
    assert other.spec.tolerations is first.spec.tolerations
    assert other.spec.containers is not first.spec.containers
    for shared, obj in ((same, pod("b", owner="o1")), (other, pod("c", owner="o1", cpu="2"))):
        assert shared == msgspec.json.decode(msgspec.json.encode(obj), type=Pod), "sharing must not alter a pod"


def test_pods_of_other_owners_share_a_spec_and_labels_that_are_the_same_and_nothing_else() -> None:
    first, same, other = view(pod("a", owner="o2")), view(pod("b", owner="o3")), view(pod("c", owner="o4", cpu="2"))
    assert same.spec is first.spec
    assert same.metadata.labels is first.metadata.labels
    assert other.spec.containers != first.spec.containers
    assert other.metadata.owner_references is not first.metadata.owner_references


def test_texts_are_forgotten_and_read_again() -> None:
    store = Store(StillClock(), random=random.Random(1))
    store.create(PODS, "default", pod("a", owner="o5"))
    texts = list(kept._all.values())
    assert store.get(PODS, "default", "a").typed.metadata.name == "a"
    first, before = view(pod("b", owner="o5")), store.get(PODS, "default", "a").raw
    give_back(store, seconds=3_540.0)
    assert sum(len(one) for one in texts if one.is_timed) > 0
    give_back(store, seconds=3_000.0)
    assert sum(len(one) for one in texts if one.is_timed) == 0
    assert sum(map(len, texts)) > 0
    for hour in range(1, 5):
        give_back(store, seconds=hour * FORGET_SECONDS)
        assert sum(map(len, texts)) == 0
        if hour < 3:
            assert view(pod("c", owner="o5")).spec is first.spec, "used in each hour"
    assert sum(len(one._old) for one in texts) == 0
    again = view(pod("c", owner="o5"))
    assert again.spec == first.spec
    assert again.spec is not first.spec
    assert store.get(PODS, "default", "a").raw == before


def test_a_watch_reads_the_same_after_memory_was_given_back() -> None:
    store = Store(StillClock(), random=random.Random(1))
    before = str(store.resource_version)
    store.create(PODS, "default", pod("a"))
    store.patch(PODS, "default", "a", {"metadata": {"labels": {"app": "b"}}})

    def listed(selector: str = "") -> list[tuple[str, dict[str, str], bytes]]:
        watch = store.watch(PODS, "default", resource_version=before, field_selector=selector)
        events = watch.drain()
        watch.close()
        return [(event.type, event.item.typed.metadata.labels, event.item.raw) for event in events]

    first, pending = listed(), listed("spec.nodeName=")
    assert [labels for _, labels, _ in first] == [{"app": "a"}, {"app": "b"}]
    give_back(store)
    assert listed() == first
    assert listed("spec.nodeName=") == pending == first
