"""One more node of a kind: would a pending pod fit an empty copy of a node that there is already?

The copy is in the node table within a what-if, so all filters see it, with the pods on the nodes that there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from kubesched.api.types import Node, NodeStatus
from kubesched.scheduler.core.search import Search, prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import NodeInfo, NodeTable
from kubesched.scheduler.nodes.columns import RowArray

from .foreign import what_if
from .obstacles import Obstacles, rows_without

__all__ = ["NewNode", "belongings", "copy_of", "kinds_of", "new_nodes_for"]

#: Most kinds of nodes that are tried, the most frequent first; and nodes that are grouped into kinds.
_MOST_KINDS: Final = 4
_MOST_GROUPED: Final = 2000
_HOSTNAME: Final = "kubernetes.io/hostname"
#: Prefix of taints that a node's state brings about; a new node has none.
_STATE: Final = "node.kubernetes.io/"
#: Plugins whose rejections a new node need not have: it is not cordoned, and has no taints of a state.
_OF_STATE: Final = ("NodeUnschedulable", "TaintToleration")


@dataclass(frozen=True, slots=True)
class NewNode:
    """Kind of node of which one more lets the pod run.

    Attributes:
        like: name of a node of the kind.
        count: number of the kind's nodes, among those that were grouped.
        node: the copy that was tried.
    """

    like: str
    count: int
    node: Node


def new_nodes_for(framework: Framework, search: Search, obstacles: Obstacles) -> list[NewNode]:
    """The kinds of nodes of which one more would let the pod run, the most frequent first."""
    return [
        NewNode(like.name, count, copy)
        for like, count in kinds_of(framework, search.table, obstacles)
        if _fits(framework, search, obstacles, like, copy := copy_of(search.table, like))
    ]


def copy_of(table: NodeTable, like: NodeInfo) -> Node:
    """A new node like another: its labels but the hostname, its taints but those of its state, its amounts."""
    node = like.node
    assert node is not None
    name = f"{node.name}-new"
    while table.get(name) is not None:
        name += "-new"
    labels = {key: name if key == _HOSTNAME else value for key, value in node.metadata.labels.items()}
    taints = tuple(taint for taint in node.spec.taints if not taint.key.startswith(_STATE))
    status = NodeStatus(allocatable=node.status.allocatable, declared_features=node.status.declared_features)
    return Node(
        metadata=replace(node.metadata, name=name, uid=name, labels=labels),
        spec=replace(node.spec, unschedulable=False, taints=taints),
        status=status,
    )


def kinds_of(framework: Framework, table: NodeTable, obstacles: Obstacles) -> list[tuple[NodeInfo, int]]:
    """The first node of each kind that is large enough and has the right labels, with the number of such nodes."""
    may_change = {
        entry.name
        for entry in framework.filters
        if entry.reads_pods or not entry.is_local or entry.name in _OF_STATE or hasattr(entry.plugin, "new_node")
    }
    staying = [obstacle for obstacle in obstacles.found if obstacle.plugin not in may_change]
    rows = obstacles.rows[rows_without(staying, len(obstacles.rows))]
    wanted = obstacles.pod.fit_requests
    amounts = {"cpu": wanted.milli_cpu, "memory": wanted.memory, "ephemeral-storage": wanted.ephemeral_storage}
    for resource, amount in amounts.items():
        index = table.column(resource)
        if amount and index is not None:
            rows = rows[table.allocatable[index, rows] >= amount]
    kinds: dict[object, tuple[NodeInfo, int]] = {}
    for row in _sample(rows).tolist():
        info = table.info(row)
        labels = frozenset((key, value) for key, value in info.labels.items() if key != _HOSTNAME)
        taints = tuple(taint for taint in info.taints if not taint.key.startswith(_STATE))
        key = (labels, taints, tuple(table.allocatable[: len(table.resource_index), row].tolist()))
        first, count = kinds.get(key, (info, 0))
        kinds[key] = (first, count + 1)
    return sorted(kinds.values(), key=lambda one: (-one[1], one[0].name))[:_MOST_KINDS]


def _sample(rows: RowArray) -> RowArray:
    """Return a sample of the rows, evenly spread: at most as many as are grouped."""
    step = -(-len(rows) // _MOST_GROUPED)
    return rows[:: max(1, step)]


def belongings(framework: Framework, name: str, like: NodeInfo) -> Iterator[AbstractContextManager[object]]:
    """What-ifs of what belongs to a node besides its object, by plugin."""
    for plugin in framework.plugins.values():
        if hasattr(plugin, "new_node"):
            yield what_if(plugin.name, "new_node", partial(plugin.new_node, name, like))


def _fits(framework: Framework, search: Search, obstacles: Obstacles, like: NodeInfo, copy: Node) -> bool:
    """True if all filters let the pod run on the copy."""
    pod, table = obstacles.pod, search.table
    state = prepared(CycleState(), False)
    try:
        with ExitStack() as stack:
            new = stack.enter_context(search.snapshot.with_node(copy))
            for belonging in belongings(framework, copy.name, like):
                stack.enter_context(belonging)
            outcome = framework.pre_filter(state, pod, search.snapshot.nodes())
            if outcome.status is not None or (outcome.nodes is not None and copy.name not in outcome.nodes):
                return False
            return framework.filter_node(state, pod, table, new) is None
    except PluginFailedError as error:
        obstacles.note(error, f"one more node like {like.name} was not tried")
        return False
