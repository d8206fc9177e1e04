"""Execution of a workload's operations on a fresh embedded cluster, in real time.

Source: rules/benchmark-format §5, §6. Deliberate differences from upstream: an operation waits for its own pods, not
for the number of pods in their namespace (rules/benchmark-format §12 quirk Q2); existing namespaces are accepted
(rules/benchmark-format §12 quirk Q3); waiting ends with the last binding, not at the next poll of each second. Hollow
kubelets are off, as upstream.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import fnmatch
import random
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Any, Final

from kubesched.api.kinds import NODES, PODS, RESOURCE_SLICES, Kind, kind_of
from kubesched.api.wire import ApiError, tolerate
from kubesched.base.loop_watch import HoldLog, watch_loop
from kubesched.base.tasks import TaskCrashedError
from kubesched.base.times import RealClock, parse_duration
from kubesched.cluster.schema import stored_form
from kubesched.scheduler.config import DEFAULT_GATES
from kubesched.scheduler.framework.registry import Registry

from ..simulate.embedded import Embedded
from .configuration import config_of, extenders_of
from .devices import allocate_claims, driver_slice
from .features import with_features
from .maker import Maker, PodMaker
from .measure import Run, Section, SectionTimer, StopwatchSearch, peak_rss_mib, resident_mib
from .templates import Template
from .waits import Labels, Wait, was_tried, why_unbound
from .workloads import (
    AllocResourceClaims,
    Barrier,
    Churn,
    CreateAny,
    CreateNamespaces,
    CreateNodes,
    CreatePods,
    CreateResourceClaims,
    CreateResourceDriver,
    DeletePods,
    Operation,
    Sleep,
    StartCollecting,
    StopCollecting,
    UpdateAny,
    Workload,
    WorkloadError,
)

__all__ = ["run_workload"]

#: Pods created before the scheduler gets the event loop.
_YIELD_INTERVAL: Final = 50
#: Pods bound between two reports of progress.
_PROGRESS_EVERY: Final = 100
#: Seconds between two counts of attempts, and between two checks that pods are still being bound.
_POLL_SECONDS: Final = 0.02
_CHECK_SECONDS: Final = 0.2
#: Seconds without a binding after which a wait fails: the pods do not fit.
_PATIENCE_SECONDS: Final = 30.0
_MEMORY_SECONDS: Final = 0.5
_STILL_SECONDS: Final = 2.0

Progress = Callable[[int, int], None]


async def run_workload(
    workload: Workload,
    registry: Registry,
    *,
    seed: int = 0,
    profiler: cProfile.Profile | None = None,
    on_progress: Progress = lambda done, total: None,
) -> Run:
    """Run a workload once.

    ``profiler`` is on while something is measured.

    Raises:
        WorkloadError: when an operation cannot be carried out.
        ConfigError: when a profile cannot be built.
        TaskCrashedError: when a part of the cluster crashed.
    """
    operations = workload.operations()
    begin = time.perf_counter()
    execution = _Execution(workload, operations, registry, seed, profiler, on_progress)
    try:
        async with execution.embedded.running():
            for index, op in enumerate(operations):
                await execution.do(index, op)
            execution.stop_background()
    except ApiError as error:
        raise WorkloadError(f"{workload.title}: {error}") from None
    except TaskCrashedError as crash:
        if isinstance(crash.__cause__, ApiError | WorkloadError):
            raise WorkloadError(f"{workload.title}: {crash.task}: {crash.__cause__}") from None
        raise
    statistics = execution.embedded.port.events.statistics()
    return Run(
        sections=execution.sections,
        setup_seconds=round(execution.first_measured - begin, 3),
        peak_rss_mib=peak_rss_mib(),
        events_recorded=statistics.recorded,
        events_dropped=statistics.dropped,
    )


class _Execution:
    """Run of a workload: its cluster, open waits, and open measurements."""

    def __init__(
        self,
        workload: Workload,
        operations: list[Operation],
        registry: Registry,
        seed: int,
        profiler: cProfile.Profile | None,
        on_progress: Progress,
    ) -> None:
        self._decisions: list[float] = []
        config = config_of(workload)
        self.embedded = Embedded(
            config,
            with_features(registry, workload.fake_features),
            clock=RealClock(),
            gates=workload.gates,
            seed=seed,
            kubelets=False,
            with_faults=False,
            event_queue_size=1 << 20,
            on_bind=self._bound,
            extenders=extenders_of(config),
            believe_priority=True,
            controllers=["resourceclaim"] if workload.feature_gates.get("DynamicResourceAllocation") else (),
            wrap_search=lambda search: StopwatchSearch.around(search, self._decisions),
        )
        self.sections: list[Section] = []
        self.first_measured = time.perf_counter()
        self._title = workload.title
        self._random = random.Random(seed)
        self._maker = Maker(workload, self.embedded)
        self._profiler = profiler
        self._on_progress = on_progress
        self._total = sum(op.count for op in operations if isinstance(op, CreatePods))
        #: Labels of the pods without a node that a later barrier waits for, by namespace and key.
        self._ledger: dict[str, dict[str, Labels]] = {}
        #: Waits that are open, or will open as soon as their pods are created.
        self._waits: list[Wait] = []
        self._last_bound = time.perf_counter()
        self._done = 0
        self._timer: SectionTimer | None = None
        self._holds = HoldLog()
        self._watching = ExitStack()
        self._collected: frozenset[str] = frozenset()
        self._collected_labels: Labels = {}
        #: Tasks in the background. A crash of one ends the run.
        self._background: list[asyncio.Task[None]] = []

    def stop_background(self) -> None:
        """Cancel the tasks that still run in the background."""
        self._watching.close()
        for task in self._background:
            task.cancel()

    async def do(self, index: int, op: Operation) -> None:
        """Carry out one operation. A background operation is only started."""
        match op:
            case CreateNodes():
                await self._until_node_seen(self._maker.nodes(op))
            case CreateNamespaces():
                template = self._maker.template(op.namespace_template_path, "{kind: Namespace}")
                for number in range(op.count):
                    self._maker.namespace(f"{op.prefix}-{number}", template.make(number, op.count))
            case CreatePods():
                await self._create_pods(op, op.namespace or f"namespace-{index}")
            case CreateAny() | CreateResourceClaims():
                await self._create_any(op)
            case UpdateAny():
                await self._in_background(self._update_any(op), f"update {index}", wait=not op.skip_wait_to_completion)
            case CreateResourceDriver():
                await self._create_driver(op)
            case AllocResourceClaims():
                allocate_claims(self.embedded.store, op.namespace, DEFAULT_GATES, self._random)
                await self._settle()
            case DeletePods():
                await self._in_background(
                    self._delete_pods(op), f"delete pods {index}", wait=not op.skip_wait_to_completion
                )
            case Churn():
                namespace = op.namespace or f"namespace-{index}"
                self._maker.namespace(namespace)
                templates = [self._maker.template(path, "") for path in op.template_paths]
                await self._in_background(self._churn(op, namespace, templates), f"churn {index}", wait=False)
            case Barrier():
                await self._barrier(op)
            case Sleep():
                try:
                    await asyncio.sleep(parse_duration(op.duration))
                except ValueError as error:
                    raise WorkloadError(f"{self._title}: operation {index} (sleep): {error}") from None
            case StartCollecting():
                self._start(op.name, op.namespaces, op.label_selector)
            case StopCollecting():
                await self._stop()

    async def _in_background(self, work: Any, name: str, *, wait: bool) -> None:
        if wait:
            await work
        else:
            self._background.append(self.embedded.tasks.spawn(work, name, lasting=False))

    # -- pods ------------------------------------------------------------------------------------------

    def _bound(self, namespace: str, name: str, node: str) -> None:
        now = time.perf_counter()
        key = f"{namespace}/{name}"
        self._settled(namespace, key)
        self._last_bound = now
        self._done += 1
        if self._timer is not None:
            self._timer.pod_bound(key, now)
        if self._done % _PROGRESS_EVERY == 0:
            self._on_progress(self._done, self._total)

    def _settled(self, namespace: str, key: str) -> None:
        """Note that a pod is bound or deleted: no wait includes it any more."""
        if namespace in self._ledger:
            self._ledger[namespace].pop(key, None)
        for wait in self._waits:
            wait.remove(key)

    async def _create_pods(self, op: CreatePods, namespace: str) -> None:
        self._maker.namespace(namespace)
        ledger = self._ledger.setdefault(namespace, {})
        if op.collect_metrics:
            self._start(namespace, [namespace], {})
        template = self._maker.pod_template(op)
        claims = volumes = None
        if op.persistent_volume_claim_template_path:
            claims = self._maker.template(op.persistent_volume_claim_template_path, "")
            volumes = self._maker.template(op.persistent_volume_template_path, "")
        make = PodMaker(template, claims, volumes)
        if op.steady_state:
            await self._create_steadily(op, namespace, make)
        elif op.skip_wait_to_completion:
            await self._create_batch(ledger, op.count, namespace, make, op.pods_per_second)
        else:
            wait = self._open_wait({})
            await self._create_batch(wait.keys, op.count, namespace, make, op.pods_per_second)
            await self._wait(wait, attempted=False)
        if op.collect_metrics:
            await self._stop()

    async def _create_batch(
        self, keys: dict[str, Labels], count: int, namespace: str, template: PodMaker, rate: int = 0
    ) -> None:
        """Create ``count`` pods, at most ``rate`` a second if that is not 0.

        Each is added to ``keys`` with its labels.
        """
        start = time.perf_counter()
        client, timer = self.embedded.client, self._timer if namespace in self._collected else None
        for index in range(count):
            pod = await template.make(client, namespace, index, count)
            now = time.perf_counter()
            item = await client.create(PODS, namespace, pod)
            labels = keys[item.key] = pod["metadata"].get("labels") or {}
            if timer is not None and self._collected_labels.items() <= labels.items():
                timer.pod_created(item.key, now)
            if rate and (ahead := start + (index + 1) / rate - time.perf_counter()) > 0:
                await asyncio.sleep(ahead)
            elif index % _YIELD_INTERVAL == _YIELD_INTERVAL - 1:
                await asyncio.sleep(0)

    async def _create_steadily(self, op: CreatePods, namespace: str, template: PodMaker) -> None:
        """Create batches of pods.

        Each batch is deleted when it is bound, then the next one is created. The last batch stays.
        """
        end = time.perf_counter() + parse_duration(op.duration)
        while True:
            wait = self._open_wait({})
            await self._create_batch(wait.keys, op.count, namespace, template)
            await self._wait(wait, attempted=False)
            if time.perf_counter() >= end:
                return
            for item in self.embedded.store.list(PODS, namespace).items:
                self.embedded.store.delete(PODS, namespace, item.name, grace_period_seconds=0)

    async def _create_any(self, op: CreateAny | CreateResourceClaims) -> None:
        if op.namespace:
            self._maker.namespace(op.namespace)
        template = self._maker.template(op.template_path, "")
        for index in range(op.count):
            data = template.make(index, op.count)
            kind = self._kind(data, op.opcode)
            data = dict(stored_form(kind, data))
            await self.embedded.client.create(kind, op.namespace if kind.namespaced else "", data)
        await self._settle()

    async def _update_any(self, op: UpdateAny) -> None:
        """Replace objects without reading them: labels, taints and conditions that the template leaves out are lost."""
        client, template = self.embedded.client, self._maker.template(op.template_path, "")
        for index in range(op.count):
            if op.update_per_second:
                await asyncio.sleep(1 / op.update_per_second)
            data = template.make(index, op.count)
            kind = self._kind(data, op.opcode)
            namespace, name = op.namespace if kind.namespaced else "", (data.get("metadata") or {}).get("name", "")
            for subresource in ("/".join(op.subresources), "status"):
                await client.update(kind, namespace, name, stored_form(kind, data), subresource=subresource)
            if not op.update_per_second and index % _YIELD_INTERVAL == _YIELD_INTERVAL - 1:
                await asyncio.sleep(0)
        await self._settle()

    async def _create_driver(self, op: CreateResourceDriver) -> None:
        """Publish slices. If the scheduler reads slices, wait until it has all of them."""
        client = self.embedded.client
        for item in self.embedded.store.list(NODES).items:
            if fnmatch.fnmatchcase(item.name, op.nodes):
                await client.create(
                    RESOURCE_SLICES, "", driver_slice(item.name, op.driver_name, op.max_claims_per_node)
                )
        await self._settle()
        known = self.embedded.scheduler.informers.get(RESOURCE_SLICES.plural)
        total = len(self.embedded.store.list(RESOURCE_SLICES).items)
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        while known is not None and len(known.keys()) != total:
            if time.perf_counter() > deadline:
                raise WorkloadError(f"{self._title}: the scheduler knows {len(known.keys())} of {total} ResourceSlices")
            await asyncio.sleep(0)

    def _kind(self, data: dict[str, Any], opcode: str) -> Kind:
        kind = kind_of(data.get("apiVersion", "v1"), data.get("kind", ""))
        if kind is None:
            raise WorkloadError(f"{self._title}: {opcode}: unknown kind {data.get('kind')}")
        return kind

    def _open_wait(self, keys: dict[str, Labels]) -> Wait:
        """Open a wait. From now on pods that are bound or deleted are removed from it."""
        wait = Wait(keys)
        self._waits.append(wait)
        return wait

    async def _wait(self, wait: Wait, *, attempted: bool) -> None:
        """Wait until these pods are bound (or, with ``attempted``, have been tried)."""
        self._last_bound, store = time.perf_counter(), self.embedded.store
        wait.done.clear()  # the wait may have been empty between two pods
        try:
            while wait.keys:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wait.done.wait(), _POLL_SECONDS if attempted else _CHECK_SECONDS)
                if attempted:
                    for key in [key for key in wait.keys if was_tried(store, key)]:
                        wait.remove(key)
                if wait.keys:
                    self._check_progress(wait.keys)
        finally:
            self._waits.remove(wait)
        await self._settle()

    def _check_progress(self, keys: Collection[str]) -> None:
        """Refuse to wait longer when nothing has been bound for too long.

        Raises:
            WorkloadError: naming a pod and the reason why it has no node.
        """
        quiet = time.perf_counter() - self._last_bound
        if quiet <= _STILL_SECONDS:
            return
        still = self.embedded.scheduler.is_idle and all(task.done() for task in self._background)
        if still and not all(was_tried(self.embedded.store, key) for key in keys):
            still = False  # controllers may still have work to do first, such as making claims
        if quiet > (_STILL_SECONDS if still else _PATIENCE_SECONDS):
            example = min(keys)
            raise WorkloadError(
                f"{self._title}: {len(keys):,} pods have no node, and nothing has been bound for {quiet:.0f} s; "
                f"for example {example}: {why_unbound(self.embedded.scheduler, example)}"
            )

    async def _settle(self) -> None:
        """Wait until the scheduler has seen all writes."""
        cache = self.embedded.scheduler.cache
        for _ in range(3):
            await asyncio.sleep(0)
        while True:
            if not cache.assumed:
                return
            await asyncio.sleep(0)

    async def _until_node_seen(self, name: str) -> None:
        """Wait until the scheduler knows a node. Watches keep the order, so it then knows all nodes created before this
        one.
        """
        table, deadline = self.embedded.scheduler.cache.table, time.perf_counter() + _PATIENCE_SECONDS
        while name and ((info := table.get(name)) is None or info.node is None):
            if time.perf_counter() > deadline:
                raise WorkloadError(
                    f"{self._title}: the scheduler has not received node {name} for {_PATIENCE_SECONDS:.0f} s"
                )
            await asyncio.sleep(0)

    async def _barrier(self, op: Barrier) -> None:
        unknown = [name for name in op.namespaces if name not in self._ledger]
        if unknown:
            raise WorkloadError(f"{self._title}: barrier: no pods were created in namespace {unknown[0]}")
        attempted = op.stage_requirement == "Attempted"
        for namespace in op.namespaces or list(self._ledger):
            ledger = self._ledger[namespace].items()
            chosen = {key: labels for key, labels in ledger if op.label_selector.items() <= labels.items()}
            await self._wait(self._open_wait(chosen), attempted=attempted)
            if not attempted:
                del self._ledger[namespace]

    async def _delete_pods(self, op: DeletePods) -> None:
        selector = ",".join(f"{key}={value}" for key, value in op.label_selector.items())
        items = self.embedded.store.list(PODS, op.namespace, label_selector=selector).items
        for item in items:
            if op.delete_pods_per_second:
                await asyncio.sleep(1 / op.delete_pods_per_second)
            with tolerate(404):
                await self.embedded.client.delete(PODS, item.namespace, item.name)
            self._settled(item.namespace, item.key)

    async def _churn(self, op: Churn, namespace: str, templates: list[Template]) -> None:
        """Create one object per template at each tick. With ``recreate``, every slot is filled and emptied in turn."""
        client = self.embedded.client
        slots: dict[int, list[Any]] = {}
        tick = 0
        while op.mode == "recreate" or not op.number or tick < op.number:
            await asyncio.sleep((op.interval_milliseconds or 500) / 1000)
            slot = tick % op.number if op.mode == "recreate" else tick
            filled = slots.pop(slot, [])
            for kind, name in filled:
                try:
                    await client.delete(kind, namespace if kind.namespaced else "", name, grace_period_seconds=0)
                except ApiError:
                    continue  # the object is deleted already; churn continues, as upstream
            if not filled:
                made = []
                for template in templates:
                    data = template.make(tick, op.number)
                    kind = self._kind(data, "churn")
                    try:
                        item = await client.create(kind, namespace if kind.namespaced else "", data)
                    except ApiError:
                        continue  # churn continues, as upstream
                    made.append((kind, item.name))
                if op.mode == "recreate":
                    slots[slot] = made
            tick += 1

    # -- measuring -------------------------------------------------------------------------------------

    def _start(self, name: str, namespaces: list[str], labels: Labels) -> None:
        if self._timer is not None:
            raise WorkloadError(f"{self._title}: something is being measured already")
        if not self.sections:
            self.first_measured = time.perf_counter()
        self._collected, self._collected_labels = frozenset(namespaces), labels
        self._holds = HoldLog()
        self._timer = SectionTimer(name, self._title, self._decisions, self.embedded.scheduler.metrics)
        self._watching.enter_context(watch_loop(self._holds.add))
        sampling = self._sample_memory(self._timer.memory)
        self._watching.callback(self.embedded.tasks.spawn(sampling, "memory samples", lasting=False).cancel)
        if self._profiler is not None:
            self._profiler.enable()

    @staticmethod
    async def _sample_memory(samples: list[float]) -> None:
        while True:
            await asyncio.sleep(_MEMORY_SECONDS)
            samples.append(resident_mib())

    async def _stop(self) -> None:
        if self._timer is None:
            raise WorkloadError(f"{self._title}: stopCollectingMetrics without a start")
        await self.embedded.port.events.drain()
        if self._profiler is not None:
            self._profiler.disable()
        self._watching.close()
        self.sections.append(self._timer.finish(self._holds))
        self._timer, self._collected = None, frozenset()
