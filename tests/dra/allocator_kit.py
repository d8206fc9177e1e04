"""Devices, claims and an allocator in few words."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kubesched.api.decode import from_builtins
from kubesched.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from kubesched.api.types import Node
from kubesched.scheduler.dra.allocated import AllocatedDevices
from kubesched.scheduler.dra.allocator import Allocator
from kubesched.scheduler.dra.features import DEFAULT_FEATURES, Features
from kubesched.scheduler.dra.interface import Verdict
from kubesched.scheduler.dra.inventory import Inventory

__all__ = [
    "DRIVER",
    "JSON",
    "World",
    "a_claim",
    "a_class",
    "a_device",
    "a_node",
    "a_request",
    "a_slice",
    "any_of",
    "devices_of",
]  # fmt: skip

JSON = dict[str, Any]
DRIVER = "gpu.example.com"


def a_node(name: str = "n1", **labels: str) -> Node:
    return from_builtins({"metadata": {"name": name, "labels": labels}}, Node)


def _attribute(value: Any) -> JSON:
    if isinstance(value, dict):
        return value
    kind = {bool: "bool", int: "int", str: "string"}[type(value)]
    return {kind: value}


def a_device(
    name: str,
    capacity: Mapping[str, Any] | None = None,
    *,
    uses: JSON | None = None,
    taints: Sequence[str] = (),
    **fields: Any,
) -> JSON:
    """Fields other than those of a device are attributes, like the items of ``attributes``; ``uses`` is counters of the set "set"; a taint is "key" or "key:effect"."""
    device: JSON = {"name": name}
    for key in ("allowMultipleAllocations", "bindingConditions", "bindsToNode", "nodeName", "nodeSelector", "allNodes"):
        if key in fields:
            device[key] = fields.pop(key)
    named = fields.pop("attributes", {})
    device["attributes"] = {key: _attribute(value) for key, value in {**fields, **named}.items()}
    if capacity:
        device["capacity"] = {k: v if isinstance(v, dict) else {"value": v} for k, v in capacity.items()}
    if uses:
        counters = {key: {"value": value} for key, value in uses.items()}
        device["consumesCounters"] = [{"counterSet": "set", "counters": counters}]
    device["taints"] = [
        {"key": key, "effect": effect or "NoSchedule"} for key, _, effect in (taint.partition(":") for taint in taints)
    ]
    return device


def a_slice(
    name: str,
    devices: Iterable[JSON | str] = (),
    *,
    node: str | None = "n1",
    pool: str = "",
    driver: str = DRIVER,
    generation: int = 1,
    count: int = 1,
    counters: JSON | None = None,
    **spec: Any,
) -> ResourceSlice:
    """A slice for a node, unless another kind of selection is given; its pool is named like the node."""
    if any(key in spec for key in ("nodeSelector", "allNodes", "perDeviceNodeSelection")):
        node = None
    body: JSON = {
        "driver": driver,
        "pool": {"name": pool or node or "pool", "generation": generation, "resourceSliceCount": count},
        "devices": [a_device(item) if isinstance(item, str) else item for item in devices],
        **spec,
    }
    if node is not None:
        body["nodeName"] = node
    if counters is not None:
        body["sharedCounters"] = [
            {"name": "set", "counters": {key: {"value": value} for key, value in counters.items()}}
        ]
    return from_builtins({"metadata": {"name": name}, "spec": body}, ResourceSlice)


def a_class(name: str = "gpu", *expressions: str, **spec: Any) -> DeviceClass:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    return from_builtins({"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}, DeviceClass)


def a_request(name: str = "req", count: int | str = 1, *, cls: str = "gpu", **fields: Any) -> JSON:
    """``count`` may be "All"; ``select`` is an expression, ``amounts`` are requests of capacity."""
    body: JSON = {"deviceClassName": cls, "allocationMode": "ExactCount", "count": count}
    if count == "All":
        body = {"deviceClassName": cls, "allocationMode": "All"}
    if "select" in fields:
        body["selectors"] = [{"cel": {"expression": fields.pop("select")}}]
    if "amounts" in fields:
        body["capacity"] = {"requests": fields.pop("amounts")}
    return {"name": name, "exactly": {**body, **fields}}


def any_of(name: str, *requests: JSON) -> JSON:
    """The first of these requests that can be served."""
    return {"name": name, "firstAvailable": [{"name": item["name"], **item["exactly"]} for item in requests]}


def a_claim(
    *requests: JSON, name: str = "claim", constraints: Sequence[JSON] = (), config: Sequence[JSON] = ()
) -> ResourceClaim:
    devices = {"requests": list(requests), "constraints": list(constraints), "config": list(config)}
    return from_builtins(
        {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"}, "spec": {"devices": devices}},
        ResourceClaim,
    )


def devices_of(result: AllocationResult) -> list[str]:
    """``request=device`` of each result."""
    return [f"{item.request}={item.device}" for item in result.devices.results]


class World:
    """Slices, classes and nodes, with one allocator."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        classes: Iterable[DeviceClass] = (),
        nodes: Iterable[Node] = (),
        features: Features = DEFAULT_FEATURES,
        *,
        strict_counters: bool = False,
    ) -> None:
        self.time = 0.0
        self.inventory = Inventory(features)
        self.allocated = AllocatedDevices(features)
        self.classes = {item.metadata.name: item for item in classes} or {"gpu": a_class()}
        self.nodes = list(nodes) or [a_node()]
        for item in slices:
            self.inventory.put(item)
        self.allocator = Allocator(
            self.inventory,
            self.allocated,
            self.classes.get,
            now=lambda: self.time,
            timeout=10.0,
            rng=random.Random(1),
            strict_counters=strict_counters,
        )
        for row, node in enumerate(self.nodes):
            self.allocator.set_node(row, node)

    def allocate(self, *claims: ResourceClaim, on: int = 0) -> tuple[AllocationResult, ...] | None:
        return self.allocator.allocate(self.allocator.demand(claims), self.nodes[on])

    def chosen(self, *claims: ResourceClaim, on: int = 0) -> list[str] | None:
        """``request=device`` over all claims."""
        results = self.allocate(*claims, on=on)
        return None if results is None else [text for result in results for text in devices_of(result)]

    def take(self, claim: ResourceClaim, on: int = 0) -> AllocationResult:
        """Allocate a claim and record it."""
        results = self.allocate(claim, on=on)
        assert results is not None, f"{claim.key} does not fit"
        self.allocated.set_claim(claim.metadata.uid, results[0])
        return results[0]

    def verdicts(self, *claims: ResourceClaim) -> list[Verdict]:
        found = self.allocator.verdicts(self.allocator.demand(claims), np.arange(len(self.nodes)))
        return [Verdict(int(item)) for item in found]
