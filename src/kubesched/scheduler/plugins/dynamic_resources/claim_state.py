"""State of a scheduling attempt's claims, from PreFilter to PreBind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubesched.api.resource import AllocationResult, ClaimConsumer, ResourceClaim
from kubesched.api.selectors import NodeSelectorMatcher
from kubesched.api.types import ContainerExtendedResourceRequest, Pod

from ...dra.allocator import ClaimDemand
from ...nodes.nodeinfo import NodeInfo
from .claims import consumer, is_reserved_for
from .extended_resources import NodeClaim, requests_for
from .group_claims import group_consumer, is_reserved_for_group
from .manager import NodeAllocator
from .scores import has_preferences

__all__ = ["ClaimState", "NodeDemand", "PodClaim"]


@dataclass(slots=True)
class PodClaim:
    """Claim of the pod in an attempt.

    Attributes:
        claim: the newest version that the attempt knows.
        selector: the nodes on which its devices are available; None: all nodes, or it is not allocated.
        is_special: True if it is for the pod's extended resources.
        decided: the allocation for which the node was chosen; None when the claim had none.
        initial_uid: the UID under which its allocation is in flight. A claim in memory gets another UID when it is
            created.
        pending: the allocation that Reserve decided.
        created: True if PreBind created the object.
        group: the PodGroup that the claim is reserved for; None if it is reserved for the pod.
        sharing: key of the pod group whose members may share the claim while it is being allocated; "" for none.
        shared: the allocation that another member of the group is about to write; None if there is none.
        signalled: True while the pod counts as a pod that is about to use the pending allocation.
    """

    claim: ResourceClaim
    selector: NodeSelectorMatcher | None = None
    is_special: bool = False
    decided: AllocationResult | None = None
    initial_uid: str = ""
    pending: AllocationResult | None = None
    created: bool = False
    group: Any = None
    sharing: str = ""
    shared: AllocationResult | None = None
    signalled: bool = False

    def __post_init__(self) -> None:
        self.initial_uid = self.claim.metadata.uid
        self.decided = self.claim.status.allocation

    @property
    def is_allocated(self) -> bool:
        """True if the devices are decided, for this pod or before it."""
        return self.claim.status.allocation is not None or self.shared is not None

    def is_reserved(self, claim: ResourceClaim, pod: Pod) -> bool:
        """True if a version of the claim is reserved for the pod, or for its group if the claim is the group's."""
        return is_reserved_for(claim, pod) if self.group is None else is_reserved_for_group(claim, self.group)

    def consumer(self, pod: Pod) -> ClaimConsumer:
        """Make the entry in ``status.reservedFor``."""
        return consumer(pod) if self.group is None else group_consumer(self.group)


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """Devices to be allocated on one kind of node.

    Attributes:
        demand: the demand as the allocator prepared it; None when there is nothing to allocate.
        special: the special claim with its requests for such nodes; None if it requests nothing there.
    """

    demand: ClaimDemand | None
    special: NodeClaim | None


@dataclass(slots=True)
class ClaimState:
    """Claims of one scheduling attempt. "Special" is the claim for the pod's extended resources.

    Attributes:
        pod: the pod.
        claims: the pod's claims in order, the special one last.
        resources: class, or None, by extended resource. It has the resources that the pod requests and a class may
            serve.
        is_leftover: True if an earlier attempt left the special claim behind.
        filtered: True if Filter was called, so that Reserve may allocate.
        unavailable: indexes in ``claims`` of the claims for which some node was rejected.
        mappings: the containers that the requests of the special claim serve; set by Reserve.
    """

    pod: Pod
    claims: list[PodClaim] = field(default_factory=list)
    resources: Mapping[str, str | None] = field(default_factory=dict)
    is_leftover: bool = False
    filtered: bool = False
    unavailable: set[int] = field(default_factory=set)
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    _demands: dict[frozenset[str], NodeDemand] = field(default_factory=dict)

    @property
    def special(self) -> PodClaim | None:
        last = self.claims[-1] if self.claims else None
        return last if last is not None and last.is_special else None

    def unallocated(self) -> Iterator[PodClaim]:
        return (each for each in self.claims if not each.is_allocated)

    @property
    def allocates(self) -> bool:
        """True if some claim has no devices yet. Otherwise Filter computes nothing and every node scores 0."""
        return any(not each.is_allocated for each in self.claims)

    @property
    def only_allocates(self) -> bool:
        """True if only the allocator decides about nodes: no claim has devices yet, and none is a leftover."""
        return (
            bool(self.claims)
            and not self.is_leftover
            and all(self.resources.values())
            and not any(each.is_allocated for each in self.claims)
        )

    @property
    def has_preferences(self) -> bool:
        """True if a claim to be allocated has a prioritised list."""
        return any(has_preferences(each.claim) for each in self.unallocated())

    def served(self) -> frozenset[str]:
        """Extended resources that a class serves on nodes without a device plugin for them."""
        if self.special is None:
            return frozenset()
        return frozenset([name for name, class_name in self.resources.items() if class_name])

    def served_on(self, node: NodeInfo) -> frozenset[str]:
        """Extended resources that a class serves on this node, because the node itself does not have them."""
        served = self.served()
        return frozenset([name for name in served if not node.allocatable.get(name)]) if served else served

    def demand_for(self, served: frozenset[str], allocator: NodeAllocator) -> NodeDemand:
        """Return the devices to allocate on nodes where a class, not a device plugin, serves these resources."""
        found = self._demands.get(served)
        if found is None:
            special = self.special
            node_claim = None
            if special is not None and served:
                classes = {name: name_of for name, name_of in self.resources.items() if name in served and name_of}
                node_claim = requests_for(special.claim, self.pod, classes)
            claims = [each.claim for each in self.unallocated() if not each.is_special]
            if node_claim is not None and node_claim.claim.spec.devices.requests:
                claims.append(node_claim.claim)
            found = self._demands[served] = NodeDemand(allocator.demand(claims) if claims else None, node_claim)
        return found
