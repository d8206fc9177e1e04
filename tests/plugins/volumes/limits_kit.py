"""A small cluster with storage objects, and plugins that evaluate pods in it: node by node, by columns, and from layers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from builders import a_stopwatch
from kubesched.api.decode import from_builtins
from kubesched.api.kinds import kind_of
from kubesched.api.types import Node, Pod
from kubesched.lab.conformance.objects import LocalObjects
from kubesched.retired.plugins import RETIRED
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates
from kubesched.scheduler.core.full_scan import Rotation
from kubesched.scheduler.core.handle import Backends, ProfileHandle
from kubesched.scheduler.core.search import Decision, Path, Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.entries import FilterEntry
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.points import POINTS
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.framework.waiting import PodsInPreBind
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry
from search_kit import Nominated

JSON = dict[str, Any]
#: (code, reasons), or None where a node passes.
Outcome = tuple[int, tuple[str, ...]] | None
SKIP = "skip"
LIMITS = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeZone")


class StillClock:
    def now(self) -> float:
        return 0.0


@cache
def _registry() -> Registry:
    """The classes are checked once: each example makes a cluster, or four."""
    registry = in_tree_registry()
    for plugin in RETIRED.values():
        registry.register(plugin)
    return registry


class Cluster:
    """Nodes, pods and storage objects, one profile, one search over them."""

    def __init__(
        self,
        nodes: Sequence[Node] = (),
        pods: Sequence[Pod] = (),
        objects: Sequence[JSON] = (),
        *,
        plugins: Sequence[str] = LIMITS,
        gates: FeatureGates = DEFAULT_GATES,
        without_pre_filter: bool = False,
        args: Mapping[str, Any] | None = None,
        client: Any = None,
    ) -> None:
        self.cache = Cache()
        self.objects = LocalObjects()
        self.nominated = Nominated()
        self.pods_in_pre_bind = PodsInPreBind()
        #: UIDs of pods that are not there any more.
        self.gone: set[str] = set()
        for obj in objects:
            self.put(obj)
        backends = Backends(
            StillClock(),
            random.Random(0),
            self.cache.snapshot(),
            gates=gates,
            client=client,
            nominations=lambda: self.nominated,
            informed=self.objects.informed,
            informed_in=self.objects.informed_in,
            watch=self.objects.watch,
            node_changed=self.cache.node_changed,
            pods_in_pre_bind=self.pods_in_pre_bind,
            live_pod=lambda pod: None if pod.uid in self.gone else pod,
        )
        registry = _registry()
        able = registry.capabilities()
        points = {
            point.key: [
                (name, 1)
                for name in plugins
                if point.key in able[name] and not (without_pre_filter and point.key == "preFilter")
            ]
            for point in POINTS
        }
        handle = ProfileHandle("default-scheduler", backends)
        self.metrics = SchedulerMetrics()
        self.framework = Framework("default-scheduler", points, registry, (args or {}).get, handle, self.metrics)
        handle.framework = self.framework
        self.search = self.fresh_search()
        self.paths: list[Path] = []
        self.search.observer = self.paths.append
        for node in nodes:
            self.cache.set_node(node)
        for pod in pods:
            self.cache.add_pod(PodInfo(pod))

    def fresh_search(self) -> Search:
        """A search that remembers nothing."""
        return Search(self.framework, self.cache.snapshot(), self.nominated, random.Random(0), Rotation())

    def put(self, obj: JSON) -> None:
        """Create or replace an object; as of an API server, another object has another version."""
        kind = kind_of(obj["apiVersion"], obj["kind"])
        assert kind is not None
        assert kind.type is not None
        meta = obj["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if kind.namespaced else meta["name"]
        known = self.objects.informed(kind.plural).get(key)
        if known is not None and known.metadata.resource_version == meta.get("resourceVersion", ""):
            obj = {**obj, "metadata": {**meta, "resourceVersion": str(int(meta.get("resourceVersion", 0)) + 1)}}
        self.objects.put(kind.plural, key, from_builtins(obj, kind.type))

    def plugin(self, name: str) -> Any:
        """The plugin as the decision core calls it."""
        return self.framework.answering[name]

    def outcomes(self, name: str, pod: Pod) -> dict[str, Outcome] | str | Outcome:
        """Node to what one plugin says of it; or its Skip or rejection at PreFilter.

        A plugin that fails at Filter gives its text. Both forms of the filter must agree.
        """
        plugin, state, found = self.plugin(name), CycleState(), PodInfo(pod)
        nodes, table = self.cache.snapshot().nodes(), self.cache.table
        status = plugin.pre_filter(state, found, nodes) if "preFilter" in plugin.points else None
        if status is not None:
            assert isinstance(status, Status)
            return SKIP if status.code is Code.SKIP else outcome_of(status)
        entry = FilterEntry(plugin, 0, a_stopwatch())
        single: dict[str, Outcome] = {}
        try:
            for node in nodes:
                verdict = entry.one(state, found, table, node)
                single[node.name] = outcome_of(entry.status(state, found, verdict)) if verdict else None
        except PluginFailedError as error:
            text = str(error)
            assert self._failure(entry, state, found) == text
            return text
        verdicts = entry.many(state, found, table, nodes.rows)
        many = {
            node.name: outcome_of(entry.status(state, found, verdict)) if verdict else None
            for node, verdict in zip(nodes, verdicts.tolist(), strict=True)
        }
        assert many == single
        return single

    def _failure(self, entry: FilterEntry, state: CycleState, pod: PodInfo) -> str:
        """The text with which the filter for many rows fails."""
        try:
            entry.many(state, pod, self.cache.table, self.cache.snapshot().nodes().rows)
        except PluginFailedError as error:
            return str(error)
        return "it does not fail"

    def decide(self, pod: Pod) -> tuple[int, str]:
        """Return how many nodes fit and "", or 0 and why none does, by whatever is remembered; a failure is -1 and its text."""
        try:
            answer = self.search.find(PodInfo(pod))
        except PluginFailedError as error:
            return -1, str(error)
        return (answer.feasible, "") if isinstance(answer, Decision) else (0, answer.message())

    def check(self) -> None:
        assert check_cache(self.cache) == []


def outcome_of(status: Status) -> Outcome:
    return int(status.code), tuple(status.reasons())


# -- objects -----------------------------------------------------------------------------------------------


def meta(name: str, namespace: str = "", **more: Any) -> JSON:
    return {"name": name, "uid": name, **({"namespace": namespace} if namespace else {}), **more}


def a_claim(
    name: str,
    volume: str = "",
    *,
    class_name: str | None = None,
    modes: Sequence[str] = (),
    namespace: str = "ns",
    owner: str = "",
) -> JSON:
    spec: JSON = {"volumeName": volume, "accessModes": list(modes)}
    if class_name is not None:
        spec["storageClassName"] = class_name
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner, "controller": True}] if owner else []
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta(name, namespace, ownerReferences=owners),
        "spec": spec,
    }


def a_volume(name: str, labels: dict[str, str] | None = None, **source: Any) -> JSON:
    """``source`` in wire names: ``csi={"driver": …, "volumeHandle": …}``."""
    spec = {"capacity": {"storage": "1Gi"}, **source}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta(name, labels=labels or {}), "spec": spec}


def a_csi_volume(name: str, driver: str = "d", handle: str = "") -> JSON:
    return a_volume(name, csi={"driver": driver, "volumeHandle": handle or name})


def a_class(name: str, provisioner: str = "d", mode: str | None = "WaitForFirstConsumer") -> JSON:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": meta(name),
        "provisioner": provisioner,
        **({"volumeBindingMode": mode} if mode is not None else {}),
    }


def a_csi_node(name: str, annotations: dict[str, str] | None = None, **limits: int | None) -> JSON:
    """Driver to limit, None for a driver without one; ``ebs``, ``gce`` and ``files`` are short for the long names."""
    long = {"ebs": "ebs.csi.aws.com", "gce": "pd.csi.storage.gke.io", "files": "file.csi.azure.com"}
    drivers = [
        {
            "name": long.get(driver, driver),
            "nodeID": name,
            **({} if limit is None else {"allocatable": {"count": limit}}),
        }
        for driver, limit in limits.items()
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": meta(name, annotations=annotations or {}),
        "spec": {"drivers": drivers},
    }


def a_csi_driver(name: str, **spec: Any) -> JSON:
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": meta(name), "spec": spec}


def an_attachment(name: str, node: str, volume: str | None, attacher: str = "d") -> JSON:
    source: JSON = {"persistentVolumeName": volume} if volume is not None else {"inlineVolumeSpec": {}}
    spec = {"attacher": attacher, "nodeName": node, "source": source}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": meta(name), "spec": spec}


def with_volumes(name: str, *sources: JSON, on: str = "", namespace: str = "ns", priority: int = 0) -> Pod:
    """A pod with these volume sources in wire names; a string stands for a claim."""
    volumes = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    data = {
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {
            "schedulerName": "default-scheduler",
            "nodeName": on,
            "priority": priority,
            "volumes": volumes,
            "containers": [{"name": "c"}],
        },
    }
    return from_builtins(data, Pod)


def claims(*names: str) -> list[JSON]:
    return [{"persistentVolumeClaim": {"claimName": name}} for name in names]


EPHEMERAL: JSON = {"ephemeral": {"volumeClaimTemplate": {}}}
