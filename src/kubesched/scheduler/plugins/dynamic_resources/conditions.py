"""Binding conditions: devices that have to be made ready after they were allocated.

Source: rules/devices §10.
"""

from __future__ import annotations

from typing import Final

from kubesched.api.resource import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim
from kubesched.base.times import parse_time

__all__ = ["BindingFailedError", "has_binding_conditions", "is_ready", "is_timed_out", "with_conditions"]

_TRUE: Final = "True"


class BindingFailedError(Exception):
    """A driver reports that a device cannot be made ready."""


def with_conditions(claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
    """Return the allocated devices that have to be made ready."""
    allocation = claim.status.allocation
    return [] if allocation is None else [each for each in allocation.devices.results if each.binding_conditions]


def has_binding_conditions(claim: ResourceClaim) -> bool:
    """True if some allocated device has to be made ready."""
    return bool(with_conditions(claim))


def is_ready(claim: ResourceClaim) -> bool:
    """True if every allocated device is ready; False for a claim without an allocation.

    Raises:
        BindingFailedError: when a failure condition of a device is true.
    """
    if claim.status.allocation is None:
        return False
    for result in with_conditions(claim):
        device = _status_of(claim, result)
        if device is None:
            return False
        conditions = {condition.type: condition for condition in device.conditions}
        for name in result.binding_failure_conditions:
            failure = conditions.get(name)
            if failure is not None and failure.status == _TRUE:
                raise BindingFailedError(
                    f"device binding failed: claim={claim.metadata.name}, reason={failure.reason}, "
                    f'message="{failure.message}"'
                )
        for name in result.binding_conditions:
            condition = conditions.get(name)
            if condition is None or condition.status != _TRUE:
                return False
    return True


def _status_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    wanted = (result.driver, result.pool, result.device)
    return next((each for each in claim.status.devices if (each.driver, each.pool, each.device) == wanted), None)


def is_timed_out(claim: ResourceClaim, timeout: float, now: float) -> bool:
    """True if a claim's devices were not made ready within ``timeout`` seconds of their allocation."""
    allocation = claim.status.allocation
    if allocation is None or not allocation.allocation_timestamp or not has_binding_conditions(claim):
        return False
    return parse_time(allocation.allocation_timestamp) + timeout < now
