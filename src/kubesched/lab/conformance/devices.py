"""Member ``devices``: the claims that would be allocated on each feasible node, device by device.

In vectors with pods one after the other, the claims of a placed pod get the allocation of the record, as PreBind would
store it.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np

from kubesched.api.decode import from_builtins, to_builtins
from kubesched.api.resource import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.nodes.podinfo import PodInfo

from .world import World

__all__ = ["Allocations", "allocations_of", "devices_member", "store_allocations"]

JSON = dict[str, Any]
#: By node name: the claims that are to be allocated there, each with its allocation.
Allocations = dict[str, list[tuple[ResourceClaim, AllocationResult]]]

_MEMBERS = ("request", "driver", "pool", "device", "consumedCapacity")
_CLAIMS = "resourceclaims"


@runtime_checkable
class ListsDevices(Protocol):
    """Plugin that can list its allocations on a node that passed its Filter."""

    def list_devices(self, state: CycleState, nodes: Any, row: int) -> list[tuple[ResourceClaim, AllocationResult]]: ...


def allocations_of(world: World, pod: PodInfo, state: CycleState, rows: np.ndarray[Any, Any]) -> Allocations:
    """Return the allocations for a pod on each of these feasible rows. Nodes without any are left out."""
    found: Allocations = {}
    table = world.cache.table
    for plugin in world.frameworks[pod.spec.scheduler_name].plugins.values():
        if isinstance(plugin, ListsDevices):
            for row in rows.tolist():
                if listed := plugin.list_devices(state, table, row):
                    found[table.info(row).name] = listed
    return found


def devices_member(allocations: Allocations) -> JSON:
    """Return the member ``devices`` of a record, in the form of the golden files."""
    return {
        node: [
            {"claim": claim.metadata.name, "devices": [_device(result) for result in allocation.devices.results]}
            for claim, allocation in listed
        ]
        for node, listed in allocations.items()
    }


def _device(result: DeviceRequestAllocationResult) -> JSON:
    written = to_builtins(result)
    found = {name: written[name] for name in _MEMBERS if name in written}
    return {**found, "adminAccess": True} if result.admin_access else found


def store_allocations(world: World, pod: PodInfo, node: str, allocations: Allocations, recorded: JSON) -> None:
    """Store the devices that the record gives a placed pod, even if ours differ."""
    ours = {claim.metadata.name: (claim, allocation) for claim, allocation in allocations.get(node, ())}
    agree = devices_member({node: list(ours.values())}) == {node: recorded.get(node, [])}
    for entry in recorded.get(node, ()):
        name = entry["claim"]
        if agree:
            claim, allocation = ours[name]
        else:
            claim = ours[name][0] if name in ours else world.objects.informed(_CLAIMS)[f"{pod.namespace}/{name}"]
            allocation = _pinned(node, entry["devices"])
        _store(world, pod, claim, allocation)
    for reference in pod.spec.resource_claims:
        names = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        name = reference.resource_claim_name or names.get(reference.name) or ""
        used: ResourceClaim | None = world.objects.informed(_CLAIMS).get(f"{pod.namespace}/{name}")
        if used is not None and all(consumer.uid != pod.uid for consumer in used.status.reserved_for):
            _store(world, pod, used, used.status.allocation)


def _pinned(node: str, devices: list[JSON]) -> AllocationResult:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    listed = [{**device, **({"shareID": "recorded"} if "consumedCapacity" in device else {})} for device in devices]
    data = {"devices": {"results": listed}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    return from_builtins(data, AllocationResult)


def _store(world: World, pod: PodInfo, claim: ResourceClaim, allocation: AllocationResult | None) -> None:
    """Write a claim's allocation, reserved for the pod. A claim that exists in memory only gets a name of its own."""
    meta = claim.metadata
    key = f"{meta.namespace}/{meta.name}"
    if key not in world.objects.informed(_CLAIMS):
        key = f"{meta.namespace}/{meta.generate_name}{pod.name}"
        meta = msgspec.structs.replace(meta, name=f"{meta.generate_name}{pod.name}")
    consumers = (*to_builtins(claim.status.reserved_for), {"resource": "pods", "name": pod.name, "uid": pod.uid})
    status = from_builtins({"reservedFor": list(consumers)}, type(claim.status))
    status = msgspec.structs.replace(status, allocation=allocation, devices=claim.status.devices)
    world.write(_CLAIMS, key, msgspec.structs.replace(claim, metadata=meta, status=status))
