"""What the controllers of one manager share: the transport, the clock, the caches, and writes that are noted at once.

Caller: :mod:`.manager` makes one; every controller works through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Final

from kubesched.api.decode import from_builtins
from kubesched.api.equality import same_json
from kubesched.api.kinds import PODS, Kind
from kubesched.api.storage import claims_of
from kubesched.api.types import ObjectMeta, ObjectReference, OwnerReference
from kubesched.api.wire import MERGE_PATCH, STRATEGIC_PATCH, DeleteOptions, Item, PatchOptions, Transport, tolerate
from kubesched.base.times import Clock, timestamp
from kubesched.client.event_writer import Counts, EventWriter

from ..kubelets import Handler, Problems, Stage, WatchCache

__all__ = ["BY_CLAIM", "BY_NAMESPACE", "BY_NODE", "BY_OWNER", "Context", "ControllerSettings", "Data", "annotations_of"]
__all__ += ["controller_of", "data_of", "differ", "owner_key", "owners_of", "spec_of", "status_of", "version_of"]

Data = dict[str, Any]

#: Index of objects by the UID of their controller, of pods by node, by namespace, and by the claims they use.
BY_OWNER, BY_NODE, BY_NAMESPACE, BY_CLAIM = "owner", "node", "namespace", "claim"

_WRITES_PER_TURN: Final = 32


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Times in seconds and limits; the defaults are kube-controller-manager's where it has them.

    Attributes:
        batch_seconds: how long pods' status changes are collected before their owner is reconciled.
        burst: how many pods one reconcile of a workload creates or deletes at most.
        node_grace_seconds: how long a node may be unresponsive before it is unreachable (--node-monitor-grace-period).
        missing_node_seconds: how long pods stay bound to a node that does not exist before they are collected.
        terminated_pods: how many finished pods are kept (--terminated-pod-gc-threshold); 0 keeps all.
        stages: rules for what storage does; those for pods are left to the kubelets.
        device_taint_rules: whether DeviceTaintRules evict pods (upstream's gate DRADeviceTaintRules).
        disruption_seconds: how long an eviction may take to show before the budget counts the pod as healthy again.
    """

    batch_seconds: float = 0.1
    burst: int = 500
    node_grace_seconds: float = 40.0
    missing_node_seconds: float = 40.0
    terminated_pods: int = 12_500
    stages: tuple[Stage, ...] = ()
    device_taint_rules: bool = False
    disruption_seconds: float = 120.0


@lru_cache(maxsize=128)
def data_of(item: Item) -> Data:
    """An object as plain data; the latest that were read are kept. Shared: never change it."""
    return item.data()


def spec_of(item: Item) -> Data:
    """The spec of an object as plain data. Shared: never change it."""
    return data_of(item).get("spec") or {}


def status_of(item: Item) -> Data:
    """The status of an object as plain data. Shared: never change it."""
    return data_of(item).get("status") or {}


def owners_of(item: Item) -> tuple[OwnerReference, ...]:
    """The owner references of an object of any kind."""
    if item.kind.type is None:
        return from_builtins(data_of(item)["metadata"], ObjectMeta).owner_references
    references: tuple[OwnerReference, ...] = item.typed.metadata.owner_references
    return references


def annotations_of(item: Item | None) -> dict[str, str]:
    """The annotations of an object of a kind that has a type, none of none."""
    return dict(item.typed.metadata.annotations) if item is not None else {}


def version_of(item: Item) -> dict[str, str]:
    """What makes a patch fail with a conflict when the object has changed since."""
    return {"uid": item.uid, "resourceVersion": str(item.resource_version)}


def differ(old: Item | None, new: Item | None, of: Callable[[Item], object]) -> bool:
    """Whether two versions of an object show something else of what ``of`` reads, or one of them is missing."""
    return old is None or new is None or of(old) != of(new)


def controller_of(item: Item) -> OwnerReference | None:
    """The owner reference marked as controller."""
    for reference in owners_of(item):  # called twenty times for a pod: no generator
        if reference.controller:
            return reference
    return None


def owner_key(item: Item, kind: Kind) -> str:
    """The key of the object of a kind that controls another; empty when none does."""
    owner = controller_of(item)
    if owner is None or (owner.kind, owner.api_version) != (kind.kind, kind.api_version):
        return ""
    return f"{item.namespace}/{owner.name}"


def _owner_uid(item: Item) -> Iterable[str]:
    reference = controller_of(item)
    return () if reference is None else (reference.uid,)


def _node_name(item: Item) -> Iterable[str]:
    name = item.typed.spec.node_name
    return (name,) if name else ()


def _claim_keys(item: Item) -> Iterable[str]:
    return [key for key, _ in claims_of(item.typed)] if item.typed.spec.volumes else ()


class Context:
    """Shared by the controllers of one manager. ``rng`` is for choices the API leaves open."""

    def __init__(self, client: Transport, clock: Clock, rng: Random, settings: ControllerSettings) -> None:
        self.client, self.clock, self.rng, self.settings = client, clock, rng, settings
        self.caches: dict[Kind, WatchCache] = {}
        self.problems = Problems("kubesched.cluster.controllers", "controllers", "is skipped: {!r}")
        self.events = EventWriter(client, clock, Counts(), rng=rng, report=self.problems.note)
        self._doomed: set[str] = set()
        self._writes = 0
        self.pods = self.cache(PODS)
        self.pods.add_index(BY_OWNER, _owner_uid)
        self.pods.add_index(BY_NODE, _node_name)
        self.pods.add_index(BY_NAMESPACE, lambda item: (item.namespace,))
        self.pods.add_index(BY_CLAIM, _claim_keys)
        self.pods.add_handler(self._pod_changed)

    def cache(self, kind: Kind) -> WatchCache:
        """The cache of a kind; asked for before the manager runs, it is kept from then on."""
        if kind not in self.caches:
            self.caches[kind] = WatchCache(self.client, kind, self.problems, self.rng)
        return self.caches[kind]

    def watch(self, kind: Kind, handler: Handler) -> WatchCache:
        """Call a handler for every change of a kind; handlers only add keys. Returns the cache of the kind."""
        cache = self.cache(kind)
        cache.add_handler(handler)
        return cache

    def owned_cache(self, kind: Kind) -> WatchCache:
        """The cache of a kind with an index by controlling owner."""
        cache = self.cache(kind)
        cache.add_index(BY_OWNER, _owner_uid)
        return cache

    def now(self) -> float:
        return self.clock.now()

    def now_text(self) -> str:
        return timestamp(self.clock.now())

    def condition(self, type_: str, status: str, reason: str, message: str | None = None) -> Data:
        """A condition since now."""
        text = {} if message is None else {"message": message}
        return {"type": type_, "status": status, "reason": reason, **text, "lastTransitionTime": self.now_text()}

    def with_condition(self, conditions: Sequence[Data] | None, *condition: str, updated: bool = False) -> list[Data]:
        """A list of conditions with one set, as :meth:`condition` makes it; its transition time moves with its status only.

        ``updated`` keeps a ``lastUpdateTime`` too, which moves when reason or message change.
        """
        fresh = self.condition(*condition)
        if updated:
            fresh["lastUpdateTime"] = fresh["lastTransitionTime"]
        result = list(conditions or ())
        place = next((index for index, one in enumerate(result) if one.get("type") == fresh["type"]), len(result))
        for known in result[place : place + 1]:
            times: Data = {time: known[time] for time in ("lastTransitionTime", "lastUpdateTime") if time in known}
            if any(known.get(text) != fresh.get(text) for text in ("reason", "message")):
                times.pop("lastUpdateTime", None)
            if known.get("status") == fresh["status"]:
                fresh |= times
        result[place : place + 1] = [fresh]
        return result

    def owned_pods(self, uid: str) -> list[Item]:
        """The pods controlled by an object, also those that are going."""
        return self.pods.indexed(BY_OWNER, uid)

    def is_going(self, item: Item) -> bool:
        """Whether an object is being deleted, for pods also by a request of ours that the watch has not delivered yet."""
        if item.kind.type is None:
            return "deletionTimestamp" in data_of(item)["metadata"]
        return item.uid in self._doomed or item.typed.metadata.deletion_timestamp is not None

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if self._doomed and (new is None or new.typed.metadata.deletion_timestamp is not None):
            self._doomed.discard(item.uid)

    async def get(self, kind: Kind, namespace: str, name: str) -> Item | None:
        """What the server has now; None when it has none. For decisions that a cache which lags behind must not make."""
        with tolerate(404):
            return await self.client.get(kind, namespace, name)
        return None

    async def is_gone(self, kind: Kind, namespace: str, reference: OwnerReference | ObjectReference) -> bool:
        """Whether the server has no such object: only it knows, as a cache may lag behind."""
        live = await self.get(kind, namespace if kind.namespaced else "", reference.name)
        return live is None or live.uid != reference.uid

    async def create(self, kind: Kind, namespace: str, obj: Mapping[str, Any]) -> Item:
        return await self._noted(self.client.create(kind, namespace, obj))

    async def patch(self, item: Item, patch: Any, *, subresource: str = "", patch_type: str = MERGE_PATCH) -> Item:
        """Change an object by a (merge) patch."""
        options: PatchOptions = {"patch_type": patch_type, "subresource": subresource}
        return await self._noted(self.client.patch(item.kind, item.namespace, item.name, patch, **options))

    async def update(self, item: Item, data: Mapping[str, Any], *, subresource: str = "") -> Item:
        """Replace an object; refused with 409 when it has changed since ``data`` was read."""
        return await self._noted(
            self.client.update(item.kind, item.namespace, item.name, data, subresource=subresource)
        )

    async def patch_status(self, item: Item, status: Data, *, unless: tuple[int, ...] = (404, 409)) -> Item | None:
        """Merge into the status; None when that is refused with one of some codes: it is gone, or another one meanwhile."""
        body = {"metadata": {"uid": item.uid}, "status": status}
        with tolerate(*unless):
            return await self.patch(item, body, subresource="status", patch_type=STRATEGIC_PATCH)
        return None

    async def write_status(self, item: Item, status: Data) -> Item:
        """Replace the status of an object, if it is another one, without members that are None; 409 as :meth:`update`."""
        status = {key: value for key, value in status.items() if value is not None}
        if same_json(status, status_of(item)):
            return item
        return await self.update(item, {**data_of(item), "status": status}, subresource="status")

    async def delete(self, item: Item, *, grace_period_seconds: int | None = None) -> None:
        """Delete an object, if it still exists."""
        options: DeleteOptions = {"uid": item.uid, "grace_period_seconds": grace_period_seconds}
        self._doomed.add(item.uid)
        try:
            await self.client.delete(item.kind, item.namespace, item.name, **options)
        except Exception as error:
            self._doomed.discard(item.uid)
            if getattr(error, "code", 0) not in (404, 409):
                raise
        if item.kind != PODS:
            self._doomed.discard(item.uid)
        await self._yield_to_loop()

    async def _noted(self, write: Awaitable[Item]) -> Item:
        item = await write
        if (cache := self.caches.get(item.kind)) is not None:
            cache.note(item)
        await self._yield_to_loop()
        return item

    async def _yield_to_loop(self) -> None:
        """Yield to the event loop every few writes: in process, no write waits for anything."""
        self._writes += 1
        if self._writes % _WRITES_PER_TURN == 0:
            await asyncio.sleep(0)
