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

import enum
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from kubesched.cache import NodeList, NodeTable, Snapshot
from kubesched.cache.columns import RowArray
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState, PodsToActivate
from kubesched.framework.entries import FilterEntry, PluginFailedError, ScoreEntry
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.runtime import Framework, PreFilterOutcome
from kubesched.framework.status import Status

from .diagnosis import Rejection
from .full_look import Evaluation, FullLook, Nominations, Rotation
from .lanes import Lane
from .overlay import Overlay
from .plan import Plan
from .ranking import pick_uniformly

__all__ = ["Decision", "Path", "Search"]

#: Memory for lanes of one profile (bytes); the least recently used go first.
_LANE_BUDGET: Final = 48 << 20
_MOST_LANES: Final = 1024
#: Memory for overlays of one profile (bytes), each with a lane of its own at worst; and how many relations that
#: were met once are remembered: an overlay is made for the second pod, so that pods like no other do not pay for it.
_OVERLAY_BUDGET: Final = 64 << 20
_MOST_MET: Final = 4096


@dataclass(frozen=True, slots=True)
class Decision:
    """The node chosen, and how much was looked at. ``state`` goes on to Reserve and the binding cycle."""

    node: NodeInfo
    state: CycleState
    evaluated: int
    feasible: int


class Path(enum.Enum):
    """How an attempt found its node, or why it has none; for observers of the search."""

    SIGNATURE = "signature layer"
    INTERACTION = "interaction layer"
    FULL_SCAN = "full scan"


class Search:
    """The algorithm of one profile. Everything is synchronous; nothing else runs meanwhile.

    Attributes:
        observer: receives the path of every attempt that :meth:`find` answers, if set.
    """

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
        self._percentage = percentage
        self._full = FullLook(framework, snapshot, nominations, rotation, percentage)
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
        self.observer: Callable[[Path], None] | None = None

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

    def find(self, pod: PodInfo, *, record_plugin_metrics: bool = False) -> Decision | Rejection:
        """Choose a node, or say why there is none for the pod.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        if not len(self._table):
            return Rejection.without_nodes(CycleState())
        signature = self.sign(pod)
        plan = self._plan(signature)
        try:
            return self._find(pod, signature, plan, record_plugin_metrics)
        except PluginFailedError as error:
            if not plan.unsigned_filters or error.plugin not in plan.signed:
                raise
        # Lanes ask the plugins that signed about nodes that an earlier, unsigned filter may have rejected. Whether the
        # failure counts is decided in the configured order.
        return self._find_in_order(pod, plan, record_plugin_metrics)

    def _find_in_order(self, pod: PodInfo, plan: Plan, record_plugin_metrics: bool) -> Decision | Rejection:
        """The same by a full look without a lane."""
        state = CycleState()
        self._prepare(state, record_plugin_metrics)
        evaluation = self._full.filtered(state, pod)
        return self._choose(state, pod, plan, None, evaluation)

    def _find(
        self, pod: PodInfo, signature: tuple[Hashable | None, ...], plan: Plan, record_plugin_metrics: bool
    ) -> Decision | Rejection:
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
                return self._answered(Path.INTERACTION, decision)
            elif plan.pre_filters:
                outcome = self._framework.pre_filter(state, pod, self._snapshot.nodes(), plan.pre_filters)
        else:
            state = CycleState()
            self._prepare(state, record_plugin_metrics)
            outcome = self._framework.pre_filter(state, pod, self._snapshot.nodes())
        if outcome.status is not None:
            return self._answered(Path.FULL_SCAN, self._full.rejected(outcome, outcome.status, state))
        if lane is None and outcome.nodes is None:
            lane = self._new_lane(signature, plan, pod)
        nominated = self._full.nominated(pod) if self._nominations.nominated_nodes() else {}
        wished = pod.status.nominated_node_name
        tried: dict[str, Status] = {}
        if wished:
            node, status = self._full.try_node(state, pod, wished, nominated)
            if node is not None and status is None:
                return self._answered(Path.FULL_SCAN, Decision(node, state, 1, 1))
            if node is not None and status is not None:
                tried[wished] = status
        unsigned = [entry for entry in plan.unsigned_filters if entry.name not in state.skip_filter]
        if lane is None or nominated or tried or outcome.nodes is not None or self._percentage:
            evaluation = self._full.look(state, pod, lane, outcome, nominated, tried)
            return self._choose(state, pod, plan, lane, evaluation)
        if unsigned:
            rows = self._narrow(state, pod, plan, lane, unsigned)
            if rows is None or not len(rows):
                # Expensive plugins are sampled; and when nothing fits, every node's reason is asked for.
                evaluation = self._full.look(state, pod, lane, outcome, nominated, tried)
                return self._choose(state, pod, plan, lane, evaluation)
            return self._answered(Path.FULL_SCAN, self._find_beside_lane(state, pod, plan, lane, rows))
        return self._answered(Path.SIGNATURE, self._find_in_lane(state, pod, plan, lane))

    def _answered(self, path: Path, answer: Decision | Rejection) -> Decision | Rejection:
        if self.observer is not None:
            self.observer(path)
        return answer

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
            raise PluginFailedError.of(status)
        lane.score([entry for entry in plan.signed_scores if entry.name not in lane.state.skip_score])

    def _find_in_lane(self, state: CycleState, pod: PodInfo, plan: Plan, lane: Lane) -> Decision | Rejection:
        table = self._table
        if lane.feasible == 0:
            return self._full.no_fit(state, self._full.lane_statuses(lane, pod))
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
            row = overlay.best(pod, lane, self._rng)
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
                totals += self._full.final(state, pod, entry, nodes, entry.many(state, pod, self._table, rows))
        best = pick_uniformly(self._rng, totals)
        return Decision(self._table.info(int(rows[best])), state, len(self._table), len(rows))

    def _pre_score_unsigned(self, state: CycleState, pod: PodInfo, plan: Plan, feasible: RowArray) -> bool:
        """Run PreScore of the plugins that did not sign; True when none of them has anything to say."""
        status = self._framework.pre_score(state, pod, NodeList(self._table, feasible), plan.unsigned_names)
        if status is not None:
            raise PluginFailedError.of(status)
        return all(entry.name in state.skip_score for entry in plan.unsigned_scores)

    # -- the full path ---------------------------------------------------------------------------------

    def _choose(
        self,
        state: CycleState,
        pod: PodInfo,
        plan: Plan,
        lane: Lane | None,
        evaluation: Evaluation | Rejection,
    ) -> Decision | Rejection:
        return self._answered(Path.FULL_SCAN, self._chosen(state, pod, plan, lane, evaluation))

    def _chosen(
        self,
        state: CycleState,
        pod: PodInfo,
        plan: Plan,
        lane: Lane | None,
        evaluation: Evaluation | Rejection,
    ) -> Decision | Rejection:
        if isinstance(evaluation, Rejection):
            return evaluation
        feasible = evaluation.feasible
        evaluated = len(feasible) + len(evaluation.statuses)
        if len(feasible) == 1:
            return Decision(self._table.info(int(feasible[0])), state, evaluated, 1)
        if lane is not None:
            self._score_lane(plan, pod, lane)
            state.skip_score = lane.state.skip_score
            self._pre_score_unsigned(state, pod, plan, feasible)
            self._full.score(state, pod, lane, evaluation, prepared=True)
        else:
            self._full.score(state, pod, None, evaluation)
        assert evaluation.totals is not None
        best = pick_uniformly(self._rng, evaluation.totals)
        return Decision(self._table.info(int(feasible[best])), state, evaluated, len(feasible))

    def evaluate(self, state: CycleState, pod: PodInfo) -> Evaluation | Rejection:
        """Look at every node by the full path and score all feasible ones, even a single one.

        For conformance, explain and tests; nothing is chosen. When a single node is feasible and scoring it
        fails, which a scheduler would never notice, there are no scores.

        Raises:
            PluginFailedError: as :meth:`find`.
        """
        self.sign(pod)  # a plugin that cannot sign fails an attempt, hence this, too
        return self._full.evaluate(state, pod)
