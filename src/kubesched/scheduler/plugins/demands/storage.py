"""Demands for volumes and devices: each volume with a claim or a disk, each resource claim."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from kubesched.api.types import PodSpec

from ...framework.demand import Change, Demand
from ...nodes import PodInfo
from .words import always

__all__ = ["claims", "volumes", "without_claim"]


def volumes(pod: PodInfo) -> Iterator[Demand]:
    """Each volume with storage behind it."""
    for volume in pod.spec.volumes:
        if not volume.has_storage:
            continue
        of = (
            f" (claim {volume.persistent_volume_claim.claim_name})"
            if volume.persistent_volume_claim is not None
            else ""
        )
        change = Change.of_spec(f"do without the volume {volume.name}{of}", partial(_without_volume, volume.name))
        yield Demand(always(f"volume {volume.name}{of}"), change)


def _without_volume(name: str, spec: PodSpec) -> PodSpec:
    return replace(spec, volumes=tuple(volume for volume in spec.volumes if volume.name != name))


def claims(pod: PodInfo, problem: str) -> Iterator[Demand]:
    """Each resource claim of a pod whose claims have a problem."""
    for claim in pod.spec.resource_claims:
        yield Demand(always(f"resource claim {claim.name}: {problem}"), without_claim(claim.name))


def without_claim(name: str) -> Change:
    """Make the change that drops a resource claim of the pod, by its name in the pod."""
    return Change.of_spec(f"do without the resource claim {name}", partial(_without_claim, name))


def _without_claim(name: str, spec: PodSpec) -> PodSpec:
    return replace(spec, resource_claims=tuple(claim for claim in spec.resource_claims if claim.name != name))
