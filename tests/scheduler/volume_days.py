"""A cluster with storage whose scheduler may be killed at any moment: parts, invariants, and the end of waiting.

Store and storage controllers live on; schedulers come and go, each with a connection of its own. The invariants:

V1  a claim that is bound keeps its volume, and no two claims have the same one
V2  when nothing moves, every reserved volume belongs to a claim that is bound to it, or is released
V3  when nothing moves, nothing is assumed, and the assume caches hold what the store holds
V4  a pod that is bound has bound claims whose volumes its node reaches; one that is not says why
V5  no pool gives more than it has
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from kubesched.api.kinds import CLAIMS, CSI_DRIVERS, NODES, PODS, STORAGE_CLASSES, VOLUMES, Kind
from kubesched.api.storage import BIND_COMPLETED
from kubesched.api.types import Pod
from kubesched.api.wire import Item
from kubesched.base.tasks import Supervisor
from kubesched.client.port import ApiPort
from kubesched.cluster.controllers import STORAGE, ControllerManager, ControllerSettings
from kubesched.cluster.kubelets.stages import parse_stages
from kubesched.cluster.store import Faults, InProcessClient, Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, VirtualTimeLoop, run_virtual
from kubesched.scheduler.config import load_config_data
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.plugins.volumes.volume_state import VolumeState
from kubesched.scheduler.scheduler import Scheduler
from volume_check import DRIVER, HOSTNAME, ZONE, claims_of, reaches, zone_of

Data = dict[str, Any]
BIND_TIMEOUT = 8
GIB = 1 << 30


def config() -> Any:
    plugins = {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}, {"name": "DynamicResources"}]}}
    args = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "VolumeBindingArgs",
        "bindTimeoutSeconds": BIND_TIMEOUT,
    }
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": plugins,
        "pluginConfig": [{"name": "VolumeBinding", "args": args}],
    }
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return load_config_data({**kind, "profiles": [profile]})


class Connection(InProcessClient):
    """A scheduler's connection. ``before_patch`` is called before each patch; a dead one answers nothing."""

    def __init__(self, store: Store, faults: Faults) -> None:
        super().__init__(store, faults=faults)
        self.alive = True
        self.before_patch: Callable[[Kind, str], None] = lambda kind, name: None
        self.after_patch: Callable[[Kind, str], None] = lambda kind, name: None

    @property
    def at_once(self) -> bool:
        return self.alive and super().at_once

    async def _strike(self, when: Any, verb: Any, kind: Kind, name: str = "") -> None:
        if not self.alive and when == "before":
            raise ConnectionResetError("this process is gone")
        await super()._strike(when, verb, kind, name)
        if when == "before" and not self.alive:
            raise ConnectionResetError("this process is gone")

    async def _call(self, verb: Any, kind: Kind, name: str, call: Callable[[], Any]) -> Any:
        def call_if_alive() -> Any:
            if not self.alive:
                raise ConnectionResetError("this process is gone")
            return call()

        return await super()._call(verb, kind, name, call_if_alive)

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Any, **options: Any) -> Item:
        if self.alive:
            self.before_patch(kind, name)
        item = await super().patch(kind, namespace, name, patch, **options)
        self.after_patch(kind, name)
        return item


class Life:
    """One scheduler process."""

    def __init__(self, day: Day) -> None:
        self.connection = Connection(day.store, day.faults)
        self.port = ApiPort(self.connection, clock=day.clock, rng=Random(day.rng.getrandbits(64)))
        self.scheduler = Scheduler(
            config(), in_tree_registry(), self.port, clock=day.clock, rng=Random(day.rng.getrandbits(64))
        )
        self._tasks = Supervisor("life")

    async def begin(self) -> None:
        self._tasks.spawn(self.port.events.run(), "events")
        await self.scheduler.start()
        self._tasks.spawn(self.scheduler.run(), "scheduler", lasting=False)

    async def kill(self) -> None:
        """As by SIGKILL: nothing more is written, nothing is given back."""
        self.connection.alive = False
        for tasks in (self._tasks, self.scheduler.tasks):
            tasks.begin_stop()
            await tasks.stop()

    async def stop(self) -> None:
        await self.scheduler.stop()
        self._tasks.begin_stop()
        await self._tasks.stop()

    @property
    def state(self) -> VolumeState:
        plugin: Any = self.scheduler.frameworks["default-scheduler"].plugins["VolumeBinding"]
        return VolumeState.of(plugin.handle)


class Day:
    """The cluster."""

    def __init__(self, seed: int, stages: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.loop, self.clock, self.rng = loop, VirtualClock(loop), Random(seed)
        self.store = Store(self.clock, random=Random(self.rng.getrandbits(64)))
        self.faults = Faults(Random(self.rng.getrandbits(64)))
        self.controller_faults = Faults(Random(self.rng.getrandbits(64)))
        settings = ControllerSettings(stages=parse_stages(stages) if stages else ())
        client = InProcessClient(self.store, faults=self.controller_faults)
        self.controllers = ControllerManager(
            client, self.clock, Random(self.rng.getrandbits(64)), STORAGE, settings=settings
        )
        self.tasks = Supervisor("day")
        self.life: Life | None = None
        self.broken: list[str] = []
        self._volume_of: dict[str, str] = {}

    # -- building ------------------------------------------------------------------------------------------

    def create(self, kind: Kind, obj: Data) -> Data:
        return self.store.create(kind, "default" if kind.namespaced else "", obj).data()

    def nodes(self, count: int = 6) -> None:
        for number in range(count):
            amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
            labels = {ZONE: "abc"[number % 3], HOSTNAME: f"n{number}"}
            status = {"capacity": amounts, "allocatable": amounts}
            self.create(NODES, {"metadata": {"name": f"n{number}", "labels": labels}, "status": status})

    def driver(self, capacity: str, *, announced: bool = True) -> None:
        annotations = {"kubesched.io/capacity": capacity}
        spec = {"storageCapacity": announced}
        self.create(CSI_DRIVERS, {"metadata": {"name": DRIVER, "annotations": annotations}, "spec": spec})

    def resize_pool(self, capacity: str) -> None:
        self.merge(CSI_DRIVERS, DRIVER, {"metadata": {"annotations": {"kubesched.io/capacity": capacity}}})

    def storage_class(self, name: str, *, waits: bool = True, provisioner: str = DRIVER) -> None:
        mode = "WaitForFirstConsumer" if waits else "Immediate"
        self.create(
            STORAGE_CLASSES, {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
        )

    def local_volume(self, name: str, node: str, size: str = "5Gi") -> None:
        expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
        spec = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        }
        self.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})

    def claim(self, name: str, storage_class: str = "fast", size: str = "1Gi") -> Data:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
        }
        return self.create(CLAIMS, {"metadata": {"name": name}, "spec": spec})

    def pod(self, name: str, *claims: str, **spec: Any) -> Data:
        volumes: list[Data] = [
            {"name": f"v{at}", "persistentVolumeClaim": {"claimName": one}} for at, one in enumerate(claims)
        ]
        volumes += spec.pop("volumes", [])
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
        return self.create(
            PODS, {"metadata": {"name": name}, "spec": {"containers": [container], "volumes": volumes, **spec}}
        )

    def merge(self, kind: Kind, name: str, patch: Data) -> None:
        namespace = "default" if kind.namespaced else ""
        self.store.patch(kind, namespace, name, patch, patch_type="application/merge-patch+json")

    def get(self, kind: Kind, name: str) -> Any:
        return self.store.get(kind, "default" if kind.namespaced else "", name).typed

    def exists(self, kind: Kind, name: str) -> bool:
        return ("default" if kind.namespaced else "", name) in self.store.table(kind).objects

    def all(self, kind: Kind) -> list[Any]:
        return [item.typed for item in self.store.list(kind).items]

    def delete(self, kind: Kind, name: str) -> None:
        options = {"grace_period_seconds": 0} if kind == PODS else {}
        self.store.delete(kind, "default" if kind.namespaced else "", name, **options)  # type: ignore[arg-type]  # seconds

    def reason(self, pod: str) -> str:
        found: Pod = self.get(PODS, pod)
        return next((one.message for one in found.status.conditions if one.type == "PodScheduled"), "")

    # -- life ----------------------------------------------------------------------------------------------

    async def start_scheduler(self) -> Life:
        self.life = Life(self)
        await self.life.begin()
        return self.life

    async def kill_scheduler(self) -> None:
        assert self.life is not None
        life, self.life = self.life, None
        await life.kill()

    async def until(self, condition: Callable[[], Any], what: str, limit: float = 120.0, step: float = 0.01) -> None:
        end = self.loop.time() + limit
        while not condition():
            assert self.loop.time() < end, f"{what}: not within {limit} s; {self._state()}"
            await asyncio.sleep(step)
            self.check()

    async def settle(self, limit: float = 1800.0) -> None:
        """Until nothing moves; then V2 to V5 hold."""
        assert self.life is not None
        end = self.loop.time() + limit
        while True:
            await self.loop.idle()
            self.check()
            if self.life.scheduler.is_idle and self.controllers.next_timer() is None:
                break
            assert self.loop.time() < end, f"nothing settles: {self._state()}"
            await asyncio.sleep(0.5)
        self.broken += [*self._reservations(), *self._caches(), *self._pods(), *self._pools()]
        self.check()

    def _state(self) -> str:
        waiting = {pod.name: self.reason(pod.name) for pod in self.all(PODS) if not pod.spec.node_name}
        idle = self.life is not None and self.life.scheduler.is_idle
        queues = {name: len(one.queue) for name, one in self.controllers.controllers.items()}
        return f"idle {idle}, controllers {queues}, {waiting}, {self.controllers.problems[-3:]}"

    # -- invariants ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """V1, at any moment."""
        owners: dict[str, str] = {}
        for claim in self.all(CLAIMS):
            if BIND_COMPLETED not in claim.metadata.annotations:
                continue
            name, uid = claim.spec.volume_name, claim.metadata.uid
            if self._volume_of.setdefault(uid, name) != name:
                self.broken.append(f"V1: {claim.key} had volume {self._volume_of[uid]} and has {name}")
            if owners.setdefault(name, claim.key) != claim.key:
                self.broken.append(f"V1: {owners[name]} and {claim.key} both have volume {name}")
        assert not self.broken, "\n".join(self.broken)

    def _reservations(self) -> list[str]:
        problems = []
        for volume in self.all(VOLUMES):
            reference = volume.spec.claim_ref
            if reference is None or not reference.uid or volume.status.phase == "Released":
                continue
            claim = self.get(CLAIMS, reference.name) if self.exists(CLAIMS, reference.name) else None
            if claim is None or claim.metadata.uid != reference.uid or claim.spec.volume_name != volume.name:
                problems.append(f"V2: volume {volume.name} is reserved for {reference.name}, which is not bound to it")
        return problems

    def _caches(self) -> list[str]:
        assert self.life is not None
        state = self.life.state
        problems = [f"V3: {text}" for text in state.problems()]
        problems += [f"V3: volume {key} is assumed" for key in state.cache.volumes.assumed()]
        problems += [f"V3: claim {key} is assumed" for key in state.cache.claims.assumed()]
        problems += [f"V3: {uid} still has a reservation" for uid in state.reservations]
        for kind, cache in ((VOLUMES, state.cache.volumes), (CLAIMS, state.cache.claims)):
            stored = {one.key: one.metadata.resource_version for one in self.all(kind)}
            known = {one.key: one.metadata.resource_version for one in cache.values()}
            if stored != known:
                differ = {
                    key: (stored.get(key), known.get(key))
                    for key in {*stored, *known}
                    if stored.get(key) != known.get(key)
                }
                problems.append(f"V3: versions of {kind.plural} in store and cache: {differ}")
        return problems

    def _pods(self) -> list[str]:
        problems = []
        for pod in self.all(PODS):
            if not pod.spec.node_name:
                if not self.reason(pod.name):
                    problems.append(f"V4: {pod.name} does not say why it is not bound")
                continue
            labels = self.get(NODES, pod.spec.node_name).metadata.labels
            for name in claims_of(pod):
                claim = self.get(CLAIMS, name) if self.exists(CLAIMS, name) else None
                if claim is None or not claim.spec.volume_name or not self.exists(VOLUMES, claim.spec.volume_name):
                    problems.append(f"V4: {pod.name} is bound, and its claim {name} is not")
                elif not reaches(self.get(VOLUMES, claim.spec.volume_name), labels):
                    problems.append(f"V4: {pod.name} is on {pod.spec.node_name}, which does not reach {name}")
        return problems

    def _pools(self) -> list[str]:
        text = (
            self.get(CSI_DRIVERS, DRIVER).metadata.annotations["kubesched.io/capacity"] if self.all(CSI_DRIVERS) else ""
        )
        used: dict[str, int] = {}
        for volume in self.all(VOLUMES):
            if volume.spec.csi is not None:
                zone = zone_of(volume)
                used[zone] = used.get(zone, 0) + int(volume.spec.capacity["storage"].removesuffix("Gi"))
        limits = dict(part.split("=") for part in text.split(",") if "=" in part)
        over = {zone: size for zone, size in used.items() if zone in limits and size > int(limits[zone][:-2])}
        return [f"V5: zone {zone} gives {size}Gi of {limits[zone]}" for zone, size in over.items()]


def play(scenario: Callable[[Day], Awaitable[None]], *, seed: int = 0, stages: str = "", settled: bool = True) -> None:
    """A day in virtual time, with a scheduler from the beginning."""

    async def main() -> None:
        day = Day(seed, stages)
        day.nodes()
        try:
            with day.tasks.guard():
                day.tasks.spawn(day.controllers.run(), "controllers")
                await day.controllers.wait_announced()
                await day.start_scheduler()
                await scenario(day)
                if settled:
                    await day.settle()
                assert not [text for text in day.controllers.problems if "defect" in text]
        finally:
            if day.life is not None:
                await day.life.stop()
            await day.tasks.stop()

    run_virtual(main())
