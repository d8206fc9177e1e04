"""Demand of a pod's claims on a node: volumes that are bound, and claims that wait for a node to be chosen.

Source: rules/volumes §2.3 and §2.4 (upstream ``PreFilter`` and ``GetPodVolumeClaims``).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from kubesched.api.kinds import CLAIMS, CSI_DRIVERS, STORAGE_CLASSES
from kubesched.api.quantity import Quantity
from kubesched.api.storage import (
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolumeClaim,
    StorageClass,
    class_of,
)

from ...framework.status import Status
from ...nodes.podinfo import PodInfo
from .claims import NotFoundError, Storage, claim_uses, ownership_problem
from .volume_cache import VolumeCache, VolumeFacts, is_fully_bound, requested_storage

__all__ = ["DelayedClaim", "Rejected", "VolumeDemand", "demand_of"]


class Rejected(Exception):  # noqa: N818 - an answer, not a failure
    """The pod cannot be scheduled, or its claims cannot be read; ``status`` holds the answer."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message())
        self.status = status


@dataclass(frozen=True, slots=True, eq=False)
class DelayedClaim:
    """Claim that is bound once a node is chosen.

    Attributes:
        claim: the claim as assumed.
        storage_class: its class.
        selected_node: the node that was chosen for provisioning earlier, None for none.
        size: the size that it requests.
        limited: True if provisioning depends on free capacity: the class's driver publishes its free capacity, and
            the claim has a storage request (which may be 0).
    """

    claim: PersistentVolumeClaim
    storage_class: StorageClass
    selected_node: str | None
    size: Quantity
    limited: bool

    @property
    def bytes(self) -> int:
        return self.size.value()

    @property
    def can_be_provisioned(self) -> bool:
        """True if some provisioner makes volumes of the class."""
        return self.storage_class.provisioner not in ("", NO_PROVISIONER)

    def signature(self, cache: VolumeCache) -> Hashable:
        """Key of everything that decides about nodes on which no volume suits the claim."""
        row = self.storage_class
        if not self.can_be_provisioned:
            return (self.selected_node, None)
        capacity = (row.name, self.bytes, cache.capacities.version(row.name)) if self.limited else None
        return (self.selected_node, row.allowed_topologies, capacity)


@dataclass(frozen=True, slots=True, eq=False)
class VolumeDemand:
    """Claims of a pod. ``bound`` are the facts of the volumes of bound claims; None stands for a missing volume."""

    bound: tuple[VolumeFacts | None, ...] = ()
    delayed: tuple[DelayedClaim, ...] = ()


NO_DEMAND: Final = VolumeDemand()


@dataclass(slots=True)
class _Sorted:
    bound: list[VolumeFacts | None] = field(default_factory=list)
    delayed: list[DelayedClaim] = field(default_factory=list)
    immediate: bool = False


def demand_of(pod: PodInfo, storage: Storage, cache: VolumeCache) -> VolumeDemand | None:
    """Sort a pod's claims into a demand; None when it has none.

    Raises:
        Rejected: when the claims keep the pod from being scheduled at all.
    """
    uses = claim_uses(pod)
    if not uses:
        return None
    for use in uses:
        _check(pod, use.claim, use.is_ephemeral, storage)
    found = _Sorted()
    for use in uses:
        _sort(f"{pod.namespace}/{use.claim}", found, storage, cache)
    if found.immediate:
        raise Rejected(Status.unresolvable("pod has unbound immediate PersistentVolumeClaims"))
    return VolumeDemand(tuple(found.bound), tuple(found.delayed))


def _check(pod: PodInfo, name: str, is_ephemeral: bool, storage: Storage) -> None:
    """Reject a claim that is missing, lost, being deleted, or not owned by the pod although it must be."""
    try:
        claim: PersistentVolumeClaim = storage.get(CLAIMS, name, pod.namespace)
    except NotFoundError as error:
        waiting = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        raise Rejected(Status.unresolvable(waiting if is_ephemeral else str(error))) from None
    if claim.status.phase == "Lost":
        volume = claim.spec.volume_name
        text = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
        raise Rejected(Status.unresolvable(text))
    if claim.metadata.deletion_timestamp is not None:
        raise Rejected(Status.unresolvable(f'persistentvolumeclaim "{name}" is being deleted'))
    if is_ephemeral and (problem := ownership_problem(pod, claim)):
        raise Rejected(Status.unresolvable(problem))


def _sort(key: str, found: _Sorted, storage: Storage, cache: VolumeCache) -> None:
    """Add the assumed version of a claim to the bound or to the delayed claims."""
    claim = cache.claims.find(key)
    if claim is None:
        namespace, _, name = key.partition("/")
        missing = NotFoundError(CLAIMS, name)
        raise Rejected(Status.from_error(f'error getting PVC "{namespace}/{name}": {missing}'))
    if is_fully_bound(claim):
        found.bound.append(cache.facts(claim.spec.volume_name))
        return
    storage_class = None if claim.spec.volume_name else _delaying_class(claim, storage)
    if storage_class is None:
        found.immediate = True
        return
    provisioner = storage_class.provisioner
    driver = storage.find(CSI_DRIVERS, provisioner) if provisioner else None
    limited = driver is not None and driver.spec.storage_capacity is True and "storage" in claim.spec.resources.requests
    selected = claim.metadata.annotations.get(SELECTED_NODE)
    found.delayed.append(DelayedClaim(claim, storage_class, selected, requested_storage(claim), limited))


def _delaying_class(claim: PersistentVolumeClaim, storage: Storage) -> StorageClass | None:
    """Return the claim's class if its volumes are bound only when a pod needs them; None otherwise."""
    name = class_of(claim)
    row: StorageClass | None = storage.find(STORAGE_CLASSES, name) if name else None
    if row is None:
        return None
    if row.volume_binding_mode is None:
        raise Rejected(Status.from_error(f'VolumeBindingMode not set for StorageClass "{row.name}"'))
    return row if row.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER else None
