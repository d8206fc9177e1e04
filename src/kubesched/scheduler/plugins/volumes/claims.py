"""Common parts of the storage plugins: claims of a pod, lookups in upstream's words, the signature of volumes.

Pods without storage must cost nothing. So every plugin first reads :attr:`PodInfo.storage`, the pod's volumes that
concern any storage plugin. Most pods have none. Source: rules/volumes §1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from kubesched.api.kinds import CLAIMS, CSI_DRIVERS, CSI_NODES, STORAGE_CLASSES, VOLUMES, Kind
from kubesched.api.storage import PersistentVolumeClaim, class_of

from ...framework.events import ActionType
from ...framework.interface import Handle
from ...nodes.podinfo import PodInfo
from ..assume_cache import AssumeCache

__all__ = [
    "ClaimUse",
    "NotFoundError",
    "Storage",
    "StorageWhatIf",
    "claim_uses",
    "claims_that_help",
    "ownership_problem",
    "uses_claim",
]


class NotFoundError(Exception):
    """An object is not there. The text is upstream's: ``persistentvolumeclaim "c" not found``."""

    def __init__(self, kind: Kind, name: str) -> None:
        group = f".{kind.group}" if kind.group else ""
        super().__init__(f'{kind.singular}{group} "{name}" not found')


class ClaimUse(NamedTuple):
    """Pod volume that uses a claim: its name, the claim's name, and whether the claim is made for the pod."""

    volume: str
    claim: str
    is_ephemeral: bool


def claim_uses(pod: PodInfo) -> list[ClaimUse]:
    """Return the pod volumes that use a claim, in order (rules/volumes §1.2)."""
    found: list[ClaimUse] = []
    for volume in pod.storage:
        if volume.persistent_volume_claim is not None:
            found.append(ClaimUse(volume.name, volume.persistent_volume_claim.claim_name, False))
        elif volume.ephemeral is not None:
            found.append(ClaimUse(volume.name, f"{pod.name}-{volume.name}", True))
    return found


def uses_claim(pod: PodInfo, claim: PersistentVolumeClaim, *, ephemeral: bool = True) -> bool:
    """True if a pod uses a claim, by namespace and name. With ``ephemeral`` claims of ephemeral volumes count, too."""
    meta = claim.metadata
    return meta.namespace == pod.namespace and any(
        use.claim == meta.name and (ephemeral or not use.is_ephemeral) for use in claim_uses(pod)
    )


def claims_that_help(pod: PodInfo, *, ephemeral: bool = True) -> ActionType:
    """Return the changes of claims that may help a pod, judged by :func:`uses_claim`."""
    uses = any(ephemeral or not use.is_ephemeral for use in claim_uses(pod))
    return ActionType.ALL if uses else ActionType.NONE


def ownership_problem(pod: PodInfo, claim: PersistentVolumeClaim) -> str:
    """Return why the claim does not belong to the pod's ephemeral volume, "" if it does."""
    meta = claim.metadata
    owned = any(owner.controller and owner.uid == pod.uid for owner in meta.owner_references)
    if owned and meta.namespace == pod.namespace:
        return ""
    return f"PVC {meta.namespace}/{meta.name} was not created for pod {pod.namespace}/{pod.name} (pod is not owner)"


class StorageWhatIf:
    """Changed storage objects that count within a block, for explanations; one of a scheduler, see :meth:`of`.

    Attributes:
        objects: the changed objects, by plural and key.
        claims: the claims in their assumed versions, if some plugin keeps them.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Any] = {}
        self.claims: AssumeCache[PersistentVolumeClaim] | None = None

    @classmethod
    def of(cls, handle: Handle) -> StorageWhatIf:
        """Return the one of a scheduler."""
        found: StorageWhatIf = handle.shared("storage what-if", cls)
        return found

    @contextmanager
    def changed(self, kind: Kind, key: str, change: Callable[[Any], Any], now: Any) -> Iterator[None]:
        """Let a changed object count within the block in place of ``now``, which may be changed itself."""
        place = (kind.plural, key)
        before = self.objects.get(place)
        with ExitStack() as stack:
            if kind == CLAIMS and self.claims is not None and self.claims.find(key) is not None:
                stack.enter_context(self.claims.what_if(key, change))
            self.objects[place] = change(before if before is not None else now)
            try:
                yield
            finally:
                if before is None:
                    del self.objects[place]
                else:
                    self.objects[place] = before


class Storage:
    """Lookup of storage objects through a plugin's handle. An absent object raises :class:`NotFoundError`."""

    #: Kinds that plugins with this class must have watched.
    INFORMS: Final = (CLAIMS.plural, VOLUMES.plural, STORAGE_CLASSES.plural, CSI_NODES.plural, CSI_DRIVERS.plural)

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.what_if = StorageWhatIf.of(handle)

    def objects(self, kind: Kind) -> Mapping[str, Any]:
        """Return all objects of a watched kind by key."""
        return self._handle.informed(kind.plural)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Any:
        """Return an object of a watched kind.

        Raises:
            NotFoundError: when there is no such object.
        """
        obj = self.find(kind, name, namespace)
        if obj is None:
            raise NotFoundError(kind, name)
        return obj

    def find(self, kind: Kind, name: str, namespace: str = "") -> Any:
        """Return an object of a watched kind, or None."""
        key = f"{namespace}/{name}" if namespace else name
        changed = self.what_if.objects.get((kind.plural, key)) if self.what_if.objects else None
        return changed if changed is not None else self._handle.informed(kind.plural).get(key)

    def class_of(self, claim: PersistentVolumeClaim) -> Any:
        """Return the StorageClass of a claim; None when the claim names none.

        Raises:
            NotFoundError: when there is no class of that name.
        """
        name = class_of(claim)
        return self.get(STORAGE_CLASSES, name) if name else None
