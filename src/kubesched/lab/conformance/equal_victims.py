"""Equally important victims, which upstream reprieves in a random order.

Pods that may be victims are compared by priority, then by start time; a pod that has not started counts as started now.
Upstream sorts equal ones by an unstable algorithm, from an order that changes when pods leave the node, and reads the
clock at each comparison. So any order of equal pods is right, and any set of victims that follows from it.

For one reading of a vector the pods of each node are put into an order that leads to the recorded victims, if one of
the tried orders does (:func:`_orders`). Nothing else is changed: the plugins find the victims by themselves, and each
record is compared as always, except that equal victims may be listed in any order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from kubesched.scheduler.framework.interface import NodeToStatus
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.nodes import NodeList, NodeTable
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.preemption.importance import importance

from .candidates import JSON, ListsCandidates, Question, listed, lister
from .world import World
from .written_attempt import rejection_of

__all__ = ["arrange", "has_equal_victims", "in_any_order"]

#: Random orders that are tried for a node, after the likely ones.
_TRIES: Final = 200


def has_equal_victims(world: World) -> bool:
    """True if some node has running pods of equal importance."""
    now = world.clock.now()
    for node in world.snapshot.nodes():
        keys = [importance(pod, now) for pod in node.pods.values()]
        if len(set(keys)) < len(keys):
            return True
    return False


def in_any_order(world: World, candidates: Mapping[str, JSON]) -> JSON:
    """Return candidates with equal victims sorted by name. Victims out of order of importance stay as they are."""
    now = world.clock.now()
    known = {pod.key: importance(pod, now) for pod in world.cache.pods.values()}

    def sorted_victims(victims: Sequence[str]) -> list[str]:
        ranks = [known.get(key, (0, 0.0)) for key in victims]
        return (
            sorted(victims, key=lambda key: (known.get(key, (0, 0.0)), key)) if ranks == sorted(ranks) else [*victims]
        )

    return {node: {**each, "victims": sorted_victims(each["victims"])} for node, each in candidates.items()}


def arrange(world: World, pod: PodInfo, record: JSON) -> None:
    """Put the pods of nodes into an order that leads to the recorded candidates, if there is such an order."""
    wanted = in_any_order(world, record.get("candidates", {}))
    plugin = lister(world, pod)
    if plugin is None or not wanted:
        return
    rejection = rejection_of(world, pod)
    question = (rejection.state, pod, rejection.diagnosis.statuses)
    found = in_any_order(world, listed(plugin, question)["candidates"])
    for name, want in wanted.items():
        if found.get(name) != want:
            _arrange_node(world, plugin, question, name, want)


def _arrange_node(world: World, plugin: ListsCandidates, question: Question, name: str, want: JSON) -> None:
    state, pod, statuses = question
    row = world.cache.table.row_of(name)
    if row is None:
        return
    node = world.cache.table.info(row)
    only = _OneNode(statuses, world.cache.table, row)
    for order in _orders(world, node, set(want["victims"])):
        for each in order:
            world.cache.remove_pod(each.pod)
            world.cache.add_pod(each)
        if in_any_order(world, listed(plugin, (state.clone(), pod, only))["candidates"]).get(name) == want:
            return


class _OneNode:
    """Statuses of nodes that let preemption help on one node only."""

    def __init__(self, statuses: NodeToStatus, table: NodeTable, row: int) -> None:
        self._statuses = statuses
        self._nodes = NodeList(table, np.array([row], np.intp))

    def get(self, name: str) -> Status:
        return self._statuses.get(name)

    def __len__(self) -> int:
        return len(self._statuses)

    def nodes_for_code(self, code: Code) -> NodeList:
        return self._nodes

    def rejecting(self, code: Code) -> frozenset[str]:
        return self._statuses.rejecting(code)


def _orders(world: World, node: NodeInfo, victims: set[str]) -> Iterator[list[PodInfo]]:
    """Yield orders of a node's pods to try. Only the order of equally important pods matters.

    In the first two orders the pods that stay by the record come before the victims, or after them. This finds every
    possible set of victims unless disruption budgets count. If they do, random orders of equal pods follow.
    """
    pods = list(node.pods.values())
    stay, leave = ([pod for pod in pods if (pod.key in victims) is side] for side in (False, True))
    yield stay + leave
    yield leave + stay
    if not world.objects.informed("poddisruptionbudgets"):
        return
    rng = random.Random(0)
    now = world.clock.now()
    ranked = sorted(pods, key=lambda pod: importance(pod, now))
    groups = [list(group) for _, group in groupby(ranked, key=lambda pod: importance(pod, now))]
    for _ in range(_TRIES):
        yield [pod for group in groups for pod in _shuffled(rng, group)]


def _shuffled(rng: random.Random, pods: Iterable[PodInfo]) -> list[PodInfo]:
    shuffled = list(pods)
    rng.shuffle(shuffled)
    return shuffled
