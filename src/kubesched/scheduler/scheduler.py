"""The scheduler assembled: configuration and an API port in, a running scheduler out.

:class:`Scheduler` owns the parts and their lives; what they do is in :mod:`.cycle` (one pod, start to
finish), :mod:`.handlers` (what the cluster says) and :mod:`.search` (the decision).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubesched.api.kinds import KINDS, NAMESPACES, NODES, PODS, Kind
from kubesched.api.types import Pod
from kubesched.cache import Cache
from kubesched.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration
from kubesched.framework.clock import Clock
from kubesched.framework.enqueue import queueing_hints, watched_actions
from kubesched.framework.events import ActionType, EventResource
from kubesched.framework.metrics import SchedulerMetrics
from kubesched.framework.queued import QueuedPodInfo
from kubesched.framework.registry import Registry
from kubesched.queue import SchedulingQueue

from .cycle import Cycle
from .debugger import CacheDebugger
from .full_scan import Rotation
from .handle import Backends
from .handlers import NamespaceHandler, NodeHandler, PodHandler, ResourceHandler
from .port import Informer, Port
from .profiles import build_frameworks
from .search import Search

__all__ = ["Scheduler"]

_log = logging.getLogger("kubesched.scheduler")

#: Pods that have finished are invisible to the scheduler.
POD_FIELD_SELECTOR: Final = "status.phase!=Succeeded,status.phase!=Failed"

#: How many pods are decided, and for how long (seconds), before other tasks (watches, bindings) get the loop.
_PODS_PER_TURN: Final = 16
_TURN_SECONDS: Final = 0.001

#: Event resources beyond pods and nodes, by the kind of object they are about.
_EVENT_KINDS: Final[dict[str, str]] = {
    EventResource.PERSISTENT_VOLUME: "PersistentVolume",
    EventResource.PERSISTENT_VOLUME_CLAIM: "PersistentVolumeClaim",
    EventResource.CSI_NODE: "CSINode",
    EventResource.CSI_DRIVER: "CSIDriver",
    EventResource.VOLUME_ATTACHMENT: "VolumeAttachment",
    EventResource.CSI_STORAGE_CAPACITY: "CSIStorageCapacity",
    EventResource.STORAGE_CLASS: "StorageClass",
    EventResource.RESOURCE_CLAIM: "ResourceClaim",
    EventResource.RESOURCE_SLICE: "ResourceSlice",
    EventResource.DEVICE_CLASS: "DeviceClass",
}


class Scheduler:
    """One scheduler process: profiles, cache, queue, informers and the loop."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        registry: Registry,
        port: Port,
        *,
        clock: Clock,
        rng: random.Random,
        gates: FeatureGates = DEFAULT_GATES,
        metrics: SchedulerMetrics | None = None,
        max_in_unschedulable: float = 300.0,
    ) -> None:
        """Build everything; nothing runs yet. Must be called in a running event loop.

        Raises:
            ConfigError: when a profile cannot be built.
            PluginError: when a plugin cannot list its events.
        """
        self.config = config
        self.clock = clock
        self.metrics = metrics if metrics is not None else SchedulerMetrics(gates.values)
        self.cache = Cache()
        self._port = port
        self._random = rng
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._informers: dict[str, Informer] = {}
        #: Those of kinds that plugins look up by namespace.
        self._indexed: dict[str, Informer] = {}
        snapshot = self.cache.snapshot()
        backends = Backends(clock, random.Random(rng.getrandbits(64)), snapshot, client=port, gates=gates)
        self.frameworks = build_frameworks(config, registry, backends, self.metrics)
        self.backends = backends
        hints = {name: queueing_hints(framework.event_plugins()) for name, framework in self.frameworks.items()}
        first = next(iter(self.frameworks.values()))
        self._pods = self._informer(PODS, POD_FIELD_SELECTOR)
        rotation = Rotation()
        self.searches: dict[str, Search] = {}
        self.queue = SchedulingQueue(
            clock=clock,
            sort_key=getattr(first.queue_sort, "sort_key", None),
            less=first.less,
            pre_enqueue={name: framework.pre_enqueue_plugins() for name, framework in self.frameworks.items()},
            queueing_hints=hints,
            pod_lister=self.live_pod,
            initial_backoff=float(config.pod_initial_backoff_seconds),
            max_backoff=float(config.pod_max_backoff_seconds),
            max_in_unschedulable=max_in_unschedulable,
            metrics=self.metrics,
            random=random.Random(rng.getrandbits(64)),
        )
        for name, framework in self.frameworks.items():
            own = framework.percentage_of_nodes_to_score
            self.searches[name] = Search(
                framework,
                snapshot,
                self.queue.nominator,
                random.Random(rng.getrandbits(64)),
                rotation,
                percentage=config.percentage_of_nodes_to_score if own is None else own,
            )
        backends.activate = self.queue.activate
        backends.nominated_pods = self.queue.nominator.nominated_pods_for_node
        backends.informed = self._informed
        backends.informed_in = self._informed_in
        self.cycle = Cycle(self, random.Random(rng.getrandbits(64)))
        self._watch(hints)
        #: Compares what is cached with what the informers list, and dumps it, into the log.
        self.debugger = CacheDebugger(self.cache, self.queue, self._informers["nodes"], self._pods)
        self.metrics.before_collect(self._measure_cache)

    def _measure_cache(self) -> None:
        """Cache sizes, measured when metrics are read (imaginary and ghost nodes count, as upstream)."""
        sizes = self.metrics.cache_size
        sizes.labels("nodes").set(sum(1 for _ in self.cache.table.all_infos()))
        sizes.labels("pods").set(len(self.cache.pods))
        sizes.labels("assumed_pods").set(len(self.cache.assumed))

    # -- informers -------------------------------------------------------------------------------------

    def _informer(self, kind: Kind, field_selector: str = "") -> Informer:
        informer = self._informers[kind.plural] = self._port.informer(kind, field_selector)
        return informer

    def _watch(self, hints: Mapping[str, Mapping[Any, Any]]) -> None:
        """Informers for pods, nodes, namespaces, and every kind that some plugin registered events for."""
        pod_handler = PodHandler(self)
        self._pods.add_handler(pod_handler)
        self._informer(NODES).add_handler(NodeHandler(self))
        self._informer(NAMESPACES).add_handler(NamespaceHandler(self))
        watched = watched_actions(event for events in hints.values() for event in events)
        by_name = {kind.kind: kind for kind in KINDS if kind.group != "events.k8s.io"}
        for resource, actions in watched.items():
            kind_name = _EVENT_KINDS.get(resource)
            if kind_name is not None and actions != ActionType.NONE:
                self._informer(by_name[kind_name]).add_handler(ResourceHandler(self, resource, actions))
        plugins = (plugin for framework in self.frameworks.values() for plugin in framework.plugins.values())
        for plural in dict.fromkeys(kind for plugin in plugins for kind in getattr(plugin, "informs", ())):
            if plural not in self._informers:
                self._informer(next(kind for kind in by_name.values() if kind.plural == plural))
            informer = self._informers[plural]
            informer.add_index(_BY_NAMESPACE, _namespace_of)
            self._indexed[plural] = informer

    def _informed(self, plural: str) -> Mapping[str, Any]:
        informer = self._informers.get(plural)
        return {} if informer is None else _InformerView(informer)

    def _informed_in(self, plural: str, namespace: str) -> Sequence[Any]:
        informer = self._indexed.get(plural)
        return () if informer is None else informer.by_index(_BY_NAMESPACE, namespace)

    def live_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as the API server last showed it, or None."""
        pod: Pod | None = self._pods.get(namespace, name)
        return pod

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the informers and wait until everything they listed has been handled."""
        for plural, informer in self._informers.items():
            self._spawn(informer.run(), f"informer-{plural}")
        for informer in self._informers.values():
            await informer.wait_synced()
        self._spawn(self.queue.run(), "queue-flush")

    async def run(self) -> None:
        """Schedule pods until :meth:`stop`; what is queued then stays undecided."""
        loop, pop_nowait = asyncio.get_running_loop(), self.queue.pop_nowait
        while not self._stopping:
            queued = pop_nowait() or await self.queue.wait_pop()
            if queued is None or self._stopping:
                return
            ends, left = loop.time() + _TURN_SECONDS, _PODS_PER_TURN
            while queued is not None:
                self._schedule_one(queued)
                left -= 1
                queued = pop_nowait() if left and loop.time() < ends else None
            await asyncio.sleep(0)

    def _schedule_one(self, queued: QueuedPodInfo) -> None:
        """One cycle. A defect of ours fails the pod's attempt, as a plugin's would; the loop goes on."""
        try:
            self.cycle.schedule_one(queued)
        except Exception as error:
            _log.exception("scheduling pod %s failed unexpectedly", queued.key)
            try:
                self.cycle.give_up(queued, error)
            except Exception:
                _log.exception("pod %s cannot be given back; it is tried again when it changes", queued.key)
                self.queue.done(queued.uid)

    async def stop(self) -> None:
        """Close the queue, let bindings finish, stop the informers, close the plugins. Again: nothing happens.

        No further pod is tried. Pods that wait on Permit are given back silently.
        """
        if self._stopping:
            return
        self._stopping = True
        self.queue.close()
        for informer in self._informers.values():
            informer.stop()
        await self.cycle.finish()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for framework in self.frameworks.values():
            for problem in framework.close():
                _log.error("%s", problem)

    def _spawn(self, work: Any, name: str) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        task.set_name(name)
        task.add_done_callback(_log_failure)
        self._tasks.append(task)

    @property
    def port(self) -> Port:
        return self._port

    @property
    def is_idle(self) -> bool:
        """Nothing is queued for an attempt, in flight, or being written: only unschedulable pods may be left."""
        return (
            not self.cycle.busy
            and not self.queue.pods_in_active()
            and not self.queue.pods_in_backoff()
            and not self.queue.in_flight_pods()
        )


#: The index over informers that plugins look into.
_BY_NAMESPACE: Final = "namespace"


def _namespace_of(obj: Any) -> Sequence[str]:
    if isinstance(obj, dict):
        return (obj["metadata"].get("namespace", ""),)
    return (obj.metadata.namespace,)


class _InformerView(Mapping[str, Any]):
    """An informer's objects as a read-only mapping."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def __getitem__(self, key: str) -> Any:
        obj = self._informer.get_by_key(key)
        if obj is None:
            raise KeyError(key)
        return obj

    def __iter__(self) -> Any:
        return iter(self._informer.keys())

    def __len__(self) -> int:
        return len(self._informer.keys())


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("task %s failed", task.get_name(), exc_info=task.exception())
