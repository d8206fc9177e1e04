"""Claims and volumes: binding, a hollow dynamic provisioner, release and reclaim.

    claim Pending ──volume found or provisioned──▶ Bound ──volume gone──▶ Lost
    volume Available ──▶ Bound ──claim gone──▶ Released ──reclaim policy Delete──▶ gone

An Immediate claim is bound here. A WaitForFirstConsumer claim waits until a scheduler, or :mod:`.pod_volumes` in its
place, writes either the volume's
``claimRef`` or the annotation ``volume.kubernetes.io/selected-node``; then it is bound or provisioned here.
Provisioned volumes are reachable from the zone of the selected node. Matching is in :mod:`.volume_match`.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.kinds import CLAIMS, NODES, STORAGE_CLASSES, VOLUMES
from ...api.wire import ApiError, Item
from ...client.event_writer import NORMAL, WARNING
from .base import Controller
from .context import Context, Data
from .volume_match import best_volume, may_bind

__all__ = ["SELECTED_NODE", "Volumes"]

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_ZONE: Final = "topology.kubernetes.io/zone"

_WAITS: Final = "waiting for first consumer to be created before binding"
_NOTHING: Final = "no persistent volumes available for this claim and no storage class is set"
_EXTERNAL: Final = (
    "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system administrator."
    " If volume creation is delayed, please verify that the provisioner is running and correctly registered."
)

_CLAIM, _VOLUME = "claim:", "volume:"


class Volumes(Controller):
    """Binds claims to volumes."""

    name = "persistentvolume"
    component = "persistentvolume-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.cache(CLAIMS)
        self._volumes = context.cache(VOLUMES)
        self._classes = context.cache(STORAGE_CLASSES)
        self._nodes = context.cache(NODES)
        self._begun: dict[str, float] = {}
        self.watch(CLAIMS, self._claim_changed)
        self.watch(VOLUMES, self._volume_changed)
        self.watch(STORAGE_CLASSES, self._class_changed)

    def _claim_changed(self, old: Item | None, new: Item | None) -> None:
        item = new or old
        if item is None:
            return
        self.queue.add(_CLAIM + item.key)
        if new is None:
            self._begun.pop(item.uid, None)
            volume = (item.data().get("spec") or {}).get("volumeName")
            if volume:
                self.queue.add(_VOLUME + volume)

    def _volume_changed(self, old: Item | None, new: Item | None) -> None:
        item = new or old
        if item is None:
            return
        self.queue.add(_VOLUME + item.name)
        reference = (item.data().get("spec") or {}).get("claimRef") or {}
        if reference:
            self.queue.add(f"{_CLAIM}{reference.get('namespace', '')}/{reference.get('name', '')}")
        elif old is None:
            self._retry_pending()

    def _class_changed(self, old: Item | None, new: Item | None) -> None:
        if old is None:
            self._retry_pending()

    def _retry_pending(self) -> None:
        for item in self._claims.values():
            if not (item.data().get("spec") or {}).get("volumeName"):
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
        if "deletionTimestamp" in data["metadata"]:
            return
        spec, annotations = data["spec"], data["metadata"].get("annotations") or {}
        name = spec.get("volumeName")
        if name:
            volume = self._volumes.get(name)
            if volume is None:
                if BIND_COMPLETED in annotations:
                    await self._set_phase(item, "Lost")
                return
            if may_bind(volume.data(), data):
                await self._bind(item, volume)
            elif BIND_COMPLETED in annotations:
                await self._set_phase(item, "Lost")
            return
        class_name = spec.get("storageClassName") or ""
        storage_class = self._classes.get(class_name) if class_name else None
        waits = storage_class is not None and _mode(storage_class) == "WaitForFirstConsumer"
        volume = best_volume(self._volumes.values(), data, reserved_only=waits)
        if volume is not None:
            await self._bind(item, volume)
        elif storage_class is not None and (not waits or SELECTED_NODE in annotations):
            await self._provision(item, data, storage_class)
        elif waits:
            await self.record(item, NORMAL, "WaitForFirstConsumer", _WAITS)
        elif class_name:
            text = f'storageclass.storage.k8s.io "{class_name}" not found'
            await self.record(item, WARNING, "ProvisioningFailed", text)
        else:
            await self.record(item, NORMAL, "FailedBinding", _NOTHING)

    async def _bind(self, item: Item, volume: Item) -> None:
        """Tie the two together, each half only if it is not yet; level-triggered, so any half may be there."""
        claim, pv = item.data(), volume.data()
        reference = pv["spec"].get("claimRef") or {}
        if reference.get("uid") != item.uid:
            patch: Data = {
                "metadata": {"resourceVersion": str(volume.resource_version)},
                "spec": {
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "namespace": item.namespace,
                        "name": item.name,
                        "uid": item.uid,
                    }
                },
            }
            if not reference:
                patch["metadata"]["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
            volume = await self.context.patch(volume, patch)
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
        self._begun.pop(item.uid, None)

    async def _set_phase(self, item: Item, phase: str, extra: Data | None = None) -> None:
        data = item.data()
        status = {**(data.get("status") or {}), **(extra or {}), "phase": phase}
        await self.context.write_status(item, data, status)

    # -- provisioning ----------------------------------------------------------------------------------

    async def _provision(self, item: Item, data: Data, storage_class: Item) -> None:
        """Make a volume for a claim, after the time that takes."""
        spec = storage_class.data()
        provisioner = spec.get("provisioner") or NO_PROVISIONER
        if provisioner == NO_PROVISIONER:
            await self.record(item, NORMAL, "ExternalProvisioning", _EXTERNAL.format(provisioner))
            return
        if (data["metadata"].get("annotations") or {}).get(PROVISIONER) != provisioner:
            marks = {"metadata": {"annotations": {PROVISIONER: provisioner}}}
            item = await self.context.patch(item, marks)
            data = item.data()
        now = self.context.now()
        left = self._begun.setdefault(item.uid, now) + self.context.settings.provision_seconds - now
        if left > 0:
            self.queue.add_after(_CLAIM + item.key, left)
            return
        name = f"pvc-{item.uid}"
        claim = data["spec"]
        size = ((claim.get("resources") or {}).get("requests") or {}).get("storage", "1Gi")
        body: Data = {
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: provisioner}},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": claim.get("accessModes") or ["ReadWriteOnce"],
                "volumeMode": claim.get("volumeMode", "Filesystem"),
                "storageClassName": storage_class.name,
                "persistentVolumeReclaimPolicy": spec.get("reclaimPolicy", "Delete"),
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": item.namespace,
                    "name": item.name,
                    "uid": item.uid,
                },
                "csi": {"driver": provisioner, "volumeHandle": name},
            },
        }
        affinity = self._reach(data, spec)
        if affinity:
            body["spec"]["nodeAffinity"] = affinity
        try:
            volume = await self.context.create(VOLUMES, "", body)
            text = f"Successfully provisioned volume {name}"
            await self.context.events.record(item, provisioner, NORMAL, "ProvisioningSucceeded", text)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            volume = self._volumes.get(name) or volume_missing(name)
        await self._bind(item, volume)

    def _reach(self, claim: Data, storage_class: Data) -> Data | None:
        """The node affinity of a new volume: the selected node's zone, or one of the allowed topologies."""
        name = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        node = self._nodes.get(name) if name else None
        expressions: list[Data] = []
        if node is not None:
            zone = node.typed.metadata.labels.get(_ZONE)
            if zone:
                expressions = [{"key": _ZONE, "operator": "In", "values": [zone]}]
        elif storage_class.get("allowedTopologies"):
            term = self.context.rng.choice(storage_class["allowedTopologies"])
            expressions = [
                {"key": one["key"], "operator": "In", "values": [self.context.rng.choice(one["values"])]}
                for one in term.get("matchLabelExpressions") or ()
            ]
        return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}} if expressions else None

    # -- volumes ---------------------------------------------------------------------------------------

    async def _volume(self, item: Item) -> None:
        data = item.data()
        reference: dict[str, Any] = data["spec"].get("claimRef") or {}
        if not reference:
            await self._set_phase(item, "Available")
            return
        claim = self._claims.get(f"{reference.get('namespace', '')}/{reference.get('name', '')}")
        uid = reference.get("uid")
        if uid and (claim is None or claim.uid != uid):
            try:
                live = await self.context.client.get(CLAIMS, reference["namespace"], reference["name"])
            except ApiError as error:
                if error.code != 404:
                    raise
            else:
                if live.uid == uid:
                    return  # our copy is behind
            if data["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
                await self.context.delete(item)
            else:
                await self._set_phase(item, "Released")
        elif uid and claim is not None:
            await self._claim(claim)
        elif (data.get("status") or {}).get("phase") not in ("Available", "Bound"):
            await self._set_phase(item, "Available")


def _mode(storage_class: Item) -> str:
    return str(storage_class.data().get("volumeBindingMode", "Immediate"))


def volume_missing(name: str) -> Item:
    """A volume that the server says exists and that we have not seen yet: try again later."""
    raise ApiError.conflict(VOLUMES, name, "it has not been seen yet")
