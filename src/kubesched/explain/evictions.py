"""Evictions that would make room for a pending pod, node by node, with preemption's dry run over the profile's filters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from kubesched.scheduler.core.search import Search, prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import NodeInfo, PodInfo
from kubesched.scheduler.nodes.nominating import nominations_that_count
from kubesched.scheduler.plugins.preemption.dry_run import victims_of

from .eviction_trial import EvictionTrial
from .obstacles import OF_SCHEDULER, Obstacles, rows_without

__all__ = ["Evictions", "candidates", "evictions_for", "potential_victims"]

#: Most nodes that are tried, those with the most room first; most pods that are tried on a node, and on all nodes.
_MOST_NODES: Final = 32
_MOST_PODS: Final = 256
_MOST_TRIALS: Final = 512


@dataclass(frozen=True, slots=True)
class Evictions:
    """Pods without which the pending pod fits a node. Most often all of them are there.

    Attributes:
        node: name of the node.
        pods: the pods that have to go, as ``namespace/name``; none of them is needless.
        of: number of pods on the node.
        nodes: the node of each pod.
        frees: what they give back besides room, in words, such as claims with devices.
    """

    node: str
    pods: tuple[str, ...]
    of: int
    nodes: tuple[str, ...]
    frees: tuple[str, ...] = ()


def evictions_for(framework: Framework, search: Search, obstacles: Obstacles) -> Evictions | None:
    """The fewest evictions found that make room, of pods of any priority; None when none of the nodes tried would do."""
    state = prepared(CycleState(), False)
    best: Evictions | None = None
    try:
        outcome = framework.pre_filter(state, obstacles.pod, search.snapshot.nodes())
        if outcome.status is not None and not framework.has_active_extensions(state):
            return None
        trial = EvictionTrial(framework, search, obstacles.pod)
        left = _MOST_TRIALS
        for node in islice(candidates(framework, search, obstacles), _MOST_NODES):
            if outcome.nodes is not None and node.name not in outcome.nodes:
                continue
            potential = potential_victims(obstacles, node)
            left -= len(potential)
            if left < 0 and best is not None:
                break
            victims = _victims(framework, search, state, obstacles.pod, node, potential)
            # The plugins' accounts of a removed pod are upstream's; that of VolumeRestrictions counts two users once.
            if victims and not trial.fits(node, victims):
                victims = trial.least(node, potential)
            if victims and (best is None or len(victims) < len(best.pods)):
                ordered = sorted((one.pod.key, at.name) for at, one in victims)
                keys, names = zip(*ordered, strict=True)
                best = Evictions(node.name, keys, len(node.pods), names)
                if len(victims) == 1:
                    break
    except PluginFailedError as error:
        obstacles.note(error, "not all evictions were tried")
    return best


def candidates(
    framework: Framework, search: Search, obstacles: Obstacles, also: Collection[str] = ()
) -> Iterator[NodeInfo]:
    """Nodes whose obstacles may all be gone with some pods, the most promising first.

    Pods may be the reason for obstacles of ``also``, names of plugins, too.
    """
    may_go = {entry.name for entry in framework.filters if entry.reads_pods or not entry.is_local}
    may_go |= {OF_SCHEDULER, *also}
    staying = [obstacle for obstacle in obstacles.found if obstacle.plugin not in may_go]
    rows = obstacles.rows[rows_without(staying, len(obstacles.rows))]
    wanted, table = obstacles.pod.fit_requests, search.table
    room = np.ones(len(rows))
    for resource, amount in (("cpu", wanted.milli_cpu), ("memory", wanted.memory)):
        index = table.column(resource)
        if amount and index is not None:
            capacity = table.allocatable[index, rows]
            rows, room, capacity = rows[capacity >= amount], room[capacity >= amount], capacity[capacity >= amount]
            room = np.minimum(room, (capacity - table.requested[index, rows]) / amount)
    return map(table.info, rows[np.argsort(-room, kind="stable")].tolist())


def potential_victims(obstacles: Obstacles, node: NodeInfo) -> list[tuple[NodeInfo, PodInfo]]:
    """The pods that may have to go: those of the node, and those elsewhere that demands name; none when too many."""
    found = {one.uid: (node, one) for one in node.pods.values()}
    place = int(np.argmax(obstacles.rows == node.row))
    for obstacle in obstacles.found:
        if obstacle.demand is not None and obstacle.stands[place]:
            found.update((one.uid, (at, one)) for at, one in obstacle.demand.holders(node.row))
    return list(found.values()) if len(found) <= _MOST_PODS else []


def _victims(
    framework: Framework,
    search: Search,
    state: CycleState,
    pod: PodInfo,
    node: NodeInfo,
    potential: Sequence[tuple[NodeInfo, PodInfo]],
) -> list[tuple[NodeInfo, PodInfo]]:
    """The pods that have to go: all leave, and come back in order of priority as long as the pod still fits."""
    nominated = nominations_that_count(search.nominations.nominated_pods_for_node(node.name), pod)
    if not potential:
        return []

    def groups() -> list[list[PodInfo]]:
        return [sorted((one for _, one in potential), key=lambda other: (-other.priority, other.pod.key))]

    found = victims_of(framework, search.snapshot, state, pod, node, nominated, potential, groups)
    if isinstance(found, Status):
        return []
    home = {one.uid: at for at, one in potential}
    return [(home[one.uid], one) for victims in found for one in victims]
