"""Deletion of objects: grace, finalizers, owners, namespaces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cluster_world import FakeClock, a_pod, a_store, kind, refused, running

from kubesched.api.kinds import NAMESPACES, NODES, PODS
from kubesched.api.wire import MERGE_PATCH, ApiError
from kubesched.cluster.schema import Stored
from kubesched.cluster.store import Store

CONFIG_MAPS = kind("configmaps")


def exists(store: Store, name: str, namespace: str = "default") -> bool:
    return (namespace, name) in store.table(PODS).objects


def owned_by(*owners: Stored, block: bool = False) -> list[dict[str, Any]]:
    return [
        {"apiVersion": "v1", "kind": owner.kind.kind, "name": owner.name, "uid": owner.uid, "blockOwnerDeletion": block}
        for owner in owners
    ]


def test_an_unscheduled_or_finished_pod_goes_at_once() -> None:
    store = a_store()
    store.create(PODS, "default", a_pod("p"))
    store.delete(PODS, "default", "p")
    running(store, "done")
    store.patch(PODS, "default", "done", {"status": {"phase": "Succeeded"}}, subresource="status")
    store.delete(PODS, "default", "done")
    assert not exists(store, "p")
    assert not exists(store, "done")


def test_a_running_pod_gets_its_grace_period_which_can_only_shrink() -> None:
    clock = FakeClock()
    store = a_store(clock)
    running(store, "p", terminationGracePeriodSeconds=60)
    metadata = store.delete(PODS, "default", "p").data()["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == ("2025-06-15T15:07:40Z", 60)
    assert metadata["generation"] == 2
    clock.time += 5
    version = store.resource_version
    store.delete(PODS, "default", "p", grace_period_seconds=90)
    store.delete(PODS, "default", "p")
    assert store.resource_version == version
    metadata = store.delete(PODS, "default", "p", grace_period_seconds=10).data()["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == ("2025-06-15T15:06:50Z", 10)
    store.delete(PODS, "default", "p", grace_period_seconds=0)
    assert not exists(store, "p")


def test_preconditions_guard_against_deleting_another_object() -> None:
    store = a_store()
    pod = store.create(PODS, "default", a_pod("p"))
    with refused(409, "Conflict", f"UID in object meta: {pod.uid}"):
        store.delete(PODS, "default", "p", uid="other")
    with refused(409, "Conflict", "ResourceVersion in precondition"):
        store.delete(PODS, "default", "p", resource_version="1")
    with refused(404):
        store.delete(PODS, "default", "q")
    with refused(422, match="propagationPolicy"):
        store.delete(PODS, "default", "p", propagation_policy="Sideways")
    store.delete(PODS, "default", "p", uid=pod.uid, resource_version=str(pod.resource_version))


@pytest.mark.parametrize("scheduled", [False, True], ids=["unscheduled", "running with no grace left"])
def test_finalizers_hold_an_object_until_they_are_gone(scheduled: bool) -> None:
    store = a_store()
    if scheduled:
        running(store, "p", finalizers=["example.com/hold"])
    else:
        store.create(PODS, "default", a_pod("p", finalizers=["example.com/hold"]))
    store.delete(PODS, "default", "p", grace_period_seconds=0)
    metadata = store.get(PODS, "default", "p").data()["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 0
    with refused(422, match="no new finalizers can be added"):
        store.patch(PODS, "default", "p", {"metadata": {"finalizers": ["example.com/more"]}})
    store.patch(PODS, "default", "p", {"metadata": {"finalizers": None}}, patch_type=MERGE_PATCH)
    assert not exists(store, "p")


def test_a_graceful_pod_without_finalizers_stays_when_it_is_only_updated() -> None:
    store = a_store()
    running(store, "p")
    store.delete(PODS, "default", "p")
    store.patch(PODS, "default", "p", {"metadata": {"labels": {"a": "b"}}})
    assert exists(store, "p")


# -- owners ------------------------------------------------------------------------------------------------


def an_owner(store: Store, name: str = "o") -> Stored:
    return store.create(CONFIG_MAPS, "default", {"metadata": {"name": name}})


def test_dependents_follow_their_last_owner() -> None:
    store = a_store()
    first, second = an_owner(store, "first"), an_owner(store, "second")
    store.create(PODS, "default", a_pod("one", ownerReferences=owned_by(first)))
    store.create(PODS, "default", a_pod("both", ownerReferences=owned_by(first, second)))
    store.delete(CONFIG_MAPS, "default", "first")
    assert not exists(store, "one")
    references = store.get(PODS, "default", "both").data()["metadata"]["ownerReferences"]
    assert [item["name"] for item in references] == ["second"]
    store.delete(CONFIG_MAPS, "default", "second")
    assert not exists(store, "both")


@pytest.mark.parametrize(
    ("second", "stays"),
    [
        ({}, True),
        ({"name": "other"}, False),
        ({"uid": "another"}, False),
        ({"kind": "Secret"}, False),
        ({"apiVersion": "v2"}, True),
        ({"apiVersion": "example.com/v1", "kind": "Unknown"}, True),
    ],
)
def test_an_owner_is_found_by_kind_name_and_uid(second: dict[str, str], stays: bool) -> None:
    """One of a kind that nobody serves may exist, so its dependent is kept."""
    store = a_store()
    first, other = owned_by(an_owner(store, "first"), an_owner(store, "second"))
    store.create(PODS, "default", a_pod("p", ownerReferences=[first, {**other, **second}]))
    store.delete(CONFIG_MAPS, "default", "first")
    assert exists(store, "p") == stays


def test_an_owner_without_a_namespace_is_found() -> None:
    store = a_store()
    node = store.create(NODES, "", {"metadata": {"name": "n"}})
    store.create(PODS, "default", a_pod("p", ownerReferences=owned_by(an_owner(store), node)))
    store.delete(CONFIG_MAPS, "default", "o")
    assert exists(store, "p")


def test_orphans_stay() -> None:
    store = a_store()
    store.create(PODS, "default", a_pod("p", ownerReferences=owned_by(an_owner(store))))
    store.delete(CONFIG_MAPS, "default", "o", propagation_policy="Orphan")
    assert "ownerReferences" not in store.get(PODS, "default", "p").data()["metadata"]


def test_a_foreground_owner_waits_for_what_blocks_it() -> None:
    store = a_store()
    owner = an_owner(store)
    running(store, "slow", ownerReferences=owned_by(owner, block=True))
    store.delete(CONFIG_MAPS, "default", "o", propagation_policy="Foreground")
    metadata = store.get(CONFIG_MAPS, "default", "o").data()["metadata"]
    assert metadata["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in store.get(PODS, "default", "slow").data()["metadata"]
    store.delete(PODS, "default", "slow", grace_period_seconds=0)
    assert store.list(CONFIG_MAPS).items == []


def test_a_foreground_deletion_spares_what_another_owner_keeps() -> None:
    """The dependent loses its references to owners that go and to owners that are gone."""
    store = a_store()
    first, second, gone = an_owner(store, "first"), an_owner(store, "second"), an_owner(store, "gone")
    store.delete(CONFIG_MAPS, "default", "gone")
    running(store, "both", ownerReferences=owned_by(first, gone, second, block=True))
    store.delete(CONFIG_MAPS, "default", "first", propagation_policy="Foreground")
    metadata = store.get(PODS, "default", "both").data()["metadata"]
    assert [item["name"] for item in metadata["ownerReferences"]] == ["second"]
    assert "deletionTimestamp" not in metadata
    assert [item.name for item in store.list(CONFIG_MAPS).items] == ["second"]


def test_a_dependent_goes_when_all_of_its_owners_wait_for_that() -> None:
    store = a_store()
    first, second = an_owner(store, "first"), an_owner(store, "second")
    store.create(
        PODS,
        "default",
        a_pod("both", finalizers=["example.com/hold"], ownerReferences=owned_by(first, second, block=True)),
    )
    store.delete(CONFIG_MAPS, "default", "first", propagation_policy="Foreground")
    assert [item["name"] for item in store.get(PODS, "default", "both").data()["metadata"]["ownerReferences"]] == [
        "second"
    ]
    store.delete(CONFIG_MAPS, "default", "second", propagation_policy="Foreground")
    assert "deletionTimestamp" in store.get(PODS, "default", "both").data()["metadata"]
    store.patch(PODS, "default", "both", {"metadata": {"finalizers": None}}, patch_type=MERGE_PATCH)
    assert store.list(CONFIG_MAPS).items == []


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_circle_of_owners_goes_as_a_whole(size: int) -> None:
    store = a_store()
    circle = [an_owner(store, f"o{number}") for number in range(size)]
    for number, owner in enumerate(circle):
        references = {"metadata": {"ownerReferences": owned_by(circle[number - 1], block=True)}}
        store.patch(CONFIG_MAPS, "default", owner.name, references, patch_type=MERGE_PATCH)
    store.delete(CONFIG_MAPS, "default", "o0", propagation_policy="Foreground")
    assert store.list(CONFIG_MAPS).items == []


def test_a_foreground_owner_goes_when_its_dependent_is_released() -> None:
    store = a_store()
    owner = an_owner(store)
    running(store, "slow", ownerReferences=owned_by(owner, block=True))
    store.delete(CONFIG_MAPS, "default", "o", propagation_policy="Foreground")
    store.patch(PODS, "default", "slow", {"metadata": {"ownerReferences": None}}, patch_type=MERGE_PATCH)
    assert store.list(CONFIG_MAPS).items == []


def test_garbage_is_collected_on_the_loops_next_turn() -> None:
    async def main() -> None:
        store = a_store()
        store.create(PODS, "default", a_pod("p", ownerReferences=owned_by(an_owner(store))))
        store.delete(CONFIG_MAPS, "default", "o")
        assert exists(store, "p")
        await asyncio.sleep(0)
        assert not exists(store, "p")

    asyncio.run(main())


# -- namespaces --------------------------------------------------------------------------------------------


def test_a_namespace_takes_its_content_with_it_and_lets_nothing_new_in() -> None:
    store = a_store()
    store.create(NAMESPACES, "", {"metadata": {"name": "team"}})
    store.create(PODS, "team", a_pod("quick"))
    slow = store.create(PODS, "team", a_pod("slow"))
    store.bind("team", "slow", slow.uid, "n1")
    store.delete(NAMESPACES, "", "team")
    assert not exists(store, "quick", "team")
    assert store.get(NAMESPACES, "", "team").data()["status"]["phase"] == "Terminating"
    with pytest.raises(ApiError, match="because it is being terminated") as caught:
        store.create(PODS, "team", a_pod("late"))
    assert (caught.value.code, caught.value.details["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    store.delete(PODS, "team", "slow", grace_period_seconds=0)
    with refused(404):
        store.get(NAMESPACES, "", "team")
    store.create(NAMESPACES, "", {"metadata": {"name": "team"}})
    store.create(PODS, "team", a_pod("again"))


def test_a_namespace_waits_for_its_own_finalizers() -> None:
    store = a_store()
    store.create(NAMESPACES, "", {"metadata": {"name": "team", "finalizers": ["example.com/hold"]}})
    store.delete(NAMESPACES, "", "team")
    assert store.get(NAMESPACES, "", "team").data()["metadata"]["finalizers"] == ["example.com/hold"]
    store.patch(NAMESPACES, "", "team", {"metadata": {"finalizers": None}}, patch_type=MERGE_PATCH)
    with refused(404):
        store.get(NAMESPACES, "", "team")


def test_some_namespaces_cannot_be_deleted() -> None:
    with refused(403, "Forbidden", "this namespace may not be deleted"):
        a_store().delete(NAMESPACES, "", "default")
