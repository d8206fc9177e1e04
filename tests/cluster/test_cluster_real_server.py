"""Details of stored objects in which clients of a real server rely on more than the documented fields."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_world import a_store

from kubesched.api.kinds import CRON_JOBS, JOBS, PODS, RESOURCE_CLAIMS, kind_by_plural
from kubesched.api.wire import JSON_PATCH, ApiError

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
