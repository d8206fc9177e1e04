"""A golden scenario as a cluster: the real cache, the real plugins, the real search, and nothing that waits."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from kubesched.api.decode import from_builtins
from kubesched.api.kinds import kind_of
from kubesched.api.types import Namespace, Node, Pod
from kubesched.cache import Cache
from kubesched.config import ConfigError, KubeSchedulerConfiguration, default_config, load_config_data
from kubesched.framework.metrics import SchedulerMetrics
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.registry import Registry
from kubesched.framework.runtime import Framework
from kubesched.scheduler.full_scan import Rotation
from kubesched.scheduler.handle import Backends
from kubesched.scheduler.profiles import build_frameworks
from kubesched.scheduler.search import Search

__all__ = ["FixedClock", "World", "complete"]

JSON = dict[str, Any]


class FixedClock:
    """Golden scenarios stand still."""

    def now(self) -> float:
        return 0.0


def complete(obj: JSON, kind: str) -> JSON:
    """Fill in the three things that the golden format leaves out: namespace, schedulerName, uid."""
    obj = {**obj, "metadata": dict(obj.get("metadata") or {})}
    meta = obj["metadata"]
    row = kind_of(obj.get("apiVersion", "v1"), kind)
    if row is None or row.namespaced:
        meta.setdefault("namespace", "default")
    meta.setdefault("uid", f"{kind.lower()}/{meta.get('namespace', '')}/{meta.get('name', '')}")
    if kind == "Pod":
        obj["spec"] = {"schedulerName": "default-scheduler", **(obj.get("spec") or {})}
    return obj


class Nominations:
    """Node name to nominated pods, in the order of nomination."""

    def __init__(self) -> None:
        self._pods: dict[str, list[PodInfo]] = {}

    def add(self, pod: PodInfo, node_name: str) -> None:
        self.remove(pod.uid)
        self._pods.setdefault(node_name, []).append(pod)

    def remove(self, uid: str) -> None:
        for name in list(self._pods):
            self._pods[name] = [pod for pod in self._pods[name] if pod.uid != uid]
            if not self._pods[name]:
                del self._pods[name]

    def nominated_nodes(self) -> set[str]:
        return set(self._pods)

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        return list(self._pods.get(node_name, ()))


class World:
    """Nodes, pods and objects of one scenario, and a search per profile."""

    def __init__(self, scenario: JSON, registry: Registry) -> None:
        """Load the scenario.

        Raises:
            ConfigError: when its configuration is refused.
        """
        self.config: KubeSchedulerConfiguration = (
            default_config() if scenario["config"] is None else load_config_data(scenario["config"])
        )
        self.cache = Cache()
        self.nominations = Nominations()
        snapshot = self.cache.snapshot()
        self.objects: dict[str, dict[str, Any]] = {}
        for obj in scenario["objects"]:
            self._keep(obj)
        backends = Backends(
            FixedClock(), random.Random(0), snapshot,
            nominated_pods=self.nominations.nominated_pods_for_node,
            informed=lambda kind: self.objects.get(kind, {}),
            informed_in=self._objects_in,
        )  # fmt: skip
        self.frameworks: dict[str, Framework] = build_frameworks(self.config, registry, backends, SchedulerMetrics())
        self.registry = registry
        self.searches: dict[str, Search] = {
            name: Search(framework, snapshot, self.nominations, backends.random, Rotation())
            for name, framework in self.frameworks.items()
        }
        for obj in scenario["nodes"]:
            self.cache.set_node(from_builtins(complete(obj, "Node"), Node))
        for obj in scenario["pods"]:
            pod = PodInfo(from_builtins(complete(obj, "Pod"), Pod))
            if pod.status.phase in ("Succeeded", "Failed"):
                continue
            if pod.spec.node_name:
                self.cache.add_pod(pod)
            elif pod.status.nominated_node_name:
                self.nominations.add(pod, pod.status.nominated_node_name)
        self.pending = [PodInfo(from_builtins(complete(obj, "Pod"), Pod)) for obj in scenario["pending"]]
        for pod in self.pending:
            if pod.status.nominated_node_name:
                self.nominations.add(pod, pod.status.nominated_node_name)

    def _keep(self, obj: JSON) -> None:
        kind = kind_of(obj["apiVersion"], obj["kind"])
        if kind is None:
            raise ConfigError("decode", [f"unknown kind {obj['apiVersion']} {obj['kind']}"])
        obj = complete(obj, obj["kind"])
        name = obj["metadata"]["name"]
        key = f"{obj['metadata']['namespace']}/{name}" if kind.namespaced else name
        typed = obj if kind.type is None else from_builtins(obj, kind.type)
        self.objects.setdefault(kind.plural, {})[key] = typed
        if isinstance(typed, Namespace):
            self.cache.set_namespace(typed)

    def _objects_in(self, plural: str, namespace: str) -> list[Any]:
        prefix = f"{namespace}/"
        return [obj for key, obj in self.objects.get(plural, {}).items() if key.startswith(prefix)]

    def place(self, pod: PodInfo, node_name: str, start_time: str) -> None:
        """Let a pod run on a node from now on."""
        self.nominations.remove(pod.uid)
        placed = pod.pod.on_node(node_name)
        status = msgspec.structs.replace(placed.status, phase="Running", start_time=start_time, nominated_node_name="")
        self.cache.add_pod(PodInfo(msgspec.structs.replace(placed, status=status)))

    def remove(self, key: str) -> None:
        """Take a running pod (``namespace/name``) away."""
        for pod in list(self.cache.pods.values()):
            if pod.key == key:
                self.cache.remove_pod(pod.pod)
