"""Placement of a pod's claims on many nodes at once: the nodes that can satisfy them, and the volumes to use there.

Source: rules/volumes §2.5 to §2.7. The reasons of a node are bits; several may apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kubesched.api.storage import PersistentVolume, StorageClass, class_of
from kubesched.api.types import Labels

from ...framework.interface import VerdictArray
from ...nodes import NodeTable
from ...nodes.columns import BoolArray, IntpArray, RowArray
from .capacity import Segment
from .demand import DelayedClaim, VolumeDemand
from .node_affinity import reaches, reaches_rows
from .volume_cache import VolumeCache, VolumeFacts, claim_key, required_affinity, volume_capacity
from .volume_pool import NO_VOLUME, Pools, volume_mode

__all__ = ["REASONS", "Choice", "PlacementError", "Placements", "Provision", "place", "place_bound"]

_WRONG_NODE: Final = 1
_NO_VOLUME: Final = 2
_NO_SPACE: Final = 4
_GONE: Final = 8

#: Reasons by bit, in upstream's order.
REASONS: Final = {
    _WRONG_NODE: "node(s) didn't match PersistentVolume's node affinity",
    _NO_VOLUME: "node(s) didn't find available persistent volumes to bind",
    _NO_SPACE: "node(s) did not have enough free storage",
    _GONE: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}


class PlacementError(Exception):
    """The placement on a node cannot be computed. The attempt fails with an error."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Claim for which free volumes were looked for. ``volumes``: intp[n], their numbers; NO_VOLUME where none fits."""

    claim: DelayedClaim
    volumes: IntpArray


@dataclass(frozen=True, slots=True, eq=False)
class Provision:
    """Claim that may be provisioned.

    ``needed``: bool[n], True where no volume was found for it. ``segments``: intp[n], index into ``of`` of the segment
    that has the space, -1 when the space is not limited.
    """

    claim: DelayedClaim
    needed: BoolArray
    segments: IntpArray
    of: Sequence[Segment]


@dataclass(slots=True, eq=False)
class Placements:
    """Outcome for n nodes. ``verdicts``: uint64[n], 0 where the claims can be satisfied, else bits of REASONS."""

    verdicts: VerdictArray
    choices: list[Choice] = field(default_factory=list)
    provisions: list[Provision] = field(default_factory=list)


def place(demand: VolumeDemand, nodes: NodeTable, rows: RowArray, cache: VolumeCache, pools: Pools) -> Placements:
    """Evaluate ``demand`` for the nodes of these rows.

    Raises:
        PlacementError: when a node cannot be evaluated.
    """
    found = Placements(np.zeros(len(rows), np.uint64))
    if demand.bound:
        _bound(demand.bound, nodes, rows, cache, found.verdicts)
    if demand.delayed:
        _delayed(demand.delayed, nodes, rows, cache, pools, found)
    return found


# -- bound claims (rules/volumes §2.5, rule 1) -------------------------------------------------------------


def _bound(
    bound: Sequence[VolumeFacts | None], nodes: NodeTable, rows: RowArray, cache: VolumeCache, verdicts: VerdictArray
) -> None:
    """Write the verdicts on bound claims: the first claim that does not fit a node decides."""
    left: IntpArray = np.arange(len(rows))
    for facts in bound:
        if not len(left):
            return
        if facts is None:
            verdicts[left] = _GONE
            return
        allowed = _reaching(facts, nodes, rows[left], cache)
        verdicts[left[~allowed]] = _WRONG_NODE
        left = left[allowed]


def place_bound(bound: Sequence[VolumeFacts | None], node_name: str, labels: Labels, cache: VolumeCache) -> int:
    """Verdict on one node for claims that are all bound, in plain Python.

    Raises:
        PlacementError: when the volume's source cannot be translated.
    """
    for facts in bound:
        if facts is None:
            return _GONE
        reach, problem = cache.reach_on(facts, node_name)
        if problem:
            raise PlacementError(f"could not translate pv: {problem}")
        if not reaches(reach, labels):
            return _WRONG_NODE
    return 0


def _reaching(facts: VolumeFacts, nodes: NodeTable, rows: RowArray, cache: VolumeCache) -> BoolArray:
    if not facts.plugin:
        return reaches_rows(facts.reach, nodes, rows)
    migrated = cache.csi_nodes.migrated_rows(nodes, facts.plugin, rows)
    if not migrated.any():
        return reaches_rows(facts.reach, nodes, rows)
    if facts.problem:
        raise PlacementError(f"could not translate pv: {facts.problem}")
    if facts.reach is facts.migrated_reach:
        return reaches_rows(facts.reach, nodes, rows)
    translated = reaches_rows(facts.migrated_reach, nodes, rows)
    return np.where(migrated, translated, reaches_rows(facts.reach, nodes, rows))


# -- claims that wait for a node (rules/volumes §2.5, rules 2 to 4) ----------------------------------------


def _delayed(
    delayed: Sequence[DelayedClaim],
    nodes: NodeTable,
    rows: RowArray,
    cache: VolumeCache,
    pools: Pools,
    found: Placements,
) -> None:
    verdicts, count = found.verdicts, len(rows)
    here = np.ones(count, np.bool_)
    for claim in delayed:
        if claim.selected_node is not None:
            row = nodes.row_of(claim.selected_node)
            here &= rows == (row if row is not None else -1)
    verdicts[~here] |= np.uint64(_NO_VOLUME)
    if not here.any():
        return
    wanting: list[tuple[DelayedClaim, BoolArray]] = [
        (claim, here) for claim in delayed if claim.selected_node is not None
    ]
    matching = sorted((claim for claim in delayed if claim.selected_node is None), key=lambda claim: claim.size)
    for claim in matching:
        volumes = _match(claim, nodes, rows, cache, pools, [choice.volumes for choice in found.choices])
        found.choices.append(Choice(claim, volumes))
        wanting.append((claim, here & (volumes == NO_VOLUME)))
    failed = np.zeros(count, np.bool_)
    for claim, without in wanting:
        needed = without & ~failed
        if needed.any():
            provision, bits = _provision(claim, needed, nodes, rows, cache)
            found.provisions.append(provision)
            verdicts |= bits
            failed |= bits != 0


def _match(
    claim: DelayedClaim, nodes: NodeTable, rows: RowArray, cache: VolumeCache, pools: Pools, taken: list[IntpArray]
) -> IntpArray:
    """Choose the volume for a claim on each node, intp[len(rows)], besides those ``taken`` (rules/volumes §2.6)."""
    try:
        pool = pools.of(claim.claim)
    except ValueError as error:
        raise PlacementError(str(error)) from None
    found = np.full(len(rows), NO_VOLUME, np.intp)
    open_ = np.ones(len(rows), np.bool_)
    for volume in cache.reserved.get(claim.claim.key, {}).values():
        if _is_reserved_for(volume, claim):
            # The claim gets this reserved volume or none. Rows where another claim has taken the volume are the
            # exception.
            number = pools.numbers.of(volume.name)
            here = open_.copy()
            for others in taken:
                here &= others != number
            allowed = reaches_rows(cache.affinities.of(required_affinity(volume)), nodes, rows)
            found[here & allowed] = number
            open_ &= ~here
            if not open_.any():
                return found
    if not pool:
        return found
    for candidates in pool.smallest(nodes, rows, claim.size, len(taken) + 1):
        fits = open_ & (candidates != NO_VOLUME)
        for others in taken:
            fits &= others != candidates
        found[fits] = candidates[fits]
        open_ &= ~fits
        if not open_.any():
            break
    return found


def _is_reserved_for(volume: PersistentVolume, wanted: DelayedClaim) -> bool:
    """True if a volume is reserved for the claim by its claimRef, and rules 3 to 6 of rules/volumes §2.6 hold.

    Such a volume is bound to the claim regardless of the other rules.
    """
    claim, spec = wanted.claim, volume.spec
    reference = spec.claim_ref
    return (
        reference is not None
        and claim_key(reference) == claim.key
        and reference.uid in ("", claim.metadata.uid)
        and class_of(volume) == class_of(claim)
        and volume_capacity(volume) >= wanted.size
        and volume_mode(spec.volume_mode) == volume_mode(claim.spec.volume_mode)
        and (spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def _provision(
    claim: DelayedClaim, needed: BoolArray, nodes: NodeTable, rows: RowArray, cache: VolumeCache
) -> tuple[Provision, VerdictArray]:
    """Provision a claim where ``needed`` (rules/volumes §2.7). Second value: bits of REASONS, uint64[len(rows)]."""
    bits = np.zeros(len(rows), np.uint64)
    segments = np.full(len(rows), -1, np.intp)
    of: list[Segment] = []
    if not claim.can_be_provisioned:
        bits[needed] = _NO_VOLUME
        return Provision(claim, needed, segments, of), bits
    at: IntpArray = np.flatnonzero(needed)
    allowed = _in_allowed_topology(claim.storage_class, nodes, rows[at])
    bits[at[~allowed]] = _NO_VOLUME
    at = at[allowed]
    if claim.limited and len(at):
        found, of = cache.capacities.rows(claim.storage_class.name, claim.bytes, nodes, rows[at])
        bits[at[found < 0]] = _NO_SPACE
        segments[at] = found
    return Provision(claim, needed, segments, of), bits


def _in_allowed_topology(storage_class: StorageClass, nodes: NodeTable, rows: RowArray) -> BoolArray:
    """Mark nodes that a class allows, bool[len(rows)]: all expressions of some term match, or there is no term."""
    terms = storage_class.allowed_topologies
    if not terms:
        return np.ones(len(rows), np.bool_)
    found = np.zeros(len(rows), np.bool_)
    for term in terms:
        if term.match_label_expressions:
            matches = np.ones(len(rows), np.bool_)
            for expression in term.match_label_expressions:
                column = nodes.labels.column(expression.key)
                table = np.zeros(len(column.values) + 1, np.bool_)
                table[[column.code_of[value] for value in expression.values if value in column.code_of]] = True
                matches &= table[column.codes[rows]]
            found |= matches
    return found
