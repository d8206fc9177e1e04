"""Adoption and release: an owner takes matching objects that have no controller, and lets go those that match no more.

Rules: upstream ``ControllerRefManager``. Changes of labels and owners are noted as they come, so a reconcile looks at
the noted objects only. Callers: the controllers of workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from kubesched.api.decode import from_builtins
from kubesched.api.kinds import REPLICATION_CONTROLLERS
from kubesched.api.selectors import Selector, compile_label_selector
from kubesched.api.types import LabelSelector
from kubesched.api.wire import Item, tolerate

from ..kubelets import WatchCache
from .base import ObjectController
from .context import BY_OWNER, controller_of, data_of, owner_key, spec_of, version_of
from .pods import owner_reference

__all__ = ["Ownership"]

#: Index of objects without a controller, by namespace and each of their labels.
_ORPHANS: Final = "orphans"


class _Owner(NamedTuple):
    """Owner's selector. ``bucket`` is a label that all of its objects have, with the namespace."""

    selector: Selector
    bucket: str
    given: Any


def _labels_of(item: Item) -> Mapping[str, str]:
    if item.kind.type is None:
        return data_of(item)["metadata"].get("labels") or {}
    labels: Mapping[str, str] = item.typed.metadata.labels
    return labels


def _owned_as(item: Item) -> object:
    return controller_of(item), _labels_of(item)


def _buckets(item: Item) -> list[str]:
    return [f"{item.namespace}|", *(f"{item.namespace}|{key}={value}" for key, value in _labels_of(item).items())]


def _orphan_buckets(item: Item) -> Iterable[str]:
    return _buckets(item) if controller_of(item) is None else ()


class Ownership:
    """Objects of one kind that the owners of one controller select.

    ``is_wanted`` is false for an owner and an object that it does not adopt although it matches. ``finalizers`` are given to adopted
    objects, and taken from released ones.
    """

    def __init__(
        self,
        controller: ObjectController,
        objects: WatchCache,
        *,
        is_wanted: Callable[[Item, Item], bool] = lambda owner, item: True,
        finalizers: tuple[str, ...] = (),
    ) -> None:
        self._controller, self._context, self._objects = controller, controller.context, objects
        self._is_wanted, self._finalizers = is_wanted, finalizers
        self._owners: dict[str, _Owner] = {}
        #: Keys of owners by bucket, and keys of objects to look at by owner.
        self._by_bucket: dict[str, dict[str, None]] = {}
        self._noted: dict[str, dict[str, None]] = {}
        objects.add_index(_ORPHANS, _orphan_buckets)
        objects.add_handler(self._object_changed)
        controller.cache.add_handler(self._owner_changed)

    def _owner_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        known, given = self._owners.get(item.key), spec_of(new).get("selector") if new is not None else None
        if known is not None and new is not None and (old is None or old.uid == new.uid) and known.given == given:
            return
        if known is not None:
            del self._owners[item.key]
            self._by_bucket[known.bucket].pop(item.key, None)
            if not self._by_bucket[known.bucket]:
                del self._by_bucket[known.bucket]
        if new is None or not given:
            self._noted.pop(item.key, None)
            return
        labels = given if item.kind == REPLICATION_CONTROLLERS else given.get("matchLabels") or {}
        selector = LabelSelector(match_labels=labels) if labels is given else from_builtins(given, LabelSelector)
        pair = next(iter(labels.items()), None)
        bucket = f"{item.namespace}|" if pair is None else f"{item.namespace}|{pair[0]}={pair[1]}"
        self._owners[item.key] = _Owner(compile_label_selector(selector), bucket, given)
        self._by_bucket.setdefault(bucket, {})[item.key] = None
        found = [*self._objects.indexed(_ORPHANS, bucket), *self._objects.indexed(BY_OWNER, item.uid)]
        self._noted.setdefault(item.key, {}).update(dict.fromkeys(one.key for one in found))

    def _object_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if old is not None and new is not None and _owned_as(old) == _owned_as(new):
            return
        kind = self._controller.kind
        before, after = (owner_key(one, kind) if one is not None else "" for one in (old, new))
        if before and before != after and new is not None:
            self._controller.queue.add(before)
        if new is None:
            return
        if after:
            owner = self._owners.get(after)
            if owner is not None and not owner.selector.matches(_labels_of(new)):
                self._note(after, item.key)
        elif controller_of(new) is None:
            for bucket in _buckets(new) if self._by_bucket else ():
                for key in self._by_bucket.get(bucket, ()):
                    if self._owners[key].selector.matches(_labels_of(new)):
                        self._note(key, item.key)

    def _note(self, key: str, of: str) -> None:
        self._noted.setdefault(key, {})[of] = None
        self._controller.queue.add(key)

    async def settle(self, owner: Item) -> None:
        """Adopt and release the noted objects of an owner. Errors of the transport are raised; they are tried again."""
        noted, known = self._noted.get(owner.key), self._owners.get(owner.key)
        while noted and known is not None and not self._context.is_going(owner):
            key = next(iter(noted))
            if (item := self._objects.get(key)) is not None and not self._context.is_going(item):
                await self._claim(owner, known.selector, item)
            noted.pop(key, None)

    async def _claim(self, owner: Item, selector: Selector, item: Item) -> None:
        reference, matches = controller_of(item), selector.matches(_labels_of(item))
        metadata = data_of(item)["metadata"]
        references, finalizers = metadata.get("ownerReferences") or [], metadata.get("finalizers") or []
        if reference is None and matches and self._is_wanted(owner, item):
            references = [*references, owner_reference(owner)]
            finalizers = [*finalizers, *(name for name in self._finalizers if name not in finalizers)]
        elif reference is not None and reference.uid == owner.uid and not matches:
            references = [one for one in references if one.get("uid") != owner.uid]
            finalizers = [name for name in finalizers if name not in self._finalizers]
        else:
            return
        changes = {"ownerReferences": references or None, "finalizers": finalizers or None}
        with tolerate(404):
            await self._context.patch(item, {"metadata": {**version_of(item), **changes}})
