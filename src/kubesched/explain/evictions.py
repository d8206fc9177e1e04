"""Evictions that would make room for a pending pod, node by node, with the profile's own filters in a what-if."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubesched.scheduler.core.search import Search, prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import NodeInfo, PodInfo

from .obstacles import Obstacles, rows_without

__all__ = ["Evictions", "evictions_for"]

#: Most nodes that are tried, those with the most room first, and most pods on a node that is tried.
_MOST_NODES: Final = 32
_MOST_PODS: Final = 256


@dataclass(frozen=True, slots=True)
class Evictions:
    """Pods of one node without which the pending pod fits there.

    Attributes:
        node: name of the node.
        pods: the pods that have to go, as ``namespace/name``; none of them is needless.
        of: number of pods on the node.
    """

    node: str
    pods: tuple[str, ...]
    of: int


def evictions_for(framework: Framework, search: Search, obstacles: Obstacles) -> Evictions | None:
    """The fewest evictions found, of pods of any priority; None when none of the nodes that were tried would do."""
    state = prepared(CycleState(), False)
    try:
        outcome = framework.pre_filter(state, obstacles.pod, search.snapshot.nodes())
        if outcome.status is not None and not framework.has_active_extensions(state):
            return None
        best: Evictions | None = None
        for node in _candidates(framework, search, obstacles):
            if outcome.nodes is not None and node.name not in outcome.nodes:
                continue
            pods = _needless(framework, search, state, obstacles.pod, node)
            if pods and (best is None or len(pods) < len(best.pods)):
                best = Evictions(node.name, tuple(sorted(pod.pod.key for pod in pods)), len(node.pods))
    except PluginFailedError:
        return None
    return best


def _candidates(framework: Framework, search: Search, obstacles: Obstacles) -> list[NodeInfo]:
    """Nodes whose obstacles may all be gone with their pods, the most promising first."""
    may_go = {entry.name for entry in framework.filters if entry.reads_pods or not entry.is_local}
    staying = [obstacle for obstacle in obstacles.found if obstacle.plugin not in may_go]
    rows = obstacles.rows[rows_without(staying, len(obstacles.rows))]
    nodes = [node for row in rows.tolist() if 0 < len((node := search.table.info(row)).pods) <= _MOST_PODS]
    wanted = obstacles.pod.fit_requests
    return sorted(nodes, key=lambda node: -_room(node, wanted.milli_cpu, wanted.memory))[:_MOST_NODES]


def _room(node: NodeInfo, milli_cpu: int, memory: int) -> float:
    """How much of the wanted amounts is free on a node; 1 is all."""
    free_cpu = node.allocatable.milli_cpu - node.requested.milli_cpu
    free_memory = node.allocatable.memory - node.requested.memory
    shares = [min(1.0, free_cpu / milli_cpu) if milli_cpu else 1.0, min(1.0, free_memory / memory) if memory else 1.0]
    return min(shares)


def _needless(framework: Framework, search: Search, state: CycleState, pod: PodInfo, node: NodeInfo) -> list[PodInfo]:
    """The pods that a node has to lose: all leave, and come back in order of priority as long as the pod still fits."""
    state, snapshot = state.clone(), search.snapshot
    staying = sorted(node.pods.values(), key=lambda other: (-other.priority, other.pod.key))
    victims: list[PodInfo] = []
    with snapshot.what_if(node) as trial:
        for other in staying:
            trial.remove(other)
            framework.remove_pod(state, pod, other, node)
        if framework.filter_with_nominated(state, pod, snapshot, node, ()) is not None:
            return []
        for other in staying:
            trial.add(other)
            framework.add_pod(state, pod, other, node)
            if framework.filter_with_nominated(state, pod, snapshot, node, ()) is not None:
                trial.remove(other)
                framework.remove_pod(state, pod, other, node)
                victims.append(other)
    return victims
