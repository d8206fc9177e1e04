"""What the storage plugins share: which claims a pod uses, lookups in upstream's words, the signature of volumes.

Pods without storage must cost nothing: every plugin first reads :attr:`PodInfo.storage`, the volumes of the pod that are
of interest to any of them, which is empty for most pods. Source: rules/volumes §1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kubesched.api.kinds import CLAIMS, CSI_DRIVERS, CSI_NODES, STORAGE_CLASSES, VOLUMES, Kind
from kubesched.api.storage import PersistentVolumeClaim, class_of

from ...framework.interface import Handle
from ...nodes.podinfo import PodInfo

__all__ = ["ClaimUse", "NotFoundError", "Storage", "claim_uses", "ownership_problem", "uses_claim", "volume_sources"]


class NotFoundError(Exception):
    """An object is not there. The text is upstream's: ``persistentvolumeclaim "c" not found``."""

    def __init__(self, kind: Kind, name: str) -> None:
        group = f".{kind.group}" if kind.group else ""
        super().__init__(f'{kind.singular}{group} "{name}" not found')


class ClaimUse(NamedTuple):
    """A pod volume that uses a claim, the claim's name, and whether the claim is made for the pod."""

    volume: str
    claim: str
    is_ephemeral: bool


def claim_uses(pod: PodInfo) -> list[ClaimUse]:
    """The pod volumes that use a claim, in order (section 1.2)."""
    found: list[ClaimUse] = []
    for volume in pod.storage:
        if volume.persistent_volume_claim is not None:
            found.append(ClaimUse(volume.name, volume.persistent_volume_claim.claim_name, False))
        elif volume.ephemeral is not None:
            found.append(ClaimUse(volume.name, f"{pod.name}-{volume.name}", True))
    return found


def uses_claim(pod: PodInfo, claim: PersistentVolumeClaim, *, ephemeral: bool = True) -> bool:
    """Whether a pod uses a claim, by namespace and name; ``ephemeral``: also as that of an ephemeral volume."""
    meta = claim.metadata
    return meta.namespace == pod.namespace and any(
        use.claim == meta.name and (ephemeral or not use.is_ephemeral) for use in claim_uses(pod)
    )


def ownership_problem(pod: PodInfo, claim: PersistentVolumeClaim) -> str:
    """Why the claim is not that of the pod's ephemeral volume; "" when it is."""
    meta = claim.metadata
    owned = any(owner.controller and owner.uid == pod.uid for owner in meta.owner_references)
    if owned and meta.namespace == pod.namespace:
        return ""
    return f"PVC {meta.namespace}/{meta.name} was not created for pod {pod.namespace}/{pod.name} (pod is not owner)"


def volume_sources(pod: PodInfo) -> tuple[bytes, ...]:
    """The volumes of a pod as far as any storage plugin reads them: upstream's fragment of the signature (section 1.1)."""
    return tuple(sorted([msgspec.json.encode(volume) for volume in pod.storage])) if pod.storage else ()


class Storage:
    """Looks up storage objects through a plugin's handle; an absent one is a :class:`NotFoundError`."""

    #: What a plugin that uses this has watched.
    INFORMS: Final = (CLAIMS.plural, VOLUMES.plural, STORAGE_CLASSES.plural, CSI_NODES.plural, CSI_DRIVERS.plural)

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def objects(self, kind: Kind) -> Mapping[str, Any]:
        """All objects of a watched kind by key."""
        return self._handle.informed(kind.plural)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Any:
        """The object of a watched kind.

        Raises:
            NotFoundError: when there is none.
        """
        obj = self._handle.informed(kind.plural).get(f"{namespace}/{name}" if namespace else name)
        if obj is None:
            raise NotFoundError(kind, name)
        return obj

    def find(self, kind: Kind, name: str, namespace: str = "") -> Any:
        """The object of a watched kind, or None."""
        return self._handle.informed(kind.plural).get(f"{namespace}/{name}" if namespace else name)

    def class_of(self, claim: PersistentVolumeClaim) -> Any:
        """The StorageClass of a claim; None when it names none.

        Raises:
            NotFoundError: when there is no class of that name.
        """
        name = class_of(claim)
        return self.get(STORAGE_CLASSES, name) if name else None
