"""VolumeBinding: a pod goes where its volumes are, or where volumes for its claims can be found or made.

PreFilter, Filter, PreScore, Score, Reserve, PreBind (spec "Volume plugins" section 2). The parts: :mod:`.demand` (what the
claims demand), :mod:`.placement` (which nodes satisfy that), :mod:`.reservations` and :mod:`.volume_binder` (carrying it out),
:mod:`.volume_cache` (claims and volumes, with what is assumed of them).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from kubesched.config.args import VolumeBindingArgs
from kubesched.config.errors import ArgsTypeError
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ClusterEventWithHint
from kubesched.framework.interface import (
    Handle,
    IntArray,
    Plugin,
    PreBindPreFlight,
    Reads,
    RowArray,
    VerdictArray,
)
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

from .. import names
from ..assume_cache import AssumeError
from .binding_hints import EVENTS
from .claims import Storage
from .demand import NO_DEMAND, Demand, Rejected, demand_of
from .placement import REASONS, PlacementError, Placements, place, place_bound
from .reservations import NodeVolumes, Reservation, volumes_of
from .storage_score import StorageScorer
from .volume_binder import BindError, VolumeBinder
from .volume_state import VolumeState

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["VolumeBinding"]

#: In the cycle state: what was reserved.
_RESERVED: Final = f"Reserve{names.VOLUME_BINDING}"


class VolumeBinding(Plugin):
    """Pods whose volumes decide alike about nodes share a signature: the content of what their claims refer to.

    A claim that is to be bound to one of several free volumes has none. It is evaluated for all nodes at once.
    """

    name = names.VOLUME_BINDING
    reads: ClassVar[Reads] = Reads.NODE
    informs: ClassVar[tuple[str, ...]] = Storage.INFORMS

    def __init__(self, args: VolumeBindingArgs | None, handle: Handle) -> None:
        """Raises:

        ArgsTypeError: when the arguments are those of another plugin.
        """
        super().__init__(args, handle)
        args = args if args is not None else VolumeBindingArgs()
        if not isinstance(args, VolumeBindingArgs):
            raise ArgsTypeError(VolumeBindingArgs, args)
        self._storage = Storage(handle)
        self._state: VolumeState = VolumeState.of(handle)
        self._binder = VolumeBinder(self._state.cache, handle, float(args.bind_timeout_seconds))
        self._scorer = StorageScorer(args.shape) if handle.gate("StorageCapacityScoring") and args.shape else None
        #: What the claims of the current pod demand.
        self._current: tuple[PodInfo, Demand] | None = None

    def concerns(self, pod: PodInfo) -> bool:
        return bool(pod.storage) and any(
            volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in pod.storage
        )

    def sign(self, pod: PodInfo) -> Hashable | None:
        try:
            demand = self._read(pod)
        except Rejected:
            return None
        cache = self._state.cache
        parts: list[Hashable] = []
        for facts in demand.bound:
            if facts is not None and not cache.affinities.is_shared(facts.reach):
                return None
            parts.append(None if facts is None else (facts.reach, facts.plugin, facts.migrated_reach, facts.problem))
        for claim in demand.delayed:
            if cache.reserved.get(claim.claim.key) or self._state.has_free_volume(claim.claim):
                return None
            size = claim.size.nanos if len(demand.delayed) > 1 else 0
            parts.append((size, claim.signature(cache)))
        return tuple(parts)

    def _read(self, pod: PodInfo) -> Demand:
        """What the pod's claims demand, as they are now.

        Raises:
            Rejected: when they keep the pod from being scheduled.
        """
        self._current = None
        demand = demand_of(pod, self._storage, self._state.cache) or NO_DEMAND
        self._current = pod, demand
        return demand

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> frozenset[str] | Status | None:
        try:
            demand = self._read(pod)
        except Rejected as rejected:
            return rejected.status
        state.write(self.name, demand)
        return Status.skip() if demand is NO_DEMAND else None

    def _demand(self, state: CycleState, pod: PodInfo) -> Demand:
        """What the claims of this pod demand. The state may be that of an earlier pod with an equal signature.

        Raises:
            KeyError: when PreFilter has not run.
        """
        written: Demand = state.read(self.name)
        current = self._current
        if current is not None and current[0] is pod:
            return current[1]
        return written

    def _place(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> Placements:
        return place(self._demand(state, pod), nodes, rows, self._state.cache, self._state.pools)

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        try:
            return self._place(state, pod, nodes, rows).verdicts
        except PlacementError:
            self._count_error("predicate")
            raise

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        demand = self._demand(state, pod)
        if demand.delayed:
            return int(self.filter_rows(state, pod, nodes, np.array([node.row], np.intp))[0])
        try:
            return place_bound(demand.bound, node.name, node.labels, self._state.cache)
        except PlacementError:
            self._count_error("predicate")
            raise

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return Status.unresolvable(*(reason for bit, reason in REASONS.items() if verdict & bit))

    def volumes_on(self, state: CycleState, pod: PodInfo, nodes: NodeTable, row: int) -> NodeVolumes:
        """What the pod would get on a node that fits it; nothing in a profile without the plugin's PreFilter."""
        if state.get(self.name) is None:
            return NodeVolumes()
        found = self._place(state, pod, nodes, np.array([row], np.intp))
        return volumes_of(found, 0, self._state.cache, self._state.pools)

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        if self._scorer is None:
            return Status.skip()
        state.read(self.name)
        return None

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        if self._scorer is None:
            return np.zeros(len(rows), np.int64)
        return self._scorer.scores(self._place(state, pod, nodes, rows), self._state.cache, self._state.pools)

    # -- reserve ---------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        state.read(self.name)
        current = self._current
        if current is not None and current[0].uid == pod.uid and not current[1].delayed:
            return None  # all claims were bound when the pod was evaluated, and still are
        try:
            demand = self._read(pod)
        except Rejected as rejected:
            return Status.from_error(rejected)
        if not demand.delayed:
            return None
        nodes = self.handle.snapshot.table
        row = nodes.row_of(node_name)
        if row is None:
            return Status.from_error(f'node "{node_name}" not found')
        reservation = Reservation(pod, node_name)
        try:
            found = self._place(state, pod, nodes, np.array([row], np.intp))
            if verdict := int(found.verdicts[0]):
                # Extenders were awaited, and meanwhile another pod had a shared claim assumed on its node.
                raise PlacementError(self.verdict_status(state, pod, verdict).message())
            reservation.make(volumes_of(found, 0, self._state.cache, self._state.pools), self._state.cache)
        except (AssumeError, PlacementError) as error:
            self._count_error("assume")
            return Status.from_error(error)
        self._state.reservations[pod.uid] = reservation
        state.write(_RESERVED, reservation)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        reservation: Reservation | None = state.get(_RESERVED)
        if reservation is not None:
            reservation.undo(self._state.cache)
            self._state.reservations.pop(pod.uid, None)

    # -- pre bind --------------------------------------------------------------------------------------

    def pre_bind_pre_flight(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | tuple[PreBindPreFlight | None, Status | None]:
        state.read(self.name)
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
            self._count_error("bind")
            return Status.from_error(f"binding volumes: {error}")
        self._state.reservations.pop(pod.uid, None)
        return None

    def _count_error(self, stage: str) -> None:
        self.handle.framework.metrics.volume_scheduling_stage_error_total.labels(stage).inc()

    # -- queue -----------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return EVENTS
