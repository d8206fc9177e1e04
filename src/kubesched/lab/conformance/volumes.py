"""Member ``volumes``: the volumes that would be bound and provisioned on each feasible node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import NodeTable
from kubesched.scheduler.nodes.podinfo import PodInfo

from .world import World

__all__ = ["PlansVolumes", "volumes_of"]

JSON = dict[str, Any]


class PlannedVolumes(Protocol):
    """Claims with the volumes to bind them to, and claims to be provisioned."""

    @property
    def static(self) -> Sequence[tuple[PersistentVolumeClaim, PersistentVolume]]: ...
    @property
    def dynamic(self) -> Sequence[PersistentVolumeClaim]: ...


@runtime_checkable
class PlansVolumes(Protocol):
    """Plugin that reports a pod's volumes on a node that it fits, and reserves them at Reserve."""

    name: str

    def volumes_on(self, state: CycleState, pod: PodInfo, nodes: NodeTable, row: int) -> PlannedVolumes: ...
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


def _planners(world: World, pod: PodInfo, state: CycleState) -> Iterator[PlansVolumes]:
    """Yield the plugins that PreFilter did not skip for the pod and that look for volumes at Filter."""
    at_filter = world.points[pod.spec.scheduler_name]["filter"]
    for plugin in world.frameworks[pod.spec.scheduler_name].plugins.values():
        if isinstance(plugin, PlansVolumes) and plugin.name in at_filter and plugin.name not in state.skip_filter:
            yield plugin


def volumes_of(world: World, pod: PodInfo, state: CycleState, rows: np.ndarray[Any, Any]) -> JSON:
    """Return the pod's volumes by feasible node, in the form of the golden files. Nodes without any are left out."""
    found: JSON = {}
    table = world.cache.table
    for plugin in _planners(world, pod, state):
        for row in rows.tolist():
            planned = plugin.volumes_on(state, pod, table, row)
            record: JSON = {}
            if planned.static:
                record["static"] = [[claim.metadata.name, volume.metadata.name] for claim, volume in planned.static]
            if planned.dynamic:
                record["dynamic"] = [claim.metadata.name for claim in planned.dynamic]
            if record:
                found[table.info(row).name] = record
    return found
