"""Volumes of pods on their nodes: a pod starts when its CSI volumes are attached there, as a kubelet waits for them.

Read are the claims, volumes, drivers and VolumeAttachments of the cluster; the last are written by the attach controller,
and only where it runs do pods wait. Caller: :mod:`.hollow`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...api.kinds import CLAIMS, CSI_DRIVERS, VOLUME_ATTACHMENTS, VOLUMES, Kind
from ...api.storage import CSIDriver, PersistentVolumeClaim, PersistentVolumeSpec, VolumeAttachment, claims_of
from ...api.types import Pod
from ...api.wire import Item

__all__ = ["Attaching"]


class Attaching:
    """What is known of storage, and the pods that wait for it."""

    def __init__(self) -> None:
        self.known: dict[Kind, dict[str, Item]] = {
            kind: {} for kind in (CLAIMS, VOLUMES, CSI_DRIVERS, VOLUME_ATTACHMENTS)
        }
        #: By volume and node.
        self._attached: set[tuple[str, str]] = set()
        #: The pods that wait, by what is missing: a claim, a volume, or a volume on a node.
        self._waiting: dict[tuple[str, ...], dict[str, None]] = {}

    def changed(self, item: Item) -> list[str]:
        """Note an object; the pods that waited for it."""
        self.known[item.kind][item.key] = item
        place: tuple[str, ...] = (item.kind.plural, item.key)
        if item.kind == VOLUME_ATTACHMENTS:
            attachment: VolumeAttachment = item.typed
            place = volume, node = (attachment.spec.source.persistent_volume_name or "", attachment.spec.node_name)
            if not attachment.status.attached or attachment.metadata.deletion_timestamp is not None:
                self._attached.discard((volume, node))
                return []
            self._attached.add((volume, node))
        return list(self._waiting.pop(place, ()))

    def gone(self, kind: Kind, key: str, last: Item | None) -> None:
        """Forget an object."""
        item = self.known[kind].pop(key, None)
        if item is not None and kind == VOLUME_ATTACHMENTS:
            spec = item.typed.spec
            self._attached.discard((spec.source.persistent_volume_name or "", spec.node_name))

    def pod_gone(self, key: str) -> None:
        for pods in self._waiting.values():
            pods.pop(key, None)

    def is_waiting(self, key: str, pod: Pod) -> bool:
        """Whether a pod cannot start yet; :meth:`changed` returns it when that may be over."""
        for place in self._missing(pod):
            self._waiting.setdefault(place, {})[key] = None
            return True
        return False

    def _missing(self, pod: Pod) -> Iterator[tuple[str, ...]]:
        for claim_key, _ in claims_of(pod):
            found = self.known[CLAIMS].get(claim_key)
            claim: PersistentVolumeClaim | None = found.typed if found is not None else None
            if claim is None or not claim.spec.volume_name:
                yield CLAIMS.plural, claim_key
                continue
            volume = self.known[VOLUMES].get(claim.spec.volume_name)
            if volume is None:
                yield VOLUMES.plural, claim.spec.volume_name
                continue
            spec: PersistentVolumeSpec = volume.typed.spec
            driver = self.known[CSI_DRIVERS].get(spec.csi.driver) if spec.csi is not None else None
            settings: CSIDriver | None = driver.typed if driver is not None else None
            attaches = spec.csi is not None and (settings is None or settings.attaches)
            if attaches and (volume.name, pod.spec.node_name) not in self._attached:
                yield volume.name, pod.spec.node_name
