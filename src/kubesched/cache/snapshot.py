"""The cluster as one scheduling cycle sees it, and what-if questions about it.

A cycle is synchronous and nothing else runs meanwhile, so a snapshot is the node table itself, not a copy.
What-if changes are made in place and undone on leaving the ``with`` block; they leave no trace in the
change journal, so cached answers about the real state stay valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo

from .columns import RowArray
from .node_table import NodeTable

__all__ = ["NodeList", "Snapshot"]


class NodeList(Sequence[NodeInfo]):
    """Some rows of the table as a sequence of NodeInfo; ``rows`` (int32[n]) is what column code reads."""

    __slots__ = ("_table", "rows")

    def __init__(self, table: NodeTable, rows: RowArray) -> None:
        self._table = table
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> NodeInfo:  # type: ignore[override]  # slices are not needed
        return self._table.info(int(self.rows[index]))

    def __iter__(self) -> Iterator[NodeInfo]:
        info = self._table.info
        return (info(row) for row in self.rows.tolist())

    def names(self) -> list[str]:
        return [node.name for node in self]


class Snapshot:
    """Read access to all nodes in list order, plus :meth:`without` and :meth:`with_pods`."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table

    def nodes(self) -> NodeList:
        """All nodes, round robin over zones."""
        return NodeList(self.table, self.table.order())

    def get(self, name: str) -> NodeInfo:
        """One node.

        Raises:
            KeyError: ``nodeinfo not found for node name "…"``.
        """
        row = self.table.row_of(name)
        if row is None:
            raise KeyError(f'nodeinfo not found for node name "{name}"')
        return self.table.info(row)

    def is_pvc_used(self, key: str) -> bool:
        """Whether a scheduled pod uses the claim ``namespace/name``."""
        return key in self.table.pvc_counts

    @contextmanager
    def without(self, victims: Iterable[tuple[NodeInfo, PodInfo]]) -> Iterator[None]:
        """The cluster as if these pods were not on these nodes.

        Raises:
            KeyError: when a pod is not on its given node; nothing is changed then.
        """
        taken: list[tuple[NodeInfo, PodInfo]] = []
        saved: dict[int, _RowState] = {}
        try:
            for node, pod in victims:
                saved.setdefault(node.row, _RowState(node))
                taken.append((node, self.table.remove_pod(node.row, pod.uid, journal=False)))
            yield
        finally:
            for node, pod in reversed(taken):
                self.table.add_pod(node.row, pod, journal=False)
            for state in saved.values():
                state.restore(self.table)

    @contextmanager
    def with_pods(self, node: NodeInfo, pods: Iterable[PodInfo]) -> Iterator[None]:
        """The cluster as if these pods were on ``node`` as well."""
        saved = _RowState(node)
        added: list[str] = []
        try:
            for pod in pods:
                self.table.add_pod(node.row, pod, journal=False)
                added.append(pod.uid)
            yield
        finally:
            for uid in reversed(added):
                self.table.remove_pod(node.row, uid, journal=False)
            saved.restore(self.table)


class _RowState:
    """What adding back does not restore by itself: the order of the pods, and ports held by several pods."""

    __slots__ = ("_by_ip", "_node", "_pods")

    def __init__(self, node: NodeInfo) -> None:
        self._node = node
        self._pods = dict(node.pods)
        self._by_ip = {ip: set(used) for ip, used in node.used_ports.by_ip.items()}

    def restore(self, table: NodeTable) -> None:
        node = self._node
        node.pods = self._pods
        if node.used_ports.by_ip != self._by_ip:
            table.set_ports(node.row, self._by_ip)
