"""Run the whole scheduler over the embedded cluster in virtual time until nothing moves, and report the result.

    manifests ──intake──▶ store ──▶ scheduler + hollow kubelets, virtual time ──▶ Result (──pending──▶ why not)

Callers: ``kubesched simulate``, and programs by :func:`simulate`. Rendering is in :mod:`.report`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubesched.api.kinds import PODS
from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from kubesched.api.requests import PODS as POD_COUNT
from kubesched.api.types import Pod
from kubesched.cluster.controllers import DEVICES, STORAGE
from kubesched.cluster.files import Manifest
from kubesched.cluster.kubelets import Stage
from kubesched.config import DEFAULT_GATES, ConfigError, FeatureGates, KubeSchedulerConfiguration, default_config
from kubesched.framework.extenders import Extender
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.preemption import Preemption
from kubesched.framework.registry import Registry

from .embedded import Embedded
from .intake import Source, gather, in_order, store_objects, with_default_class
from .pending import Workloads, explain_pending
from .preemptions import preemption_report
from .problems import ProblemLog
from .result import MissingNode, NodeUse, Placement, PreemptionReport, Refusal, ResourceUse, Result, Stopped, Totals
from .virtual_time import VirtualClock, VirtualTimeLoop, run_virtual

__all__ = ["DEFAULT_UNTIL", "Drive", "Progress", "Session", "node_uses", "run_simulation", "simulate"]

#: A day of virtual time is enough by default.
DEFAULT_UNTIL: Final = 86_400.0
#: So many virtual seconds of fruitless attempts, with no pod's end in sight, are taken for "no progress".
_FRUITLESS: Final = 120.0
#: And so many in which storage is at work, while no pod is bound.
_STORAGE_FRUITLESS: Final = 3_600.0
#: Names in one message.
_MOST_NAMES: Final = 5
_ZONE: Final = "topology.kubernetes.io/zone"

#: Called with (pods bound so far, pods to be bound).
Progress = Callable[[int, int], None]


async def simulate(
    manifests: Source,
    *,
    registry: Registry,
    nodes: int = 0,
    node_template: Mapping[str, Any] | None = None,
    zones: Sequence[str] = (),
    config: KubeSchedulerConfiguration | None = None,
    gates: FeatureGates = DEFAULT_GATES,
    seed: int = 0,
    extenders: Sequence[Extender] = (),
    stages: Sequence[Stage] = (),
    until: float = DEFAULT_UNTIL,
    remarks: Sequence[str] = (),
    on_progress: Progress = lambda done, total: None,
    drive: Drive | None = None,
) -> Result:
    """Simulate a cluster.

    Await it on a :class:`~.virtual_time.VirtualTimeLoop` (``run_virtual(simulate(…))``); on an ordinary event
    loop it works too, but then a pod's hour is an hour.

    ``manifests`` are paths, plain objects or loaded manifests; workloads are expanded. ``registry`` holds the
    plugins (``kubesched.plugins.in_tree_registry()`` and whatever was added). ``nodes`` hollow nodes of
    ``node_template`` (8 cpu, 32Gi unless given) are added, dealt over ``zones``. ``stages`` are rules for what pods
    and volumes do. ``until`` bounds the virtual time in seconds. ``remarks`` are the first warnings of the result: what the
    caller's configuration asks for and does not get. ``drive`` decides how long the run lasts instead of ``until``.

    Where there are storage objects or pods with claims, the storage controllers run too; without any StorageClass
    there is the default one, ``standard``. Where there are claims of devices, slices or nodes annotated with devices,
    the claim controller and the hollow DRA driver run.

    ``extenders`` are in-process objects. Extenders that ``config`` names are not called over HTTP, as virtual time does
    not pass while a network answers: objects of the same names must take their places.

    Raises:
        ManifestError: when a manifest cannot be used, or an object other than a pod is refused.
        ConfigError: when a profile cannot be built, or an extender of ``config`` has no object in its place.
        TaskCrashedError: when a part of the simulated cluster crashed.
    """
    loop = asyncio.get_running_loop()
    intake = gather(manifests, nodes=nodes, node_template=node_template, zones=zones)
    with_storage = intake.uses_storage
    if with_storage:
        intake.objects = in_order(with_default_class(intake.objects))
    run = _Run(loop, on_progress)
    config = config if config is not None else default_config(gates=gates)
    _check_extenders(config, extenders)
    embedded = Embedded(
        config,
        registry,
        clock=VirtualClock(loop),
        seed=seed,
        gates=gates,
        on_bind=run.bound,
        controllers=[*(STORAGE if with_storage else ()), *(DEVICES if intake.uses_devices else ())],
        stages=stages,
        extenders=extenders,
        on_preemption=run.preempted,
    )
    # What runs already is there when the scheduler starts; pods to be placed then come in the order of the manifests.
    new = [item for item in intake.objects if _is_new(item)]
    refused = store_objects(embedded.store, [item for item in intake.objects if not _is_new(item)])
    with ProblemLog() as problems:
        async with embedded.running():
            refused += store_objects(embedded.store, new)
            pods = embedded.pods()
            before = {pod.uid for pod in pods}
            run.total = sum(1 for pod in pods if not pod.spec.node_name)

            def complete(found: Result) -> Result:
                warnings = [*remarks, *intake.warnings, *found.warnings, *problems.remarks()]
                return msgspec.structs.replace(found, warnings=warnings, errors=problems.errors())

            def look(stopped: Stopped) -> Result:
                return _result(embedded, run, seed, stopped, before, refused)

            session = Session(embedded, run, lambda stopped: complete(look(stopped)))
            found = look(await (drive(session) if drive is not None else session.until_settled(until)))
    return complete(found)


def run_simulation(manifests: Source, *, registry: Registry, **options: Any) -> Result:
    """:func:`simulate` in virtual time, to the end. Must not be called inside a running event loop."""
    return run_virtual(simulate(manifests, registry=registry, **options))


def _check_extenders(config: KubeSchedulerConfiguration, given: Sequence[Extender]) -> None:
    names = {extender.name for extender in given}
    missing = [extender.url_prefix for extender in config.extenders if extender.url_prefix not in names]
    if missing:
        text = (
            f"couldn't build extenders: a simulation does not call HTTP extenders ({', '.join(missing)}): virtual time "
            "does not pass while a network answers; remove them from the configuration, or pass objects of the same "
            "names as simulate(extenders=...)"
        )
        raise ConfigError("framework", [text])


def _is_new(item: Manifest) -> bool:
    """Whether it is a pod that has no node yet."""
    return item.kind == PODS and not (item.data.get("spec") or {}).get("nodeName")


class Session:
    """A simulation under way, for what drives it.

    Attributes:
        embedded: the cluster; writing to its store is what users of the API do.
        result: what would be reported if the run ended now.
    """

    def __init__(self, embedded: Embedded, run: _Run, result: Callable[[Stopped], Result]) -> None:
        self.embedded = embedded
        self.result = result
        self._run = run

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._run.now

    async def until_settled(self, until: float) -> Stopped:
        """Run until nothing moves any more, but not beyond ``until`` seconds from the start."""
        return await self._run.until_settled(self.embedded, until)

    async def step(self) -> bool:
        """Move to the next moment at which something happens, and do all of it. False when nothing will move any more."""
        return await self._run.step(self.embedded)

    async def quiet(self) -> None:
        """Do everything that can happen now; no time passes."""
        await self._run.quiet(self.embedded)


#: Awaited while the cluster runs; the run ends when it returns why.
Drive = Callable[[Session], Awaitable[Stopped]]


class _Run:
    """Watches one simulation: bindings, peaks, and whether anything still moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_progress: Progress) -> None:
        self._loop = loop
        self._start = loop.time()
        self._on_progress = on_progress
        self._last_bound = self._last_quiet = self._start
        self.total = 0
        #: ``namespace/name`` to virtual seconds since the start.
        self.bound_at: dict[str, float] = {}
        self.peak: dict[str, int] = {}
        self.preemptions: list[PreemptionReport] = []

    def preempted(self, preemption: Preemption) -> None:
        self.preemptions.append(preemption_report(preemption, self.now))

    def bound(self, namespace: str, name: str, node: str) -> None:
        self._last_bound = self._loop.time()
        self.bound_at[f"{namespace}/{name}"] = self.now
        self._on_progress(len(self.bound_at), self.total)

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return round(self._loop.time() - self._start, 6)

    async def until_settled(self, embedded: Embedded, until: float) -> Stopped:
        end = self._start + until
        while True:
            await self._quiet()
            self._measure(embedded)
            if embedded.is_settled:
                return "settled"
            now = self._loop.time()
            if now >= end:
                return "until"
            if self._is_fruitless(embedded, now):
                return "noProgress"
            await asyncio.sleep(min(end, max(self._next(embedded), now)) - now)

    async def step(self, embedded: Embedded) -> bool:
        """See :meth:`Session.step`."""
        await self.quiet(embedded)
        if embedded.is_settled:
            return False
        now = self._loop.time()
        await asyncio.sleep(max(self._next(embedded), now) - now)
        await self.quiet(embedded)
        return True

    async def quiet(self, embedded: Embedded) -> None:
        """See :meth:`Session.quiet`."""
        await self._quiet()
        self._measure(embedded)

    async def _quiet(self) -> None:
        """Let everything that can happen now happen."""
        if isinstance(self._loop, VirtualTimeLoop):
            await self._loop.idle()
        else:
            await asyncio.sleep(0.01)

    def _next(self, embedded: Embedded) -> float:
        """When something will happen next; the queue's ticks count only while there is something to move."""
        if not isinstance(self._loop, VirtualTimeLoop):
            return self._loop.time() + 0.01
        now = self._loop.time()
        if embedded.scheduler.is_idle:
            retry = embedded.scheduler.queue.next_timer()
            if retry is not None:
                retry += now - embedded.clock.now()
            due = [one.next_timer() for one in embedded.movers]
            soonest = min((when for when in (*due, retry) if when is not None), default=now)
            if soonest > now:
                return soonest
        when = self._loop.next_timer()
        return when if when is not None else now + 0.01

    def _is_fruitless(self, embedded: Embedded, now: float) -> bool:
        """Pods go round between backoff and failure, and no pod is going to end and change that.

        Storage may be slow, or fail again and again: that alone is given an hour.
        """
        kubelets = embedded.kubelets
        if kubelets is not None and kubelets.next_timer() is not None:
            self._last_bound = self._last_quiet = now
        storage = embedded.controllers is not None and embedded.controllers.next_timer() is not None
        waiting = any(True for _ in embedded.scheduler.waiting_pods)
        if waiting or storage or embedded.scheduler.busy:
            self._last_quiet = now
        return now - max(self._last_bound, self._last_quiet) > _FRUITLESS or now - self._last_bound > _STORAGE_FRUITLESS

    def _measure(self, embedded: Embedded) -> None:
        table = embedded.scheduler.cache.table
        rows = table.order()
        for name, index in table.resource_index.items():
            requested = int(table.requested[index, rows].sum())
            if requested > self.peak.get(name, 0):
                self.peak[name] = requested


def _result(
    embedded: Embedded,
    run: _Run,
    seed: int,
    stopped: Stopped,
    before: set[str],
    refused: list[Refusal],
) -> Result:
    pods = embedded.pods()
    missing = _missing_nodes(embedded, pods)
    lost = {key for item in missing for key in item.pods}
    placed = [pod for pod in pods if pod.spec.node_name and pod.key not in lost]
    waiting = [pod for pod in pods if not pod.spec.node_name]
    pending = explain_pending(embedded, waiting)
    infos = _infos(embedded)
    names = _resource_names(infos)
    attempts = embedded.scheduler.metrics.schedule_attempts_total
    totals = Totals(
        nodes=len(infos),
        pods=len(pods),
        placed=len(placed),
        on_missing_nodes=len(lost),
        succeeded=sum(pod.status.phase == "Succeeded" for pod in placed),
        failed=sum(pod.status.phase == "Failed" for pod in placed),
        pending=len(waiting),
        gated=sum(group.count for group in pending if group.reason == "SchedulingGated"),
        refused=sum(item.count for item in refused),
        removed=len(before - {pod.uid for pod in pods}),
        attempts=int(sum(child.value for child in attempts.children.values())),
    )
    return Result(
        seed=seed,
        stopped=stopped,
        virtual_seconds=run.now,
        totals=totals,
        resources=_cluster_use(infos, names, run.peak),
        nodes=[_node_use(info, names) for info in infos],
        placements=_placements(embedded, run, placed),
        pending=pending,
        refused=refused,
        preemptions=run.preemptions,
        missing_nodes=missing,
        warnings=[
            *(
                f"node {item.node} does not exist, but pods are bound to it, which are not counted as placed: "
                + ", ".join(item.pods[:_MOST_NAMES])
                + (f" and {item.count - _MOST_NAMES:,} more" if item.count > _MOST_NAMES else "")
                for item in missing
            ),
            *dict.fromkeys(text for one in embedded.movers for text in one.problems),
        ],
    )


def _missing_nodes(embedded: Embedded, pods: list[Pod]) -> list[MissingNode]:
    """Nodes that pods are bound to and that do not exist; finished pods may well have been on a node that is gone."""
    nodes = {node.name for node in embedded.nodes()}
    found: dict[str, list[str]] = {}
    for pod in pods:
        name = pod.spec.node_name
        if name and name not in nodes and pod.status.phase not in ("Succeeded", "Failed"):
            found.setdefault(name, []).append(pod.key)
    return [MissingNode(node=name, count=len(keys), pods=sorted(keys)) for name, keys in sorted(found.items())]


def _placements(embedded: Embedded, run: _Run, placed: list[Pod]) -> list[Placement]:
    workloads = Workloads(embedded.store)
    found = [
        Placement(
            namespace=pod.namespace,
            name=pod.name,
            workload=workloads.of(pod),
            node=pod.spec.node_name,
            phase=pod.status.phase,
            bound_at=run.bound_at.get(pod.key),
        )
        for pod in placed
    ]
    return sorted(found, key=lambda item: (item.namespace, item.name))


# -- resources ---------------------------------------------------------------------------------------------


def _infos(embedded: Embedded) -> list[NodeInfo]:
    table = embedded.scheduler.cache.table
    return sorted((table.info(row) for row in table.order().tolist()), key=lambda info: info.name)


def node_uses(embedded: Embedded) -> list[NodeUse]:
    """Every node by name, with what is requested of it, as the scheduler accounts it now."""
    infos = _infos(embedded)
    names = _resource_names(infos)
    return [_node_use(info, names) for info in infos]


def _resource_names(infos: list[NodeInfo]) -> list[str]:
    """cpu, memory, pods, then what else some node has, by name."""
    extra = {name for info in infos for name, amount in info.allocatable.scalars.items() if amount}
    extra |= {name for info in infos for name, amount in info.requested.scalars.items() if amount}
    storage = [EPHEMERAL_STORAGE] if any(info.allocatable.ephemeral_storage for info in infos) else []
    return [CPU, MEMORY, *storage, POD_COUNT, *sorted(extra)]


def _requested(info: NodeInfo, name: str) -> int:
    return len(info.pods) if name == POD_COUNT else info.requested.get(name)


def _node_use(info: NodeInfo, names: list[str]) -> NodeUse:
    return NodeUse(
        name=info.name,
        zone=info.labels.get(_ZONE, ""),
        resources=[
            ResourceUse(name=name, allocatable=info.allocatable.get(name), requested=_requested(info, name))
            for name in names
            if name in (CPU, MEMORY, POD_COUNT) or info.allocatable.get(name) or info.requested.get(name)
        ],
    )


def _cluster_use(infos: list[NodeInfo], names: list[str], peak: Mapping[str, int]) -> list[ResourceUse]:
    return [
        ResourceUse(
            name=name,
            allocatable=sum(info.allocatable.get(name) for info in infos),
            requested=sum(_requested(info, name) for info in infos),
            peak=peak.get(name, 0),
        )
        for name in names
    ]
