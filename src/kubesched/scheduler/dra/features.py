"""Optional parts of dynamic resource allocation (rules/devices §2)."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.features import DEFAULT_GATES, FeatureGates

__all__ = ["DEFAULT_FEATURES", "Features"]


@dataclass(frozen=True, slots=True)
class Features:
    """Parts that are on. Each is one gate, except ``device_binding_and_status``, which needs two."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    device_binding_and_status: bool = True
    consumable_capacity: bool = True
    #: Attributes with lists of values; only CEL reads them.
    list_type_attributes: bool = False

    @classmethod
    def of(cls, gates: FeatureGates) -> Features:
        return cls(
            admin_access=gates.enabled("DRAAdminAccess"),
            prioritized_list=gates.enabled("DRAPrioritizedList"),
            partitionable_devices=gates.enabled("DRAPartitionableDevices"),
            device_taints=gates.enabled("DRADeviceTaints"),
            device_binding_and_status=gates.enabled("DRADeviceBindingConditions")
            and gates.enabled("DRAResourceClaimDeviceStatus"),
            consumable_capacity=gates.enabled("DRAConsumableCapacity"),
            list_type_attributes=gates.enabled("DRAListTypeAttributes"),
        )


DEFAULT_FEATURES = Features.of(DEFAULT_GATES)
