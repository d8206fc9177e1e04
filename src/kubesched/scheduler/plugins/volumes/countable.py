"""Countable volumes of a pod: those that count towards the limits of a node, each under a name.

A volume counts under its driver and handle. So it counts once, even if several pods use it or one pod uses it twice. A
claim without a volume counts under its own name, by the driver of its class. Source: rules/volumes §5.3 and §5.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubesched.api.kinds import CLAIMS, STORAGE_CLASSES, VOLUMES
from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, class_of
from kubesched.api.types import Volume

from ...nodes.podinfo import PodInfo
from .claims import NotFoundError, Storage, ownership_problem
from .csi_translation import MIGRATED, TRANSLATIONS, TranslationError, translation_of

__all__ = ["ClaimNotFoundError", "Countable", "CountableVolumes", "CountingError", "ObjectKey", "is_countable"]

#: (driver, handle) of a volume; (driver, "", ``namespace/claim``) of a claim without one.
Countable = tuple[str, ...]
#: (plural, key) of an object that was looked up, whether it exists or not.
ObjectKey = tuple[str, str]

_NO_NAME: Final = "PersistentVolumeClaim had no name"


class CountingError(Exception):
    """The volumes of a pod cannot be counted; the attempt fails."""


class ClaimNotFoundError(Exception):
    """A claim of the pod to place does not exist. The pod is unschedulable until the claim exists."""


def is_countable(volume: Volume) -> bool:
    """True if the volume may count: it uses a claim, or its type was replaced by a CSI driver."""
    return (
        volume.persistent_volume_claim is not None or volume.ephemeral is not None or translation_of(volume) is not None
    )


def _nowhere(key: ObjectKey) -> None:
    """Ignore the objects that were looked up, for callers that do not need them."""


class CountableVolumes:
    """Finder of the countable volumes of pods.

    ``migrated`` is True if the node has a CSINode: in-tree volumes are CSI volumes there.
    ``looked_up`` is called with every object that the answer depends on.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def of_new(
        self, pod: PodInfo, *, migrated: bool, looked_up: Callable[[ObjectKey], None] = _nowhere
    ) -> dict[Countable, str]:
        """Return the volumes of a pod to place, each with its driver.

        Raises:
            ClaimNotFoundError: when a claim does not exist.
            CountingError: when a volume cannot be counted.
        """
        return self._of(pod, migrated, looked_up, is_new=True)

    def of_existing(
        self, pod: PodInfo, *, migrated: bool, looked_up: Callable[[ObjectKey], None] = _nowhere
    ) -> dict[Countable, str]:
        """Return the volumes of a pod on a node. A claim that does not exist does not count.

        Raises:
            CountingError: when a volume cannot be counted.
        """
        return self._of(pod, migrated, looked_up, is_new=False)

    def attached(self, volume_name: str, attacher: str) -> Countable | None:
        """Return the volume that a VolumeAttachment holds; None when it does not exist or is no CSI volume."""
        volume: PersistentVolume | None = self._storage.find(VOLUMES, volume_name)
        if volume is None or volume.spec.csi is None:
            return None
        return attacher, volume.spec.csi.volume_handle

    def _of(
        self, pod: PodInfo, migrated: bool, looked_up: Callable[[ObjectKey], None], *, is_new: bool
    ) -> dict[Countable, str]:
        found: dict[Countable, str] = {}
        for volume in pod.storage:
            if volume.persistent_volume_claim is not None:
                name = volume.persistent_volume_claim.claim_name
            elif volume.ephemeral is not None:
                name = f"{pod.name}-{volume.name}"
            else:
                counted = self._inline(volume) if migrated else None
                if counted is not None and counted[1]:
                    found[counted] = counted[0]
                continue
            if not name:
                raise CountingError(_NO_NAME)
            key = f"{pod.namespace}/{name}"
            looked_up((CLAIMS.plural, key))
            claim: PersistentVolumeClaim | None = self._storage.find(CLAIMS, name, pod.namespace)
            if claim is None:
                if is_new:
                    raise ClaimNotFoundError(f"looking up PVC {key}: {NotFoundError(CLAIMS, name)}")
                continue
            if volume.ephemeral is not None and (problem := ownership_problem(pod, claim)):
                raise CountingError(problem)
            counted = self._of_claim(claim, key, migrated, looked_up)
            if counted is not None and counted[0] and counted[-1]:
                found[counted] = counted[0]
        return found

    @staticmethod
    def _inline(volume: Volume) -> Countable | None:
        translation = translation_of(volume)
        if translation is None or translation.plugin not in MIGRATED:
            return None
        try:
            return translation.driver, translation.handle(volume)
        except TranslationError as error:
            raise CountingError(f"converting volume({volume.name}) from inline to csi: {error}") from error

    def _of_claim(
        self, claim: PersistentVolumeClaim, key: str, migrated: bool, looked_up: Callable[[ObjectKey], None]
    ) -> Countable | None:
        """Return the volume of a claim.

        If the claim has no volume, the claim itself counts, under the driver of its class. The driver or the handle may
        be empty.
        """
        name = claim.spec.volume_name
        if name:
            looked_up((VOLUMES.plural, name))
            volume: PersistentVolume | None = self._storage.find(VOLUMES, name)
            if volume is not None:
                return self._of_volume(volume, migrated)
        class_name = class_of(claim)
        if not class_name:
            return None
        looked_up((STORAGE_CLASSES.plural, class_name))
        storage_class: StorageClass | None = self._storage.find(STORAGE_CLASSES, class_name)
        if storage_class is None:
            return None
        driver = storage_class.provisioner
        if driver in TRANSLATIONS:
            if not migrated or driver not in MIGRATED:
                return None
            driver = TRANSLATIONS[driver].driver
        return driver, "", key

    @staticmethod
    def _of_volume(volume: PersistentVolume, migrated: bool) -> Countable | None:
        spec = volume.spec
        if spec.csi is not None:
            return spec.csi.driver, spec.csi.volume_handle
        translation = translation_of(spec) if migrated else None
        if translation is None or translation.plugin not in MIGRATED:
            return None
        try:
            return translation.driver, translation.handle(spec, volume.metadata.labels)
        except TranslationError:
            return None
