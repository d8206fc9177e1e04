"""Find the node for a pod: PreFilter, Filter, PreScore, Score, choice.

Which way an attempt takes is decided in one place, :meth:`Search._path`; all ways give the same feasible nodes and
scores. Layers (:mod:`.layers`) answer from memory, at a cost that hardly depends on the number of nodes; a full scan
(:mod:`.full_scan`) handles the other cases, and gives the reasons when nothing fits.

Source: spec "Scheduling cycle" sections 5 and 6. On purpose different: every node is evaluated unless the percentage
is set or a plugin is expensive, and ties are broken uniformly (``docs/differences.md``).
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from kubesched.cache import NodeTable, Snapshot
from kubesched.cache.nominated_rows import NominatedPods
from kubesched.framework.concerned import NOT_CONCERNED
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState, PodsToActivate
from kubesched.framework.entries import FilterEntry, PluginFailedError, ScoreEntry
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.nominating import Nominations
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.runtime import Framework, PreFilterOutcome

from .diagnosis import Diagnosis, Rejection
from .full_scan import Evaluation, FullScan, Rotation, ScanRequest
from .layer_cache import LayerCache
from .layers import Layer
from .nominations import NominationFilter, NominationShare
from .plan import Plan
from .ranking import pick_uniformly

__all__ = ["Decision", "Path", "Search", "prepared"]


class Signature(tuple[Hashable | None, ...]):
    """Each signing plugin's signature of a pod (None: it gives none).

    Attributes:
        plan: what follows from which plugins signed.
        images: version of the names in the image table then: a plugin may sign what nodes have of a pod's images.
        until: with this answer of the plugins' ``signs_until`` it was made; None for a pod that refers to nothing.
    """

    plan: Plan
    images: int
    until: Hashable = None
    _hash: int

    def __init__(self, signatures: Iterable[Hashable | None]) -> None:
        self._hash = super().__hash__()  # layers are looked up several times for a pod

    def __hash__(self) -> int:
        return self._hash


#: Signature; and interaction key, None for a signature layer, or the priority that says which nominations count.
_Key = tuple[Hashable, tuple[Hashable, ...] | int | None]


class Decision(NamedTuple):
    """The node chosen, and how many were evaluated and fit. ``state`` is passed on to Reserve and the binding cycle."""

    node: NodeInfo
    state: CycleState
    evaluated: int
    feasible: int


class Path(enum.Enum):
    """How an attempt finds its node, or why it has none; see :meth:`Search._path`."""

    SIGNATURE = "signature layer"
    NOMINATIONS = "nomination layer"
    INTERACTION = "interaction layer"
    FULL_SCAN = "full scan"


class Search:
    """The algorithm of one profile. Everything is synchronous; nothing else runs meanwhile.

    Attributes:
        table: the nodes by row.
        scan: the full scans.
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
        self.table: NodeTable = snapshot.table
        self._rng = rng
        self._percentage = percentage
        self._nominated = snapshot.nominated_rows(nominations)
        self.scan = FullScan(framework, snapshot, rotation, percentage)
        signers: dict[str, FilterEntry | ScoreEntry] = {}
        signers.update((entry.name, entry) for entry in framework.filters if entry.can_sign or entry.can_be_absent)
        signers.update(
            (entry.name, entry)
            for entry in framework.scores
            if entry.can_be_absent or (entry.can_sign and not entry.needs_all)
        )
        #: Distinct plugins that can sign, or have nothing to do for some pods; a plugin's place here is its place in the
        #: signature.
        self._signers = list(signers.values())
        #: What signatures of pods that ask for extended resources depend on; None when some plugin may depend on more.
        self._until = [entry.plugin.signs_until for entry in self._signers if hasattr(entry.plugin, "signs_until")]
        self._depending = frozenset(
            entry.name for entry in self._signers if not (entry.signs_spec or hasattr(entry.plugin, "signs_until"))
        )
        #: Those that may give pods with the same spec different signatures.
        self._signing_more = frozenset(entry.name for entry in self._signers if not entry.signs_spec)
        self._layers = LayerCache(self.table)
        self._plans: dict[tuple[bool | None, ...], Plan] = {}
        self.observer: Callable[[Path], None] | None = None

    def sign(self, pod: PodInfo) -> Signature:
        """The pod's signature, at the start of an attempt; kept in the pod unless it refers to other objects.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        self._framework.turn.number += 1
        known: Signature | None = pod.signature
        until = self._signs_until(pod) if pod.refers else None
        if known is not None and known.until == until and self._is_current(known):
            return known
        absent = self._framework.concerned(pod).absent
        model = pod.model if self._signing_more <= absent else None
        signature: Signature | None = model.signature if model is not None else None
        if signature is None or signature.until != until or not self._is_current(signature):
            signature = Signature(
                [NOT_CONCERNED if entry.name in absent else entry.sign(pod) for entry in self._signers]
            )
            signature.plan = self._plan(signature)
            signature.images = self.table.images.names_version
            signature.until = until
        if not pod.refers or until is not None:
            pod.signature = signature
            if model is not None:
                model.signature = signature
        return signature

    def _signs_until(self, pod: PodInfo) -> Hashable:
        """While this stays the same, so does the signature of a pod that asks for extended resources; None: sign again."""
        if pod.storage or pod.spec.resource_claims or not self._depending <= self._framework.concerned(pod).absent:
            return None
        found = tuple([until() for until in self._until])
        return None if None in found else found

    def _is_current(self, signature: Signature) -> bool:
        """Whether it was made for this profile, and for the images that nodes have."""
        return signature.images == self.table.images.names_version and signature.plan.framework is self._framework

    def _plan(self, signature: Signature) -> Plan:
        shape = tuple([None if value is None else value is NOT_CONCERNED for value in signature])
        plan = self._plans.get(shape)
        if plan is None:
            signed, absent = (
                frozenset(
                    entry.name for entry, is_absent in zip(self._signers, shape, strict=True) if is_absent in kind
                )
                for kind in ((False, True), (True,))
            )
            plan = self._plans[shape] = Plan(self._framework, signed, absent)
        return plan

    # -- the decision ----------------------------------------------------------------------------------

    def find(self, pod: PodInfo, *, record_plugin_metrics: bool = False) -> Decision | Rejection:
        """Choose a node, or give the reasons why none fits the pod.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        if not len(self.table):
            return Rejection.without_nodes(CycleState())
        signature = self.sign(pod)
        try:
            path, answer = self._find(pod, signature, record_plugin_metrics)
        except PluginFailedError as error:
            plan = signature.plan
            may_not_count = plan.unsigned.filters or plan.unsigned.pre_filters or self._nominated.of(pod.priority).pods
            if not may_not_count or error.plugin not in plan.signed.names:
                raise
            # Layers call the plugins that signed for nodes that an earlier, unsigned filter may have rejected, or one
            # that counts nominated pods; and before an unsigned PreFilter that rejects the pod. Whether the failure
            # counts is decided in the configured order.
            state = prepared(CycleState(), record_plugin_metrics)
            path, answer = Path.FULL_SCAN, self._chosen(self.request(pod, state))
        if self.observer is not None:
            self.observer(path)
        return answer

    def _find(
        self, pod: PodInfo, signature: Signature, record_plugin_metrics: bool
    ) -> tuple[Path, Decision | Rejection]:
        plan = signature.plan
        if pod.status.nominated_node_name:
            decision = self._on_nominated_node(pod, signature, record_plugin_metrics)
            if decision is not None:
                return Path.FULL_SCAN, decision
        layer = self._layer((signature, None), plan, None, pod)
        state = prepared(layer.state.clone() if layer is not None else CycleState(), record_plugin_metrics)
        nominated = self._nominated.of(pod.priority)
        skips = layer is not None and plan.all_skip(pod)
        path, key = self._path(pod, plan, (signature, None), layer, skips=skips, nominated=nominated)
        if skips:
            state.skip_filter = plan.skipping(state.skip_filter)
        used = self._used(path, key, plan, layer, pod, nominated)
        if layer is not None and used is not None:
            row = used.best(self._rng)
            if row is not None:
                if path is Path.INTERACTION:
                    state.adopt(used.state)  # the questions of plugins that did not sign, for Reserve
                state.skip_filter = plan.skipping(state.skip_filter)
                state.skip_score = plan.skipping(layer.state.skip_score)
                return path, Decision(self.table.info(row), state, len(self.table), used.feasible)
            known = _known(used) if skips else None
            if known is not None:
                return path, Rejection(len(self.table), known, state)
        outcome = PreFilterOutcome()
        if not skips and (layer is None or plan.unsigned.pre_filters):
            only = plan.unsigned.pre_filters if layer is not None else None
            outcome = self._framework.pre_filter(state, pod, self._snapshot.nodes(), only)
            if layer is None:
                self._layers.mark((signature, None), unusable=outcome.nodes is not None)

        def remembered() -> NominationFilter | None:
            if layer is None or not skips or self._percentage:
                return None
            above = self._layer((signature, pod.priority), plan, layer, pod, nominated)
            if above is None or not isinstance(above.share, NominationShare):
                return None
            above.share.nominations.catch_up(pod)
            return above.share.nominations

        request = ScanRequest(pod, state, outcome, nominated, plan, layer, remembered)
        answer = self._chosen(request)
        if skips and used is not None and isinstance(answer, Rejection):
            # For the next pod like this one, until a row is rejected for something else.
            used.rejection.learn(answer.diagnosis)
        return Path.FULL_SCAN, answer

    def _on_nominated_node(self, pod: PodInfo, signature: Signature, record_plugin_metrics: bool) -> Decision | None:
        """The node that the pod is nominated to, if it fits: found without evaluating again what changed elsewhere.

        None where a full scan has to find that out.
        """
        layer = self._layers.get((signature, None))
        if layer is None or not signature.plan.all_skip(pod):
            return None
        layer.follow(pod)
        state = prepared(layer.state.clone(), record_plugin_metrics)
        state.skip_filter |= signature.plan.unsigned.names
        nominated = self._nominated.of(pod.priority)
        node, status = self.scan.try_nominated_node(
            ScanRequest(pod, state, PreFilterOutcome(), nominated, signature.plan)
        )
        return Decision(node, state, 1, 1) if node is not None and status is None else None

    def _path(
        self, pod: PodInfo, plan: Plan, key: _Key, layer: Layer | None, *, skips: bool, nominated: NominatedPods
    ) -> tuple[Path, _Key]:
        """How an attempt finds its node, and the key of the layer; the table is in ``docs/decision-core.md``."""
        if layer is None or pod.status.nominated_node_name or pod.uid in nominated.row_of or self._percentage:
            return Path.FULL_SCAN, key
        if nominated.pods:
            return (Path.NOMINATIONS if skips else Path.FULL_SCAN), (key[0], pod.priority)
        if skips:
            return Path.SIGNATURE, key
        if plan.can_interact and layer.feasible > 1 and plan.follows(layer.filters):
            interaction_key = plan.interaction_key(pod)
            if interaction_key is not None:
                key = (key[0], interaction_key)
                return (Path.INTERACTION if self._layers.meet(key) else Path.FULL_SCAN), key
        return Path.FULL_SCAN, key

    def _used(
        self, path: Path, key: _Key, plan: Plan, layer: Layer | None, pod: PodInfo, nominated: NominatedPods
    ) -> Layer | None:
        """The layer that a path reads, up to date; ``layer`` is the signature layer. None for a full scan, or without one."""
        if layer is None or path is Path.FULL_SCAN:
            return None
        if path is Path.SIGNATURE:
            return layer
        return self._layer(key, plan, layer, pod, nominated if path is Path.NOMINATIONS else None)

    def _layer(
        self, key: _Key, plan: Plan, base: Layer | None, pod: PodInfo, nominated: NominatedPods | None = None
    ) -> Layer | None:
        """The layer of a key, up to date; None when the pod's answers cannot be remembered by row.

        ``nominated``: for a nomination layer, which has a base.
        """
        layer = self._layers.get(key)
        if layer is None and base is None and self._layers.is_met(key):
            return None  # PreFilter allowed the last such pod only some nodes
        if layer is None or layer.base is not base or layer.share.view is not nominated:
            share = plan.signed if base is None else plan.unsigned
            if base is not None and nominated is not None:
                filters = NominationFilter(self._framework, self._snapshot, nominated, base, plan.unsigned.names)
                share = NominationShare(filters)
            layer = Layer(self._framework, self.table, share, base)
            self._layers.put(key, layer)
        usable = False
        try:
            usable = layer.refresh(pod)
        finally:
            if not usable:
                self._layers.drop(key)  # perhaps half refreshed
        return layer if usable else None

    # -- full scans ------------------------------------------------------------------------------------

    def request(self, pod: PodInfo, state: CycleState, **how: Any) -> ScanRequest:
        """A full scan of the pod with nothing remembered, from PreFilter on; ``how`` as for the request.

        Raises:
            PluginFailedError: when a plugin fails; one that cannot sign the pod, too.
        """
        plan = self.sign(pod).plan
        outcome = self._framework.pre_filter(state, pod, self._snapshot.nodes())
        return ScanRequest(pod, state, outcome, self._nominated.of(pod.priority), plan=plan, **how)

    def choose(self, scores: Evaluation, state: CycleState) -> Decision:
        """One of the best nodes, each with the same chance."""
        rows, totals = scores.feasible, scores.totals
        best = pick_uniformly(self._rng, totals) if totals is not None else 0
        return Decision(self.table.info(int(rows[best])), state, len(rows) + len(scores.statuses), len(rows))

    def _chosen(self, request: ScanRequest) -> Decision | Rejection:
        found = self.scan.evaluate(request)
        return found if isinstance(found, Rejection) else self.choose(found, request.state)

    def evaluate(self, state: CycleState, pod: PodInfo) -> Evaluation | Rejection:
        """Scan all nodes, with nothing cached, and score all that fit, even a single one.

        For conformance, explain and tests; nothing is chosen. When a single node is feasible and scoring it
        fails, which a scheduler would never notice, there are no scores.

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
    """Why a signature or nomination layer rejects every row, where that is remembered."""
    share = layer.share
    if layer.feasible:
        return None
    return layer.rejection.current(share.nominations.why if isinstance(share, NominationShare) else layer.why)


def prepared(state: CycleState, record_plugin_metrics: bool) -> CycleState:
    """The state of an attempt with what every attempt has."""
    state.record_plugin_metrics = record_plugin_metrics
    state.write(PODS_TO_ACTIVATE, PodsToActivate())
    return state
