"""Objects whose owners never existed or vanished unseen: the part of garbage collection that the store cannot do.

The store deletes dependents when it removes their owner. What is created afterwards, or imported without its owner,
is found here: when none of an object's owners is on the server, it is deleted.
"""

from __future__ import annotations

from typing import Final

from ...api.kinds import JOBS, PODS, REPLICA_SETS, RESOURCE_CLAIMS, REVISIONS, kind_of
from ...api.types import OwnerReference
from ...api.wire import Item
from .base import Controller
from .context import Context, owners_of

__all__ = ["GarbageCollector"]

_LOOKED_AT: Final = (PODS, REPLICA_SETS, JOBS, REVISIONS, RESOURCE_CLAIMS)


class GarbageCollector(Controller):
    """Keys are ``<group resource>|<object key>``."""

    name = "garbagecollector"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._kinds = {kind.group_resource: kind for kind in _LOOKED_AT}
        for kind in _LOOKED_AT:
            self.watch(kind, self._changed)

    def _changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and old is None and not self._owner_is_known(new):
            self.queue.add(f"{new.kind.group_resource}|{new.key}")

    def _owner_is_known(self, item: Item) -> bool:
        """Whether it has no owner, or one that a cache of ours shows: by far the most frequent case."""
        references = owners_of(item)
        return not references or any(self._cached(reference, item.namespace) for reference in references)

    def _cached(self, reference: OwnerReference, namespace: str) -> bool:
        kind = kind_of(reference.api_version, reference.kind)
        cache = self.context.caches.get(kind) if kind is not None else None
        if kind is None or cache is None:
            return False
        owner = cache.get(f"{namespace}/{reference.name}" if kind.namespaced else reference.name)
        return owner is not None and owner.uid == reference.uid

    async def reconcile(self, key: str) -> None:
        plural, _, name = key.partition("|")
        item = self.context.caches[self._kinds[plural]].get(name)
        if item is None:
            return
        for reference in owners_of(item):
            if self._cached(reference, item.namespace) or await self._exists(reference, item.namespace):
                return
        if owners_of(item):
            await self.context.delete(item)

    async def _exists(self, reference: OwnerReference, namespace: str) -> bool:
        kind = kind_of(reference.api_version, reference.kind)
        if kind is None:
            return True  # a kind we cannot ask for gets the benefit of the doubt
        owner = await self.context.get(kind, namespace if kind.namespaced else "", reference.name)
        return owner is not None and owner.uid == reference.uid
