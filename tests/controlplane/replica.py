"""Replica of the scheduler on a bad day: put together as ``kubesched run`` does it, watched, and killed at any await.

HTTP transport, fenced writes, leader election, scheduler with every plugin. When it loses the lease, or is killed, it
ends with everything that it holds in memory.
"""

from __future__ import annotations

import asyncio
import re
import types
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import TYPE_CHECKING, Any

from eviction_check import needless_violation

from kubesched.api.types import Pod
from kubesched.api.wire import Item
from kubesched.base.tasks import Supervisor
from kubesched.client.backoff import token_bucket
from kubesched.client.http import HttpTransport
from kubesched.client.lease import LeaderElector, LeaseConfig
from kubesched.client.metered import MeteredTransport
from kubesched.client.port import ApiPort
from kubesched.client.store import version_of
from kubesched.lab.simulate.run.virtual_time import VirtualClock
from kubesched.scheduler.cache.check import check_cache, compare_with_server
from kubesched.scheduler.config import load_config_data
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.plugins.dynamic_resources.manager import DeviceManager
from kubesched.scheduler.plugins.preemption.preemptor import Preemptor
from kubesched.scheduler.plugins.volumes.volume_state import VolumeState
from kubesched.scheduler.scheduler import Scheduler

from memory_net import TOKEN, URL, session  # isort: skip
from pausing import PROCESS  # isort: skip

if TYPE_CHECKING:
    from campaign import Day

__all__ = ["Replica"]

_GROUP = "kubescheduler.config.k8s.io/v1"
_VOLUMES = {"apiVersion": _GROUP, "kind": "VolumeBindingArgs", "bindTimeoutSeconds": 8}
#: Every plugin of the default profile.
CONFIG = load_config_data(
    {
        "apiVersion": _GROUP,
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "default-scheduler", "pluginConfig": [{"name": "VolumeBinding", "args": _VOLUMES}]}
        ],
    }
)
REGISTRY = in_tree_registry()
_WRITE = re.compile(rb"^(POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r\n")


@types.coroutine
def _stepped(work: Coroutine[Any, Any, None], awaits: Callable[[], None]) -> Generator[Any, Any, None]:
    """Run a coroutine; ``awaits`` is called each time that it begins to wait for something."""
    send: Callable[[], Any] = lambda: work.send(None)  # noqa: E731 - replaced in the loop
    while True:
        try:
            waits_for = send()
        except StopIteration:
            return
        awaits()
        try:
            got = yield waits_for
        except BaseException as error:
            thrown = error
            send = lambda: work.throw(thrown)  # noqa: B023, E731 - called before the next round
        else:
            send = lambda: work.send(got)  # noqa: B023, E731


class Skewed:
    """A machine's wall clock; it may jump."""

    def __init__(self, inner: VirtualClock) -> None:
        self._inner = inner
        self.skew = 0.0

    def now(self) -> float:
        return self._inner.now() + self.skew


class Replica:
    """One scheduler process.

    Attributes:
        client: name of the process in the network; each life of a replica has its own.
        dies_in: number of awaits of bindings after which it is killed; 0 if it is not.
        robbed_in: number of awaits of bindings after which somebody else takes the pod that it binds; 0 if nobody does.
        awaits: number of awaits of bindings so far.
    """

    def __init__(self, day: Day, name: str, life: int) -> None:
        self.day = day
        self.name = name
        self.client = f"{name}-{life}"
        self.dies_in = self.robbed_in = self.awaits = 0
        rng = Random(day.rng.getrandbits(64))
        self.clock = Skewed(VirtualClock(asyncio.get_running_loop()))
        self._session = session(day.network, self.client, self._sent)
        self._elector_session = session(day.network, self.client, lambda raw: None)
        self.transport = HttpTransport(URL, session=self._session, token=TOKEN)
        self.identity = f"{name}_{life}"
        lease = LeaseConfig(self.identity)
        self.lease_seconds = lease.lease_duration
        self.elector = LeaderElector(
            MeteredTransport(
                HttpTransport(URL, session=self._elector_session, token=TOKEN, timeout=lease.request_timeout)
            ),
            lease,
            clock=self.clock,
            rng=Random(rng.getrandbits(64)),
        )
        self.port = ApiPort(
            self.transport,
            clock=self.clock,
            rng=Random(rng.getrandbits(64)),
            limiter=token_bucket(50, 100),
            event_limiter=token_bucket(50, 100),
            watch_list=rng.random() < 0.5,
        )
        self.port.transport.may_write = self.port.event_transport.may_write = self._holds_lease
        self._allowed = -1.0
        self.transport.may_write = self._may_write
        self.scheduler = Scheduler(
            CONFIG,
            REGISTRY,
            self.port,
            clock=VirtualClock(asyncio.get_running_loop()),  # steady, as in ``kubesched run``
            rng=Random(rng.getrandbits(64)),
        )
        self._watch_decisions()
        self._watch_evictions()
        self._watch_bindings()
        self._watch_informers()
        self._tasks = Supervisor(f"replica {name}")
        self.synced = False
        self._versions: dict[str, int] = {}

    # -- watching ----------------------------------------------------------------------------------------

    def _holds_lease(self) -> bool:
        """S3: the elector allows writes only as long as the lease lasts that the API server has."""
        if not self.elector.may_write:
            return False
        if self.day.loop.time() > self.day.checks.renewed.get(self.identity, -1.0) + self.lease_seconds:
            self.day.broken.append(f"S3: {self.name} may write although its lease has expired")
        return True

    def _may_write(self) -> bool:
        if not self._holds_lease():
            return False
        self._allowed = self.day.loop.time()
        return True

    def _sent(self, raw: bytes) -> None:
        """S3: nothing is written by a replica that may not. aiohttp writes a turn of the loop after the evaluation.

        A process that is paused between the two cannot know; kube-scheduler has the same window.
        """
        write = _WRITE.match(raw)
        if write is None:
            return
        path = write[2].decode()
        if not self.elector.may_write and self._allowed < self.day.loop.step_began(self.client):
            self.day.broken.append(f"S3: {self.name} sends {write[1].decode()} {path} without the lease")
        self.day.checks.sent(path, self.client)

    def _watch_decisions(self) -> None:
        """S2, S5, S9: what is decided holds in the cache it was decided by."""
        cache = self.scheduler.cache
        real = cache.assume_pod

        def assume(pod: PodInfo) -> None:
            info = cache.table.get(pod.spec.node_name)
            if pod.spec.scheduling_gates or pod.metadata.deletion_timestamp is not None:
                self.day.broken.append(f"S5: {pod.key} is gated or being deleted, and was decided about")
            real(pod)
            if info is None or info.node is None:
                self.day.broken.append(f"S2: {pod.key} was put on {pod.spec.node_name}, which is not there")
            elif info.requested.milli_cpu > info.allocatable.milli_cpu:
                self.day.broken.append(f"S2: {pod.key} makes {info.name} too full")
            elif info.requested.milli_cpu + self._awaited_on(info.name, pod) > info.allocatable.milli_cpu:
                self.day.broken.append(f"S9: {pod.key} takes room on {info.name} that was made for a nominated pod")

        real_forget = cache.forget_pod

        def forget(pod: Pod) -> None:
            # Without the lease nothing is decided any more.
            bound = self.day.checks.bound_by(pod, self.client) if self.synced and self.elector.may_write else ""
            if bound and bound == pod.spec.node_name == self.day.bound_node(pod):
                self.day.broken.append(f"S2: {pod.key} is bound to {bound}, and {self.name} gives its room away")
            real_forget(pod)

        cache.assume_pod, cache.forget_pod = assume, forget  # type: ignore[method-assign]  # the test's onlookers

    def _awaited_on(self, node: str, pod: PodInfo) -> int:
        """Return the milli-CPU that pods nominated to a node request, as far as they are no less important than a pod."""
        nominated = self.scheduler.queue.nominator.nominated_pods_for_node(node)
        return sum(one.requests.milli_cpu for one in nominated if one.priority >= pod.priority and one.uid != pod.uid)

    def nominated(self) -> set[str]:
        """Return the keys of nominated pods."""
        nominator = self.scheduler.queue.nominator
        nodes = nominator.nominated_nodes()
        return {pod.key for node in nodes for pod in nominator.nominated_pods_for_node(node)}

    def _watch_evictions(self) -> None:
        """S4: victims have less priority, and a budget is violated only if no node makes room without that."""
        plugin: Any = self.scheduler.frameworks["default-scheduler"].plugins["DefaultPreemption"]
        real = plugin._evictions.start

        def start(preemptor: Preemptor, victims: list[PodInfo]) -> None:
            problem = needless_violation(self.scheduler, preemptor, victims, self.day.loop.start_epoch)
            if problem:
                self.day.broken.append(f"S4: {problem}")
            self.day.evictions += len(victims)
            real(preemptor, victims)

        plugin._evictions.start = start

    def _watch_informers(self) -> None:
        """S10: no event takes an object back to an older version, or delivers one again."""
        informers: dict[str, Any] = dict(self.scheduler.informers)
        for plural, informer in informers.items():
            store = informer._store

            def put(key: str, obj: Any, store: Any = store, real: Any = store.put, plural: str = plural) -> None:
                old = store.objects.get(key)
                if old is not None and version_of(obj) <= version_of(old):
                    versions = f"{version_of(obj)} after {version_of(old)}"
                    self.day.broken.append(f"S10: {self.name} takes {plural} {key} at version {versions}")
                real(key, obj)

            store.put = put

    def _watch_bindings(self) -> None:
        """Count the awaits of bindings; the replica may die at any of them, or lose the pod to somebody else."""
        bindings: Any = self.scheduler.bindings
        real = bindings._spawn

        async def stepped(work: Coroutine[Any, Any, None], pod: Pod) -> None:
            await _stepped(work, lambda: self._awaits(pod))

        bindings._spawn = lambda attempt, work: real(attempt, stepped(work, attempt.assumed.pod))

    def _awaits(self, pod: Pod) -> None:
        self.awaits += 1
        if self.robbed_in:
            self.robbed_in -= 1
            if not self.robbed_in:
                self.day.rob(pod)
        if self.dies_in:
            self.dies_in -= 1
            if not self.dies_in:
                self.day.kill(self.name)

    # -- life --------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """As ``kubesched run``: returns when the lease is lost; cancelled, it dies as by SIGKILL."""
        PROCESS.set(self.client)
        try:
            with self._tasks.guard():
                self._tasks.spawn(self.port.events.run(), "events")
                await self.scheduler.start()
                self.synced = True
                await self.elector.acquire()
                self.day.terms += 1
                self._tasks.spawn(self.scheduler.run(), "scheduler", lasting=False)
                await self.elector.hold()
        finally:
            self.synced = False
            self.elector.leading = False  # the process is gone
            for tasks in (self._tasks, self.scheduler.tasks):
                tasks.begin_stop()
                await tasks.stop()

    async def close(self) -> None:
        """Close the connections; a replica that was killed before it began has them, too."""
        await self._session.close()
        await self._elector_session.close()

    def check_versions(self) -> list[str]:
        """S10: no informer goes back to an older version, whichever API server it reads from."""
        problems = []
        informers: dict[str, Any] = dict(self.scheduler.informers)
        for plural, informer in informers.items():
            version, before = informer.statistics().resource_version, self._versions.get(plural, 0)
            self._versions[plural] = version
            if version < before:
                problems.append(f"S10: {self.name} has seen {plural} at {before}, and now at {version}")
        return problems

    def check_reserved(self) -> list[str]:
        """S8: what is reserved in memory belongs to a binding under way."""
        binding = self.scheduler.bindings.uids()
        handle = self._handle("VolumeBinding")
        volumes = VolumeState.of(handle)
        problems = [
            f"S8: {self.name} keeps volumes for {uid}, which it is not binding"
            for uid in volumes.reservations
            if uid not in binding
        ]
        reserved = {volume.key for one in volumes.reservations.values() for _, volume in one.bindings}
        reserved |= {claim.key for one in volumes.reservations.values() for claim in one.provisions}
        for cache in (volumes.cache.volumes, volumes.cache.claims):
            unowned = set(cache.assumed(written=False)) - reserved
            problems += [f"S8: {self.name} assumes {key}, which is reserved for no pod" for key in unowned]
        idle = {
            (pod.namespace, one.resource_claim_name)
            for pod in self.scheduler.informers["pods"].values()
            if pod.uid not in binding
            for one in pod.spec.resource_claims
        }
        return problems + [
            f"S8: {self.name} keeps devices for claim {claim.key}, whose pod it is not binding"
            for claim in DeviceManager.of(handle).in_flight.claims()
            if (claim.metadata.namespace, claim.metadata.name) in idle
        ]

    def check(self, pods: list[Pod], nodes: list[Any]) -> list[str]:
        """L3: when nothing moves, everything in memory is what the API server has, and nothing is reserved."""
        scheduler = self.scheduler
        queued, _ = scheduler.queue.views.pending_pods()
        problems = check_cache(scheduler.cache) + scheduler.queue.views.check()
        problems += [f"{uid} is still assumed" for uid in scheduler.cache.assumed]
        problems += compare_with_server(scheduler.cache, nodes, pods, queued)
        bound = {pod.uid for pod in pods if pod.spec.node_name}
        known = {pod.uid for pod in pods}
        for node in scheduler.queue.nominator.nominated_nodes():
            for nominated in scheduler.queue.nominator.nominated_pods_for_node(node):
                if nominated.uid in bound or nominated.uid not in known:
                    problems.append(f"{nominated.key} is still nominated to {node}")
        return [*problems, *self._parts(), *self._informers()]

    def _parts(self) -> list[str]:
        """Reservations of volumes and devices."""
        handle = self._handle("VolumeBinding")
        volumes, devices = VolumeState.of(handle), DeviceManager.of(handle)
        problems = [*volumes.problems(), *devices.problems()]
        problems = [one for one in problems if not self.day.checks.is_of_two_leaders(one)]
        problems += [f"volume {key} is assumed" for key in volumes.cache.volumes.assumed()]
        problems += [f"claim {key} is assumed" for key in volumes.cache.claims.assumed()]
        return problems + [f"{uid} still has a reservation of volumes" for uid in volumes.reservations]

    def _handle(self, plugin: str) -> Any:
        each: Any = self.scheduler.frameworks["default-scheduler"].plugins[plugin]
        return each.handle

    def _informers(self) -> list[str]:
        problems = []
        for plural, informer in self.scheduler.informers.items():
            stored = {item.uid: str(item.resource_version) for item in self.day.items(plural)}
            seen = dict(_identity(obj) for obj in informer.values())
            differ = {
                uid for uid, version in {**stored, **seen}.items() if stored.get(uid) != seen.get(uid) or not version
            }
            if differ and plural != "pods":  # the informer of pods leaves out those that have ended
                problems.append(f"informer and API server have different versions of {plural}: {sorted(differ)}")
        return problems


def _identity(obj: Any) -> tuple[str, str]:
    if isinstance(obj, dict):
        return obj["metadata"]["uid"], str(obj["metadata"]["resourceVersion"])
    if isinstance(obj, Item):
        return obj.uid, str(obj.resource_version)
    return obj.metadata.uid, str(obj.metadata.resource_version)
