"""SelectorSpread: prefer nodes and zones with few pods of the same owner (PreScore, Score).

Retired with v1, which replaced it by PodTopologySpread's default constraints. Source: rules/configuration §11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.interface import MAX_NODE_SCORE, Handle, Plugin
from kubesched.scheduler.framework.question import IntArray, Question, RowArray
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.domain_counts import Counter
from kubesched.scheduler.nodes.node_tree import zone_key
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.nodes.term_index import PodSet
from kubesched.scheduler.plugins.topology_constraints import DefaultSelectors

if TYPE_CHECKING:
    from kubesched.scheduler.nodes import NodeList, NodeTable

__all__ = ["SelectorSpread"]

_ZONE_SHARE: Final = 2 / 3


class _PodsOfOwner(Question):
    """Question about the number of the owner's pods on a node, from the term index.

    Scores are normalised over all feasible nodes at once, so nothing is kept.
    """

    is_local = False

    def __init__(self, pod: PodInfo, nodes: NodeTable, selectors: DefaultSelectors) -> None:
        self._pod, self._nodes, self._selectors = pod, nodes, selectors
        #: Counter of the owner's pods; None when the pod has no owner.
        self._counter: Counter | None = None

    def pre_score(self, nodes: NodeList) -> Status | None:
        selector = self._selectors.of(self._pod)
        if not selector.is_empty:
            pods = PodSet(((frozenset((self._pod.namespace,)), selector),), terminating=False)
            self._counter = self._nodes.terms.counter(pods)
        return None

    def scores(self, rows: RowArray) -> IntArray:
        if self._counter is None:
            return np.zeros(len(rows), np.int64)
        return self._counter.dense(self._nodes.capacity)[rows].astype(np.int64)

    def score(self, node: NodeInfo) -> int:
        return 0 if self._counter is None else self._counter.by_row.get(node.row, 0)


class SelectorSpread(Plugin):
    """Spreading of pods with an owner and no constraints of their own. Its question is :class:`_PodsOfOwner`."""

    name = "SelectorSpread"
    asks = _PodsOfOwner
    #: Kinds of objects from which the selector is made.
    informs: ClassVar[tuple[str, ...]] = ("services", "replicationcontrollers", "replicasets", "statefulsets")

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._selectors = DefaultSelectors(handle)
        self._zone_of: IntArray = np.zeros(0, np.int64)
        self._zones_version = -1

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return None if pod.spec.topology_spread_constraints else _PodsOfOwner(pod, nodes, self._selectors)

    def _zones(self, table: NodeTable) -> IntArray:
        """Numbers of zones by row, int64[capacity], -1 without a zone. Made again when some node's labels changed."""
        if self._zones_version != table.labels_version:
            numbers: dict[str, int] = {}
            self._zone_of = np.full(table.capacity, -1, np.int64)
            for info in table.all_infos():
                if zone := zone_key(info.labels):
                    self._zone_of[info.row] = numbers.setdefault(zone, len(numbers))
            self._zones_version = table.labels_version
        return self._zone_of

    def normalize_score(self, state: CycleState, pod: PodInfo, nodes: NodeList, scores: IntArray) -> IntArray:
        """Prefer few pods on the node (one third of the score) and in its zone (two thirds). Nodes without a zone have
        no zone part.
        """
        result = _fewest_first(scores)
        zone_of = self._zones(self.handle.snapshot.table)[nodes.rows]
        in_zone = zone_of >= 0
        if in_zone.any():
            sums = np.bincount(zone_of[in_zone], weights=scores[in_zone])
            zone_part = _fewest_first(sums)[zone_of[in_zone]]
            result[in_zone] = result[in_zone] * (1.0 - _ZONE_SHARE) + zone_part * _ZONE_SHARE
        return result.astype(np.int64)


def _fewest_first(counts: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Scale counts, float64: 100 for no pods, 0 for the most pods; 100 everywhere if there are none at all."""
    most = counts.max(initial=0)
    if most <= 0:
        return np.full(len(counts), float(MAX_NODE_SCORE))
    scores: np.ndarray[Any, np.dtype[np.float64]] = MAX_NODE_SCORE * ((most - counts) / most)
    return scores
