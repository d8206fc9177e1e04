"""VolumeAttachments: the CSI volumes of a node's pods are attached there, and detached when no pod uses them any more.

    pod bound ──▶ VolumeAttachment ──delay by stage rules──▶ attached
    last pod gone or finished ──▶ being deleted ──delay by stage rules──▶ gone

As upstream's attach/detach controller and external-attacher do for CSI volumes whose driver needs attaching. A
failure by stage rules is written into the object, and the work is tried again. Pods wait for their volumes:
:mod:`..kubelets.prerequisites`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kubesched.api.kinds import CLAIMS, CSI_DRIVERS, NODES, PODS, VOLUME_ATTACHMENTS, VOLUMES
from kubesched.api.storage import PersistentVolumeSpec, VolumeAttachment, VolumeAttachmentSpec, claims_of
from kubesched.api.volume_sources import CSISource
from kubesched.api.wire import Item
from kubesched.client.event_writer import NORMAL, WARNING

from ..kubelets import attachment_name
from .base import Controller
from .context import BY_CLAIM, Context, Data, differ, status_of
from .pods import is_finished
from .storage_work import Attempts

__all__ = ["Attachments"]

_BY_VOLUME: Final = "volume"


class Attachments(Controller):
    """Controller of VolumeAttachments. Keys are names of volumes."""

    name = "attachdetach"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.watch(CLAIMS, self._claim_changed)
        self._volumes = context.watch(VOLUMES, self.enqueue)
        self._drivers = context.cache(CSI_DRIVERS)
        self._nodes = context.cache(NODES)
        self._attempts = Attempts(context, "VolumeAttachment", self.queue)
        self._attachments = context.watch(VOLUME_ATTACHMENTS, self._attachment_changed)
        self._attachments.add_index(_BY_VOLUME, _volume_of)
        context.watch(PODS, self._pod_changed)

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if item.typed.spec.volumes and differ(old, new, lambda pod: (pod.typed.spec.node_name, is_finished(pod.typed))):
            for key, _ in claims_of(item.typed):
                if claim := self._claims.get(key):
                    self._claim_changed(claim, None, claim)

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if item.typed.spec.volume_name:
            self.queue.add(item.typed.spec.volume_name)

    def _attachment_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            self._attempts.forget(item)
        for name in _volume_of(item):
            self.queue.add(name)

    async def reconcile(self, key: str) -> None:
        volume = self._volumes.get(key)
        users = self._users(volume) if volume is not None else {}
        for item in self._attachments.indexed(_BY_VOLUME, key):
            attachment: VolumeAttachment = item.typed
            pod = users.pop(attachment.spec.node_name, None)
            if attachment.metadata.deletion_timestamp is not None:
                await self._detach(item, key)
            elif pod is None:
                await self.context.delete(item)
            elif not attachment.status.attached:
                await self._attach(item, key, pod)
        if volume is not None:
            for node in sorted(users):
                await self._create(volume, node)

    def _users(self, volume: Item) -> dict[str, Item]:
        """Return the nodes where pods use a volume that has to be attached, each with one of its pods."""
        spec: PersistentVolumeSpec = volume.typed.spec
        driver = self._drivers.get(spec.csi.driver) if spec.csi is not None else None
        reference = spec.claim_ref
        if spec.csi is None or reference is None or (driver is not None and not driver.typed.attaches):
            return {}
        key = f"{reference.namespace}/{reference.name}"
        claim = self._claims.get(key)
        if claim is None or claim.typed.spec.volume_name != volume.name:
            return {}
        pods = [pod for pod in self.context.pods.indexed(BY_CLAIM, key) if not is_finished(pod.typed)]
        users = {pod.typed.spec.node_name: pod for pod in pods if pod.typed.spec.node_name}
        return {node: pod for node, pod in users.items() if self._nodes.get(node) is not None}

    async def _create(self, volume: Item, node: str) -> None:
        csi: CSISource = volume.typed.spec.csi
        finalizer = f"external-attacher/{re.sub(r'[^a-z0-9]', '-', csi.driver)}"
        body: Data = {
            "metadata": {"name": attachment_name(csi, node), "finalizers": [finalizer]},
            "spec": {"attacher": csi.driver, "nodeName": node, "source": {"persistentVolumeName": volume.name}},
        }
        await self.context.create(VOLUME_ATTACHMENTS, "", body)

    def _end(self, item: Item, volume: str) -> tuple[bool, Data | None]:
        """Return True if an attempt has ended, and its error if it failed.

        A failed attempt is scheduled again.
        """
        spec: VolumeAttachmentSpec = item.typed.spec
        ended = self._attempts.end(item, volume, spec.attacher, spec.node_name)
        if ended is None or not any(ended):
            return ended is not None, None
        self._attempts.again(item)
        message = "rpc error: code = {} desc = {}".format(*ended)
        return True, {"time": self.context.now_text(), "message": message}

    async def _attach(self, item: Item, volume: str, pod: Item) -> None:
        is_over, error = self._end(item, volume)
        if not is_over:
            return
        await self.context.write_status(item, {"attached": error is None, "attachError": error})
        if error is not None:
            text = f'AttachVolume.Attach failed for volume "{volume}" : {error["message"]}'
            await self.record(pod, WARNING, "FailedAttachVolume", text)
        else:
            self._attempts.forget(item)
            text = f'AttachVolume.Attach succeeded for volume "{volume}" '
            await self.record(pod, NORMAL, "SuccessfulAttachVolume", text)

    async def _detach(self, item: Item, volume: str) -> None:
        is_over, error = self._end(item, volume)
        if error is not None:
            await self.context.write_status(item, {**status_of(item), "detachError": error})
        elif is_over:
            await self.context.patch(item, {"metadata": {"uid": item.uid, "finalizers": None}})


def _volume_of(item: Item) -> Iterable[str]:
    source = item.typed.spec.source
    return (source.persistent_volume_name,) if source.persistent_volume_name else ()
