"""Queueing hints of DynamicResources: which events make a rejected pod worth another attempt.

Source: rules/devices §6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubesched.api.resource import ResourceClaim
from kubesched.api.types import Pod

from ...framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, KeyedHint, QueueingHint
from ...nodes.podinfo import PodInfo
from ..assume_cache import AssumeCache
from .claims import resolve_claims

__all__ = ["ClaimHints"]

_CHANGED: Final = ActionType.ADD | ActionType.UPDATE


def _claim_keys(pod: PodInfo) -> list[str]:
    """Keys of the claims that a pod names, without claims whose names are not known yet."""
    recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = (claim.resource_claim_name or recorded.get(claim.name) for claim in pod.spec.resource_claims)
    return [f"{pod.namespace}/{name}" for name in names if name]


def _claim_key(old: ResourceClaim | None, new: ResourceClaim) -> tuple[str] | None:
    """Key of the claim that changed; None when its devices became free, which may help any pod."""
    freed = old is not None and old.status.allocation is not None and new.status.allocation is None
    return None if freed else (new.key,)


class ClaimHints:
    """Registrations for events, and the hints about them."""

    def __init__(self, claims: AssumeCache[ResourceClaim]) -> None:
        self._claims = claims

    def events(self) -> Sequence[ClusterEventWithHint]:
        node = ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_ALLOCATABLE
        generated = ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
        return [
            ClusterEventWithHint(ClusterEvent(EventResource.NODE, node)),
            ClusterEventWithHint(
                ClusterEvent(EventResource.RESOURCE_CLAIM, _CHANGED),
                KeyedHint(self.after_claim, _claim_keys, _claim_key),
            ),
            ClusterEventWithHint(generated, self.after_pod),
            ClusterEventWithHint(ClusterEvent(EventResource.DEVICE_CLASS, _CHANGED)),
            ClusterEventWithHint(ClusterEvent(EventResource.RESOURCE_SLICE, _CHANGED)),
        ]

    def after_claim(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim) -> QueueingHint:
        """Queue if devices may be free, or one of the pod's claims may be usable."""
        claims = self._resolve(pod.pod)
        if claims is None:
            return QueueingHint.SKIP
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return QueueingHint.QUEUE
        if all(claim.metadata.uid != new.metadata.uid for claim in claims):
            return QueueingHint.SKIP
        if old is None:
            return QueueingHint.QUEUE
        return QueueingHint.SKIP if old.status == new.status else QueueingHint.QUEUE

    def after_pod(self, pod: PodInfo, old: Pod, new: Pod) -> QueueingHint:
        """Queue when the pod's generated claims were recorded in its status."""
        if new.uid != pod.uid or self._resolve(new) is None:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE

    def _resolve(self, pod: Pod) -> list[ResourceClaim] | None:
        """Return the pod's claims, or None when it cannot use one of them."""
        try:
            return resolve_claims(pod, self._claims.get)
        except LookupError:
            return None
