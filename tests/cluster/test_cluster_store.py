"""The verbs on objects: versions, identity, metadata, optimistic concurrency, patches."""

from __future__ import annotations

import re
from typing import Any

import pytest
from cluster_world import FakeClock, a_node, a_pod, a_store, kind, refused, running

from kubesched.api.kinds import NAMESPACES, NODES, PODS, Kind
from kubesched.api.wire import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

CONFIG_MAPS = kind("configmaps")
DEPLOYMENTS = kind("deployments", "apps")


def test_a_created_object_gets_identity_time_and_the_next_version() -> None:
    store = a_store()
    before = store.resource_version
    item = store.create(PODS, "default", a_pod("p", labels={"app": "web"}))
    metadata = item.data()["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", item.uid)
    assert metadata["resourceVersion"] == str(before + 1) == str(item.resource_version)
    assert metadata["creationTimestamp"] == "2025-06-15T15:06:40Z"
    assert metadata["generation"] == 1
    assert metadata["namespace"] == "default"
    assert item.key == "default/p"


def test_the_same_seed_gives_the_same_identities_and_names() -> None:
    made = [a_store().create(PODS, "default", a_pod("")) for _ in range(2)]
    assert made[0].raw == made[1].raw
    assert re.fullmatch(r"gen-[bcdfghjklmnpqrstvwxz2456789]{5}", made[0].name)


def test_the_callers_object_is_neither_changed_nor_kept() -> None:
    store, pod = a_store(), a_pod("", labels={"a": "b"}, hostNetwork=True)
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
    before = repr(pod)
    first = store.create(PODS, "default", pod)
    assert repr(pod) == before
    pod["metadata"]["labels"]["a"] = "changed"
    assert first.labels == {"a": "b"}
    assert store.list(PODS, label_selector="a=b").items == [first]


def test_unknown_fields_and_sections_are_carried_verbatim() -> None:
    store = a_store()
    data = {"metadata": {"name": "c", "x-meta": 1}, "data": {"k": "v"}, "strange": {"deep": [1, {"a": None, "b": 2}]}}
    stored = store.create(CONFIG_MAPS, "default", data).data()
    assert stored["strange"] == {"deep": [1, {"b": 2}]}
    assert stored["metadata"]["x-meta"] == 1
    store.patch(CONFIG_MAPS, "default", "c", {"data": {"k": "w"}}, patch_type=MERGE_PATCH)
    assert store.get(CONFIG_MAPS, "default", "c").data()["strange"] == {"deep": [1, {"b": 2}]}
    pod = store.create(PODS, "default", {**a_pod("p"), "extra": {"kept": True}})
    store.bind("default", "p", pod.uid, "n1")
    assert store.get(PODS, "default", "p").data()["extra"] == {"kept": True}


REFUSED_CREATES: list[tuple[str, Kind, dict[str, Any], int, str]] = [
    ("a namespace that does not exist", PODS, a_pod("p", namespace="nowhere"), 404, 'namespaces "nowhere" not found'),
    ("no name at all", CONFIG_MAPS, {"metadata": {}}, 422, "metadata.name: Required value"),
    ("a name in capitals", CONFIG_MAPS, {"metadata": {"name": "Big"}}, 422, "metadata.name: Invalid value"),
    ("a namespace with a dot", NAMESPACES, {"metadata": {"name": "a.b"}}, 422, "RFC 1123 label"),
    ("a bad label key", CONFIG_MAPS, {"metadata": {"name": "c", "labels": {"-": "x"}}}, 422, "metadata.labels"),
    ("a bad label value", CONFIG_MAPS, {"metadata": {"name": "c", "labels": {"a": "x y"}}}, 422, "metadata.labels"),
    ("a label that is a number", CONFIG_MAPS, {"metadata": {"name": "c", "labels": {"a": 1}}}, 400, "in quotes"),
    ("a version given", CONFIG_MAPS, {"metadata": {"name": "c", "resourceVersion": "5"}}, 400, "resourceVersion"),
    ("another kind in the body", CONFIG_MAPS, {"kind": "Secret", "metadata": {"name": "c"}}, 400, "Secret"),
    ("metadata that is a list", CONFIG_MAPS, {"metadata": []}, 400, "metadata"),
    ("an owner without uid", CONFIG_MAPS, {"metadata": {"name": "c", "ownerReferences": [{"kind": "A"}]}}, 422, "uid"),
]


@pytest.mark.parametrize(("what", "of", "obj", "code", "text"), REFUSED_CREATES, ids=lambda value: str(value)[:40])
def test_creating_is_refused(what: str, of: Kind, obj: dict[str, Any], code: int, text: str) -> None:
    store = a_store()
    version = store.resource_version
    with refused(code, match=text):
        store.create(of, "", obj)
    assert store.resource_version == version


def test_duplicates_unknown_kinds_and_missing_objects() -> None:
    store = a_store()
    store.create(PODS, "default", a_pod("p"))
    with refused(409, "AlreadyExists", 'pods "p" already exists'):
        store.create(PODS, "default", a_pod("p"))
    with refused(404, "NotFound", 'pods "q" not found'):
        store.get(PODS, "default", "q")
    with refused(404, "NotFound", "the server could not find the requested resource"):
        store.list(Kind("example.com", "v1", "Thing", "things"))


def test_missing_namespaces_appear_when_the_option_says_so() -> None:
    store = a_store(auto_namespaces=True)
    store.create(PODS, "fresh", a_pod("p"))
    assert store.get(NAMESPACES, "", "fresh").labels == {"kubernetes.io/metadata.name": "fresh"}


def test_the_first_namespaces_and_priority_classes_exist() -> None:
    store = a_store()
    names = [item.name for item in store.list(NAMESPACES).items]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    values = {
        item.name: item.data()["value"] for item in store.list(kind("priorityclasses", "scheduling.k8s.io")).items
    }
    assert values == {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def test_a_dry_run_answers_but_stores_nothing() -> None:
    store = a_store()
    version = store.resource_version
    item = store.create(PODS, "default", a_pod("p"), dry_run=True)
    assert item.data()["status"]["phase"] == "Pending"
    assert store.resource_version == version
    assert store.list(PODS).items == []
    store.create(PODS, "default", a_pod("p"))
    version = store.resource_version
    changed = store.patch(PODS, "default", "p", {"metadata": {"labels": {"a": "b"}}}, dry_run=True)
    assert changed.labels == {"a": "b"}
    store.delete(PODS, "default", "p", dry_run=True)
    store.bind("default", "p", "", "n1", dry_run=True)
    assert store.resource_version == version
    assert store.get(PODS, "default", "p").labels == {}


# -- update ------------------------------------------------------------------------------------------------


def test_an_update_with_a_stale_version_conflicts_and_one_without_does_not() -> None:
    store = a_store()
    stale = store.create(CONFIG_MAPS, "default", {"metadata": {"name": "c"}, "data": {"k": "1"}}).data()
    store.patch(CONFIG_MAPS, "default", "c", {"data": {"k": "2"}})
    with refused(
        409,
        "Conflict",
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again",
    ):
        store.update(CONFIG_MAPS, "default", "c", stale)
    del stale["metadata"]["resourceVersion"]
    assert store.update(CONFIG_MAPS, "default", "c", stale).data()["data"] == {"k": "1"}
    zero = {**stale, "metadata": {**stale["metadata"], "resourceVersion": "0"}, "data": {"k": "3"}}
    assert store.update(CONFIG_MAPS, "default", "c", zero).data()["data"] == {"k": "3"}
    with refused(409, "Conflict", "UID in precondition"):
        store.update(CONFIG_MAPS, "default", "c", {"metadata": {"name": "c", "uid": "other"}})
    with refused(400, match="does not match the name on the URL"):
        store.update(CONFIG_MAPS, "default", "c", {"metadata": {"name": "d"}})
    with refused(404):
        store.update(CONFIG_MAPS, "default", "gone", {"metadata": {"name": "gone"}})


def test_an_update_that_changes_nothing_writes_nothing() -> None:
    store = a_store()
    item = store.create(PODS, "default", a_pod("p", labels={"a": "b"}))
    assert store.update(PODS, "default", "p", item.data()) is item
    assert store.patch(PODS, "default", "p", {"metadata": {"labels": {"a": "b"}}}) is item
    assert store.patch(PODS, "default", "p", {"status": {"phase": "Pending"}}, subresource="status") is item


@pytest.mark.parametrize(("before", "after"), [(1, True), (False, 0), ({"x": [1]}, {"x": [True]}), ([0.0], [False])])
def test_a_boolean_in_place_of_a_number_is_a_change(before: Any, after: Any) -> None:
    store = a_store()
    frogs = Kind("example.com", "v1", "Frog", "frogs", namespaced=True, custom=True)
    store.register(frogs)
    store.create(frogs, "default", {"metadata": {"name": "f"}, "spec": {"value": before}})

    def write(way: str, value: Any) -> Any:
        if way == "update":
            metadata = {"name": "f", "resourceVersion": str(store.resource_version)}
            return store.update(frogs, "default", "f", {"metadata": metadata, "spec": {"value": value}})
        patch: Any = {"spec": {"value": value}}
        if way == JSON_PATCH:
            patch = [{"op": "replace", "path": "/spec/value", "value": value}]
        return store.patch(frogs, "default", "f", patch, patch_type=way)

    for way in ("update", MERGE_PATCH, STRATEGIC_PATCH, JSON_PATCH):
        for value in (after, before):
            version = store.resource_version
            changed = write(way, value)
            assert changed.resource_version == version + 1
            assert repr(changed.data()["spec"]["value"]) == repr(value)
            assert write(way, value) is changed


def test_a_whole_number_written_as_a_fraction_is_no_change() -> None:
    store = a_store()
    frogs = Kind("example.com", "v1", "Frog", "frogs", namespaced=True, custom=True)
    store.register(frogs)
    item = store.create(frogs, "default", {"metadata": {"name": "f"}, "spec": {"value": 1}})
    assert store.patch(frogs, "default", "f", {"spec": {"value": 1.0}}) is item


@pytest.mark.parametrize("subresource", ["", "status"])
def test_an_ill_typed_value_that_python_takes_for_the_stored_one_is_refused(subresource: str) -> None:
    store = a_store()
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": True}
    store.create(PODS, "default", a_pod("p", ownerReferences=[owner]))
    store.patch(PODS, "default", "p", {"status": {"observedGeneration": 1}}, subresource="status")
    path, value = (
        ("/metadata/ownerReferences/0/controller", 1) if not subresource else ("/status/observedGeneration", True)
    )
    change = [{"op": "replace", "path": path, "value": value}]
    with refused(400):
        store.patch(PODS, "default", "p", change, patch_type=JSON_PATCH, subresource=subresource)


def test_generation_counts_spec_changes_only() -> None:
    store = a_store()
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    store.create(DEPLOYMENTS, "default", {"metadata": {"name": "d"}, "spec": spec})

    def generation() -> int:
        value: int = store.get(DEPLOYMENTS, "default", "d").data()["metadata"]["generation"]
        return value

    assert (generation(), store.get(DEPLOYMENTS, "default", "d").data()["spec"]["replicas"]) == (1, 1)
    store.patch(DEPLOYMENTS, "default", "d", {"metadata": {"labels": {"x": "y"}}})
    store.patch(DEPLOYMENTS, "default", "d", {"status": {"replicas": 1}}, subresource="status")
    assert generation() == 1
    store.patch(DEPLOYMENTS, "default", "d", {"spec": {"replicas": 3}})
    assert generation() == 2


def test_status_and_the_rest_are_written_apart() -> None:
    store = a_store()
    store.create(NODES, "", a_node("n1"))
    assert store.get(NODES, "", "n1").data()["status"]["allocatable"]["cpu"] == "4"
    data = store.get(NODES, "", "n1").data()
    data["spec"] = {"unschedulable": True}
    data["status"] = {}
    assert store.update(NODES, "", "n1", data).data()["status"]["allocatable"]["cpu"] == "4"
    data = store.get(NODES, "", "n1").data()
    data["spec"] = {}
    data["status"]["allocatable"]["cpu"] = "8"
    after = store.update(NODES, "", "n1", data, subresource="status").data()
    assert (after["spec"], after["status"]["allocatable"]["cpu"]) == ({"unschedulable": True}, "8")
    with refused(422, "Invalid", "must be greater than or equal to 0"):
        store.patch(NODES, "", "n1", {"status": {"allocatable": {"cpu": "-1"}}}, subresource="status")
    with refused(404):
        store.update(CONFIG_MAPS, "default", "c", {"metadata": {"name": "c"}}, subresource="status")


def test_a_lost_lease_race_is_a_conflict() -> None:
    store, leases = a_store(), kind("leases", "coordination.k8s.io")
    first = store.create(
        leases, "kube-system", {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 15}}
    ).data()
    mine, theirs = dict(first), dict(first)
    mine["spec"] = {**first["spec"], "holderIdentity": "me"}
    theirs["spec"] = {**first["spec"], "holderIdentity": "they"}
    store.update(leases, "kube-system", "l", mine)
    with refused(409, "Conflict"):
        store.update(leases, "kube-system", "l", theirs)


# -- patches -----------------------------------------------------------------------------------------------


def _conditions(store: Any, *patches: dict[str, Any]) -> list[Any]:
    for patch in patches:
        store.patch(PODS, "default", "p", {"status": patch}, subresource="status")
    found: list[Any] = store.get(PODS, "default", "p").data()["status"].get("conditions", [])
    return found


def test_conditions_merge_by_type_as_the_scheduler_writes_them() -> None:
    store = a_store()
    store.create(PODS, "default", a_pod("p"))
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    ready = {"type": "Ready", "status": "True"}
    assert _conditions(store, {"conditions": [unschedulable]}) == [unschedulable]
    assert _conditions(store, {"conditions": [ready]}) == [ready, unschedulable]
    patch = {
        "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}],
        "conditions": [{"type": "PodScheduled", "message": "0/2 nodes"}],
        "nominatedNodeName": "n1",
    }
    assert _conditions(store, patch) == [ready, {**unschedulable, "message": "0/2 nodes"}]
    assert store.get(PODS, "default", "p").data()["status"]["nominatedNodeName"] == "n1"
    store.patch(PODS, "default", "p", {"status": {"nominatedNodeName": None}}, subresource="status")
    assert "nominatedNodeName" not in store.get(PODS, "default", "p").data()["status"]
    assert _conditions(store, {"conditions": [{"$patch": "delete", "type": "Ready"}]}) == [
        {**unschedulable, "message": "0/2 nodes"}
    ]


def test_patches_carry_preconditions_and_are_never_changed() -> None:
    store = a_store()
    item = store.create(PODS, "default", a_pod("p"))
    patch = {"metadata": {"uid": "other", "labels": {"a": "b"}}}
    with refused(409, "Conflict"):
        store.patch(PODS, "default", "p", patch)
    assert patch == {"metadata": {"uid": "other", "labels": {"a": "b"}}}
    store.patch(
        PODS, "default", "p", {"metadata": {"labels": {"a": "b"}, "resourceVersion": str(item.resource_version)}}
    )
    with refused(409, "Conflict"):
        store.patch(
            PODS, "default", "p", {"metadata": {"labels": {"c": "d"}, "resourceVersion": str(item.resource_version)}}
        )


def test_json_patch() -> None:
    store = a_store()
    store.create(CONFIG_MAPS, "default", {"metadata": {"name": "c", "annotations": {"a": "1", "b/c": "2"}}})

    def patch(*operations: dict[str, Any]) -> Any:
        return store.patch(CONFIG_MAPS, "default", "c", list(operations), patch_type=JSON_PATCH).data()["metadata"][
            "annotations"
        ]

    assert patch({"op": "replace", "path": "/metadata/annotations/a", "value": "9"}) == {"a": "9", "b/c": "2"}
    assert patch({"op": "move", "from": "/metadata/annotations/b~1c", "path": "/metadata/annotations/d"}) == {
        "a": "9",
        "d": "2",
    }
    assert patch(
        {"op": "test", "path": "/metadata/annotations/a", "value": "9"},
        {"op": "remove", "path": "/metadata/annotations/d"},
    ) == {"a": "9"}
    with refused(422, match="testing value failed"):
        patch(
            {"op": "test", "path": "/metadata/annotations/a", "value": "1"},
            {"op": "remove", "path": "/metadata/annotations/a"},
        )
    with refused(422, match="non-existent"):
        patch({"op": "remove", "path": "/metadata/annotations/zzz"})
    with refused(415):
        store.patch(CONFIG_MAPS, "default", "c", {}, patch_type="application/xml")
    assert store.get(CONFIG_MAPS, "default", "c").data()["metadata"]["annotations"] == {"a": "9"}


# -- bind --------------------------------------------------------------------------------------------------


def test_binding_sets_the_node_the_condition_and_clears_the_nomination() -> None:
    clock = FakeClock()
    store = a_store(clock)
    pod = store.create(PODS, "default", a_pod("p"))
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    patch = {"status": {"nominatedNodeName": "n1", "conditions": [condition]}}
    store.patch(PODS, "default", "p", patch, subresource="status")
    clock.time += 5
    store.bind("default", "p", pod.uid, "n1", annotations={"a": "b"})
    data = store.get(PODS, "default", "p").data()
    assert data["spec"]["nodeName"] == "n1"
    assert "nominatedNodeName" not in data["status"]
    assert data["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": "2025-06-15T15:06:45Z",
            "observedGeneration": 1,
        }
    ]
    assert data["metadata"]["annotations"] == {"a": "b"}
    assert data["metadata"]["generation"] == 1


def test_a_pod_is_bound_at_most_once_and_only_if_it_is_the_one_meant() -> None:
    store = a_store()
    pod = store.create(PODS, "default", a_pod("p"))
    with refused(404):
        store.bind("default", "q", "", "n1")
    with refused(409, "Conflict", "Precondition failed: UID in precondition: other"):
        store.bind("default", "p", "other", "n1")
    store.bind("default", "p", pod.uid, "n1")
    for node in ("n1", "n2"):
        with refused(409, "Conflict", 'pod p is already assigned to node "n1"'):
            store.bind("default", "p", pod.uid, node)
    store.delete(PODS, "default", "p")
    with refused(409, "Conflict", "is being deleted, cannot be assigned to a host"):
        store.bind("default", "p", pod.uid, "n1")
    gated = store.create(PODS, "default", a_pod("g", schedulingGates=[{"name": "wait"}]))
    assert gated.data()["status"]["conditions"][0]["reason"] == "SchedulingGated"
    with refused(409, "Conflict", "has non-empty .spec.schedulingGates"):
        store.bind("default", "g", gated.uid, "n1")


# -- evict -------------------------------------------------------------------------------------------------

BUDGETS = kind("poddisruptionbudgets", "policy")


def _budget(store: Any, allowed: int, name: str = "b") -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    store.create(BUDGETS, "default", {"metadata": {"name": name}, "spec": spec})
    status = {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1, "observedGeneration": 1}
    store.patch(BUDGETS, "default", name, {"status": status}, patch_type=MERGE_PATCH, subresource="status")


def test_an_eviction_is_charged_to_the_budget_until_it_is_used_up() -> None:
    store = a_store()
    for name in ("a", "b"):
        running(store, name, labels={"app": "web"})
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        store.patch(PODS, "default", name, ready, subresource="status")
    _budget(store, 1)
    store.evict("default", "a")
    assert "deletionTimestamp" in store.get(PODS, "default", "a").data()["metadata"]
    status = store.get(BUDGETS, "default", "b").data()["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["a"])
    with refused(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."):
        store.evict("default", "b")
    assert "deletionTimestamp" not in store.get(PODS, "default", "b").data()["metadata"]


def test_evicting_a_pending_pod_asks_no_budget_and_two_budgets_are_an_error() -> None:
    store = a_store()
    store.create(PODS, "default", a_pod("pending", labels={"app": "web"}))
    running(store, "r", labels={"app": "web"})
    _budget(store, 0)
    store.evict("default", "pending")
    with refused(404):
        store.get(PODS, "default", "pending")
    _budget(store, 5, "c")
    with refused(500, match="more than one PodDisruptionBudget"):
        store.evict("default", "r")


# -- events ------------------------------------------------------------------------------------------------


def test_an_event_of_the_new_group_shows_up_in_the_old_one() -> None:
    store, old, new = a_store(), kind("events"), kind("events", "events.k8s.io")
    watch = store.watch(new, resource_version="", send_initial_events=True)
    regarding = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"}
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "p.1"},
        "regarding": regarding,
        "note": "0/1 nodes are available",
        "reason": "FailedScheduling",
        "reportingController": "default-scheduler",
    }
    made = store.create(new, "default", event)
    assert made.data()["note"] == "0/1 nodes are available"
    core = store.list(old, field_selector="involvedObject.name=p").items[0].data()
    assert (core["apiVersion"], core["message"], core["involvedObject"]) == ("v1", event["note"], regarding)
    assert core["reportingComponent"] == "default-scheduler"
    patch = {"series": {"count": 2, "lastObservedTime": "2025-06-15T15:06:40.000000Z"}}
    after = store.patch(new, "default", "p.1", patch).data()
    assert (after["series"]["count"], after["regarding"], after["apiVersion"]) == (2, regarding, "events.k8s.io/v1")
    found = store.list(new, field_selector="regarding.uid=u").items
    assert [item.data()["note"] for item in found] == [event["note"]]
    marker, added, modified = watch.drain()
    assert [marker.type, added.type, modified.type] == ["BOOKMARK", "ADDED", "MODIFIED"]
    assert modified.item.data()["apiVersion"] == "events.k8s.io/v1"
    store.delete(new, "default", "p.1")
    assert store.list(old).items == []
