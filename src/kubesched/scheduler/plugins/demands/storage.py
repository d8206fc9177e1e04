"""Demands for volumes and devices: each volume with a claim or a disk, each resource claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from kubesched.api.types import PodSpec, Volume

from ...framework.demand import Change, Demand
from ...framework.question import RowArray
from ...nodes import NodeInfo, PodInfo
from .words import always

__all__ = ["claims", "volumes", "without_claim"]


def volumes(
    pod: PodInfo,
    about: Callable[[Volume], Callable[[RowArray], str]],
    holders: Callable[[Volume, int], Iterable[tuple[NodeInfo, PodInfo]]] = lambda volume, row: (),
    weaker: Callable[[Volume], Iterable[Change]] = lambda volume: (),
) -> Iterator[Demand]:
    """Each volume with storage behind it.

    ``about`` returns the text of its numbers at some rows. ``holders`` returns the pods that stand in its way at a row,
    ``weaker`` smaller changes than to do without it.
    """
    for volume in pod.spec.volumes:
        if not volume.has_storage:
            continue
        claim = volume.persistent_volume_claim
        name = f"{volume.name} (claim {claim.claim_name})" if claim is not None else volume.name
        change = Change.of_spec(f"do without the volume {name}", partial(_without_volume, volume.name))
        text = partial(_volume_text, name, about(volume))
        yield Demand(text, change, tuple(weaker(volume)), holders=partial(holders, volume))


def _volume_text(name: str, about: Callable[[RowArray], str], rows: RowArray) -> str:
    text = about(rows)
    return f"volume {name}: {text}" if text else f"volume {name}"


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
