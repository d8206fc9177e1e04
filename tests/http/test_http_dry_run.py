"""Dry runs in a living cluster: every verb answers as if, and nothing at all comes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
import yaml
from http_full import FullCluster, living
from http_world import (
    DEPLOYMENTS,
    JSON_PATCH,
    PODS,
    STRATEGIC,
    Answer,
    Api,
    a_definition,
    a_deployment,
    a_pod,
    run,
)
from kubectl_session import BUDGET

ALL = {"dryRun": "All"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
LIMITS = "/api/v1/namespaces/default/limitranges"


async def _quiet(cluster: FullCluster, seconds: float = 0.3) -> int:
    """The version at which the store has stood still for a while."""
    store = cluster.embedded.store
    while True:
        version = store.resource_version
        await asyncio.sleep(seconds)
        if store.resource_version == version:
            return version


async def _prepare(api: Api) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "4"}}}
    limit = {"type": "Container", "default": {"cpu": "200m"}, "max": {"cpu": "2"}}
    for path, body in (
        (QUOTAS, quota),
        (LIMITS, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", yaml.safe_load(BUDGET.replace("3", "1"))),
        (DEPLOYMENTS, a_deployment(replicas=2)),
        (PODS, a_pod("lone")),
    ):
        assert (await api.post(path, body)).status == 201


def _applied(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


Request = tuple[str, str, str, Any, dict[str, Any], int]
#: Name, method, path, body, options, status. ``POD`` in a path is a pod of the deployment.
REQUESTS: list[Request] = [
    ("a pod", "POST", PODS, a_pod("new"), {}, 201),
    ("a pod with a generated name", "POST", PODS, {"metadata": {"generateName": "x-"}, "spec": a_pod()["spec"]}, {}, 201),
    ("a pod beyond a limit", "POST", PODS, a_pod("fat", containers=[{"name": "c", "image": "i", "resources": {"limits": {"cpu": "3"}}}]), {}, 403),
    ("a deployment", "POST", DEPLOYMENTS, a_deployment("more"), {}, 201),
    ("a definition", "POST", DEFINITIONS, a_definition(), {}, 201),
    ("a namespace", "POST", "/api/v1/namespaces", {"metadata": {"name": "team"}}, {}, 201),
    ("more replicas", "PATCH", f"{DEPLOYMENTS}/web", {"spec": {"replicas": 3}}, {"type": STRATEGIC}, 200),
    ("a JSON patch", "PATCH", f"{DEPLOYMENTS}/web", [{"op": "replace", "path": "/spec/replicas", "value": 0}], {"type": JSON_PATCH}, 200),
    ("a new image", "PATCH", f"{DEPLOYMENTS}/web", {"spec": {"template": {"metadata": {"labels": {"b": "c"}}}}}, {"type": STRATEGIC}, 200),
    ("a scale", "PUT", f"{DEPLOYMENTS}/web/scale", {"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 3}}, {}, 200),
    ("an apply that creates", "PATCH", f"{PODS}/applied", {"apiVersion": "v1", "kind": "Pod", **a_pod("applied")}, {"type": "application/apply-patch+yaml", "fieldManager": "m"}, 201),
    ("an apply in conflict", "PATCH", f"{DEPLOYMENTS}/web", _applied(replicas=1), {"type": "application/apply-patch+yaml", "fieldManager": "m"}, 409),
    ("an apply by force", "PATCH", f"{DEPLOYMENTS}/web", _applied(replicas=1), {"type": "application/apply-patch+yaml", "fieldManager": "m", "force": "true"}, 200),
    ("a cordon", "PATCH", "/api/v1/nodes/n0", {"spec": {"unschedulable": True}}, {"type": STRATEGIC}, 200),
    ("a taint that evicts", "PATCH", "/api/v1/nodes/n0", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}, {"type": STRATEGIC}, 200),
    ("a binding", "POST", f"{PODS}/POD/binding", {"target": {"name": "n0"}}, {}, 409),
    ("an eviction", "POST", f"{PODS}/POD/eviction", {}, {}, 201),
    ("a deletion", "DELETE", f"{PODS}/POD", None, {}, 200),
    ("a deletion at once", "DELETE", f"{PODS}/POD", None, {"gracePeriodSeconds": 0}, 200),
    ("orphans", "DELETE", f"{DEPLOYMENTS}/web", None, {"propagationPolicy": "Orphan"}, 200),
    ("in the foreground", "DELETE", f"{DEPLOYMENTS}/web", None, {"propagationPolicy": "Foreground"}, 200),
    ("a collection", "DELETE", PODS, None, {"labelSelector": "app=web"}, 200),
    ("a node", "DELETE", "/api/v1/nodes/n0", None, {}, 200),
    ("a namespace that ends", "DELETE", "/api/v1/namespaces/kube-node-lease", None, {}, 200),
    ("a deletion whose body says so", "DELETE", f"{DEPLOYMENTS}/web", {"kind": "DeleteOptions", "dryRun": ["All"]}, {"dryRun": ""}, 200),
]  # fmt: skip


def test_nothing_is_stored_delivered_or_done() -> None:
    async def main() -> None:
        async with living(0.05, 0.05, heartbeats=None) as cluster, aiohttp.ClientSession() as session:
            api = Api(cluster.server, session)
            await _prepare(api)
            await _quiet(cluster)
            pod = (await api.get(PODS, labelSelector="app=web")).data["items"][0]["metadata"]["name"]
            for name, method, path, body, options, status in REQUESTS:
                before = await _quiet(cluster, 0.0)
                given = {**body, "metadata": {"name": pod}} if name == "a binding" else body
                answer: Answer = await api(method, path.replace("POD", pod), given, **{**ALL, **options})
                assert answer.status == status, (name, answer.raw)
                assert cluster.embedded.store.resource_version == before, name
            # Controllers, kubelets and the scheduler have had their turns, and nothing came of it.
            before = cluster.embedded.store.resource_version
            assert await _quiet(cluster) == before
            assert cluster.embedded.check() == []
            assert (await api.get("/apis/example.com/v1/widgets")).status == 404
            quota = (await api.get(f"{QUOTAS}/q")).data
            assert quota["status"]["used"] == {"pods": "3"}

    run(main())


@pytest.mark.parametrize(("field", "want"), [("resourceVersion", None), ("uid", str), ("creationTimestamp", str)])
def test_what_would_be_created_has_all_but_a_version(field: str, want: type | None) -> None:
    async def main() -> None:
        async with living() as cluster, aiohttp.ClientSession() as session:
            metadata = (await Api(cluster.server, session).post(PODS, a_pod(), **ALL)).data["metadata"]
            assert (type(metadata[field]) if field in metadata else None) is want

    run(main())


def test_a_limit_range_decides_what_a_pod_asks_of_its_node() -> None:
    async def main() -> None:
        async with living(0.05, 0.05, heartbeats=None) as cluster, aiohttp.ClientSession() as session:
            api = Api(cluster.server, session)
            limit = {"type": "Container", "defaultRequest": {"cpu": "5"}, "default": {"cpu": "6"}}
            await api.post(LIMITS, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
            for name in ("one", "two"):
                assert (await api.post(PODS, a_pod(name))).status == 201
            await _quiet(cluster)
            found = {item["metadata"]["name"]: item for item in (await api.get(PODS)).data["items"]}
            # Five CPUs fit on n2 alone, and there only once.
            assert sorted(item["spec"].get("nodeName", "") for item in found.values()) == ["", "n2"]
            assert found["one"]["spec"]["containers"][0]["resources"] == {
                "requests": {"cpu": "5"},
                "limits": {"cpu": "6"},
            }

    run(main())
