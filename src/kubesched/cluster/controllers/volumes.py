"""Claims and volumes: binding, loss, release, reclaim, and protection while in use::

    claim Pending ──volume found or provisioned──▶ Bound ──volume gone──▶ Lost
    volume Available ──▶ Bound ──claim gone──▶ Released ──reclaim policy Delete──▶ gone

An Immediate claim is bound here. A WaitForFirstConsumer claim waits until the scheduler writes either a volume's
``claimRef`` or the annotation ``volume.kubernetes.io/selected-node``; then it is bound here, or handed to
:mod:`.provisioner`. Source: upstream ``pv_controller`` and ``component-helpers/storage/volume``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubesched.api.kinds import CLAIMS, PODS, STORAGE_CLASSES, VOLUMES
from kubesched.api.quantity import QuantityError, QuantityText, parse_quantity
from kubesched.api.selectors import SelectorError, compile_label_selector
from kubesched.api.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    claims_of,
    class_of,
)
from kubesched.api.types import ObjectReference
from kubesched.api.wire import Item, tolerate
from kubesched.client.event_writer import NORMAL, WARNING

from .base import Controller, ObjectController
from .context import BY_CLAIM, Context, Data, owners_of, status_of, version_of
from .pods import is_finished, owned_body

__all__ = ["PROVISIONER", "PV_PROTECTION", "EphemeralVolumes", "Volumes", "claim_reference", "reserved_for"]

PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
PVC_PROTECTION: Final = "kubernetes.io/pvc-protection"
PV_PROTECTION: Final = "kubernetes.io/pv-protection"

_WAITS: Final = "waiting for first consumer to be created before binding"
_NOTHING: Final = "no persistent volumes available for this claim and no storage class is set"
_NO_PLUGIN: Final = "no volume plugin matched name: kubernetes.io/no-provisioner"
_LOST: Final = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
_MISBOUND: Final = "Two claims are bound to the same volume, this one is bound incorrectly"
_EXTERNAL: Final = (
    "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system administrator."
    " If volume creation is delayed, please verify that the provisioner is running and correctly registered."
)

_CLAIM, _VOLUME = "claim:", "volume:"
#: Indexes of volumes: by the claim they are bound to or reserved for, and the free ones by class.
_BY_REFERENCE, _FREE = "claimRef", "free"


class Volumes(Controller):
    """Controller that binds claims to volumes."""

    name = "persistentvolume"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.watch(CLAIMS, self._claim_changed)
        self._volumes = context.watch(VOLUMES, self._volume_changed)
        self._volumes.add_index(_BY_REFERENCE, reserved_for)
        self._volumes.add_index(_FREE, _free_class)
        self._classes = context.watch(STORAGE_CLASSES, self._class_changed)
        context.watch(PODS, self._pod_changed)
        self.each(self._claims, self._claim, _CLAIM)
        self.each(self._volumes, self._volume, _VOLUME)

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        self.queue.add(_CLAIM + item.key)
        for volume in self._volumes.indexed(_BY_REFERENCE, item.key):
            if new is None or new.typed.spec.volume_name not in ("", volume.name):
                self.queue.add(_VOLUME + volume.name)

    def _volume_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        self.queue.add(_VOLUME + item.name)
        for key in reserved_for(item):
            self.queue.add(_CLAIM + key)
        if new is not None and _free_class(new) and (old is None or not _free_class(old)):
            self._retry_pending()

    def _class_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if old is None:
            self._retry_pending()

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Enqueue the claims of a pod. A pod that goes may release a claim; a new pod may end a claim's waiting."""
        if (old is None or new is None) and item.typed.spec.volumes:
            for key, _ in claims_of(item.typed):
                self.queue.add(_CLAIM + key)

    def _retry_pending(self) -> None:
        for item in self._claims.values():
            if not item.typed.spec.volume_name:
                self.queue.add(_CLAIM + item.key)

    async def _set_phase(self, item: Item, phase: str, **more: Any) -> None:
        await self.context.write_status(item, {**status_of(item), **more, "phase": phase})

    async def _protect(self, item: Item, finalizer: str, *, used: bool) -> Item:
        """Add the finalizer to an object in use, and remove it from an unused object."""
        known = item.typed.metadata.finalizers
        if (finalizer in known) == used:
            return item
        finalizers = [*known, finalizer] if used else [one for one in known if one != finalizer]
        return await self.context.patch(item, {"metadata": {**version_of(item), "finalizers": finalizers or None}})

    # -- claims ----------------------------------------------------------------------------------------

    async def _claim(self, item: Item) -> None:
        claim: PersistentVolumeClaim = item.typed
        if claim.metadata.deletion_timestamp is not None:
            # As upstream, pods without a node do not protect a claim: none will start with a claim that is being
            # deleted.
            if not any(pod.typed.spec.node_name for pod in self.context.pods.indexed(BY_CLAIM, item.key)):
                await self._protect(item, PVC_PROTECTION, used=False)
            return
        item = await self._protect(item, PVC_PROTECTION, used=True)
        claim = item.typed
        volume = self._volumes.get(claim.spec.volume_name)
        if BIND_COMPLETED in claim.metadata.annotations:
            await self._completed(item, volume)
        elif not claim.spec.volume_name:
            await self._unbound(item)
        elif volume is not None:  # otherwise the claim waits for its volume
            await self._prebound(item, volume)

    async def _completed(self, item: Item, volume: Item | None) -> None:
        """Keep a bound claim bound as long as its volume refers to it."""
        if volume is not None and may_bind(volume.typed, item.typed):
            await self._bind(item, volume)
        elif item.typed.status.phase != "Lost":
            reason, text = ("ClaimLost", _LOST) if volume is None else ("ClaimMisbound", _MISBOUND)
            await self.record(item, WARNING, reason, text)
            await self._set_phase(item, "Lost")

    async def _prebound(self, item: Item, volume: Item) -> None:
        """Bind a claim to the volume that it names, if the volume is free for it."""
        if not may_bind(volume.typed, item.typed):
            text = f'volume "{volume.name}" already bound to a different claim.'
            await self.record(item, WARNING, "FailedBinding", text)
        elif volume.typed.spec.claim_ref is None and (why := mismatch(volume.typed, item.typed)):
            text = f'Cannot bind to requested volume "{volume.name}": {why}'
            await self.record(item, WARNING, "VolumeMismatch", text)
        else:
            await self._bind(item, volume)

    async def _unbound(self, item: Item) -> None:
        claim: PersistentVolumeClaim = item.typed
        wanted = class_of(claim)
        found = self._classes.get(wanted) if wanted else None
        storage_class: StorageClass | None = found.typed if found is not None else None
        waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        reserved = self._volumes.indexed(_BY_REFERENCE, item.key)
        volume = best_volume(reserved, () if waits else self._volumes.indexed(_FREE, f"class:{wanted}"), claim)
        if volume is not None:
            await self._bind(item, volume)
        elif waits and SELECTED_NODE not in claim.metadata.annotations:
            await self.record(item, NORMAL, *self._waiting_for(item))
        elif storage_class is not None:
            await self._provision(item, storage_class.provisioner or NO_PROVISIONER)
        elif wanted:
            text = f'storageclass.storage.k8s.io "{wanted}" not found'
            await self.record(item, WARNING, "ProvisioningFailed", text)
        else:
            await self.record(item, NORMAL, "FailedBinding", _NOTHING)

    def _waiting_for(self, item: Item) -> tuple[str, str]:
        """Return reason and text of the event for a claim that waits for the scheduler."""
        users = [pod for pod in self.context.pods.indexed(BY_CLAIM, item.key) if not is_finished(pod.typed)]
        names = sorted(pod.name for pod in users if not pod.typed.spec.node_name)
        if not names:
            return "WaitForFirstConsumer", _WAITS
        pods = f"pod{'s' if len(names) > 1 else ''} {','.join(names)}"
        return "WaitForPodScheduled", f"waiting for {pods} to be scheduled"

    async def _provision(self, item: Item, provisioner: str) -> None:
        """Write the name of the provisioner that a claim waits for."""
        if provisioner == NO_PROVISIONER:
            await self.record(item, WARNING, "ProvisioningFailed", _NO_PLUGIN)
        elif item.typed.metadata.annotations.get(PROVISIONER) != provisioner:
            await self.context.patch(item, {"metadata": {"annotations": {PROVISIONER: provisioner}}})
            await self.record(item, NORMAL, "ExternalProvisioning", _EXTERNAL.format(provisioner))

    async def _bind(self, item: Item, volume: Item) -> None:
        """Bind a claim and a volume to each other.

        The reference in the volume and the reference in the claim are each written only if they are missing: an earlier
        reconcile may have written one of them.
        """
        claim: PersistentVolumeClaim = item.typed
        pv: PersistentVolume = volume.typed
        reference, finalizers = pv.spec.claim_ref, pv.metadata.finalizers
        if reference is None or reference.uid != item.uid or PV_PROTECTION not in finalizers:
            metadata: Data = {**version_of(volume)}
            if reference is None:
                metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
            if PV_PROTECTION not in finalizers:
                metadata["finalizers"] = [*finalizers, PV_PROTECTION]
            change = {"metadata": metadata, "spec": {"claimRef": claim_reference(item)}}
            volume = await self.context.patch(volume, change)
        await self._set_phase(volume, "Bound")
        if claim.spec.volume_name != volume.name or BIND_COMPLETED not in claim.metadata.annotations:
            marks = {BIND_COMPLETED: "yes"}
            if not claim.spec.volume_name:
                marks[BOUND_BY_CONTROLLER] = "yes"
            change = {"metadata": {"uid": item.uid, "annotations": marks}, "spec": {"volumeName": volume.name}}
            item = await self.context.patch(item, change)
        modes, capacity = list(pv.spec.access_modes) or None, pv.spec.capacity or None
        await self._set_phase(item, "Bound", accessModes=modes, capacity=capacity)

    # -- volumes ---------------------------------------------------------------------------------------

    async def _volume(self, item: Item) -> None:
        volume: PersistentVolume = item.typed
        reference = volume.spec.claim_ref or ObjectReference()
        claim = self._claims.get(f"{reference.namespace}/{reference.name}")
        if claim is not None and claim.uid != reference.uid:
            claim = None
        if reference.uid and claim is None and not await self.context.is_gone(CLAIMS, reference.namespace, reference):
            return  # our cache is behind
        if volume.metadata.deletion_timestamp is not None:
            if claim is None or claim.typed.spec.volume_name != item.name:
                await self._protect(item, PV_PROTECTION, used=False)
        elif not reference.uid:
            if volume.spec.claim_ref is None or volume.status.phase not in ("Available", "Bound"):
                await self._set_phase(item, "Available")
        elif claim is not None:
            await self._agree(item, claim)
        elif item.data()["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            await self.context.delete(item)
        else:
            await self._set_phase(item, "Released")

    async def _agree(self, item: Item, claim: Item) -> None:
        """Bind a volume to the claim that it is reserved for. If that claim has another volume, release this one."""
        if claim.typed.spec.volume_name in ("", item.name):
            await self._claim(claim)
            return
        metadata: Data = {**version_of(item)}
        reserved: Data | None = {"uid": None}  # a reservation made by hand stays
        if BOUND_BY_CONTROLLER in item.typed.metadata.annotations:
            metadata["annotations"], reserved = {BOUND_BY_CONTROLLER: None}, None
        freed = await self.context.patch(item, {"metadata": metadata, "spec": {"claimRef": reserved}})
        await self._set_phase(freed, "Available")


def reserved_for(item: Item) -> Iterable[str]:
    """Return the key of the claim that a volume is bound to or reserved for, if there is one."""
    reference = item.typed.spec.claim_ref
    return (f"{reference.namespace}/{reference.name}",) if reference is not None else ()


def _free_class(item: Item) -> Iterable[str]:
    return () if item.typed.spec.claim_ref is not None else (f"class:{class_of(item.typed)}",)


# -- which volume suits a claim ---------------------------------------------------------------------------


def claim_reference(claim: Item) -> dict[str, Any]:
    """Return a volume's reference to a claim."""
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "namespace": claim.namespace, "name": claim.name, "uid": claim.uid}


def may_bind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if a volume is free, or reserved for this very claim."""
    reference, metadata = volume.spec.claim_ref, claim.metadata
    if reference is None:
        return True
    same = (reference.namespace, reference.name) == (metadata.namespace, metadata.name)
    return same and reference.uid in ("", metadata.uid)


def mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return the reason why a volume does not suit a claim, in upstream's words; empty when it does."""
    body, spec = volume.spec, claim.spec
    if volume.metadata.deletion_timestamp is not None:
        return f'the volume is marked for deletion "{volume.name}"'
    if _size(body.capacity) < _size(spec.resources.requests):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if (body.volume_attributes_class_name or "") != (spec.volume_attributes_class_name or ""):
        return "volumeAttributesClassName does not match"
    if (body.volume_mode or "Filesystem") != (spec.volume_mode or "Filesystem"):
        return "incompatible volumeMode"
    if not set(spec.access_modes) <= set(body.access_modes):
        return "incompatible accessMode"
    return ""


def best_volume(reserved: Iterable[Item], free: Iterable[Item], claim: PersistentVolumeClaim) -> Item | None:
    """Return the volume reserved for a claim, or else the smallest free one that suits."""
    for item in reserved:
        volume: PersistentVolume = item.typed
        if volume.metadata.deletion_timestamp is None and volume.spec.claim_ref and may_bind(volume, claim):
            return item
    try:
        selector = compile_label_selector(claim.spec.selector) if claim.spec.selector is not None else None
    except SelectorError:
        return None  # an invalid selector matches nothing
    suitable = [
        item
        for item in free
        if item.typed.status.phase in ("", "Available")
        and not mismatch(item.typed, claim)
        and (selector is None or selector.matches(item.typed.metadata.labels))
    ]
    return min(suitable, key=lambda item: (_size(item.typed.spec.capacity), item.name), default=None)


def _size(amounts: Mapping[str, QuantityText]) -> int:
    try:
        return parse_quantity(amounts.get("storage", "0")).nanos
    except QuantityError:
        return 0


class EphemeralVolumes(ObjectController):
    """Controller for claims of pods' generic ephemeral volumes: made for the pod, owned by it, deleted with it."""

    name = "ephemeral-volume"
    kind = PODS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.watch(CLAIMS, self._claim_changed)

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and old is None and any(volume.ephemeral is not None for volume in new.typed.spec.volumes):
            self.queue.add(new.key)

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            for owner in owners_of(item):
                if owner.kind == PODS.kind:
                    self.queue.add(f"{item.namespace}/{owner.name}")

    async def reconcile_object(self, item: Item) -> None:
        if is_finished(item.typed) or self.context.is_going(item):
            return
        for claim, template in claims_of(item.typed):
            if template is None or self._claims.get(claim) is not None:
                continue
            with tolerate("AlreadyExists"):
                body = owned_body(item, template, name=claim.partition("/")[2])
                await self.context.create(CLAIMS, item.namespace, body)
