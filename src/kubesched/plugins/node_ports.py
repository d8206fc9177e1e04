"""NodePorts: a node whose host ports are taken is no place for a pod that wants them (PreFilter, Filter)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from kubesched.api.types import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from kubesched.framework.interface import Plugin, Reads, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo, PortTable
from kubesched.framework.podinfo import HostPort, PodInfo, host_ports
from kubesched.framework.status import Status

from . import names

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["NodePorts"]


class NodePorts(Plugin):
    """Only rows in the table's port index are evaluated one by one; the rest pass."""

    name = names.NODE_PORTS
    signs_spec = True
    reads: ClassVar[Reads] = Reads.PODS
    REASON: Final = "node(s) didn't have free ports for the requested pod ports"

    def sign(self, pod: PodInfo) -> Hashable | None:
        """All of ip, protocol and port: upstream's signature leaves the first two out (quirk Q9, fixed)."""
        return pod.ports

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        if not pod.ports:
            return Status.skip()
        state.write(self.name, pod.ports)
        return None

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        taken = np.zeros(nodes.capacity, np.uint64)
        for wanted in self._wanted(state):
            for row in nodes.port_rows.get(wanted[1:], ()):
                if nodes.info(row).used_ports.conflicts(wanted):
                    taken[row] = 1
        return taken[rows]

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        return int(any(node.used_ports.conflicts(wanted) for wanted in self._wanted(state)))

    def _wanted(self, state: CycleState) -> tuple[HostPort, ...]:
        """The ports that PreFilter wrote; a profile with Filter but without PreFilter fails the attempt, as upstream.

        Raises:
            KeyError: ``not found``.
        """
        ports: tuple[HostPort, ...] = state.read(self.name)
        return ports

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return Status.unschedulable(self.REASON)

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
