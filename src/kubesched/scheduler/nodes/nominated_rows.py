"""The pods nominated to each row that count for pods of one priority, kept up to date by the nominator's changes.

Counting are nominated pods of equal or higher priority. Read by the decision core (filters with nominated pods) and by
preemption, so that neither has to go through all nominations for every pod.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import numpy as np

from kubesched.api.quantity import INT64_MAX
from kubesched.base.change_log import ChangeLog, Follower

from .columns import IntArray
from .node_table import CPU_ROW, EPHEMERAL_ROW, MEMORY_ROW, PODS_ROW, NodeTable
from .nominating import Nominations
from .podinfo import PodInfo

__all__ = ["NominatedPods", "NominatedRows", "requested_by"]

#: So many priorities are kept, the least recently used go first.
_MOST: Final = 16
_KEPT_CHANGES: Final = 1 << 14
_NO_PODS: Final[list[PodInfo]] = []


class NominatedPods:
    """What counts for one priority.

    Attributes:
        pods: row to the pods nominated there that count, oldest nomination first; no empty lists.
        row_of: UID to row, of those pods.
        log: the rows whose nominations changed.
    """

    def __init__(self, table: NodeTable, nominations: Nominations, priority: int) -> None:
        self._table = table
        self._nominations = nominations
        self._priority = priority
        self._changes = Follower(nominations.changed)
        self._membership = -1
        self.pods: dict[int, list[PodInfo]] = {}
        self.row_of: dict[str, int] = {}
        self.log: ChangeLog[int] = ChangeLog(_KEPT_CHANGES)
        self._amounts = np.zeros((0, 0), np.int64)
        self._unsummed = Follower(self.log)

    def refresh(self) -> None:
        """Catch up with the nominator, and with nodes that came or went."""
        names = self._changes.read()
        if names is None or self._membership != self._table.membership_version:
            self.pods.clear()
            self.row_of.clear()
            self.log.forget()
            self._membership = self._table.membership_version
            names = list(self._nominations.nominated_nodes())
        for name in dict.fromkeys(names):
            row = self._table.row_of(name)
            if row is None:
                continue
            pods = self._nominations.nominated_pods_for_node(name)
            counting = [pod for pod in pods if pod.priority >= self._priority]
            known = self.pods.get(row, _NO_PODS)
            if len(counting) == len(known) and all(map(_is_counted_like, counting, known)):
                if counting:
                    self.pods[row] = counting  # newer versions that mean the same
                continue
            for pod in self.pods.pop(row, ()):
                if self.row_of.get(pod.uid) == row:
                    del self.row_of[pod.uid]
            if counting:
                self.pods[row] = counting
                for pod in counting:
                    self.row_of[pod.uid] = row
            self.log.append(row)

    def amounts(self) -> IntArray:
        """int64[R, capacity]: what the counting pods of each row request, indexed as the node table's ``requested``."""
        table, amounts = self._table, self._amounts
        changed = self._unsummed.read()
        if amounts.shape != table.requested.shape or changed is None:
            amounts = self._amounts = np.zeros(table.requested.shape, np.int64)
            changed = list(self.pods)
        for row in changed:
            amounts[:, row] = requested_by(self.pods.get(row, ()), table)
        return amounts


def _is_counted_like(one: PodInfo, other: PodInfo) -> bool:
    """Whether two versions of a nominated pod mean the same for other pods."""
    return one is other or (one.uid == other.uid and one.counts_like(other))


def requested_by(pods: Iterable[PodInfo], table: NodeTable) -> list[int]:
    """What pods request together, indexed as the node table's ``requested``; saturated at 64 bits."""
    found = [0] * len(table.requested)
    for pod in pods:
        requests = pod.requests
        found[CPU_ROW] += requests.milli_cpu
        found[MEMORY_ROW] += requests.memory
        found[EPHEMERAL_ROW] += requests.ephemeral_storage
        found[PODS_ROW] += 1
        for name, amount in requests.scalars.items():
            index = table.column(name)
            if index is not None:
                found[index] += amount
    return found if max(found) <= INT64_MAX else [min(amount, INT64_MAX) for amount in found]


class NominatedRows:
    """Priority to what counts for it, made when first asked for. ``nominations`` are those that it follows."""

    def __init__(self, table: NodeTable, nominations: Nominations) -> None:
        self._table = table
        self.nominations = nominations
        self._kept: OrderedDict[int, NominatedPods] = OrderedDict()

    def of(self, priority: int) -> NominatedPods:
        """What counts for pods of this priority, up to date."""
        view = self._kept.get(priority)
        if view is None:
            view = self._kept[priority] = NominatedPods(self._table, self.nominations, priority)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(priority)
        view.refresh()
        return view
