"""TaintToleration: keep pods off nodes with taints they do not tolerate, and prefer nodes with fewer soft ones.

Filter, PreScore, Score (spec "Node-level scheduler plugins" section 7.5).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from kubesched.api.taints import PREFER_NO_SCHEDULE, first_untolerated, tolerated
from kubesched.api.types import Node, Pod, Taint, Toleration
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from kubesched.framework.interface import Handle, IntArray, Normalize, Plugin, Reads, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

from . import names

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["TaintToleration"]


class TaintToleration(Plugin):
    """Tolerations are evaluated once per distinct taint tuple and gathered over the rows."""

    name = names.TAINT_TOLERATION
    signs_spec = True
    reads: ClassVar[Reads] = Reads.NODE
    normalize: ClassVar[Normalize | None] = Normalize.REVERSE
    REASON: Final = "node(s) had untolerated taint(s)"

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._comparison = handle.gate("TaintTolerationComparisonOperators")

    def sign(self, pod: PodInfo) -> Hashable | None:
        return pod.spec.tolerations

    # -- filter ----------------------------------------------------------------------------------------

    def _kept_away(self, taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> bool:
        return first_untolerated(taints, tolerations, comparison_operators=self._comparison) is not None

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        tolerations = pod.spec.tolerations
        return nodes.taints.gather(lambda taints: self._kept_away(taints, tolerations), rows).astype(np.uint64)

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        taints = node.taints
        return int(bool(taints) and self._kept_away(taints, pod.spec.tolerations))

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return Status.unresolvable(self.REASON)

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        soft = tuple(item for item in pod.spec.tolerations if item.effect in ("", PREFER_NO_SCHEDULE))
        state.write(self.name, soft)
        return None

    def _intolerable(self, taints: Sequence[Taint], soft: Sequence[Toleration]) -> int:
        return sum(
            taint.effect == PREFER_NO_SCHEDULE and not tolerated(taint, soft, comparison_operators=self._comparison)
            for taint in taints
        )

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        soft = state.read(self.name)
        return nodes.taints.gather(lambda taints: self._intolerable(taints, soft), rows)

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        taints = node.taints
        return self._intolerable(taints, state.read(self.name)) if taints else 0

    # -- queue -----------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_TAINT)
        toleration = ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_TOLERATION)
        return [ClusterEventWithHint(node, self._after_node), ClusterEventWithHint(toleration, self._after_toleration)]

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node) -> QueueingHint:
        tolerations = pod.spec.tolerations
        was_kept_away = old is None or self._kept_away(old.spec.taints, tolerations)
        helps = was_kept_away and not self._kept_away(new.spec.taints, tolerations)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _after_toleration(self, pod: PodInfo, old: Pod | None, new: Pod) -> QueueingHint:
        return QueueingHint.QUEUE if new.uid == pod.uid else QueueingHint.SKIP
