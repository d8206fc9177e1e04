"""The hollow CSI provisioner: makes volumes, and keeps the CSIStorageCapacity objects true.

    claim with a provisioner's name, and a selected node if its class waits for one
        ──delay by stage rules──▶ volume with the node's topology, reserved for the claim
        └─ no space, or a failure by stage rules
              ──ResourceExhausted──▶ the selected-node annotation is removed: the pod is scheduled again
              └─ any other reason ──▶ tried again there, after 1 s doubling up to 5 min

As upstream's external-provisioner does. Next: :mod:`.volumes` binds what is made here; pools are in
:mod:`.csi_drivers`.
"""

from __future__ import annotations

import hashlib
from typing import Final

from kubesched.api.kinds import CLAIMS, CSI_STORAGE_CAPACITIES, NODES, STORAGE_CLASSES, VOLUMES
from kubesched.api.quantity import QuantityError, int_value
from kubesched.api.storage import (
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    class_of,
)
from kubesched.api.wire import Item, tolerate
from kubesched.client.event_writer import NORMAL, WARNING

from .base import Controller
from .context import Context, Data, annotations_of
from .csi_drivers import Pools, Segment, exact_bytes
from .storage_work import Attempts
from .volumes import PROVISIONER, PV_PROTECTION, claim_reference, reserved_for

__all__ = ["Provisioner"]

PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_CLAIM, _CAPACITY = "claim:", "capacity:"
#: Namespace of the capacity objects, and the annotation that marks them as ours.
_NAMESPACE: Final = "kube-system"
_MADE_BY: Final = "kubesched.io/capacity-of"
_EXHAUSTED: Final = "ResourceExhausted"


class Provisioner(Controller):
    """Controller for all hollow drivers of a cluster.

    Keys are claims, and classes (or a segment of one) whose capacity may have changed.
    """

    name = "csi-provisioner"
    component = "csi-provisioner"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._classes = context.cache(STORAGE_CLASSES)
        self._nodes = context.cache(NODES)
        self._attempts = Attempts(context, "PersistentVolumeClaim", self.queue)
        self._pools = Pools(context, self._pools_changed)
        self._capacities = context.cache(CSI_STORAGE_CAPACITIES)
        self._capacities.add_index("class", lambda item: (item.typed.storage_class_name,))
        self.each(context.watch(CLAIMS, self._claim_changed), self._claim, _CLAIM)
        context.watch(VOLUMES, self._volume_changed)

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None:
            self.queue.add(_CLAIM + new.key)
        else:
            self._attempts.forget(item)

    def _volume_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Enqueue the claim of a volume that was deleted before it was bound: the volume is made again."""
        for key in reserved_for(item) if new is None else ():
            self.queue.add(_CLAIM + key)

    def _pools_changed(self, classes: set[str], segment: str | None) -> None:
        for name in sorted(classes):
            self.queue.add(_CAPACITY + (name if segment is None else f"{name}/{segment}"))

    async def reconcile(self, key: str) -> None:
        if key.startswith(_CAPACITY):
            name, one, segment = key.removeprefix(_CAPACITY).partition("/")
            await self._write_capacities(name, segment if one else None)
        else:
            await super().reconcile(key)

    async def _claim(self, item: Item) -> None:
        claim: PersistentVolumeClaim = item.typed
        annotations, storage_class = claim.metadata.annotations, self._classes.get(class_of(claim))
        chosen = annotations.get(SELECTED_NODE, "")
        if (
            claim.spec.volume_name
            or claim.metadata.deletion_timestamp is not None
            or storage_class is None
            or not annotations.get(PROVISIONER)
            or (not chosen and storage_class.typed.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER)
        ):
            self._attempts.forget(item)
            return
        ended = self._attempts.end(item, _CLAIM + item.key, storage_class.name, chosen)
        if ended is None:
            return
        reason, text = ended if any(ended) else await self._make(item, storage_class, chosen)
        if reason:
            await self._failed(item, storage_class, chosen, reason, text)
        else:
            self._attempts.forget(item)

    async def _make(self, item: Item, storage_class: Item, node: str) -> tuple[str, str]:
        """Make the volume. Returns the reason and the text of a failure, else empty texts."""
        claim: PersistentVolumeClaim = item.typed
        size = claim.spec.resources.requests.get("storage", "1Gi")
        try:
            wanted = int_value(size)
        except QuantityError as error:
            return "InvalidArgument", str(error)
        segment, text = self._place(storage_class, node, wanted)
        if segment is None:
            return _EXHAUSTED, text
        await self._create(item, storage_class, segment, size)
        return "", ""

    def _place(self, storage_class: Item, node: str, wanted: int) -> tuple[Segment | None, str]:
        """Return the segment for a volume, or the reason why there is none.

        It is the segment of the selected node. Without a selected node, it is a segment with enough space.
        """
        key, found = self._pools.key_of(storage_class), self._nodes.get(node)
        if node:
            value = found.typed.metadata.labels.get(key, "") if found is not None else ""
            places = [(key, value) if value else ("", "")]
        else:
            places = self._pools.segments(storage_class) or [("", "")]
        free = {place: self._pools.free(storage_class, place[1]) for place in places}
        enough = [place for place, left in free.items() if left is None or left >= wanted]
        if enough:
            return self.context.rng.choice(enough), ""
        most = max(left or 0 for left in free.values())
        where = places[0][1] if len(places) == 1 and places[0][1] else "any one place"
        return None, f"{exact_bytes(wanted)} asked for, {exact_bytes(most)} free in {where}"

    async def _create(self, item: Item, storage_class: Item, segment: Segment, size: str | float) -> None:
        claim: PersistentVolumeClaimSpec = item.typed.spec
        name, driver = f"pvc-{item.uid}", storage_class.typed.provisioner
        spec: Data = {
            "capacity": {"storage": size},
            "accessModes": claim.access_modes or ("ReadWriteOnce",),
            "volumeMode": claim.volume_mode or "Filesystem",
            "storageClassName": storage_class.name,
            "persistentVolumeReclaimPolicy": storage_class.data().get("reclaimPolicy", "Delete"),
            "claimRef": claim_reference(item),
            "csi": {"driver": driver, "volumeHandle": name},
        }
        if claim.volume_attributes_class_name:
            spec["volumeAttributesClassName"] = claim.volume_attributes_class_name
        if segment[0]:
            expression = {"key": segment[0], "operator": "In", "values": [segment[1]]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        metadata = {"name": name, "annotations": {PROVISIONED_BY: driver}, "finalizers": [PV_PROTECTION]}
        with tolerate("AlreadyExists"):  # made before a restart; the watch event binds them
            await self.context.create(VOLUMES, "", {"metadata": metadata, "spec": spec})
            text = f"Successfully provisioned volume {name}"
            await self.context.events.record(item, driver, NORMAL, "ProvisioningSucceeded", text)

    async def _failed(self, item: Item, storage_class: Item, node: str, reason: str, text: str) -> None:
        error = f"rpc error: code = {reason} desc = {text}"
        message = f'failed to provision volume with StorageClass "{storage_class.name}": {error}'
        driver = storage_class.typed.provisioner
        await self.context.events.record(item, driver, WARNING, "ProvisioningFailed", message)
        if reason == _EXHAUSTED and node:
            self._attempts.forget(item)
            mark = {"uid": item.uid, "annotations": {SELECTED_NODE: None}}
            await self.context.patch(item, {"metadata": mark})
        else:
            self._attempts.again(item)

    async def _write_capacities(self, name: str, only: str | None) -> None:
        """Write one capacity object per segment of a class, and delete those that no longer apply.

        ``only`` is the value of the one segment that has changed; None stands for all.
        """
        storage_class = self._classes.get(name)
        wanted: dict[str, tuple[Segment, int]] = {}
        # A class without a limit needs no segments, and there are many where each node is one.
        if storage_class is not None and self._pools.free(storage_class, "") is not None:
            for segment in self._pools.segments(storage_class):
                if only in (None, segment[1]) and (free := self._pools.free(storage_class, segment[1])) is not None:
                    wanted[_object_name(name, segment)] = segment, free
        for item in self._capacities.indexed("class", name) if only is None else ():
            if item.name not in wanted and annotations_of(item).get(_MADE_BY) == name:
                await self.context.delete(item)
        for object_name, ((key, value), free) in wanted.items():
            known, capacity = self._capacities.get(f"{_NAMESPACE}/{object_name}"), exact_bytes(free)
            if known is None:
                body: Data = {
                    "metadata": {"name": object_name, "annotations": {_MADE_BY: name}},
                    "storageClassName": name,
                    "nodeTopology": {"matchLabels": {key: value}} if key else {},
                    "capacity": capacity,
                }
                await self.context.create(CSI_STORAGE_CAPACITIES, _NAMESPACE, body)
            elif known.typed.capacity != capacity:
                await self.context.patch(known, {"capacity": capacity})


def _object_name(storage_class: str, segment: Segment) -> str:
    digest = hashlib.sha256("\0".join((storage_class, *segment)).encode()).hexdigest()
    return f"csisc-{digest[:10]}"
