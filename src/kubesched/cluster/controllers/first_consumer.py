"""Stands in for the scheduler's VolumeBinding plugin where that is not there: claims that wait get their pod's node.

The choice is made after the pod is bound: a free volume that the pod's node reaches is reserved, or else the claim is
marked with the node. What a scheduler has written already is left alone. Next: :mod:`.volumes`.
"""

from __future__ import annotations

from typing import Final

from ...api.kinds import CLAIMS, NODES, PODS, STORAGE_CLASSES, VOLUMES
from ...api.selectors import NodeSelectorMatcher, SelectorError
from ...api.storage import SELECTED_NODE, PersistentVolume, class_of
from ...api.types import Node
from ...api.wire import Item
from .base import Controller
from .context import BY_CLAIM, Context
from .pods import claims_of, is_finished
from .volume_match import best_volume, claim_reference

__all__ = ["FirstConsumer"]

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class FirstConsumer(Controller):
    """Keys are pods."""

    name = "first-consumer"
    component = "ephemeral-volume-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.cache(CLAIMS)
        self._volumes = context.cache(VOLUMES)
        self._classes = context.cache(STORAGE_CLASSES)
        self._nodes = context.cache(NODES)
        self.watch(PODS, self._pod_changed)
        self.watch(CLAIMS, self._claim_changed)
        self.watch(VOLUMES, self._supply_changed)
        self.watch(STORAGE_CLASSES, self._supply_changed)

    def _pod_changed(self, old: Item | None, new: Item | None) -> None:
        if new is not None and new.typed.spec.volumes:
            self.queue.add(new.key)

    def _claim_changed(self, old: Item | None, new: Item | None) -> None:
        if new is not None:
            for pod in self.context.pods.indexed(BY_CLAIM, new.key):
                self.queue.add(pod.key)

    def _supply_changed(self, old: Item | None, new: Item | None) -> None:
        if old is None:
            for claim in self._claims.values():
                self._claim_changed(None, claim)

    async def reconcile(self, key: str) -> None:
        item = self.context.pods.get(key)
        if item is None or is_finished(item.typed) or self.context.is_going(item):
            return
        node = self._nodes.get(item.typed.spec.node_name) if item.typed.spec.node_name else None
        for claim_key, _ in claims_of(item.typed):
            claim = self._claims.get(claim_key)
            if claim is not None and node is not None:
                await self._choose(claim, node.typed)

    async def _choose(self, item: Item, node: Node) -> None:
        data = item.data()
        spec, metadata = data["spec"], data["metadata"]
        storage_class = self._classes.get(class_of(item.typed))
        if spec.get("volumeName") or SELECTED_NODE in (metadata.get("annotations") or {}):
            return
        if storage_class is None or storage_class.data().get("volumeBindingMode") != "WaitForFirstConsumer":
            return
        reachable = [one for one in self._volumes.values() if _reaches(one.typed, node)]
        free = [one for one in reachable if one.typed.spec.claim_ref is None]
        volume = best_volume(reachable, free, item.typed)
        if volume is not None and volume.typed.spec.claim_ref is None:
            version = {"resourceVersion": str(volume.resource_version)}
            await self.context.patch(volume, {"metadata": version, "spec": {"claimRef": claim_reference(item)}})
        elif volume is None and storage_class.data().get("provisioner") != _NO_PROVISIONER:
            mark = {"uid": item.uid, "annotations": {SELECTED_NODE: node.name}}
            await self.context.patch(item, {"metadata": mark})


def _reaches(volume: PersistentVolume, node: Node) -> bool:
    """Whether a volume's node affinity lets a node use it."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    try:
        matcher = NodeSelectorMatcher.compile(affinity.required)
    except SelectorError:
        return False
    return matcher.matches(node.labels, node.name)
