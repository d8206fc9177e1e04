"""The plugin with a node table, objects as informers show them, and a server that can be late, or fail."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from dra_kit import device_class, resource_slice

from builders import a_node
from kubesched.api.decode import from_builtins, to_builtins
from kubesched.api.kinds import Kind
from kubesched.api.resource import ResourceClaim
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.cluster.schema import apply_merge_patch
from kubesched.lab.conformance.objects import LocalObjects
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.config.args import DynamicResourcesArgs
from kubesched.scheduler.config.durations import Duration
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import Rotation
from kubesched.scheduler.core.handle import Backends, ProfileHandle
from kubesched.scheduler.core.search import Decision, Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.interface import Plugin
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.points import POINTS
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nominating import NoNominations
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.dynamic_resources.manager import DeviceManager
from kubesched.scheduler.plugins.dynamic_resources.plugin import DynamicResources

CLAIMS = "resourceclaims"


class Server:
    """Claims by key. What changes is shown to informers at once, unless it is to be late."""

    def __init__(self, objects: LocalObjects) -> None:
        self.objects = objects
        self.claims: dict[str, ResourceClaim] = {}
        self.patches: list[dict[str, Any]] = []
        #: (operation, error): raised by the next call of that operation, in order.
        self.failures: deque[tuple[str, Exception]] = deque()
        #: Raised by the next changes of a status, in order, after they were carried out: their answers are lost.
        self.lost: deque[Exception] = deque()
        #: Seconds from a change of a status or of metadata to its answer.
        self.seconds = 0.0
        #: Do not show changes by themselves.
        self.late = False
        #: Every version of every claim, for informers that are late.
        self.history: list[ResourceClaim] = []
        self._version = 100

    def put(self, claim: ResourceClaim) -> ResourceClaim:
        self._version += 1
        meta = msgspec.structs.replace(claim.metadata, resource_version=str(self._version))
        stored = msgspec.structs.replace(claim, metadata=meta)
        self.claims[stored.key] = stored
        self.history.append(stored)
        if not self.late:
            self.show(stored)
        return stored

    def show(self, claim: ResourceClaim) -> None:
        self.objects.put(CLAIMS, claim.key, claim)

    def _call(self, operation: str) -> None:
        if self.failures and self.failures[0][0] == operation:
            raise self.failures.popleft()[1]

    def _find(self, namespace: str, name: str) -> ResourceClaim:
        found = self.claims.get(f"{namespace}/{name}")
        if found is None:
            raise ApiError(404, "NotFound", f'resourceclaims "{name}" not found')
        return found

    async def get_object(self, kind: Kind, namespace: str, name: str) -> Any:
        self._call("get")
        return self._find(namespace, name)

    async def create_object(self, kind: Kind, namespace: str, obj: Mapping[str, Any]) -> Any:
        self._call("create")
        name = f"{obj['metadata']['generateName']}x1"
        claim = from_builtins(
            {**obj, "metadata": {**obj["metadata"], "name": name, "uid": f"uid-{name}"}}, ResourceClaim
        )
        return self.put(claim)

    async def patch_object(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        merge: bool = True,
    ) -> Any:
        self._call("patch pod" if kind.plural == "pods" else "patch" if subresource else "patch metadata")
        self.patches.append(dict(patch))
        if kind.plural == "pods":
            return None
        claim = self._find(namespace, name)
        wanted = patch["metadata"].get("resourceVersion", claim.metadata.resource_version)
        if wanted != claim.metadata.resource_version or patch["metadata"]["uid"] != claim.metadata.uid:
            raise ApiError(409, "Conflict", "the object has been modified")
        if merge:
            changed = from_builtins(apply_merge_patch(to_builtins(claim), patch), ResourceClaim)
        else:
            gone = {each["uid"] for each in patch["status"]["reservedFor"] if each["$patch"] == "delete"}
            left = tuple(each for each in claim.status.reserved_for if each.uid not in gone)
            changed = msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, reserved_for=left))
        stored = self.put(changed)
        if self.seconds:
            await asyncio.sleep(self.seconds)
        if merge and subresource and self.lost:
            raise self.lost.popleft()
        return stored

    async def delete_object(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        self._call("delete")
        self.delete(self._find(namespace, name).key)

    def delete(self, key: str) -> None:
        del self.claims[key]
        if not self.late:
            self.objects.remove(CLAIMS, key)


class House:
    """One scheduler's plugin. ``gates`` differ from the defaults."""

    def __init__(
        self,
        nodes: int = 2,
        devices: int = 2,
        *,
        args: DynamicResourcesArgs | None = None,
        resource: str | None = None,
        gates: Mapping[str, bool] | None = None,
        scored: Mapping[str, tuple[type[Plugin], Any]] | None = None,
        later: type[Plugin] | None = None,
        lacking: Collection[str] = (),
    ) -> None:
        """``scored``: further plugins with their args, by name; ``later``: one that comes after them; ``lacking``: points."""
        self.objects = LocalObjects()
        self.server = Server(self.objects)
        self.cache = Cache()
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.events: list[tuple[str, str]] = []
        self.activated: list[str] = []
        self.metrics = SchedulerMetrics()
        self._tasks: list[asyncio.Task[None]] = []
        backends = Backends(
            self.clock, random.Random(1), self.cache.snapshot(),
            watch=self.objects.watch, informed=self.objects.informed, client=self.server, spawn=self._spawn,
            recorder=lambda name: self, activate=self.activated.extend, gates=FeatureGates.of(gates or {}),
        )  # fmt: skip
        for number in range(1, nodes + 1):
            self.cache.set_node(a_node(f"n{number}"))
            each = resource_slice(f"n{number}", devices)
            self.objects.put("resourceslices", each.metadata.name, each)
        self.objects.put("deviceclasses", "gpu", device_class("gpu", resource))
        registry = Registry()
        registry.register(DynamicResources)
        for plugin, _ in (scored or {}).values():
            registry.register(plugin)
        weights = {**dict.fromkeys(scored or {}, 1), "DynamicResources": 2}
        if later is not None:
            registry.register(later)
            weights[later.name] = 1
        able = registry.capabilities()
        points: dict[str, Sequence[tuple[str, int]]] = {
            point.key: [(name, weight) for name, weight in weights.items() if point.key in able[name]]
            for point in POINTS
            if point.key not in lacking
        }
        self.handle = handle = ProfileHandle("default-scheduler", backends)
        if args is None:
            args = DynamicResourcesArgs(binding_timeout=Duration.of_seconds(600))
        given = {"DynamicResources": args, **{name: own for name, (_, own) in (scored or {}).items()}}
        framework = Framework("default-scheduler", points, registry, given.get, handle, self.metrics)
        handle.framework = self.framework = framework
        self.plugin: DynamicResources = framework.plugins["DynamicResources"]
        self.manager = DeviceManager.of(handle)
        self.search = Search(framework, self.cache.snapshot(), NoNominations(), random.Random(2), Rotation())

    def record(self, regarding: Any, type: str, reason: str, action: str, note: str, related: Any = None) -> None:  # noqa: A002 - upstream's word
        self.events.append((reason, note))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def settle(self) -> None:
        """Wait for what the plugin does alongside."""
        while self._tasks:
            await self._tasks.pop()

    def find(self, pod: Pod) -> Decision | Rejection:
        return self.search.find(PodInfo(pod))

    def decide(self, pod: Pod) -> tuple[CycleState, PodInfo, str]:
        """The attempt up to Reserve, which must succeed."""
        info = PodInfo(pod)
        found = self.search.find(info)
        assert isinstance(found, Decision), found.message()
        status = self.framework.reserve(found.state, info, found.node.name)
        assert status is None, status
        return found.state, info, found.node.name

    async def bind(self, attempt: tuple[CycleState, PodInfo, str]) -> Status | None:
        """PreBind; on failure everything is given back."""
        status = await self.framework.binding.pre_bind(*attempt)
        if status is not None:
            self.framework.unreserve(*attempt)
        return status

    def devices(self, name: str = "c") -> list[str]:
        """The devices of a claim in the server, as pool/device."""
        allocation = self.server.claims[f"default/{name}"].status.allocation
        return [] if allocation is None else [f"{each.pool}/{each.device}" for each in allocation.devices.results]

    def in_use(self) -> list[str]:
        """The devices that count as in use, as pool/device."""
        allocated = self.manager.allocated
        return sorted(f"{pool.pool}/{name}" for pool in allocated.pools() for name in allocated.use_of(pool).exclusive)


def scenario(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main())


def message(house: House, asking: Pod) -> str:
    found = house.find(asking)
    assert isinstance(found, Rejection)
    return found.message()


async def post_filter(house: House, asking: Pod) -> tuple[str, str]:
    """Code and text of PostFilter after a rejection."""
    found = house.find(asking)
    assert isinstance(found, Rejection)
    answer = house.framework.post_filter(found.state, PodInfo(asking), found.diagnosis.statuses)
    _, status = answer if isinstance(answer, tuple) else await answer
    assert status is not None
    return status.code.label, status.message()
