"""VolumeBinding: a pod goes where its volumes are, or where volumes for its claims can be found or made.

PreFilter, Filter, PreScore, Score, Reserve, PreBind (rules/volumes §2). The parts: :mod:`.demand` (demands of the
claims), :mod:`.placement` (nodes that satisfy them), :mod:`.reservations` and :mod:`.volume_binder` (carrying them
out), :mod:`.volume_cache` (claims and volumes in their assumed versions).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Self

import numpy as np

from ...config.args import VolumeBindingArgs
from ...config.errors import ArgsTypeError
from ...framework.asking import is_prepared, question_key
from ...framework.cycle_state import CycleState
from ...framework.demand import Demand
from ...framework.events import ClusterEventWithHint
from ...framework.interface import Handle, Plugin, PreBindPreFlight
from ...framework.question import IntArray, Question, Reads, RowArray, VerdictArray
from ...framework.status import Status
from ...nodes.nodeinfo import NodeInfo
from ...nodes.podinfo import PodInfo
from ..assume_cache import AssumeError
from .binding_hints import EVENTS
from .claims import Storage
from .demand import NO_DEMAND, Rejected, VolumeDemand, demand_of
from .placement import REASONS, PlacementError, Placements, place, place_bound
from .reservations import NodeVolumes, Reservation, volumes_of
from .storage_score import StorageScorer
from .volume_binder import BindError, VolumeBinder
from .volume_demands import bound_volumes
from .volume_state import VolumeState

if TYPE_CHECKING:
    from ...nodes import NodeList, NodeTable

__all__ = ["VolumeBinding"]

#: Key of the pod's reservation in the cycle state.
_RESERVED: Final = "ReserveVolumeBinding"


class _Claims(Question):
    """Question about the demands of a pod's claims on a node.

    The key is the content of all objects that the claims refer to.

    A pod with a claim that is to be bound to one of several free volumes has no key, so its answers are not kept.
    """

    reads = Reads.NODE
    by_spec = True  # a question that depends on present claims sets False
    throughout = True
    stands_alone = frozenset({"score"})

    def __init__(
        self, plugin: VolumeBinding, nodes: NodeTable, demand: VolumeDemand, rejected: Rejected | None
    ) -> None:
        """``demand`` is empty when the pod is ``rejected``."""
        self.by_spec = False
        self.demand, self.rejected = demand, rejected
        self._plugin, self._nodes = plugin, nodes
        self._cache, self._pools = plugin.state.cache, plugin.state.pools
        #: True if PreFilter has run, and has not rejected the pod.
        self.is_prepared = False
        self.key = self._key() if rejected is None else None

    def _key(self) -> Hashable | None:
        demand = self.demand
        parts: list[Hashable] = []
        for facts in demand.bound:
            if facts is not None and not self._cache.affinities.is_shared(facts.reach):
                return None
            parts.append(None if facts is None else (facts.reach, facts.plugin, facts.migrated_reach, facts.problem))
        for claim in demand.delayed:
            if self._cache.reserved.get(claim.claim.key) or self._plugin.state.has_free_volume(claim.claim):
                return None
            size = claim.size.nanos if len(demand.delayed) > 1 else 0
            parts.append((size, claim.signature(self._cache)))
        return tuple(parts)

    def check_prepared(self) -> None:
        """Check that PreFilter has run.

        Raises:
            KeyError: when it has not.
        """
        if not self.is_prepared:
            raise KeyError("not found")

    def place(self, rows: RowArray) -> Placements:
        """Place the pod's claims on the nodes of these rows.

        Raises:
            PlacementError: when a node cannot be evaluated.
        """
        return place(self.demand, self._nodes, rows, self._cache, self._pools)

    def chosen(self, found: Placements) -> NodeVolumes:
        """Return the volumes that the pod would get on the node of the first row."""
        return volumes_of(found, 0, self._cache, self._pools)

    def follow(self, kept: Self) -> Question:
        # The claims of an earlier pod may be gone, or have volumes now.
        self.is_prepared = kept.is_prepared
        return self

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, nodes: NodeList) -> Status | None:
        if self.rejected is not None:
            return self.rejected.status
        self.is_prepared = True
        return Status.skip() if self.demand is NO_DEMAND else None

    def verdicts(self, rows: RowArray) -> VerdictArray:
        self.check_prepared()
        try:
            return self.place(rows).verdicts
        except PlacementError:
            self._plugin.count_error("predicate")
            raise

    def verdict(self, node: NodeInfo) -> int:
        self.check_prepared()
        demand = self.demand
        if demand.delayed:
            return int(self.verdicts(np.array([node.row], np.intp))[0])
        try:
            return place_bound(demand.bound, node.name, node.labels, self._cache)
        except PlacementError:
            self._plugin.count_error("predicate")
            raise

    def why(self, verdict: int) -> Status:
        return Status.unresolvable(*(reason for bit, reason in REASONS.items() if verdict & bit))

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, nodes: NodeList) -> Status | None:
        if self._plugin.scorer is None:
            return Status.skip()
        self.check_prepared()
        return None

    def scores(self, rows: RowArray) -> IntArray:
        scorer = self._plugin.scorer
        if scorer is None:
            return np.zeros(len(rows), np.int64)
        self.check_prepared()
        return scorer.scores(self.place(rows), self._cache, self._pools)


def _has_claims(pod: PodInfo) -> bool:
    return bool(pod.storage) and any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in pod.storage
    )


class VolumeBinding(Plugin):
    """Binding and reservation of a pod's claims. Its question is :class:`_Claims`."""

    name = "VolumeBinding"
    asks = _Claims
    informs: ClassVar[tuple[str, ...]] = Storage.INFORMS

    def __init__(self, args: VolumeBindingArgs | None, handle: Handle) -> None:
        """Share the state with other profiles.

        Raises:
            ArgsTypeError: when the arguments are those of another plugin.
        """
        super().__init__(args, handle)
        args = args if args is not None else VolumeBindingArgs()
        if not isinstance(args, VolumeBindingArgs):
            raise ArgsTypeError(VolumeBindingArgs, args)
        self._storage = Storage(handle)
        self.state: VolumeState = VolumeState.of(handle)
        self._binder = VolumeBinder(self.state.cache, handle, float(args.bind_timeout_seconds))
        self.scorer = StorageScorer(args.shape) if handle.gate("StorageCapacityScoring") and args.shape else None

    def ask(self, pod: PodInfo, nodes: NodeTable) -> _Claims | None:
        if is_prepared(self) and self.scorer is None and not _has_claims(pod):
            return None
        return self.question(pod, nodes)

    def question(self, pod: PodInfo, nodes: NodeTable) -> _Claims:
        """Make the question from the current demands of the pod's claims."""
        demand, problem = NO_DEMAND, None
        try:
            demand = demand_of(pod, self._storage, self.state.cache) or NO_DEMAND
        except Rejected as rejected:
            problem = rejected
        return _Claims(self, nodes, demand, problem)

    def volumes_on(self, state: CycleState, pod: PodInfo, nodes: NodeTable, row: int) -> NodeVolumes:
        """Return the volumes that the pod would get on a node that fits it; none if PreFilter did not run."""
        question: _Claims | None = state.get(question_key(self.name))
        if question is None or not question.is_prepared:
            return NodeVolumes()
        return question.chosen(question.place(np.array([row], np.intp)))

    # -- reserve ---------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        question = self._prepared(state)
        if question is None or not question.demand.delayed:
            return None  # nothing to reserve: claims that were bound when the pod was evaluated are still bound
        nodes = self.handle.snapshot.table
        latest = self.question(pod, nodes)
        if latest.rejected is not None:
            return Status.from_error(latest.rejected)
        if not latest.demand.delayed:
            return None
        row = nodes.row_of(node_name)
        if row is None:
            return Status.from_error(f'node "{node_name}" not found')
        reservation = Reservation(pod, node_name)
        try:
            found = latest.place(np.array([row], np.intp))
            if verdict := int(found.verdicts[0]):
                # While extenders were awaited, a shared claim was assumed for another pod on that pod's node.
                raise PlacementError(latest.why(verdict).message())
            reservation.make(latest.chosen(found), self.state.cache)
        except (AssumeError, PlacementError) as error:
            self.count_error("assume")
            return Status.from_error(error)
        self.state.reservations[pod.uid] = reservation
        state.write(_RESERVED, reservation)
        return None

    def _prepared(self, state: CycleState) -> _Claims | None:
        """Return the question of the attempt; None for a pod without claims.

        Raises:
            KeyError: when PreFilter has not run.
        """
        question = state.get(question_key(self.name))
        if isinstance(question, _Claims):
            question.check_prepared()
            return question
        if not is_prepared(self):
            raise KeyError("not found")
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        reservation: Reservation | None = state.get(_RESERVED)
        if reservation is not None:
            reservation.undo(self.state.cache)
            self.state.reservations.pop(pod.uid, None)

    # -- pre bind --------------------------------------------------------------------------------------

    def pre_bind_pre_flight(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | tuple[PreBindPreFlight | None, Status | None]:
        self._prepared(state)
        if state.get(_RESERVED) is None:
            return Status.skip()
        return PreBindPreFlight(allow_parallel=True), None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        reservation: Reservation | None = state.get(_RESERVED)
        if reservation is None:
            return None
        try:
            await self._binder.bind(reservation)
        except BindError as error:
            self.count_error("bind")
            return Status.from_error(f"binding volumes: {error}")
        self.state.reservations.pop(pod.uid, None)
        return None

    def count_error(self, stage: str) -> None:
        self.handle.framework.metrics.volume_scheduling_stage_error_total.labels(stage).inc()

    # -- queue -----------------------------------------------------------------------------------------

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return bound_volumes(pod, self._storage)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return EVENTS
