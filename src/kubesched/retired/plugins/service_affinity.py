"""ServiceAffinity: pods of a service on nodes that agree in some labels, and spread over the values of others.

PreFilter (with AddPod and RemovePod), Filter, Score, NormalizeScore. Retired with v1beta2.
Source: rules/configuration §11.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from kubesched.api.selectors import selector_from_map
from kubesched.api.types import Labels
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource
from kubesched.scheduler.framework.interface import MAX_NODE_SCORE, Handle, Plugin
from kubesched.scheduler.framework.question import IntArray, Question, RowArray, VerdictArray
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.columns import ABSENT
from kubesched.scheduler.nodes.domain_counts import Counter
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.nodes.term_index import PodSet
from kubesched.scheduler.plugins.topology_constraints import service_selectors

from ..config import retired_args
from ..config.retired_args import ServiceAffinityArgs

if TYPE_CHECKING:
    from kubesched.scheduler.nodes import NodeList, NodeTable

__all__ = ["ServiceAffinity"]


class _Companions(Question):
    """Question about nodes with a pod's companions (pods with its labels), and nodes with pods of its service.

    Answers about a node depend on pods elsewhere, so nothing is kept.
    """

    is_local = False

    def __init__(self, pod: PodInfo, nodes: NodeTable, handle: Handle, labels: Sequence[str]) -> None:
        """``labels`` are the labels in which the nodes of a service agree."""
        self._pod, self._nodes, self._handle, self._labels = pod, nodes, handle, labels
        chosen = pod.spec.node_selector or {}
        #: Labels that the pod's nodeSelector fixes.
        self._fixed = {label: chosen[label] for label in labels if label in chosen}
        #: Number of companions by row, in order of the nodes.
        self._by_row: dict[int, int] = {}

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, nodes: NodeList) -> Status | None:
        if not self._labels:
            return Status.skip()
        counter = self._counter(self._pod.labels, terminating=True)
        order = self._nodes.order()
        rows = order[counter.dense(self._nodes.capacity)[order] > 0].tolist()
        self._by_row = {row: counter.by_row[row] for row in rows}
        self._in_service = bool(service_selectors(self._handle, self._pod))
        return None

    def _counter(self, labels: Labels, *, terminating: bool) -> Counter:
        """Return the counter of pods with these labels in the pod's namespace."""
        selected = frozenset((self._pod.namespace,)), selector_from_map(labels)
        return self._nodes.terms.counter(PodSet((selected,), terminating=terminating))

    def assuming(self, node: NodeInfo, added: Sequence[PodInfo], removed: Sequence[PodInfo]) -> Question:
        change = sum(map(self._is_companion, added)) - sum(map(self._is_companion, removed))
        if not change:
            return self
        twin = copy(self)
        twin._by_row = {**self._by_row, node.row: self._by_row.get(node.row, 0) + change}  # a new row is last
        if twin._by_row[node.row] <= 0:
            del twin._by_row[node.row]
        return twin

    def _is_companion(self, other: PodInfo) -> bool:
        return other.namespace == self._pod.namespace and self._pod.labels.items() <= other.labels.items()

    def _first_elsewhere(self, row: int) -> int | None:
        """Return the first row with companions other than this one."""
        return next((other for other in self._by_row if other != row), None)

    def _demanded(self, row: int) -> Labels:
        """Return the labels that the node of this row has to carry."""
        other = self._first_elsewhere(row) if self._in_service else None
        if other is None:
            return self._fixed
        there = self._nodes.info(other).labels
        return {**{label: there[label] for label in self._labels if label in there}, **self._fixed}

    def verdicts(self, rows: RowArray) -> VerdictArray:
        verdicts = np.zeros(len(rows), np.uint64)
        for label, value in self._demanded(-1).items():
            column = self._nodes.labels.column(label)
            verdicts |= column.codes[rows] != column.code_of.get(value, ABSENT - 1)
        # All nodes are compared with the first node that has companions. This node itself is compared with the next
        # such node.
        first = self._first_elsewhere(-1)
        for index in np.flatnonzero(rows == first).tolist() if first is not None else ():
            verdicts[index] = self.verdict(self._nodes.info(int(rows[index])))
        return verdicts

    def verdict(self, node: NodeInfo) -> int:
        labels = node.labels
        return int(any(labels.get(label) != value for label, value in self._demanded(node.row).items()))

    def why(self, verdict: int) -> Status:
        return Status.unschedulable(ServiceAffinity.REASON)

    # -- score -----------------------------------------------------------------------------------------

    def _service(self) -> Counter | None:
        """Return the counter of live pods of the pod's first service; None when the pod is in no service."""
        selectors = service_selectors(self._handle, self._pod)
        return self._counter(selectors[0], terminating=False) if selectors else None

    def scores(self, rows: RowArray) -> IntArray:
        counter = self._service()
        if counter is None:
            return np.zeros(len(rows), np.int64)
        return counter.dense(self._nodes.capacity)[rows].astype(np.int64)

    def score(self, node: NodeInfo) -> int:
        counter = self._service()
        return 0 if counter is None else counter.by_row.get(node.row, 0)


class ServiceAffinity(Plugin):
    """Plugin that keeps the pods of a service on nodes that agree in some labels, and spreads them over the values of
    others.

    The question is :class:`_Companions`.
    """

    name = "ServiceAffinity"
    asks = _Companions
    informs: ClassVar[tuple[str, ...]] = ("services",)
    REASON: Final = "node(s) didn't match service affinity"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        known = retired_args(args, ServiceAffinityArgs)
        self._labels = known.affinity_labels
        self._spread = known.anti_affinity_labels_preference

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _Companions(pod, nodes, self.handle, self._labels)

    def normalize_score(self, state: CycleState, pod: PodInfo, nodes: NodeList, scores: IntArray) -> IntArray:
        """Give each label an equal share of the score. A node scores higher if fewer of the service's pods are at its
        value.
        """
        total = int(scores.sum())
        result = np.zeros(len(scores), np.float64)
        table = self.handle.snapshot.table
        for label in self._spread:
            codes = table.labels.column(label).at(nodes.rows)
            has = codes != ABSENT
            score = np.full(len(scores), float(MAX_NODE_SCORE))
            if total > 0 and has.any():
                counts = np.bincount(codes[has], weights=scores[has])
                score[has] = MAX_NODE_SCORE * ((total - counts[codes[has]]) / total)
            result[has] += score[has] / len(self._spread)
        return result.astype(np.int64)

    # -- queue -----------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pod = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_POD_LABEL)
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        return [ClusterEventWithHint(pod), ClusterEventWithHint(node)]
