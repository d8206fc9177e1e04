"""All controllers of a cluster in one place: started, stopped and asked together.

    manager = ControllerManager(client, clock, rng)
    tasks.spawn(manager.run(), "controllers")

Runs on any transport, in real or virtual time. Caller: simulations, tests and the command line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Final

from kubesched.api.wire import Transport
from kubesched.base.tasks import EndedFirstError, Supervisor, unless
from kubesched.base.times import Clock

from .attachments import Attachments
from .base import Controller
from .budgets import Budgets
from .context import Context, ControllerSettings
from .cron_jobs import CronJobs
from .csi_drivers import CsiNodes
from .daemon_sets import DaemonSets
from .deployments import Deployments
from .device_driver import DeviceDriver
from .endpoint_slices import EndpointSlices
from .housekeeping import GarbageCollector, PodGarbage, RootCertificates, ServiceAccounts
from .jobs import JobOrphans, Jobs
from .node_lifecycle import NodeLifecycle
from .pod_groups import PodGroupProtection
from .provisioner import Provisioner
from .replica_sets import ReplicaSets, ReplicationControllers
from .resource_claims import ResourceClaims
from .stateful_sets import StatefulSets
from .taint_eviction import DeviceTaintEviction, TaintEviction
from .volumes import EphemeralVolumes, Volumes

__all__ = ["ALL", "BATCH", "DEVICES", "NODE_LIFE", "STORAGE", "ControllerManager"]

#: Controllers for Jobs and CronJobs, for storage, and for devices: for clusters that need only these.
BATCH: Final[tuple[type[Controller], ...]] = (Jobs, JobOrphans, CronJobs)
STORAGE: Final[tuple[type[Controller], ...]] = (Volumes, Provisioner, CsiNodes, Attachments, EphemeralVolumes)
DEVICES: Final[tuple[type[Controller], ...]] = (ResourceClaims, DeviceDriver, DeviceTaintEviction)

#: Controllers for failures, drains and removals of nodes, in clusters without controllers of workloads.
NODE_LIFE: Final[tuple[type[Controller], ...]] = (Budgets, NodeLifecycle, TaintEviction, PodGarbage)

#: Every controller, in the order in which they are notified of changes; :class:`.RootCertificates` runs beside an API
#: server only.
ALL: Final[tuple[type[Controller], ...]] = (
    Deployments,
    ReplicaSets,
    ReplicationControllers,
    StatefulSets,
    DaemonSets,
    *BATCH,
    EndpointSlices,
    ServiceAccounts,
    Budgets,
    *STORAGE,
    PodGroupProtection,
    ResourceClaims,
    DeviceDriver,
    NodeLifecycle,
    TaintEviction,
    DeviceTaintEviction,
    PodGarbage,
    GarbageCollector,
)
_KNOWN: Final[tuple[type[Controller], ...]] = (*ALL, RootCertificates)


class ControllerManager:
    """Controllers of one cluster.

    ``controllers`` selects by class or name (``deployment``, ``replicaset``, …). ``rng`` decides choices that the API
    leaves open, such as the zone of a new volume. ``settings`` holds times and limits. The attribute ``controllers``
    maps names to controllers. ``problems`` lists refused requests and other errors, newest last; all are tried again.

    Raises:
        ValueError: for an unknown name of a controller.
    """

    def __init__(
        self,
        client: Transport,
        clock: Clock,
        rng: Random,
        controllers: Iterable[type[Controller] | str] = ALL,
        *,
        settings: ControllerSettings | None = None,
    ) -> None:
        self.context = Context(client, clock, rng, settings or ControllerSettings())
        self.problems = self.context.problems
        known = {controller.name: controller for controller in _KNOWN}
        self.controllers: dict[str, Controller] = {}
        for wanted in controllers:
            if isinstance(wanted, str) and wanted not in known:
                raise ValueError(f"there is no controller {wanted!r}; there are {', '.join(known)}")
            chosen = known[wanted] if isinstance(wanted, str) else wanted
            self.controllers[chosen.name] = chosen(self.context)
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Work until :meth:`stop` or cancellation. Controllers start when every cache has been filled."""
        try:
            async with Supervisor("controllers") as tasks:
                for kind, cache in self.context.caches.items():
                    tasks.spawn(cache.run(), f"cache-{kind}")
                with suppress(EndedFirstError):
                    await unless(self._stopped, self.wait_synced(), "controllers-sync")
                    for name, one in self.controllers.items():
                        tasks.spawn(one.run(), f"controller-{name}")
                    await self._stopped.wait()
        finally:
            for controller in self.controllers.values():
                controller.queue.close()

    def stop(self) -> None:
        """Let :meth:`run` return."""
        self._stopped.set()

    async def wait_synced(self) -> None:
        """Return when every cache has seen the whole cluster once."""
        for cache in self.context.caches.values():
            await cache.synced.wait()

    async def wait_announced(self) -> None:
        """Wait until CSINodes, capacity objects and ResourceSlices are written. No pod should be placed before."""
        await self.wait_synced()
        for one in self.controllers.values():
            if isinstance(one, CsiNodes | Provisioner | DeviceDriver):
                await one.queue.drained.wait()

    def next_timer(self, besides: Iterable[type[Controller]] = ()) -> float | None:
        """Return the time of the next possible change, on the event loop's clock; None when no timer changes anything.

        Routine checks (a heartbeat in time) and retries that keep failing do not count. Timers of the controllers in
        ``besides`` do not count either.
        """
        others = tuple(besides)
        times = (one.queue.next_timer() for one in self.controllers.values() if not isinstance(one, others))
        return min((time for time in times if time is not None), default=None)
