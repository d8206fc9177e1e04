"""Which events make a pod that devices kept waiting worth another attempt.

Source: spec "DynamicResources plugin and structured device allocator" section 6.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from kubesched.api.resource import ResourceClaim
from kubesched.api.types import Pod
from kubesched.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from kubesched.framework.podinfo import PodInfo

from .assume_cache import AssumeCache
from .claims import resolve_claims

__all__ = ["AfterClaim", "ClaimHints", "ClaimUsers"]

_CHANGED: Final = ActionType.ADD | ActionType.UPDATE


#: With more pods than this waiting for one claim, all waiting pods count.
_MANY: Final = 4096


class ClaimUsers:
    """Which pods wait for a claim that they name, by the claim's key. A generated claim is known by its owner."""

    def __init__(self) -> None:
        self._pods: dict[str, set[str]] = {}

    def add(self, pod: Pod) -> None:
        """The pod waits for its claims."""
        for key in _claim_keys(pod):
            pods = self._pods.setdefault(key, set())
            if len(pods) <= _MANY:
                pods.add(pod.key)

    def remove(self, pod: Pod) -> None:
        """It does not any more."""
        for key in _claim_keys(pod):
            pods = self._pods.get(key)
            if pods is not None and len(pods) <= _MANY:
                pods.discard(pod.key)
                if not pods:
                    del self._pods[key]

    def drop(self, claim: str) -> None:
        """The claim is gone."""
        self._pods.pop(claim, None)

    def of(self, claim: str) -> Collection[str] | None:
        """The pods of a claim, None for too many to know."""
        pods = self._pods.get(claim, ())
        return pods if len(pods) <= _MANY else None


def _claim_keys(pod: Pod) -> Iterator[str]:
    return (
        f"{pod.namespace}/{reference.resource_claim_name}"
        for reference in pod.spec.resource_claims
        if reference.resource_claim_name
    )


class ClaimHints:
    """The events that DynamicResources registers for, and what it says to them."""

    def __init__(self, claims: AssumeCache, users: ClaimUsers) -> None:
        self._claims = claims
        self._after_claim = AfterClaim(claims, users)

    def events(self) -> Sequence[ClusterEventWithHint]:
        node = ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_ALLOCATABLE
        generated = ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
        return [
            ClusterEventWithHint(ClusterEvent(EventResource.NODE, node)),
            ClusterEventWithHint(ClusterEvent(EventResource.RESOURCE_CLAIM, _CHANGED), self._after_claim),
            ClusterEventWithHint(generated, self.after_pod),
            ClusterEventWithHint(ClusterEvent(EventResource.DEVICE_CLASS, _CHANGED)),
            ClusterEventWithHint(ClusterEvent(EventResource.RESOURCE_SLICE, _CHANGED)),
        ]

    def after_pod(self, pod: PodInfo, old: Pod, new: Pod) -> QueueingHint:
        """The pod's generated claims were recorded in its status."""
        if new.uid != pod.uid or _resolved(new, self._claims) is None:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE


class AfterClaim:
    """A claim came or changed: devices may be free, or one of the pod's claims may be usable."""

    def __init__(self, claims: AssumeCache, users: ClaimUsers) -> None:
        self._claims = claims
        self._users = users

    def targets(self, old: ResourceClaim | None, new: ResourceClaim) -> Collection[str] | None:
        """Any pod for devices that became free, else those that use the claim."""
        if _was_freed(old, new):
            return None
        users, meta = self._users.of(new.key), new.metadata
        owners = [f"{meta.namespace}/{owner.name}" for owner in meta.owner_references if owner.controller]
        return None if users is None else [*users, *owners]

    def __call__(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim) -> QueueingHint:
        claims = _resolved(pod.pod, self._claims)
        if claims is None:
            return QueueingHint.SKIP
        if _was_freed(old, new):
            return QueueingHint.QUEUE
        if all(claim.metadata.uid != new.metadata.uid for claim in claims):
            return QueueingHint.SKIP
        if old is None:
            return QueueingHint.QUEUE
        return QueueingHint.SKIP if old.status == new.status else QueueingHint.QUEUE


def _was_freed(old: ResourceClaim | None, new: ResourceClaim) -> bool:
    return old is not None and old.status.allocation is not None and new.status.allocation is None


def _resolved(pod: Pod, claims: AssumeCache) -> list[ResourceClaim] | None:
    """The pod's claims, None when it cannot use one of them."""
    try:
        return resolve_claims(pod, claims.get)
    except LookupError:
        return None
