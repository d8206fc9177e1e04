"""Programs that others wrote, as they are, against ``kubesched up``: Helm, kopf, three client libraries."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from cli_cluster import Running, cluster

CLIENTS = Path(__file__).parent / "clients"
HELM = shutil.which("helm", path=sysconfig.get_path("scripts")) or shutil.which("helm")
NODE = shutil.which("node")
#: Where ``make clients`` installs the JavaScript client.
MODULES = Path(os.environ.get("KUBESCHED_NODE_MODULES") or Path(sys.prefix) / "node_modules")
POD = {"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "app:1"}]}}


class Cluster:
    """A running cluster and its kubeconfig."""

    def __init__(self, running: Running, kubeconfig: Path) -> None:
        self.running = running
        self.kubeconfig = kubeconfig

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PYTHONWARNINGS": "default", "PYTHONUNBUFFERED": "1"}

    def run(self, *command: object) -> str:
        """Run a command, which must succeed, and return what it prints."""
        done = subprocess.run(
            [str(part) for part in command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def get(self, path: str) -> Any:
        """An object; None when it does not exist."""
        try:
            return self.running.request(path)
        except HTTPError as error:
            if error.code != 404:
                raise
            return None


def wait(condition: Callable[[], Any]) -> Any:
    for _ in range(1200):
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come about")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("clients")
    with cluster(folder, "--nodes", "3", "--complete-jobs", "1s", "--speed", "5") as running:
        yield Cluster(running, folder / "kubeconfig")
        assert running.stop() == (0, "")


@pytest.mark.skipif(HELM is None, reason="Helm is not installed")
def test_helm_installs_and_waits(up: Cluster) -> None:
    chart, wait_for = CLIENTS / "shop", ("--wait", "--wait-for-jobs", "--timeout", "100s")
    up.run(HELM, "install", "shop", chart, *wait_for)
    status = json.loads(up.run(HELM, "status", "shop", "-o", "json"))
    assert status["info"]["status"] == "deployed"
    service = up.get("/api/v1/namespaces/default/services/shop")
    assert service["status"]["loadBalancer"]["ingress"]
    slices = up.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices")["items"]
    (slice_,) = [item for item in slices if item["metadata"]["labels"]["kubernetes.io/service-name"] == "shop"]
    assert slice_["ports"][0]["port"] == 8080
    assert up.get("/api/v1/namespaces/default/persistentvolumeclaims/shop")["status"]["phase"] == "Bound"
    up.run(HELM, "upgrade", "shop", chart, *wait_for, "--set", "replicas=3")
    deployment = up.get("/apis/apps/v1/namespaces/default/deployments/shop")
    assert deployment["status"]["readyReplicas"] == 3
    up.run(HELM, "rollback", "shop", "1", *wait_for)
    assert [row["status"] for row in json.loads(up.run(HELM, "history", "shop", "-o", "json"))] == [
        "superseded",
        "superseded",
        "deployed",
    ]
    assert "Phase:          Succeeded" in up.run(HELM, "test", "shop", "--timeout", "60s")
    up.run(HELM, "uninstall", "shop", "--wait")
    assert up.get("/apis/apps/v1/namespaces/default/deployments/shop") is None


def test_an_operator_written_with_kopf(up: Cluster, tmp_path: Path) -> None:
    pytest.importorskip("kopf", reason="kopf is not installed")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Shop", "plural": "shops", "singular": "shop"}
    spec: dict[str, Any] = {"group": "example.org", "scope": "Namespaced", "names": names}
    spec["versions"] = [{**version, "subresources": {"status": {}}}]
    definition = {"metadata": {"name": "shops.example.org"}, "spec": spec}
    up.running.request("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    shops = "/apis/example.org/v1/namespaces/default/shops"
    log = tmp_path / "log"
    command = [sys.executable, "-m", "kopf", "run", "-A", str(CLIENTS / "operator_of_shops.py")]
    with log.open("w") as output:
        process = subprocess.Popen(command, env=up.environment, stdout=output, stderr=subprocess.STDOUT)
    try:

        def greeting() -> str:
            return str((up.get(f"{shops}/one").get("status") or {}).get("greeting", ""))

        shop = {"apiVersion": "example.org/v1", "kind": "Shop", "metadata": {"name": "one"}, "spec": {"word": "world"}}
        up.running.request(shops, shop)
        wait(lambda: greeting() == "hello world")
        shop = up.get(f"{shops}/one")
        assert shop["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
        _send(up, "PUT", f"{shops}/one", {**shop, "spec": {"word": "moon"}})
        wait(lambda: greeting() == "world became moon")
        up.running.request(
            "/api/v1/namespaces/default/pods",
            {"metadata": {"name": "k", "labels": {"app": "kopf"}}, "spec": POD["spec"]},
        )
        wait(lambda: "running k" in log.read_text())
        _send(up, "DELETE", f"{shops}/one")
        wait(lambda: up.get(f"{shops}/one") is None)
        wait(lambda: "deleted one" in log.read_text())
        assert "Traceback" not in log.read_text()
    finally:
        process.terminate()
        process.wait(timeout=30)


def _send(up: Cluster, method: str, path: str, body: Any = None) -> None:
    import urllib.request

    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(up.running.url + path, data, {"Content-Type": "application/json"}, method=method)
    urllib.request.urlopen(request, timeout=30).close()


def test_kubernetes_asyncio(up: Cluster) -> None:
    library = pytest.importorskip("kubernetes_asyncio", reason="kubernetes_asyncio is not installed")
    client, watch = library.client, library.watch

    async def main() -> None:
        await library.config.load_kube_config(str(up.kubeconfig))
        async with client.ApiClient() as api:
            core = client.CoreV1Api(api)
            assert len((await core.list_node()).items) == 3
            before = (await core.list_namespaced_pod("default")).metadata.resource_version
            await core.create_namespaced_pod("default", {**POD, "metadata": {"name": "async"}})
            phases = []
            async with watch.Watch() as events:
                chosen = {"field_selector": "metadata.name=async", "resource_version": before}
                async for event in events.stream(core.list_namespaced_pod, "default", timeout_seconds=60, **chosen):
                    phases.append((event["type"], event["object"].status.phase))
                    if event["object"].status.phase == "Running" and event["type"] != "DELETED":
                        await core.delete_namespaced_pod("async", "default", grace_period_seconds=0)
                    if event["type"] == "DELETED":
                        break
            assert phases[0] == ("ADDED", "Pending")
            assert phases[-1][0] == "DELETED"
            token = await core.create_namespaced_service_account_token(
                "default", "default", client.AuthenticationV1TokenRequest(spec={"audiences": []})
            )
            assert token.status.token

    asyncio.run(main())


@pytest.mark.filterwarnings("default")
def test_pykube(up: Cluster) -> None:
    pykube = pytest.importorskip("pykube", reason="pykube-ng is not installed")
    api = pykube.HTTPClient(pykube.KubeConfig.from_file(str(up.kubeconfig)))
    assert len(list(pykube.Node.objects(api))) == 3
    labels = {"app": "pykube"}
    template = {"metadata": {"labels": labels}, "spec": POD["spec"]}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pykube", "namespace": "default"}}
    deployment = pykube.Deployment(
        api, {**manifest, "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}}
    )
    deployment.create()
    # Without a replica there is no such field yet, which the client does not expect.
    wait(lambda: deployment.reload() or ("updatedReplicas" in deployment.obj["status"] and deployment.ready))
    deployment.scale(3)
    pods = pykube.Pod.objects(api, namespace="default").filter(selector=labels)
    wait(lambda: sum(pod.ready for pod in pods.all()) == 3)
    deployment.patch({"metadata": {"labels": {"a": "b"}}})
    assert deployment.labels == {"a": "b"}
    with pytest.raises(pykube.exceptions.HTTPError):
        pykube.Deployment(api, {**manifest, "spec": deployment.obj["spec"]}).create()
    deployment.delete(propagation_policy="Foreground")
    wait(lambda: not deployment.exists() and not list(pods.all()))


@pytest.mark.skipif(
    NODE is None or not (MODULES / "@kubernetes" / "client-node").is_dir(),
    reason="the JavaScript client is not installed: make clients",
)
def test_the_javascript_client(up: Cluster) -> None:
    assert up.run(NODE, CLIENTS / "session.mjs", MODULES).split("\n") == [
        "nodes 3",
        "refused 409",
        "label b",
        "done",
        "",
    ]
