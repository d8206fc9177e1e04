"""NodeUnschedulable: keep pods off cordoned nodes unless they tolerate the cordon taint (Filter)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from kubesched.api.taints import NO_SCHEDULE, tolerated
from kubesched.api.types import Node, Pod, Taint
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from kubesched.framework.interface import Plugin, Reads, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

from . import names

if TYPE_CHECKING:
    from kubesched.cache import NodeTable

__all__ = ["NodeUnschedulable"]

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class NodeUnschedulable(Plugin):
    """Reads one bool[row] column; the pod's tolerations are asked once."""

    name = names.NODE_UNSCHEDULABLE
    signs_spec = True
    reads: ClassVar[Reads] = Reads.NODE
    REASON: Final = "node(s) were unschedulable"

    def sign(self, pod: PodInfo) -> Hashable | None:
        return pod.spec.tolerations

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        if tolerated(_CORDON, pod.spec.tolerations):
            return np.zeros(len(rows), np.uint64)
        return nodes.unschedulable[rows].astype(np.uint64)

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        return int(node.unschedulable and not tolerated(_CORDON, pod.spec.tolerations))

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return Status.unresolvable(self.REASON)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT)
        toleration = ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_TOLERATION)
        return [ClusterEventWithHint(node, self._after_node), ClusterEventWithHint(toleration, self._after_toleration)]

    def _after_node(self, pod: PodInfo, old: Node | None, new: Any) -> QueueingHint:
        was_closed = old is None or old.spec.unschedulable
        return QueueingHint.QUEUE if was_closed and not new.spec.unschedulable else QueueingHint.SKIP

    def _after_toleration(self, pod: PodInfo, old: Any, new: Pod) -> QueueingHint:
        helps = new.uid == pod.uid and tolerated(_CORDON, new.spec.tolerations)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP
