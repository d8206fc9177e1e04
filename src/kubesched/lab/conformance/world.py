"""Golden scenario as a cluster: the real cache, the real plugins, the real search, and nothing that waits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from kubesched.api.decode import from_builtins
from kubesched.api.kinds import kind_of
from kubesched.api.types import Namespace, Node, Pod
from kubesched.base.at_once import completed
from kubesched.base.change_log import ChangeLog
from kubesched.base.times import FixedClock, parse_time
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.config import (
    DEFAULT_GATES,
    IN_TREE,
    IN_TREE_CAPABILITIES,
    ConfigError,
    FeatureGates,
    KubeSchedulerConfiguration,
    default_config,
    expand_profiles,
    load_config_data,
)
from kubesched.scheduler.core.full_scan import Rotation
from kubesched.scheduler.core.handle import Backends
from kubesched.scheduler.core.profiles import build_frameworks
from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.gated_fields import pod_view
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.nominating import nominations_that_count
from kubesched.scheduler.nodes.podinfo import PodInfo

from .comparable import NotComparedError, check_configuration, check_version
from .coverage import Coverage
from .objects import LocalObjects
from .server import LocalServer, version_of, with_version

__all__ = ["AS_RECORDED", "Reading", "World", "complete"]

JSON = dict[str, Any]

#: Most changes of nominations that their log keeps.
_KEPT_CHANGES: Final = 1 << 10
#: Time of every attempt. As at the recording, it is later than the objects of scenarios (2026), and earlier than the
#: start of pods that a sequence places (2030) and the end of periods that must not be over yet (2036).
_NOW: Final = parse_time("2028-01-01T00:00:00Z")


def complete(obj: JSON, kind: str) -> JSON:
    """Fill in the three members that the golden format leaves out: namespace, schedulerName, uid."""
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
    """Nominated pods by node name, in the order of nomination."""

    def __init__(self) -> None:
        self._pods: dict[str, list[PodInfo]] = {}
        self.changed: ChangeLog[str] = ChangeLog(_KEPT_CHANGES)

    def add(self, pod: PodInfo, node_name: str) -> None:
        self.remove(pod.uid)
        self._pods.setdefault(node_name, []).append(pod)
        self.changed.append(node_name)

    def remove(self, uid: str) -> None:
        """End the nomination of a pod, if it has one."""
        self._keep_if(lambda pod: pod.uid != uid)

    def remove_key(self, key: str) -> bool:
        """End the nomination of a pod by ``namespace/name``. Returns True if it had one."""
        found = any(pod.key == key for pods in self._pods.values() for pod in pods)
        self._keep_if(lambda pod: pod.key != key)
        return found

    def _keep_if(self, stays: Callable[[PodInfo], bool]) -> None:
        for name in self._pods:
            self.changed.append(name)
        kept = {name: [pod for pod in pods if stays(pod)] for name, pods in self._pods.items()}
        self._pods = {name: pods for name, pods in kept.items() if pods}

    def nominated_nodes(self) -> set[str]:
        return set(self._pods)

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        return list(self._pods.get(node_name, ()))

    def node_of(self, uid: str) -> str | None:
        return next((name for name, pods in self._pods.items() if any(pod.uid == uid for pod in pods)), None)


class Chance(random.Random):
    """Random source of plugins. Each draw returns ``share`` (0 to 1) of its range."""

    share = 0.0

    def random(self) -> float:
        return self.share

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return int(self.share * start) if stop is None else super().randrange(start, stop, step)


def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Carry out at once the work that a plugin does in the background."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
    else:
        completed(work)


@dataclass(frozen=True, slots=True)
class Reading:
    """Reading of a scenario that can be read in several ways; see :mod:`.variants`.

    Attributes:
        equal_victims_as_recorded: if victims are equally important, the recorded choice is right; see
            :mod:`.equal_victims`.
        parts_by_profile: plugins share their parts within a profile only, such as the record of reserved volumes.
    """

    equal_victims_as_recorded: bool = False
    parts_by_profile: bool = False


#: Reading without changes.
AS_RECORDED: Final = Reading()


class World:
    """Nodes, pods and objects of one scenario, and a search per profile.

    Attributes:
        pending: the pods to place, in the order of the scenario.
        points: upstream's plugins by scheduler name and point, in order, built or not.
        frameworks, searches: ours, by scheduler name.
        objects: the objects that plugins look up.
        server: the port that plugins write to.
        chance: the random source of plugins.
        clock: the time of every attempt.
        reading: how the scenario is read.
        device_resources: the extended resources that device classes offer.
        coverage: counts the work of the searches, if given.
    """

    def __init__(
        self,
        scenario: JSON,
        registry: Registry,
        coverage: Coverage | None = None,
        gates: FeatureGates = DEFAULT_GATES,
        reading: Reading = AS_RECORDED,
    ) -> None:
        """Load the scenario.

        Raises:
            ConfigError: when its configuration is refused.
            NotComparedError: when its configuration names a plugin that the registry lacks, and for the reasons of
                :mod:`.comparable`.
        """
        if scenario["config"] is not None:
            check_version(scenario["config"])
        self.config: KubeSchedulerConfiguration = (
            default_config(gates=gates)
            if scenario["config"] is None
            else load_config_data(scenario["config"], gates=gates)
        )
        check_configuration(self.config, len(scenario["nodes"]))
        self.registry = registry
        self.points = _upstream_points(self.config, registry, gates)
        self._view = pod_view(gates)
        self.cache = Cache()
        self.nominations = Nominations()
        self.snapshot = self.cache.snapshot()
        self.objects = LocalObjects()
        self.server = LocalServer(self.objects)
        self.device_resources: set[str] = set()
        self._volume_sources: dict[str, frozenset[str]] = {}
        for obj in scenario["objects"]:
            self._keep(obj)
        self.chance = Chance(0)
        self.clock = FixedClock(_NOW)
        self.reading = reading
        backends = Backends(
            self.clock, self.chance, self.snapshot,
            nominations=lambda: self.nominations,
            informed=self.objects.informed,
            informed_in=self.objects.informed_in,
            watch=self.objects.watch,
            node_changed=self.cache.node_changed,
            clear_nomination=self.server.clear_nomination,
            client=self.server, gates=gates, spawn=lambda work, name: _finish(work),
        )  # fmt: skip
        self.frameworks: dict[str, Framework] = self._build(backends)
        self.searches: dict[str, Search] = {
            name: Search(framework, self.snapshot, self.nominations, random.Random(0), Rotation())
            for name, framework in self.frameworks.items()
        }
        self.coverage = coverage
        if coverage is not None:
            coverage.watch(self.frameworks, self.searches)
        self.pending = self._fill(scenario)

    def _fill(self, scenario: JSON) -> list[PodInfo]:
        """Add nodes and pods to the cache. Returns the pods to place."""
        for obj in scenario["nodes"]:
            self.cache.set_node(from_builtins(complete(obj, "Node"), Node))
        for obj in scenario.get("pods", ()):
            pod = self._pod(obj)
            if pod.status.phase in ("Succeeded", "Failed"):
                continue
            if pod.spec.node_name:
                self.cache.add_pod(pod)
            else:
                self._nominate_waiting(pod)
        pending = [self._pod(obj) for obj in scenario.get("pending", ())]
        for pod in pending:
            self._nominate_waiting(pod)
        return pending

    def _build(self, backends: Backends) -> dict[str, Framework]:
        configs = [self.config]
        if self.reading.parts_by_profile:
            configs = [msgspec.structs.replace(self.config, profiles=(profile,)) for profile in self.config.profiles]
        frameworks: dict[str, Framework] = {}
        try:
            for config in configs:
                own = replace(backends, parts={})
                frameworks |= build_frameworks(config, self.registry, own, SchedulerMetrics())
            return frameworks
        except ConfigError as error:
            # The profiles must be expanded with all of upstream's plugins.
            for name in IN_TREE.keys() - self.registry.keys():
                if f'plugin "{name}" is part of Kubernetes' in str(error):
                    raise NotComparedError(f"plugin {name} is not built") from None
            raise

    def _pod(self, obj: JSON) -> PodInfo:
        pod = self.pod_of(obj)
        volumes = (obj.get("spec") or {}).get("volumes") or ()
        self._volume_sources[pod.uid] = frozenset(source for volume in volumes for source in volume if source != "name")
        return pod

    def pod_of(self, obj: JSON) -> PodInfo:
        """Return a pod of the golden format in the form that plugins see under the gates."""
        pod = from_builtins(complete(obj, "Pod"), Pod)
        return PodInfo(pod if self._view is None else self._view(pod))

    def volume_sources(self, pod: PodInfo) -> frozenset[str]:
        """Return the kinds of volumes of a pod of the scenario, in the API's spelling (``emptyDir``, …)."""
        return self._volume_sources[pod.uid]

    def _nominate_waiting(self, pod: PodInfo) -> None:
        """Nominate a waiting pod. A pod with scheduling gates is not in the queue, so its nomination does not count."""
        if pod.status.nominated_node_name and not pod.spec.scheduling_gates:
            self.nominations.add(pod, pod.status.nominated_node_name)

    def _keep(self, obj: JSON) -> None:
        kind = kind_of(obj["apiVersion"], obj["kind"])
        if kind is None:
            raise ConfigError("decode", [f"unknown kind {obj['apiVersion']} {obj['kind']}"])
        obj = complete(obj, obj["kind"])
        name = obj["metadata"]["name"]
        key = f"{obj['metadata']['namespace']}/{name}" if kind.namespaced else name
        if kind.kind == "DeviceClass" and (resource := (obj.get("spec") or {}).get("extendedResourceName")):
            self.device_resources.add(resource)
        typed = obj if kind.type is None else from_builtins(obj, kind.type)
        self.objects.put(kind.plural, key, typed)
        if isinstance(typed, Namespace):
            self.cache.set_namespace(typed)

    def filter_with_nominated(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node: with the nominated pods that count, and then without them (rules/framework §4.8).

        Raises:
            PluginFailedError: when a plugin fails.
        """
        others = nominations_that_count(self.nominations.nominated_pods_for_node(node.name), pod)
        framework = self.frameworks[pod.spec.scheduler_name]
        return framework.filter_with_nominated(state, pod, self.snapshot, node, others)

    def place(self, pod: PodInfo, node_name: str, start_time: str) -> None:
        """Make a pod run on a node from now on."""
        self.nominations.remove(pod.uid)
        placed = pod.pod.on_node(node_name)
        status = msgspec.structs.replace(placed.status, phase="Running", start_time=start_time, nominated_node_name="")
        self.cache.add_pod(PodInfo(msgspec.structs.replace(placed, status=status)))

    def write(self, plural: str, key: str, obj: Any) -> None:
        """Store an object as a newer version of the existing one, if any."""
        old = self.objects.informed(plural).get(key)
        self.objects.put(plural, key, with_version(obj, version_of(old if old is not None else obj) + 1))

    def remove(self, key: str) -> None:
        """Remove a running pod (``namespace/name``)."""
        for pod in list(self.cache.pods.values()):
            if pod.key == key:
                self.cache.remove_pod(pod.pod)


def _upstream_points(
    config: KubeSchedulerConfiguration, registry: Registry, gates: FeatureGates
) -> dict[str, dict[str, list[str]]]:
    """Return upstream's plugins by scheduler name and point, in order."""
    capabilities: Mapping[str, frozenset[str]] = {**IN_TREE_CAPABILITIES, **registry.capabilities()}
    return {
        name: {point: [plugin for plugin, _ in plugins] for point, plugins in points.items()}
        for name, points in expand_profiles(config, capabilities, gates=gates).items()
    }
