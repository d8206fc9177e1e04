"""DynamicResources: pods get the devices that their ResourceClaims ask for.

(PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind)

A claim is allocated when the first pod that uses it is scheduled: Filter has the allocator say on which nodes all
unallocated claims of the pod can be allocated together, Reserve allocates them on the chosen node and holds the result in
flight, PreBind writes it. What all profiles share is in :mod:`.manager`.

Source: spec "DynamicResources plugin and structured device allocator" sections 5 and 11.
"""

from __future__ import annotations

from collections.abc import Awaitable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
import numpy as np

from kubesched.api.resource import (
    CLAIM_FINALIZER,
    AllocationResult,
    ResourceClaim,
)
from kubesched.config.args import DynamicResourcesArgs
from kubesched.dra.interface import Verdict
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ClusterEventWithHint
from kubesched.framework.interface import (
    Explanation,
    Handle,
    IntArray,
    NodeToStatus,
    Normalize,
    Plugin,
    PostFilterResult,
    PreBindPreFlight,
    Reads,
    RowArray,
    VerdictArray,
)
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

from .. import names
from .attempt import Attempt, PodClaim
from .binding import Binding
from .claims import can_be_released_by, resolve_claims, with_status
from .conditions import BindingFailedError, is_ready, is_timed_out
from .explain import explain_plan
from .extended_resources import is_in_memory
from .hints import ClaimHints
from .manager import DeviceManager
from .preparation import Preparation
from .scores import preference

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable
    from kubesched.cache.columns import BoolArray

__all__ = ["DynamicResources"]

#: Verdicts: why a node is rejected.
_CANNOT_ALLOCATE: Final = 1
_UNAVAILABLE: Final = 2
_INVALID_POOLS: Final = 3
_LEFTOVER: Final = 4
_CANNOT_FIT: Final = 5
_TEXTS: Final = {
    _CANNOT_ALLOCATE: "cannot allocate all claims",
    _UNAVAILABLE: "resourceclaim not available on the node",
    _INVALID_POOLS: "invalid resource pools were encountered",
    _LEFTOVER: "cannot schedule extended resource claim",
    _CANNOT_FIT: "cannot fit resource",
}
#: By the allocator's verdict; for an error the allocator raises.
_OF_ALLOCATOR: Final = np.array([0, _CANNOT_ALLOCATE, _INVALID_POOLS, 0], np.uint64)

#: The positions of some rows, and the extended resources that devices serve there.
_Kind = tuple[RowArray | slice, frozenset[str]]
_NO_CLAIMS: Final = Status.unschedulable("no new claims to deallocate")
_NO_ROWS: Final = np.zeros(0, np.intp)
#: Under this key the state of a layer has the follower of changed devices.
_FOLLOWER: Final = f"Changes{names.DYNAMIC_RESOURCES}"
_Answer = tuple[PostFilterResult | None, Status | None]


class DynamicResources(Plugin):
    """See the module. The state of an attempt is an :class:`~.attempt.Attempt`."""

    name = names.DYNAMIC_RESOURCES
    #: Devices are no matter of a node's pods: pods that have any are not signed, and so not cached by node.
    reads: ClassVar[Reads] = Reads.NODE
    may_fail: ClassVar[bool] = True
    normalize = Normalize.FORWARD

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else DynamicResourcesArgs()
        self._manager = DeviceManager.of(handle)
        self._features = self._manager.features
        self._preparation = Preparation(handle, self._manager)
        self._allocator = self._manager.allocator(
            args.filter_timeout.seconds if args.filter_timeout is not None else 0.0
        )
        self._binding_timeout = args.binding_timeout.seconds if args.binding_timeout is not None else 0.0
        self._hints = ClaimHints(self._manager.claims)
        self._binding = Binding(handle, self._manager, self._binding_timeout)
        #: What :meth:`interaction_key` found out, for a layer and for Reserve in the same attempt.
        self._for_layer: Attempt | None = None
        #: The same for PreFilter, which follows at once where there is no layer.
        self._begun: tuple[PodInfo, Attempt, Status | None] | None = None

    # -- queue -----------------------------------------------------------------------------------------

    def concerns(self, pod: PodInfo) -> bool:
        return pod.has_device_requests

    def sign(self, pod: PodInfo) -> Hashable | None:
        return None if pod.spec.resource_claims or self._preparation.is_served(pod) else ()

    def signs_until(self) -> Hashable | None:
        classes = self._manager.classes
        return None if classes.serves_any else classes.version

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        try:
            resolve_claims(pod.pod, self._manager.claims.get)
        except LookupError as error:
            return Status.unresolvable(str(error))
        return None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return self._hints.events()

    # -- PreFilter -------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        begun, self._begun = self._begun, None
        attempt, problem = begun[1:] if begun is not None and begun[0] is pod else self._preparation.begin(pod)
        state.write(self.name, attempt)
        if problem is None and not attempt.claims:
            return Status.skip()
        return problem

    # -- layers ----------------------------------------------------------------------------------------

    def interaction_key(self, pod: PodInfo) -> Hashable | None:
        """Pods whose claims ask for the same, none of them allocated, get equal verdicts from equal states of devices."""
        self._for_layer = self._begun = None
        attempt, problem = self._preparation.begin(pod)
        self._begun = pod, attempt, problem
        if problem is not None or attempt.is_leftover or any(each.is_allocated for each in attempt.claims):
            return None
        served = attempt.served()
        chosen = attempt.plan_for(served, self._allocator)
        if chosen.plan is None or self._allocator.uses_common_pools(chosen.plan):
            return None  # with common pools every allocation may change the verdict on every node
        self._for_layer, self._begun = attempt, None
        number = chosen.plan.remembered.number
        if chosen.special is None or self._have_no_plugin(attempt):
            return number
        return number, tuple(attempt.resources.items()), chosen.special.mappings

    def _have_no_plugin(self, attempt: Attempt) -> bool:
        """Whether devices serve all of the pod's extended resources on every node."""
        nodes = self.handle.snapshot.table
        columns = [nodes.column(name) for name in attempt.resources]
        return all(attempt.resources.values()) and not any(
            index is not None and nodes.allocatable[index].any() for index in columns
        )

    def refresh_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> RowArray | None:
        attempt = self._for_layer
        if state.get(self.name) is None or attempt is None:
            return None
        plan = attempt.plan_for(attempt.served(), self._allocator).plan
        attempt.filtered = True
        state.write(self.name, attempt)
        follower = state.get(_FOLLOWER)
        return None if follower is None else self._allocator.changed(nodes, follower, plan)

    def refresh_scores(self, state: CycleState, pod: PodInfo, nodes: NodeTable, same: bool) -> RowArray | None:
        return _NO_ROWS  # a score changes with the devices, and then the verdict is evaluated again, too

    @cached_property
    def _is_prepared(self) -> bool:
        """Whether the profile has the plugin at PreFilter; whatever comes later fails for every pod otherwise."""
        return any(name == self.name for name, _ in self.handle.framework.points["preFilter"])

    def _read(self, state: CycleState) -> Attempt | None:
        """What PreFilter wrote; None after a layer found the node.

        Raises:
            KeyError: ``not found``; the profile has the plugin without its PreFilter.
        """
        return state.get(self.name) if self._is_prepared else state.read(self.name)

    def _attempt(self, state: CycleState, pod: PodInfo) -> Attempt | None:
        """What the attempt knows of its claims; one whose node a layer found has no PreFilter of its own."""
        attempt = self._read(state)
        if attempt is None and self._for_layer is not None and self._for_layer.pod.uid == pod.uid:
            attempt, self._for_layer = self._for_layer, None
            attempt.filtered = True
            state.write(self.name, attempt)
        return attempt

    # -- Filter ----------------------------------------------------------------------------------------

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        verdicts = np.zeros(len(rows), np.uint64)
        attempt = self._read(state)
        if attempt is None or not attempt.claims or not len(rows):
            return verdicts
        attempt.filtered = True
        if attempt.is_leftover:
            verdicts[:] = _LEFTOVER
            return verdicts
        if state.get(_FOLLOWER) is None:
            state.write(_FOLLOWER, self._allocator.follower(nodes))
        if attempt.special is None:
            verdicts = self._allocatable(attempt, nodes, rows)
        else:
            # Nothing is allocated where a resource cannot be had: neither does it take time there, nor can it fail.
            verdicts[self._cannot_fit(attempt, nodes, rows)] = _CANNOT_FIT
            open_ = np.flatnonzero(verdicts == 0)
            verdicts[open_] = self._allocatable(attempt, nodes, rows[open_])
        fits = verdicts == 0
        for place, each in enumerate(attempt.claims):
            lacking = self._unavailable(each, nodes, rows)
            if lacking is not None and (lacking & fits).any():
                attempt.unavailable.add(place)
                verdicts[lacking & fits] = _UNAVAILABLE
        return verdicts

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        attempt = self._read(state)
        if attempt is None or not attempt.only_allocates:
            return int(self.filter_rows(state, pod, nodes, np.array([node.row], np.intp))[0])
        attempt.filtered = True
        plan = attempt.plan_for(attempt.served_on(node), self._allocator).plan
        if plan is not None:
            verdict = self._allocator.verdict(plan, nodes, node.row)
            if verdict is Verdict.ERROR:
                self._allocator.allocate(plan, node)
            if verdict is not Verdict.FITS:
                return int(_OF_ALLOCATOR[verdict])
        return 0

    def _kinds(self, attempt: Attempt, nodes: NodeTable, rows: RowArray) -> list[_Kind]:
        """The rows by which of the pod's extended resources devices serve there: those without a device plugin."""
        served = sorted(attempt.served())
        if not served:
            return [(slice(None), frozenset())]
        code = np.zeros(len(rows), np.int64)
        for bit, name in enumerate(served):
            index = nodes.column(name)
            code |= (1 if index is None else (nodes.allocatable[index, rows] == 0).astype(np.int64)) << bit
        if not len(code):
            return []
        if not (code != code[0]).any():
            return [(slice(None), frozenset(name for bit, name in enumerate(served) if int(code[0]) >> bit & 1))]
        return [
            (np.flatnonzero(code == value), frozenset(name for bit, name in enumerate(served) if value >> bit & 1))
            for value in np.unique(code).tolist()
        ]

    def _cannot_fit(self, attempt: Attempt, nodes: NodeTable, rows: RowArray) -> RowArray:
        """The positions of rows that neither a class nor a device plugin serves one of the resources on."""
        found = np.zeros(len(rows), np.bool_)
        for name, class_name in attempt.resources.items():
            if not class_name:
                infos = map(nodes.info, rows.tolist())
                found |= np.array([name not in info.allocatable.scalars for info in infos], np.bool_)
        return np.flatnonzero(found)

    def _allocatable(self, attempt: Attempt, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        """Verdicts of the allocator.

        Raises:
            DeviceAllocationFailure: for a claim, class or slice that cannot be used, or a search that took too long.
        """
        verdicts = np.zeros(len(rows), np.uint64)
        for positions, served in self._kinds(attempt, nodes, rows):
            plan = attempt.plan_for(served, self._allocator).plan
            if plan is None:
                continue
            here = rows[positions]
            found = self._allocator.verdicts(plan, nodes, here)
            if not found.any():
                continue
            if (found == Verdict.ERROR).any():
                self._allocator.allocate(plan, nodes.info(int(here[np.argmax(found == Verdict.ERROR)])))
            verdicts[positions] = _OF_ALLOCATOR[found]
        return verdicts

    def _unavailable(self, each: PodClaim, nodes: NodeTable, rows: RowArray) -> BoolArray | None:
        """bool[len(rows)]: where the devices of an allocated claim are not available; None: they are everywhere."""
        if not each.is_allocated:
            return None
        if self._features.device_binding_and_status:
            try:
                now = self.handle.clock.now()
                if not is_ready(each.claim) and is_timed_out(each.claim, self._binding_timeout, now):
                    return np.ones(len(rows), np.bool_)
            except BindingFailedError:
                return np.ones(len(rows), np.bool_)
        return None if each.selector is None else ~nodes.matches_selector(each.selector, rows)

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return Status.unresolvable(_TEXTS[verdict])

    # -- PostFilter ------------------------------------------------------------------------------------

    def post_filter(self, state: CycleState, pod: PodInfo, statuses: NodeToStatus) -> _Answer | Awaitable[_Answer]:
        """Deallocate a claim that is allocated where the pod cannot run."""
        attempt: Attempt | None = state.get(self.name)
        if attempt is None and not (self._is_prepared and self._was_reached(state)):
            return None, Status.from_error("not found")
        if attempt is None or not attempt.claims:
            return None, _NO_CLAIMS
        places = sorted(attempt.unavailable)
        for place in self.handle.random.sample(places, len(places)):
            each = attempt.claims[place]
            if each.is_special:
                if not is_in_memory(each.claim):
                    break
            elif can_be_released_by(each.claim, pod.pod):
                return self._binding.deallocate(each.claim)
        special = attempt.special
        if special is not None and not is_in_memory(special.claim):
            return self._binding.delete_leftover(special.claim, pod.pod)
        return None, Status.unschedulable("still not schedulable")

    def _was_reached(self, state: CycleState) -> bool:
        """Whether no plugin before this one ended PreFilter: upstream's PostFilter then has no state, and fails."""
        order = [name for name, _ in self.handle.framework.points["preFilter"]]
        ended_by = state.pre_filter_ended_by
        return ended_by not in order or order.index(ended_by) >= order.index(self.name)

    # -- Score -----------------------------------------------------------------------------------------

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        scores = np.zeros(len(rows), np.int64)
        if not self._features.prioritized_list:
            return scores
        attempt = self._read(state)
        if attempt is None or not attempt.filtered or not attempt.allocates:
            return scores
        scores += sum(
            preference(each.claim, each.claim.status.allocation)
            for each in attempt.claims
            if each.claim.status.allocation is not None
        )
        if attempt.has_preferences:
            for positions, served in self._kinds(attempt, nodes, rows):
                plan = attempt.plan_for(served, self._allocator).plan
                if plan is not None:
                    scores[positions] += self._allocator.preferences(plan, nodes, rows[positions])
        return scores

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        attempt: Attempt | None = state.get(self.name)
        if attempt is not None and attempt.only_allocates and not attempt.has_preferences:
            return 0
        return int(self.score_rows(state, pod, nodes, np.array([node.row], np.intp))[0])

    # -- Reserve ---------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        attempt = self._attempt(state, pod)
        if attempt is None and pod.spec.resource_claims:
            return Status.from_error("not found")
        unallocated = list(attempt.unallocated()) if attempt is not None else []
        if attempt is None or not unallocated:
            return None
        table = self.handle.snapshot.table
        node = table.get(node_name)
        if not attempt.filtered or node is None:
            if all(each.is_special for each in unallocated):
                return None
            return Status.from_error("claim allocation not found for node")
        chosen = attempt.plan_for(attempt.served_on(node), self._allocator)
        if chosen.plan is None:
            return None  # a device plugin serves the extended resources
        results = self._allocator.allocate(chosen.plan, node)
        if results is None:
            return Status.from_error("claim allocation not found for node")
        for each, result in zip(unallocated, results, strict=False):
            if each.is_special and chosen.special is not None:
                each.claim = chosen.special.claim
                attempt.mappings = chosen.special.mappings
            each.pending = result
            claim = with_status(each.claim, allocation=result)
            if CLAIM_FINALIZER not in claim.metadata.finalizers:
                metadata = msgspec.structs.replace(
                    claim.metadata, finalizers=(*claim.metadata.finalizers, CLAIM_FINALIZER)
                )
                claim = msgspec.structs.replace(claim, metadata=metadata)
            self._manager.in_flight.signal(each.initial_uid, claim)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        attempt: Attempt | None = state.get(self.name)
        if attempt is not None and attempt.claims:
            self._binding.undo(attempt)

    # -- PreBind ---------------------------------------------------------------------------------------

    def pre_bind_pre_flight(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | tuple[PreBindPreFlight | None, Status | None] | None:
        attempt = self._read(state)
        if attempt is None or not attempt.claims:
            return Status.skip()
        return PreBindPreFlight(allow_parallel=True), None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        attempt: Attempt | None = state.get(self.name)
        if attempt is None or not attempt.claims:
            return None
        return await self._binding.bind(attempt, pod.pod, node_name)

    # -- for conformance and reports -------------------------------------------------------------------

    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> Sequence[Explanation]:
        attempt: Attempt | None = state.get(self.name)
        if attempt is None or not attempt.filtered:
            return []
        found: list[Explanation] = []
        for positions, served in self._kinds(attempt, nodes, rows):
            plan = attempt.plan_for(served, self._allocator).plan
            if plan is not None:
                found += explain_plan(plan, self._allocator, [nodes.info(row) for row in rows[positions].tolist()])
        for place in sorted(attempt.unavailable):
            claim = attempt.claims[place].claim
            text = f"claim {claim.key} is allocated already, and its devices are not available on these nodes"
            found.append(Explanation(text, {"claim": claim.key}))
        return found

    def list_devices(
        self, state: CycleState, nodes: NodeTable, row: int
    ) -> list[tuple[ResourceClaim, AllocationResult]]:
        """The claims that would be allocated on a node that passed Filter, with the devices."""
        attempt: Attempt | None = state.get(self.name)
        if attempt is None or not attempt.filtered:
            return []
        plan = attempt.plan_for(attempt.served_on(nodes.info(row)), self._allocator).plan
        results = self._allocator.allocate(plan, nodes.info(row)) if plan is not None else None
        if plan is None or results is None:
            return []
        return list(zip(plan.claims, results, strict=True))
