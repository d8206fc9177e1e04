"""A look at every node: what a lane cannot remember, and why nothing fits.

Filters one by one over the candidate nodes, what a lane knows read from it; nominated pods, nodes that PreFilter
allows, and sampling on top; then scores, normalised and weighted. Source: spec "Scheduling cycle" sections 5
and 6, "Scheduling framework" 4.8.

Used by :mod:`.search`, which chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from kubesched.cache import NodeList, NodeTable, Snapshot
from kubesched.cache.columns import RowArray
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.entries import FilterEntry, PluginFailedError, ScoreEntry
from kubesched.framework.interface import IntArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.runtime import Framework, PreFilterOutcome
from kubesched.framework.status import Status, is_success

from .diagnosis import Decoder, Diagnosis, NodeStatuses, Rejection
from .lanes import NO_NODE, PASSES, Lane, normalized, normalizing_failed, weighted

__all__ = ["Evaluation", "FullLook", "Nominations", "Rotation", "nodes_to_find"]

#: With fewer nodes than this all are looked at (upstream minFeasibleNodesToFind).
_LEAST_NODES: Final = 100
_LEAST_PERCENTAGE: Final = 5
#: How many nodes a sampled search asks about at a time.
_CHUNK: Final = 32


class Nominations(Protocol):
    """What the search asks the queue's nominator."""

    def nominated_nodes(self) -> Iterable[str]: ...
    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]: ...


class Rotation:
    """Where the next sampled search starts; one for all profiles."""

    __slots__ = ("start",)

    def __init__(self) -> None:
        self.start = 0


@dataclass(slots=True)
class Evaluation:
    """Everything a full look at a pod found: what conformance, explain and preemption read.

    ``scores`` are normalised and weighted, per plugin, in the order of ``feasible`` (int32[n] rows); both
    and ``totals`` are None when there was nothing to score.
    """

    feasible: RowArray
    statuses: NodeStatuses
    scores: dict[str, IntArray] | None = None
    totals: IntArray | None = None


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes a sampled search wants; ``percentage`` 0 is adaptive."""
    if nodes < _LEAST_NODES:
        return nodes
    if percentage == 0:
        percentage = max(_LEAST_PERCENTAGE, 50 - nodes // 125)
    return max(nodes * percentage // 100, _LEAST_NODES)


class FullLook:
    """The full path of one profile's search."""

    def __init__(
        self,
        framework: Framework,
        snapshot: Snapshot,
        nominations: Nominations,
        rotation: Rotation,
        percentage: int = 0,
    ) -> None:
        """``percentage`` as for the search."""
        self._framework = framework
        self._snapshot = snapshot
        self._table: NodeTable = snapshot.table
        self._nominations = nominations
        self._rotation = rotation
        self._percentage = percentage

    # -- failures --------------------------------------------------------------------------------------

    def rejected(self, outcome: PreFilterOutcome, status: Status, state: CycleState) -> Rejection:
        """PreFilter rejected the pod everywhere."""
        statuses = NodeStatuses(self._table)
        statuses.absent = status
        diagnosis = Diagnosis.of(statuses, [status], outcome.restricting, status.message())
        return Rejection(len(self._table), diagnosis, state)

    def no_fit(self, state: CycleState, statuses: NodeStatuses, restricting: Iterable[str] = ()) -> Rejection:
        """No node passes the filters."""
        diagnosis = Diagnosis.of(statuses, [status for status, _ in statuses.groups()], restricting)
        return Rejection(len(self._table), diagnosis, state)

    def lane_statuses(self, lane: Lane, pod: PodInfo) -> NodeStatuses:
        rows = self._table.order()
        decode = self._decoder(lane.state, pod, lane)
        return NodeStatuses.from_arrays(self._table, rows, lane.owner[rows], lane.verdict[rows], decode)

    def _decoder(self, state: CycleState, pod: PodInfo, lane: Lane | None) -> Decoder:
        """What verdicts mean: those of a lane's filters by the lane's state, others by the attempt's."""
        filters = self._framework.filters

        def decode(owner: int, verdict: int) -> Status:
            entry = filters[owner - 1]
            return entry.status(lane.state if lane is not None and entry in lane.filters else state, pod, verdict)

        return decode

    # -- nominated pods --------------------------------------------------------------------------------

    def nominated(self, pod: PodInfo) -> dict[int, list[PodInfo]]:
        """Row to the pods nominated there that count for ``pod``: others, of equal or higher priority."""
        found: dict[int, list[PodInfo]] = {}
        for name in self._nominations.nominated_nodes():
            row = self._table.row_of(name)
            if row is None:
                continue
            pods = [
                other
                for other in self._nominations.nominated_pods_for_node(name)
                if other.priority >= pod.priority and other.uid != pod.uid
            ]
            if pods:
                found[row] = pods
        return found

    def filter_with_nominated(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, nominated: Sequence[PodInfo]
    ) -> Status | None:
        """Filter one node as if its nominated pods ran there, and, if that passes, as it is (spec framework 4.8).

        Raises:
            PluginFailedError: when a plugin fails.
        """
        table = self._table
        if nominated:
            trial = state.clone()
            with self._snapshot.with_pods(node, nominated):
                for other in nominated:
                    self._framework.add_pod(trial, pod, other, node)
                status = self._framework.filter_node(trial, pod, table, node)
            if status is not None:
                return status
        return self._framework.filter_node(state, pod, table, node)

    def try_node(
        self, state: CycleState, pod: PodInfo, name: str, nominated: dict[int, list[PodInfo]]
    ) -> tuple[NodeInfo | None, Status | None]:
        """The node a pod is nominated to: (node, why not)."""
        row = self._table.row_of(name)
        if row is None:
            return None, None
        node = self._table.info(row)
        try:
            return node, self.filter_with_nominated(state, pod, node, nominated.get(row, ()))
        except PluginFailedError:
            return None, None  # the full search will meet the same failure and report it

    # -- filters ---------------------------------------------------------------------------------------

    def look(
        self,
        state: CycleState,
        pod: PodInfo,
        lane: Lane | None,
        outcome: PreFilterOutcome,
        nominated: dict[int, list[PodInfo]],
        tried: dict[str, Status],
    ) -> Evaluation | Rejection:
        """Filter the candidate nodes; a rejection when none passes."""
        table = self._table
        rows = self._candidates(outcome)
        restricted = outcome.nodes is not None
        active = [entry for entry in self._framework.filters if entry.name not in state.skip_filter]
        sampling = (
            bool(self._percentage)
            or any(entry.expensive for entry in active)
            or any(entry.expensive for entry in self._framework.scores)
        )
        want = nodes_to_find(len(rows), self._percentage) if sampling else len(rows)
        if want < len(rows):
            start = self._rotation.start % len(rows)
            rows = np.concatenate((rows[start:], rows[:start]))
        owners = np.zeros(len(rows), np.int64)
        verdicts = np.zeros(len(rows), np.uint64)
        nominated_status: dict[int, Status] = {}
        examined = 0
        found = 0
        step = len(rows) if want >= len(rows) else max(_CHUNK, 1)
        while examined < len(rows) and found <= want:
            part = slice(examined, min(examined + step, len(rows)))
            self._filter_part(state, pod, active, lane, rows[part], owners[part], verdicts[part])
            self._apply_nominated(state, pod, nominated, rows[part], owners[part], nominated_status)
            found += int((owners[part] == PASSES).sum())
            examined = part.stop
        if found > want:
            # The search ends at the success after the last one wanted; what lies behind was never looked at.
            passed = np.flatnonzero(owners[:examined] == PASSES)
            examined = int(passed[want])
        rows, owners, verdicts = rows[:examined], owners[:examined], verdicts[:examined]
        feasible = rows[owners == PASSES].astype(np.int32)
        statuses = NodeStatuses.from_arrays(
            table, rows, np.where(owners == NO_NODE, PASSES, owners), verdicts, self._decoder(state, pod, lane)
        )
        for name, status in tried.items():
            statuses.set(name, status)
        for row, status in nominated_status.items():
            if row in rows:
                statuses.set(table.info(row).name, status)
        if restricted:
            rejecting = (status.plugin for status in tried.values())
            names = " ".join(sorted({*outcome.restricting, *rejecting}))
            statuses.absent = Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{names}]")
        self._rotation.start = (self._rotation.start + len(rows)) % max(1, len(table))
        if not len(feasible):
            return self.no_fit(state, statuses, outcome.restricting)
        return Evaluation(feasible, statuses)

    def _candidates(self, outcome: PreFilterOutcome) -> RowArray:
        if outcome.nodes is None:
            return self._table.order()
        found = sorted(row for name in outcome.nodes if (row := self._table.row_of(name)) is not None)
        return np.array(found, np.int32)

    def _filter_part(
        self,
        state: CycleState,
        pod: PodInfo,
        active: Sequence[FilterEntry],
        lane: Lane | None,
        rows: RowArray,
        owners: IntArray,
        verdicts: VerdictArray,
    ) -> None:
        """Fill ``owners`` and ``verdicts`` of these rows: the first filter in order that rejects owns a row."""
        if lane is not None:
            owners[:] = lane.owner[rows]
            verdicts[:] = lane.verdict[rows]
        for entry in active:
            if lane is not None and entry in lane.filters:
                continue
            place = entry.index + 1
            open_ = np.flatnonzero((owners == PASSES) | (owners > place))
            if not len(open_):
                continue
            answers = entry.many(state, pod, self._table, rows[open_])
            bad = answers != 0
            owners[open_[bad]] = place
            verdicts[open_[bad]] = answers[bad]

    def _apply_nominated(
        self,
        state: CycleState,
        pod: PodInfo,
        nominated: dict[int, list[PodInfo]],
        rows: RowArray,
        owners: IntArray,
        statuses: dict[int, Status],
    ) -> None:
        """Nodes with nominated pods that count are filtered again, with those pods on them."""
        for row, pods in nominated.items():
            at = np.flatnonzero(rows == row)
            if not len(at):
                continue
            status = self.filter_with_nominated(state, pod, self._table.info(row), pods)
            if status is None:
                owners[at[0]] = PASSES
            else:
                # Kept apart from the verdicts: it belongs to another state of the node.
                owners[at[0]] = NO_NODE
                statuses[row] = status

    def evaluate(self, state: CycleState, pod: PodInfo) -> Evaluation | Rejection:
        """All of it, without a lane: what ``Search.evaluate`` promises.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        if not len(self._table):
            return Rejection.without_nodes(state)
        evaluation = self.filtered(state, pod)
        if isinstance(evaluation, Rejection):
            return evaluation
        try:
            self.score(state, pod, None, evaluation)
        except PluginFailedError:
            if len(evaluation.feasible) > 1:
                raise
        return evaluation

    def filtered(self, state: CycleState, pod: PodInfo) -> Evaluation | Rejection:
        """The feasible nodes without a lane and without scores; there must be a node.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        outcome = self._framework.pre_filter(state, pod, self._snapshot.nodes())
        if outcome.status is not None:
            return self.rejected(outcome, outcome.status, state)
        nominated = self.nominated(pod)
        tried: dict[str, Status] = {}
        if pod.status.nominated_node_name:
            node, status = self.try_node(state, pod, pod.status.nominated_node_name, nominated)
            if node is not None and status is None:
                return Evaluation(np.array([node.row], np.int32), NodeStatuses(self._table))
            if node is not None and status is not None:
                tried[node.name] = status
        return self.look(state, pod, None, outcome, nominated, tried)

    # -- scores ----------------------------------------------------------------------------------------

    def score(
        self, state: CycleState, pod: PodInfo, lane: Lane | None, evaluation: Evaluation, *, prepared: bool = False
    ) -> None:
        """Fill ``evaluation.scores`` and ``totals``."""
        framework, rows = self._framework, evaluation.feasible
        nodes = NodeList(self._table, rows)
        if not prepared:
            status = framework.pre_score(state, pod, nodes)
            if status is not None:
                raise PluginFailedError.of(status)
        start = framework.now()
        scores: dict[str, IntArray] = {}
        totals = np.zeros(len(rows), np.int64)
        for entry in framework.scores:
            if entry.name in state.skip_score:
                continue
            raw = lane.raw(entry, rows) if lane is not None else None
            if raw is None:
                raw = entry.many(state, pod, self._table, rows)
            scores[entry.name] = self.final(state, pod, entry, nodes, raw)
            totals += scores[entry.name]
        framework.observe_success("Score", framework.now() - start)
        evaluation.scores, evaluation.totals = scores, totals

    def final(self, state: CycleState, pod: PodInfo, entry: ScoreEntry, nodes: NodeList, raw: IntArray) -> IntArray:
        """Raw scores normalised, checked and weighted."""
        return weighted(entry, self._normalize(state, pod, entry, nodes, raw))

    def _normalize(
        self, state: CycleState, pod: PodInfo, entry: ScoreEntry, nodes: NodeList, raw: IntArray
    ) -> IntArray:
        if not entry.has_own_normalize:
            return normalized(entry.normalize, raw, max(0, int(raw.max())))
        try:
            answer = entry.plugin.normalize_score(state, pod, nodes, raw)
        except Exception as error:
            raise normalizing_failed(entry, error) from error
        if isinstance(answer, Status):
            if is_success(answer):
                return raw
            error_ = answer.as_error() or RuntimeError(answer.message())
            raise normalizing_failed(entry, error_)
        if not isinstance(answer, np.ndarray) or answer.shape != raw.shape or answer.dtype.kind not in "ui":
            problem = TypeError(f"normalize_score returned {answer!r}; expected int64[{len(raw)}]")
            raise normalizing_failed(entry, problem)
        return answer.astype(np.int64, copy=False)
