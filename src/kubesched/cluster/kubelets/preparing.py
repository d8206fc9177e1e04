"""Devices of pods on their nodes: a pod starts when its claims are allocated, reserved for it, and prepared.

How long preparing takes and how often it fails is said by stage rules of kind ResourceClaim; without any it takes no
time. Rules: upstream ``pkg/kubelet/cm/dra``. Caller: :mod:`.hollow`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from ...api.kinds import RESOURCE_CLAIMS
from ...api.resource import ResourceClaim
from ...api.types import Pod
from ...api.wire import Item
from .stages import Stage, choose, rules_of

__all__ = ["FAILED_PREPARE", "Preparing", "claim_names"]

#: The reason of a pod's events about it.
FAILED_PREPARE: Final = "FailedPrepareDynamicResources"


def claim_names(pod: Pod) -> list[str]:
    """The names of the claims that a pod uses; empty for one whose claim is not recorded yet."""
    if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
        return []
    recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = []
    for claim in pod.spec.resource_claims:
        name = claim.resource_claim_name or recorded.get(claim.name, "")
        if name is not None:  # a recorded None: the pod needs no claim there
            names.append(name)
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        names.append(extended.resource_claim_name)
    return names


class Preparing:
    """The claims of the cluster, and the pods that wait for them."""

    def __init__(self, stages: Sequence[Stage], random: Random) -> None:
        self._rules = rules_of(RESOURCE_CLAIMS.kind, stages)
        self._random = random
        self.claims: dict[str, Item] = {}
        self._node_labels: dict[str, dict[str, str]] = {}
        #: By claim: the pods that cannot start because of it.
        self._waiting: dict[str, dict[str, None]] = {}

    def node_changed(self, node: Item) -> None:
        if self._rules:
            self._node_labels[node.name] = node.typed.metadata.labels

    def node_gone(self, name: str) -> None:
        self._node_labels.pop(name, None)

    def claim_changed(self, claim: Item) -> list[str]:
        """Note a claim; the pods that waited for it."""
        self.claims[claim.key] = claim
        return list(self._waiting.pop(claim.key, ()))

    def claim_gone(self, key: str, item: Item | None) -> None:
        self.claims.pop(key, None)

    def pod_gone(self, key: str) -> None:
        for pods in self._waiting.values():
            pods.pop(key, None)

    def stages(self, key: str, pod: Pod) -> tuple[list[Stage], str]:
        """The rule by which a pod's devices are prepared, if there is one; or why they cannot be, as things stand."""
        found: list[Stage] = []
        for name in claim_names(pod):
            claim_key = f"{pod.namespace}/{name}"
            item = self.claims.get(claim_key)
            problem = _problem(item, pod, claim_key)
            if problem:
                self._waiting.setdefault(claim_key, {})[key] = None
                return [], f"Failed to prepare dynamic resources: {problem}"
            if item is not None and self._rules:
                found += self._matching(item, pod.spec.node_name)
        stage = choose(found, self._random) if found else None
        return [stage] if stage is not None else [], ""

    def _matching(self, item: Item, node: str) -> list[Stage]:
        metadata, labels = item.data()["metadata"], self._node_labels.get(node, {})
        allocation = item.typed.status.allocation
        drivers = {result.driver for result in allocation.devices.results} if allocation is not None else set()
        return [
            rule
            for rule in self._rules
            if any(rule.matches_volume(metadata, driver, labels) for driver in sorted(drivers))
        ]


def _problem(item: Item | None, pod: Pod, key: str) -> str:
    """Why a pod may not use a claim; nothing when it may."""
    if item is None:
        return f"failed to fetch ResourceClaim {key.partition('/')[2]} referenced by pod {pod.name}"
    claim: ResourceClaim = item.typed
    if claim.status.allocation is None:
        return f"the ResourceClaim {claim.metadata.name} referenced by pod {pod.name} has not been allocated"
    if all(consumer.uid != pod.uid for consumer in claim.status.reserved_for):
        return f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {claim.metadata.name} ({claim.metadata.uid})"
    return ""
