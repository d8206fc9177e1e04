"""NodeUnschedulable: keep pods off cordoned nodes unless they tolerate the cordon taint (Filter)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kubesched.api.taints import NO_SCHEDULE, tolerated
from kubesched.api.types import Node, Pod, Taint

from ..framework.demand import Demand
from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ..framework.interface import Plugin
from ..framework.question import Question, Reads, RowArray, VerdictArray
from ..framework.status import Status
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .demands import node as node_demands

if TYPE_CHECKING:
    from ..nodes import NodeTable

__all__ = ["NodeUnschedulable"]

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class _Cordons(Question):
    """Question about a pod's toleration of cordons, against one bool[row] column."""

    by_spec = True
    reads = Reads.NODE

    def __init__(self, nodes: NodeTable, *, tolerated: bool) -> None:
        self.key = self._is_tolerated = tolerated
        self._nodes = nodes

    def verdicts(self, rows: RowArray) -> VerdictArray:
        if self._is_tolerated:
            return np.zeros(len(rows), np.uint64)
        return self._nodes.unschedulable[rows].astype(np.uint64)

    def verdict(self, node: NodeInfo) -> int:
        return int(node.unschedulable and not self._is_tolerated)

    def why(self, verdict: int) -> Status:
        return Status.unresolvable(NodeUnschedulable.REASON)


class NodeUnschedulable(Plugin):
    """Check of cordoned nodes. Its question is :class:`_Cordons`."""

    name = "NodeUnschedulable"
    asks = _Cordons
    REASON: Final = "node(s) were unschedulable"

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _Cordons(nodes, tolerated=tolerated(_CORDON, pod.spec.tolerations))

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return node_demands.cordons(nodes)

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
