"""Helpers for the tests of the controllers: a whole cluster in virtual time, builders, and the end of waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from kubesched.api.kinds import NODES, PODS, Kind, kind_by_plural
from kubesched.api.types import Pod
from kubesched.cluster.files import read
from kubesched.cluster.kubelets import make_nodes, node_template
from kubesched.cluster.kubelets.stages import parse_stages
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, VirtualTimeLoop, run_virtual
from kubesched.scheduler.config import FeatureGates, default_config
from kubesched.scheduler.plugins import in_tree_registry

Data = dict[str, Any]


def kind(plural: str, group: str = "") -> Kind:
    found = kind_by_plural(group, plural)
    assert found is not None
    return found


DEPLOYMENTS, REPLICA_SETS = kind("deployments", "apps"), kind("replicasets", "apps")
STATEFUL_SETS, DAEMON_SETS = kind("statefulsets", "apps"), kind("daemonsets", "apps")
CRON_JOBS = kind("cronjobs", "batch")
JOBS, BUDGETS = kind("jobs", "batch"), kind("poddisruptionbudgets", "policy")
CLAIMS, VOLUMES = kind("persistentvolumeclaims"), kind("persistentvolumes")
STORAGE_CLASSES, QUOTAS, LIMITS = kind("storageclasses", "storage.k8s.io"), kind("resourcequotas"), kind("limitranges")
CSI_DRIVERS, CSI_NODES = kind("csidrivers", "storage.k8s.io"), kind("csinodes", "storage.k8s.io")
CAPACITIES = kind("csistoragecapacities", "storage.k8s.io")
ATTACHMENTS = kind("volumeattachments", "storage.k8s.io")
LEASES = kind("leases", "coordination.k8s.io")


class World:
    """An embedded cluster with everything running."""

    def __init__(self, embedded: Embedded) -> None:
        self.embedded = embedded
        self.store = embedded.store
        assert embedded.kubelets is not None
        assert embedded.controllers is not None
        self.kubelets = embedded.kubelets
        self.controllers = embedded.controllers

    # -- time ------------------------------------------------------------------------------------------

    async def settle(self, limit: float = 3600.0) -> None:
        """Wait until nothing will move any more by itself."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        end = loop.time() + limit
        while True:
            await loop.idle()
            if self.embedded.is_settled:
                return
            waiting = {name: len(one.queue) for name, one in self.controllers.controllers.items()}
            assert loop.time() < end, (self.controllers.problems[-5:], waiting)
            await asyncio.sleep(0.25)

    # -- objects ---------------------------------------------------------------------------------------

    def create(self, kind: Kind, obj: Data, namespace: str = "default") -> Data:
        return self.store.create(kind, namespace if kind.namespaced else "", obj).data()

    def get(self, kind: Kind, name: str, namespace: str = "default") -> Data:
        return self.store.get(kind, namespace if kind.namespaced else "", name).data()

    def patch(self, kind: Kind, name: str, patch: Data, namespace: str = "default", **options: Any) -> Data:
        options.setdefault("patch_type", "application/merge-patch+json")
        return self.store.patch(kind, namespace if kind.namespaced else "", name, patch, **options).data()

    def exists(self, kind: Kind, name: str, namespace: str = "default") -> bool:
        return (namespace if kind.namespaced else "", name) in self.store.table(kind).objects

    def names(self, kind: Kind, namespace: str = "default") -> list[str]:
        return [item.name for item in self.store.list(kind, namespace).items]

    def pods(self, namespace: str = "default", **labels: str) -> list[Pod]:
        """Pods that are not being deleted, with these labels."""
        found = [item.typed for item in self.store.list(PODS, namespace).items]
        return [
            pod
            for pod in found
            if pod.metadata.deletion_timestamp is None and labels.items() <= pod.metadata.labels.items()
        ]

    def nodes_used(self, **labels: str) -> list[str]:
        return sorted(pod.spec.node_name for pod in self.pods(**labels))

    def add_nodes(self, count: int, start: int = 0, **template: Any) -> None:
        for node in make_nodes(count, node_template(**template), prefix="n", width=1, start=start, zones=["a", "b"]):
            self.store.create(NODES, "", node)


def play(
    scenario: Callable[[World], Awaitable[None]],
    *,
    nodes: int = 4,
    seed: int = 0,
    restore_from: Path | None = None,
    stages: str = "",
    event_cache_size: int = 4096,
    gates: str = "",
    root_ca: str | None = None,
    **template: Any,
) -> None:
    """Run a scenario in a cluster with some nodes; afterwards nothing may be wrong."""

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        rules = parse_stages(stages) if stages else ()
        embedded = Embedded(
            default_config(gates=FeatureGates.parse(gates)),
            in_tree_registry(),
            clock=clock,
            seed=seed,
            controllers=True,
            stages=rules,
            event_cache_size=event_cache_size,
            gates=FeatureGates.parse(gates),
            root_ca=root_ca,
        )
        world = World(embedded)
        if restore_from is not None:
            read(restore_from).load_into(embedded.store)
        world.add_nodes(nodes, **template)
        await embedded.start()
        try:
            await scenario(world)
            await world.settle()
            assert embedded.check() == []
            assert not [text for text in world.controllers.problems if "defect" in text]
        finally:
            await embedded.stop()

    run_virtual(main())


def pod_template(
    app: str, *, cpu: str = "100m", annotations: Mapping[str, str] | None = None, image: str = "app:1", **spec: Any
) -> Data:
    metadata: Data = {"labels": {"app": app}}
    if annotations:
        metadata["annotations"] = dict(annotations)
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": metadata, "spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **spec}}


def workload(name: str, replicas: int = 3, template: Data | None = None, **spec: Any) -> Data:
    """A Deployment, ReplicaSet or StatefulSet manifest."""
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template or pod_template(name),
            **spec,
        },
    }


def daemon_set(name: str, template: Data | None = None, **spec: Any) -> Data:
    manifest = workload(name, template=template, **spec)
    del manifest["spec"]["replicas"]
    return manifest


def job(name: str, seconds: str = "10s", result: str = "Succeeded", **spec: Any) -> Data:
    annotations = {"kubesched.io/duration": seconds, "kubesched.io/exit": result}
    template = pod_template(name, annotations=annotations, restartPolicy="Never")
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def condition(data: Data, type_: str) -> tuple[str, str]:
    """(status, reason) of a condition; empty texts when it is not there."""
    for item in (data.get("status") or {}).get("conditions") or ():
        if item["type"] == type_:
            return item["status"], item.get("reason", "")
    return "", ""
