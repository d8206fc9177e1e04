"""Kubernetes objects as the scheduler reads them.

Only fields that scheduling needs are declared; msgspec skips the others while decoding. Objects are frozen and their
lists are tuples, so that cache, queue and plugins share one decoded object without copies. ``None`` means that the
field was absent, where absence differs from emptiness (a nil ``nodeSelector`` and an empty one behave differently).
Elsewhere an absent list is the empty tuple.

The field names are upstream's in snake_case; on the wire they are camelCase.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .structs import Int32, Int64, Labels, ResourceList, Struct
from .volume_sources import (
    ISCSI,
    RBD,
    AWSElasticBlockStore,
    AzureDisk,
    AzureFile,
    Cinder,
    ClaimSource,
    CSISource,
    EphemeralSource,
    GCEPersistentDisk,
    PortworxVolume,
    VsphereVolume,
)

__all__ = [
    "Affinity",
    "Container",
    "ContainerExtendedResourceRequest",
    "ContainerImage",
    "ContainerPort",
    "ContainerRestartRule",
    "ContainerStatus",
    "ExtendedResourceClaimStatus",
    "LabelSelector",
    "LabelSelectorRequirement",
    "Labels",
    "Namespace",
    "Node",
    "NodeAffinity",
    "NodeCondition",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodCondition",
    "PodResourceClaim",
    "PodResourceClaimStatus",
    "PodSchedulingGate",
    "PodSpec",
    "PodStatus",
    "PreferredSchedulingTerm",
    "ResourceList",
    "ResourceRequirements",
    "Taint",
    "Toleration",
    "TopologySpreadConstraint",
    "Volume",
    "WeightedPodAffinityTerm",
]


# -- metadata ----------------------------------------------------------------------------------------------


class OwnerReference(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Struct, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: Labels = {}
    annotations: Labels = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


# -- selectors ---------------------------------------------------------------------------------------------


class LabelSelectorRequirement(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True):
    match_labels: Labels = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelectorRequirement(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Struct, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Struct, frozen=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] | None = None

    @property
    def required(self) -> NodeSelector | None:
        return self.required_during_scheduling_ignored_during_execution

    @property
    def preferred(self) -> tuple[PreferredSchedulingTerm, ...] | None:
        return self.preferred_during_scheduling_ignored_during_execution


class PodAffinityTerm(Struct, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Struct, frozen=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Struct, frozen=True):
    """Affinity between pods: ``podAffinity`` or ``podAntiAffinity``, which have the same shape."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()

    @property
    def required(self) -> tuple[PodAffinityTerm, ...]:
        return self.required_during_scheduling_ignored_during_execution

    @property
    def preferred(self) -> tuple[WeightedPodAffinityTerm, ...]:
        return self.preferred_during_scheduling_ignored_during_execution


class Affinity(Struct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Struct, frozen=True):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


# -- taints and tolerations --------------------------------------------------------------------------------


class Taint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Toleration(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


# -- pods --------------------------------------------------------------------------------------------------


class ResourceRequirements(Struct, frozen=True):
    requests: ResourceList = {}
    limits: ResourceList = {}


class ContainerPort(Struct, frozen=True):
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""
    name: str = ""


class ContainerRestartRule(Struct, frozen=True):
    action: str = ""


class Container(Struct, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


class Volume(Struct, frozen=True):
    """Pod volume. Only sources that scheduling reads are declared; see :attr:`has_storage`."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    image: dict[str, Any] | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: Cinder | None = None
    csi: CSISource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    iscsi: ISCSI | None = None
    portworx_volume: PortworxVolume | None = None
    rbd: RBD | None = None
    vsphere_volume: VsphereVolume | None = None

    @property
    def has_storage(self) -> bool:
        """True if the volume has a declared source other than ``image``, so that a storage plugin may be concerned."""
        return (
            self.persistent_volume_claim is not None
            or self.ephemeral is not None
            or self.csi is not None
            or self.aws_elastic_block_store is not None
            or self.gce_persistent_disk is not None
            or self.iscsi is not None
            or self.rbd is not None
            or self.azure_disk is not None
            or self.azure_file is not None
            or self.cinder is not None
            or self.portworx_volume is not None
            or self.vsphere_volume is not None
        )


class PodSchedulingGate(Struct, frozen=True):
    name: str = ""


class PodResourceClaim(Struct, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(Struct, frozen=True):
    pod_group_name: str = ""


class PodSpec(Struct, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = {}
    resources: ResourceRequirements | None = None
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    host_network: bool = False
    host_users: bool | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: Int64 | None = None


class PodCondition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    observed_generation: Int64 = 0


class ContainerStatus(Struct, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}


class PodResourceClaimStatus(Struct, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Struct, frozen=True):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(Struct, frozen=True):
    """Claim that the scheduler made for extended resources, and the mapping of its requests to containers."""

    resource_claim_name: str = ""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class PodStatus(Struct, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: tuple[PodCondition, ...] = ()
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def key(self) -> str:
        """Name of the pod in the queue and in messages: ``namespace/name``."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name

    @property
    def priority(self) -> int:
        """Priority of the pod: ``spec.priority``; 0 if unset."""
        return self.spec.priority or 0

    def on_node(self, node_name: str) -> Pod:
        """Return a copy with ``spec.nodeName`` set, which shares everything else."""
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(self.spec, node_name=node_name))


# -- nodes -------------------------------------------------------------------------------------------------


class NodeSpec(Struct, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeCondition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""


class ContainerImage(Struct, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(Struct, frozen=True):
    allocatable: ResourceList = {}
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> Labels:
        return self.metadata.labels


# -- other objects -----------------------------------------------------------------------------------------


class Namespace(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class ObjectReference(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
