"""Find the node for a pod: PreFilter, Filter, PreScore, Score, choice.

An attempt takes one of four paths (:class:`Path`); :meth:`Search._top` decides which. All paths give the same feasible
nodes and scores. Layers (:mod:`.layers`) answer from memory, at a cost that hardly depends on the number of nodes. A
full scan (:mod:`.full_scan`) handles the other cases, and finds the reasons when no node fits.

Source: rules/cycle §5, §6. Two things differ on purpose (``docs/differences.md``): every node is evaluated unless the
percentage is set or a plugin is expensive, and ties are broken uniformly.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from ..framework.cycle_state import PODS_TO_ACTIVATE, CycleState, PodsToActivate
from ..framework.failures import PluginFailedError
from ..framework.group_trial import GroupTrial
from ..framework.interface import IntArray
from ..framework.outcomes import PreFilterOutcome
from ..framework.runtime import Framework
from ..nodes import NodeTable, Snapshot
from ..nodes.columns import IntpArray, RowArray
from ..nodes.nodeinfo import NodeInfo
from ..nodes.nominated_rows import NominatedPods
from ..nodes.nominating import Nominations
from ..nodes.podinfo import PodInfo
from .diagnosis import Diagnosis, Rejection
from .full_scan import Evaluation, FullScan, Rotation, ScanRequest
from .layer_cache import LayerCache
from .layers import PASSES, Layer
from .nominations import NominationFilter, NominationShare
from .plan import Asked, Plan, Questions, Share
from .ranking import pick_uniformly

__all__ = ["Decision", "Path", "Room", "Search", "prepared"]


T = TypeVar("T")

#: Name of the extension point in metrics.
_FILTER: Final = "Filter"

#: Key of a layer: the signature, and then None for a signature layer, the keys of the linked plugins for an interaction
#: layer, or the pod's priority for a nomination layer (the priority decides which nominations count).
_Key = tuple[Hashable, tuple[Hashable, ...] | int | None]


class Decision(NamedTuple):
    """Chosen node, the number of nodes that were evaluated, and the number of nodes that fit.

    Reserve and the binding cycle go on with ``state``. ``basis`` has the scores that decided, until the cluster changes.
    """

    node: NodeInfo
    state: CycleState
    evaluated: int
    feasible: int
    basis: Layer | Evaluation | None = None


class Room(NamedTuple):
    """Rows, intp[n], and how many pods with this signature each of them holds at most, int64[n]; other rows hold none."""

    signature: Hashable
    rows: IntpArray
    most: IntArray


class Path(enum.Enum):
    """Way in which an attempt finds its node, or the reasons why there is none; see :meth:`Search._top`."""

    SIGNATURE = "signature layer"
    NOMINATIONS = "nomination layer"
    INTERACTION = "interaction layer"
    FULL_SCAN = "full scan"


class Search:
    """Search of one profile: finds the node for a pod. All of it is synchronous, so nothing changes meanwhile.

    Attributes:
        table: the nodes by row.
        snapshot: the nodes as plugins see them, with what-ifs.
        scan: the profile's full scan.
        observer: callback with the path of every attempt that :meth:`find` answers, or None.
        path: the path of the last answer of :meth:`find`.
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
        self.snapshot = snapshot
        self.table: NodeTable = snapshot.table
        self._rng = rng
        self._percentage = percentage
        self._nominated = snapshot.nominated_rows(nominations)
        self.scan = FullScan(framework, snapshot, rotation, percentage)
        self._questions = Questions(framework, self.table)
        self._layers = LayerCache(self.table)
        self.observer: Callable[[Path], None] | None = None
        self.path = Path.FULL_SCAN

    @property
    def nominations(self) -> Nominations:
        """Nominations of pods to nodes, which count in the search."""
        return self._nominated.nominations

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Context of questions that have no consequences: afterwards ties are broken as if none had been asked."""
        state = self._rng.getstate()
        try:
            yield
        finally:
            self._rng.setstate(state)

    def ask(self, pod: PodInfo) -> Asked:
        """Ask the plugins for the keys of their questions about the pod. Call it at the start of an attempt.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        return self._questions.of(pod)

    # -- the decision ----------------------------------------------------------------------------------

    def find(
        self, pod: PodInfo, *, record_plugin_metrics: bool = False, trial: GroupTrial | None = None
    ) -> Decision | Rejection:
        """Choose a node for the pod, or return the reasons why no node fits.

        ``trial``: the trial of the pod's group; its rows are the only candidates.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        if not len(self.table):
            return Rejection.without_nodes(prepared(CycleState(), record_plugin_metrics, trial=trial))
        found = partial(self._find_or_scan, pod, record_plugin_metrics, trial)
        path, answer = self.timed(pod, record_plugin_metrics, found)
        self.path = path
        if self.observer is not None:
            self.observer(path)
        return answer

    def timed(self, pod: PodInfo, sampled: bool, search: Callable[[], T]) -> T:
        """Do a search for the pod's node; if ``sampled``, record the seconds that all filters took in it."""
        stopwatch = self._framework.stopwatch
        stopwatch.begin(pod.key, sampled)
        if not sampled:
            return search()
        try:
            return search()
        finally:
            seconds = stopwatch.end().get(_FILTER)
            if seconds is not None:
                self._framework.observe(_FILTER, seconds)

    def _find_or_scan(
        self, pod: PodInfo, record_plugin_metrics: bool, trial: GroupTrial | None
    ) -> tuple[Path, Decision | Rejection]:
        if record_plugin_metrics:
            start = self._framework.now()
            asked = self.ask(pod)
            self._framework.observe("Sign", self._framework.now() - start)
        else:
            asked = self.ask(pod)
        try:
            return self._find(pod, asked, record_plugin_metrics, trial)
        except PluginFailedError as error:
            plan = asked.plan
            may_not_count = plan.unsigned.filters or plan.unsigned.pre_filters or self._nominated.of(pod.priority).pods
            if not may_not_count or error.plugin not in plan.signed.names:
                raise
            # A layer calls signed plugins out of the configured order: for nodes that an earlier unsigned filter or a
            # nominated pod excludes, and before an unsigned PreFilter that rejects the pod. In the configured order
            # the failing call may not happen at all, so a full scan, which keeps that order, decides.
            state = prepared(CycleState(), record_plugin_metrics, trial=trial)
            return Path.FULL_SCAN, self._chosen(self.request(pod, state))

    def _find(
        self, pod: PodInfo, asked: Asked, record_plugin_metrics: bool, trial: GroupTrial | None
    ) -> tuple[Path, Decision | Rejection]:
        """Bring the pod's layers up to date and take the best row; make a full scan when no layer answers."""
        plan, nominated = asked.plan, self._nominated.of(pod.priority)
        layer = self._layer((asked.signature, None), plan.signed, pod)
        state = CycleState() if layer is None else layer.state.clone()
        prepared(state, record_plugin_metrics, plan.absent, trial)
        if layer is not None:
            state.skip_filter |= plan.absent
        outcome: PreFilterOutcome | None = None
        if layer is None or plan.has_others:
            outcome = self._pre_filter(pod, state, plan, layer)
            if layer is None:
                self._layers.mark((asked.signature, None), unusable=outcome.nodes is not None)
        is_answered = plan.is_answered(state, outcome)
        # A nominated pod tries its nominated node first, and must not be counted as nominated to it. Layers do neither.
        is_nominated = bool(pod.status.nominated_node_name) or pod.uid in nominated.row_of
        path, top = self._top(pod, asked, layer, nominated, is_answered=is_answered, is_nominated=is_nominated)
        is_whole = trial is None or trial.rows is None
        if top is not None and not is_nominated and is_whole:
            row = top.best(self._rng)
            if row is not None:
                if path is Path.INTERACTION:
                    state.adopt(top.state)  # Reserve needs the questions of the unsigned plugins, too
                return path, Decision(self.table.info(row), state, len(self.table), top.feasible, top)
            known = _known(top) if is_answered else None
            if known is not None:
                return path, Rejection(len(self.table), known, state)
        if path is Path.SIGNATURE and layer is not None and not is_whole and not is_nominated:
            assert trial is not None
            assert trial.rows is not None
            if (chosen := self._best_of(layer, trial.rows, state)) is not None:
                return path, chosen
        if outcome is None:
            outcome = self._pre_filter(pod, state, plan, layer)
        nominations = top.share.nominations if top is not None and isinstance(top.share, NominationShare) else None
        if nominations is not None:
            nominations.catch_up(pod)
        answer = self._chosen(ScanRequest(pod, state, outcome, nominated, plan, layer, nominations))
        if is_answered and top is not None and not is_nominated and is_whole and isinstance(answer, Rejection):
            # The next pod with this signature gets the same reasons, until a row is rejected for another reason.
            top.rejection.learn(answer.diagnosis)
        return Path.FULL_SCAN, answer

    def room(self, pod: PodInfo, *, alone: bool) -> Room | None:
        """Return how many pods like this one each row holds at most; None if there is no bound.

        ``alone``: no other pods come meanwhile. The bound holds for all pods that share the pod's spec. See
        :meth:`.layers.Layer.room`.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        asked = self.ask(pod)
        if not self._questions.sign_by_spec(pod):
            return None
        layer = self._layer((asked.signature, None), asked.plan.signed, pod)
        found = layer.room(alone=alone) if layer is not None else None
        return None if found is None else Room(asked.signature, *found)

    def _best_of(self, layer: Layer, rows: RowArray, state: CycleState) -> Decision | None:
        """Choose among some rows by a signature layer that answers for all plugins; None when no row passes."""
        inside = rows[rows < len(layer.owner)]
        feasible = inside[layer.owner[inside] == PASSES]
        if not len(feasible):
            return None
        best = 0
        if len(feasible) > 1:
            layer.score()
            best = pick_uniformly(self._rng, layer.totals(feasible))
        return Decision(self.table.info(int(feasible[best])), state, len(rows), len(feasible))

    def _pre_filter(self, pod: PodInfo, state: CycleState, plan: Plan, layer: Layer | None) -> PreFilterOutcome:
        """Run PreFilter of the unsigned plugins; without a signature layer (``layer`` None), of all plugins."""
        if layer is not None and not plan.unsigned.pre_filters:
            return PreFilterOutcome()
        only = None if layer is None else plan.unsigned.pre_filters
        return self._framework.pre_filter(state, pod, self.snapshot.nodes(), only)

    def _top(
        self,
        pod: PodInfo,
        asked: Asked,
        layer: Layer | None,
        nominated: NominatedPods,
        *,
        is_answered: bool,
        is_nominated: bool,
    ) -> tuple[Path, Layer | None]:
        """Choose the path of an attempt. Return it with the layer that answers, up to date; None for a full scan.

        ``layer`` is the signature layer, or None. ``is_answered``: the signature layer answers for all plugins.
        ``is_nominated``: the pod itself is nominated to a node. ``docs/decision-core.md`` has the rules as a table.
        """
        plan = asked.plan
        if layer is None or self._percentage:
            return Path.FULL_SCAN, None
        if is_answered:
            if not nominated.pods:
                return Path.SIGNATURE, layer
            return Path.NOMINATIONS, self._layer((asked.signature, pod.priority), plan.unsigned, pod, layer, nominated)
        can_interact = plan.can_interact and not nominated.pods and not is_nominated
        if can_interact and layer.feasible > 1 and plan.may_interact_after(layer.filters):
            key = (asked.signature, asked.linked)
            if self._layers.meet(key):
                return Path.INTERACTION, self._layer(key, plan.unsigned, pod, layer)
        return Path.FULL_SCAN, None

    def _layer(
        self, key: _Key, share: Share, pod: PodInfo, base: Layer | None = None, nominated: NominatedPods | None = None
    ) -> Layer | None:
        """Return the layer of a key, up to date; None when the pod's answers cannot be remembered by row.

        ``share`` are the plugins that a new layer evaluates. ``nominated``, for a nomination layer only, are the
        nominated pods that it counts; ``base`` must be given then.
        """
        layer = self._layers.get(key)
        if layer is None and base is None and self._layers.is_met(key):
            return None  # PreFilter restricted the last pod with this key to some nodes
        if layer is None or layer.base is not base or layer.share.view is not nominated:
            if base is not None and nominated is not None:
                share = NominationShare(NominationFilter(self._framework, self.snapshot, nominated, base))
            layer = Layer(self._framework, self.table, share, base)
            self._layers.put(key, layer)
        usable = False
        try:
            usable = layer.refresh(pod)
        finally:
            if not usable:
                self._layers.drop(key)  # an error may have left it half refreshed
        return layer if usable else None

    # -- full scans ------------------------------------------------------------------------------------

    def request(self, pod: PodInfo, state: CycleState, **how: Any) -> ScanRequest:
        """Run PreFilter and return the request for a full scan that uses nothing remembered.

        ``how`` are further fields of :class:`ScanRequest`.

        Raises:
            PluginFailedError: when a plugin fails, at PreFilter or while it signs the pod.
        """
        plan = self.ask(pod).plan
        state.absent = plan.absent
        outcome = self._framework.pre_filter(state, pod, self.snapshot.nodes())
        return ScanRequest(pod, state, outcome, self._nominated.of(pod.priority), plan=plan, **how)

    def choose(self, scores: Evaluation, state: CycleState) -> Decision:
        """Choose a node with the greatest total; each of them has the same chance."""
        rows, totals = scores.feasible, scores.totals
        best = pick_uniformly(self._rng, totals) if totals is not None else 0
        examined = len(rows) + len(scores.statuses)
        return Decision(self.table.info(int(rows[best])), state, examined, len(rows), scores)

    def _chosen(self, request: ScanRequest) -> Decision | Rejection:
        found = self.scan.evaluate(request)
        return found if isinstance(found, Rejection) else self.choose(found, request.state)

    def evaluate(self, state: CycleState, pod: PodInfo) -> Evaluation | Rejection:
        """Scan all nodes with nothing remembered, and score all that fit, even a single one. Choose none.

        Conformance, explain and tests use it. A scheduler never scores a single feasible node; so if that fails here,
        the evaluation is returned without scores.

        Raises:
            PluginFailedError: as :meth:`find`.
        """
        if not len(self.table):
            return Rejection.without_nodes(state)
        request = self.request(pod, state)
        found = self.scan.evaluate(request)
        if isinstance(found, Rejection) or found.totals is not None:
            return found
        try:
            return self.scan.score(request, found)
        except PluginFailedError:
            return found


def _known(layer: Layer) -> Diagnosis | None:
    """Return the remembered reasons why a signature or nomination layer rejects every row; None without any."""
    share = layer.share
    if layer.feasible:
        return None
    return layer.rejection.current(share.nominations.why if isinstance(share, NominationShare) else layer.why)


def prepared(
    state: CycleState,
    record_plugin_metrics: bool,
    absent: frozenset[str] = frozenset(),
    trial: GroupTrial | None = None,
) -> CycleState:
    """Fill in the entries that every attempt's state has, and return it.

    ``absent`` names the plugins not to call. ``trial`` is the trial of the pod's group.
    """
    state.absent = absent
    if trial is not None:
        state.group, state.skip_all_post_filter = trial, trial.simulated
    state.record_plugin_metrics = record_plugin_metrics
    state.write(PODS_TO_ACTIVATE, PodsToActivate())
    return state
