"""The scheduler assembled: configuration and an API port in, a running scheduler out.

:class:`Scheduler` owns the parts and their lives; what they do is in :mod:`.cycle` and :mod:`.binding` (one pod,
start to finish), :mod:`.handlers` (watch events) and :mod:`.search` (the decision).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubesched.api.kinds import NAMESPACES, NODES, PODS
from kubesched.api.tasks import Supervisor
from kubesched.api.times import Clock
from kubesched.api.types import Pod
from kubesched.cache import Cache
from kubesched.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration
from kubesched.framework.enqueue import queueing_hints, watched_actions
from kubesched.framework.events import ActionType
from kubesched.framework.extenders import ConnectedExtender, Extender, in_run_time_order, is_involved
from kubesched.framework.gated_fields import pod_view
from kubesched.framework.holding import Holder
from kubesched.framework.metrics import SchedulerMetrics
from kubesched.framework.preemption import Preemption
from kubesched.framework.queued import QueuedPodInfo
from kubesched.framework.registry import Registry
from kubesched.framework.waiting import PodsInPreBind, WaitingPods
from kubesched.queue import SchedulingQueue
from kubesched.queue.order import order_of

from .attempt import AttemptMetrics
from .binding import BindingCycles
from .cycle import Cycle
from .debugger import CacheDebugger
from .extender_lane import ExtenderLane
from .extender_support import ExtenderRejections, ExtenderView, check_extenders
from .failure import FailureHandler
from .full_scan import Rotation
from .handle import Backends
from .handlers import NamespaceHandler, NodeHandler, PodHandler, ResourceHandler
from .informers import Informers, kind_of_event, kinds_informed
from .port import Port
from .profiles import Profile, build_frameworks
from .search import Search
from .status_writer import StatusWriter

__all__ = ["Scheduler"]

_log = logging.getLogger("kubesched.scheduler")

#: Pods that have finished are invisible to the scheduler.
POD_FIELD_SELECTOR: Final = "status.phase!=Succeeded,status.phase!=Failed"

#: How many pods are decided, and for how long (seconds), before other tasks (watches, bindings) get the loop.
_PODS_PER_TURN: Final = 32
_TURN_SECONDS: Final = 0.005


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
        extenders: Sequence[Extender] = (),
        wrap_search: Callable[[Search], Search] = lambda search: search,
        on_preemption: Callable[[Preemption], None] | None = None,
        on_attempt: Callable[[QueuedPodInfo], None] | None = None,
    ) -> None:
        """Build everything; nothing runs yet. Must be called in a running event loop.

        ``extenders`` replace those of the configuration, by name, and may be more; :meth:`stop` closes them.
        ``wrap_search`` puts something around the search of each profile, such as a stopwatch. ``on_preemption`` receives
        every successful preemption, ``on_attempt`` every pod as it is popped.

        Raises:
            ConfigError: when a profile cannot be built, or a configured extender is missing from ``extenders``.
            PluginError: when a plugin cannot list its events.
        """
        metrics = metrics if metrics is not None else SchedulerMetrics(gates.values)
        self.config = config
        self.clock = clock
        self.metrics = metrics
        self.port = port
        #: The parent of informers, queue flushes, bindings and status patches.
        self.tasks = Supervisor("scheduler")
        self._stopping = False
        check_extenders(config, extenders)
        self.extenders = in_run_time_order(extenders)
        #: What plugins do alongside the scheduling cycle, such as evicting the victims of a preemption.
        self._plugin_tasks: set[asyncio.Task[None]] = set()
        # What plugins and the cycle share.
        self.cache = Cache()
        self.waiting_pods = WaitingPods()
        self.pods_in_pre_bind = PodsInPreBind()
        self.informers = Informers(port)
        self._pods = self.informers.of(PODS, POD_FIELD_SELECTOR)
        if (view := pod_view(gates)) is not None:
            self._pods.show_as(view)
        snapshot = self.cache.snapshot()
        backends = Backends(
            clock,
            random.Random(rng.getrandbits(64)),
            snapshot,
            client=port,
            gates=gates,
            waiting_pods=self.waiting_pods,
            pods_in_pre_bind=self.pods_in_pre_bind,
            extenders=self.extenders,
            recorder=port.recorder,
            live_pod=self._live_version,
            clear_nomination=self._clear_nomination,
            spawn=self._spawn_for_plugin,
            activate=self._activate,
            nominations=lambda: self.queue.nominator,
            informed=self.informers.objects,
            informed_in=self.informers.objects_in,
            watch=self.informers.watch,
            node_changed=self.cache.node_changed,
        )
        # Plugins, and what is built from them: the queue and a search per profile.
        self.frameworks = build_frameworks(config, registry, backends, metrics)
        rejecting = [ExtenderRejections()] if self.extenders else []
        hints = {
            name: queueing_hints([*rejecting, *framework.event_plugins()])
            for name, framework in self.frameworks.items()
        }
        first = next(iter(self.frameworks.values()))
        self.queue = SchedulingQueue(
            clock=clock,
            order=order_of(first.queue_sort),
            pre_enqueue={name: framework.pre_enqueue_plugins for name, framework in self.frameworks.items()},
            queueing_hints=hints,
            pod_lister=self.live_pod,
            initial_backoff=float(config.pod_initial_backoff_seconds),
            max_backoff=float(config.pod_max_backoff_seconds),
            max_in_unschedulable=max_in_unschedulable,
            metrics=metrics,
            holders={
                name: plugin
                for name, framework in self.frameworks.items()
                for plugin in framework.plugins.values()
                if isinstance(plugin, Holder)
            },
            slice_time=asyncio.get_running_loop().time,
            is_apart=(lambda record: is_involved(self.extenders, record.pod_info)) if self.extenders else None,
            pop_from_backoff=gates.enabled("SchedulerPopFromBackoffQ"),
        )
        rotation = Rotation()
        self.searches: dict[str, Search] = {}
        for name, framework in self.frameworks.items():
            own = framework.percentage_of_nodes_to_score
            search = Search(
                framework,
                snapshot,
                self.queue.nominator,
                random.Random(rng.getrandbits(64)),
                rotation,
                percentage=config.percentage_of_nodes_to_score if own is None else own,
            )
            self.searches[name] = wrap_search(search)
        profiles = {
            name: Profile(framework, self.searches[name], port.recorder(name))
            for name, framework in self.frameworks.items()
        }
        # One attempt: the cycle, the binding, and failures of both.
        self.statuses = StatusWriter(port, self.live_pod, self.tasks)
        attempts = AttemptMetrics(metrics, clock)
        failures = FailureHandler(self.queue, self.cache, self.statuses, attempts, self.live_pod)
        self.bindings = BindingCycles(
            self.queue,
            failures,
            self.statuses,
            self.waiting_pods,
            self.pods_in_pre_bind,
            attempts,
            metrics,
            clock,
            self.tasks,
            publish_node=gates.enabled("NominatedNodeNameForExpectation"),
            extenders=self.extenders,
        )
        self.cycle = Cycle(
            self.queue,
            self.cache,
            profiles,
            self.bindings,
            failures,
            metrics,
            clock,
            on_preemption,
            on_attempt,
        )
        self._lane = ExtenderLane(self.extenders, self.queue, self.cycle, self.live_pod, metrics)
        self._in_lane: asyncio.Task[None] | None = None
        self._watch(hints, profiles)
        self._connect_extenders()
        #: Compares what is cached with what the informers list, and dumps it, into the log.
        self.debugger = CacheDebugger(
            self.cache,
            self.queue.views,
            self.queue.nominator,
            self.informers["nodes"],
            self._pods,
            backends.parts,
            self.tasks,
        )
        metrics.before_collect(self._measure_cache)

    # Plugins call these in cycles, when there is a queue; it is built from them.

    def _activate(self, pods: Mapping[str, Pod]) -> None:
        self.queue.activate(pods)

    def _clear_nomination(self, pod: Pod, node_name: str) -> None:
        self.queue.end_nomination(pod)
        # The informer may not have shown yet that the field is set; written from this state on, it is cleared in any case.
        status = msgspec.structs.replace(pod.status, nominated_node_name=node_name)
        self.statuses.write(msgspec.structs.replace(pod, status=status), None, "")

    def _live_version(self, pod: Pod) -> Pod | None:
        live = self.live_pod(pod.namespace, pod.name)
        return live if live is not None and live.uid == pod.uid else None

    def _spawn_for_plugin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self.tasks.spawn(work, name, lasting=False)
        self._plugin_tasks.add(task)
        task.add_done_callback(self._plugin_tasks.discard)

    def _measure_cache(self) -> None:
        """Cache sizes, measured when metrics are read (imaginary and ghost nodes count, as upstream)."""
        sizes = self.metrics.cache_size
        sizes.labels("nodes").set(sum(1 for _ in self.cache.table.all_infos()))
        sizes.labels("pods").set(len(self.cache.pods))
        sizes.labels("assumed_pods").set(len(self.cache.assumed))

    # -- informers -------------------------------------------------------------------------------------

    def _watch(self, hints: Mapping[str, Mapping[Any, Any]], profiles: Mapping[str, Profile]) -> None:
        """Informers for pods, nodes, namespaces, and every kind that some plugin registered events for."""
        cache, queue, clock, metrics, informers = self.cache, self.queue, self.clock, self.metrics, self.informers
        recorders = {name: profile.recorder for name, profile in profiles.items()}
        waiting, pre_binding = self.waiting_pods, self.pods_in_pre_bind
        self._pods.add_handler(PodHandler(cache, queue, waiting, pre_binding, recorders, clock, metrics))
        informers.of(NODES).add_handler(NodeHandler(cache, queue, clock, metrics))
        informers.of(NAMESPACES).add_handler(NamespaceHandler(cache))
        for resource, actions in watched_actions(event for events in hints.values() for event in events).items():
            kind = kind_of_event(resource)
            if kind is not None and actions != ActionType.NONE:
                informers.source(kind).add_handler(ResourceHandler(resource, actions, queue, clock, metrics))
        plugins = (plugin for framework in self.frameworks.values() for plugin in framework.plugins.values())
        for kind in dict.fromkeys(kind for plugin in plugins for kind in kinds_informed(plugin)):
            informers.index_by_namespace(kind)

    def _connect_extenders(self) -> None:
        """Extenders that send whole objects need more of them than the scheduler decodes."""
        connected = [extender for extender in self.extenders if isinstance(extender, ConnectedExtender)]
        if connected:
            nodes, pods = self.informers["nodes"], self._pods
            nodes.keep_documents(lambda node: True)
            pods.keep_documents(lambda pod: not pod.spec.node_name)
            view = ExtenderView(self.cache.table, pods, nodes)
            for extender in connected:
                extender.connect(view)

    def live_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as the API server last showed it, or None."""
        pod: Pod | None = self._pods.get(namespace, name)
        return pod

    def pods(self) -> list[Pod]:
        """All pods that have not finished, as the API server last showed them."""
        return self._pods.values()

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the informers and wait until everything they listed has been handled.

        Raises:
            TaskCrashedError: when an informer ended.
        """
        with self.tasks.guard():
            for plural, informer in self.informers.items():
                self.tasks.spawn(informer.run(), f"informer-{plural}")
            for informer in self.informers.values():
                await informer.wait_synced()
            self.tasks.spawn(self.queue.run(), "queue-flush")

    async def run(self) -> None:
        """Schedule pods until :meth:`stop`; what is queued then stays undecided.

        Raises:
            TaskCrashedError: when a task of the scheduler's ended that should not have.
        """
        with self.tasks.guard():
            if self.extenders and not self._stopping:
                self._in_lane = self.tasks.spawn(self._lane.run(), "extender-lane")
            await self._schedule()

    async def _schedule(self) -> None:
        loop, pop_nowait = asyncio.get_running_loop(), self.queue.pop_nowait
        while not self._stopping:
            queued = pop_nowait() or await self.queue.wait_pop()
            if queued is None or self._stopping:
                return
            ends, left = loop.time() + _TURN_SECONDS, _PODS_PER_TURN
            while queued is not None:
                rest = self.cycle.schedule_one(queued)
                if rest is not None:
                    await rest
                left -= 1
                queued = pop_nowait() if left > 0 and loop.time() < ends else None
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Close the queue, let bindings finish, stop the informers, close the plugins. Again: nothing happens.

        No further pod is tried. Pods that wait on Permit are given back silently.
        """
        if self._stopping:
            return
        self._stopping = True
        self.tasks.begin_stop()
        self.queue.close()
        for informer in self.informers.values():
            informer.stop()
        if self._in_lane is not None:
            self._in_lane.cancel()
            await asyncio.wait((self._in_lane,))
        try:
            await self.bindings.finish()
            if self._plugin_tasks:
                await asyncio.wait(self._plugin_tasks)
            await self.statuses.finish()
            await self.tasks.stop()
        finally:
            for extender in self.extenders:
                try:
                    await extender.close()
                except Exception:
                    _log.exception("extender %s failed to close", extender.name)
            for framework in self.frameworks.values():
                for problem in framework.close():
                    _log.error("%s", problem)

    @property
    def busy(self) -> bool:
        """Bindings, status patches, evictions or attempts with extenders are under way."""
        return self.bindings.busy or self.statuses.busy or bool(self._plugin_tasks) or self._lane.busy

    @property
    def is_idle(self) -> bool:
        """Nothing is queued for an attempt, in flight, being written, or to be delivered to a handler again.

        Only unschedulable pods may be left.
        """
        return not self.busy and self.queue.views.is_at_rest and not self.informers.are_behind
