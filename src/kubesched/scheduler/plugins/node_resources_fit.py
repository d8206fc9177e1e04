"""NodeResourcesFit: does the pod fit, and how full would the node be? (PreFilter, Filter, PreScore, Score)

Source: rules/node-plugins §8.2 to §8.5. The three scoring strategies are in :mod:`.resource_scoring`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY, Resources, is_extended_resource, pod_requests
from kubesched.api.resource import EXTENDED_RESOURCE_PREFIX, DeviceClass
from kubesched.api.types import Node, Pod
from kubesched.base.change_log import Follower

from ..config.args import NodeResourcesFitArgs
from ..framework.cycle_state import CycleState
from ..framework.demand import Demand
from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ..framework.interface import Handle, Plugin
from ..framework.placements import GroupToPlace, TriedPlacement
from ..framework.question import IntArray, Question, RowArray, VerdictArray
from ..framework.status import Code, Status
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .demands import resources
from .dynamic_resources.class_mapping import class_mapping
from .dynamic_resources.device_counts import DeviceCounts
from .many_resources import ManyAmounts
from .resource_scoring import ResourceScorer

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable

__all__ = ["NodeResourcesFit", "insufficient"]

_TOO_MANY_PODS: Final = 1
_PODS_ROW: Final = 3
#: Most resources that a verdict has bits for. After the first bit, each resource has two: "insufficient" and "more than
#: the node has in all".
_MAX_COLUMN_RESOURCES: Final = 31


class _Fit(Question):
    """Question about the amounts that a pod asks for, against the allocatable and requested columns.

    A verdict has one bit pair per resource. Pods that differ only in the devices they ask for have equal keys, so they
    share remembered verdicts.
    """

    by_spec = True
    stands_alone = frozenset({"score"})

    def __init__(self, plugin: NodeResourcesFit, pod: PodInfo, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._counts, self._scorer = plugin.counts, plugin.scorer
        wanted, scored = pod.fit_requests, pod.score_requests
        self._scored = scored
        self._devices: Follower[int] | None = None
        delegated = plugin.delegated(wanted)
        unlimited = _unlimited(delegated, nodes)
        #: Resources that a device class serves on nodes without a device plugin for them. A resource for which no
        #: node has a device plugin is not among the amounts.
        self._delegated = delegated
        #: (resource name, amount) of each resource that the pod asks for and that counts.
        self._amounts = [
            (name, amount)
            for name, amount in (
                (CPU, wanted.milli_cpu),
                (MEMORY, wanted.memory),
                (EPHEMERAL_STORAGE, wanted.ephemeral_storage),
            )
            if amount > 0
        ] + [
            (name, amount)
            for name, amount in wanted.scalars.items()
            if amount and name not in unlimited and not plugin.is_ignored(name)
        ]
        is_many = len(self._amounts) > _MAX_COLUMN_RESOURCES
        self._many = ManyAmounts(self._amounts, delegated, _PODS_ROW) if is_many else None
        self.key = (
            (*wanted.as_tuple()[:3], _scalars(wanted, lambda name: name not in unlimited)),
            delegated - unlimited,
            scored.milli_cpu,
            scored.memory,
            scored.ephemeral_storage,
            _scalars(scored, plugin.scored.__contains__),
        )
        self.is_local = plugin.counts.of(scored) is None  # devices also change the score
        if not self.is_local:
            self.key = self.key, plugin.counts.key(scored)
        self.by_spec = self.is_local and not delegated  # otherwise device plugins on nodes count, too

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, nodes: NodeList) -> None:
        return None  # the amounts are known; a profile with Filter but without PreFilter fails the attempt, as upstream

    def verdicts(self, rows: RowArray) -> VerdictArray:
        nodes, delegated = self._nodes, self._delegated
        if self._many is not None:
            return self._many.verdicts(nodes, rows)
        allocatable, requested = nodes.allocatable, nodes.requested
        full: VerdictArray = (requested[_PODS_ROW, rows] >= allocatable[_PODS_ROW, rows]).astype(np.uint64)
        for position, (name, amount) in enumerate(self._amounts):
            index = nodes.column(name)
            if index is None:
                full |= np.uint64(0 if name in delegated else 0b110 << 2 * position)
                continue
            capacity = allocatable[index, rows]
            lacking = amount > capacity - requested[index, rows]
            if name in delegated:
                lacking &= capacity != 0
            full |= lacking.astype(np.uint64) << np.uint64(2 * position + 1)
            full |= (lacking & (amount > capacity)).astype(np.uint64) << np.uint64(2 * position + 2)
        return full

    def verdict(self, node: NodeInfo) -> int:
        if self._many is not None:
            return self._many.verdict(node)
        allocatable, requested = node.allocatable, node.requested
        verdict = _TOO_MANY_PODS if len(node.pods) >= allocatable.allowed_pods else 0
        bit = 2
        for name, amount in self._amounts:
            if name == CPU:
                capacity, used = allocatable.milli_cpu, requested.milli_cpu
            elif name == MEMORY:
                capacity, used = allocatable.memory, requested.memory
            else:
                capacity, used = allocatable.get(name), requested.get(name)
            if amount > capacity - used and (capacity or name not in self._delegated):
                verdict |= bit * 3 if amount > capacity else bit
            bit <<= 2
        return verdict

    def amounts(self) -> Sequence[tuple[int, int]] | None:
        found = [(_PODS_ROW, 1)]
        if self._delegated:
            return None
        for name, amount in self._amounts:
            index = self._nodes.column(name)
            if index is None or amount < 0:
                return None
            found.append((index, amount))
        return found

    def why(self, verdict: int) -> Status:
        if self._many is not None:
            return self._many.why(verdict)
        reasons = ["Too many pods"] if verdict & _TOO_MANY_PODS else []
        code = Code.UNSCHEDULABLE
        for position, (name, _) in enumerate(self._amounts):
            outcome = verdict >> (2 * position + 1) & 0b11
            if outcome:
                reasons.append(f"Insufficient {name}")
                code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if outcome == 0b11 else code
        return Status(code, *reasons)

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, nodes: NodeList) -> Status | None:
        self._devices = self._counts.follower(self._scored)
        return None

    def scores(self, rows: RowArray) -> IntArray:
        return self._scorer.score_rows(self._scored, self._nodes, rows, self._counts.of(self._scored))

    def score(self, node: NodeInfo) -> int:
        if not self.is_local:
            return int(self.scores(np.array([node.row], np.intp))[0])
        return self._scorer.score_node(self._scored, node)

    def rescored(self, *, same: bool) -> RowArray | None:
        return self._counts.changed(self._scored, self._devices)


def _unlimited(delegated: frozenset[str], nodes: NodeTable) -> frozenset[str]:
    """Return the delegated resources that no node has from a device plugin: Filter need not look at these."""
    columns = ((name, nodes.column(name)) for name in delegated)
    return frozenset([name for name, index in columns if index is None or not nodes.allocatable[index].any()])


class NodeResourcesFit(Plugin):
    """Fit of a pod's requests into nodes' allocatable. Its question is :class:`_Fit`."""

    name = "NodeResourcesFit"
    asks = _Fit

    def __init__(self, args: NodeResourcesFitArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else NodeResourcesFitArgs()
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self.scorer = ResourceScorer(args.scoring_strategy)
        self.scored = frozenset(self.scorer.names)
        self.counts = DeviceCounts(handle, self.scorer.names)
        #: None if the gate is off; no resource is left to DynamicResources then.
        self._classes = class_mapping(handle) if handle.gate("DRAExtendedResource") else None

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _Fit(self, pod, nodes)

    def score_placements(
        self, state: CycleState, group: GroupToPlace, tried: Sequence[TriedPlacement]
    ) -> Sequence[int] | Status:
        """Prefer the placement that the group fills most, so that bigger ones stay free for bigger groups."""
        table = self.handle.snapshot.table
        return [
            self.scorer.fullness([pod.score_requests for pod, _ in each.assignments], table, each.nodes.rows)
            for each in tried
        ]

    def delegated(self, requests: Resources) -> frozenset[str]:
        """Resources that a device class serves. DynamicResources allocates them on nodes without a device plugin."""
        if self._classes is None or not requests.scalars:
            return frozenset()
        class_of = self._classes.class_of
        return frozenset(name for name, amount in requests.scalars.items() if amount and class_of(name))

    def is_ignored(self, name: str) -> bool:
        """True if the configuration leaves this resource out of Filter."""
        return is_extended_resource(name) and (name in self._ignored or name.split("/", 1)[0] in self._ignored_groups)

    # -- queue -----------------------------------------------------------------------------------------

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        requests = pod.fit_requests
        wanted = {name: amount for name, amount in _entries(requests) if not self.is_ignored(name)}
        return resources.amounts(pod, nodes, wanted, self.delegated(requests))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pod = ClusterEvent(EventResource.POD, ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN)
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE)
        events = [ClusterEventWithHint(pod, self._after_pod), ClusterEventWithHint(node, self._after_node)]
        if self.handle.gate("DRAExtendedResource"):
            device_class = ClusterEvent(EventResource.DEVICE_CLASS, ActionType.ADD | ActionType.UPDATE)
            events.append(ClusterEventWithHint(device_class, self._after_device_class, _device_classes))
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
        """Compare allocatable. Ignored resources are not ignored here (rules/node-plugins §11 quirk Q2, kept)."""
        after = Resources.from_list(new.status.allocatable)
        requests = pod.fit_requests
        delegated = {name for name in self.delegated(requests) if not after.get(name)}
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


def _device_classes(pod: PodInfo) -> ActionType:
    """Return the changes of device classes that may help a pod: all, if it asks for something that a class can stand for."""
    return ActionType.ALL if any("/" in name for name in pod.fit_requests.scalars) else ActionType.NONE


def _scalars(requests: Resources, counts: Callable[[str], bool]) -> tuple[tuple[str, int], ...]:
    """Amounts of the scalar resources for which ``counts`` is true, sorted."""
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
    """True if a pod would not even fit an empty node with this allocatable; ``delegated`` resources do not count."""
    if allocatable.allowed_pods < 1:
        return True
    return any(
        amount > 0 and amount > allocatable.get(name) and name not in delegated for name, amount in _entries(requests)
    )
