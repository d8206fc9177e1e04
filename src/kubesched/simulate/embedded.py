"""The whole scheduler over the embedded cluster, in one process and one event loop.

Store, in-process client, hollow kubelets, API port and scheduler, put together once for the simulator, the
benchmark, the demonstration and the tests. It runs in real time or in virtual time; the parts cannot tell.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from kubesched.api.kinds import NODES, PODS
from kubesched.api.types import Node, Pod
from kubesched.cache.check import check_cache, compare_with_server
from kubesched.client.port import ApiPort
from kubesched.cluster.faults import Faults
from kubesched.cluster.hollow import HollowKubelets
from kubesched.cluster.inprocess import InProcessClient
from kubesched.cluster.store import Store
from kubesched.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration
from kubesched.framework.clock import Clock
from kubesched.framework.registry import Registry
from kubesched.scheduler.scheduler import Scheduler

__all__ = ["Embedded"]


class Embedded:
    """An embedded cluster with a scheduler.

    Attributes:
        store: the cluster's state; writing to it directly is what users of the API do.
        client: the in-process transport of everything that is not the scheduler.
        faults: what goes wrong between scheduler and store (nothing unless told).
        scheduler, port, kubelets: the running parts.
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
    ) -> None:
        """Build the parts; must be called in a running event loop.

        Raises:
            ConfigError: when a profile cannot be built.
        """
        rng = random.Random(seed)
        self.clock = clock
        self.store = Store(clock, random=random.Random(rng.getrandbits(64)))
        self.faults = Faults(random.Random(rng.getrandbits(64)))
        self.client = InProcessClient(self.store)
        self.port = _QuietPort(
            InProcessClient(self.store, faults=self.faults),
            clock=clock,
            rng=random.Random(rng.getrandbits(64)),
            event_queue_size=event_queue_size,
        )
        self.scheduler = Scheduler(
            config, registry, self.port, clock=clock, rng=random.Random(rng.getrandbits(64)), gates=gates
        )
        self.kubelets = HollowKubelets(self.client, clock) if kubelets else None
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        """Start everything; returns when the scheduler has seen what is in the store."""
        self._spawn(self.port.events.run(), "events")
        if self.kubelets is not None:
            self._spawn(self.kubelets.run(), "kubelets")
        await self.scheduler.start()
        self._spawn(self.scheduler.run(), "scheduler")

    async def stop(self) -> None:
        """Stop everything and wait for it."""
        await self.scheduler.stop()
        await self.port.events.drain()
        self.port.events.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    # -- looking ---------------------------------------------------------------------------------------

    def pods(self) -> list[Pod]:
        """All pods in the store."""
        return [item.typed for item in self.store.list(PODS).items]

    def nodes(self) -> list[Node]:
        """All nodes in the store."""
        return [item.typed for item in self.store.list(NODES).items]

    @property
    def is_settled(self) -> bool:
        """Nothing will move any more by itself, except that unschedulable pods are tried again now and then."""
        timers = self.kubelets.next_timer() if self.kubelets is not None else None
        return self.scheduler.is_idle and timers is None

    def check(self) -> list[str]:
        """What is wrong, when nothing is moving: cache against itself, against the store, and the queue."""
        scheduler = self.scheduler
        queued, _ = scheduler.queue.pending_pods()
        visible = [
            pod
            for pod in self.pods()
            if pod.status.phase not in ("Succeeded", "Failed")
            and (pod.spec.node_name or pod.spec.scheduler_name in scheduler.frameworks)
        ]
        problems = check_cache(scheduler.cache) + scheduler.queue.check()
        return problems + compare_with_server(scheduler.cache, self.nodes(), visible, queued)


class _QuietPort(ApiPort):
    """Informers without a watch timeout: in one process nothing is gained by asking anew every few minutes."""

    def informer(self, kind: Any, field_selector: str = "", **options: Any) -> Any:
        return super().informer(kind, field_selector, watch_timeout=None, **options)
