"""Two replicas of the scheduler and another writer against two API servers on a bad day, drawn by seed.

:mod:`replica` is a scheduler process, :mod:`campaign_world` has the objects and the other writer, :mod:`memory_net` the
network between them. What must hold all the while is checked by :mod:`campaign_checks` at the API server, and by the
replica in its memory. When a replica loses the lease, or is killed, another one is started in its place after a while,
as a supervisor does.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator
from random import Random
from typing import Any

from campaign_checks import Checks
from campaign_world import World
from memory_net import Network
from replica import Replica

from kubesched.api.kinds import CLAIMS, KINDS, LEASES, NODES, PODS, RESOURCE_CLAIMS, VOLUMES, Kind
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError, Item
from kubesched.base.tasks import Supervisor, child
from kubesched.cluster.controllers import Budgets, ControllerManager
from kubesched.cluster.controllers.csi_drivers import CsiNodes
from kubesched.cluster.controllers.provisioner import Provisioner
from kubesched.cluster.controllers.resource_claims import ResourceClaims
from kubesched.cluster.controllers.volumes import Volumes
from kubesched.cluster.store import InProcessClient, Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock

from pausing import PausingLoop, run_pausing  # isort: skip

__all__ = ["Day", "play"]

#: Controllers on which scheduling depends.
_CONTROLLERS = (Volumes, Provisioner, CsiNodes, ResourceClaims, Budgets)
#: Seconds by which a watch cache may be behind.
_LAGS = (0.0, 0.2, 2.0, 8.0, 30.0)
#: Awaits of bindings after which a replica may be killed.
_MOST_AWAITS = 40


class Day:
    """The API server, the replicas, and what goes wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PausingLoop)
        self.loop = loop
        self.broken: list[str] = []
        clock = VirtualClock(loop)
        self.store = Store(clock, random=Random(self.rng.getrandbits(64)), priority_admission=False)
        self.checks = Checks(self.store, self.broken)
        self.world = World(self.store, self.checks, Random(self.rng.getrandbits(64)))
        self._controllers = ControllerManager(
            InProcessClient(self.store), clock, Random(self.rng.getrandbits(64)), _CONTROLLERS
        )
        self.network = Network(self.store, Random(self.rng.getrandbits(64)))
        self.replicas: dict[str, Replica] = {}
        self.lives: dict[str, asyncio.Task[None]] = {}
        self.terms = self.evictions = self.not_woken_checked = 0
        self._closing = False

    def items(self, plural: str) -> list[Item]:
        """Return the stored objects of a kind."""
        kind = next(kind for kind in KINDS if kind.plural == plural and kind in self.store.tables)
        return list(self.store.list(kind).items)

    def bound_node(self, pod: Pod) -> str:
        """Return the node that exactly this pod is bound to at the API server; empty without one."""
        stored = self.store.table(PODS).objects.get((pod.namespace, pod.name))
        node: str = stored.typed.spec.node_name if stored is not None and stored.uid == pod.uid else ""
        return node

    # -- what happens ------------------------------------------------------------------------------------

    def _some_replica(self) -> Replica:
        return self.rng.choice(list(self.replicas.values()))

    def cut(self) -> None:
        self.network.cut(self.rng.choice(["", self._some_replica().client]))

    def partition(self) -> None:
        name = self._some_replica().client
        if not self.network.is_partitioned(name):
            self.network.partition(name, one_way=self.rng.random() < 0.3)
            self.loop.call_later(self.rng.choice((2.0, 9.0, 20.0, 40.0)), self.network.heal, name)

    def pause(self) -> None:
        """One process stands still, as by SIGSTOP or while its virtual machine is moved; it is mostly the leader.

        There is work for it when it goes on.
        """
        leaders = self.leaders()
        name = (leaders[0] if leaders and self.rng.random() < 0.8 else self._some_replica()).client
        self.network.pause(name)
        self.world.new_pods()
        self.loop.call_later(self.rng.choice((2.0, 18.0, 25.0, 40.0)), self.network.resume, name)

    def restart_server(self) -> None:
        """An API server is away for a while, or both; it comes back without a history, perhaps after a compaction."""
        servers = self.network.servers if self.rng.random() < 0.4 else [self.rng.choice(self.network.servers)]
        for server in servers:
            server.is_down = True
            self.network.cut(server=server)
            self.loop.call_later(self.rng.choice((1.0, 6.0, 25.0)), server.restart)
        if self.rng.random() < 0.3:
            self.store.compact()

    def lag(self) -> None:
        """The watch cache of an API server falls behind from now on, or catches up; perhaps for one kind of object."""
        kinds: list[Kind | None] = [None, None, PODS, NODES, CLAIMS, VOLUMES, RESOURCE_CLAIMS]
        self.rng.choice(self.network.servers).cache.lag(self.rng.choice(_LAGS), self.rng.choice(kinds))

    def slow_disk(self) -> None:
        """Every write takes long for a while: it waits for the disk, then it has its effect."""
        self.network.disk_seconds = self.rng.choice((0.3, 2.0, 7.0))
        self.loop.call_later(self.rng.choice((3.0, 15.0)), setattr, self.network, "disk_seconds", 0.0)

    def expire(self) -> None:
        """One 410 on every watch, or a storm of them while the history is compacted again and again."""
        for number in range(self.rng.choice((1, 1, 12))):
            self.loop.call_later(0.5 * number, self._expire)

    def _expire(self) -> None:
        if self.rng.random() < 0.5:
            self.store.compact()
        self.network.expire_watches()

    def kill(self, name: str = "") -> None:
        """A crash at any moment: between assume and bind, between bind and its confirmation."""
        name = name or self.rng.choice(list(self.lives))
        self.network.kill(self.replicas[name].client)
        self.lives[name].cancel()

    def kill_in_binding(self) -> None:
        """A crash at one of the next awaits of a binding."""
        for replica in self.replicas.values():
            replica.dies_in = self.rng.randint(1, _MOST_AWAITS)

    def rob_binding(self) -> None:
        """Somebody else takes a pod at one of the next awaits of its binding."""
        for replica in self.replicas.values():
            replica.robbed_in = self.rng.randint(1, _MOST_AWAITS // 4)

    def rob(self, pod: Pod) -> None:
        """Take a pod away that is being bound, perhaps while a more important one wants its room."""
        if self.rng.random() < 0.5:
            self.loop.call_soon(self.world.urgent_pod, context=self.network.context)
        seconds = self.rng.choice((0.0, 0.0, 0.05, 0.3))
        self.loop.call_later(seconds, self.world.take_away, pod, context=self.network.context)

    def stop_replica(self) -> None:
        """The process ends; what it has sent arrives."""
        name = self.rng.choice(list(self.lives))
        self.network.resume(self.replicas[name].client)
        self.lives[name].cancel()

    def jump(self) -> None:
        """The wall clock of one machine jumps."""
        self._some_replica().clock.skew += self.rng.choice((-7200.0, -30.0, 30.0, 7200.0))

    def steal_lease(self) -> None:
        """Another program writes itself into the lease: the leader loses it with bindings under way.

        Its lease lasts as long as theirs. After a shorter one a third could lead before the first, cut off, can know.
        """
        try:
            lease = self.store.get(LEASES, "kube-system", "kube-scheduler").data()
        except ApiError:
            return
        lease["spec"] |= {"holderIdentity": "somebody-else", "leaseDurationSeconds": 15}
        self.store.update(LEASES, "kube-system", "kube-scheduler", lease)

    def draw(self) -> None:
        """Do one of all these."""
        world = self.world
        deeds = {
            world.new_pods: 14, world.delete_pod: 3, world.replace_pod: 2, world.touch_pod: 2, world.lift_gate: 2,
            world.bind_elsewhere: 1, world.change_node: 3, world.new_node: 2, world.delete_node: 1,
            self.cut: 3, self.partition: 2, self.pause: 3, self.restart_server: 2, self.lag: 3, self.slow_disk: 1,
            self.expire: 2,
            self.kill: 1, self.kill_in_binding: 2, self.rob_binding: 2, self.stop_replica: 1, self.jump: 2, self.steal_lease: 1,
        }  # fmt: skip
        self.rng.choices(list(deeds), weights=list(deeds.values()))[0]()

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

    async def _run_pods(self) -> None:
        while not self._closing:
            self.world.run_pods(self.store.now())
            self.world.collect_garbage()
            await asyncio.sleep(1.0)

    def leaders(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.elector.may_write]

    def check(self) -> None:
        """Check what must hold at any moment."""
        if len(self.leaders()) > 1:
            self.broken.append(f"S3: {[replica.name for replica in self.leaders()]} may write at the same time")
        for replica in self.replicas.values():
            if replica.synced:
                self.broken += (
                    replica.scheduler.queue.views.check() + replica.check_reserved() + replica.check_versions()
                )
        self.checks.check()
        assert not self.broken, "\n".join(self.broken)

    def _state(self) -> str:
        views = {replica.name: replica.scheduler.queue.views.pending_pods()[1] for replica in self.replicas.values()}
        told = {
            pod.name: next((one.message for one in pod.status.conditions if one.type == "PodScheduled"), "")
            for pod in self.world.waiting()
        }
        return f"leaders {[replica.name for replica in self.leaders()]}, {views}, {told}"

    async def run(self, steps: int) -> None:
        """Play the day, and see that everything ends well."""
        self.world.build()
        self.world.new_pods()
        async with self._alive():
            await self.play(steps)
            await self._clear_up()
            await self._be_robbed()
            await self._end_well()

    async def run_one_binding(self, kind: str, dies_in: int) -> int:
        """Place one pod in fair weather, and kill its scheduler at an await of the binding. Return the awaits seen."""
        self.world.build()
        async with self._alive():
            await asyncio.sleep(5)
            (leader,) = self.leaders()
            leader.dies_in = dies_in
            self.world.new_pod(kind)
            await asyncio.sleep(30)
            await self._clear_up()
            await self._end_well()
            assert len(self.checks.bound) == 1
            return leader.awaits

    @contextlib.asynccontextmanager
    async def _alive(self) -> AsyncIterator[None]:
        """Controllers, kubelets and replicas, while something is done."""
        async with Supervisor("day") as tasks:
            tasks.spawn(self._controllers.run(), "controllers", lasting=False)
            await self._controllers.wait_announced()
            tasks.spawn(self._run_pods(), "kubelets", lasting=False)
            for name in ("a", "b"):
                tasks.spawn(self._supervise(name), name, lasting=False)
            await asyncio.sleep(0.5)
            try:
                yield
            finally:
                await self._end()
            await tasks.ended()

    async def _end(self) -> None:
        self._closing = True
        self._controllers.stop()
        for replica in self.replicas.values():
            self.network.resume(replica.client)
        for life in self.lives.values():
            life.cancel()
        await asyncio.wait(list(self.lives.values()))

    async def play(self, steps: int) -> None:
        """Let things happen, drawn by lot, and check after each step."""
        self.network.storm = self.rng.choice((0.5, 1.0, 2.0))
        self.network.servers[1].cache.lag(self.rng.choice(_LAGS))
        for _ in range(steps):
            for _ in range(self.rng.randint(1, 3)):
                self.draw()
            await asyncio.sleep(self.rng.choice((0.0, 0.003, 0.1, 1.0, 4.0)))
            self.check()

    async def _clear_up(self) -> None:
        """Fair weather again, for a minute."""
        self.network.storm = self.network.disk_seconds = 0.0
        for server in self.network.servers:
            server.is_down = False
            server.cache.lag(0.0)
        for replica in self.replicas.values():
            replica.dies_in = replica.robbed_in = 0
            self.network.heal(replica.client)
            self.network.resume(replica.client)
        await asyncio.sleep(60)
        self.network.expire_watches()  # what swapped events hid from a watch that was cut is listed again
        await asyncio.sleep(10)
        self.check()

    async def _end_well(self) -> None:
        """Everything finds its way back without help (L1, L2, L3)."""
        await self._check_woken()
        self.world.make_room()
        deadline = self.loop.time() + 900
        while self.world.waiting() or len(self.leaders()) != 1:
            assert self.loop.time() < deadline, f"L1: pods wait for ever; {self._state()}"
            await asyncio.sleep(1)
            self.check()
        deadline = self.loop.time() + 120  # longer than a watch rests before it is opened again
        while (problems := self._unsettled()) and self.loop.time() < deadline:
            await asyncio.sleep(1)
            self.check()
        assert not problems, "\n".join(problems)

    async def _be_robbed(self) -> None:
        """One more pod is taken away while it is bound; nothing else happens that would wake those who wait for its room.

        The scheduler hears of it from the refusal, or before that from a watch.
        """
        for replica in self.leaders():
            replica.robbed_in = self.rng.randint(1, 3)
        lag, self.network.disk_seconds = self.rng.choice(((0.0, 2.0), (5.0, 0.1), (5.0, 0.5)))
        for server in self.network.servers:
            server.cache.lag(lag, PODS)
        self.world.new_pods()
        await asyncio.sleep(15)
        self.network.disk_seconds = 0.0
        for server in self.network.servers:
            server.cache.lag(0.0)
        await asyncio.sleep(15)
        self.check()

    async def _check_woken(self) -> None:
        """L2: no pod waits that could be placed. Tried once more, none of them is bound.

        Unless pods are evicted for it, or a pod that is tried again loses its nomination, and with it the room kept for it.
        """
        deadline = self.loop.time() + 60
        while len(self.leaders()) != 1 or not self.leaders()[0].scheduler.is_idle or self.world.is_ending():
            if self.loop.time() > deadline:
                self.not_woken_checked += 1
                return
            await asyncio.sleep(1)
        (leader,) = self.leaders()
        waiting = {pod.key: pod for pod in self.world.waiting()}
        evictions, nominated = self.evictions, leader.nominated()
        leader.scheduler.queue.activate(waiting)
        await asyncio.sleep(0.5)
        forgotten = [key for key, pod in waiting.items() if pod.uid in self.checks.bound]
        if forgotten and self.evictions == evictions and nominated <= leader.nominated().union(forgotten):
            self.broken.append(f"L2: {forgotten} could have been placed, and nothing had woken them; {self._state()}")
        self.check()

    def _unsettled(self) -> list[str]:
        """L3: what is not yet as it is when nothing moves."""
        if len(self.leaders()) != 1:
            return [f"S3: there are {len(self.leaders())} leaders"]
        (leader,) = self.leaders()
        pods = [item.typed for item in self.store.list(PODS).items]
        problems = leader.check(pods, [item.typed for item in self.store.list(NODES).items])
        lost = [pod.name for pod in pods if pod.spec.node_name and self.checks.bound.get(pod.uid) != pod.spec.node_name]
        return problems + [f"{name} is bound elsewhere than by a binding" for name in lost]

    def counts(self) -> dict[str, int]:
        """Return the faults that struck by name, and what was done."""
        bindings = len(self.checks.bound)
        done = {"terms": self.terms, "bindings": bindings, "evictions": self.evictions}
        if self.not_woken_checked:
            done["L2 not checked"] = self.not_woken_checked
        return {**self.network.counts, **done}


def play(seed: int, steps: int = 20) -> dict[str, int]:
    """One day; what happened, by name."""

    async def main() -> dict[str, int]:
        day = Day(seed)
        await day.run(steps)
        return day.counts()

    counts: dict[str, int] = quietly(main)
    return counts


def quietly(main: Any) -> Any:
    """Run a day in virtual time, without a log, and with few collections of garbage, which take a fifth of the time."""
    logging.getLogger("kubesched").setLevel(logging.CRITICAL)
    thresholds = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    try:
        return run_pausing(main())
    finally:
        gc.set_threshold(*thresholds)
        logging.getLogger("kubesched").setLevel(logging.NOTSET)
