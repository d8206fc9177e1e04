"""NodeLabel: demand or prefer that nodes have some labels and lack others (Filter, Score).

Retired with v1beta2. Source: rules/configuration §11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kubesched.api.types import Node
from kubesched.scheduler.framework.events import (
    ActionType,
    ClusterEvent,
    ClusterEventWithHint,
    EventResource,
    QueueingHint,
)
from kubesched.scheduler.framework.interface import MAX_NODE_SCORE, Handle, Plugin
from kubesched.scheduler.framework.question import IntArray, Question, Reads, RowArray, VerdictArray
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.columns import ABSENT
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo

from ..config import retired_args
from ..config.retired_args import NodeLabelArgs

if TYPE_CHECKING:
    from kubesched.scheduler.nodes import NodeTable

__all__ = ["NodeLabel"]


#: (label, True if a node must have it, False if it must not).
_Demands = list[tuple[str, bool]]


class _DemandedLabels(Question):
    """Question about the operator's labels, equal for all pods."""

    by_spec = True
    reads = Reads.NODE
    key = ()

    def __init__(self, nodes: NodeTable, demands: _Demands, preferences: _Demands) -> None:
        self._nodes, self._demands, self._preferences = nodes, demands, preferences

    def verdicts(self, rows: RowArray) -> VerdictArray:
        rejected = np.zeros(len(rows), np.bool_)
        for key, present in self._demands:
            rejected |= (self._nodes.labels.column(key).codes[rows] != ABSENT) != present
        return rejected.astype(np.uint64)

    def verdict(self, node: NodeInfo) -> int:
        labels = node.labels
        return int(any((key in labels) != present for key, present in self._demands))

    def why(self, verdict: int) -> Status:
        return Status.unresolvable(NodeLabel.REASON)

    def scores(self, rows: RowArray) -> IntArray:
        held = np.zeros(len(rows), np.int64)
        for key, present in self._preferences:
            held += (self._nodes.labels.column(key).codes[rows] != ABSENT) == present
        return held * MAX_NODE_SCORE // max(1, len(self._preferences))

    def score(self, node: NodeInfo) -> int:
        labels = node.labels
        held = sum((key in labels) == present for key, present in self._preferences)
        return held * MAX_NODE_SCORE // max(1, len(self._preferences))


class NodeLabel(Plugin):
    """Check and preference of labels that the operator names. Its question is :class:`_DemandedLabels`."""

    name = "NodeLabel"
    asks = _DemandedLabels
    REASON: Final = "node(s) didn't have the requested labels"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        known = retired_args(args, NodeLabelArgs)
        self._demands = [(key, True) for key in known.present_labels] + [(key, False) for key in known.absent_labels]
        self._preferences = [(key, True) for key in known.present_labels_preference]
        self._preferences += [(key, False) for key in known.absent_labels_preference]

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _DemandedLabels(nodes, self._demands, self._preferences)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        event = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        return [ClusterEventWithHint(event, self._after_node)]

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node) -> QueueingHint:
        met = all((key in new.metadata.labels) == present for key, present in self._demands)
        return QueueingHint.QUEUE if met else QueueingHint.SKIP
