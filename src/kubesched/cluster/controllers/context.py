"""Context that the controllers of one manager share: transport, clock, caches, and writes that are noted at once.

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
from kubesched.api.groups import group_key
from kubesched.api.kinds import PODS, Kind
from kubesched.api.storage import claims_of
from kubesched.api.types import ObjectMeta, ObjectReference, OwnerReference
from kubesched.api.wire import MERGE_PATCH, STRATEGIC_PATCH, DeleteOptions, Item, PatchOptions, Transport, tolerate
from kubesched.base.times import Clock, timestamp
from kubesched.client.event_counting import Counts
from kubesched.client.event_writer import EventWriter

from ..kubelets import Handler, Problems, Stage, WatchCache

__all__ = [
    "BY_CLAIM",
    "BY_GROUP",
    "BY_NAMESPACE",
    "BY_NODE",
    "BY_OWNER",
    "Context",
    "ControllerSettings",
    "Data",
    "annotations_of",
]
__all__ += ["controller_of", "data_of", "differ", "owner_key", "owners_of", "spec_of", "status_of", "version_of"]

Data = dict[str, Any]

#: Names of indexes: objects by the UID of their controller; pods by node, by namespace, by the claims they use, and by
#: their group.
BY_OWNER, BY_NODE, BY_NAMESPACE, BY_CLAIM, BY_GROUP = "owner", "node", "namespace", "claim", "group"

_WRITES_PER_TURN: Final = 32


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings of the controllers: times in seconds, and limits.

    Defaults are kube-controller-manager's where it has them.

    Attributes:
        batch_seconds: time during which changes of pods are collected before their owner is reconciled.
        burst: most pods that one reconcile of a workload creates or deletes.
        node_grace_seconds: silence after which a node is unreachable (--node-monitor-grace-period).
        missing_node_seconds: time after which pods on a node that does not exist are deleted.
        terminated_pods: most finished pods that are kept (--terminated-pod-gc-threshold); 0 keeps all.
        stages: rules for times and failures of storage; the kubelets use those for pods.
        device_taint_rules: True if DeviceTaintRules evict pods (upstream's gate DRADeviceTaintRules).
        features: feature gates of pod groups that are on (rules/groups §2).
        disruption_seconds: time after which a granted eviction that has not happened counts as a healthy pod again.
        root_ca: certificate authority of the API server, as PEM text, for the ConfigMap of each namespace.
    """

    batch_seconds: float = 0.1
    burst: int = 500
    node_grace_seconds: float = 40.0
    missing_node_seconds: float = 40.0
    terminated_pods: int = 12_500
    stages: tuple[Stage, ...] = ()
    device_taint_rules: bool = False
    features: frozenset[str] = frozenset()
    disruption_seconds: float = 120.0
    root_ca: str | None = None


@lru_cache(maxsize=128)
def data_of(item: Item) -> Data:
    """Return an object as plain data. The last 128 results are cached and shared: never change one."""
    return item.data()


def spec_of(item: Item) -> Data:
    """Return the spec of an object as plain data. It is shared: never change it."""
    return data_of(item).get("spec") or {}


def status_of(item: Item) -> Data:
    """Return the status of an object as plain data. It is shared: never change it."""
    return data_of(item).get("status") or {}


def owners_of(item: Item) -> tuple[OwnerReference, ...]:
    """Return the owner references of an object of any kind."""
    if item.kind.type is None:
        return from_builtins(data_of(item)["metadata"], ObjectMeta).owner_references
    references: tuple[OwnerReference, ...] = item.typed.metadata.owner_references
    return references


def annotations_of(item: Item | None) -> dict[str, str]:
    """Return the annotations of an object of a kind that has a type; an empty map for None."""
    return dict(item.typed.metadata.annotations) if item is not None else {}


def version_of(item: Item) -> dict[str, str]:
    """Return a precondition for a patch: the patch fails with a conflict when the object has changed since."""
    return {"uid": item.uid, "resourceVersion": str(item.resource_version)}


def differ(old: Item | None, new: Item | None, of: Callable[[Item], object]) -> bool:
    """True if ``of`` returns different values for two versions of an object, or one version is missing."""
    return old is None or new is None or of(old) != of(new)


def controller_of(item: Item) -> OwnerReference | None:
    """Return the owner reference marked as controller."""
    for reference in owners_of(item):  # called twenty times per pod: no generator
        if reference.controller:
            return reference
    return None


def owner_key(item: Item, kind: Kind) -> str:
    """Return the key of the controller of an object, if it is of the kind; else an empty text."""
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


def _group_keys(item: Item) -> Iterable[str]:
    key = group_key(item.typed)
    return (key,) if key else ()


class Context:
    """Context of one manager's controllers. ``rng`` is for choices the API leaves open."""

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
        if settings.features:
            self.pods.add_index(BY_GROUP, _group_keys)
        self.pods.add_handler(self._pod_changed)

    def cache(self, kind: Kind) -> WatchCache:
        """Return the cache of a kind. The manager fills the caches that were asked for before it runs."""
        if kind not in self.caches:
            self.caches[kind] = WatchCache(self.client, kind, self.problems, self.rng)
        return self.caches[kind]

    def watch(self, kind: Kind, handler: Handler) -> WatchCache:
        """Call a handler for every change of a kind. Handlers only add keys. Returns the cache of the kind."""
        cache = self.cache(kind)
        cache.add_handler(handler)
        return cache

    def owned_cache(self, kind: Kind) -> WatchCache:
        """Return the cache of a kind with an index by controlling owner."""
        cache = self.cache(kind)
        cache.add_index(BY_OWNER, _owner_uid)
        return cache

    def now(self) -> float:
        return self.clock.now()

    def now_text(self) -> str:
        return timestamp(self.clock.now())

    def condition(self, type_: str, status: str, reason: str, message: str | None = None) -> Data:
        """Return a new condition, dated now."""
        text = {} if message is None else {"message": message}
        return {"type": type_, "status": status, "reason": reason, **text, "lastTransitionTime": self.now_text()}

    def with_condition(self, conditions: Sequence[Data] | None, *condition: str, updated: bool = False) -> list[Data]:
        """Return conditions with one of them set, as by :meth:`condition`.

        The transition time changes with its status only.

        ``updated`` adds a ``lastUpdateTime``, which also changes with reason and message.
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
        """Return the pods controlled by an object, also those being deleted."""
        return self.pods.indexed(BY_OWNER, uid)

    def members(self, key: str) -> list[Item]:
        """Return the pods of a pod group, by ``namespace/name``, also those that have ended. Needs the feature gates."""
        return self.pods.indexed(BY_GROUP, key)

    def is_going(self, item: Item) -> bool:
        """True if an object is being deleted. A pod counts from our own request, before the watch delivers it."""
        if item.kind.type is None:
            return "deletionTimestamp" in data_of(item)["metadata"]
        return item.uid in self._doomed or item.typed.metadata.deletion_timestamp is not None

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if self._doomed and (new is None or new.typed.metadata.deletion_timestamp is not None):
            self._doomed.discard(item.uid)

    async def get(self, kind: Kind, namespace: str, name: str) -> Item | None:
        """Read an object from the server, because a cache may be stale. None if it does not exist."""
        with tolerate(404):
            return await self.client.get(kind, namespace, name)
        return None

    async def is_gone(self, kind: Kind, namespace: str, reference: OwnerReference | ObjectReference) -> bool:
        """True if the server has no such object. A cache may lag behind and cannot tell."""
        live = await self.get(kind, namespace if kind.namespaced else "", reference.name)
        return live is None or live.uid != reference.uid

    async def create(self, kind: Kind, namespace: str, obj: Mapping[str, Any]) -> Item:
        return await self._noted(self.client.create(kind, namespace, obj))

    async def patch(self, item: Item, patch: Any, *, subresource: str = "", patch_type: str = MERGE_PATCH) -> Item:
        """Patch an object, by a merge patch unless ``patch_type`` says otherwise."""
        options: PatchOptions = {"patch_type": patch_type, "subresource": subresource}
        return await self._noted(self.client.patch(item.kind, item.namespace, item.name, patch, **options))

    async def update(self, item: Item, data: Mapping[str, Any], *, subresource: str = "") -> Item:
        """Replace an object. Refused with 409 when it has changed since ``data`` was read."""
        return await self._noted(
            self.client.update(item.kind, item.namespace, item.name, data, subresource=subresource)
        )

    async def patch_status(self, item: Item, status: Data, *, unless: tuple[int, ...] = (404, 409)) -> Item | None:
        """Merge into the status of an object.

        Returns None if the server refuses with one of the codes in ``unless``: the object is gone or has changed.
        """
        body = {"metadata": {"uid": item.uid}, "status": status}
        with tolerate(*unless):
            return await self.patch(item, body, subresource="status", patch_type=STRATEGIC_PATCH)
        return None

    async def write_status(self, item: Item, status: Data) -> Item:
        """Replace the status of an object if it differs, without members that are None. 409 as for :meth:`update`."""
        status = {key: value for key, value in status.items() if value is not None}
        if same_json(status, status_of(item)):
            return item
        return await self.update(item, {**data_of(item), "status": status}, subresource="status")

    async def delete(self, item: Item, *, grace_period_seconds: int | None = None) -> None:
        """Delete an object, if it still exists."""
        options: DeleteOptions = {"uid": item.uid, "grace_period_seconds": grace_period_seconds}
        if item.kind != PODS:
            options["propagation_policy"] = "Background"  # the pods of Jobs would stay otherwise
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
        """Yield to the event loop every few writes, because no write in one process waits for anything."""
        self._writes += 1
        if self._writes % _WRITES_PER_TURN == 0:
            await asyncio.sleep(0)
