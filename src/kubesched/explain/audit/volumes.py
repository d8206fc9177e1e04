"""Volumes and allocated claims that no node of the cluster can reach."""

from __future__ import annotations

from kubesched.api.kinds import RESOURCE_CLAIMS, VOLUMES
from kubesched.api.selectors import NodeSelectorMatcher
from kubesched.api.types import NodeSelector

from .view import View

__all__ = ["audit_volumes"]


def audit_volumes(view: View) -> None:
    """Add bound volumes, and claims with devices, whose node selector matches no node."""
    if not len(view.table):
        return
    known: dict[NodeSelector, bool] = {}

    def reaches(selector: NodeSelector) -> bool:
        if selector not in known:
            matcher = NodeSelectorMatcher.compile(selector)
            known[selector] = bool(matcher.error) or bool(
                view.table.matches_selector(matcher, view.table.order()).any()
            )
        return known[selector]

    for volume in view.objects.all(VOLUMES):
        affinity, claim = volume.spec.node_affinity, volume.spec.claim_ref
        selector = affinity.required if affinity is not None else None
        if claim is not None and selector is not None and not reaches(selector):
            text = f"no node matches the node affinity of {volume.name}, which {claim.namespace}/{claim.name} uses"
            view.findings.add("volume-unreachable", text, "PersistentVolume", [volume.name])
    for claim in view.objects.all(RESOURCE_CLAIMS):
        allocation = claim.status.allocation
        selector = allocation.node_selector if allocation is not None else None
        if selector is not None and not reaches(selector):
            text = f"no node can reach the devices of {claim.key}"
            view.findings.add(
                "volume-unreachable",
                text,
                "ResourceClaim",
                [claim.key],
                source="rules/devices §5.3",
                advice="bring back the node, or delete the claim's pods so that it is allocated anew",
            )
