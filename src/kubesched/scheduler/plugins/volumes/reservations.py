"""Reservation of a pod's storage on a node: volumes to bind its claims to, and claims to be provisioned.

Reserve makes it and assumes it in the caches, so that no other pod gets the same volume. Unreserve undoes it. Without
Unreserve, it ends once PreBind has written it and the API server shows the result. Source: rules/volumes §2.11.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from kubesched.api.kinds import CLAIMS
from kubesched.api.storage import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from kubesched.api.types import ObjectReference

from ...nodes.podinfo import PodInfo
from .placement import Placements
from .volume_cache import VolumeCache
from .volume_pool import NO_VOLUME, Pools

__all__ = ["NodeVolumes", "Reservation", "bound_to", "provisioned_on", "volumes_of"]


@dataclass(frozen=True, slots=True)
class NodeVolumes:
    """Storage that a pod would get on a node: claims with the volumes to bind, and claims to be provisioned."""

    static: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    dynamic: tuple[PersistentVolumeClaim, ...] = ()


def volumes_of(found: Placements, index: int, cache: VolumeCache, pools: Pools) -> NodeVolumes:
    """Storage that a pod would get on the node at ``index`` in the arrays."""
    static: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
    for choice in found.choices:
        number = int(choice.volumes[index])
        volume = cache.volumes.find(pools.numbers.name(number)) if number != NO_VOLUME else None
        if volume is not None:
            static.append((choice.claim.claim, volume))
    dynamic = (item.claim.claim for item in found.provisions if item.needed[index])
    return NodeVolumes(tuple(static), tuple(dynamic))


@dataclass(slots=True, eq=False)
class Reservation:
    """Volumes and claims to be written. After the write, they are the versions that were written."""

    pod: PodInfo
    node_name: str
    bindings: list[tuple[PersistentVolumeClaim, PersistentVolume]] = field(default_factory=list)
    provisions: list[PersistentVolumeClaim] = field(default_factory=list)

    def make(self, volumes: NodeVolumes, cache: VolumeCache) -> None:
        """Assume the volumes and claims.

        Raises:
            AssumeError: when a volume or claim has changed; nothing is assumed then.
        """
        try:
            for claim, volume in volumes.static:
                bound = bound_to(volume, claim)
                if bound is not volume:
                    cache.volumes.assume(bound)
                self.bindings.append((claim, bound))
            for claim in volumes.dynamic:
                provisioned = provisioned_on(claim, self.node_name)
                cache.claims.assume(provisioned)
                self.provisions.append(provisioned)
        except Exception:
            self.undo(cache)
            raise

    def undo(self, cache: VolumeCache) -> None:
        """End the assumptions that have not ended yet. A second call changes nothing."""
        for _, volume in self.bindings:
            cache.volumes.restore(volume.key, volume.metadata.resource_version)
        for claim in self.provisions:
            cache.claims.restore(claim.key, claim.metadata.resource_version)


def bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return the volume with a claimRef to the claim; the same object when it has one already."""
    meta, reference = claim.metadata, volume.spec.claim_ref
    named = reference is not None and (reference.namespace, reference.name) == (meta.namespace, meta.name)
    uid = reference.uid if reference is not None else ""
    annotations = volume.metadata.annotations
    if not (named and uid == meta.uid):
        full = ObjectReference(
            api_version=CLAIMS.api_version,
            kind=CLAIMS.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
        volume = replace(volume, spec=replace(volume.spec, claim_ref=full))
    if not (named and uid in ("", meta.uid)) and BOUND_BY_CONTROLLER not in annotations:
        marked = {**annotations, BOUND_BY_CONTROLLER: "yes"}
        volume = replace(volume, metadata=replace(volume.metadata, annotations=marked))
    return volume


def provisioned_on(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    """Return the claim with the node that it is to be provisioned for."""
    annotations = {**claim.metadata.annotations, SELECTED_NODE: node_name}
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))
