"""Clusters with pod groups, in virtual time: builders of objects, and a scheduler that may be restarted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from kubesched.api.kinds import NODES, POD_GROUPS, PODS
from kubesched.api.types import Pod
from kubesched.client.port import ApiPort
from kubesched.cluster.store import InProcessClient, Store
from kubesched.cluster.store.faults import Faults, connection_lost
from kubesched.lab.simulate.run.virtual_time import VirtualClock
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.config import FeatureGates, load_config_data
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.extenders.interface import Extender
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.scheduler import Scheduler

GANG = ("GenericWorkload", "GangScheduling")
TOPOLOGY = (*GANG, "TopologyAwareWorkloadScheduling")
WHOLE = (*GANG, "WorkloadAwarePreemption")

#: Seconds until another scheduler takes over.
LEASE = 15

_CONFIG = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


class _Port(ApiPort):
    def informer(self, kind: Any, field_selector: str = "", **options: Any) -> Any:
        return super().informer(kind, field_selector, watch_timeout=None, **options)


class _Attempts(AttemptObserver):
    """Observer that lists the keys of popped pods."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = keys

    def attempted(self, queued: QueuedPodInfo) -> None:
        self._keys.append(queued.key)


async def _wound_up(scheduler: Scheduler, running: asyncio.Task[None] | None) -> None:
    await scheduler.stop()
    if running is not None:
        await running


class Cluster:
    """Store with a scheduler. Times are virtual seconds."""

    def __init__(
        self, gates: tuple[str, ...] = GANG, seed: int = 0, *, extenders: Sequence[Extender] = (), **config: Any
    ) -> None:
        """``config`` are fields of the scheduler's configuration."""
        self.gates = FeatureGates.of(dict.fromkeys(gates, True))
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.rng = random.Random(seed)
        self.store = Store(self.clock, random=random.Random(seed), priority_admission=False)
        self.faults = Faults(random.Random(seed))
        self._config = {**_CONFIG, **config}
        self._extenders = extenders
        self.cycles: list[str] = []
        self.scheduler = self._scheduler()
        self._running: asyncio.Task[None] | None = None
        self._dead: list[asyncio.Task[None]] = []

    def _scheduler(self) -> Scheduler:
        config = load_config_data(self._config, gates=self.gates)
        port = _Port(InProcessClient(self.store, faults=self.faults), clock=self.clock, rng=random.Random(1))
        return Scheduler(
            config,
            in_tree_registry(),
            port,
            clock=self.clock,
            rng=random.Random(self.rng.getrandbits(64)),
            gates=self.gates,
            extenders=self._extenders,
            observers=[_Attempts(self.cycles)],
        )

    async def __aenter__(self) -> Cluster:
        await self.scheduler.start()
        self._running = asyncio.ensure_future(self.scheduler.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.scheduler.stop()
        if self._running is not None:
            await self._running
        await asyncio.gather(*self._dead)
        self._dead.clear()

    async def restart(self) -> None:
        """Stop the scheduler and start a new one, which knows only what the store has."""
        await self.__aexit__()
        self.scheduler = self._scheduler()
        await self.__aenter__()

    async def kill(self) -> None:
        """End the scheduler in the middle of whatever it does, and start another one when its lease is over.

        Nothing that the first one sends from now on arrives, but what is on its way does. It does not know that, and
        winds up beside the other.
        """
        dead, running = self.scheduler, self._running
        self.faults.clear()
        self.faults.fail("*", error=connection_lost)
        self.faults = Faults(random.Random(self.rng.getrandbits(64)))
        self.scheduler = self._scheduler()
        await asyncio.sleep(LEASE)
        await self.__aenter__()
        self._dead.append(asyncio.ensure_future(_wound_up(dead, running)))

    # -- objects -----------------------------------------------------------------------------------------

    def node(self, name: str, cpu: str, **labels: str) -> None:
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
        self.store.create(NODES, "", {"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}})

    def pod(self, name: str, group: str = "", cpu: str = "1", priority: int = 0, node: str = "", **spec: Any) -> None:
        container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
        given: dict[str, Any] = {"containers": [container], "priority": priority, "terminationGracePeriodSeconds": 0}
        if group:
            given["schedulingGroup"] = {"podGroupName": group}
        if node:
            given["nodeName"] = node
        self.store.create(PODS, "default", {"metadata": {"name": name}, "spec": {**given, **spec}})

    def group(self, name: str, least: int | None = None, *, key: str = "", **spec: Any) -> None:
        """Create a PodGroup: a gang of at least ``least`` members, or a basic group; ``key`` confines it."""
        policy: dict[str, Any] = {"basic": {}} if least is None else {"gang": {"minCount": least}}
        constraints = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
        given = {"schedulingPolicy": policy, **constraints, **spec}
        self.store.create(POD_GROUPS, "default", {"metadata": {"name": name}, "spec": given})

    def gang(self, name: str, members: int, least: int | None = None, cpu: str = "1", **spec: Any) -> None:
        """Create a gang with its members, called ``NAME-0`` and so on."""
        self.group(name, members if least is None else least, **spec)
        for number in range(members):
            self.pod(f"{name}-{number}", name, cpu)

    def delete(self, name: str) -> None:
        self.store.delete(PODS, "default", name, grace_period_seconds=0)

    # -- looking -----------------------------------------------------------------------------------------

    def pods(self) -> list[Pod]:
        return [item.typed for item in self.store.list(PODS).items]

    def placed(self) -> dict[str, str]:
        """Return the node of each pod that has one, by the pod's name."""
        return {pod.name: pod.spec.node_name for pod in self.pods() if pod.spec.node_name}

    def in_group(self, group: str) -> list[str]:
        """Return the names of the placed members of a group."""
        named = [pod for pod in self.pods() if pod.spec.scheduling_group is not None]
        return sorted(
            pod.name
            for pod in named
            if pod.spec.node_name and pod.spec.scheduling_group and pod.spec.scheduling_group.pod_group_name == group
        )

    def condition(self, group: str) -> tuple[str, str, str]:
        """Return status, reason and message of a group's condition; empty texts if it has none."""
        found = self.store.get(POD_GROUPS, "default", group).typed.status.conditions
        return (found[0].status, found[0].reason, found[0].message) if found else ("", "", "")

    def told(self, pod: str) -> str:
        """Return the message of a pod's condition PodScheduled."""
        conditions = self.store.get(PODS, "default", pod).typed.status.conditions
        return next((each.message for each in conditions if each.type == "PodScheduled"), "")

    def problems(self) -> list[str]:
        """Return what is wrong inside the scheduler, and nodes with more pods than they hold."""
        found = check_cache(self.scheduler.cache) + self.scheduler.queue.views.check()
        for info in self.scheduler.cache.table.all_infos():
            if info.node is not None and info.requested.milli_cpu > info.allocatable.milli_cpu:
                found.append(f"{info.name} is over-committed")
        return found
