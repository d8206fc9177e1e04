"""Two replicas of the scheduler against one API server on a bad day, drawn by seed; what must hold all the while.

Each replica is put together as ``kubesched run`` does it: HTTP transport, fenced writes, leader election, scheduler.
When it loses the lease, or is killed, it ends with everything it holds in memory, and another one is started in its
place after a while, as a supervisor does.
"""

from __future__ import annotations

import asyncio
import logging
import re
from random import Random
from typing import Any

from kubesched.api.kinds import LEASES, NODES, PODS
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.base.tasks import Supervisor, child
from kubesched.client.backoff import token_bucket
from kubesched.client.http import HttpTransport
from kubesched.client.lease import LeaderElector, LeaseConfig
from kubesched.client.metered import MeteredTransport
from kubesched.client.port import ApiPort
from kubesched.cluster.store import Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, VirtualTimeLoop, run_virtual
from kubesched.scheduler.cache.check import check_cache, compare_with_server
from kubesched.scheduler.config import load_config_data
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.scheduler import Scheduler

from memory_net import TOKEN, URL, Network, session  # isort: skip

#: Few plugins, so that few kinds are watched: the day is about the API, not about plugins.
CONFIG = load_config_data(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {
                    "multiPoint": {
                        "disabled": [{"name": "*"}],
                        "enabled": [
                            {"name": name}
                            for name in ("PrioritySort", "SchedulingGates", "NodeResourcesFit", "DefaultBinder")
                        ],
                    }
                },
            }
        ],
    }
)
REGISTRY = in_tree_registry()
NODES_MADE, NODE_CPU = 4, 8
_WRITE = re.compile(rb"^(POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r\n")


class Skewed:
    """A machine's wall clock; it may jump."""

    def __init__(self, inner: VirtualClock) -> None:
        self._inner = inner
        self.skew = 0.0

    def now(self) -> float:
        return self._inner.now() + self.skew


class Replica:
    """One scheduler process."""

    def __init__(self, day: Day, name: str, life: int) -> None:
        self.day = day
        self.name = name
        self.client = f"{name}-{life}"
        rng = Random(day.rng.getrandbits(64))
        self.clock = Skewed(VirtualClock(asyncio.get_running_loop()))
        self._session = session(day.network, self.client, self._sent)
        self._elector_session = session(day.network, self.client, lambda raw: None)
        self.transport = HttpTransport(URL, session=self._session, token=TOKEN)
        lease = LeaseConfig(f"{name}_{life}")
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
        )
        elector = self.elector
        self.port.transport.may_write = self.port.event_transport.may_write = lambda: elector.may_write
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
        self._tasks = Supervisor(f"replica {name}")
        self.synced = False

    def _may_write(self) -> bool:
        if self.elector.may_write:
            self._allowed = self.day.loop.time()
        return self.elector.may_write

    def _sent(self, raw: bytes) -> None:
        """S8: nothing is written by a replica that may not. aiohttp writes a turn of the loop after the evaluation."""
        write = _WRITE.match(raw)
        if write is not None and not self.elector.may_write and self._allowed != self.day.loop.time():
            self.day.broken.append(f"S8: {self.name} sends {write[1].decode()} {write[2].decode()} without the lease")

    def _watch_decisions(self) -> None:
        """S2, S5: what is decided holds in the cache it was decided by."""
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

        cache.assume_pod = assume  # type: ignore[method-assign]  # the test's onlooker

    async def live(self) -> None:
        """As ``kubesched run``: returns when the lease is lost; cancelled, it dies as by SIGKILL."""
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

    def check(self, pods: list[Pod], nodes: list[Any]) -> list[str]:
        """S9: the cache is what the API server has."""
        queued, _ = self.scheduler.queue.views.pending_pods()
        problems = check_cache(self.scheduler.cache) + self.scheduler.queue.views.check()
        problems += [f"{uid} is still assumed" for uid in self.scheduler.cache.assumed]
        return problems + compare_with_server(self.scheduler.cache, nodes, pods, queued)


class Day:
    """The API server, the replicas, and what goes wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.loop = loop
        self.store = Store(VirtualClock(loop), random=Random(self.rng.getrandbits(64)))
        self.network = Network(self.store, Random(self.rng.getrandbits(64)))
        self.replicas: dict[str, Replica] = {}
        self.lives: dict[str, asyncio.Task[None]] = {}
        self.broken: list[str] = []
        self.bound: dict[str, str] = {}
        self.terms = 0
        self.made = 0
        self._closing = False
        self._watch_bindings()

    def _watch_bindings(self) -> None:
        """S1, S5: a pod is bound once, by its UID, and not while it is gated or being deleted."""
        real = self.store.bind

        def bind(namespace: str, name: str, uid: str, node_name: str, **options: Any) -> Any:
            if not uid:
                self.broken.append(f"S1: the binding of {name} carries no UID")
            stored = real(namespace, name, uid, node_name, **options)
            if uid in self.bound:
                self.broken.append(f"S1: {name} was bound to {self.bound[uid]} before {node_name}")
            self.bound[uid] = node_name
            return stored

        self.store.bind = bind  # the test's onlooker

    # -- what happens ------------------------------------------------------------------------------------

    def new_pods(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self.made += 1
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "200m"}}}
            spec: dict[str, Any] = {"containers": [container]}
            if self.rng.random() < 0.1:
                spec["schedulingGates"] = [{"name": "example.com/gate"}]
            self.store.create(PODS, "default", {"metadata": {"name": f"p{self.made}"}, "spec": spec})

    def _some_pod(self) -> str:
        names = [item.name for item in self.store.list(PODS).items]
        return self.rng.choice(names) if names else ""

    def delete_pod(self) -> None:
        if name := self._some_pod():
            self.store.delete(PODS, "default", name, grace_period_seconds=0)

    def replace_pod(self) -> None:
        if name := self._some_pod():
            pod = self.store.get(PODS, "default", name).data()
            self.store.delete(PODS, "default", name, grace_period_seconds=0)
            containers = pod["spec"]["containers"]
            self.store.create(PODS, "default", {"metadata": {"name": name}, "spec": {"containers": containers}})

    def touch_pod(self) -> None:
        if name := self._some_pod():
            label = {"metadata": {"labels": {"touched": str(self.rng.randint(0, 9))}}}
            self.store.patch(PODS, "default", name, label)

    def _some_client(self) -> str:
        return self.rng.choice(list(self.replicas.values())).client

    def cut(self) -> None:
        self.network.cut(self.rng.choice(["", self._some_client()]))

    def partition(self) -> None:
        name = self._some_client()
        if not self.network.is_partitioned(name):
            self.network.partition(name)
            self.loop.call_later(self.rng.choice((2.0, 9.0, 20.0, 40.0)), self.network.heal, name)

    def restart_server(self) -> None:
        self.network.down = True
        self.network.cut()
        self.loop.call_later(self.rng.choice((1.0, 6.0, 25.0)), setattr, self.network, "down", False)

    def expire(self) -> None:
        self.network.expire_watches()

    def kill(self) -> None:
        """A crash at any moment: between assume and bind, between bind and its confirmation."""
        name = self.rng.choice(list(self.lives))
        self.network.kill(self.replicas[name].client)
        self.lives[name].cancel()

    def stop_replica(self) -> None:
        """A signal: the lease is released."""
        self.lives[self.rng.choice(list(self.lives))].cancel()

    def jump(self) -> None:
        """The wall clock of one machine jumps."""
        self.rng.choice(list(self.replicas.values())).clock.skew += self.rng.choice((-7200.0, -30.0, 30.0, 7200.0))

    def steal_lease(self) -> None:
        """Another program writes itself into the lease: the leader loses it with bindings under way."""
        try:
            lease = self.store.get(LEASES, "kube-system", "kube-scheduler").data()
        except ApiError:
            return
        lease["spec"] |= {"holderIdentity": "somebody-else", "leaseDurationSeconds": 5}
        self.store.update(LEASES, "kube-system", "kube-scheduler", lease)

    def draw(self) -> None:
        ordinary = (self.new_pods, self.delete_pod, self.replace_pod, self.touch_pod)
        network = (self.cut, self.partition, self.restart_server, self.expire)
        machines = (self.kill, self.stop_replica, self.jump, self.steal_lease)
        self.rng.choices((*ordinary, *network, *machines), weights=(14, 3, 2, 3, 3, 2, 1, 2, 2, 1, 2, 1))[0]()

    # -- the day -----------------------------------------------------------------------------------------

    async def _supervise(self, name: str) -> None:
        """Start a replica again whenever it has ended."""
        life = 0
        while not self._closing:
            life += 1
            replica = self.replicas[name] = Replica(self, name, life)
            task = self.lives[name] = child(replica.live(), f"{name}-{life}")
            await asyncio.wait((task,))
            await replica.close()
            if not task.cancelled() and (error := task.exception()) is not None:
                self.broken.append(f"{name} crashed: {error!r}")
                return
            if not self._closing:
                await asyncio.sleep(3.0)

    def leaders(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.elector.may_write]

    def check(self) -> None:
        """What holds at any moment."""
        if len(self.leaders()) > 1:
            self.broken.append(f"S8: {[replica.name for replica in self.leaders()]} may write at the same time")
        for replica in self.replicas.values():
            if replica.synced:
                self.broken += replica.scheduler.queue.views.check()
        assert not self.broken, "\n".join(self.broken)

    def _waiting(self) -> list[str]:
        pods = [item.typed for item in self.store.list(PODS).items]
        return [pod.name for pod in pods if not pod.spec.node_name and not pod.spec.scheduling_gates]

    def _state(self) -> str:
        views = {replica.name: replica.scheduler.queue.views.pending_pods()[1] for replica in self.replicas.values()}
        return f"leaders {[replica.name for replica in self.leaders()]}, {views}"

    async def run(self, steps: int) -> None:
        for number in range(NODES_MADE):
            amounts = {"cpu": str(NODE_CPU), "memory": "16Gi", "pods": "110"}
            status = {"capacity": amounts, "allocatable": amounts}
            self.store.create(NODES, "", {"metadata": {"name": f"n{number}"}, "status": status})
        self.new_pods()
        async with Supervisor("day") as tasks:
            for name in ("a", "b"):
                tasks.spawn(self._supervise(name), name, lasting=False)
            await asyncio.sleep(0.5)
            self.network.storm = self.rng.choice((0.5, 1.0, 2.0))
            for _ in range(steps):
                for _ in range(self.rng.randint(1, 3)):
                    self.draw()
                await asyncio.sleep(self.rng.choice((0.0, 0.003, 0.1, 1.0, 4.0)))
                self.check()
            await self._clear_up()
            self._closing = True
            for life in self.lives.values():
                life.cancel()
            await asyncio.wait(list(self.lives.values()))
            await tasks.ended()

    async def _clear_up(self) -> None:
        """Fair weather again: everything finds its way back without help (L1, L4)."""
        self.network.storm = 0.0
        self.network.down = False
        for replica in self.replicas.values():
            self.network.heal(replica.client)
        await asyncio.sleep(60)
        self.network.expire_watches()  # what swapped events hid from a watch that was cut is listed again
        deadline = self.loop.time() + 900
        while self._waiting() or len(self.leaders()) != 1:
            assert self.loop.time() < deadline, f"L1: {self._waiting()} wait for ever; {self._state()}"
            await asyncio.sleep(1)
            self.check()
        await asyncio.sleep(5)
        self.check()
        (leader,) = self.leaders()
        pods = [item.typed for item in self.store.list(PODS).items]
        nodes = [item.typed for item in self.store.list(NODES).items]
        problems = leader.check(pods, nodes)
        lost = [pod.name for pod in pods if pod.spec.node_name and self.bound.get(pod.uid) != pod.spec.node_name]
        problems += [f"{name} is bound elsewhere than by a binding" for name in lost]
        assert not problems, "\n".join(problems)


def play(seed: int, steps: int = 20) -> dict[str, int]:
    """One day; the faults that struck, by name."""

    async def main() -> dict[str, int]:
        day = Day(seed)
        await day.run(steps)
        return {**day.network.counts, "terms": day.terms, "bindings": len(day.bound)}

    logging.getLogger("kubesched").setLevel(logging.CRITICAL)
    try:
        return run_virtual(main())
    finally:
        logging.getLogger("kubesched").setLevel(logging.NOTSET)
