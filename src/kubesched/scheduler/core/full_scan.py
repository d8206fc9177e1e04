"""Full scan: filter and score every candidate node for one pod, and keep why each node was rejected.

A scan reads the results that a signature layer remembers. It adds all that layers leave out: nominated pods, nodes that
PreFilter allows, sampling, and plugins whose results are not remembered.

Used by :mod:`.search`, which chooses among the nodes that fit. Source: rules/cycle §5, §6; rules/framework §4.8.
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
from ..framework.outcomes import PreFilterOutcome
from ..framework.runtime import Framework
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

#: Fewest feasible nodes that a sampled scan wants; smaller clusters are not sampled (upstream minFeasibleNodesToFind).
_LEAST_NODES: Final = 100
#: Least adaptive percentage of nodes to score.
_LEAST_PERCENTAGE: Final = 5
#: Nodes that a sampled scan filters at a time when a plugin is expensive.
_CHUNK: Final = 32
#: Owner of a row that a filter rejected with nominated pods on its node; the verdict is an index into the scan's list
#: ``apart`` of statuses.
_APART: Final = 253
#: Reach of a row whose outcome is known: no filter is called for it, because filters count from 1.
_SETTLED: Final = 1


class Rotation:
    """Position in the node list at which the next sampled scan starts; all profiles share it."""

    __slots__ = ("start",)

    def __init__(self) -> None:
        self.start = 0


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """Full scan of one pod: its inputs.

    Attributes:
        outcome: the result of PreFilter.
        nominated: the nominated pods that count for the pod; the pod itself may be among them.
        plan: the plan of the pod's signature.
        layer: the signature layer; None when nothing is remembered.
        nominations: the remembered verdicts of rows with nominated pods; None when nothing is remembered.
        only: names of the candidate nodes; None for all nodes. A second scan uses it for the nodes that the first one
            left.
        sampled: sample nodes even if no plugin is expensive.
        try_nominated: try the node that the pod is nominated to before all others.
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

    @property
    def within(self) -> RowArray | None:
        """Rows of the placement that the pod's group is tried in; None for all nodes."""
        group = self.state.group
        return None if group is None else group.rows

    def others(self, row: int) -> list[PodInfo]:
        """Return the other pods nominated to a row: the pod must not use their resources."""
        uid = self.pod.uid
        return [other for other in self.nominated.pods.get(row, ()) if other.uid != uid]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Nodes that fit a pod, with their scores. The search chooses one of them; conformance and explain read them.

    Attributes:
        feasible: intp[n]; the rows that fit.
        statuses: the reasons why the other nodes do not fit.
        scores: int64[n] by plugin, normalised and weighted, of the plugins that this scan called; None if not scored.
        totals: int64[n]; the sum of ``scores`` and of the totals that a layer remembers; None if not scored.
        by_nomination: the pod's nominated node fits, and no other node was evaluated.
        layer: the layer whose remembered totals are part of ``totals``, or None.
    """

    feasible: RowArray
    statuses: NodeStatuses
    scores: dict[str, IntArray] | None = None
    totals: IntArray | None = None
    by_nomination: bool = False
    layer: Layer | None = None


def nodes_to_find(nodes: int, percentage: int) -> int:
    """Return the number of feasible nodes after which a sampled scan ends; ``percentage`` 0 is adaptive."""
    if nodes < _LEAST_NODES:
        return nodes
    if percentage == 0:
        percentage = max(_LEAST_PERCENTAGE, 50 - nodes // 125)
    return max(nodes * percentage // 100, _LEAST_NODES)


class FullScan:
    """Full scans of one profile."""

    def __init__(self, framework: Framework, snapshot: Snapshot, rotation: Rotation, percentage: int) -> None:
        """For ``percentage`` see :class:`~.search.Search`; ``rotation`` is shared with the other profiles."""
        self._framework = framework
        self._snapshot = snapshot
        self._table: NodeTable = snapshot.table
        self._rotation = rotation
        #: Place in the node list at which the last scan began, if it was sampled.
        self.started = 0
        self._percentage = percentage

    def start_at(self, place: int) -> None:
        """Have the next sampled scan begin at a place of the node list, as an earlier scan did."""
        self._rotation.start = place

    def evaluate(self, request: ScanRequest) -> Evaluation | Rejection:
        """Filter the candidate nodes, and score the nodes that fit if there are several.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        found = self.filter(request)
        return found if isinstance(found, Rejection) or len(found.feasible) == 1 else self.score(request, found)

    def filter(self, request: ScanRequest) -> Evaluation | Rejection:
        """Filter the candidate nodes, each with the pods nominated to it. Score nothing.

        The node that the pod is nominated to is tried first. If it fits, no other node is tried.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        outcome, statuses = request.outcome, NodeStatuses(self._table)
        if outcome.status is not None:
            statuses.absent = outcome.status
            message = outcome.status.message()
            diagnosis = Diagnosis.of(statuses, [outcome.status], outcome.restricting, message)
            return Rejection(self._all_nodes(request), diagnosis, request.state)
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
        diagnosis = Diagnosis.of(statuses, statuses.distinct(), outcome.restricting)
        return Rejection(self._all_nodes(request), diagnosis, request.state)

    def _all_nodes(self, request: ScanRequest) -> int:
        """Return the number of nodes that messages count: those of the group's placement, or all."""
        within = request.within
        return len(self._table) if within is None else len(within)

    # -- filters ---------------------------------------------------------------------------------------

    def _filter(self, request: ScanRequest) -> Evaluation:
        table, state = self._table, request.state
        rows = self._candidates(request)
        layer = request.layer
        remembering = layer.filters if layer is not None else ()
        skipped = state.skip_filter.union(entry.name for entry in remembering)
        active = [entry for entry in self._framework.filters if entry.name not in skipped]
        signed = request.plan.signed.names  # never expensive: their answers are remembered, or there are few nodes
        expensive = any(entry.is_plain and entry.name not in signed for entry in (*active, *self._framework.scores))
        sampled = request.only is None and (request.sampled or bool(self._percentage) or expensive)
        want = nodes_to_find(len(rows), self._percentage) if sampled else len(rows)
        if want < len(rows):
            self.started = self._rotation.start
            start = self._rotation.start % len(rows)
            rows = np.concatenate((rows[start:], rows[:start]))
        owners = layer.owner[rows] if layer is not None else np.zeros(len(rows), np.uint8)
        verdicts = layer.verdict[rows].astype(np.uint64) if layer is not None else np.zeros(len(rows), np.uint64)
        apart: list[Status] = []
        remembered = request.nominations
        examined = found = 0
        # A filter in columns is cheapest for many rows at once. A plain plugin's filter costs the same for each row, so
        # small chunks stop the scan soon after the wanted number.
        step = len(rows) if want >= len(rows) else _CHUNK if expensive else want + 1
        while examined < len(rows) and found <= want:
            part = slice(examined, min(examined + step, len(rows)))
            reach = self._filter_nominated(request, remembered, rows[part], owners[part], verdicts[part], apart)
            self._filter_part(request, active, rows[part], owners[part], verdicts[part], reach)
            found += int(np.count_nonzero(owners[part] == PASSES))
            examined = part.stop
        if found > want:
            # The scan ends at the first feasible row beyond the wanted number: that row, and all behind it, count as
            # not evaluated.
            passed = np.flatnonzero(owners[:examined] == PASSES)
            examined = int(passed[want])
        rows, owners, verdicts = rows[:examined], owners[:examined], verdicts[:examined]
        feasible = rows[owners == PASSES]
        feasible.flags.writeable = False  # plugins may keep lookups by this array
        statuses = NodeStatuses.from_arrays(table, rows, owners, verdicts, self._decoder(request, remembered, apart))
        if request.only is None:
            self._rotation.start = (self._rotation.start + len(rows)) % max(1, len(table))
        return Evaluation(feasible, statuses)

    def _candidates(self, request: ScanRequest) -> RowArray:
        allowed, only, within = request.outcome.nodes, request.only, request.within
        if allowed is None and only is None:
            return self._table.order() if within is None else within
        names = only if allowed is None else allowed if only is None else allowed.intersection(only)
        found = sorted(row for name in names or () if (row := self._table.row_of(name)) is not None)
        rows = np.array(found, np.intp)
        return rows if within is None else rows[np.isin(rows, within)]

    def _filter_part(
        self,
        request: ScanRequest,
        active: Sequence[FilterEntry],
        rows: RowArray,
        owners: RowArray,
        verdicts: VerdictArray,
        reach: RowArray,
    ) -> None:
        """Call the ``active`` filters, in order, for each row until one rejects it; that filter owns the row.

        ``reach`` is the place (1 + index) of the filter that is known to reject a row, or ``PASSES``: only earlier
        filters are called for the row. ``owners``, ``verdicts`` and ``reach`` have one element per row and are changed
        in place.
        """
        state, pod, table = request.state, request.pod, self._table
        few = [(at, table.info(row)) for at, row in enumerate(rows.tolist())] if len(rows) <= FEW else []
        for entry in active:
            place = entry.index + 1
            if few and entry.has_row_form:  # for example the one node of a DaemonSet's pod
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
        """Return the function that turns an owner and a verdict into a status.

        A verdict of a layer's filter is decoded with the layer's state, any other with the attempt's state.
        """
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
        """Filter each node that has nominated pods as if they ran on it, before any other filter call.

        Return intp[n]: the reach of each row afterwards (see :meth:`_filter_part`). Later filters do not get a row that
        is rejected here. So they cannot fail for a node whose rejection is already known.
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
            # The earliest filter that rejects a row owns it. A filter that rejects the node without nominated pods
            # rejects it with them, too.
            bad = (owners[at] == PASSES) | (owners[at] >= places)
            owners[at[bad]] = NOMINATED
            verdicts[at[bad]] = codes[bad]
            reach[at[bad]] = places[bad]
            # The remembered verdict of the row that the pod is nominated to counts the pod itself: filter it again.
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
        """Filter a node as if its nominated pods ran there; if it passes, also without them (rules/framework §4.8)."""
        others = request.others(node.row)
        return self._framework.filter_with_nominated(request.state, request.pod, self._snapshot, node, others)

    def try_nominated_node(self, request: ScanRequest) -> tuple[NodeInfo | None, Status | None]:
        """Filter the node that the pod is nominated to. Return the node and why it does not fit (None if it fits).

        Return (None, None) when there is no such node, or when a plugin fails for it.
        """
        name = request.pod.status.nominated_node_name if request.try_nominated else ""
        row = self._table.row_of(name) if name else None
        if row is None or (request.within is not None and row not in request.within):
            return None, None
        node = self._table.info(row)
        try:
            return node, self._filter_with_nominated(request, node)
        except PluginFailedError:
            return None, None  # the scan meets the same failure and reports it

    # -- scores ----------------------------------------------------------------------------------------

    def score(self, request: ScanRequest, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation with scores and totals.

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
        framework.observe("Score", framework.now() - start)
        return Evaluation(rows, evaluation.statuses, scores, totals, layer=request.layer)
