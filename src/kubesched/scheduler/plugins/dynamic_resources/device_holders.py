"""Holders of devices: the pods whose claims have the devices that a request lacks, for explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from kubesched.api.resource import ResourceClaim

from ...dra.allocated import DeviceID
from ...dra.survey import Survey
from ...framework.question import RowArray
from ...nodes import NodeInfo, NodeTable, PodInfo
from .manager import DeviceManager

__all__ = ["DeviceHolders"]

#: Most devices of a request whose holders are looked for.
_MOST: Final = 64


class _Surveys(Protocol):
    """Surveys of nodes, as far as they are read here."""

    def kind(self, row: int) -> int: ...
    def of(
        self, rows: RowArray, claim: str, requests: Callable[[str], bool]
    ) -> Sequence[tuple[str, Sequence[Survey]]]: ...


class DeviceHolders:
    """Pods that use devices which others want."""

    def __init__(self, surveys: _Surveys, manager: DeviceManager, nodes: NodeTable) -> None:
        self._surveys = surveys
        self._manager = manager
        self._nodes = nodes
        #: Devices in use that a request lacks, by claim, request and kind of node.
        self._wanted: dict[tuple[str, str, int], list[DeviceID]] = {}

    def at(self, claim: str, request: str, row: int) -> list[tuple[NodeInfo, PodInfo]]:
        """The pods that use devices which a node reaches and a request of a claim lacks there."""

        place = (claim, request, self._surveys.kind(row))
        if place not in self._wanted:
            surveys = self._surveys.of(np.array([row], np.intp), claim, lambda name: name.partition("/")[0] == request)
            self._wanted[place] = [device for _, mine in surveys for one in mine for device in one.holders][:_MOST]
        if not self._wanted[place]:
            return []
        here = self._nodes.info(row)
        found = {one.uid: (here, one) for one in here.pods.values() if _may_hold(one)}
        # Nodes in equal states share one survey, so a device of one node may be another node's.
        for device in self._wanted[place]:
            for holder in self._by_device.get(device, ()):
                if not _is_of_one_node(holder):
                    found.update((pod.uid, (node, pod)) for node, pod in self.users(holder, row))
        return list(found.values())[: 2 * _MOST]

    def users(self, claim: ResourceClaim, row: int) -> Iterator[tuple[NodeInfo, PodInfo]]:
        """The pods on nodes that a claim is reserved for."""
        for user in claim.status.reserved_for:
            place = self._places.get(user.uid)
            if place is not None:
                yield place

    @cached_property
    def _by_device(self) -> dict[DeviceID, list[ResourceClaim]]:
        """The claims that hold each device."""
        found: dict[DeviceID, list[ResourceClaim]] = {}
        for claim in self._manager.claims.values():
            allocation = claim.status.allocation
            for one in allocation.devices.results if allocation is not None else ():
                found.setdefault(DeviceID(one.driver, one.pool, one.device), []).append(claim)
        return found

    @cached_property
    def _places(self) -> dict[str, tuple[NodeInfo, PodInfo]]:
        """The pods on nodes that have claims, by UID."""
        return {
            pod.uid: (node, pod) for node in self._nodes.all_infos() for pod in node.pods.values() if _may_hold(pod)
        }


def _may_hold(pod: PodInfo) -> bool:
    """True if a pod may have claims, its own or one for extended resources."""
    return bool(pod.spec.resource_claims or pod.fit_requests.scalars)


def _is_of_one_node(claim: ResourceClaim) -> bool:
    """True if a claim's devices are those of one node."""
    allocation = claim.status.allocation
    selector = allocation.node_selector if allocation is not None else None
    return selector is not None and any(term.match_fields for term in selector.node_selector_terms)
