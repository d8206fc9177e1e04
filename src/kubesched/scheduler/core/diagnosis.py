"""Diagnosis of a pod that fits no node: a status per node, the plugins that rejected the pod, and the text of both.

The search leaves its verdicts as arrays. Texts and statuses are only made when they are read: once per distinct
outcome, not once per node. A rejection is a value that the search returns.

Source: rules/framework §3, rules/cycle §7.1 (upstream ``Diagnosis``, ``NodeToStatus``, ``FitError``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..framework.cycle_state import CycleState
from ..framework.fit_error import fit_error_text
from ..framework.interface import VerdictArray
from ..framework.status import Code, Status
from ..nodes import NodeList, NodeTable
from ..nodes.columns import RowArray, equal_places

__all__ = ["Decoder", "Diagnosis", "NodeStatuses", "Rejection"]

#: Function from (owner, verdict) to the status. The owner is 1 + the index of the filter that rejected the node.
Decoder = Callable[[int, int], Status]

#: Most distinct outcomes that are searched for one by one, each with a pass over all rows. The rows that remain are
#: sorted.
_FEW_OUTCOMES: Final = 6
_ABSENT: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)


class NodeStatuses:
    """Statuses of nodes (upstream ``NodeToStatus``), grouped by distinct outcome.

    A node without a status of its own has the ``absent`` status. Nodes are kept by row of the node table, so an
    instance is valid within its attempt; :meth:`freeze` makes it last.
    """

    def __init__(self, table: NodeTable | None = None) -> None:
        self._table = table
        self._groups: list[tuple[Status, RowArray]] = []
        self._single: dict[str, Status] = {}
        self.absent = _ABSENT
        self._text: tuple[tuple[int, Status], str] | None = None
        self._group_of: npt.NDArray[np.int32] | None = None
        #: Answers of nodes_for_code and rejecting, by code, until the statuses change.
        self._nodes: dict[Code, NodeList] = {}
        self._rejecting: dict[Code, frozenset[str]] = {}

    def set(self, name: str, status: Status) -> None:
        """Set one node's status, in place of an earlier one."""
        self._changed()
        row = self._table.row_of(name) if self._table is not None else None
        if row is not None:
            groups = [(kept, rows[rows != row]) for kept, rows in self._groups]
            self._groups = [(kept, rows) for kept, rows in groups if len(rows)]
        self._single[name] = status

    def groups(self) -> Iterator[tuple[Status, list[str]]]:
        """Yield each distinct status with the names of its nodes."""
        for status, rows in self._groups:
            assert self._table is not None
            yield status, [self._table.info(row).name for row in rows.tolist()]
        for name, status in self._single.items():
            yield status, [name]

    def by_row(self) -> Iterator[tuple[Status, list[int]]]:
        """Yield each distinct status with the rows of its nodes; the rest has the status ``absent``. Not after a freeze."""
        for status, rows in self._groups:
            yield status, rows.tolist()
        for name, status in self._single.items():
            row = self._table.row_of(name) if self._table is not None else None
            if row is not None:
                yield status, [row]

    def distinct(self) -> Iterator[Status]:
        """Return each distinct status of some node, without ``absent``."""
        return (status for status, _ in self._counted())

    def _counted(self) -> Iterator[tuple[Status, int]]:
        """Yield each distinct status with the number of its nodes."""
        yield from ((status, len(rows)) for status, rows in self._groups)
        yield from ((status, 1) for status in self._single.values())

    def counts(self, all_nodes: int) -> list[tuple[Status, int]]:
        """Return each distinct status with its number of nodes. Of ``all_nodes``, the rest has the ``absent`` status."""
        counted = list(self._counted())
        left = all_nodes - sum(nodes for _, nodes in counted)
        return [*counted, (self.absent, left)] if left > 0 else counted

    def freeze(self) -> None:
        """Keep the statuses by node name, because rows may belong to other nodes later."""
        for status, names in list(self.groups()):
            self._single.update(dict.fromkeys(names, status))
        self._groups = []
        self._changed()

    def _changed(self) -> None:
        self._text = self._group_of = None
        self._nodes.clear()
        self._rejecting.clear()

    def histogram(self, all_nodes: int) -> Counter[str]:
        """Count the nodes by reason. There are ``all_nodes`` nodes; the nodes without a status of their own count for
        ``absent``.
        """
        counts: Counter[str] = Counter()
        left = all_nodes
        for status, nodes in self._counted():
            left -= nodes
            for reason in status.reasons():
                counts[reason] += nodes
        if left > 0:
            for reason in self.absent.reasons():
                counts[reason] += left
        return counts

    def text(self, all_nodes: int) -> str:
        """Return the histogram in words. It is made once: pods that are alike share their statuses."""
        asked = all_nodes, self.absent
        if self._text is None or self._text[0] != asked:
            self._text = asked, fit_error_text(all_nodes, self.histogram(all_nodes))
        return self._text[1]

    def get(self, name: str) -> Status:
        single = self._single.get(name)
        if single is not None:
            return single
        row = self._table.row_of(name) if self._table is not None else None
        if row is not None:
            for status, rows in self._groups:
                if (rows == row).any():
                    return status
        return self.absent

    def at(self, row: int) -> Status | None:
        """Return the own status of a row's node, or None. The first call makes an index, so many calls are cheap."""
        assert self._table is not None
        if self._group_of is None:
            self._group_of = np.full(self._table.capacity, -1, np.int32)
            for number, (_, rows) in enumerate(self._groups):
                self._group_of[rows] = number
        number = self._group_of.item(row) if row < len(self._group_of) else -1
        if number >= 0:
            return self._groups[number][0]
        info = self._table.infos[row]
        return self._single.get(info.name) if info is not None else None

    def __len__(self) -> int:
        return sum(nodes for _, nodes in self._counted())

    def nodes_for_code(self, code: Code) -> NodeList:
        """Return the nodes whose status has ``code``, in the order of the node list."""
        found = self._nodes.get(code)
        if found is None:
            found = self._nodes[code] = self._find_nodes(code)
        return found

    def _find_nodes(self, code: Code) -> NodeList:
        table = self._table
        assert table is not None
        alike = not self._single and all(status.code is code for status, _ in self._groups)
        if alike and sum(len(rows) for _, rows in self._groups) == len(table):
            return NodeList(table, table.order())
        wanted = np.full(table.capacity, self.absent.code is code)
        for status, rows in self._groups:
            wanted[rows] = status.code is code
        for name, status in self._single.items():
            row = table.row_of(name)
            if row is not None:
                wanted[row] = status.code is code
        rows = table.order()
        return NodeList(table, rows[wanted[rows]])

    def rejecting(self, code: Code) -> frozenset[str]:
        """Return the names of the plugins that rejected nodes with ``code``."""
        found = self._rejecting.get(code)
        if found is None:
            plugins = frozenset(status.plugin for status in self.distinct() if status.code is code)
            found = self._rejecting[code] = plugins
        return found

    @classmethod
    def from_arrays(
        cls, table: NodeTable, rows: RowArray, owners: RowArray, verdicts: VerdictArray, decode: Decoder
    ) -> NodeStatuses:
        """Group the rejected rows (``owners`` > 0) by outcome.

        ``rows``, ``owners`` and ``verdicts`` have one element per examined row; ``decode`` turns an outcome into its
        status.
        """
        result = cls(table)
        if not len(owners):
            return result
        left = owners > 0
        for _ in range(_FEW_OUTCOMES):
            first = int(left.argmax())
            if not left[first]:
                return result
            owner, verdict = owners[first], verdicts[first]
            same = left & (owners == owner)
            same &= verdicts == verdict
            result._groups.append((decode(int(owner), int(verdict)), rows[same]))
            left ^= same
        rows, owners, verdicts = rows[left], owners[left], verdicts[left]
        for number, mine in equal_places(owners):
            for code, places in equal_places(verdicts[mine]):
                result._groups.append((decode(number, code), rows[mine[places]]))
        return result


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Reasons why a pod was rejected: an immutable value.

    The queue waits for the events of ``unschedulable_plugins``: the plugins that rejected the pod. ``pending_plugins``
    are the plugins among them that answered Pending.
    """

    statuses: NodeStatuses
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    pre_filter_message: str = ""
    post_filter_message: str = ""

    @classmethod
    def of(
        cls,
        statuses: NodeStatuses,
        rejections: Iterable[Status],
        restricting: Iterable[str] = (),
        pre_filter_message: str = "",
    ) -> Diagnosis:
        """Make a diagnosis that names the plugins of ``rejections``, and the ``restricting`` plugins.

        A restricting plugin left nodes out at PreFilter.
        """
        blamed = [status for status in rejections if status.plugin and status.is_rejected]
        return cls(
            statuses,
            frozenset((*restricting, *(status.plugin for status in blamed))),
            frozenset(status.plugin for status in blamed if status.code is Code.PENDING),
            pre_filter_message,
        )


@dataclass(frozen=True, slots=True)
class Rejection:
    """Rejection of a pod (upstream ``FitError``): there are no nodes, none fits, or a plugin rejected the chosen node.

    Attributes:
        all_nodes: number of nodes in the cluster; 1 if the chosen node was rejected.
        diagnosis: the reasons.
        state: the attempt's state, for PostFilter.
    """

    all_nodes: int
    diagnosis: Diagnosis
    state: CycleState

    @classmethod
    def without_nodes(cls, state: CycleState) -> Rejection:
        """Return the rejection in a cluster without nodes."""
        return cls(0, Diagnosis(NodeStatuses()), state)

    @classmethod
    def on_chosen_node(cls, node_name: str, status: Status, state: CycleState) -> Rejection:
        """Return the rejection of a pod on its chosen node. Reserve or Permit rejected it, at once or after a wait."""
        statuses = NodeStatuses()
        statuses.set(node_name, status)
        return cls(1, Diagnosis.of(statuses, [status]), state)

    def with_post_filter(self, message: str) -> Rejection:
        """Return this rejection with PostFilter's message."""
        why = self.diagnosis
        diagnosis = Diagnosis(
            why.statuses, why.unschedulable_plugins, why.pending_plugins, why.pre_filter_message, message
        )
        return Rejection(self.all_nodes, diagnosis, self.state)

    def message(self) -> str:
        """Return the text for the pod's event and condition (rules/cycle §7.1)."""
        if not self.all_nodes:
            return "no nodes available to schedule pods"
        diagnosis = self.diagnosis
        if diagnosis.pre_filter_message:
            text = f"{fit_error_text(self.all_nodes, {})} {diagnosis.pre_filter_message}."
        else:
            text = diagnosis.statuses.text(self.all_nodes)
        if diagnosis.post_filter_message:
            text += f" {diagnosis.post_filter_message}"
        return text
