"""NodeName: a pod that names its node runs there or nowhere (Filter)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ..framework.demand import Demand
from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource
from ..framework.interface import Plugin
from ..framework.question import Question, Reads, RowArray, VerdictArray
from ..framework.status import Status
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .demands import node as node_demands

if TYPE_CHECKING:
    from ..nodes import NodeTable

__all__ = ["NodeName"]


class _NamedNode(Question):
    """Question about the node that ``spec.nodeName`` of a pod names."""

    by_spec = True
    reads = Reads.NODE

    def __init__(self, pod: PodInfo, nodes: NodeTable) -> None:
        self.key = self._wanted = pod.spec.node_name
        self._nodes = nodes

    def verdicts(self, rows: RowArray) -> VerdictArray:
        row = self._nodes.row_of(self._wanted)
        verdicts: VerdictArray = (rows != (-1 if row is None else row)).astype(np.uint64)
        return verdicts

    def verdict(self, node: NodeInfo) -> int:
        return int(self._wanted != node.name)

    def why(self, verdict: int) -> Status:
        return Status.unresolvable(NodeName.REASON)


class NodeName(Plugin):
    """Check of the node that a pod names. Passes every node when ``spec.nodeName`` is empty."""

    name = "NodeName"
    asks = _NamedNode
    REASON: Final = "node(s) didn't match the requested node name"

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _NamedNode(pod, nodes) if pod.spec.node_name else None

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return node_demands.node_name(pod)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD))]
