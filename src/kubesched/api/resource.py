"""Dynamic resources (``resource.k8s.io/v1``) as the scheduler reads them.

A server that stores objects of older versions converts them to this shape. As in :mod:`.types`, only fields with a
meaning for scheduling are declared, and ``None`` means "absent" where that differs from empty. Quantities are kept as
written. Source: rules/devices §1.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from .structs import Int64, Struct
from .types import NodeSelector, ObjectMeta, Pod

__all__ = [
    "ALLOCATION_MODE_ALL",
    "ALLOCATION_MODE_EXACT_COUNT",
    "CLAIM_FINALIZER",
    "EXTENDED_RESOURCE_CLAIM_ANNOTATION",
    "EXTENDED_RESOURCE_PREFIX",
    "MAX_RESULTS",
    "AllocatedDeviceStatus",
    "AllocationResult",
    "CapacityRequestPolicy",
    "CapacityRequestRange",
    "CapacityRequirements",
    "CelDeviceSelector",
    "ClaimConsumer",
    "Condition",
    "Counter",
    "CounterSet",
    "Device",
    "DeviceAllocationConfiguration",
    "DeviceAllocationResult",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceClaim",
    "DeviceClaimConfiguration",
    "DeviceClass",
    "DeviceClassConfiguration",
    "DeviceClassSpec",
    "DeviceConstraint",
    "DeviceCounterConsumption",
    "DeviceRequest",
    "DeviceRequestAllocationResult",
    "DeviceSelector",
    "DeviceSubRequest",
    "DeviceTaint",
    "DeviceTaintRule",
    "DeviceTaintRuleSpec",
    "DeviceTaintSelector",
    "DeviceToleration",
    "ExactDeviceRequest",
    "NodeAllocatableResourceMapping",
    "OpaqueDeviceConfiguration",
    "Quantities",
    "ResourceClaim",
    "ResourceClaimSpec",
    "ResourceClaimStatus",
    "ResourcePool",
    "ResourceSlice",
    "ResourceSliceSpec",
]

CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
#: A resource whose name is this prefix and the name of a class is served by that class.
EXTENDED_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
ALLOCATION_MODE_EXACT_COUNT: Final = "ExactCount"
ALLOCATION_MODE_ALL: Final = "All"
#: Most devices of one claim.
MAX_RESULTS: Final = 32

#: Name to quantity, as written.
Quantities = dict[str, str | int | float]


# -- parts used by several kinds ---------------------------------------------------------------------------


class CelDeviceSelector(Struct, frozen=True):
    expression: str = ""


class DeviceSelector(Struct, frozen=True):
    """CEL selector of devices. ``cel`` is None if the selector has a type that is unknown here."""

    cel: CelDeviceSelector | None = None


class DeviceTaint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class DeviceToleration(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class OpaqueDeviceConfiguration(Struct, frozen=True):
    driver: str = ""
    parameters: Any = None


class Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: Int64 = 0


# -- claims ------------------------------------------------------------------------------------------------


class CapacityRequirements(Struct, frozen=True):
    requests: Quantities = {}


class ExactDeviceRequest(Struct, frozen=True):
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Struct, frozen=True):
    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(Struct, frozen=True):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Struct, frozen=True):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Struct, frozen=True):
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Struct, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Struct, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(Struct, frozen=True):
    """One allocated device. ``request`` is ``name`` or ``name/subrequest``."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: Quantities | None = None


class DeviceAllocationConfiguration(Struct, frozen=True):
    """Configuration of allocated devices. ``source`` is ``FromClass`` or ``FromClaim``."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Struct, frozen=True):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Struct, frozen=True):
    """Devices of a claim. Without ``node_selector`` they are available on every node."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ClaimConsumer(Struct, frozen=True):
    """Consumer for which a claim is reserved (upstream's ResourceClaimConsumerReference)."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""

    @property
    def is_pod(self) -> bool:
        return self.resource == "pods" and not self.api_group

    @property
    def is_pod_group(self) -> bool:
        return self.resource == "podgroups" and self.api_group == "scheduling.k8s.io"


class AllocatedDeviceStatus(Struct, frozen=True):
    """Status of an allocated device, as its driver reports it."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()
    data: Any = None
    network_data: Any = None


class ResourceClaimStatus(Struct, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()

    def is_reserved_for(self, pod: Pod) -> bool:
        """True if the claim is reserved for a pod, by UID, or for the pod's group, by name."""
        uid, group = pod.metadata.uid, pod.spec.scheduling_group
        return any(
            one.uid == uid or (group is not None and one.is_pod_group and one.name == group.pod_group_name)
            for one in self.reserved_for
        )


class ResourceClaim(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def key(self) -> str:
        """Key of the claim: ``namespace/name``, the form used in messages."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


# -- classes -----------------------------------------------------------------------------------------------


class DeviceClassConfiguration(Struct, frozen=True):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Struct, frozen=True):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


# -- slices ------------------------------------------------------------------------------------------------


class DeviceAttribute(Struct, frozen=True):
    """One value of one type; the plural fields are lists (gate DRAListTypeAttributes)."""

    int_value: Int64 | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: tuple[Int64, ...] | None = msgspec.field(default=None, name="ints")
    bool_values: tuple[bool, ...] | None = msgspec.field(default=None, name="bools")
    string_values: tuple[str, ...] | None = msgspec.field(default=None, name="strings")
    version_values: tuple[str, ...] | None = msgspec.field(default=None, name="versions")


class CapacityRequestRange(Struct, frozen=True):
    min: str | int | float | None = None
    max: str | int | float | None = None
    step: str | int | float | None = None


class CapacityRequestPolicy(Struct, frozen=True):
    default: str | int | float | None = None
    valid_values: tuple[str | int | float, ...] = ()
    valid_range: CapacityRequestRange | None = None


class DeviceCapacity(Struct, frozen=True):
    value: str | int | float = 0
    request_policy: CapacityRequestPolicy | None = None


class Counter(Struct, frozen=True):
    value: str | int | float = 0


class CounterSet(Struct, frozen=True):
    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Struct, frozen=True):
    counter_set: str = ""
    counters: dict[str, Counter] = {}


class NodeAllocatableResourceMapping(Struct, frozen=True):
    capacity_key: str | None = None
    allocation_multiplier: str | int | float | None = None


class Device(Struct, frozen=True):
    """Device.

    ``node_name``, ``node_selector`` and ``all_nodes`` count only if the slice has ``perDeviceNodeSelection``.
    """

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] = {}


class ResourcePool(Struct, frozen=True):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Struct, frozen=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


# -- taint rules -------------------------------------------------------------------------------------------


class DeviceTaintSelector(Struct, frozen=True):
    """Selector of the devices that a rule taints. Every field that is given has to match."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Struct, frozen=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
