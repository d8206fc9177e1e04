"""A cache, a profile and its search, without queue, client or event loop; and plugins made on the spot."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from builders import info
from kubesched.api.types import Node, Pod
from kubesched.base.change_log import ChangeLog
from kubesched.lab.conformance.objects import LocalObjects
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.core.diagnosis import NodeStatuses, Rejection
from kubesched.scheduler.core.full_scan import Evaluation, Rotation
from kubesched.scheduler.core.handle import Backends, ProfileHandle
from kubesched.scheduler.core.search import Decision, Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.points import POINTS, capabilities
from kubesched.scheduler.framework.question import Question
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry

#: In-tree plugins that sign every pod, in upstream's order.
SIGNING = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "NodeDeclaredFeatures",
)
WEIGHTS = {"TaintToleration": 3, "NodeAffinity": 2}


class StillClock:
    def __init__(self, time: float = 0.0) -> None:
        self.time = time

    def now(self) -> float:
        return self.time


class Nominated:
    """Node name to the pods nominated there."""

    def __init__(self) -> None:
        self._pods: dict[str, list[PodInfo]] = {}
        self.changed: ChangeLog[str] = ChangeLog(0)

    @property
    def pods(self) -> dict[str, list[PodInfo]]:
        """For tests to change as they like: everything may be another now."""
        self.changed.forget()
        return self._pods

    def nominated_nodes(self) -> Iterable[str]:
        return self._pods

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        return list(self._pods.get(node_name, ()))

    def node_of(self, uid: str) -> str | None:
        return next((node for node, pods in self._pods.items() if any(pod.uid == uid for pod in pods)), None)


def make_plugin(plugin_name: str, **members: Any) -> type:
    """A plugin class with these methods and attributes."""
    return type(plugin_name, (), {"name": plugin_name, "__init__": lambda self, args, handle: None, **members})


def make_asking(plugin_name: str, **members: Any) -> type:
    """A plugin class whose questions have these methods and attributes; those that no question has are the plugin's own.

    Questions know their ``pod`` and the node table, ``nodes``.
    """
    asked = {name: member for name, member in members.items() if hasattr(Question, name)}
    if "verdicts" in asked:
        asked.setdefault("why", lambda self, verdict: Status.unschedulable("no"))
    question = type(f"{plugin_name}Question", (Question,), asked)

    def ask(self: Any, pod: PodInfo, nodes: Any) -> Any:
        found = question()
        found.pod, found.nodes = pod, nodes
        return found

    own = {name: member for name, member in members.items() if name not in asked}
    return make_plugin(plugin_name, **{"asks": question, "ask": ask, **own})


class House:
    """Nodes and pods, one profile, one search over them."""

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        *,
        plugins: Sequence[str | type] = SIGNING,
        percentage: int = 0,
        seed: int = 0,
        weights: Mapping[str, int] = WEIGHTS,
        without: Collection[tuple[str, str]] = (),
        now: float = 0.0,
    ) -> None:
        """``without``: (plugin, point) pairs that the profile leaves out."""
        self.cache = Cache()
        self.nominated: Any = Nominated()
        self.rotation = Rotation()
        self.percentage = percentage
        self.random = random.Random(seed)
        #: What plugins look up.
        self.objects = LocalObjects()
        backends = Backends(
            StillClock(now),
            self.random,
            self.cache.snapshot(),
            nominations=lambda: self.nominated,
            informed=self.objects.informed,
            informed_in=self.objects.informed_in,
            watch=self.objects.watch,
            node_changed=self.cache.node_changed,
        )
        registry: Registry = in_tree_registry()
        names: list[str] = []
        for plugin in plugins:
            if isinstance(plugin, str):
                names.append(plugin)
            else:
                registry.register(plugin)
                names.append(plugin.name)  # type: ignore[attr-defined]
        able = registry.capabilities()
        points = {
            point.key: [
                (name, weights.get(name, 1))
                for name in names
                if point.key in able[name] and (name, point.key) not in without
            ]
            for point in POINTS
        }
        handle = ProfileHandle("default-scheduler", backends)
        self.framework = Framework("default-scheduler", points, registry, lambda name: None, handle, SchedulerMetrics())
        handle.framework = self.framework
        self.search = self.fresh_search()
        for node in nodes:
            self.cache.set_node(node)

    def fresh_search(self) -> Search:
        """A search that remembers nothing."""
        return Search(
            self.framework, self.cache.snapshot(), self.nominated, self.random, self.rotation, self.percentage
        )

    def add(self, *pods: Pod) -> None:
        for pod in pods:
            self.cache.add_pod(PodInfo(pod))

    def find(self, pod: Pod) -> Decision:
        """The decision of an attempt that must succeed."""
        decision = self.search.find(PodInfo(pod))
        assert isinstance(decision, Decision), decision.message()
        return decision

    def evaluate(self, pod: Pod) -> Evaluation:
        """Return the evaluation of a search that remembers nothing. Some node must fit."""
        evaluation = self.fresh_search().evaluate(CycleState(), PodInfo(pod))
        assert isinstance(evaluation, Evaluation), evaluation.message()
        return evaluation

    def names(self, rows: Any) -> list[str]:
        return [self.cache.table.info(int(row)).name for row in rows]

    def failure(self, pod: Pod, *, fresh: bool = False) -> Rejection:
        """The rejection of a pod that must not fit; ``fresh``: of a search that remembers nothing."""
        found = self.fresh_search().evaluate(CycleState(), PodInfo(pod)) if fresh else self.search.find(PodInfo(pod))
        assert isinstance(found, Rejection), f"{pod.key} fits"
        return found


def reasons(statuses: NodeStatuses) -> dict[str, tuple[int, tuple[str, ...], str]]:
    """Node to (code, reasons, plugin)."""
    return {
        name: (int(status.code), tuple(status.reasons()), status.plugin)
        for status, names in statuses.groups()
        for name in names
    }


def brute_force(house: House, pod: Pod) -> dict[str, Status | None] | Status:
    """Node to what the filters say, asked one node at a time; or PreFilter's rejection of the pod."""
    found, state = info(pod), CycleState()
    nodes = house.cache.snapshot().nodes()
    outcome = house.framework.pre_filter(state, found, nodes)
    if outcome.status is not None:
        return outcome.status
    return {
        node.name: house.framework.filter_node(state, found, house.cache.table, node)
        for node in nodes
        if outcome.nodes is None or node.name in outcome.nodes
    }


def best_names(house: House, evaluation: Evaluation) -> set[str]:
    if evaluation.totals is None:
        return set(house.names(evaluation.feasible))
    return set(house.names(evaluation.feasible[evaluation.totals == evaluation.totals.max()]))


def rows_like(value: int, dtype: Any = np.int64) -> Callable[..., Any]:
    """``verdicts`` or ``scores`` of a question that gives every row the same."""
    return lambda self, rows: np.full(len(rows), value, dtype)


def extends(plugin: type) -> frozenset[str]:
    return capabilities(plugin)
