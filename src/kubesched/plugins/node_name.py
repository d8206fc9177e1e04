"""NodeName: a pod that names its node runs there or nowhere (Filter)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource
from kubesched.framework.interface import Plugin, Reads, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

from . import names

if TYPE_CHECKING:
    from kubesched.cache import NodeTable

__all__ = ["NodeName"]


class NodeName(Plugin):
    """Passes every node when ``spec.nodeName`` is empty."""

    name = names.NODE_NAME
    signs_spec = True
    reads: ClassVar[Reads] = Reads.NODE
    REASON: Final = "node(s) didn't match the requested node name"

    def sign(self, pod: PodInfo) -> Hashable | None:
        return pod.spec.node_name

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        wanted = pod.spec.node_name
        if not wanted:
            return np.zeros(len(rows), np.uint64)
        row = nodes.row_of(wanted)
        verdicts: VerdictArray = (rows != (-1 if row is None else row)).astype(np.uint64)
        return verdicts

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        wanted = pod.spec.node_name
        return int(bool(wanted) and wanted != node.name)

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return Status.unresolvable(self.REASON)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD))]
