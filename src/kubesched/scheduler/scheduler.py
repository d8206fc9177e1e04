"""Scheduler, assembled from its parts: configuration and an API port in, a running scheduler out.

:class:`Scheduler` builds the parts, starts them and stops them. Read on in :mod:`.handlers` (watch events),
:mod:`.core.cycle` and :mod:`.core.binding` (one pod, from start to end), and :mod:`.core.search` (the decision).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, Final

from kubesched.api.kinds import POD_GROUPS
from kubesched.api.types import Pod
from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock

from .cache import Cache
from .config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration
from .core.attempt import AttemptMetrics
from .core.binding import BindingCycles
from .core.cycle import Cycle
from .core.failure import FailureHandler
from .core.group_conditions import GroupConditions
from .core.group_cycle import GroupCycle
from .core.group_member import MemberTrials
from .core.group_preemption import GroupPreemption
from .core.group_room import GroupRoom
from .core.group_submit import Submission
from .core.group_trials import GroupTrials
from .core.handle import Backends, PluginRequests
from .core.observer import AttemptObserver
from .core.port import Port
from .core.profiles import build_frameworks, build_profiles
from .core.search import Search
from .core.status_writer import StatusWriter
from .debugger import CacheDebugger
from .extenders.interface import Extender, is_involved
from .extenders.lane import ExtenderLane
from .extenders.support import ExtenderRejections, checked_extenders, connect_extenders
from .first_lists import FirstLists
from .framework.enqueue import queueing_hints
from .framework.failures import PluginFailedError
from .framework.group_reading import GroupReader
from .framework.holding import Holder
from .framework.metrics import SchedulerMetrics
from .framework.queued import QueuedPodInfo
from .framework.registry import Registry
from .handlers import watch
from .informers import Informers
from .nodes.pod_groups import PodGroupStates
from .nodes.podinfo import PodInfo
from .queue import SchedulingQueue
from .queue.order import order_of
from .queue.queueing_hints import Registrations

__all__ = ["Scheduler"]

_log = logging.getLogger("kubesched.scheduler")

#: Most pods that are decided before other tasks (watches, bindings) get a turn of the event loop.
_PODS_PER_TURN: Final = 32
#: Seconds after which no further pod is decided in the same turn.
_TURN_SECONDS: Final = 0.005


class Scheduler:
    """Scheduler: profiles, cache, queue, informers, and the loop that schedules pods."""

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
        observers: Sequence[AttemptObserver] = (),
    ) -> None:
        """Build all parts; nothing runs yet. Call it in a running event loop.

        ``extenders`` are the objects for the configuration's extenders, by name, and perhaps more; :meth:`stop` closes
        them. ``wrap_search`` may wrap the search of each profile, as a stopwatch does. ``observers`` see every attempt.

        Raises:
            ConfigError: when a profile cannot be built, or a configured extender is missing from ``extenders``.
            PluginError: when a plugin cannot list its events.
        """
        metrics = metrics if metrics is not None else SchedulerMetrics(gates.values)
        self.config, self.clock, self.metrics, self.port = config, clock, metrics, port
        self.extenders = extenders = checked_extenders(config, extenders)
        #: Supervisor of informers, queue flushes, bindings and status patches.
        self.tasks = tasks = Supervisor("scheduler")
        self._stopping = False
        self._in_lane: asyncio.Task[None] | None = None
        # Parts that plugins and the cycle share.
        self.groups = groups = PodGroupStates() if gates.enabled("GenericWorkload") else None
        self.cache = cache = Cache(groups)
        self.informers = informers = Informers(port, gates)
        if groups is not None:
            informers.of(POD_GROUPS)
        self._requests = PluginRequests(tasks)
        backends = self._backends(gates, rng)
        self.waiting_pods, self.pods_in_pre_bind = backends.waiting_pods, backends.pods_in_pre_bind
        # Plugins, and the parts that are built from them: the queue, and a search per profile.
        self.frameworks = frameworks = build_frameworks(config, registry, backends, metrics)
        if groups is not None:
            self._read_groups(groups)
        hints = self._hints()
        self.queue = queue = self._build_queue(hints, gates, max_in_unschedulable)
        self.profiles = profiles = build_profiles(
            config, frameworks, backends.snapshot, queue.nominator, rng, port.recorder, wrap_search
        )
        self._build_attempts(backends, gates, rng, observers)
        # Changes of the cluster.
        watch(informers, cache, queue, profiles, hints, backends, metrics, self.conditions)
        connect_extenders(extenders, cache.table, informers)
        #: Lists that the informers have to read before the first pod is scheduled.
        self.first_lists = FirstLists(
            informers, port, [plugin for each in frameworks.values() for plugin in each.plugins.values()], hints
        )
        #: Compares the cache with the informers' lists, and dumps it, into the log.
        self.debugger = CacheDebugger(cache, queue.views, queue.nominator, informers, backends.parts, tasks)
        metrics.before_collect(self._measure_cache)

    def _read_groups(self, groups: PodGroupStates) -> None:
        """Let plugins say which group a pod belongs to."""
        readers = {
            name: plugin
            for name, framework in self.frameworks.items()
            for plugin in framework.plugins.values()
            if isinstance(plugin, GroupReader)
        }
        if readers:
            self.informers.read_groups(readers, groups)

    def _build_attempts(
        self, backends: Backends, gates: FeatureGates, rng: random.Random, observers: Sequence[AttemptObserver]
    ) -> None:
        """Build the parts of attempts: the cycle, the binding, and the handling of their failures."""
        queue, metrics, clock, tasks, groups = self.queue, self.metrics, self.clock, self.tasks, self.groups
        port, live_pod = self.port, self.informers.live_pod
        self.statuses = statuses = StatusWriter(port, live_pod, tasks)
        self._requests.connect(queue, statuses)
        attempts = AttemptMetrics(metrics, clock)
        failures = FailureHandler(queue, self.cache, statuses, attempts, live_pod, observers)
        states = groups if groups is not None else PodGroupStates()
        stored = self.informers.objects("podgroups")
        self.conditions = GroupConditions(port, stored, states, self.profiles, statuses, tasks, clock)
        refused = self.conditions.refused if groups is not None else None
        self.bindings = BindingCycles(
            queue, failures, statuses, backends, self.extenders, attempts, metrics, tasks, observers, refused
        )
        self.cycle = Cycle(queue, self.cache, self.profiles, self.bindings, failures, metrics, clock, observers)
        self._lane = ExtenderLane(self.extenders, queue, self.cycle, live_pod, metrics)
        #: Decides about one popped pod, or about its group; see :meth:`.core.cycle.Cycle.schedule_one`.
        self.schedule_one: Callable[[QueuedPodInfo], Awaitable[None] | None] = self.cycle.schedule_one
        self._in_part: Callable[[], Iterable[Pod]] = tuple
        if groups is not None:
            self.schedule_one = self._with_groups(groups, failures, gates, random.Random(rng.getrandbits(64)))

    def _with_groups(
        self, groups: PodGroupStates, failures: FailureHandler, gates: FeatureGates, rng: random.Random
    ) -> Callable[[QueuedPodInfo], Awaitable[None] | None]:
        """Return the function that schedules a popped pod: with its group, or on its own."""
        queue, cycle, clock, metrics = self.queue, self.cycle, self.clock, self.metrics
        members = MemberTrials(queue, cycle, failures, self._lane.find_member, metrics, clock)
        has_placements = gates.enabled("TopologyAwareWorkloadScheduling")
        trials = GroupTrials(members, self.cache.table, rng, has_placements=has_placements)
        whole_groups = gates.enabled("WorkloadAwarePreemption")
        preemption = GroupPreemption(cycle, trials, is_on=whole_groups)
        submission = Submission(queue, cycle, failures, members, whole_groups=whole_groups)
        room = GroupRoom(groups, self.informers.objects("podgroups"), self.profiles)
        self._in_part = room.in_part
        group_cycle = GroupCycle(
            queue, self.cache, groups, cycle, failures, trials, preemption, submission, room, self.conditions, metrics, clock
        )  # fmt: skip
        schedule_group, schedule_one = group_cycle.schedule, cycle.schedule_one

        def schedule(queued: QueuedPodInfo) -> Awaitable[None] | None:
            grouped = queued.pod_info.pod.spec.scheduling_group is not None
            return schedule_group(queued) if grouped else schedule_one(queued)

        return schedule

    def _backends(self, gates: FeatureGates, rng: random.Random) -> Backends:
        informers, requests = self.informers, self._requests
        return Backends(
            self.clock,
            random.Random(rng.getrandbits(64)),
            self.cache.snapshot(),
            client=self.port,
            gates=gates,
            extenders=self.extenders,
            recorder=self.port.recorder,
            live_pod=informers.live_version,
            clear_nomination=requests.clear_nomination,
            spawn=requests.spawn,
            activate=requests.activate,
            nominations=requests.nominations,
            informed=informers.objects,
            informed_in=informers.objects_in,
            watch=informers.watch,
            node_changed=self.cache.node_changed,
            pod_groups=self.groups,
        )

    def _hints(self) -> Registrations:
        return {name: queueing_hints(self.event_plugins(name)) for name in self.frameworks}

    def event_plugins(self, profile: str) -> list[Any]:
        """Return the plugins of a profile whose rejections cluster events can lift, and a stand-in for the extenders."""
        rejecting = [ExtenderRejections()] if self.extenders else []
        return [*rejecting, *self.frameworks[profile].event_plugins()]

    def _build_queue(self, hints: Registrations, gates: FeatureGates, max_in_unschedulable: float) -> SchedulingQueue:
        return SchedulingQueue(
            clock=self.clock,
            order=order_of(next(iter(self.frameworks.values())).queue_sort),
            pre_enqueue={name: framework.pre_enqueue_plugins for name, framework in self.frameworks.items()},
            queueing_hints=hints,
            pod_lister=self.informers.live_pod,
            initial_backoff=float(self.config.pod_initial_backoff_seconds),
            max_backoff=float(self.config.pod_max_backoff_seconds),
            max_in_unschedulable=max_in_unschedulable,
            metrics=self.metrics,
            holders={
                name: plugin
                for name, framework in self.frameworks.items()
                for plugin in framework.plugins.values()
                if isinstance(plugin, Holder)
            },
            slice_time=asyncio.get_running_loop().time,
            is_apart=self._is_apart if self.extenders else None,
            pop_from_backoff=gates.enabled("SchedulerPopFromBackoffQ"),
            groups=self.groups is not None,
            kind_of=self._kind_of,
        )

    def _kind_of(self, pod: PodInfo) -> Hashable | None:
        """Return the signature of a pod if it decides alone whether a node passes the filters, else None."""
        profile = self.profiles.get(pod.spec.scheduler_name)
        try:
            asked = profile.search.ask(pod) if profile is not None else None
        except PluginFailedError:
            return None
        if asked is None or asked.plan.unsigned.filters or asked.plan.unsigned.pre_filters:
            return None
        return asked.signature

    def _is_apart(self, record: QueuedPodInfo) -> bool:
        """Return True if extenders have to be awaited for a pod on its own; a group's cycle awaits them itself."""
        if self.groups is not None and record.pod_info.pod.spec.scheduling_group is not None:
            return False
        return is_involved(self.extenders, record.pod_info)

    def _measure_cache(self) -> None:
        """Set the metrics of the cache's sizes, when metrics are read. Imaginary and ghost nodes count, as upstream."""
        sizes = self.metrics.cache_size
        sizes.labels("nodes").set(sum(1 for _ in self.cache.table.all_infos()))
        sizes.labels("pods").set(len(self.cache.pods))
        sizes.labels("assumed_pods").set(len(self.cache.assumed))

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the informers, and wait until all listed objects have been handled.

        Raises:
            TaskCrashedError: when an informer ended.
        """
        with self.tasks.guard():
            await self.informers.leave_out_unserved()
            for plural, informer in self.informers.items():
                self.tasks.spawn(informer.run(), f"informer-{plural}")
            telling = self.tasks.spawn(self.first_lists.tell(), "first-lists", lasting=False)
            for informer in self.informers.values():
                await informer.wait_synced()
            telling.cancel()
            self.tasks.spawn(self.queue.run(), "queue-flush")
            if self.groups is not None:
                self.conditions.catch_up()

    async def run(self) -> None:
        """Schedule pods until :meth:`stop`; pods that are still queued then stay undecided.

        Raises:
            TaskCrashedError: when a task of the scheduler ended unexpectedly.
        """
        with self.tasks.guard():
            if self.extenders and not self._stopping:
                self._in_lane = self.tasks.spawn(self._lane.run(), "extender-lane")
            await self._schedule()

    async def _schedule(self) -> None:
        loop, pop_nowait, schedule_one = asyncio.get_running_loop(), self.queue.pop_nowait, self.schedule_one
        # Gangs that an earlier scheduler has left in the middle come first: nobody may take the room of their rest.
        for pod in self._in_part():
            if (first := self.queue.pop_specific(pod)) is not None and (rest := schedule_one(first)) is not None:
                await rest
        while not self._stopping:
            queued = pop_nowait() or await self.queue.wait_pop()
            if queued is None or self._stopping:
                return
            ends, left = loop.time() + _TURN_SECONDS, _PODS_PER_TURN
            while queued is not None:
                rest = schedule_one(queued)
                if rest is not None:
                    await rest
                left -= 1
                queued = pop_nowait() if left > 0 and loop.time() < ends else None
            await asyncio.sleep(0)
            if self.bindings.is_behind:
                await self.bindings.catch_up()

    async def stop(self) -> None:
        """Close the queue, stop the informers, let bindings finish, close extenders and plugins.

        No further pod is tried. Pods that wait on Permit are given back without an event. A second call has no effect.
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
            await self._requests.finish()
            await self.statuses.finish()
            await self.conditions.finish()
            await self.tasks.stop()
        finally:
            self.metrics.measure_last(self._measure_cache)
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
        """True while bindings, status patches, evictions or attempts with extenders are under way."""
        return (
            self.bindings.busy or self.statuses.busy or self.conditions.busy or self._requests.busy or self._lane.busy
        )

    @property
    def is_idle(self) -> bool:
        """True if only unschedulable pods are left.

        No pod is queued for an attempt or in flight, nothing is being written, and no object has to be delivered to a
        handler again.
        """
        return not self.busy and self.queue.views.is_at_rest and not self.informers.are_behind
