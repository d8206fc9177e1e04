"""Claims and volumes: binding, loss, release, reclaim, and protection of what is in use.

    claim Pending ──volume found or provisioned──▶ Bound ──volume gone──▶ Lost
    volume Available ──▶ Bound ──claim gone──▶ Released ──reclaim policy Delete──▶ gone

An Immediate claim is bound here. A WaitForFirstConsumer claim waits until the scheduler writes either a volume's
``claimRef`` or the annotation ``volume.kubernetes.io/selected-node``; then it is bound here, or handed to
:mod:`.provisioner`. Matching is in :mod:`.volume_match`. Source: upstream ``pv_controller``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ...api.kinds import CLAIMS, PODS, STORAGE_CLASSES, VOLUMES
from ...api.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    StorageClass,
    claims_of,
    class_of,
)
from ...api.wire import Item
from ...client.event_writer import NORMAL, WARNING
from .base import Controller
from .context import BY_CLAIM, Context, Data
from .pods import is_finished
from .volume_match import PV_PROTECTION, best_volume, claim_reference, may_bind, mismatch

__all__ = ["PROVISIONER", "Volumes"]

PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
PVC_PROTECTION: Final = "kubernetes.io/pvc-protection"

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
    """Binds claims to volumes."""

    name = "persistentvolume"
    component = "persistentvolume-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = self.watch(CLAIMS, self._claim_changed)
        self._volumes = self.watch(VOLUMES, self._volume_changed)
        self._volumes.add_index(_BY_REFERENCE, _reserved_for)
        self._volumes.add_index(_FREE, _free_class)
        self._classes = self.watch(STORAGE_CLASSES, self._class_changed)
        self.watch(PODS, self._pod_changed)

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        self.queue.add(_CLAIM + item.key)
        for volume in self._volumes.indexed(_BY_REFERENCE, item.key):
            if new is None or new.typed.spec.volume_name not in ("", volume.name):
                self.queue.add(_VOLUME + volume.name)

    def _volume_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        self.queue.add(_VOLUME + item.name)
        for key in _reserved_for(item):
            self.queue.add(_CLAIM + key)
        if new is not None and _free_class(new) and (old is None or not _free_class(old)):
            self._retry_pending()

    def _class_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if old is None:
            self._retry_pending()

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """A pod that goes may release a claim; one that comes may be what a claim waits for."""
        if (old is None or new is None) and item.typed.spec.volumes:
            for key, _ in claims_of(item.typed):
                self.queue.add(_CLAIM + key)

    def _retry_pending(self) -> None:
        for item in self._claims.values():
            if not item.typed.spec.volume_name:
                self.queue.add(_CLAIM + item.key)

    async def reconcile(self, key: str) -> None:
        if key.startswith(_CLAIM):
            item = self._claims.get(key.removeprefix(_CLAIM))
            if item is not None:
                await self._claim(item)
        else:
            item = self._volumes.get(key.removeprefix(_VOLUME))
            if item is not None:
                await self._volume(item)

    # -- claims ----------------------------------------------------------------------------------------

    async def _claim(self, item: Item) -> None:
        data = item.data()
        finalizers = data["metadata"].get("finalizers") or []
        if "deletionTimestamp" in data["metadata"]:
            # As upstream, pods without a node do not hold it: none will start with a claim that is going.
            used = any(pod.typed.spec.node_name for pod in self.context.pods.indexed(BY_CLAIM, item.key))
            if PVC_PROTECTION in finalizers and not used:
                await self._set_finalizers(item, [one for one in finalizers if one != PVC_PROTECTION])
            return
        if PVC_PROTECTION not in finalizers:
            item = await self._set_finalizers(item, [*finalizers, PVC_PROTECTION])
            data = item.data()
        name = data["spec"].get("volumeName")
        if BIND_COMPLETED in (data["metadata"].get("annotations") or {}):
            await self._completed(item, data, self._volumes.get(name or ""))
        elif name:
            await self._prebound(item, data, name)
        else:
            await self._unbound(item, data)

    async def _completed(self, item: Item, data: Data, volume: Item | None) -> None:
        """A claim that was bound stays so as long as its volume says the same."""
        if volume is not None and may_bind(volume.typed, item.typed):
            await self._bind(item, volume)
        elif (data.get("status") or {}).get("phase") != "Lost":
            reason, text = ("ClaimLost", _LOST) if volume is None else ("ClaimMisbound", _MISBOUND)
            await self.record(item, WARNING, reason, text)
            await self._set_phase(item, "Lost")

    async def _prebound(self, item: Item, data: Data, name: str) -> None:
        """A claim that names its volume takes it, or waits for it."""
        volume = self._volumes.get(name)
        if volume is None:
            return
        if not may_bind(volume.typed, item.typed):
            text = f'volume "{name}" already bound to a different claim.'
            await self.record(item, WARNING, "FailedBinding", text)
        elif volume.typed.spec.claim_ref is None and (why := mismatch(volume.typed, item.typed)):
            await self.record(item, WARNING, "VolumeMismatch", f'Cannot bind to requested volume "{name}": {why}')
        else:
            await self._bind(item, volume)

    async def _unbound(self, item: Item, data: Data) -> None:
        wanted = class_of(item.typed)
        found = self._classes.get(wanted) if wanted else None
        storage_class: StorageClass | None = found.typed if found is not None else None
        waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        reserved = self._volumes.indexed(_BY_REFERENCE, item.key)
        volume = best_volume(reserved, () if waits else self._volumes.indexed(_FREE, f"class:{wanted}"), item.typed)
        if volume is not None:
            await self._bind(item, volume)
        elif waits and SELECTED_NODE not in (data["metadata"].get("annotations") or {}):
            await self.record(item, NORMAL, *self._waiting_for(item))
        elif storage_class is not None:
            await self._provision(item, data, storage_class.provisioner or NO_PROVISIONER)
        elif wanted:
            text = f'storageclass.storage.k8s.io "{wanted}" not found'
            await self.record(item, WARNING, "ProvisioningFailed", text)
        else:
            await self.record(item, NORMAL, "FailedBinding", _NOTHING)

    def _waiting_for(self, item: Item) -> tuple[str, str]:
        """Reason and text of a claim that waits for the scheduler."""
        users = [pod for pod in self.context.pods.indexed(BY_CLAIM, item.key) if not is_finished(pod.typed)]
        names = sorted(pod.name for pod in users if not pod.typed.spec.node_name)
        if not names:
            return "WaitForFirstConsumer", _WAITS
        return (
            "WaitForPodScheduled",
            f"waiting for pod{'s' if len(names) > 1 else ''} {','.join(names)} to be scheduled",
        )

    async def _provision(self, item: Item, data: Data, provisioner: str) -> None:
        """Name the provisioner that a claim waits for."""
        if provisioner == NO_PROVISIONER:
            await self.record(item, WARNING, "ProvisioningFailed", _NO_PLUGIN)
        elif (data["metadata"].get("annotations") or {}).get(PROVISIONER) != provisioner:
            await self.context.patch(item, {"metadata": {"annotations": {PROVISIONER: provisioner}}})
            await self.record(item, NORMAL, "ExternalProvisioning", _EXTERNAL.format(provisioner))

    async def _bind(self, item: Item, volume: Item) -> None:
        """Tie the two together, each half only if it is not yet; level-triggered, so any half may be there."""
        claim, pv = item.data(), volume.data()
        reference = pv["spec"].get("claimRef") or {}
        finalizers = pv["metadata"].get("finalizers") or []
        if reference.get("uid") != item.uid or PV_PROTECTION not in finalizers:
            metadata: Data = {"resourceVersion": str(volume.resource_version)}
            if not reference:
                metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
            if PV_PROTECTION not in finalizers:
                metadata["finalizers"] = [*finalizers, PV_PROTECTION]
            volume = await self.context.patch(
                volume, {"metadata": metadata, "spec": {"claimRef": claim_reference(item)}}
            )
        await self._set_phase(volume, "Bound")
        annotations = claim["metadata"].get("annotations") or {}
        if claim["spec"].get("volumeName") != volume.name or BIND_COMPLETED not in annotations:
            marks = {BIND_COMPLETED: "yes"}
            if not claim["spec"].get("volumeName"):
                marks[BOUND_BY_CONTROLLER] = "yes"
            patch = {"metadata": {"uid": item.uid, "annotations": marks}, "spec": {"volumeName": volume.name}}
            item = await self.context.patch(item, patch)
        extra = {"accessModes": pv["spec"].get("accessModes"), "capacity": pv["spec"].get("capacity")}
        await self._set_phase(item, "Bound", extra)

    async def _set_phase(self, item: Item, phase: str, extra: Data | None = None) -> None:
        data = item.data()
        status = {**(data.get("status") or {}), **(extra or {}), "phase": phase}
        await self.context.write_status(item, data, status)

    async def _set_finalizers(self, item: Item, finalizers: list[str]) -> Item:
        version = {"resourceVersion": str(item.resource_version)}
        return await self.context.patch(item, {"metadata": {**version, "finalizers": finalizers or None}})

    # -- volumes ---------------------------------------------------------------------------------------

    async def _volume(self, item: Item) -> None:
        data = item.data()
        reference: dict[str, Any] = data["spec"].get("claimRef") or {}
        uid = reference.get("uid")
        claim = self._claims.get(next(iter(_reserved_for(item)), "")) if reference else None
        if uid and (claim is None or claim.uid != uid) and not await self._is_gone(reference, uid):
            return  # our copy is behind
        finalizers = data["metadata"].get("finalizers") or []
        bound = bool(uid) and claim is not None and claim.uid == uid
        if "deletionTimestamp" in data["metadata"]:
            used = bound and claim is not None and claim.typed.spec.volume_name == item.name
            if PV_PROTECTION in finalizers and not used:
                await self._set_finalizers(item, [one for one in finalizers if one != PV_PROTECTION])
        elif not uid:
            if (data.get("status") or {}).get("phase") not in ("Available", "Bound") or not reference:
                await self._set_phase(item, "Available")
        elif bound and claim is not None:
            await self._agree(item, data, claim)
        elif data["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            await self.context.delete(item)
        else:
            await self._set_phase(item, "Released")

    async def _is_gone(self, reference: dict[str, Any], uid: str) -> bool:
        """Whether the claim that a volume names has been deleted: the server is asked, as our copy may be behind."""
        live = await self.context.get(CLAIMS, reference["namespace"], reference["name"])
        return live is None or live.uid != uid

    async def _agree(self, item: Item, data: Data, claim: Item) -> None:
        """A volume reserved for a claim is bound to it, unless that has another one: then it is given back."""
        other = claim.data()["spec"].get("volumeName")
        if other in (None, "", item.name):
            await self._claim(claim)
        elif BOUND_BY_CONTROLLER in (data["metadata"].get("annotations") or {}):
            metadata = {"resourceVersion": str(item.resource_version), "annotations": {BOUND_BY_CONTROLLER: None}}
            freed = await self.context.patch(item, {"metadata": metadata, "spec": {"claimRef": None}})
            await self._set_phase(freed, "Available")
        else:
            metadata = {"resourceVersion": str(item.resource_version)}
            freed = await self.context.patch(item, {"metadata": metadata, "spec": {"claimRef": {"uid": None}}})
            await self._set_phase(freed, "Available")


def _reserved_for(item: Item) -> Iterable[str]:
    reference = item.typed.spec.claim_ref
    return (f"{reference.namespace}/{reference.name}",) if reference is not None else ()


def _free_class(item: Item) -> Iterable[str]:
    return () if item.typed.spec.claim_ref is not None else (f"class:{class_of(item.typed)}",)
