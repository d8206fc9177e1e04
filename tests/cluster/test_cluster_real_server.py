"""Details of stored objects in which clients of a real server rely on more than the documented fields."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_world import a_store

from kubesched.api.kinds import (
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SERVICES,
    kind_by_plural,
)
from kubesched.api.wire import JSON_PATCH, MERGE_PATCH, ApiError
from kubesched.cluster.store import Store

CONTAINERS = {"containers": [{"name": "c", "image": "app:1"}]}
TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": {**CONTAINERS, "restartPolicy": "Never"}}


def test_a_json_patch_adds_below_the_empty_status_of_a_new_claim() -> None:
    store = a_store()
    made = store.create(RESOURCE_CLAIMS, "default", {"metadata": {"name": "c"}, "spec": {}}).data()
    assert made["status"] == {}
    user = {"resource": "pods", "name": "p", "uid": "1"}
    patch = [{"op": "add", "path": "/status/reservedFor", "value": [user]}]
    with pytest.raises(ApiError, match="allocated"):  # found, and refused for another reason
        store.patch(RESOURCE_CLAIMS, "default", "c", patch, patch_type=JSON_PATCH, subresource="status")


@pytest.mark.parametrize(
    ("group", "plural", "spec", "want"),
    [
        ("apps", "replicasets", {"selector": {"matchLabels": {"app": "x"}}}, {"replicas": 0}),
        ("networking.k8s.io", "ingresses", None, {"loadBalancer": {}}),
        ("", "resourcequotas", {}, {}),
        ("", "configmaps", None, None),
    ],
)
def test_new_objects_have_the_status_that_go_writes(group: str, plural: str, spec: Any, want: Any) -> None:
    kind = kind_by_plural(group, plural)
    assert kind is not None
    body: dict[str, Any] = {"metadata": {"name": "x"}, "spec": spec}
    if plural == "replicasets":
        body["spec"] = {**spec, "template": {"metadata": {"labels": {"app": "x"}}, "spec": CONTAINERS}}
    if plural == "ingresses":
        body["spec"] = {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}
    if spec is None and plural == "configmaps":
        del body["spec"]
    assert a_store().create(kind, "default", body).data().get("status") == want


def test_a_job_without_labels_has_those_of_its_pods() -> None:
    store = a_store()
    made = store.create(JOBS, "default", {"metadata": {"name": "j"}, "spec": {"template": TEMPLATE}}).data()
    uid = made["metadata"]["uid"]
    want = {"app": "x"}
    for prefix in ("", "batch.kubernetes.io/"):
        want |= {f"{prefix}controller-uid": uid, f"{prefix}job-name": "j"}
    assert made["metadata"]["labels"] == made["spec"]["template"]["metadata"]["labels"] == want
    own = {"metadata": {"name": "k", "labels": {"mine": "1"}}, "spec": {"template": TEMPLATE}}
    assert store.create(JOBS, "default", own).data()["metadata"]["labels"] == {"mine": "1"}


def test_the_job_template_of_a_cron_job_has_only_the_defaults_of_its_pods() -> None:
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}}
    made = a_store().create(CRON_JOBS, "default", {"metadata": {"name": "c"}, "spec": spec}).data()
    job = made["spec"]["jobTemplate"]["spec"]
    assert set(job) == {"template"}
    assert job["template"]["spec"]["schedulerName"] == "default-scheduler"


def test_an_eviction_says_in_the_pod_why_it_ends() -> None:
    store = a_store()
    for name in ("p", "q"):
        meta = {"name": name, "finalizers": ["example.com/keep"]}
        store.create(PODS, "default", {"metadata": meta, "spec": CONTAINERS})
    version = store.get(PODS, "default", "p").resource_version
    store.evict("default", "p", resource_version=str(version))
    data = store.get(PODS, "default", "p").data()
    assert data["metadata"]["deletionTimestamp"]
    (found,) = [one for one in data["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert (found["status"], found["reason"]) == ("True", "EvictionByEvictionAPI")
    assert found["message"] == "Eviction API: evicting"
    store.evict("default", "q", dry_run=True)
    assert not store.get(PODS, "default", "q").data()["status"].get("conditions")


def quota(store: Store, hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = store.create(
        RESOURCE_QUOTAS, "default", {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
    ).data()
    store.settle()
    return made


def used(store: Store) -> dict[str, str]:
    store.settle()
    found: dict[str, str] = store.get(RESOURCE_QUOTAS, "default", "q").data()["status"]["used"]
    return found


@pytest.mark.parametrize(("scope", "want"), [("Terminating", "1"), ("NotTerminating", "2")])
def test_a_deadline_makes_a_pod_terminating_for_quotas(scope: str, want: str) -> None:
    store = a_store()
    quota(store, {"pods": "5"}, scopes=[scope])
    for name, more in (("a", {}), ("b", {}), ("c", {"activeDeadlineSeconds": 60})):
        store.create(PODS, "default", {"metadata": {"name": name}, "spec": {**CONTAINERS, **more}})
    assert used(store) == {"pods": want}


def test_quotas_count_load_balancers_and_node_ports() -> None:
    store = a_store()
    quota(store, {"services.nodeports": "3", "services.loadbalancers": "1"})
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    store.create(SERVICES, "default", {"metadata": {"name": "n"}, "spec": {"type": "NodePort", "ports": ports}})
    store.create(SERVICES, "default", {"metadata": {"name": "c"}, "spec": {"ports": ports}})
    assert used(store) == {"services.nodeports": "2", "services.loadbalancers": "0"}
    with pytest.raises(ApiError, match=r"exceeded quota: q, requested: services\.nodeports=2"):
        store.create(SERVICES, "default", {"metadata": {"name": "l"}, "spec": {"type": "LoadBalancer", "ports": ports}})
    single = {"type": "LoadBalancer", "ports": ports[:1]}
    store.create(SERVICES, "default", {"metadata": {"name": "l"}, "spec": single})
    assert used(store) == {"services.nodeports": "3", "services.loadbalancers": "1"}


def test_the_status_of_a_quota_is_computed_again_when_a_client_wrote_it() -> None:
    store = a_store()
    quota(store, {"pods": "5"})
    store.patch(RESOURCE_QUOTAS, "default", "q", {"status": {"used": {"pods": "4"}}}, subresource="status")
    assert used(store) == {"pods": "0"}


def test_counts_of_a_quota_are_whole() -> None:
    for name in ("pods", "services.nodeports"):
        with pytest.raises(ApiError, match=rf'spec.hard\[{name}\]: Invalid value: "1.5": must be an integer'):
            quota(a_store(), {name: "1.5"})
    quota(a_store(), {"cpu": "1.5", "pods": "2000m"})


def test_a_namespace_ends_after_its_pods_and_says_what_is_left() -> None:
    store = a_store()
    store.create(NAMESPACES, "", {"metadata": {"name": "n"}})
    assert store.get(NAMESPACES, "", "n").data()["spec"] == {"finalizers": ["kubernetes"]}
    store.create(PODS, "n", {"metadata": {"name": "p", "finalizers": ["example.com/keep"]}, "spec": CONTAINERS})
    store.create(CONFIG_MAPS, "n", {"metadata": {"name": "c"}})
    store.delete(NAMESPACES, "", "n")
    store.settle()
    assert store.get(CONFIG_MAPS, "n", "c"), "pods go first"
    found = {one["type"]: one for one in store.get(NAMESPACES, "", "n").data()["status"]["conditions"]}
    assert {type_: one["status"] for type_, one in found.items()} == {
        "NamespaceDeletionDiscoveryFailure": "False",
        "NamespaceDeletionGroupVersionParsingFailure": "False",
        "NamespaceDeletionContentFailure": "False",
        "NamespaceContentRemaining": "True",
        "NamespaceFinalizersRemaining": "True",
    }
    assert found["NamespaceContentRemaining"]["message"] == (
        "Some resources are remaining: configmaps. has 1 resource instances, pods. has 1 resource instances"
    )
    assert found["NamespaceFinalizersRemaining"]["message"].endswith(": example.com/keep in 1 resource instances")
    store.patch(PODS, "n", "p", {"metadata": {"finalizers": None}}, patch_type=MERGE_PATCH)
    store.settle()
    with pytest.raises(ApiError, match="not found"):
        store.get(NAMESPACES, "", "n")


def test_a_finalizer_in_the_spec_of_a_namespace_is_removed_by_its_subresource() -> None:
    store = a_store()
    store.create(NAMESPACES, "", {"metadata": {"name": "n"}, "spec": {"finalizers": ["example.com/mine"]}})
    store.delete(NAMESPACES, "", "n")
    store.settle()
    data = store.get(NAMESPACES, "", "n").data()
    store.update(NAMESPACES, "", "n", {**data, "spec": {}})
    assert "example.com/mine" in store.get(NAMESPACES, "", "n").data()["spec"]["finalizers"], "not by a plain update"
    data = store.get(NAMESPACES, "", "n").data()
    store.update(NAMESPACES, "", "n", {**data, "spec": {"finalizers": ["kubernetes"]}}, subresource="finalize")
    store.settle()
    with pytest.raises(ApiError, match="not found"):
        store.get(NAMESPACES, "", "n")


def test_pods_have_the_name_of_their_account() -> None:
    store = a_store()
    for given, want in (({}, "default"), ({"serviceAccountName": "a"}, "a"), ({"serviceAccount": "b"}, "b")):
        made = store.create(
            PODS, "default", {"metadata": {"generateName": "p-"}, "spec": {**CONTAINERS, **given}}
        ).data()
        assert (made["spec"]["serviceAccountName"], made["spec"]["serviceAccount"]) == (want, want)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"replicas": -1}, "status.replicas: Invalid value: -1: must be greater than or equal to 0"),
        ({"replicas": 1, "readyReplicas": 2}, "status.readyReplicas: Invalid value: 2: cannot be greater than"),
        ({"replicas": 2, "availableReplicas": 1}, "status.availableReplicas: Invalid value: 1: cannot be greater than"),
    ],
)
def test_counts_in_the_status_of_a_workload_are_checked(status: dict[str, int], text: str) -> None:
    store = a_store()
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": {**TEMPLATE, "spec": CONTAINERS}}
    store.create(DEPLOYMENTS, "default", {"metadata": {"name": "d"}, "spec": spec})
    with pytest.raises(ApiError) as refused:
        store.patch(DEPLOYMENTS, "default", "d", {"status": status}, patch_type=MERGE_PATCH, subresource="status")
    assert text in str(refused.value)
