"""Allocation of a claim, made from chosen devices (rules/devices §8.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kubesched.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kubesched.api.types import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

from .device_search import Pick
from .failures import AllocationError
from .pools import DeviceEntry
from .view import NodeView
from .wanted import ClaimWant, Wanted

__all__ = ["allocation_result"]

_FROM_CLASS: Final = "FromClass"
_FROM_CLAIM: Final = "FromClaim"


def allocation_result(
    claim: ResourceClaim,
    want: ClaimWant,
    picks: Sequence[Pick],
    view: NodeView,
    wanted: Wanted,
    share_id: Callable[[], str],
) -> AllocationResult:
    """Build the allocation of a claim.

    Raises:
        AllocationError: when a slice has a node selector of several terms.
    """
    results = tuple(_result(pick, view, wanted, share_id) for pick in picks)
    entries = [_entry(pick, view) for pick in picks]
    try:
        selector = _node_selector(entries, view.node.name, stable=not _knows_binding(wanted))
    except AllocationError as error:
        raise AllocationError(f"create NodeSelector for claim {claim.metadata.name}: {error}") from None
    return AllocationResult(
        devices=DeviceAllocationResult(results=results, config=tuple(_configuration(claim, want, picks, wanted))),
        node_selector=selector,
    )


def _entry(pick: Pick, view: NodeView) -> DeviceEntry:
    number, place = pick.position
    return view.pools[number].devices[place]


def _knows_binding(wanted: Wanted) -> bool:
    """False if upstream would use its "stable" allocator, which ignores ``bindsToNode``."""
    return wanted.features.device_binding_and_status or wanted.features.consumable_capacity


def _result(pick: Pick, view: NodeView, wanted: Wanted, share_id: Callable[[], str]) -> DeviceRequestAllocationResult:
    entry = _entry(pick, view)
    spec = entry.resource_slice.spec
    binding = wanted.features.device_binding_and_status
    consumption = pick.consumption
    return DeviceRequestAllocationResult(
        request=pick.want.name,
        driver=spec.driver,
        pool=spec.pool.name,
        device=entry.name,
        admin_access=True if pick.want.admin else None,
        tolerations=pick.want.tolerations,
        binding_conditions=entry.device.binding_conditions if binding else (),
        binding_failure_conditions=entry.device.binding_failure_conditions if binding else (),
        share_id=None if consumption is None else share_id(),
        consumed_capacity={name: text for name, (_, text) in consumption.items()} if consumption else None,
    )


def _configuration(
    claim: ResourceClaim, want: ClaimWant, picks: Sequence[Pick], wanted: Wanted
) -> Iterable[DeviceAllocationConfiguration]:
    """Yield the configuration of the classes used, each class once, then the claim's own."""
    chosen = {pick.want.request: pick.want for pick in picks}
    selected = [chosen.get(request.name, request.wants[0]) for request in want.requests if request.wants]
    users: dict[str, list[str]] = {}
    for item in selected:
        users.setdefault(item.class_name, []).append(item.name)
    for class_name, requests in users.items():
        found = wanted.classes.get(class_name)
        for config in found.spec.config if found is not None else ():
            yield DeviceAllocationConfiguration(source=_FROM_CLASS, requests=tuple(requests), opaque=config.opaque)
    for own in claim.spec.devices.config:
        entry = DeviceAllocationConfiguration(source=_FROM_CLAIM, requests=own.requests, opaque=own.opaque)
        if not own.requests:
            yield entry
            continue
        for item in selected:
            if item.request in own.requests or item.name in own.requests:
                yield entry


def _node_selector(entries: Sequence[DeviceEntry], node_name: str, *, stable: bool) -> NodeSelector | None:
    """Select the nodes where the devices are available together: this node, nodes with some labels, or None for all
    nodes.
    """
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for entry in entries:
        if entry.node_name is not None or (entry.device.binds_to_node and not stable):
            here = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node_name,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(here,)),))
        selector = entry.node_selector
        if selector is None:
            continue
        terms = selector.node_selector_terms
        if len(terms) != 1:
            raise AllocationError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for found, merged in ((terms[0].match_fields, fields), (terms[0].match_expressions, expressions)):
            for requirement in found:
                if not any(_same(requirement, other) for other in merged):
                    merged.append(requirement)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_fields=tuple(fields), match_expressions=tuple(expressions))
    return NodeSelector(node_selector_terms=(term,))


def _same(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    return one.key == other.key and one.operator == other.operator and set(one.values) == set(other.values)
