"""Devices for workloads: the ResourceSlices of a driver, and claims that are allocated beforehand.

Source: rules/benchmark-format §6.3. Caller: :mod:`.execute`.
"""

from __future__ import annotations

import random
import time
from typing import Any

from kubesched.api.decode import to_builtins
from kubesched.api.kinds import DEVICE_CLASSES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubesched.cluster.store import Store
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.dra.allocated import AllocatedDevices
from kubesched.scheduler.dra.allocator import Allocator
from kubesched.scheduler.dra.failures import DeviceAllocationFailure
from kubesched.scheduler.dra.features import Features
from kubesched.scheduler.dra.inventory import Inventory

from .workloads import WorkloadError

__all__ = ["allocate_claims", "driver_slice"]


def allocate_claims(store: Store, namespace: str, gates: FeatureGates, rng: random.Random) -> None:
    """Allocate every claim of a namespace on some node, without reserving it. An empty text stands for all namespaces.

    Raises:
        WorkloadError: when the devices of a claim are not free on any node.
    """
    features = Features.of(gates)
    inventory, allocated = Inventory(features), AllocatedDevices(features)
    for item in store.list(RESOURCE_SLICES).items:
        inventory.put(item.typed)
    classes = {item.name: item.typed for item in store.list(DEVICE_CLASSES).items}
    open_claims = []
    for item in store.list(RESOURCE_CLAIMS).items:
        if item.typed.status.allocation is not None:
            allocated.set_claim(item.uid, item.typed.status.allocation)
        elif namespace in ("", item.namespace):
            open_claims.append(item)
    allocator = Allocator(inventory, allocated, classes.get, now=time.monotonic, rng=rng)
    nodes = [item.typed for item in store.list(NODES).items]
    for item in open_claims:
        demand = allocator.demand([item.typed])
        rng.shuffle(nodes)
        try:
            found = next((result for node in nodes if (result := allocator.allocate(demand, node)) is not None), None)
        except DeviceAllocationFailure as error:
            raise WorkloadError(f"claim {item.key} cannot be allocated: {error}") from None
        if found is None:
            raise WorkloadError(f"claim {item.key} cannot be allocated on any of {len(nodes)} nodes")
        allocated.set_claim(item.uid, found[0])
        status = {"allocation": to_builtins(found[0])}
        store.update(
            RESOURCE_CLAIMS, item.namespace, item.name, {**item.data(), "status": status}, subresource="status"
        )


def driver_slice(node: str, driver: str, count: int) -> dict[str, Any]:
    """Return the ResourceSlice of a node: ``count`` devices that differ in their NUMA node only."""
    devices = [
        {
            "name": f"instance-{index}",
            "attributes": {
                "model": {"string": "A100"},
                "family": {"string": "GPU"},
                "driverVersion": {"version": "1.2.3"},
                "dra.example.com/numa": {"int": index},
            },
            "capacity": {"memory": {"value": "1Gi"}},
        }
        for index in range(count)
    ]
    pool = {"name": node, "generation": 0, "resourceSliceCount": 1}
    return {
        "metadata": {"name": node},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
    }
