"""State of VolumeBinding between attempts, shared by all profiles, and its check for the cache comparer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubesched.api.kinds import CLAIMS, VOLUMES
from kubesched.api.selectors import SelectorError
from kubesched.api.storage import PersistentVolumeClaim, class_of

from ...framework.interface import Handle
from ..assume_cache import AssumeCache
from .claims import StorageWhatIf
from .reservations import Reservation
from .volume_cache import VolumeCache
from .volume_pool import Pools

__all__ = ["VolumeState"]


class VolumeState:
    """State of VolumeBinding between attempts.

    Attributes:
        cache: claims and volumes.
        pools: the free volumes that suit a claim.
        reservations: storage set aside for pods between Reserve and the end of PreBind, by the pod's UID.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.cache = VolumeCache(handle)
        StorageWhatIf.of(handle).claims = self.cache.claims
        self.pools = Pools(self.cache)
        self.reservations: dict[str, Reservation] = {}

    @classmethod
    def of(cls, handle: Handle) -> VolumeState:
        """Return the instance that all profiles share."""
        shared: VolumeState = handle.shared("VolumeBinding", lambda: cls(handle))
        return shared

    def has_free_volume(self, claim: PersistentVolumeClaim) -> bool:
        """True if there may be a volume to bind the claim to, or if that cannot be determined."""
        if not self.cache.free.get(class_of(claim)):
            return False
        try:
            return bool(self.pools.of(claim))
        except SelectorError:
            return True

    def problems(self) -> Iterator[str]:
        """Yield differences between assume caches and informers, and assumptions without a reservation."""
        kept_volumes = {volume.key for one in self.reservations.values() for _, volume in one.bindings}
        kept_claims = {claim.key for one in self.reservations.values() for claim in one.provisions}
        yield from _differences(VOLUMES.plural, self.cache.volumes, self._handle.informed(VOLUMES.plural), kept_volumes)
        yield from _differences(CLAIMS.plural, self.cache.claims, self._handle.informed(CLAIMS.plural), kept_claims)
        for volume in self.cache.volumes.values():
            reference = volume.spec.claim_ref
            index = (
                self.cache.free.get(class_of(volume), {})
                if reference is None
                else self.cache.reserved.get(f"{reference.namespace}/{reference.name}", {})
            )
            if index.get(volume.name) is not volume:
                yield f"{VOLUMES.plural} {volume.name}: missing from the index of free or reserved volumes"


def _differences(
    plural: str, cache: AssumeCache[Any], informed: Mapping[str, Any], reserved: set[str]
) -> Iterator[str]:
    for key in informed.keys() - cache.keys():
        yield f"{plural} {key}: missing from the assume cache"
    for key in cache.keys() - informed.keys():
        yield f"{plural} {key}: in the assume cache, but gone"
    for key, obj in informed.items():
        known = cache.find_api(key)
        if known is not None and known.metadata.resource_version != obj.metadata.resource_version:
            yield f"{plural} {key}: another version is in the assume cache"
    for key, assumed in cache.assumed().items():
        known = cache.find_api(key)
        if known is None or known.metadata.resource_version != assumed.metadata.resource_version:
            yield f"{plural} {key}: a version is assumed that is not current"
    for key in cache.assumed(written=False):
        if key not in reserved:
            yield f"{plural} {key}: assumed, but reserved for no pod"
