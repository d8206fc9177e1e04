"""TaintToleration: keep pods off nodes with taints they do not tolerate, and prefer nodes with fewer soft ones.

Filter, PreScore, Score (rules/node-plugins §7.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from kubesched.api.taints import PREFER_NO_SCHEDULE, first_untolerated, tolerated
from kubesched.api.types import Node, Pod, Taint, Toleration

from ..framework.demand import Demand
from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ..framework.interface import Handle, Plugin
from ..framework.question import IntArray, Normalize, Question, Reads, RowArray, VerdictArray
from ..framework.status import Status
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .demands import node as node_demands

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable

__all__ = ["TaintToleration"]


def _kept_away(taints: Sequence[Taint], tolerations: Sequence[Toleration], *, comparison: bool) -> bool:
    return first_untolerated(taints, tolerations, comparison_operators=comparison) is not None


class _Taints(Question):
    """Question about a pod's tolerations, evaluated once per distinct taint tuple and gathered over the rows."""

    by_spec = True
    reads = Reads.NODE
    normalize = Normalize.REVERSE

    def __init__(self, pod: PodInfo, nodes: NodeTable, *, comparison: bool) -> None:
        self.key = self._tolerations = pod.spec.tolerations
        self._nodes = nodes
        self._comparison = comparison
        self._kept_away = partial(_kept_away, tolerations=self._tolerations, comparison=comparison)
        self._soft: Sequence[Toleration] = ()

    # -- filter ----------------------------------------------------------------------------------------

    def verdicts(self, rows: RowArray) -> VerdictArray:
        return self._nodes.taints.gather(self._kept_away, rows).astype(np.uint64)

    def verdict(self, node: NodeInfo) -> int:
        taints = node.taints
        return int(bool(taints) and self._kept_away(taints))

    def why(self, verdict: int) -> Status:
        return Status.unresolvable(TaintToleration.REASON)

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, nodes: NodeList) -> Status | None:
        self._soft = tuple(item for item in self._tolerations if item.effect in ("", PREFER_NO_SCHEDULE))
        return None

    def _intolerable(self, taints: Sequence[Taint]) -> int:
        return sum(
            taint.effect == PREFER_NO_SCHEDULE
            and not tolerated(taint, self._soft, comparison_operators=self._comparison)
            for taint in taints
        )

    def scores(self, rows: RowArray) -> IntArray:
        return self._nodes.taints.gather(self._intolerable, rows)

    def score(self, node: NodeInfo) -> int:
        taints = node.taints
        return self._intolerable(taints) if taints else 0


class TaintToleration(Plugin):
    """Check of hard taints and preference by soft ones. Its question is :class:`_Taints`."""

    name = "TaintToleration"
    asks = _Taints
    REASON: Final = "node(s) had untolerated taint(s)"

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._comparison = handle.gate("TaintTolerationComparisonOperators")

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _Taints(pod, nodes, comparison=self._comparison)

    # -- queue -----------------------------------------------------------------------------------------

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return node_demands.taints(pod, nodes)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT)
        toleration = ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_TOLERATION)
        return [ClusterEventWithHint(node, self._after_node), ClusterEventWithHint(toleration, self._after_toleration)]

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node) -> QueueingHint:
        kept_away = partial(_kept_away, tolerations=pod.spec.tolerations, comparison=self._comparison)
        helps = (old is None or kept_away(old.spec.taints)) and not kept_away(new.spec.taints)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _after_toleration(self, pod: PodInfo, old: Pod | None, new: Pod) -> QueueingHint:
        return QueueingHint.QUEUE if new.uid == pod.uid else QueueingHint.SKIP
