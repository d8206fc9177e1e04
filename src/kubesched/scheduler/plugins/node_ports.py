"""NodePorts: keep a pod that wants host ports off nodes where they are taken (PreFilter, Filter)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kubesched.api.types import Pod

from ..framework.demand import Demand
from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ..framework.interface import Plugin
from ..framework.question import Question, Reads, RowArray, VerdictArray
from ..framework.status import Status
from ..nodes.nodeinfo import NodeInfo, PortTable
from ..nodes.podinfo import PodInfo, host_ports
from .demands import node as node_demands

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable

__all__ = ["NodePorts"]


class _WantedPorts(Question):
    """Question about a pod's host ports. Only rows in the table's port index are evaluated; the rest pass."""

    by_spec = True
    reads = Reads.PODS

    def __init__(self, pod: PodInfo, nodes: NodeTable) -> None:
        #: IP, protocol and port. Upstream's signature has the port only (rules/node-plugins §11 quirk Q9, fixed).
        self.key = self._ports = pod.ports
        self._nodes = nodes

    def pre_filter(self, nodes: NodeList) -> Status | None:
        return None if self._ports else Status.skip()

    def verdicts(self, rows: RowArray) -> VerdictArray:
        nodes = self._nodes
        taken = np.zeros(nodes.capacity, np.uint64)
        for wanted in self._ports:
            for row in nodes.port_rows.get(wanted[1:], ()):
                if nodes.info(row).used_ports.conflicts(wanted):
                    taken[row] = 1
        return taken[rows]

    def verdict(self, node: NodeInfo) -> int:
        return int(any(node.used_ports.conflicts(wanted) for wanted in self._ports))

    def why(self, verdict: int) -> Status:
        return Status.unschedulable(NodePorts.REASON)


class NodePorts(Plugin):
    """Check of host ports. Its question is :class:`_WantedPorts`."""

    name = "NodePorts"
    asks = _WantedPorts
    REASON: Final = "node(s) didn't have free ports for the requested pod ports"

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _WantedPorts(pod, nodes)

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return node_demands.ports(pod, nodes)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            ClusterEventWithHint(ClusterEvent(EventResource.POD, ActionType.DELETE), self._after_pod_delete),
            ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD)),
        ]

    def _after_pod_delete(self, pod: PodInfo, old: Pod, new: Pod | None) -> QueueingHint:
        if not old.spec.node_name and not old.status.nominated_node_name:
            return QueueingHint.SKIP
        freed = PortTable()
        freed.add(host_ports(old))
        return QueueingHint.QUEUE if any(freed.conflicts(wanted) for wanted in pod.ports) else QueueingHint.SKIP
