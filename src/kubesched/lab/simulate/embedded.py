"""Embedded cluster with a scheduler, in one process and one event loop.

Store, in-process client, hollow kubelets, API port and scheduler, put together once for the simulator, the benchmark,
the demonstration and the tests. It runs in real time or in virtual time; the parts are the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

from kubesched.api.groups import GATES
from kubesched.api.kinds import CORE_EVENTS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from kubesched.api.types import Node, Pod
from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock
from kubesched.client.event_writer import CACHE_SIZE
from kubesched.client.events import REFRESH_SECONDS
from kubesched.client.port import ApiPort
from kubesched.cluster.controllers import (
    ALL,
    Attachments,
    Controller,
    ControllerManager,
    ControllerSettings,
    RootCertificates,
)
from kubesched.cluster.kubelets import HollowKubelets, Stage
from kubesched.cluster.store import Faults, InProcessClient, Store
from kubesched.explain.explainer import Explainer
from kubesched.explain.report import Pending
from kubesched.scheduler.cache.check import check_cache, compare_with_server
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.core.search import Search
from kubesched.scheduler.dra.check import check_allocations
from kubesched.scheduler.extenders.interface import Extender
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.scheduler import Scheduler

__all__ = ["Embedded", "StoredObjects"]

_Chosen: TypeAlias = Sequence[type[Controller] | str]


class Embedded:
    """Embedded cluster with a scheduler.

    Attributes:
        store: the cluster's state; writing to it directly has the effect of API requests.
        client: the in-process transport of everything but the scheduler.
        faults: injected faults between scheduler and store (default: none).
        scheduler, port, kubelets, controllers: the running parts; the last two are None when left out.

    ``on_bind`` is called with (namespace, name, node) once the store has accepted a binding that the scheduler sent.
    ``believe_priority`` turns priority admission off: a pod's own ``spec.priority`` counts, as in upstream's benchmark.
    ``taint_new_nodes`` keeps pods off nodes that are created without being Ready, until their kubelet reports; it needs the
    controller ``nodelifecycle``.

    ``controllers`` also runs controllers of :mod:`kubesched.cluster.controllers`: all, or the ones that it names.
    ``kubelet_options`` are passed on to :class:`~kubesched.cluster.kubelets.hollow.HollowKubelets`. ``stages`` are rules
    for times and failures of pods and storage, for both. ``keep_finished`` keeps pods that have ended, however many there
    are, although all controllers run.

    ``root_ca`` is the authority of the API server's certificate, as PEM text, which may be empty. If it is given, each
    namespace has it in the ConfigMap ``kube-root-ca.crt``. Without ``with_faults`` no faults can be injected, and no data
    is kept for them. ``extenders``, ``wrap_search`` and ``observers`` are passed on to
    :class:`~kubesched.scheduler.scheduler.Scheduler`.
    """

    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        registry: Registry,
        *,
        clock: Clock,
        seed: int = 0,
        gates: FeatureGates = DEFAULT_GATES,
        kubelets: bool = True,
        event_queue_size: int = 1000,
        event_cache_size: int = CACHE_SIZE,
        event_refresh_seconds: float = REFRESH_SECONDS,
        on_bind: Callable[[str, str, str], None] | None = None,
        believe_priority: bool = False,
        controllers: bool | Iterable[type[Controller] | str] = False,
        kubelet_options: Mapping[str, Any] | None = None,
        stages: Sequence[Stage] = (),
        extenders: Sequence[Extender] = (),
        wrap_search: Callable[[Search], Search] = lambda search: search,
        observers: Sequence[AttemptObserver] = (),
        taint_new_nodes: bool = False,
        with_faults: bool = True,
        root_ca: str | None = None,
        keep_finished: bool = False,
    ) -> None:
        """Build the parts; must be called in a running event loop.

        Raises:
            ConfigError: when a profile cannot be built, or a configured extender is not among ``extenders``.
        """
        rng, self.clock = random.Random(seed), clock
        admits = {"priority_admission": not believe_priority, "taint_new_nodes": taint_new_nodes}
        self.store = Store(clock, random=_split(rng), features=gates.among(GATES), **admits)
        adds_keys = gates.enabled("MatchLabelKeysInPodTopologySpread")
        merges_keys = gates.enabled("MatchLabelKeysInPodTopologySpreadSelectorMerge")
        self.store.admission.merges_spread_keys = adds_keys and merges_keys
        self.faults = Faults(_split(rng))
        self.client = InProcessClient(self.store)
        self.port = _QuietPort(
            _SchedulerClient(self.store, self.faults if with_faults else None, on_bind),
            clock=clock,
            rng=_split(rng),
            event_queue_size=event_queue_size,
            event_cache_size=event_cache_size,
            event_refresh_seconds=event_refresh_seconds,
        )
        self._new_scheduler = partial(
            Scheduler, registry=registry, port=self.port, clock=clock, gates=gates, rng=_split(rng),
            extenders=extenders, wrap_search=wrap_search, observers=observers,
        )  # fmt: skip
        self.scheduler = self._new_scheduler(config)
        self._replaced: asyncio.Future[None] | None = None
        chosen = ALL if controllers is True else tuple(controllers or ())
        self.kubelets = self._new_kubelets(_split(rng), chosen, stages, kubelet_options or {}) if kubelets else None
        self.controllers = (
            self._new_controllers(_split(rng), chosen, stages, gates, root_ca, keep_finished=keep_finished)
            if chosen
            else None
        )
        #: Supervisor of all tasks that run here; callers may add tasks.
        self.tasks = Supervisor("embedded cluster")

    def _new_kubelets(
        self, rng: random.Random, controllers: _Chosen, stages: Sequence[Stage], given: Mapping[str, Any]
    ) -> HollowKubelets:
        attaches = any(one in (Attachments, Attachments.name) for one in controllers)
        options = {"await_attachments": attaches, **given}
        return HollowKubelets(self.client, self.clock, rng=rng, stages=stages, **options)

    def _new_controllers(
        self,
        rng: random.Random,
        chosen: _Chosen,
        stages: Sequence[Stage],
        gates: FeatureGates,
        root_ca: str | None,
        *,
        keep_finished: bool,
    ) -> ControllerManager:
        settings = ControllerSettings(
            # Among few controllers, finished pods are kept: they are the result of a run.
            terminated_pods=ControllerSettings().terminated_pods if tuple(chosen) == ALL and not keep_finished else 0,
            stages=tuple(stages),
            device_taint_rules=gates.enabled("DRADeviceTaintRules"),
            features=gates.among(GATES),
            root_ca=root_ca,
        )
        running = chosen if root_ca is None else (*chosen, RootCertificates)
        return ControllerManager(self.client, self.clock, rng, running, settings=settings)

    async def start(self, *, scheduler: bool = True) -> None:
        """Start everything (optionally without the scheduler). Returns when all parts have read the store.

        Code that waits for the cluster from here on belongs inside ``with tasks.guard()``: a crash of any part ends the
        block.

        Raises:
            TaskCrashedError: when a part ended while it started.
        """
        self.tasks.catch_callbacks()
        with self.tasks.guard():
            self.tasks.spawn(self.port.events.run(), "events")
            if self.kubelets is not None:
                self.tasks.spawn(self.kubelets.run(), "kubelets")
            if self.controllers is not None:
                self.tasks.spawn(self.controllers.run(), "controllers")
                await self.controllers.wait_announced()
            if scheduler:
                await self.scheduler.start()
                self.tasks.spawn(self._schedule(), "scheduler")

    async def _schedule(self) -> None:
        """Let the scheduler work, and after it those that take its place."""
        while True:
            await self.scheduler.run()
            if self._replaced is None:
                return
            await self._replaced

    async def restart_scheduler(self, config: KubeSchedulerConfiguration) -> None:
        """Stop the scheduler, and start one with another configuration in its place, as in a roll-out of it.

        Its queue and cache begin anew; its metrics go on. Extenders that were closed are not opened again.

        Raises:
            ConfigError: when a profile cannot be built; nothing is changed then.
        """
        old, fresh = self.scheduler, self._new_scheduler(config, metrics=self.scheduler.metrics)
        replaced = self._replaced = asyncio.get_running_loop().create_future()
        await old.stop()
        self.scheduler = fresh
        await fresh.start()
        self._replaced = None
        replaced.set_result(None)

    async def stop(self) -> None:
        """Stop everything and wait for it.

        Raises:
            TaskCrashedError: when a part had crashed and no guard has raised that yet.
        """
        self.tasks.begin_stop()
        try:
            await self.scheduler.stop()
            await self.port.events.drain()
            self.port.events.stop()
        finally:
            await self.tasks.stop()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context in which everything runs. A crash of any part ends it.

        Raises:
            TaskCrashedError: when a part crashed.
        """
        try:
            await self.start()
            with self.tasks.guard():
                yield
        finally:
            await self.stop()

    # -- looking ---------------------------------------------------------------------------------------

    @property
    def objects(self) -> StoredObjects:
        """API objects, for explanations."""
        return StoredObjects(self.store)

    def explain(self, pods: Iterable[Pod], on_progress: Callable[[int], None] = lambda done: None) -> list[Pending]:
        """Explain pods without a node, equal ones together; the largest group first."""
        return Explainer(self.scheduler, self.objects).pending(pods, on_progress)

    def pods(self) -> list[Pod]:
        """Return all pods in the store, as the scheduler sees them."""
        return [self.scheduler.informers.seen(item.typed) for item in self.store.list(PODS).items]

    def nodes(self) -> list[Node]:
        """Return all nodes in the store."""
        return [item.typed for item in self.store.list(NODES).items]

    @property
    def movers(self) -> list[HollowKubelets | ControllerManager]:
        """Parts other than the scheduler that change objects by themselves."""
        return [one for one in (self.kubelets, self.controllers) if one is not None]

    @property
    def is_settled(self) -> bool:
        """True if nothing will move any more by itself, apart from periodic retries of unschedulable pods."""
        return self.scheduler.is_idle and all(one.next_timer() is None for one in self.movers)

    def check(self) -> list[str]:
        """Return the inconsistencies; empty if there are none. Call it when nothing is moving.

        Checked are the cache, by itself and against the store, the queue, and the data that plugins share.
        """
        scheduler = self.scheduler
        queued, _ = scheduler.queue.views.pending_pods()
        visible = [
            pod
            for pod in self.pods()
            if pod.status.phase not in ("Succeeded", "Failed")
            and (pod.spec.node_name or pod.spec.scheduler_name in scheduler.frameworks)
        ]
        problems = check_cache(scheduler.cache) + scheduler.queue.views.check()
        problems += scheduler.debugger.part_problems()
        claims, slices = (self.store.list(kind).items for kind in (RESOURCE_CLAIMS, RESOURCE_SLICES))
        problems += check_allocations((item.typed for item in claims), (item.typed for item in slices))
        return problems + compare_with_server(scheduler.cache, self.nodes(), visible, queued)


class StoredObjects:
    """Objects of a store as explanations read them (:class:`kubesched.explain.objects.Objects`)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def knows(self, kind: Kind) -> bool:
        """Return True: a store has every kind."""
        return True

    def get(self, kind: Kind, namespace: str, name: str) -> Any:
        item = self._store.table(kind).objects.get((namespace, name))
        return None if item is None else item.typed

    def all(self, kind: Kind) -> Iterable[Any]:
        return (item.typed for item in self._store.table(kind).items())

    def documents(self, kind: Kind, namespace: str) -> Iterable[Mapping[str, Any]]:
        return (item.data() for item in self._store.table(kind).items(namespace))

    def controller(self, kind: Kind, namespace: str, name: str) -> tuple[str, str] | None:
        item = self._store.table(kind).objects.get((namespace, name))
        owners = item.section("metadata").get("ownerReferences") if item is not None else None
        return next(((owner["kind"], owner["name"]) for owner in owners or () if owner.get("controller")), None)

    def warning(self, namespace: str, uid: str) -> str:
        newest: dict[str, Any] = {}
        for item in self._store.table(CORE_EVENTS).items(namespace):
            event = item.data()
            about = event.get("involvedObject") or {}
            if about.get("uid") == uid and event.get("type") == "Warning" and _when(event) >= _when(newest):
                newest = event
        return f"{newest['reason']}: {newest['message']}" if newest else ""


def _when(event: dict[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _split(rng: random.Random) -> random.Random:
    """Return a new random generator for another part, seeded by this one."""
    return random.Random(rng.getrandbits(64))


class _SchedulerClient(InProcessClient):
    """Transport of the scheduler that reports every binding to an observer."""

    def __init__(self, store: Store, faults: Faults | None, on_bind: Callable[[str, str, str], None] | None) -> None:
        super().__init__(store, faults=faults)
        self._on_bind = on_bind

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        await super().bind(namespace, name, uid, node_name)
        if self._on_bind is not None:
            self._on_bind(namespace, name, node_name)


class _QuietPort(ApiPort):
    """API port whose informers have no watch timeout. In one process, it is useless to list again every few minutes."""

    def informer(self, kind: Any, field_selector: str = "", **options: Any) -> Any:
        return super().informer(kind, field_selector, watch_timeout=None, **options)
