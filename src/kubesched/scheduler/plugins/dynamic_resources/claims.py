"""Claims of a pod: finds them, and checks that the pod may use them.

Source: rules/devices §5.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from kubesched.api.resource import ClaimConsumer, ResourceClaim
from kubesched.api.types import Pod, PodResourceClaim

__all__ = [
    "ClaimError",
    "can_be_released_by",
    "claim_name",
    "consumer",
    "is_controlled_by",
    "is_for_pod",
    "is_reserved_for",
    "resolve_claims",
    "resolve_with_groups",
    "with_status",
]

_PODS: Final = "pods"


class ClaimError(LookupError):
    """A claim of the pod is missing, or belongs to another pod. The text becomes the pod's message."""


def claim_name(pod: Pod, reference: PodResourceClaim, group: Any = None) -> tuple[str | None, bool]:
    """Name of the claim that an entry of ``spec.resourceClaims`` refers to, and True if the pod must own the claim.

    The name is None when the entry needs no claim. ``group`` is the PodGroup that the entry belongs to, or None.

    Raises:
        ClaimError: when the claim does not exist yet, or the entry names none.
    """
    if reference.resource_claim_name is not None:
        return reference.resource_claim_name, False
    if reference.resource_claim_template_name is not None and group is not None:
        for status in group.status.resource_claim_statuses:
            if status.name == reference.name and status.resource_claim_name:
                return status.resource_claim_name, True
        raise ClaimError(f"PodGroup {pod.namespace}/{group.metadata.name}: ResourceClaim not created yet")
    if reference.resource_claim_template_name is not None:
        for status in pod.status.resource_claim_statuses:
            if status.name == reference.name:
                return status.resource_claim_name, True
        raise ClaimError(f'pod "{pod.key}": ResourceClaim not created yet')
    raise ClaimError(f'pod "{pod.key}", spec.resourceClaim "{reference.name}": none of the supported fields are set')


def resolve_claims(pod: Pod, find: Callable[[str], ResourceClaim], group: Any = None) -> list[ResourceClaim]:
    """Return the pod's claims, in the pod's order, each once. ``group`` is its PodGroup, if that may have claims.

    ``find`` returns the claim of a ``namespace/name``, or raises LookupError. Upstream returns a claim as often as the
    pod names it. Devices are then allocated each time, and the first attempt fails.

    Raises:
        LookupError: for the first claim that the pod cannot use, with the text for the pod.
    """
    return [claim for claim, _ in resolve_with_groups(pod, find, group)]


def resolve_with_groups(
    pod: Pod, find: Callable[[str], ResourceClaim], group: Any = None
) -> list[tuple[ResourceClaim, Any]]:
    """Return what :func:`resolve_claims` returns, each claim with the PodGroup that it is for, or None.

    Raises:
        LookupError: as there.
    """
    claims: list[tuple[ResourceClaim, Any]] = []
    for reference in pod.spec.resource_claims:
        own = group if group is not None and group.shares(reference) else None
        name, must_own = claim_name(pod, reference, own)
        if name is None:
            continue
        claim = find(f"{pod.namespace}/{name}")
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimError(f'resourceclaim "{name}" is being deleted')
        if must_own and not is_for_pod(claim, pod) and not (own is not None and is_controlled_by(claim, own)):
            nobody = "Pod is not owner" if own is None else f"neither Pod nor PodGroup {own.metadata.name} is the owner"
            raise ClaimError(f"ResourceClaim {claim.key} was not created for Pod {pod.key} ({nobody})")
        if all(claim is not known for known, _ in claims):
            claims.append((claim, own))
    return claims


def is_for_pod(claim: ResourceClaim, pod: Pod) -> bool:
    """True if the pod controls the claim."""
    return is_controlled_by(claim, pod)


def is_controlled_by(claim: ResourceClaim, obj: Any) -> bool:
    """True if an object, of the claim's namespace, controls the claim."""
    if claim.metadata.namespace != obj.metadata.namespace:
        return False
    uid = obj.metadata.uid
    return any(owner.controller and owner.uid == uid for owner in claim.metadata.owner_references)


def consumer(pod: Pod) -> ClaimConsumer:
    """Make the entry of a pod in ``status.reservedFor``."""
    return ClaimConsumer(resource=_PODS, name=pod.name, uid=pod.uid)


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """True if the claim is reserved for the pod already."""
    uid = pod.metadata.uid
    return any(entry.uid == uid for entry in claim.status.reserved_for)


def can_be_released_by(claim: ResourceClaim, pod: Pod) -> bool:
    """True if no other pod has a reservation."""
    reserved = claim.status.reserved_for
    return not reserved or (len(reserved) == 1 and reserved[0].uid == pod.uid)


def with_status(claim: ResourceClaim, **changes: object) -> ResourceClaim:
    """Return the claim with members of its status replaced."""
    status = msgspec.structs.replace(claim.status, **changes)
    return msgspec.structs.replace(claim, status=status)
