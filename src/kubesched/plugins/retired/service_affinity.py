"""ServiceAffinity: pods of a service on nodes that agree in some labels, and spread over the values of others.

PreFilter (with AddPod and RemovePod), Filter, Score, NormalizeScore. Retired with v1beta2. Spec "Configuration file
and command line", section 11.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from kubesched.api.selectors import selector_from_map
from kubesched.api.types import Labels
from kubesched.cache.columns import ABSENT
from kubesched.cache.domain_counts import Counter
from kubesched.cache.term_index import PodSet
from kubesched.config.legacy import retired_args
from kubesched.config.legacy.retired_args import ServiceAffinityArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource
from kubesched.framework.interface import MAX_NODE_SCORE, Handle, IntArray, Plugin, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status
from kubesched.plugins.topology_constraints import service_selectors

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["ServiceAffinity"]


class _Companions:
    """The nodes with pods that carry the labels of the incoming pod: row to number of pods, in order of the nodes."""

    __slots__ = ("asked", "by_row", "in_service")

    def __init__(self, asked: Labels, by_row: dict[int, int], *, in_service: bool) -> None:
        #: The affinity labels that the pod's nodeSelector fixes.
        self.asked = asked
        self.by_row = by_row
        self.in_service = in_service

    def clone(self) -> _Companions:
        return _Companions(self.asked, dict(self.by_row), in_service=self.in_service)

    def shift(self, row: int, delta: int) -> None:
        """One pod more or less on a row; a new row is last."""
        count = self.by_row.get(row, 0) + delta
        if count > 0:
            self.by_row[row] = count
        else:
            self.by_row.pop(row, None)

    def first_elsewhere(self, row: int) -> int | None:
        """The first node other than this one."""
        return next((other for other in self.by_row if other != row), None)


class ServiceAffinity(Plugin):
    """Answers about a node depend on pods elsewhere, so nothing is cached."""

    name = "ServiceAffinity"
    informs: ClassVar[tuple[str, ...]] = ("services",)
    REASON: Final = "node(s) didn't match service affinity"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        known = retired_args(args, ServiceAffinityArgs)
        self._labels = known.affinity_labels
        self._spread = known.anti_affinity_labels_preference

    def sign(self, pod: PodInfo) -> Hashable | None:
        return None

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        if not self._labels:
            return Status.skip()
        table = self.handle.snapshot.table
        selector = selector_from_map(pod.labels)
        counter = table.terms.counter(PodSet(((frozenset((pod.namespace,)), selector),), terminating=True))
        order = table.order()
        rows = order[counter.dense(table.capacity)[order] > 0].tolist()
        chosen = pod.spec.node_selector or {}
        asked = {label: chosen[label] for label in self._labels if label in chosen}
        in_service = bool(service_selectors(self.handle, pod))
        by_row = {row: counter.by_row[row] for row in rows}
        state.write(self.name, _Companions(asked, by_row, in_service=in_service))
        return None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        self._shift(state, pod, added, node, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        self._shift(state, pod, removed, node, -1)
        return None

    def _shift(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo, delta: int) -> None:
        if other.namespace == pod.namespace and pod.labels.items() <= other.labels.items():
            state.read(self.name).shift(node.row, delta)

    def _demanded(self, kept: _Companions, nodes: NodeTable, row: int) -> Labels:
        """The labels that the node of this row has to carry."""
        other = kept.first_elsewhere(row) if kept.in_service else None
        if other is None:
            return kept.asked
        there = nodes.info(other).labels
        return {**{label: there[label] for label in self._labels if label in there}, **kept.asked}

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        kept: _Companions = state.read(self.name)
        rejected = np.zeros(len(rows), np.bool_)
        for label, value in self._demanded(kept, nodes, -1).items():
            column = nodes.labels.column(label)
            rejected |= column.codes[rows] != column.code_of.get(value, ABSENT - 1)
        # The first node with companions is the only one that looks to another node than all others do.
        first = kept.first_elsewhere(-1)
        for index in np.flatnonzero(rows == first).tolist() if first is not None else ():
            rejected[index] = self._rejects(kept, nodes, nodes.info(int(rows[index])))
        return rejected.astype(np.uint64)

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        return int(self._rejects(state.read(self.name), nodes, node))

    def _rejects(self, kept: _Companions, nodes: NodeTable, node: NodeInfo) -> bool:
        labels = node.labels
        return any(labels.get(label) != value for label, value in self._demanded(kept, nodes, node.row).items())

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return Status.unschedulable(self.REASON)

    # -- score -----------------------------------------------------------------------------------------

    def _counter(self, pod: PodInfo) -> Counter | None:
        """Counts the pods of the pod's first service that are not being deleted; None when it is in no service."""
        selectors = service_selectors(self.handle, pod)
        if not selectors:
            return None
        selector = selector_from_map(selectors[0])
        pods = PodSet(((frozenset((pod.namespace,)), selector),), terminating=False)
        return self.handle.snapshot.table.terms.counter(pods)

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        counter = self._counter(pod)
        if counter is None:
            return np.zeros(len(rows), np.int64)
        return counter.dense(nodes.capacity)[rows].astype(np.int64)

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        counter = self._counter(pod)
        return 0 if counter is None else counter.by_row.get(node.row, 0)

    def normalize_score(self, state: CycleState, pod: PodInfo, nodes: NodeList, scores: IntArray) -> IntArray:
        """For each label an equal share: the fewer of the service's pods at a node's value, the better."""
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
