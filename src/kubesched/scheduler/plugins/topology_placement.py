"""TopologyPlacementGenerator: one placement per value of the node label that a pod group names (PlacementGenerate).

Members that have a node already decide the value. Source: rules/groups §13.2.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..framework.cycle_state import CycleState
from ..framework.interface import Plugin
from ..framework.placements import GroupToPlace
from ..framework.status import Status
from ..nodes import NodeList, NodeTable
from ..nodes.columns import ABSENT, equal_places
from ..nodes.pod_groups import PodGroupState

__all__ = ["TopologyPlacementGenerator"]

#: Values of the label, each with the nodes that have it.
_Domains = Iterable[tuple[str, NodeList]]


class TopologyPlacementGenerator(Plugin):
    """Placements of groups that must be in one topology domain, such as a rack."""

    name = "TopologyPlacementGenerator"
    informs = ("podgroups",)

    def placements(self, state: CycleState, group: GroupToPlace, nodes: NodeList) -> _Domains | Status | None:
        found = self.handle.informed("podgroups").get(group.key)
        if found is None:
            name = group.key.partition("/")[2]
            return Status.from_error(f'podgroup.scheduling.k8s.io "{name}" not found')
        constraints = found.spec.scheduling_constraints
        if constraints is None or not constraints.topology:
            return None
        key = constraints.topology[0].key
        members = self.handle.pod_groups.get(group.key) if self.handle.pod_groups is not None else None
        if members is None:
            return Status.from_error(f"pod group state not found for pod group {group.key}")
        wanted = self._domain(key, members)
        if isinstance(wanted, Status):
            return wanted
        return _domains(nodes, self.handle.snapshot.table, key, wanted)

    def confined_by(self, key: str) -> str:
        """Return the label whose values are the placements of the group ``key``; "" if it may go anywhere."""
        group = self.handle.informed("podgroups").get(key)
        constraints = group.spec.scheduling_constraints if group is not None else None
        return constraints.topology[0].key if constraints is not None and constraints.topology else ""

    def _domain(self, key: str, members: PodGroupState) -> str | Status | None:
        """Return the value that members with a node have in common; None if no member has one."""
        table = self.handle.snapshot.table
        wanted: str | None = None
        for pod in members.scheduled_pods():
            name = pod.spec.node_name
            info = table.get(name)
            if info is None or info.node is None:
                return _unknown(f'getting node for pod {pod.key}: nodeinfo not found for node name "{name}"')
            value = info.node.metadata.labels.get(key)
            if value is None:
                return _unknown(f"no topology domain found for pod {pod.key}")
            if wanted is not None and value != wanted:
                first, second = sorted((wanted, value))
                return _unknown(f"more than 1 domain found for pod group: {first}, {second}")
            wanted = value
        return wanted


def _unknown(text: str) -> Status:
    return Status.from_error(f"cannot determine domain for already scheduled pods: {text}")


def _domains(nodes: NodeList, table: NodeTable, key: str, wanted: str | None) -> _Domains:
    column, rows = table.labels.column(key), nodes.rows
    codes = column.codes[rows]
    for code, places in equal_places(codes):
        if code != ABSENT and wanted in (None, column.values[code]):
            yield column.values[code], NodeList(table, rows[places])
