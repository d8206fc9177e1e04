"""DynamicResources: pods get the devices that their ResourceClaims ask for.

(PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind)

A claim is allocated when the first pod that uses it is scheduled. Filter asks the allocator on which nodes all
unallocated claims of the pod can be allocated together. Reserve allocates them on the chosen node and holds the result
in flight. PreBind writes it. All profiles share the state in :mod:`.manager`.

Source: rules/devices §5 and §11.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from kubesched.api.resource import CLAIM_FINALIZER, AllocationResult, ResourceClaim
from kubesched.base.change_log import Follower

from ...config.args import DynamicResourcesArgs
from ...dra.allocator import ClaimDemand
from ...dra.interface import Verdict
from ...framework.asking import is_prepared, question_key
from ...framework.cycle_state import CycleState
from ...framework.demand import Demand
from ...framework.events import ClusterEventWithHint
from ...framework.interface import Handle, NodeToStatus, Plugin, PostFilterResult, PreBindPreFlight
from ...framework.question import IntArray, Normalize, Question, Reads, RowArray, VerdictArray
from ...framework.status import Status
from ...nodes.nodeinfo import NodeInfo
from ...nodes.podinfo import PodInfo
from .binding import DEALLOCATED, DELETED, UNRESERVED, Binding
from .claim_hints import ClaimHints
from .claim_state import ClaimState, NodeDemand, PodClaim
from .claims import can_be_released_by, resolve_claims, with_status
from .conditions import BindingFailedError, is_ready, is_timed_out
from .device_demands import device_demands
from .extended_resources import is_in_memory
from .manager import DeviceManager
from .preparation import Preparation
from .scores import preference

if TYPE_CHECKING:
    from ...nodes import NodeList, NodeTable
    from ...nodes.columns import BoolArray

__all__ = ["DynamicResources"]

#: Verdicts: reasons why a node is rejected.
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
#: Verdicts by the allocator's :class:`Verdict`; for ERROR the allocator raises instead.
_OF_ALLOCATOR: Final = np.array([0, _CANNOT_ALLOCATE, _INVALID_POOLS, 0], np.uint64)

_NO_CLAIMS: Final = Status.unschedulable("no new claims to deallocate")
_Answer = tuple[PostFilterResult | None, Status | None]


class _Devices(Question):
    """Question about the devices that a pod asks for, by claims or as extended resources.

    ``attempt`` holds the state of the pod's claims.
    """

    #: Verdicts about devices do not depend on the pods on a node.
    reads = Reads.NODE
    by_spec = True  # a question that depends on present claims or devices sets False
    may_fail = throughout = True
    normalize = Normalize.FORWARD

    def __init__(self, plugin: DynamicResources, pod: PodInfo, nodes: NodeTable) -> None:
        self._plugin = plugin
        self._pod = pod
        self._nodes = nodes
        self._allocator = plugin.allocator
        #: A score changes with the devices. Since there is no ``rescored`` that names rows, the verdict is asked for
        #: again, too.
        self.is_local = self.by_spec = False
        #: Changes of devices since the first verdicts.
        self._changes: Follower[int] | None = None

    @cached_property
    def _begun(self) -> tuple[ClaimState, Status | None]:
        return self._plugin.preparation.begin(self._pod)

    @property
    def attempt(self) -> ClaimState:
        return self._begun[0]

    @property
    def problem(self) -> str:
        """Reason why the claims cannot be allocated, whatever the node; "" when they may be."""
        status = self._begun[1]
        return "" if status is None else status.message()

    @cached_property
    def key(self) -> Hashable | None:  # type: ignore[override]  # evaluated only where it is read
        """Key of the demand. Pods with equal demands and no allocated claims get equal verdicts for equal devices."""
        attempt = self.attempt
        if attempt.is_leftover or any(each.is_allocated for each in attempt.claims):
            return None
        chosen = attempt.demand_for(attempt.served(), self._allocator)
        if chosen.demand is None or self._allocator.uses_common_pools(chosen.demand):
            return None  # with common pools every allocation may change the verdict on every node
        number = chosen.demand.remembered.number
        if chosen.special is None or self._have_no_plugin():
            return number
        return number, tuple(attempt.resources.items()), chosen.special.mappings

    def _have_no_plugin(self) -> bool:
        """True if devices serve all of the pod's extended resources on every node."""
        nodes, resources = self._nodes, self.attempt.resources
        columns = [nodes.column(name) for name in resources]
        return all(resources.values()) and not any(
            index is not None and nodes.allocatable[index].any() for index in columns
        )

    def follow(self, kept: _Devices) -> _Devices:
        self._changes = kept._changes
        self.attempt.filtered = True
        return self

    def changed(self) -> RowArray | None:
        demand = self.attempt.demand_for(self.attempt.served(), self._allocator).demand
        return None if self._changes is None else self._allocator.changed(self._nodes, self._changes, demand)

    # -- demands -----------------------------------------------------------------------------------------

    def on(self, node: NodeInfo) -> NodeDemand:
        """Return the devices to allocate on a node."""
        return self.attempt.demand_for(self.attempt.served_on(node), self._allocator)

    def demands(self, rows: RowArray) -> Iterator[tuple[RowArray | slice, ClaimDemand]]:
        """Yield the demands on rows, each with the positions of its rows. Rows where nothing is allocated have none.

        Demands differ because devices serve only those of the pod's extended resources for which the row has no device
        plugin.
        """
        nodes, served = self._nodes, sorted(self.attempt.served())
        code = np.zeros(len(rows), np.int64)
        for bit, name in enumerate(served):
            index = nodes.column(name)
            code |= (1 if index is None else (nodes.allocatable[index, rows] == 0).astype(np.int64)) << bit
        values = np.unique(code).tolist() if served else [0]
        for value in values:
            here = frozenset([name for bit, name in enumerate(served) if value >> bit & 1])
            demand = self.attempt.demand_for(here, self._allocator).demand
            if demand is not None:
                yield slice(None) if len(values) == 1 else np.flatnonzero(code == value), demand

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, nodes: NodeList) -> Status | None:
        attempt, problem = self._begun
        return Status.skip() if problem is None and not attempt.claims else problem

    def verdicts(self, rows: RowArray) -> VerdictArray:
        verdicts = np.zeros(len(rows), np.uint64)
        attempt = self.attempt
        if not attempt.claims or not len(rows):
            return verdicts
        attempt.filtered = True
        if attempt.is_leftover:
            verdicts[:] = _LEFTOVER
            return verdicts
        if self._changes is None:
            self._changes = self._allocator.follower(self._nodes)
        if attempt.special is None:
            verdicts = self._allocatable(rows)
        else:
            # Nothing is allocated on rows that lack a resource, so the search there takes no time and cannot fail.
            verdicts[self._cannot_fit(rows)] = _CANNOT_FIT
            open_ = np.flatnonzero(verdicts == 0)
            verdicts[open_] = self._allocatable(rows[open_])
        fits = verdicts == 0
        for place, each in enumerate(attempt.claims):
            lacking = self._unavailable(each, rows)
            if lacking is not None and (lacking & fits).any():
                attempt.unavailable.add(place)
                verdicts[lacking & fits] = _UNAVAILABLE
        return verdicts

    def verdict(self, node: NodeInfo) -> int:
        if not self.attempt.only_allocates:
            return int(self.verdicts(np.array([node.row], np.intp))[0])
        self.attempt.filtered = True
        demand = self.on(node).demand
        if demand is not None:
            verdict = self._allocator.verdict(demand, self._nodes, node.row)
            if verdict is Verdict.ERROR:
                self._allocator.allocate(demand, node)
            if verdict is not Verdict.FITS:
                return int(_OF_ALLOCATOR[verdict])
        return 0

    def why(self, verdict: int) -> Status:
        return Status.unresolvable(_TEXTS[verdict])

    def _cannot_fit(self, rows: RowArray) -> RowArray:
        """Positions of the rows where neither a class nor a device plugin serves one of the resources."""
        found = np.zeros(len(rows), np.bool_)
        for name, class_name in self.attempt.resources.items():
            if not class_name:
                infos = map(self._nodes.info, rows.tolist())
                found |= np.array([name not in info.allocatable.scalars for info in infos], np.bool_)
        return np.flatnonzero(found)

    def _allocatable(self, rows: RowArray) -> VerdictArray:
        """Return the verdicts of the allocator.

        Raises:
            DeviceAllocationFailure: for a claim, class or slice that cannot be used, or a search that took too long.
        """
        verdicts = np.zeros(len(rows), np.uint64)
        for positions, demand in self.demands(rows):
            here = rows[positions]
            found = self._allocator.verdicts(demand, self._nodes, here)
            if not found.any():
                continue
            if (found == Verdict.ERROR).any():
                self._allocator.allocate(demand, self._nodes.info(int(here[np.argmax(found == Verdict.ERROR)])))
            verdicts[positions] = _OF_ALLOCATOR[found]
        return verdicts

    def _unavailable(self, each: PodClaim, rows: RowArray) -> BoolArray | None:
        """Mark rows where an allocated claim's devices are not available, bool[len(rows)]; None: available on all."""
        if not each.is_allocated:
            return None
        plugin = self._plugin
        if plugin.features.device_binding_and_status:
            try:
                now = plugin.handle.clock.now()
                if not is_ready(each.claim) and is_timed_out(each.claim, plugin.binding_timeout, now):
                    return np.ones(len(rows), np.bool_)
            except BindingFailedError:
                return np.ones(len(rows), np.bool_)
        return None if each.selector is None else ~self._nodes.matches_selector(each.selector, rows)

    # -- score -----------------------------------------------------------------------------------------

    def _counts(self) -> bool:
        """True if the pod's nodes may have scores other than 0.

        Raises:
            KeyError: ``not found``, when the profile has the plugin without its PreFilter.
        """
        if not self._plugin.features.prioritized_list:
            return False
        if not self._plugin.is_prepared:
            raise KeyError("not found")
        return self.attempt.filtered and self.attempt.allocates

    def scores(self, rows: RowArray) -> IntArray:
        scores = np.zeros(len(rows), np.int64)
        if not self._counts():
            return scores
        attempt = self.attempt
        scores += sum(
            preference(each.claim, each.claim.status.allocation)
            for each in attempt.claims
            if each.claim.status.allocation is not None
        )
        if attempt.has_preferences:
            for positions, demand in self.demands(rows):
                scores[positions] += self._allocator.preferences(demand, self._nodes, rows[positions])
        return scores

    def score(self, node: NodeInfo) -> int:
        if not self._counts() or (self.attempt.only_allocates and not self.attempt.has_preferences):
            return 0
        return int(self.scores(np.array([node.row], np.intp))[0])


class DynamicResources(Plugin):
    """Devices for pods, see the module. Its question is :class:`_Devices`."""

    name = "DynamicResources"
    asks = _Devices

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else DynamicResourcesArgs()
        self._manager = DeviceManager.of(handle)
        self.features = self._manager.features
        self.preparation = Preparation(handle, self._manager)
        self.allocator = self._manager.allocator(
            args.filter_timeout.seconds if args.filter_timeout is not None else 0.0
        )
        self.binding_timeout = args.binding_timeout.seconds if args.binding_timeout is not None else 0.0
        self._hints = ClaimHints(self._manager.claims)
        self._binding = Binding(handle, self._manager, self.binding_timeout)

    # -- queue -----------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        try:
            resolve_claims(pod.pod, self._manager.claims.get, self.preparation.groups.group_of(pod.pod))
        except LookupError as error:
            return Status.unresolvable(str(error))
        return None

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return device_demands(_Devices(self, pod, nodes), self.allocator, self._manager, pod, nodes)

    def new_node(self, name: str, like: NodeInfo) -> AbstractContextManager[object]:
        return self._manager.new_node(name, like.name)

    def without_pods(self, pods: Collection[PodInfo]) -> AbstractContextManager[Sequence[str]]:
        return self._manager.without_pods([one.pod for one in pods])

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return self._hints.events()

    # -- the question ----------------------------------------------------------------------------------

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        if self.is_prepared and not pod.spec.resource_claims and not self.preparation.is_served(pod):
            return None
        return _Devices(self, pod, nodes)

    @cached_property
    def is_prepared(self) -> bool:
        return is_prepared(self)

    def _asked(self, state: CycleState) -> _Devices | None:
        """Return the question of an attempt; None if the plugin had none for the pod, or PreFilter was not called."""
        question = state.get(question_key(self.name)) if self.is_prepared else None
        return question if isinstance(question, _Devices) else None

    # -- PostFilter ------------------------------------------------------------------------------------

    def post_filter(self, state: CycleState, pod: PodInfo, statuses: NodeToStatus) -> _Answer | Awaitable[_Answer]:
        """Deallocate a claim whose devices are on nodes where the pod cannot run."""
        question = self._asked(state)
        if question is None and not self._was_reached(state):
            return None, Status.from_error("not found")
        if question is None or not question.attempt.claims:
            return None, _NO_CLAIMS
        attempt = question.attempt
        places = sorted(attempt.unavailable)
        for place in self.handle.random.sample(places, len(places)):
            each = attempt.claims[place]
            if each.is_special:
                if not is_in_memory(each.claim):
                    break
            elif can_be_released_by(each.claim, pod.pod):
                return _done(state, partial(self._binding.deallocate, each.claim), DEALLOCATED)
        special = attempt.special
        if special is not None and not is_in_memory(special.claim):
            return _done(state, partial(self._binding.delete_leftover, special.claim, pod.pod), DELETED)
        claimed = self._claim_of_group(state, attempt)
        if claimed is not None:
            return _done(state, partial(self._binding.release_group, claimed), UNRESERVED)
        return None, Status.unschedulable("still not schedulable")

    def may_make_room(self, pod: PodInfo) -> bool:
        """Return False if the pod has nothing to do with devices: there is no claim to deallocate for it."""
        return pod.has_device_requests

    def _claim_of_group(self, state: CycleState, attempt: ClaimState) -> PodClaim | None:
        """Return an allocated claim of the pod's group that keeps the group from other nodes; None if there is none.

        It may be let go while no member has a node.
        """
        if attempt.unavailable and not self.preparation.groups.has_scheduled(attempt.pod, state.group):
            for each in attempt.claims:
                is_written = each.claim.status.allocation is not None
                if each.group is not None and is_written and each.is_reserved(each.claim, attempt.pod):
                    return each
        return None

    def _was_reached(self, state: CycleState) -> bool:
        """True if no plugin ended PreFilter before this one. Upstream's PostFilter fails otherwise, because it has no
        state.
        """
        order = [name for name, _ in self.handle.framework.points["preFilter"]]
        ended_by = state.pre_filter_ended_by
        return self.name in (order[: order.index(ended_by) + 1] if ended_by in order else order)

    # -- Reserve ---------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        question = self._asked(state)
        if question is None:
            return None if self.is_prepared and not pod.spec.resource_claims else Status.from_error("not found")
        attempt = question.attempt
        for each in attempt.claims:
            if each.shared is not None:
                self._share(each)
        unallocated = list(attempt.unallocated())
        if not unallocated:
            return None
        node = self.handle.snapshot.table.get(node_name)
        if not attempt.filtered or node is None:
            if all(each.is_special for each in unallocated):
                return None
            return Status.from_error("claim allocation not found for node")
        chosen = question.on(node)
        if chosen.demand is None:
            return None  # a device plugin of the node serves the extended resources
        results = self.allocator.allocate(chosen.demand, node)
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
            self._manager.in_flight.signal(each.initial_uid, claim, each.sharing)
            each.signalled = True
        return None

    def _share(self, each: PodClaim) -> None:
        """Let a claim use the allocation that another member of the pod's group is about to write."""
        claim = self._manager.in_flight.shared_with(each.initial_uid, each.sharing)
        if claim is None:
            claim = with_status(each.claim, allocation=each.shared)
        each.pending = claim.status.allocation
        self._manager.in_flight.signal(each.initial_uid, claim, each.sharing)
        each.signalled = True

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        question = self._asked(state)
        if question is not None:
            state.given_back += self._binding.undo(question.attempt, is_trial=state.group is not None)

    # -- PreBind ---------------------------------------------------------------------------------------

    def pre_bind_pre_flight(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | tuple[PreBindPreFlight | None, Status | None] | None:
        if not self.is_prepared:
            return Status.from_error("not found")
        question = self._asked(state)
        if question is None or not question.attempt.claims:
            return Status.skip()
        return PreBindPreFlight(allow_parallel=True), None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        question = self._asked(state)
        return None if question is None else await self._binding.bind(question.attempt, pod.pod, node_name)

    # -- for conformance and reports -------------------------------------------------------------------

    def device_counts(self, nodes: Sequence[NodeInfo]) -> dict[str, list[tuple[int, int]]]:
        """Count the devices of each class by node, as (devices, devices in use); classes by name."""
        found: dict[str, list[tuple[int, int]]] = {}
        for name in self._manager.classes.names():
            counts = found[name] = self.allocator.devices_of_class(name, nodes)
            while len(counts) < len(nodes):  # selectors have an allowance for each call
                more = self.allocator.devices_of_class(name, nodes[len(counts) :])
                counts += more or [(0, 0)] * (len(nodes) - len(counts))
        return found

    def device_totals(self) -> dict[str, tuple[int, int]]:
        """Count the devices of each class, each once, as (devices, devices in use); classes by name."""
        return {name: self.allocator.all_of_class(name) for name in self._manager.classes.names()}

    def list_devices(
        self, state: CycleState, nodes: NodeTable, row: int
    ) -> list[tuple[ResourceClaim, AllocationResult]]:
        """Return the claims that would be allocated on a node that passed Filter, with the devices."""
        question = self._asked(state)
        if question is None or not question.attempt.filtered:
            return []
        demand = question.on(nodes.info(row)).demand
        results = self.allocator.allocate(demand, nodes.info(row)) if demand is not None else None
        if demand is None or results is None:
            return []
        return list(zip(demand.claims, results, strict=True))


def _done(state: CycleState, act: Callable[[], Awaitable[_Answer]], status: Status) -> _Answer | Awaitable[_Answer]:
    """Begin an action that lets devices go; in the trial of a pod group, only plan it."""
    if state.group is None:
        return act()
    return PostFilterResult(act=act), status
