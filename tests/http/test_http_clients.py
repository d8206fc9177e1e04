"""Two client libraries, as their users use them: list, watch, create, patch, delete, bind."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from http_full import full_cluster
from http_thread import cluster
from http_world import a_deployment, a_pod
from kubectl_session import AGENT, BIG, BUDGET, DEPLOYMENT

from kubesched.cluster.http import write_kubeconfig


def _wait(condition: Any) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come about")


def test_the_official_client(tmp_path: Path) -> None:
    kubernetes = pytest.importorskip("kubernetes", reason="the official client is not installed")
    with cluster(token="secret") as server:
        path = write_kubeconfig(tmp_path / "config", server.url, token="secret")
        with kubernetes.config.new_client_from_config(str(path)) as client:
            core, apps = kubernetes.client.CoreV1Api(client), kubernetes.client.AppsV1Api(client)
            assert [node.metadata.name for node in core.list_node().items] == ["n0", "n1"]
            seen: list[tuple[str, str]] = []

            def follow() -> None:
                watch = kubernetes.watch.Watch()
                for event in watch.stream(core.list_namespaced_pod, "default", timeout_seconds=10):
                    seen.append((event["type"], event["object"].metadata.name))
                    if event["type"] == "DELETED":
                        watch.stop()

            watcher = threading.Thread(target=follow)
            watcher.start()
            created = core.create_namespaced_pod("default", a_pod(labels={"a": "b"}))
            assert created.status.phase == "Pending"
            _wait(lambda: core.read_namespaced_pod("p", "default").status.phase == "Running")
            patched = core.patch_namespaced_pod("p", "default", {"metadata": {"labels": {"c": "d"}}})
            assert patched.metadata.labels == {"a": "b", "c": "d"}
            page = core.list_namespaced_pod("default", limit=1, label_selector="c=d")
            assert [item.metadata.name for item in page.items] == ["p"]
            with pytest.raises(kubernetes.client.ApiException) as caught:
                core.create_namespaced_pod("default", a_pod())
            assert caught.value.status == 409
            core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
            watcher.join(10)
            assert (seen[0], seen[-1]) == (("ADDED", "p"), ("DELETED", "p"))
            apps.create_namespaced_deployment("default", a_deployment(replicas=2))
            assert apps.read_namespaced_deployment_scale("web", "default").spec.replicas == 2
            apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 3}})
            assert apps.read_namespaced_deployment("web", "default").spec.replicas == 3
            review = kubernetes.client.V1SelfSubjectAccessReview(spec=kubernetes.client.V1SelfSubjectAccessReviewSpec())
            answer = kubernetes.client.AuthorizationV1Api(client).create_self_subject_access_review(review)
            assert answer.status.allowed is True


def _stateful_set() -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load(DEPLOYMENT.replace("web", "db"))
    del manifest["spec"]["template"]["spec"]["topologySpreadConstraints"]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"metadata": {"name": "data"}, "spec": claim}]
    return {**manifest, "kind": "StatefulSet", "spec": {**manifest["spec"], "volumeClaimTemplates": claims}}


DRIVER = """
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata:
  name: disk.example
  annotations: {kubesched.io/topology: kubernetes.io/hostname, kubesched.io/capacity: 10Gi}
spec: {storageCapacity: true}
"""
STORAGE_CLASS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disk, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: disk.example
volumeBindingMode: WaitForFirstConsumer
"""

#: API class, its list method, and how many of it there are in the end (None: some).
MODELLED: list[tuple[str, str, int | None]] = [
    ("CoreV1Api", "list_node", 3),
    ("CoreV1Api", "list_namespace", 4),
    ("CoreV1Api", "list_pod_for_all_namespaces", 11),
    ("CoreV1Api", "list_event_for_all_namespaces", None),
    ("CoreV1Api", "list_persistent_volume_claim_for_all_namespaces", None),
    ("EventsV1Api", "list_event_for_all_namespaces", None),
    ("AppsV1Api", "list_deployment_for_all_namespaces", 1),
    ("AppsV1Api", "list_replica_set_for_all_namespaces", 1),
    ("AppsV1Api", "list_daemon_set_for_all_namespaces", 1),
    ("AppsV1Api", "list_stateful_set_for_all_namespaces", 1),
    ("AppsV1Api", "list_controller_revision_for_all_namespaces", 2),
    ("BatchV1Api", "list_job_for_all_namespaces", 1),
    ("PolicyV1Api", "list_pod_disruption_budget_for_all_namespaces", 1),
    ("SchedulingV1Api", "list_priority_class", 2),
    ("CoreV1Api", "list_persistent_volume", None),
    ("StorageV1Api", "list_storage_class", 1),
    ("StorageV1Api", "list_csi_driver", 1),
    ("StorageV1Api", "list_csi_node", 3),
    ("StorageV1Api", "list_csi_storage_capacity_for_all_namespaces", 3),
    ("StorageV1Api", "list_volume_attachment", None),
    ("CoordinationV1Api", "list_lease_for_all_namespaces", 3),
]


def test_the_models_of_the_official_client_take_all_that_a_living_cluster_holds(tmp_path: Path) -> None:
    """They refuse objects that lack a field which a real server always writes."""
    kubernetes = pytest.importorskip("kubernetes", reason="the official client is not installed")
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "once"}]}
    job = {"metadata": {"name": "once"}, "spec": {"template": {"spec": pod}}}
    with full_cluster() as server:
        path = write_kubeconfig(tmp_path / "config", server.server.url)
        with kubernetes.config.new_client_from_config(str(path)) as client:
            core, apps = kubernetes.client.CoreV1Api(client), kubernetes.client.AppsV1Api(client)

            def read_all() -> list[str]:
                """Return the list calls that do not find what they should."""
                wrong = []
                for api, method, count in MODELLED:
                    found = len(getattr(getattr(kubernetes.client, api)(client), method)().items)
                    if found != count and (count is not None or not found):
                        wrong.append(f"{method}: {found}, not {count}")
                return wrong

            kubernetes.client.PolicyV1Api(client).create_namespaced_pod_disruption_budget(
                "default", yaml.safe_load(BUDGET)
            )
            storage = kubernetes.client.StorageV1Api(client)
            storage.create_csi_driver(yaml.safe_load(DRIVER))
            storage.create_storage_class(yaml.safe_load(STORAGE_CLASS))
            apps.create_namespaced_deployment("default", yaml.safe_load(DEPLOYMENT))
            apps.create_namespaced_daemon_set("default", yaml.safe_load(AGENT))
            apps.create_namespaced_stateful_set("default", _stateful_set())
            core.create_namespaced_pod("default", yaml.safe_load(BIG))
            kubernetes.client.BatchV1Api(client).create_namespaced_job("default", job)
            read_all()  # objects that no controller has processed yet have no status, or half of one
            _wait(lambda: read_all() == [])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_lightkube(tmp_path: Path) -> None:
    lightkube = pytest.importorskip("lightkube", reason="lightkube is not installed")
    core = pytest.importorskip("lightkube.resources.core_v1")
    errors = pytest.importorskip("lightkube.core.exceptions")
    with cluster() as server, contextlib.ExitStack() as resources:
        path = write_kubeconfig(tmp_path / "config", server.url)
        client = lightkube.Client(config=lightkube.KubeConfig.from_file(str(path)), field_manager="lightkube")
        resources.callback(client.close)
        assert [node.metadata.name for node in client.list(core.Node)] == ["n0", "n1"]
        created = client.create(core.Pod.from_dict(a_pod(labels={"a": "b"})))
        events = []
        with contextlib.closing(client.watch(core.Pod, resource_version=created.metadata.resourceVersion)) as stream:
            for operation, pod in stream:
                events.append(operation)
                if pod.status.phase == "Running":
                    break
        assert set(events) == {"MODIFIED"}
        client.patch(core.Pod, "p", {"metadata": {"labels": {"c": "d"}}})
        config = core.ConfigMap.from_dict(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "c", "namespace": "default"},
                "data": {"a": "1"},
            }
        )
        assert client.apply(config).data == {"a": "1"}
        config.data = {"b": "2"}
        assert client.apply(config).data == {"b": "2"}
        client.delete(core.Pod, "p", grace_period=0)
        with pytest.raises(errors.ApiError) as caught:
            client.get(core.Pod, "p")
        assert caught.value.status.code == 404
