"""PodTopologySpread: keep pods that belong together evenly spread over the domains of a topology.

PreFilter (with AddPod and RemovePod), Filter, PreScore, Score, NormalizeScore (rules/topology §B.1 to §B.13).
Pods per domain come from the term index (``nodes.term_index``). A distinct pod's constraints are compiled once
(:mod:`.compiled_constraints`). Later, only their counts are updated. The plugin's results for a node depend on other
nodes, so it signs a pod only if no constraint applies to the pod. Other results are kept for identical pods, and
computed again in the domains that changed (``changed`` and ``rescored``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from kubesched.api.selectors import SelectorError

from ..config.args import PodTopologySpreadArgs
from ..framework.demand import Demand
from ..framework.events import ClusterEventWithHint
from ..framework.interface import Handle, Plugin
from ..framework.question import NOT_SCORED, Question, RowArray, VerdictArray
from ..framework.status import Status
from ..nodes.columns import NO_ROWS, BoolArray, IntArray, IntpArray, LabelColumn, joined
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from . import pod_topology_spread_hints
from .compiled_constraints import CompiledConstraints, ConstraintCache
from .demands import between_pods
from .spread_filter import MISSING, SKEWED, FilterState
from .topology_constraints import HARD, SOFT, SYSTEM_DEFAULTS

FloatArray = npt.NDArray[np.floating[Any]]

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable

__all__ = ["PodTopologySpread"]


class _Part:
    """Share of one constraint in a score.

    Attributes:
        column: labels of the topology.
        counts: pods per domain; int[capacity] per row where ``by_row``, else int64[codes + 1].
        weight: factor of the topology; a topology with more domains has a greater weight.
        constant: addend for maxSkew.
    """

    __slots__ = ("_counter", "_version", "by_row", "column", "constant", "counts", "domains", "moved", "weight")

    def __init__(self, compiled: CompiledConstraints, place: int, scored: RowArray) -> None:
        """``scored``: the feasible rows that have the required labels."""
        constraint = compiled.constraints[place]
        self.domains = compiled.domains[place]
        self.column = self.domains.column
        self._version = self.column.version
        self.by_row = compiled.by_row[place]
        self._counter = compiled.counter(place)
        self.counts: npt.NDArray[np.integer] = compiled.per_row(place) if self.by_row else compiled.per_domain(place)
        self.weight = log((len(scored) if self.by_row else compiled.size(place, scored)) + 2)
        self.constant = float(constraint.max_skew - 1)
        self.moved = compiled.follower(place)

    def is_current(self, compiled: CompiledConstraints, place: int) -> bool:
        """True if the weight was made from the current labels, and the same counter still counts the pods."""
        if compiled.domains[place] is not self.domains or compiled.counter(place) is not self._counter:
            return False
        if self.by_row and self._counter is not None and compiled.per_row(place) is not self.counts:
            return False
        return self.column is self.domains.column and self.column.version == self._version

    def gather(self, rows: RowArray) -> FloatArray:
        """Return the constraint's addend for each row, float64[len(rows)]."""
        codes: IntpArray = self.column.at(rows)
        if self.by_row:
            part: FloatArray = self.counts[rows] * self.weight
            part += self.constant
            if codes.min(initial=0) < 0:
                part[codes < 0] = 0.0
            return part
        table = self.counts * self.weight + self.constant
        table[-1] = 0.0  # no such label: neither count nor constant
        gathered: FloatArray = table.take(codes, mode="wrap")  # the code -1 reads the end
        return gathered

    def of(self, row: int) -> float:
        """Return the constraint's addend for one row."""
        code = self.column.codes.item(row)
        return 0.0 if code < 0 else self.counts.item(row if self.by_row else code) * self.weight + self.constant


class _ScoreState:
    """State of Score for a set of feasible nodes."""

    __slots__ = ("_everywhere", "_keys", "compiled", "parts")

    def __init__(self, compiled: CompiledConstraints, rows: RowArray) -> None:
        self.compiled = compiled
        #: Label columns in which a node must have a value to be scored at all.
        self._keys = [domains.column for domains in compiled.domains] if compiled.requires_all else []
        ignored = _lacking(self._keys, rows)
        self._everywhere = ignored is None
        scored = rows if ignored is None else rows[~ignored]
        self.parts = [_Part(compiled, place, scored) for place in range(len(compiled.constraints))]

    def of_rows(self, rows: RowArray) -> IntArray:
        """Raw scores, int64[len(rows)]; NOT_SCORED where a node lacks a label that it must have."""
        total: FloatArray = sum([part.gather(rows) for part in self.parts[1:]], self.parts[0].gather(rows))
        if any(part.constant < 0 for part in self.parts):
            scores = np.copysign(np.floor(np.abs(total) + 0.5), total).astype(np.int64)
        else:
            total += 0.5
            scores = total.astype(np.int64)  # cuts off, so halves are rounded up
        ignored = None if self._everywhere else _lacking(self._keys, rows)
        if ignored is not None:
            scores[ignored] = NOT_SCORED
        return scores

    def of_row(self, row: int) -> int:
        """Raw score of one row."""
        if any(column.codes[row] < 0 for column in self._keys):
            return NOT_SCORED
        total = 0.0
        for part in self.parts:
            total += part.of(row)
        return _rounded(total)

    def catch_up(self) -> list[tuple[_Part, list[int]]] | None:
        """Read the current counts. Return the changed codes of each part (rows where ``by_row``); None if they are not
        known.
        """
        compiled = self.compiled
        compiled.sync()
        found: list[tuple[_Part, list[int]]] = []
        for place, part in enumerate(self.parts):
            if not part.is_current(compiled, place) or (not part.by_row and compiled.has_nameless(place)):
                return None  # a pod may be on a node without the label, which no domain's log contains
            codes = part.moved.read()
            if codes is None:
                return None
            if codes:
                if part.by_row:
                    codes = [max(step, ~step) for step in codes]
                else:
                    part.counts = compiled.domains[place].counts
                found.append((part, codes))
        return found


def _rows_of(part: _Part, codes: list[int]) -> list[RowArray]:
    return [np.array(codes, np.intp)] if part.by_row else [part.column.rows_of(code) for code in set(codes)]


def _lacking(columns: list[LabelColumn], rows: RowArray) -> BoolArray | None:
    result: BoolArray | None = None
    for column in columns:
        if column.at(rows).min(initial=0) < 0:
            lacking = column.at(rows) < 0
            result = lacking if result is None else result | lacking
    return result


def _rounded(total: float) -> int:
    """Round to the nearest integer, halves away from zero."""
    return int(total + 0.5) if total >= 0 else -int(0.5 - total)


class _Spread(Question):
    """Question about a pod's constraints. The key holds all that the compiled constraints depend on."""

    is_local = False

    def __init__(self, pod: PodInfo, constraints: ConstraintCache) -> None:
        self._pod = pod
        self._constraints = constraints
        self.key = constraints.interaction_key(pod)
        self._filtered: FilterState | None = None
        self._scored: _ScoreState | None = None

    def follow(self, kept: Self) -> Question:
        # The Services and owners that select for an earlier pod may be gone.
        self._filtered, self._scored = kept._filtered, kept._scored
        return self

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, nodes: NodeList) -> Status | None:
        try:
            compiled = self._constraints.of(self._pod, HARD)
        except SelectorError as error:
            return Status.from_error(f"get constraints from pod: {error}")
        self._filtered = FilterState(compiled) if compiled is not None else None
        return Status.skip() if compiled is None else None

    def _counted(self) -> FilterState:
        kept = self._filtered
        if kept is None:
            raise KeyError("not found")
        return kept

    def changed(self) -> RowArray | None:
        return NO_ROWS if self._filtered is None else self._filtered.catch_up()

    def assuming(self, node: NodeInfo, added: Sequence[PodInfo], removed: Sequence[PodInfo]) -> Question:
        changes = [(pod, 1) for pod in added] + [(pod, -1) for pod in removed]
        counted = [(pod, delta) for pod, delta in changes if pod.namespace == self._pod.namespace]
        if not counted:
            return self
        twin = copy(self)
        twin._filtered = kept = self._counted().clone()
        for pod, delta in counted:
            kept.shift(pod, node.row, delta)
        return twin

    def verdicts(self, rows: RowArray) -> VerdictArray:
        kept = self._counted()
        if kept.added:
            return np.array([kept.verdict(row) for row in rows.tolist()], np.uint64)
        verdicts: VerdictArray | None = None
        for column, counts, allowed in zip(kept.columns, kept.counts, kept.allowed, strict=True):
            table = np.where(counts > allowed, SKEWED, 0).astype(np.uint64)
            table[-1] = MISSING
            mine = table[column.at(rows)]
            verdicts = mine if verdicts is None else np.where(verdicts, verdicts, mine)
        assert verdicts is not None
        return verdicts

    def verdict(self, node: NodeInfo) -> int:
        return self._counted().verdict(node.row)

    def why(self, verdict: int) -> Status:
        if verdict == MISSING:
            return Status.unresolvable(PodTopologySpread.REASON_MISSING)
        return Status.unschedulable(PodTopologySpread.REASON)

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, nodes: NodeList) -> Status | None:
        try:
            compiled = self._constraints.of(self._pod, SOFT)
        except SelectorError as error:
            return Status.from_error(f"calculating preScoreState: {error}")
        self._scored = _ScoreState(compiled, nodes.rows) if compiled is not None else None
        return Status.skip() if compiled is None else None

    def rescored(self, *, same: bool) -> RowArray | None:
        if self._scored is None:
            return NO_ROWS
        # If other nodes are feasible, topologies have other sizes and therefore other weights.
        changed = self._scored.catch_up() if same else None
        return joined([rows for one in changed for rows in _rows_of(*one)]) if changed is not None else None

    def scores(self, rows: RowArray) -> IntArray:
        assert self._scored is not None
        return self._scored.of_rows(rows)

    def score(self, node: NodeInfo) -> int:
        assert self._scored is not None
        return self._scored.of_row(node.row)

    @staticmethod
    def normalized(scores: IntArray, low: int, high: int) -> IntArray:
        """Scale so that fewest pods are best: 100 * (greatest + least - score) / greatest, truncated."""
        greatest = max(0, high)
        if greatest == 0:
            return np.full(len(scores), 100, np.int64)
        scaled: IntArray = 100 * (greatest + low - scores)
        if low >= 0:
            return scaled // greatest
        return np.where(scaled >= 0, scaled // greatest, -(-scaled // greatest))


class PodTopologySpread(Plugin):
    """Check and preference by topology spread constraints. Its question is :class:`_Spread`."""

    name = "PodTopologySpread"
    asks = _Spread
    #: Kinds of objects from which the default selector is made.
    informs: ClassVar[tuple[str, ...]] = ("services", "replicationcontrollers", "replicasets", "statefulsets")
    REASON: Final = "node(s) didn't match pod topology spread constraints"
    REASON_MISSING: Final = "node(s) didn't match pod topology spread constraints (missing required label)"

    def __init__(self, args: PodTopologySpreadArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else PodTopologySpreadArgs()
        system = args.defaulting_type == "System"
        defaults = SYSTEM_DEFAULTS if system else args.default_constraints
        self._constraints = ConstraintCache(handle, defaults, system=system)

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        if not pod.spec.topology_spread_constraints and self._constraints.has_no_default(pod):
            return None
        return _Spread(pod, self._constraints)

    # -- queue -----------------------------------------------------------------------------------------

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return between_pods.spreading(pod, self._constraints.of(pod, HARD))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return pod_topology_spread_hints.events(lambda pod: self._constraints.constraints(pod, HARD))
