"""Find the node for a pod: PreFilter, Filter, PreScore, Score, choice.

Four paths give the same feasible nodes and scores:

* the **lane** path: all plugins signed the pod, so its lane already knows every node; cost independent of
  the number of nodes;
* the same with an **overlay** for plugins whose answers depend on other nodes, but who can name the nodes that a
  change elsewhere concerns (rules between pods): cost by what changed;
* the same with **plugins that did not sign** on top: they are asked about the lane's feasible nodes, in a few
  vector operations if they work on columns;
* the **full** path: for what a lane cannot remember. Signed plugins are still read from the lane; nominated
  pods, a PreFilter that restricts the nodes, and sampling are added on top. It also finds the reasons when
  nothing fits.

Source: spec "Scheduling cycle" sections 5 and 6. On purpose different: every node is looked at unless the
percentage is set or a plugin is expensive, and ties are broken uniformly (``docs/differences.md``).
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from kubesched.cache import NodeList, NodeTable, Snapshot
from kubesched.cache.columns import RowArray
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState, PodsToActivate
from kubesched.framework.entries import FilterEntry, PluginFailedError, ScoreEntry, failed
from kubesched.framework.interface import MAX_NODE_SCORE, IntArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.runtime import Framework, PreFilterOutcome
from kubesched.framework.status import Status, is_success

from .diagnosis import Decoder, Diagnosis, FitError, NodeStatuses
from .lanes import NO_NODE, PASSES, Lane, normalized, score_out_of_range
from .overlay import Overlay
from .plan import Plan
from .ranking import pick_uniformly

__all__ = ["Decision", "NoNodesError", "Nominations", "Rotation", "Search", "nodes_to_find"]

#: With fewer nodes than this all are looked at (upstream minFeasibleNodesToFind).
_LEAST_NODES: Final = 100
_LEAST_PERCENTAGE: Final = 5
#: Memory for lanes of one profile (bytes); the least recently used go first.
_LANE_BUDGET: Final = 48 << 20
_MOST_LANES: Final = 1024
#: Memory for overlays of one profile (bytes), each with a lane of its own at worst; and how many relations that
#: were met once are remembered: an overlay is made for the second pod, so that pods like no other do not pay for it.
_OVERLAY_BUDGET: Final = 64 << 20
_MOST_MET: Final = 4096
_NORMALIZE: Final = "running Normalize on Score plugins: plugin {} failed with"
#: How many nodes a sampled search asks about at a time.
_CHUNK: Final = 32


class NoNodesError(Exception):
    """There is no node at all."""

    def __init__(self) -> None:
        super().__init__("no nodes available to schedule pods")


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
class Decision:
    """The node chosen, and how much was looked at. ``state`` goes on to Reserve and the binding cycle."""

    node: NodeInfo
    state: CycleState
    evaluated: int
    feasible: int


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


class Search:
    """The algorithm of one profile. Everything is synchronous; nothing else runs meanwhile."""

    def __init__(
        self,
        framework: Framework,
        snapshot: Snapshot,
        nominations: Nominations,
        rng: random.Random,
        rotation: Rotation,
        percentage: int = 0,
    ) -> None:
        """``percentage`` is the profile's percentageOfNodesToScore, else the global one; 0 when neither is set."""
        self._framework = framework
        self._snapshot = snapshot
        self._table: NodeTable = snapshot.table
        self._nominations = nominations
        self._rng = rng
        self._rotation = rotation
        self._percentage = percentage
        signers: dict[str, FilterEntry | ScoreEntry] = {}
        signers.update((entry.name, entry) for entry in framework.filters if entry.can_sign)
        signers.update(
            (entry.name, entry) for entry in framework.scores if entry.can_sign and not entry.has_own_normalize
        )
        #: Distinct plugins that can sign; a plugin's place here is its place in the signature.
        self._signers = list(signers.values())
        self._lanes: OrderedDict[Hashable, Lane] = OrderedDict()
        self._plans: dict[tuple[bool, ...], Plan] = {}
        self._overlays: OrderedDict[Hashable, Overlay] = OrderedDict()
        self._met: dict[Hashable, None] = {}

    # -- signatures ------------------------------------------------------------------------------------

    def sign(self, pod: PodInfo) -> tuple[Hashable | None, ...]:
        """What each signing plugin says of the pod (None: it cannot say); remembered in the pod.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        if pod.signature is None:
            pod.signature = tuple([entry.sign(pod) for entry in self._signers])
        return pod.signature

    def _plan(self, signature: tuple[Hashable | None, ...]) -> Plan:
        shape = tuple([value is not None for value in signature])
        plan = self._plans.get(shape)
        if plan is None:
            signed = frozenset(entry.name for entry, said in zip(self._signers, shape, strict=True) if said)
            plan = self._plans[shape] = Plan(self._framework, signed)
        return plan

    def _keep(self, signature: Hashable, lane: Lane) -> None:
        self._lanes[signature] = lane
        row_bytes = Lane.row_bytes(len(self._framework.scores)) * self._table.capacity
        most = max(4, min(_MOST_LANES, _LANE_BUDGET // row_bytes))
        while len(self._lanes) > most:
            self._lanes.popitem(last=False)

    # -- the decision ----------------------------------------------------------------------------------

    def find(self, pod: PodInfo, *, record_plugin_metrics: bool = False) -> Decision:
        """Choose a node.

        Raises:
            NoNodesError: when there is no node at all.
            FitError: when no node fits; the attempt's state is its ``state`` attribute.
            PluginFailedError: when a plugin fails.
        """
        table = self._table
        if not len(table):
            raise NoNodesError
        signature = self.sign(pod)
        plan = self._plan(signature)
        lane = self._lanes.get(signature)
        if lane is not None:
            self._lanes.move_to_end(signature)
            self._refresh(signature, lane)
            state = lane.state.clone()
            outcome = PreFilterOutcome()
            self._prepare(state, record_plugin_metrics)
            if plan.nobody_else_cares(pod):
                state.skip_filter |= plan.skipped
                state.skip_score |= lane.state.skip_score | plan.skipped
            elif plan.can_relate and (decision := self._find_in_overlay(state, pod, plan, lane, signature)) is not None:
                return decision
            elif plan.pre_filters:
                outcome = self._framework.pre_filter(state, pod, self._snapshot.nodes(), plan.pre_filters)
        else:
            state = CycleState()
            self._prepare(state, record_plugin_metrics)
            outcome = self._framework.pre_filter(state, pod, self._snapshot.nodes())
        if outcome.status is not None:
            raise self._rejected(outcome, outcome.status, state)
        if lane is None and outcome.nodes is None:
            lane = self._new_lane(signature, plan, pod)
        nominated = self._nominated(pod) if self._nominations.nominated_nodes() else {}
        wished = pod.status.nominated_node_name
        tried: dict[str, Status] = {}
        if wished:
            node, status = self._try_node(state, pod, wished, nominated)
            if node is not None and status is None:
                return Decision(node, state, 1, 1)
            if node is not None and status is not None:
                tried[wished] = status
        unsigned = [entry for entry in plan.unsigned_filters if entry.name not in state.skip_filter]
        if lane is None or nominated or tried or outcome.nodes is not None or self._percentage:
            evaluation = self._evaluate(state, pod, plan, lane, outcome, nominated, tried)
            return self._choose(state, pod, plan, lane, evaluation)
        if unsigned:
            rows = self._narrow(state, pod, plan, lane, unsigned)
            if rows is None or not len(rows):
                # Expensive plugins are sampled; and when nothing fits, every node's reason is asked for.
                evaluation = self._evaluate(state, pod, plan, lane, outcome, nominated, tried)
                return self._choose(state, pod, plan, lane, evaluation)
            return self._find_beside_lane(state, pod, plan, lane, rows)
        return self._find_in_lane(state, pod, plan, lane)

    @staticmethod
    def _prepare(state: CycleState, record_plugin_metrics: bool) -> None:
        state.record_plugin_metrics = record_plugin_metrics
        state.write(PODS_TO_ACTIVATE, PodsToActivate())

    def _refresh(self, signature: Hashable, lane: Lane) -> None:
        try:
            lane.refresh()
        except BaseException:
            del self._lanes[signature]  # half refreshed: worth nothing
            raise

    def _new_lane(self, signature: Hashable, plan: Plan, pod: PodInfo) -> Lane:
        """Evaluate the signed plugins on every node; the lane's own state sees only them."""
        state = CycleState()
        self._framework.pre_filter(state, pod, self._snapshot.nodes(), plan.signed)
        filters = [entry for entry in plan.signed_filters if entry.name not in state.skip_filter]
        lane = Lane(self._table, pod, state, filters)
        self._keep(signature, lane)
        return lane

    def _score_lane(self, plan: Plan, pod: PodInfo, lane: Lane) -> None:
        """Let the lane score its rows, once."""
        if lane.scored:
            return
        status = self._framework.pre_score(lane.state, pod, lane.nodes(), plan.signed)
        if status is not None:
            raise PluginFailedError(status.plugin, status.as_error() or RuntimeError(status.message()))
        lane.score([entry for entry in plan.signed_scores if entry.name not in lane.state.skip_score])

    def _find_in_lane(self, state: CycleState, pod: PodInfo, plan: Plan, lane: Lane) -> Decision:
        table = self._table
        if lane.feasible == 0:
            raise self._no_fit(state, self._lane_statuses(lane, pod), len(table))
        evaluated = len(table)
        if lane.feasible == 1:
            return Decision(table.info(int(lane.feasible_rows()[0])), state, evaluated, 1)
        self._score_lane(plan, pod, lane)
        # A plugin may extend PreScore without scoring itself.
        if plan.unsigned_names - state.skip_score or any(
            entry.name not in state.skip_score for entry in plan.unsigned_scores
        ):
            state.skip_score = lane.state.skip_score
            rows = lane.feasible_rows()
            if not self._pre_score_unsigned(state, pod, plan, rows):
                return self._best_beside_lane(state, pod, plan, lane, rows)
        return Decision(table.info(lane.ranking.best(self._rng)), state, evaluated, lane.feasible)

    # -- the lane path with an overlay -----------------------------------------------------------------

    def _find_in_overlay(
        self, state: CycleState, pod: PodInfo, plan: Plan, lane: Lane, signature: Hashable
    ) -> Decision | None:
        """What the overlay for such pods says; None when there is none yet, or it takes a closer look."""
        nominated = pod.status.nominated_node_name or self._nominations.nominated_nodes()
        if nominated or self._percentage or lane.feasible < 2:
            return None
        relation = plan.relation(pod)
        if relation is None:
            return None
        key = (signature, relation)
        overlay = self._overlays.get(key)
        if overlay is None:
            if key not in self._met:
                if len(self._met) >= _MOST_MET:
                    self._met.clear()
                self._met[key] = None
                return None
            overlay = self._new_overlay(key, plan, pod)
        else:
            self._overlays.move_to_end(key)
        self._score_lane(plan, pod, lane)
        try:
            row = overlay.best(lane, self._rng)
        except BaseException:
            del self._overlays[key]  # half refreshed: worth nothing
            raise
        if row is None:
            return None
        state.skip_filter |= plan.skipped
        state.skip_score |= lane.state.skip_score | plan.skipped
        return Decision(self._table.info(row), state, len(self._table), overlay.feasible)

    def _new_overlay(self, key: Hashable, plan: Plan, pod: PodInfo) -> Overlay:
        overlay = self._overlays[key] = Overlay(self._table, self._framework, plan, pod)
        scores = len(self._framework.scores)
        row_bytes = Overlay.row_bytes(len(plan.unsigned_scores)) + Lane.row_bytes(scores)
        most = max(4, min(_MOST_LANES, _OVERLAY_BUDGET // (row_bytes * self._table.capacity)))
        while len(self._overlays) > most:
            self._overlays.popitem(last=False)
        return overlay

    # -- the lane path with plugins that did not sign ----------------------------------------------------

    def _narrow(
        self, state: CycleState, pod: PodInfo, plan: Plan, lane: Lane, unsigned: Sequence[FilterEntry]
    ) -> RowArray | None:
        """The lane's feasible rows that the other filters let pass; None when asking them all is too expensive."""
        if plan.has_expensive_scores or any(entry.expensive for entry in unsigned):
            return None
        rows = lane.feasible_rows()
        for entry in unsigned:
            if not len(rows):
                break
            passes = entry.many(state, pod, self._table, rows) == 0
            if not passes.all():
                rows = rows[passes]
        return rows

    def _find_beside_lane(self, state: CycleState, pod: PodInfo, plan: Plan, lane: Lane, rows: RowArray) -> Decision:
        if len(rows) == 1:
            return Decision(self._table.info(int(rows[0])), state, len(self._table), 1)
        self._score_lane(plan, pod, lane)
        state.skip_score = lane.state.skip_score
        if plan.unsigned_scores or plan.unsigned_names:
            rows.flags.writeable = False  # plugins may remember what they looked up for these rows
            self._pre_score_unsigned(state, pod, plan, rows)
        return self._best_beside_lane(state, pod, plan, lane, rows)

    def _best_beside_lane(self, state: CycleState, pod: PodInfo, plan: Plan, lane: Lane, rows: RowArray) -> Decision:
        """The best of some of the lane's rows: its totals, and on top what the other plugins say now."""
        totals = lane.totals(rows)
        nodes = NodeList(self._table, rows)
        for entry in plan.unsigned_scores:
            if entry.name not in state.skip_score:
                totals += self._final(state, pod, entry, nodes, entry.many(state, pod, self._table, rows))
        best = pick_uniformly(self._rng, totals)
        return Decision(self._table.info(int(rows[best])), state, len(self._table), len(rows))

    def _pre_score_unsigned(self, state: CycleState, pod: PodInfo, plan: Plan, feasible: RowArray) -> bool:
        """Run PreScore of the plugins that did not sign; True when none of them has anything to say."""
        status = self._framework.pre_score(state, pod, NodeList(self._table, feasible), plan.unsigned_names)
        if status is not None:
            raise PluginFailedError(status.plugin, status.as_error() or RuntimeError(status.message()))
        return all(entry.name in state.skip_score for entry in plan.unsigned_scores)

    # -- failures --------------------------------------------------------------------------------------

    def _rejected(self, outcome: PreFilterOutcome, status: Status, state: CycleState) -> FitError:
        """PreFilter turned the pod down everywhere."""
        statuses = NodeStatuses(self._table)
        statuses.absent = status
        diagnosis = Diagnosis(statuses, set(outcome.restricting), pre_filter_message=status.message())
        diagnosis.blame(status)
        return FitError(len(self._table), diagnosis, state)

    def _no_fit(
        self, state: CycleState, statuses: NodeStatuses, all_nodes: int, restricting: Iterable[str] = ()
    ) -> FitError:
        diagnosis = Diagnosis(statuses)
        diagnosis.blame_all()
        diagnosis.unschedulable_plugins.update(restricting)
        return FitError(all_nodes, diagnosis, state)

    def _lane_statuses(self, lane: Lane, pod: PodInfo) -> NodeStatuses:
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

    def _nominated(self, pod: PodInfo) -> dict[int, list[PodInfo]]:
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

    def _try_node(
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

    # -- the full path ---------------------------------------------------------------------------------

    def evaluate(self, state: CycleState, pod: PodInfo) -> Evaluation:
        """Look at every node by the full path and score all feasible ones, even a single one.

        For conformance, explain and tests; nothing is chosen. When a single node is feasible and scoring it
        fails, which a scheduler would never notice, there are no scores.

        Raises:
            NoNodesError, FitError, PluginFailedError: as :meth:`find`.
        """
        if not len(self._table):
            raise NoNodesError
        plan = self._plan(self.sign(pod))
        outcome = self._framework.pre_filter(state, pod, self._snapshot.nodes())
        if outcome.status is not None:
            raise self._rejected(outcome, outcome.status, state)
        nominated = self._nominated(pod)
        tried: dict[str, Status] = {}
        evaluation: Evaluation | None = None
        if pod.status.nominated_node_name:
            node, status = self._try_node(state, pod, pod.status.nominated_node_name, nominated)
            if node is not None and status is None:
                evaluation = Evaluation(np.array([node.row], np.int32), NodeStatuses(self._table))
            elif node is not None and status is not None:
                tried[node.name] = status
        if evaluation is None:
            evaluation = self._evaluate(state, pod, plan, None, outcome, nominated, tried)
        try:
            self._score(state, pod, None, evaluation)
        except PluginFailedError:
            if len(evaluation.feasible) > 1:
                raise
        return evaluation

    def _evaluate(
        self,
        state: CycleState,
        pod: PodInfo,
        plan: Plan,
        lane: Lane | None,
        outcome: PreFilterOutcome,
        nominated: dict[int, list[PodInfo]],
        tried: dict[str, Status],
    ) -> Evaluation:
        """Filter the candidate nodes; raises FitError when none passes."""
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
            names = " ".join(sorted(outcome.restricting))
            statuses.absent = Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{names}]")
        self._rotation.start = (self._rotation.start + len(rows)) % max(1, len(table))
        if not len(feasible):
            raise self._no_fit(state, statuses, len(table), outcome.restricting)
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

    # -- scores of the full path -----------------------------------------------------------------------

    def _choose(
        self,
        state: CycleState,
        pod: PodInfo,
        plan: Plan,
        lane: Lane | None,
        evaluation: Evaluation,
    ) -> Decision:
        feasible = evaluation.feasible
        evaluated = len(feasible) + len(evaluation.statuses)
        if len(feasible) == 1:
            return Decision(self._table.info(int(feasible[0])), state, evaluated, 1)
        if lane is not None:
            self._score_lane(plan, pod, lane)
            state.skip_score = lane.state.skip_score
            self._pre_score_unsigned(state, pod, plan, feasible)
            self._score(state, pod, lane, evaluation, prepared=True)
        else:
            self._score(state, pod, None, evaluation)
        assert evaluation.totals is not None
        best = pick_uniformly(self._rng, evaluation.totals)
        return Decision(self._table.info(int(feasible[best])), state, evaluated, len(feasible))

    def _score(
        self, state: CycleState, pod: PodInfo, lane: Lane | None, evaluation: Evaluation, *, prepared: bool = False
    ) -> None:
        """Fill ``evaluation.scores`` and ``totals``."""
        framework, rows = self._framework, evaluation.feasible
        nodes = NodeList(self._table, rows)
        if not prepared:
            status = framework.pre_score(state, pod, nodes)
            if status is not None:
                raise PluginFailedError(status.plugin, status.as_error() or RuntimeError(status.message()))
        start = framework.now()
        scores: dict[str, IntArray] = {}
        totals = np.zeros(len(rows), np.int64)
        for entry in framework.scores:
            if entry.name in state.skip_score:
                continue
            raw = lane.raw(entry, rows) if lane is not None else None
            if raw is None:
                raw = entry.many(state, pod, self._table, rows)
            scores[entry.name] = self._final(state, pod, entry, nodes, raw)
            totals += scores[entry.name]
        framework.observe_success("Score", framework.now() - start)
        evaluation.scores, evaluation.totals = scores, totals

    def _final(self, state: CycleState, pod: PodInfo, entry: ScoreEntry, nodes: NodeList, raw: IntArray) -> IntArray:
        """Raw scores normalised, checked and weighted."""
        final = self._normalize(state, pod, entry, nodes, raw)
        low, high = int(final.min()), int(final.max())
        if low < 0 or high > MAX_NODE_SCORE:
            raise score_out_of_range(entry, low if low < 0 else high)
        return final * entry.weight

    def _normalize(
        self, state: CycleState, pod: PodInfo, entry: ScoreEntry, nodes: NodeList, raw: IntArray
    ) -> IntArray:
        if not entry.has_own_normalize:
            return normalized(entry.normalize, raw, max(0, int(raw.max())))
        try:
            answer = entry.plugin.normalize_score(state, pod, nodes, raw)
        except Exception as error:
            raise PluginFailedError(entry.name, failed(_NORMALIZE, entry.name, error)) from error
        if isinstance(answer, Status):
            if is_success(answer):
                return raw
            error_ = answer.as_error() or RuntimeError(answer.message())
            raise PluginFailedError(entry.name, failed(_NORMALIZE, entry.name, error_))
        if not isinstance(answer, np.ndarray) or answer.shape != raw.shape or answer.dtype.kind not in "ui":
            problem = TypeError(f"normalize_score returned {answer!r}; expected int64[{len(raw)}]")
            raise PluginFailedError(entry.name, failed(_NORMALIZE, entry.name, problem))
        return answer.astype(np.int64, copy=False)
