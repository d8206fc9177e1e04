"""Pod groups (``scheduling.k8s.io/v1alpha2``) as the scheduler reads them.

As in :mod:`.types`, only fields with a meaning for scheduling are declared, and ``None`` means "absent" where that
differs from empty. Source: rules/groups §3.
"""

from __future__ import annotations

from typing import Final

from .resource import Condition
from .structs import Int32, Struct
from .types import ObjectMeta, Pod, PodResourceClaim

__all__ = [
    "GATES",
    "MODE_POD",
    "MODE_POD_GROUP",
    "POD_GROUP_SCHEDULED",
    "PROTECTION",
    "BasicSchedulingPolicy",
    "GangSchedulingPolicy",
    "PodGroup",
    "PodGroupResourceClaim",
    "PodGroupResourceClaimStatus",
    "PodGroupSchedulingConstraints",
    "PodGroupSchedulingPolicy",
    "PodGroupSpec",
    "PodGroupStatus",
    "PodGroupTemplateReference",
    "TopologyConstraint",
    "WorkloadPodGroupTemplateReference",
    "group_key",
]

#: Feature gates of pod groups, all alpha and off by default in 1.36 (rules/groups §2).
GATES: Final = (
    "GenericWorkload",
    "GangScheduling",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
    "WorkloadWithJob",
    "DRAWorkloadResourceClaims",
)
#: Disruption modes: members are evicted one by one, or only all together.
MODE_POD: Final = "Pod"
MODE_POD_GROUP: Final = "PodGroup"
#: Finalizer that keeps a group while it has members that have not ended.
PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"
#: Type of the condition that the scheduler writes.
POD_GROUP_SCHEDULED: Final = "PodGroupScheduled"


class BasicSchedulingPolicy(Struct, frozen=True):
    """Policy of groups whose members are scheduled as they fit."""


class GangSchedulingPolicy(Struct, frozen=True):
    """Policy of groups of which at least ``min_count`` members are scheduled together, or none."""

    min_count: Int32 = 0


class PodGroupSchedulingPolicy(Struct, frozen=True):
    """Policy of a group. Exactly one member is set."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(Struct, frozen=True):
    """Demand that all members run on nodes with one value of the label ``key``."""

    key: str = ""


class PodGroupSchedulingConstraints(Struct, frozen=True):
    """Constraints on the placement of a group as a whole. At most one topology constraint."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupResourceClaim(Struct, frozen=True):
    """Claim that the members of a group share, by name or by template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class WorkloadPodGroupTemplateReference(Struct, frozen=True):
    """Template of a Workload that a group was made from."""

    workload_name: str = ""
    pod_group_template_name: str = ""


class PodGroupTemplateReference(Struct, frozen=True):
    """Origin of a group: a template of a Workload."""

    workload: WorkloadPodGroupTemplateReference | None = None


class PodGroupSpec(Struct, frozen=True):
    pod_group_template_ref: PodGroupTemplateReference | None = None
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: str | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None


class PodGroupResourceClaimStatus(Struct, frozen=True):
    """Claim that was made from a template for the entry ``name`` of the group's claims."""

    name: str = ""
    resource_claim_name: str | None = None


class PodGroupStatus(Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class PodGroup(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def min_count(self) -> int:
        """Number of members below which none is scheduled: ``minCount`` of a gang; 0 for a basic group."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None else 0

    def shares(self, claim: PodResourceClaim) -> bool:
        """True if an entry of a member's ``spec.resourceClaims`` is a claim of the group: all its members are equal."""
        return any(
            one.name == claim.name
            and one.resource_claim_name == claim.resource_claim_name
            and one.resource_claim_template_name == claim.resource_claim_template_name
            for one in self.spec.resource_claims
        )

    @property
    def priority(self) -> int:
        """Priority of the group in preemption: ``spec.priority``; 0 if unset."""
        return self.spec.priority or 0


def group_key(pod: Pod) -> str:
    """Return the key of a pod's group, ``namespace/name``; an empty text for a pod without a group."""
    group = pod.spec.scheduling_group
    return f"{pod.metadata.namespace}/{group.pod_group_name}" if group is not None and group.pod_group_name else ""
