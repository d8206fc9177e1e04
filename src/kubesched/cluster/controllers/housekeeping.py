"""Small loops that keep a cluster in order: objects that each namespace has, and removal of left-over objects.

Pods are collected on deleted nodes and when too many have finished; rules: upstream ``gc_controller.go``, driven by
events and timers instead of a period. The store deletes dependents when it removes their owner. Dependents that are
created later, or imported without their owner, are found here.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kubesched.api.kinds import (
    CONFIG_MAPS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    REVISIONS,
    SERVICE_ACCOUNTS,
    Kind,
    kind_of,
)
from kubesched.api.types import OwnerReference
from kubesched.api.wire import Item, tolerate

from .base import Controller, ObjectController
from .context import BY_NODE, Context, data_of, owners_of
from .pods import is_finished

__all__ = ["ABSENT_OWNER", "COLLECTED", "GarbageCollector", "PodGarbage", "RootCertificates", "ServiceAccounts"]

_FINISHED, _NODE = "finished", "node:"
#: Kinds whose objects are deleted when none of their owners exists.
COLLECTED: Final = (PODS, REPLICA_SETS, JOBS, REVISIONS, RESOURCE_CLAIMS)

#: Annotation of an object that came from elsewhere without its owners: with the value "true" it is not collected.
ABSENT_OWNER: Final = "kubesched.io/owner-absent"


class _InEachNamespace(ObjectController):
    """Controller that keeps one object in each namespace: creates it, and writes it again when it was changed."""

    kind = NAMESPACES
    #: Kind and name of the object.
    made: ClassVar[Kind]
    object_name: ClassVar[str]

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._made = context.watch(self.made, self._made_changed)

    def wanted(self) -> dict[str, Any]:
        """Return the members that the object has, besides its metadata."""
        return {}

    def _made_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if item.name == self.object_name:
            self.queue.add(item.namespace)

    async def reconcile_object(self, item: Item) -> None:
        if self.context.is_going(item):
            return
        known, wanted = self._made.get(f"{item.name}/{self.object_name}"), self.wanted()
        if known is None:
            with tolerate("AlreadyExists"):
                await self.context.create(self.made, item.name, {"metadata": {"name": self.object_name}, **wanted})
        elif any(data_of(known).get(name) != value for name, value in wanted.items()):
            await self.context.update(known, {**data_of(known), **wanted})


class ServiceAccounts(_InEachNamespace):
    """Controller that creates the account ``default`` of each namespace, and again when it was deleted.

    Clients wait for this account.

    Rules: upstream ``serviceaccount``.
    """

    name = "serviceaccount"
    component = "service-account-controller"
    made, object_name = SERVICE_ACCOUNTS, "default"


class RootCertificates(_InEachNamespace):
    """Controller of the ConfigMap ``kube-root-ca.crt`` of each namespace: the authority that signed the API server's
    certificate.

    Rules: upstream ``rootcacertpublisher``.
    """

    name = "root-ca-certificate-publisher"
    component = "root-ca-cert-publisher"
    made, object_name = CONFIG_MAPS, "kube-root-ca.crt"

    def wanted(self) -> dict[str, Any]:
        return {"data": {"ca.crt": self.context.settings.root_ca or ""}}


class PodGarbage(Controller):
    """Controller that deletes pods on deleted nodes, and finished pods beyond a threshold.

    Keys are ``node:<name>`` and ``finished``.
    """

    name = "podgc"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = context.watch(NODES, self._node_changed)
        self._missing: dict[str, float] = {}
        self._finished: dict[str, None] = {}
        context.watch(PODS, self._pod_changed)

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            self.queue.add(_NODE + item.name)
        else:
            self._missing.pop(item.name, None)

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        node = new.typed.spec.node_name if new is not None else ""
        if node and self._nodes.get(node) is None and (old is None or not old.typed.spec.node_name):
            self.queue.add(_NODE + node)
        if new is None or not is_finished(new.typed):
            self._finished.pop(item.key, None)
            return
        self._finished[item.key] = None
        if 0 < self.context.settings.terminated_pods < len(self._finished):
            self.queue.add(_FINISHED)

    async def reconcile(self, key: str) -> None:
        if key == _FINISHED:
            await self._thin_out()
        else:
            await self._collect(key.removeprefix(_NODE))

    async def _collect(self, node: str) -> None:
        """Delete the pods of a node that has been gone for a while, without grace period."""
        pods = self.context.pods.indexed(BY_NODE, node)
        if not self.context.settings.terminated_pods:
            pods = [pod for pod in pods if not is_finished(pod.typed)]
        if self._nodes.get(node) is not None or not pods:
            self._missing.pop(node, None)
            return
        now = self.context.now()
        left = self._missing.setdefault(node, now) + self.context.settings.missing_node_seconds - now
        if left > 0:
            self.queue.add_after(_NODE + node, left)
            return
        if await self.context.get(NODES, "", node) is not None:
            return
        for pod in pods:
            if not is_finished(pod.typed):  # marked as Failed first, so that its owner counts it
                text = "PodGC: node no longer exists"
                why = self.context.condition("DisruptionTarget", "True", "DeletionByPodGC", text)
                await self.context.patch_status(pod, {"phase": "Failed", "conditions": [why]})
            await self.context.delete(pod, grace_period_seconds=0)
        self._missing.pop(node, None)

    async def _thin_out(self) -> None:
        """Delete the oldest finished pods beyond the threshold."""
        excess = len(self._finished) - self.context.settings.terminated_pods
        found = [pod for key in self._finished if (pod := self.context.pods.get(key)) is not None]
        found.sort(key=lambda pod: (pod.typed.metadata.creation_timestamp or "", pod.key))
        for pod in found[: max(0, excess)]:
            self._finished.pop(pod.key, None)
            await self.context.delete(pod, grace_period_seconds=0)


def _is_kept(item: Item) -> bool:
    return (data_of(item)["metadata"].get("annotations") or {}).get(ABSENT_OWNER) == "true"


class GarbageCollector(Controller):
    """Controller that deletes objects without an owner on the server. Keys are ``<group resource>|<object key>``."""

    name = "garbagecollector"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        for kind in COLLECTED:
            self.each(context.watch(kind, self._changed), self._collect, f"{kind.group_resource}|")

    def _changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Enqueue a new object whose owners are in none of our caches, which is rare."""
        if new is not None and old is None:
            owners = owners_of(new)
            if owners and not any(self._is_cached(owner, new.namespace) for owner in owners) and not _is_kept(new):
                self.queue.add(f"{new.kind.group_resource}|{new.key}")

    def _is_cached(self, reference: OwnerReference, namespace: str) -> bool:
        kind = kind_of(reference.api_version, reference.kind)
        cache = self.context.caches.get(kind) if kind is not None else None
        if kind is None or cache is None:
            return False
        owner = cache.get(f"{namespace}/{reference.name}" if kind.namespaced else reference.name)
        return owner is not None and owner.uid == reference.uid

    async def _collect(self, item: Item) -> None:
        owners = owners_of(item)
        for owner in owners:
            kind = kind_of(owner.api_version, owner.kind)
            if kind is None:
                return  # the kind is unknown to us: assume that the owner exists
            if self._is_cached(owner, item.namespace) or not await self.context.is_gone(kind, item.namespace, owner):
                return
        if owners:
            await self.context.delete(item)
