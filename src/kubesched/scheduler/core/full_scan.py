"""A full scan: every candidate node is filtered and scored for one pod, and why it was rejected is kept.

What a signature layer remembers is read from it; nominated pods, nodes that PreFilter allows, sampling, and plugins
whose results are not cached come on top. Source: rules/cycle §5 and §6, "Scheduling framework"
4.8.

Used by :mod:`.search`, which chooses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..framework.cycle_state import CycleState
from ..framework.entries import FilterEntry
from ..framework.failures import PluginFailedError
from ..framework.interface import IntArray, VerdictArray
from ..framework.runtime import Framework, PreFilterOutcome
from ..framework.status import Status
from ..nodes import NodeList, NodeTable, Snapshot
from ..nodes.columns import RowArray
from ..nodes.nodeinfo import NodeInfo
from ..nodes.nominated_rows import NominatedPods
from ..nodes.podinfo import PodInfo
from .changed_rows import FEW
from .diagnosis import Decoder, Diagnosis, NodeStatuses, Rejection
from .layers import PASSES, Layer
from .nominations import NOMINATED, NominationFilter
from .plan import Plan

__all__ = ["Evaluation", "FullScan", "Rotation", "ScanRequest", "nodes_to_find"]

#: With fewer nodes than this all are evaluated (upstream minFeasibleNodesToFind).
_LEAST_NODES: Final = 100
_LEAST_PERCENTAGE: Final = 5
#: How many nodes a sampled scan filters at a time when a plugin is expensive.
_CHUNK: Final = 32
#: Owner of a row that was rejected with nominated pods on the node; the verdict is the status's place in a list.
_APART: Final = 253
#: How far a row comes that no filter is left for: not even to the first one.
_SETTLED: Final = 1


class Rotation:
    """Where the next sampled scan starts; one for all profiles."""

    __slots__ = ("start",)

    def __init__(self) -> None:
        self.start = 0


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """One pod's way through a full scan.

    ``plan`` is that of its signature, and ``layer`` what is remembered for that, None for nothing. ``nominated`` are the
    nominated pods that count for the pod, perhaps with the pod itself; ``nominations`` is what is remembered of their rows.

    ``only`` are the candidates of a second scan, by name: what is left of a first one. ``sampled``: nodes are expensive
    for another reason than the plugins. ``try_nominated``: try the node that the pod is nominated to first.
    """

    pod: PodInfo
    state: CycleState
    outcome: PreFilterOutcome
    nominated: NominatedPods
    plan: Plan
    layer: Layer | None = None
    nominations: NominationFilter | None = None
    only: Collection[str] | None = None
    sampled: bool = False
    try_nominated: bool = True

    def others(self, row: int) -> list[PodInfo]:
        """The pods nominated to a row whose resources the pod must not use."""
        uid = self.pod.uid
        return [other for other in self.nominated.pods.get(row, ()) if other.uid != uid]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The nodes that fit a pod: what the search chooses from, and conformance and explain read.

    ``feasible`` is intp[n] rows. ``scores`` are normalised and weighted, int64[n] per plugin that was evaluated, and
    ``totals`` their sum with what a layer remembers; both are None when there was nothing to score.
    ``by_nomination``: the pod's nominated node fits, and no other was evaluated.
    """

    feasible: RowArray
    statuses: NodeStatuses
    scores: dict[str, IntArray] | None = None
    totals: IntArray | None = None
    by_nomination: bool = False


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes a sampled search wants; ``percentage`` 0 is adaptive."""
    if nodes < _LEAST_NODES:
        return nodes
    if percentage == 0:
        percentage = max(_LEAST_PERCENTAGE, 50 - nodes // 125)
    return max(nodes * percentage // 100, _LEAST_NODES)


class FullScan:
    """Full scans of one profile."""

    def __init__(self, framework: Framework, snapshot: Snapshot, rotation: Rotation, percentage: int) -> None:
        """``percentage`` as for the search."""
        self._framework = framework
        self._snapshot = snapshot
        self._table: NodeTable = snapshot.table
        self._rotation = rotation
        self._percentage = percentage

    def evaluate(self, request: ScanRequest) -> Evaluation | Rejection:
        """Filter the candidate nodes, and score those that fit if there are several.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        found = self.filter(request)
        return found if isinstance(found, Rejection) or len(found.feasible) == 1 else self.score(request, found)

    def filter(self, request: ScanRequest) -> Evaluation | Rejection:
        """Filter the candidate nodes, each with the pods nominated there; nothing is scored.

        The node that the pod is nominated to is tried first, and alone.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        outcome, statuses = request.outcome, NodeStatuses(self._table)
        if outcome.status is not None:
            statuses.absent = outcome.status
            message = outcome.status.message()
            diagnosis = Diagnosis.of(statuses, [outcome.status], outcome.restricting, message)
            return Rejection(len(self._table), diagnosis, request.state)
        tried, status = self.try_nominated_node(request)
        if tried is not None and status is None:
            return Evaluation(np.array([tried.row], np.intp), statuses, by_nomination=True)
        evaluation = self._filter(request)
        statuses, rejecting = evaluation.statuses, set(outcome.restricting)
        if tried is not None and status is not None:
            statuses.set(tried.name, status)
            rejecting.add(status.plugin)
        if outcome.nodes is not None:
            names = " ".join(sorted(rejecting))
            statuses.absent = Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{names}]")
        if len(evaluation.feasible):
            return evaluation
        return Rejection(
            len(self._table), Diagnosis.of(statuses, statuses.distinct(), outcome.restricting), request.state
        )

    # -- filters ---------------------------------------------------------------------------------------

    def _filter(self, request: ScanRequest) -> Evaluation:
        table, state = self._table, request.state
        rows = self._candidates(request)
        layer = request.layer
        remembering = layer.filters if layer is not None else ()
        skipped = state.skip_filter.union(entry.name for entry in remembering)
        active = [entry for entry in self._framework.filters if entry.name not in skipped]
        signed = request.plan.signed.names  # their answers are remembered, or there are few nodes
        expensive = any(entry.is_plain and entry.name not in signed for entry in (*active, *self._framework.scores))
        sampled = request.only is None and (request.sampled or bool(self._percentage) or expensive)
        want = nodes_to_find(len(rows), self._percentage) if sampled else len(rows)
        if want < len(rows):
            start = self._rotation.start % len(rows)
            rows = np.concatenate((rows[start:], rows[:start]))
        owners = layer.owner[rows] if layer is not None else np.zeros(len(rows), np.uint8)
        verdicts = layer.verdict[rows].astype(np.uint64) if layer is not None else np.zeros(len(rows), np.uint64)
        apart: list[Status] = []
        remembered = request.nominations
        examined = found = 0
        # Filters in columns are cheapest for many rows at once; those of plain plugins cost the same for each.
        step = len(rows) if want >= len(rows) else _CHUNK if expensive else want + 1
        while examined < len(rows) and found <= want:
            part = slice(examined, min(examined + step, len(rows)))
            reach = self._filter_nominated(request, remembered, rows[part], owners[part], verdicts[part], apart)
            self._filter_part(request, active, rows[part], owners[part], verdicts[part], reach)
            found += int(np.count_nonzero(owners[part] == PASSES))
            examined = part.stop
        if found > want:
            # The scan ends at the success after the last one wanted; what lies behind was never evaluated.
            passed = np.flatnonzero(owners[:examined] == PASSES)
            examined = int(passed[want])
        rows, owners, verdicts = rows[:examined], owners[:examined], verdicts[:examined]
        feasible = rows[owners == PASSES]
        feasible.flags.writeable = False  # plugins may remember what they looked up for these rows
        statuses = NodeStatuses.from_arrays(table, rows, owners, verdicts, self._decoder(request, remembered, apart))
        if request.only is None:
            self._rotation.start = (self._rotation.start + len(rows)) % max(1, len(table))
        return Evaluation(feasible, statuses)

    def _candidates(self, request: ScanRequest) -> RowArray:
        allowed, only = request.outcome.nodes, request.only
        if allowed is None and only is None:
            return self._table.order()
        names = only if allowed is None else allowed if only is None else allowed.intersection(only)
        found = sorted(row for name in names or () if (row := self._table.row_of(name)) is not None)
        return np.array(found, np.intp)

    def _filter_part(
        self,
        request: ScanRequest,
        active: Sequence[FilterEntry],
        rows: RowArray,
        owners: RowArray,
        verdicts: VerdictArray,
        reach: RowArray,
    ) -> None:
        """Call these filters for rows that are left to them: the first in order that rejects a row owns it.

        ``reach`` says how far each row comes: the place of the filter that is known to reject it, or ``PASSES``.
        """
        state, pod, table = request.state, request.pod, self._table
        few = [(at, table.info(row)) for at, row in enumerate(rows.tolist())] if len(rows) <= FEW else []
        for entry in active:
            place = entry.index + 1
            if few and entry.has_row_form:  # such as the one node of a DaemonSet's pod
                for at, node in few:
                    limit = reach.item(at)
                    if (limit == PASSES or limit > place) and (answer := entry.one(state, pod, table, node)):
                        owners[at], verdicts[at] = place, answer
                        reach[at] = place
                continue
            open_ = np.flatnonzero((reach == PASSES) | (reach > place))
            if not len(open_):
                continue
            answers = entry.many(state, pod, table, rows[open_])
            bad = answers != 0
            reach[open_[bad]] = owners[open_[bad]] = place
            verdicts[open_[bad]] = answers[bad]

    def _decoder(self, request: ScanRequest, remembered: NominationFilter | None, apart: list[Status]) -> Decoder:
        """What verdicts mean: those of a layer's filters by the layer's state, others by the attempt's."""
        filters, state, pod, layer = self._framework.filters, request.state, request.pod, request.layer

        def decode(owner: int, verdict: int) -> Status:
            if owner == _APART:
                return apart[verdict]
            if owner == NOMINATED and remembered is not None:
                return remembered.status(verdict)
            entry = filters[owner - 1]
            return entry.status(layer.state if layer is not None and entry in layer.filters else state, pod, verdict)

        return decode

    # -- nominated pods --------------------------------------------------------------------------------

    def _filter_nominated(
        self,
        request: ScanRequest,
        remembered: NominationFilter | None,
        rows: RowArray,
        owners: RowArray,
        verdicts: VerdictArray,
        apart: list[Status],
    ) -> RowArray:
        """Nodes with nominated pods that count are filtered first with those pods on them.

        A filter that fails for such a node as it is does not count if an earlier one rejects it with the pods. Returned
        is how far each row comes then; see :meth:`_filter_part`.
        """
        if not request.nominated.pods:
            return owners
        reach = owners.copy()
        left: Iterable[int] = request.nominated.pods
        if remembered is not None:
            codes = remembered.codes[rows]
            at = np.flatnonzero(codes)
            codes = codes[at]
            places = remembered.places(codes)
            # An earlier filter that rejects the node as it is rejects it with nominated pods, too.
            bad = (owners[at] == PASSES) | (owners[at] >= places)
            owners[at[bad]] = NOMINATED
            verdicts[at[bad]] = codes[bad]
            reach[at[bad]] = places[bad]
            # What is remembered counts the pod's own nomination.
            own_row = request.nominated.row_of.get(request.pod.uid)
            left = [own_row] if own_row is not None else []
        for row in left:
            at = np.flatnonzero(rows == row)
            if not len(at) or not (remembered is not None or request.others(row)):
                continue
            reach[at[0]] = _SETTLED
            status = self._filter_with_nominated(request, self._table.info(row))
            if status is None:
                owners[at[0]] = PASSES
            else:
                owners[at[0]], verdicts[at[0]] = _APART, len(apart)
                apart.append(status)
        return reach

    def _filter_with_nominated(self, request: ScanRequest, node: NodeInfo) -> Status | None:
        """Filter one node as if its nominated pods ran there, and, if that passes, as it is (spec framework 4.8)."""
        others = request.others(node.row)
        return self._framework.filter_with_nominated(request.state, request.pod, self._snapshot, node, others)

    def try_nominated_node(self, request: ScanRequest) -> tuple[NodeInfo | None, Status | None]:
        """The node the pod is nominated to, and why it does not fit: (None, None) without such a node."""
        name = request.pod.status.nominated_node_name if request.try_nominated else ""
        row = self._table.row_of(name) if name else None
        if row is None:
            return None, None
        node = self._table.info(row)
        try:
            return node, self._filter_with_nominated(request, node)
        except PluginFailedError:
            return None, None  # the scan will meet the same failure and report it

    # -- scores ----------------------------------------------------------------------------------------

    def score(self, request: ScanRequest, evaluation: Evaluation) -> Evaluation:
        """The same with scores and totals.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        framework, pod, state, rows = self._framework, request.pod, request.state, evaluation.feasible
        nodes = NodeList(self._table, rows)
        entries, only = framework.scores, None
        totals = np.zeros(len(rows), np.int64)
        if request.layer is not None:
            request.layer.score()
            totals = request.layer.totals(rows)
            state.skip_score = request.layer.state.skip_score
            entries, only = request.plan.unsigned.scores, request.plan.unsigned.pre_scores
        status = framework.pre_score(state, pod, nodes, only)
        if status is not None:
            raise PluginFailedError.of(status)
        start = framework.now()
        scores: dict[str, IntArray] = {}
        for entry in entries:
            if entry.name not in state.skip_score:
                raw = entry.many(state, pod, self._table, rows)
                scores[entry.name] = entry.final_of_all(state, pod, nodes, raw)
                totals += scores[entry.name]
        framework.observe_success("Score", framework.now() - start)
        return Evaluation(rows, evaluation.statuses, scores, totals)
