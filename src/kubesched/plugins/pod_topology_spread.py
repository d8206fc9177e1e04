"""PodTopologySpread: keep pods that belong together evenly spread over the domains of a topology.

PreFilter (with AddPod and RemovePod), Filter, PreScore, Score, NormalizeScore (spec "Topology plugins" part
B). Pods per domain come from the term index (``cache.term_index``); what a pod asks for is compiled once
per distinct pod (:mod:`.topology_plan`) and only caught up with what moved since. The plugin signs pods only
where it has nothing to say about any: its answers about a node depend on other nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from kubesched.api.selectors import SelectorError
from kubesched.cache.columns import BoolArray, IntArray, IntpArray, LabelColumn
from kubesched.config.args import PodTopologySpreadArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ClusterEventWithHint
from kubesched.framework.interface import Handle, Plugin, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

from . import names, pod_topology_spread_hints
from .topology_constraints import HARD, HOSTNAME, SOFT, SYSTEM_DEFAULTS
from .topology_plan import Plans, Side

FloatArray = npt.NDArray[np.floating[Any]]

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["PodTopologySpread"]

_MISSING: Final = 1
_SKEWED: Final = 2
_SCORE_KEY: Final = f"PreScore{names.POD_TOPOLOGY_SPREAD}"


class _FilterState:
    """What Filter needs. The arrays are shared and never changed; AddPod and RemovePod go to ``added``."""

    __slots__ = ("_side", "added", "allowed", "columns", "counts")

    def __init__(self, side: Side) -> None:
        self._side = side
        self.columns = [domains.column for domains in side.domains]
        self.counts = [domains.counts for domains in side.domains]
        #: Per constraint, the greatest number of pods a domain may have to take one more.
        self.allowed = [self._allowance(place, domains.counts) for place, domains in enumerate(side.domains)]
        #: (place of the constraint, code of the domain) to change.
        self.added: dict[tuple[int, int], int] = {}

    def _allowance(self, place: int, counts: IntArray) -> int:
        side = self._side
        constraint, domains = side.constraints[place], side.domains[place]
        least = 0 if domains.places < constraint.min_domains else domains.least(counts)
        return constraint.max_skew + least - side.own[place]

    def clone(self) -> _FilterState:
        twin = _FilterState.__new__(_FilterState)
        twin._side, twin.columns, twin.counts = self._side, self.columns, self.counts
        twin.allowed, twin.added = list(self.allowed), dict(self.added)
        return twin

    def shift(self, pod: PodInfo, row: int, delta: int) -> None:
        """One pod more or less on a node. Upstream quirk B-Q3, kept: pods being deleted count here."""
        side = self._side
        for place, (constraint, domains) in enumerate(zip(side.constraints, side.domains, strict=True)):
            if not constraint.selector.matches(pod.labels) or not domains.includes(row):
                continue
            code = int(self.columns[place].codes[row])
            self.added[place, code] = self.added.get((place, code), 0) + delta
            counts = self.counts[place].copy()
            for (at, where), change in self.added.items():
                if at == place:
                    counts[where] += change
            self.allowed[place] = self._allowance(place, counts)


class _ScoreState:
    """What Score needs of the feasible nodes.

    ``parts``: per constraint its column, the pods per domain (per row for hostnames), the weight of the
    topology and the constant for its maxSkew.
    """

    __slots__ = ("keys", "parts")

    def __init__(
        self, parts: list[tuple[LabelColumn, npt.NDArray[np.integer], bool, float, float]], keys: list[LabelColumn]
    ) -> None:
        self.parts = parts
        #: The labels a node must have to be scored at all.
        self.keys = keys

    def ignored(self, rows: RowArray) -> BoolArray | None:
        """bool[len(rows)]: nodes that are not scored; None when all are."""
        return _lacking(self.keys, rows)


def _lacking(columns: list[LabelColumn], rows: RowArray) -> BoolArray | None:
    result: BoolArray | None = None
    for column in columns:
        if column.at(rows).min(initial=0) < 0:
            lacking = column.at(rows) < 0
            result = lacking if result is None else result | lacking
    return result


class PodTopologySpread(Plugin):
    """Topology spread constraints over the term index."""

    name = names.POD_TOPOLOGY_SPREAD
    #: Kinds whose objects the default selector is made of.
    informs: ClassVar[tuple[str, ...]] = ("services", "replicationcontrollers", "replicasets", "statefulsets")
    REASON: Final = "node(s) didn't match pod topology spread constraints"
    REASON_MISSING: Final = "node(s) didn't match pod topology spread constraints (missing required label)"

    def __init__(self, args: PodTopologySpreadArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else PodTopologySpreadArgs()
        system = args.defaulting_type == "System"
        self._defaults = SYSTEM_DEFAULTS if system else args.default_constraints
        self._plans = Plans(handle, self._defaults, system=system)

    def sign(self, pod: PodInfo) -> Hashable | None:
        return None if pod.spec.topology_spread_constraints or self._defaults else ()

    def skips(self, pod: PodInfo) -> bool:
        return not pod.spec.topology_spread_constraints and self._plans.has_no_default(pod)

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> frozenset[str] | Status | None:
        try:
            side = self._plans.side(pod, HARD)
        except SelectorError as error:
            return Status.from_error(f"get constraints from pod: {error}")
        if side is None:
            return Status.skip()
        state.write(self.name, _FilterState(side))
        return None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        if added.namespace == pod.namespace:
            state.read(self.name).shift(added, node.row, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        if removed.namespace == pod.namespace:
            state.read(self.name).shift(removed, node.row, -1)
        return None

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        kept: _FilterState = state.read(self.name)
        if kept.added:
            return np.array([self._verdict(kept, row) for row in rows.tolist()], np.uint64)
        verdicts: VerdictArray | None = None
        for column, counts, allowed in zip(kept.columns, kept.counts, kept.allowed, strict=True):
            table = np.where(counts > allowed, _SKEWED, 0).astype(np.uint64)
            table[-1] = _MISSING
            mine = table[column.at(rows)]
            verdicts = mine if verdicts is None else np.where(verdicts, verdicts, mine)
        assert verdicts is not None
        return verdicts

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        return self._verdict(state.read(self.name), node.row)

    @staticmethod
    def _verdict(kept: _FilterState, row: int) -> int:
        for place, column in enumerate(kept.columns):
            code = int(column.codes[row])
            if code < 0:
                return _MISSING
            if int(kept.counts[place][code]) + kept.added.get((place, code), 0) > kept.allowed[place]:
                return _SKEWED
        return 0

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        if verdict == _MISSING:
            return Status.unresolvable(self.REASON_MISSING)
        return Status.unschedulable(self.REASON)

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        try:
            side = self._plans.side(pod, SOFT)
        except SelectorError as error:
            return Status.from_error(f"calculating preScoreState: {error}")
        if side is None:
            return Status.skip()
        rows = nodes.rows
        keys = [domains.column for domains in side.domains] if side.requires_all else []
        ignored = _lacking(keys, rows)
        scored: RowArray = rows if ignored is None else rows[~ignored]
        parts: list[tuple[LabelColumn, npt.NDArray[np.integer], bool, float, float]] = []
        counts: npt.NDArray[np.integer]
        for place, constraint in enumerate(side.constraints):
            domains = side.domains[place]
            if constraint.key == HOSTNAME:
                size, counts = len(scored), side.per_row(place)
            else:
                size, counts = side.size(place, scored), side.per_domain(place)
            parts.append(
                (domains.column, counts, constraint.key == HOSTNAME, log(size + 2), float(constraint.max_skew - 1))
            )
        state.write(_SCORE_KEY, _ScoreState(parts, keys))
        return None

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        kept: _ScoreState = state.read(_SCORE_KEY)
        total: FloatArray | None = None
        for column, counts, per_row, weight, constant in kept.parts:
            codes: IntpArray = column.at(rows)
            if per_row:
                part: FloatArray = counts[rows] * weight
                part += constant
                if codes.min(initial=0) < 0:
                    part[codes < 0] = 0.0
            else:
                table = counts * weight + constant
                table[-1] = 0.0  # no such label: neither count nor constant
                part = table[codes]
            total = part if total is None else total + part
        assert total is not None
        if total.min(initial=0.0) < 0:
            scores = np.copysign(np.floor(np.abs(total) + 0.5), total).astype(np.int64)
        else:
            total += 0.5
            scores = total.astype(np.int64)  # cuts off, so halves are rounded up
        ignored = kept.ignored(rows)
        if ignored is not None:
            scores[ignored] = 0
        return scores

    def normalize_score(self, state: CycleState, pod: PodInfo, nodes: NodeList, scores: IntArray) -> IntArray | Status:
        kept: _ScoreState = state.read(_SCORE_KEY)
        ignored = kept.ignored(nodes.rows)
        if ignored is None:
            return _normalized(scores)
        result = np.zeros(len(scores), np.int64)
        if not ignored.all():
            result[~ignored] = _normalized(scores[~ignored])
        return result

    # -- queue -----------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return pod_topology_spread_hints.events(lambda pod: self._plans.constraints(pod, HARD))


def _normalized(scores: IntArray) -> IntArray:
    """Fewest pods best: 100 * (greatest + least - score) / greatest, cut off."""
    least, greatest = int(scores.min()), max(0, int(scores.max()))
    if greatest == 0:
        return np.full(len(scores), 100, np.int64)
    scaled: IntArray = 100 * (greatest + least - scores)
    if least >= 0:
        return scaled // greatest
    return np.where(scaled >= 0, scaled // greatest, -(-scaled // greatest))
