"""Claims of pod groups: one claim serves all members, and is reserved for the group instead of each pod.

A claim of a pod is its group's if the group's spec has the same entry. Source: rules/groups §16.
"""

from __future__ import annotations

from typing import Any, Final

from kubesched.api.resource import ClaimConsumer, ResourceClaim
from kubesched.api.types import Pod

from ...framework.group_trial import GroupTrial
from ...framework.interface import Handle
from ...nodes.pod_groups import group_key

__all__ = ["GroupClaims", "group_consumer", "is_reserved_for_group"]

_API_GROUP: Final = "scheduling.k8s.io"
_PLURAL: Final = "podgroups"


class GroupClaims:
    """Finder of pods' groups, for their claims."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._is_on = handle.gate("DRAWorkloadResourceClaims")

    def sharing_key(self, pod: Pod) -> str:
        """Return the key of the group whose members may share a claim that is being allocated; "" for none."""
        return "" if self._handle.pod_groups is None else group_key(pod)

    def group_of(self, pod: Pod) -> Any | None:
        """Return the PodGroup of a pod; None if it has none or groups have no claims (gate)."""
        if not self._is_on or pod.spec.scheduling_group is None:
            return None
        return self._handle.informed(_PLURAL).get(group_key(pod))

    def has_scheduled(self, pod: Pod, trial: GroupTrial | None) -> bool:
        """Return True if a member of the pod's group has a node, apart from those that a trial has placed."""
        groups = self._handle.pod_groups
        state = groups.of(pod) if groups is not None else None
        if state is None:
            return False
        tried = trial.assumed if trial is not None else frozenset()
        return bool(state.assigned) or any(uid not in tried for uid in state.assumed)


def group_consumer(group: Any) -> ClaimConsumer:
    """Make the entry of a group in ``status.reservedFor``."""
    metadata = group.metadata
    return ClaimConsumer(api_group=_API_GROUP, resource=_PLURAL, name=metadata.name, uid=metadata.uid)


def is_reserved_for_group(claim: ResourceClaim, group: Any) -> bool:
    """Return True if the claim is reserved for the group already."""
    return any(
        each.api_group == _API_GROUP and each.resource == _PLURAL and each.name == group.metadata.name
        for each in claim.status.reserved_for
    )
