"""SelectorSpread: few pods of the same owner on one node and in one zone (PreScore, Score).

Retired with v1, replaced by PodTopologySpread's default constraints. Spec "Configuration file and command line",
section 11.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from kubesched.api.selectors import Selector
from kubesched.cache.node_tree import zone_key
from kubesched.cache.term_index import PodSet
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interface import MAX_NODE_SCORE, Handle, IntArray, Plugin, RowArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status
from kubesched.plugins.topology_constraints import DefaultSelectors

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["SelectorSpread"]

_ZONE_SHARE: Final = 2 / 3


class SelectorSpread(Plugin):
    """Pods per node are taken from the term index. Scores depend on all feasible nodes, so nothing is remembered."""

    name = "SelectorSpread"
    #: Kinds whose objects the selector is made of.
    informs: ClassVar[tuple[str, ...]] = ("services", "replicationcontrollers", "replicasets", "statefulsets")

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._selectors = DefaultSelectors(handle)

    def sign(self, pod: PodInfo) -> Hashable | None:
        return () if pod.spec.topology_spread_constraints else None

    def skips(self, pod: PodInfo) -> bool:
        return bool(pod.spec.topology_spread_constraints)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        if pod.spec.topology_spread_constraints:
            return Status.skip()
        selector = self._selectors.of(pod)
        state.write(self.name, {} if selector.is_empty else self._pods_by_row(pod.namespace, selector))
        return None

    def _pods_by_row(self, namespace: str, selector: Selector) -> dict[int, int]:
        terms = self.handle.snapshot.table.terms
        return terms.counter(PodSet(((frozenset((namespace,)), selector),), terminating=False)).by_row

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        by_row: dict[int, int] = state.read(self.name)
        return np.array([by_row.get(row, 0) for row in rows.tolist()], np.int64)

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        by_row: dict[int, int] = state.read(self.name)
        return by_row.get(node.row, 0)

    def normalize_score(self, state: CycleState, pod: PodInfo, nodes: NodeList, scores: IntArray) -> IntArray:
        """The fewer pods on the node, and (two thirds) in its zone, the better; nodes without a zone have no zone part."""
        result = _fewest_first(scores)
        zones = [zone_key(node.labels) for node in nodes]
        numbers = {zone: number for number, zone in enumerate(dict.fromkeys(zone for zone in zones if zone))}
        if numbers:
            zone_of = np.array([numbers.get(zone, -1) for zone in zones], np.intp)
            in_zone = zone_of >= 0
            sums = np.bincount(zone_of[in_zone], weights=scores[in_zone], minlength=len(numbers))
            zone_part = _fewest_first(sums)[zone_of[in_zone]]
            result[in_zone] = result[in_zone] * (1.0 - _ZONE_SHARE) + zone_part * _ZONE_SHARE
        return result.astype(np.int64)


def _fewest_first(counts: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """float64: 100 where there are no pods, 0 where there are most; 100 everywhere when there are none at all."""
    most = counts.max(initial=0)
    if most <= 0:
        return np.full(len(counts), float(MAX_NODE_SCORE))
    scores: np.ndarray[Any, np.dtype[np.float64]] = MAX_NODE_SCORE * ((most - counts) / most)
    return scores
