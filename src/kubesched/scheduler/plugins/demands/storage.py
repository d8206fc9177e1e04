"""Demands for volumes and devices: each volume with a claim or a disk, each resource claim."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from kubesched.api.types import PodSpec

from ...framework.demand import Change, Demand
from ...nodes import PodInfo
from .words import always

__all__ = ["claims", "volumes"]


def volumes(pod: PodInfo) -> Iterator[Demand]:
    """Demands of each volume with storage behind it."""
    for volume in pod.spec.volumes:
        if not volume.has_storage:
            continue
        of = (
            f" (claim {volume.persistent_volume_claim.claim_name})"
            if volume.persistent_volume_claim is not None
            else ""
        )
        change = Change(f"do without the volume {volume.name}{of}", partial(_without_volume, volume.name))
        yield Demand(always(f"volume {volume.name}{of}"), change)


def _without_volume(name: str, spec: PodSpec) -> PodSpec:
    return replace(spec, volumes=tuple(volume for volume in spec.volumes if volume.name != name))


def claims(pod: PodInfo) -> Iterator[Demand]:
    """Demands of each resource claim."""
    for claim in pod.spec.resource_claims:
        change = Change(f"do without the resource claim {claim.name}", partial(_without_claim, claim.name))
        yield Demand(always(f"resource claim {claim.name}"), change)


def _without_claim(name: str, spec: PodSpec) -> PodSpec:
    return replace(spec, resource_claims=tuple(claim for claim in spec.resource_claims if claim.name != name))
