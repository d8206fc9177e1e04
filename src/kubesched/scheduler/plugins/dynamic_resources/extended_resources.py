"""Claim that is made up for a pod's extended resources that a device class serves.

A pod that requests such a resource gets devices on nodes without a device plugin for it, by a claim that the scheduler
makes: in memory at PreFilter, with requests for each node at Filter, in the API server at PreBind.

Source: rules/devices §11.2 and §11.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kubesched.api.quantity import parse_quantity
from kubesched.api.resource import (
    ALLOCATION_MODE_EXACT_COUNT,
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kubesched.api.types import Container, ContainerExtendedResourceRequest, ObjectMeta, OwnerReference, Pod, PodSpec

__all__ = ["SPECIAL_CLAIM", "NodeClaim", "is_in_memory", "made_up_claim", "requests_for"]

#: Name of the claim while it is in memory only; no object of the API can have it.
SPECIAL_CLAIM: Final = "<extended-resources>"
_Mappings = tuple[ContainerExtendedResourceRequest, ...]
#: Requests and mappings by (identity of the pod's spec, classes); pods of one template share the spec. An entry keeps
#: its spec, so no other spec gets this identity. Emptied when it has ``_MOST`` entries.
_KNOWN: Final[dict[tuple[int, tuple[tuple[str, str], ...]], tuple[PodSpec, ResourceClaimSpec, _Mappings]]] = {}
_MOST: Final = 1 << 10
#: Nano-units in one whole unit of a quantity.
_WHOLE: Final = 10**9


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """Made-up claim with its requests for one kind of node, and the containers that each request serves."""

    claim: ResourceClaim
    mappings: _Mappings


def is_in_memory(claim: ResourceClaim) -> bool:
    """True if the claim was made up and is not in the API server."""
    return claim.metadata.name == SPECIAL_CLAIM


def made_up_claim(pod: Pod, uid: str) -> ResourceClaim:
    """Make up a claim for a pod, without requests yet."""
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True, block_owner_deletion=True
    )
    return ResourceClaim(
        metadata=ObjectMeta(
            name=SPECIAL_CLAIM,
            generate_name=f"{pod.name}-extended-resources-",
            namespace=pod.namespace,
            uid=uid,
            annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            owner_references=(owner,),
        )
    )


def requests_for(claim: ResourceClaim, pod: Pod, classes: Mapping[str, str]) -> NodeClaim:
    """Return the claim with requests for the resources in ``classes``, which maps a resource to a class name."""
    key = (id(pod.spec), tuple(sorted(classes.items())))
    known = _KNOWN.get(key)
    if known is None:
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        known = _KNOWN[key] = (pod.spec, *_built(pod, classes))
    _, spec, mappings = known
    return NodeClaim(msgspec.structs.replace(claim, spec=spec), mappings)


def _built(pod: Pod, classes: Mapping[str, str]) -> tuple[ResourceClaimSpec, _Mappings]:
    builder = _Builder(pod)
    for resource in sorted(classes):
        builder.add(resource, classes[resource])
    requests = tuple(sorted(builder.requests, key=lambda request: request.name))
    return ResourceClaimSpec(devices=DeviceClaim(requests=requests)), tuple(builder.mappings)


class _Builder:
    """Builder of requests and mappings, resource by resource. Containers are numbered, init containers first."""

    def __init__(self, pod: Pod) -> None:
        self._containers: Sequence[Container] = (*pod.spec.init_containers, *pod.spec.containers)
        self._first_regular = len(pod.spec.init_containers)
        self.requests: list[DeviceRequest] = []
        self.mappings: list[ContainerExtendedResourceRequest] = []

    def add(self, resource: str, class_name: str) -> None:
        amounts = {index: amount for index in range(len(self._containers)) if (amount := self._amount(index, resource))}
        lasting = [index for index in amounts if self._is_lasting(index)]
        for index in lasting:
            self._request(index, resource, class_name, amounts[index])
            self._map(index, resource, self._name(index, resource))
        # Init containers run before the others and use their devices again. Devices that the others do not request are
        # requested once, for the init container that lacks most.
        lacking: list[tuple[int, int]] = []
        for index, amount in amounts.items():
            if index in lasting:
                continue
            missing = amount
            for other in lasting:
                if other >= index and missing > 0:
                    self._map(index, resource, self._name(other, resource))
                    missing -= amounts[other]
            if missing > 0:
                lacking.append((index, missing))
        if lacking:
            most, missing = max(lacking, key=lambda item: item[1])
            self._request(most, resource, class_name, missing)
            for index, _ in lacking:
                self._map(index, resource, self._name(most, resource))

    def _is_lasting(self, index: int) -> bool:
        return index >= self._first_regular or self._containers[index].restart_policy == "Always"

    def _amount(self, index: int, resource: str) -> int:
        """Number of units that a container requests; 0 for an amount that is no whole number."""
        text = self._containers[index].resources.requests.get(resource)
        if text is None:
            return 0
        amount, rest = divmod(parse_quantity(text).nanos, _WHOLE)
        return amount if not rest and amount > 0 else 0

    def _name(self, index: int, resource: str) -> str:
        position = sorted(self._containers[index].resources.requests).index(resource)
        return f"container-{index}-request-{position}"

    def _request(self, index: int, resource: str, class_name: str, count: int) -> None:
        exactly = ExactDeviceRequest(
            device_class_name=class_name, allocation_mode=ALLOCATION_MODE_EXACT_COUNT, count=count
        )
        self.requests.append(DeviceRequest(name=self._name(index, resource), exactly=exactly))

    def _map(self, index: int, resource: str, request: str) -> None:
        self.mappings.append(
            ContainerExtendedResourceRequest(
                container_name=self._containers[index].name, resource_name=resource, request_name=request
            )
        )
