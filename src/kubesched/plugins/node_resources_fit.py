"""NodeResourcesFit: does the pod fit, and how full would the node be? (PreFilter, Filter, PreScore, Score)

Spec "Node-level scheduler plugins" sections 8.2 to 8.5. The three scoring strategies are in
:mod:`.resource_scoring`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY, Resources, is_extended_resource, pod_requests
from kubesched.api.resource import EXTENDED_RESOURCE_PREFIX, DeviceClass
from kubesched.api.types import Node, Pod
from kubesched.config.args import NodeResourcesFitArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from kubesched.framework.interface import Handle, IntArray, Plugin, Reads, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Code, Status

from . import names
from .dynamic_resources.class_mapping import class_mapping
from .dynamic_resources.device_counts import DeviceCounts
from .resource_scoring import ResourceScorer

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["NodeResourcesFit", "insufficient"]

_TOO_MANY_PODS: Final = 1
_PODS_ROW: Final = 3
#: Two bits a resource behind the first: insufficient, and more than the node has in all.
_MAX_COLUMN_RESOURCES: Final = 31
_NO_ROWS: Final = np.zeros(0, np.intp)


class _Wanted:
    """What Filter needs of the pod: (resource name, amount) of everything it asks for and that counts.

    ``delegated``: the resources that a device class serves on nodes without a device plugin for them. They are not among
    the amounts where no node has such a plugin.
    """

    __slots__ = ("amounts", "delegated", "outcomes")

    def __init__(self, amounts: list[tuple[str, int]], delegated: frozenset[str]) -> None:
        self.amounts = amounts
        self.delegated = delegated
        #: Verdicts of pods with more resources than a verdict has bits: failures, interned.
        self.outcomes: list[tuple[str, ...]] = []


class NodeResourcesFit(Plugin):
    """Reads the allocatable and requested columns; one verdict bit pair per resource asked for."""

    name = names.NODE_RESOURCES_FIT
    signs_spec = True
    reads: ClassVar[Reads] = Reads.NODE | Reads.PODS

    def __init__(self, args: NodeResourcesFitArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else NodeResourcesFitArgs()
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._scorer = ResourceScorer(args.scoring_strategy)
        self._scored = frozenset(self._scorer.names)
        self._counts = DeviceCounts(handle, self.name, self._scorer.names)
        #: None without the gate: no resource is left to DynamicResources.
        self._classes = class_mapping(handle) if handle.gate("DRAExtendedResource") else None

    def _delegated(self, requests: Resources) -> frozenset[str]:
        """The resources that a device class serves: DynamicResources allocates them where the node has none itself."""
        if self._classes is None or not requests.scalars:
            return frozenset()
        class_of = self._classes.class_of
        return frozenset(name for name, amount in requests.scalars.items() if amount and class_of(name))

    def _unlimited(self, delegated: frozenset[str]) -> frozenset[str]:
        """Of these resources those that no node has itself: nothing here depends on them as long as that is so."""
        if not delegated:
            return delegated
        table = self.handle.snapshot.table
        columns = ((name, table.column(name)) for name in delegated)
        return frozenset([name for name, index in columns if index is None or not table.allocatable[index].any()])

    def sign(self, pod: PodInfo) -> Hashable | None:
        if self._counts.of(pod.score_requests) is not None:
            return None  # the score changes with devices, whatever happens to the node
        return self._signature(pod)

    def signs_until(self) -> Hashable | None:
        if self._classes is None:
            return 0
        return None if self._classes.serves_any else self._classes.version

    def interaction_key(self, pod: PodInfo) -> Hashable | None:
        return self._signature(pod), self._counts.key(pod.score_requests)

    def refresh_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> RowArray | None:
        return _NO_ROWS  # Filter depends on nothing but the node

    def refresh_scores(self, state: CycleState, pod: PodInfo, nodes: NodeTable, same: bool) -> RowArray | None:
        return self._counts.changed(state, pod.score_requests, nodes)

    def _signature(self, pod: PodInfo) -> Hashable:
        wanted, scored = pod.fit_requests, pod.score_requests
        delegated = self._delegated(wanted)
        # Pods that ask for different devices are alike here, so that they share what is remembered of nodes.
        unlimited = self._unlimited(delegated)
        return (
            (*wanted.as_tuple()[:3], _scalars(wanted, lambda name: name not in unlimited)),
            delegated - unlimited,
            scored.milli_cpu,
            scored.memory,
            scored.ephemeral_storage,
            _scalars(scored, self._scored.__contains__),
        )

    # -- filter ----------------------------------------------------------------------------------------

    def _is_ignored(self, name: str) -> bool:
        return is_extended_resource(name) and (name in self._ignored or name.split("/", 1)[0] in self._ignored_groups)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        requests = pod.fit_requests
        delegated = self._delegated(requests)
        unlimited = self._unlimited(delegated)
        amounts = [
            (name, amount)
            for name, amount in (
                (CPU, requests.milli_cpu),
                (MEMORY, requests.memory),
                (EPHEMERAL_STORAGE, requests.ephemeral_storage),
            )
            if amount > 0
        ]
        amounts += [
            (name, amount)
            for name, amount in requests.scalars.items()
            if amount and name not in unlimited and not self._is_ignored(name)
        ]
        state.write(self.name, _Wanted(amounts, delegated))
        return None

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        wanted: _Wanted = state.read(self.name)
        if len(wanted.amounts) > _MAX_COLUMN_RESOURCES:
            info = nodes.info
            verdicts = [self.filter_row(state, pod, nodes, info(row)) for row in rows.tolist()]
            return np.array(verdicts, np.uint64)
        allocatable, requested = nodes.allocatable, nodes.requested
        full: VerdictArray = (requested[_PODS_ROW, rows] >= allocatable[_PODS_ROW, rows]).astype(np.uint64)
        for position, (name, amount) in enumerate(wanted.amounts):
            index = nodes.column(name)
            if index is None:
                full |= np.uint64(0 if name in wanted.delegated else 0b110 << 2 * position)
                continue
            capacity = allocatable[index, rows]
            lacking = amount > capacity - requested[index, rows]
            if name in wanted.delegated:
                lacking &= capacity != 0
            full |= lacking.astype(np.uint64) << np.uint64(2 * position + 1)
            full |= (lacking & (amount > capacity)).astype(np.uint64) << np.uint64(2 * position + 2)
        return full

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        wanted: _Wanted = state.read(self.name)
        return self._verdict(wanted, node, node.requested, len(node.pods))

    def filter_row_with(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo, others: Sequence[PodInfo]
    ) -> int | None:
        wanted: _Wanted = state.read(self.name)
        requested = node.requested.plus([other.requests for other in others])
        return self._verdict(wanted, node, requested, len(node.pods) + len(others))

    def _verdict(self, wanted: _Wanted, node: NodeInfo, requested: Resources, pods: int) -> int:
        """The verdict on a node whose pods are so many and request so much."""
        allocatable = node.allocatable
        verdict = _TOO_MANY_PODS if pods >= allocatable.allowed_pods else 0
        if len(wanted.amounts) > _MAX_COLUMN_RESOURCES:
            return self._interned(wanted, verdict, node, requested)
        bit = 2
        for name, amount in wanted.amounts:
            if name == CPU:
                capacity, used = allocatable.milli_cpu, requested.milli_cpu
            elif name == MEMORY:
                capacity, used = allocatable.memory, requested.memory
            else:
                capacity, used = allocatable.get(name), requested.get(name)
            if amount > capacity - used and (capacity or name not in wanted.delegated):
                verdict |= bit * 3 if amount > capacity else bit
            bit <<= 2
        return verdict

    def fit_amounts(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Sequence[tuple[int, int]] | None:
        found = [(_PODS_ROW, 1)]
        wanted: _Wanted = state.read(self.name)
        if wanted.delegated:
            return None
        for name, amount in wanted.amounts:
            index = nodes.column(name)
            if index is None or amount < 0:
                return None
            found.append((index, amount))
        return found

    @staticmethod
    def _interned(wanted: _Wanted, verdict: int, node: NodeInfo, requested: Resources) -> int:
        """A verdict for a pod with very many resources: the position of its failures in a list, from 1."""
        failures = ["Too many pods"] if verdict else []
        unresolvable = ""
        for name, amount in wanted.amounts:
            capacity = node.allocatable.get(name)
            if not capacity and name in wanted.delegated:
                continue
            if amount > capacity - requested.get(name):
                failures.append(f"Insufficient {name}")
                unresolvable = "!" if amount > capacity else unresolvable
        if not failures:
            return 0
        outcome = (unresolvable, *failures)
        if outcome not in wanted.outcomes:
            wanted.outcomes.append(outcome)
        return wanted.outcomes.index(outcome) + 1

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        wanted: _Wanted = state.read(self.name)
        if len(wanted.amounts) > _MAX_COLUMN_RESOURCES:
            unresolvable, *reasons = wanted.outcomes[verdict - 1]
        else:
            reasons = ["Too many pods"] if verdict & _TOO_MANY_PODS else []
            unresolvable = ""
            for position, (name, _) in enumerate(wanted.amounts):
                outcome = verdict >> (2 * position + 1) & 0b11
                if outcome:
                    reasons.append(f"Insufficient {name}")
                    unresolvable = "!" if outcome == 0b11 else unresolvable
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE, *reasons)

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        self._counts.begin(state, pod.score_requests)
        return None

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        return self._scorer.score_rows(pod.score_requests, nodes, rows, self._counts.of(pod.score_requests))

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        if self._counts.of(pod.score_requests) is not None:
            return int(self.score_rows(state, pod, nodes, np.array([node.row], np.intp))[0])
        return self._scorer.score_node(pod.score_requests, node)

    # -- queue -----------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pod = ClusterEvent(EventResource.POD, ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN)
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE)
        events = [ClusterEventWithHint(pod, self._after_pod), ClusterEventWithHint(node, self._after_node)]
        if self.handle.gate("DRAExtendedResource"):
            device_class = ClusterEvent(EventResource.DEVICE_CLASS, ActionType.ADD | ActionType.UPDATE)
            events.append(ClusterEventWithHint(device_class, self._after_device_class))
        return events

    def _after_pod(self, pod: PodInfo, old: Pod, new: Pod | None) -> QueueingHint:
        if new is None:
            freed = old.spec.node_name or old.status.nominated_node_name
            return QueueingHint.QUEUE if freed else QueueingHint.SKIP
        if new.uid == pod.uid:
            return QueueingHint.QUEUE
        if not new.spec.node_name:
            return QueueingHint.SKIP
        before, after = pod_requests(old), pod_requests(new)
        wanted = pod.requests
        shrunk = any(after.get(name) < before.get(name) for name, _ in _entries(wanted) if wanted.get(name))
        return QueueingHint.QUEUE if shrunk else QueueingHint.SKIP

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node) -> QueueingHint:
        """Ignored resources are not ignored here (upstream quirk Q2, kept)."""
        after = Resources.from_list(new.status.allocatable)
        requests = pod.fit_requests
        delegated = {name for name in self._delegated(requests) if not after.get(name)}
        if insufficient(requests, after, delegated):
            return QueueingHint.SKIP
        if old is None:
            return QueueingHint.QUEUE
        before = Resources.from_list(old.status.allocatable)
        grew = after.allowed_pods > before.allowed_pods or any(
            amount and (after.get(name) > before.get(name) or name in delegated) for name, amount in _entries(requests)
        )
        return QueueingHint.QUEUE if grew else QueueingHint.SKIP

    def _after_device_class(self, pod: PodInfo, old: DeviceClass | None, new: DeviceClass) -> QueueingHint:
        extended = new.spec.extended_resource_name
        if old is not None and old.spec.extended_resource_name == extended:
            return QueueingHint.SKIP
        asked = pod.fit_requests.scalars
        implicit = f"{EXTENDED_RESOURCE_PREFIX}{new.metadata.name}"
        helps = (old is None and implicit in asked) or extended in asked
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _scalars(requests: Resources, counts: Callable[[str], bool]) -> tuple[tuple[str, int], ...]:
    """The amounts of the scalar resources that count."""
    scalars = requests.scalars
    return tuple(sorted((name, scalars[name]) for name in scalars if counts(name))) if scalars else ()


def _entries(requests: Resources) -> list[tuple[str, int]]:
    return [
        (CPU, requests.milli_cpu),
        (MEMORY, requests.memory),
        (EPHEMERAL_STORAGE, requests.ephemeral_storage),
        *requests.scalars.items(),
    ]


def insufficient(requests: Resources, allocatable: Resources, delegated: Collection[str] = ()) -> bool:
    """Whether a pod would not even fit an empty node with this allocatable; ``delegated`` resources do not count."""
    if allocatable.allowed_pods < 1:
        return True
    return any(
        amount > 0 and amount > allocatable.get(name) and name not in delegated for name, amount in _entries(requests)
    )
