"""The whole scheduler over the embedded cluster in virtual time, watched by invariants.

A test writes an ``async`` scenario that takes a :class:`World` and gives it to :func:`play`. After the scenario the
world is let settle, checked (safety S1, S2, S5, S9 and liveness L1 of the invariants list), stopped, and checked
for leftovers: tasks, assumed pods, waiting pods, and ERROR log lines that the test did not announce.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from kubesched.api.kinds import NODES, PODS, Kind, kind_by_plural
from kubesched.api.requests import Resources
from kubesched.api.types import Node, Pod, PodCondition
from kubesched.api.wire import ApiError
from kubesched.cluster.schema import Stored, encode
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, VirtualTimeLoop, run_virtual
from kubesched.scheduler.config import API_VERSION, KIND, KubeSchedulerConfiguration, load_config_data
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry

T = TypeVar("T")


def _events_kind() -> Kind:
    kind = kind_by_plural("events.k8s.io", "events")
    assert kind is not None
    return kind


EVENTS = _events_kind()


# -- manifests ---------------------------------------------------------------------------------------------


def a_pod(name: str, cpu: str | None = "100m", *, scheduler: str = "", **more: Any) -> dict[str, Any]:
    """A pod manifest. Keywords are fields of its spec, but for labels, annotations and ``port`` (a host port)."""
    metadata: dict[str, Any] = {"name": name, "namespace": more.pop("namespace", "default")}
    for field in ("labels", "annotations", "finalizers"):
        if field in more:
            metadata[field] = more.pop(field)
    container: dict[str, Any] = {"name": "main", "image": "pause"}
    if cpu is not None:
        container["resources"] = {"requests": {"cpu": cpu, **more.pop("requests", {})}}
    if "port" in more:
        port = more.pop("port")
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    spec: dict[str, Any] = {"containers": [container], **more}
    if scheduler:
        spec["schedulerName"] = scheduler
    return {"metadata": metadata, "spec": spec}


def a_node(name: str, cpu: str = "4", *, taints: Sequence[dict[str, str]] = (), **more: Any) -> dict[str, Any]:
    """A node manifest; keywords are labels (``_`` for what labels need is up to the caller: pass ``labels``)."""
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110", **more.pop("amounts", {})}
    spec: dict[str, Any] = {}
    if taints:
        spec["taints"] = [dict(taint) for taint in taints]
    if more.pop("unschedulable", False):
        spec["unschedulable"] = True
    return {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def a_config(
    *plugins: str, profiles: Sequence[dict[str, Any]] | None = None, **fields: Any
) -> KubeSchedulerConfiguration:
    """A configuration with plugins added at every point they extend; or with whole profiles.

    Without preemption: what it does and says is tested elsewhere, and would be part of every text here.
    """
    if profiles is None:
        enabled = [{"name": name} for name in plugins]
        profiles = [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": enabled}}}]
    for profile in profiles:
        everywhere = profile.setdefault("plugins", {}).setdefault("multiPoint", {})
        everywhere.setdefault("disabled", [{"name": "DefaultPreemption"}, {"name": "DynamicResources"}])
    return load_config_data({"apiVersion": API_VERSION, "kind": KIND, "profiles": list(profiles), **fields})


# -- the world ---------------------------------------------------------------------------------------------


class World:
    """One embedded cluster and what was seen of it.

    ``binds`` are the bindings the store accepted (time, key, uid, node); ``tries`` those that were asked for.
    ``overcommit_ok`` turns the end check S2 off, for scenarios that shrink nodes or bind around the scheduler.
    """

    def __init__(self, embedded: Embedded) -> None:
        self.embedded = embedded
        self.store = embedded.store
        self.faults = embedded.faults
        self.scheduler = embedded.scheduler
        self.binds: list[tuple[float, str, str, str]] = []
        self.tries: list[tuple[float, str, str, str]] = []
        self.broken: list[str] = []
        self.overcommit_ok = False
        self._watch_bindings()
        self._watch_decisions()

    @property
    def loop(self) -> VirtualTimeLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        return loop

    def now(self) -> float:
        """Virtual seconds since the test began."""
        return self.loop.time()

    # -- watching --------------------------------------------------------------------------------------

    def _watch_bindings(self) -> None:
        real = self.store.bind

        def bind(namespace: str, name: str, uid: str, node_name: str, **options: Any) -> Stored:
            entry = (round(self.now(), 3), f"{namespace}/{name}", uid, node_name)
            self.tries.append(entry)
            if not uid:
                self.broken.append(f"S1: {entry} carries no UID")
            before = self.store.table(PODS).objects.get((namespace, name))
            stored = real(namespace, name, uid, node_name, **options)
            if any(entry[2] == earlier[2] for earlier in self.binds):
                self.broken.append(f"S1: {entry} was bound before")
            pod: Pod = stored.typed
            if before is not None and before.typed.metadata.deletion_timestamp is not None:
                self.broken.append(f"S5: {entry} was being deleted")
            if pod.spec.scheduling_gates:
                self.broken.append(f"S5: {entry} is gated")
            self.binds.append(entry)
            return stored

        self.store.bind = bind  # the test's onlooker

    def _watch_decisions(self, scheduler: Any = None) -> None:
        scheduler = scheduler or self.scheduler
        real = scheduler.cache.assume_pod

        def assume(pod: PodInfo) -> None:
            if pod.spec.scheduling_gates:
                self.broken.append(f"S5: gated pod {pod.key} was attempted")
            if pod.metadata.deletion_timestamp is not None:
                self.broken.append(f"S5: pod {pod.key} was decided about while being deleted")
            if pod.spec.scheduler_name not in scheduler.frameworks:
                self.broken.append(f"S5: pod {pod.key} belongs to {pod.spec.scheduler_name}")
            info = scheduler.cache.table.get(pod.spec.node_name)
            if info is None or info.node is None:
                self.broken.append(f"S2: {pod.key} was put on node {pod.spec.node_name}, which is not there")
            else:
                taken = set(info.used_ports) & set(pod.ports)
                if taken:
                    self.broken.append(f"S2: {pod.key} wants ports {sorted(taken)} that are in use on {info.name}")
            real(pod)
            if info is not None and info.node is not None:
                for what, requested, allocatable in (
                    ("cpu", info.requested.milli_cpu, info.allocatable.milli_cpu),
                    ("memory", info.requested.memory, info.allocatable.memory),
                    ("pods", len(info.pods), info.allocatable.allowed_pods),
                ):
                    if requested > allocatable and getattr(pod.requests, f"milli_{what}", requested):
                        self.broken.append(f"S2: {info.name} has {allocatable} {what}, {pod.key} makes it {requested}")

        scheduler.cache.assume_pod = assume

    # -- acting ----------------------------------------------------------------------------------------

    def create(self, *manifests: dict[str, Any]) -> list[Stored]:
        """Pods (manifests with containers) and nodes."""
        made = []
        for manifest in manifests:
            kind = PODS if "containers" in manifest["spec"] else NODES
            namespace = manifest["metadata"].get("namespace", "default") if kind == PODS else ""
            made.append(self.store.create(kind, namespace, manifest))
        return made

    def nodes(self, count: int, cpu: str = "4", **more: Any) -> None:
        self.create(*(a_node(f"n{number}", cpu, **more) for number in range(1, count + 1)))

    def delete(self, name: str, namespace: str = "default", **options: Any) -> None:
        self.store.delete(PODS, namespace, name, **options)

    def delete_node(self, name: str) -> None:
        self.store.delete(NODES, "", name)

    def change(
        self, kind: Kind, name: str, edit: Callable[[dict[str, Any]], None], namespace: str = "default"
    ) -> Stored:
        """Write an object past every check of the API server; ``edit`` changes the plain data in place."""
        old = self.store.get(kind, namespace if kind.namespaced else "", name)
        data = old.data()
        edit(data)
        return self.store.commit(kind, data, self.store.table(kind).objects[old.namespace, old.name])

    def smuggle(self, kind: Kind, good: dict[str, Any], edit: Callable[[dict[str, Any]], None]) -> Stored:
        """Create an object no API server would take: a valid one is prepared, spoilt, and put into the store."""
        namespace = good["metadata"].get("namespace", "default") if kind == PODS else ""
        data = self.store.create(kind, namespace, good, dry_run=True).data()
        edit(data)
        return self.store.commit(kind, data)

    def patch(self, name: str, patch: dict[str, Any], subresource: str = "") -> None:
        """Patch a pod as some client would."""
        self.store.patch(PODS, "default", name, patch, subresource=subresource)

    def patch_node(self, name: str, patch: dict[str, Any], subresource: str = "") -> None:
        self.store.patch(NODES, "", name, patch, subresource=subresource)

    def resize_node(self, name: str, cpu: str) -> None:
        self.patch_node(name, {"status": {"allocatable": {"cpu": cpu}, "capacity": {"cpu": cpu}}}, "status")

    # -- looking ---------------------------------------------------------------------------------------

    def pod(self, name: str, namespace: str = "default") -> Pod:
        pod: Pod = self.store.get(PODS, namespace, name).typed
        return pod

    def exists(self, name: str, namespace: str = "default") -> bool:
        return (namespace, name) in self.store.table(PODS).objects

    def node_of(self, name: str, namespace: str = "default") -> str:
        return self.pod(name, namespace).spec.node_name

    def condition(self, name: str, namespace: str = "default") -> PodCondition:
        """The pod's PodScheduled condition."""
        found = [item for item in self.pod(name, namespace).status.conditions if item.type == "PodScheduled"]
        assert found, f"pod {name} has no PodScheduled condition"
        return found[0]

    def where(self, name: str, namespace: str = "default") -> str:
        return self.scheduler.queue.views.where(self.pod(name, namespace))

    def events(self, name: str = "", reason: str = "") -> list[dict[str, Any]]:
        """Events about a pod, oldest first."""
        found = [item.data() for item in self.store.list(EVENTS).items]
        found = [
            event
            for event in found
            if (not name or event["regarding"]["name"] == name) and (not reason or event["reason"] == reason)
        ]
        return sorted(found, key=lambda event: (event["eventTime"], event["metadata"]["name"]))

    def notes(self, name: str, reason: str = "FailedScheduling") -> list[str]:
        return [event["note"] for event in self.events(name, reason)]

    def metric(self, name: str, *labels: str) -> float:
        """A counter's or gauge's value; a histogram's count."""
        family = getattr(self.scheduler.metrics, name)
        child = family.children.get(labels)
        if child is None:
            return 0
        return float(child.count if hasattr(child, "counts") else child.value)

    # -- time ------------------------------------------------------------------------------------------

    async def step(self) -> None:
        """Let everything happen that can happen now."""
        await self.loop.idle()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.loop.idle()

    async def until(self, condition: Callable[[], Any], what: str, limit: float = 60.0) -> float:
        """Wait in virtual time until ``condition`` holds; the time it took."""
        start = self.now()
        while not condition():
            assert self.now() - start < limit, f"{what}: not within {limit} s"
            await asyncio.sleep(0.01)
        return self.now() - start

    @property
    def caught_up(self) -> bool:
        """The scheduler's informers show what the store holds."""
        informers = self.scheduler.informers
        pods = {
            pod.key: pod.metadata.resource_version
            for pod in self.embedded.pods()
            if pod.status.phase not in ("Succeeded", "Failed")
        }
        nodes = {node.name: node.metadata.resource_version for node in self.embedded.nodes()}
        seen_pods = {pod.key: pod.metadata.resource_version for pod in informers["pods"].values()}
        seen_nodes = {node.name: node.metadata.resource_version for node in informers["nodes"].values()}
        return pods == seen_pods and nodes == seen_nodes

    async def settle(self, limit: float = 120.0, *, permitted: bool = False) -> None:
        """Let time run until nothing moves by itself: only unschedulable pods may be left, and, unless ``permitted``,
        pods that wait on Permit."""
        deadline = self.now() + limit
        while True:
            await self.loop.idle()
            events = self.embedded.port.events.statistics()
            quiet = self.embedded.is_settled or (not permitted and self._only_waiting())
            if quiet and self.caught_up and not events.queued and not events.waiting_for_retry:
                return
            assert self.now() < deadline, f"nothing settles within {limit} s: {self.state()}"
            await asyncio.sleep(0.2)

    def _only_waiting(self) -> bool:
        scheduler = self.scheduler
        waiting = {entry.pod.uid for entry in scheduler.waiting_pods}
        binding = scheduler.bindings.uids()
        busy = {pod.uid for pod in scheduler.queue.views.in_flight_pods()}
        return (
            bool(waiting)
            and binding <= waiting
            and busy <= waiting
            and not scheduler.statuses.busy
            and not scheduler.queue.views.pods_in_active()
            and not scheduler.queue.views.pods_in_backoff()
        )

    def state(self) -> str:
        queue = self.scheduler.queue
        return (
            f"{queue.views.pending_pods()[1]}, in flight {queue.views.in_flight_trace()}, "
            f"binding {self.scheduler.bindings.uids()}, caught up {self.caught_up}"
        )

    # -- invariants ------------------------------------------------------------------------------------

    def check_always(self) -> None:
        """Check what must hold at any moment between two steps."""
        problems = self.broken + self.scheduler.queue.views.check()
        problems += self._lost_pods()
        assert not problems, "\n".join(problems)

    def _lost_pods(self) -> list[str]:
        """L1: each pod of ours that the scheduler knows and that is not bound is in exactly one place."""
        scheduler, problems = self.scheduler, []
        for pod in scheduler.informers["pods"].values():
            if pod.spec.node_name or pod.spec.scheduler_name not in scheduler.frameworks:
                continue
            queued = scheduler.queue.views.where(pod)
            # "In flight" ends before PreBind; then the binding task has the pod.
            places = [place for place in (queued, "binding" if pod.uid in scheduler.bindings.uids() else "") if place]
            if places == ["InFlight", "binding"]:
                places = ["InFlight"]
            if not places and (pod.metadata.deletion_timestamp is not None or self._is_elsewhere(pod)):
                continue
            if len(places) != 1:
                problems.append(f"L1: pod {pod.key} is in {places}")
            elif pod.spec.scheduling_gates and places != ["Gated"]:
                problems.append(f"S5: gated pod {pod.key} is in {places}")
        return problems

    def _is_elsewhere(self, pod: Pod) -> bool:
        """Bound or gone, which the watch has not brought yet."""
        item = self.store.table(PODS).objects.get((pod.namespace, pod.name))
        return item is None or item.uid != pod.uid or bool(item.typed.spec.node_name)

    def check_settled(self) -> None:
        """Check what must hold when nothing moves."""
        self.check_always()
        problems: list[str] = []
        if not len(self.scheduler.waiting_pods):
            problems += [problem for problem in self.embedded.check() if problem != self._ghosts()]
            problems += [f"{uid} is still assumed" for uid in self.scheduler.cache.assumed]
        if not self.overcommit_ok:
            problems += self._overcommitted()
        problems += self._wrong_gauges()
        assert not problems, "\n".join(problems)

    def _ghosts(self) -> str:
        """Return the comparison's report of gone nodes to which pods are still bound; no garbage collector removes those here."""
        infos = self.scheduler.cache.table.all_infos()
        ghosts = sorted(info.name for info in infos if info.node is None and info.pods)
        return f"Cache mismatch: missedNodes=[] redundantNodes={ghosts}"

    def _overcommitted(self) -> list[str]:
        problems = []
        nodes = {node.name: node for node in self.embedded.nodes()}
        used: dict[str, Resources] = {}
        ports: dict[tuple[str, Any], str] = {}
        for pod in self.embedded.pods():
            if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
                continue
            info = PodInfo(pod)
            total = used.setdefault(pod.spec.node_name, Resources())
            total.milli_cpu += info.requests.milli_cpu
            total.memory += info.requests.memory
            total.allowed_pods += 1
            for port in info.ports:
                other = ports.setdefault((pod.spec.node_name, port), pod.key)
                if other != pod.key:
                    problems.append(f"S2: {other} and {pod.key} share host port {port} of {pod.spec.node_name}")
        for name, total in used.items():
            if name not in nodes:
                continue
            have = Resources.from_list(nodes[name].status.allocatable)
            if total.milli_cpu > have.milli_cpu or total.memory > have.memory or total.allowed_pods > have.allowed_pods:
                problems.append(f"S2: node {name} has {have} and is asked for {total}")
        return problems

    def _wrong_gauges(self) -> list[str]:
        queue = self.scheduler.queue
        unschedulable = queue.views.unschedulable_pods()
        gated = sum(queue.views.where(pod) == "Gated" for pod in unschedulable)
        want = {
            "active": len(queue.views.pods_in_active()),
            "backoff": len(queue.views.pods_in_backoff()),
            "unschedulable": len(unschedulable) - gated,
            "gated": gated,
        }
        have = {name: self.metric("pending_pods", name) for name in want}
        return [] if have == want else [f"pending_pods says {have}, the queue {want}"]


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" [{type(record.exc_info[1]).__name__}: {record.exc_info[1]}]"
        self.lines.append(text)


@asynccontextmanager
async def world(
    seed: int = 0,
    *,
    config: KubeSchedulerConfiguration | None = None,
    plugins: Iterable[type] = (),
    kubelets: bool = False,
    expect_errors: Sequence[str] = (),
    start: bool = True,
    settled: bool = True,
    **options: Any,
) -> AsyncIterator[World]:
    """A running world. ``plugins`` are registered alongside the in-tree ones and, without a ``config``, enabled.

    ``expect_errors`` are regular expressions: each must match an ERROR log line, and each line one of them; one
    that begins with ``?`` may go unmatched.
    """
    registry = in_tree_registry()
    for plugin in plugins:
        registry.register(plugin)
    if config is None:
        config = a_config(*(plugin.name for plugin in plugins))  # type: ignore[attr-defined]  # plugins have names
    errors = _Errors()
    logger = logging.getLogger("kubesched")
    logger.addHandler(errors)
    before = asyncio.all_tasks()
    loop = asyncio.get_running_loop()
    unhandled: list[str] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(str(context)))
    try:
        embedded = Embedded(config, registry, clock=VirtualClock(loop), seed=seed, kubelets=kubelets, **options)
        found = World(embedded)
        if start:
            await embedded.start()
        yield found
        if settled:
            await found.settle()
            found.check_settled()
        await embedded.stop()
        assert not found.broken, "\n".join(found.broken)
        left = [task.get_name() for task in asyncio.all_tasks() - before]
        assert not left, f"tasks left over: {left}"
        assert not len(embedded.scheduler.waiting_pods), "waiting pods left over"
        bound = {pod.uid for pod in embedded.pods() if pod.spec.node_name}
        assert embedded.scheduler.cache.assumed <= bound, "assumed pods left over"
        assert not unhandled, "\n".join(unhandled)
        _compare_errors(errors.lines, expect_errors)
    finally:
        logger.removeHandler(errors)
        loop.set_exception_handler(None)


#: The lines that every failed attempt and PostFilter leave; why they failed is in the pod's condition, which the tests read.
_FAILED_ATTEMPT = re.compile(
    r"^(scheduling pod \S+ failed; it is tried again|PostFilter for pod \S+ failed; the pod waits): "
)


def _compare_errors(lines: Sequence[str], expected: Sequence[str]) -> None:
    patterns = [pattern.removeprefix("?") for pattern in expected]
    others = [line for line in lines if not _FAILED_ATTEMPT.search(line)]
    surprising = [line for line in others if not any(re.search(pattern, line) for pattern in patterns)]
    assert not surprising, "unexpected ERROR log lines:\n" + "\n".join(surprising)
    for given, pattern in zip(expected, patterns, strict=True):
        if not given.startswith("?"):
            assert any(re.search(pattern, line) for line in lines), f"no ERROR log line matches {pattern!r}"


def play(scenario: Callable[[World], Awaitable[T]], **options: Any) -> T:
    """Run one scenario in a world of its own, in virtual time."""

    async def main() -> T:
        async with world(**options) as found:
            return await scenario(found)

    return run_virtual(main())


def server_error(code: int = 500, reason: str = "InternalError") -> Callable[[], ApiError]:
    return lambda: ApiError(code, reason, f"injected {code}")


__all__ = [
    "EVENTS",
    "NODES",
    "PODS",
    "ApiError",
    "Node",
    "Pod",
    "World",
    "a_config",
    "a_node",
    "a_pod",
    "encode",
    "play",
    "server_error",
    "world",
]
