"""Nominated pods by row, for each priority: the nominated pods that count for pods of that priority.

Nominated pods of equal or higher priority count. The rows are updated from the nominator's log of changes, so that
neither the decision core (filters with nominated pods) nor preemption goes through all nominations for every pod.
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

#: Most priorities that are kept; the least recently used is dropped first.
_MOST: Final = 16
#: Entries that a log of changed rows keeps, at least.
_KEPT_CHANGES: Final = 1 << 14
_NO_PODS: Final[list[PodInfo]] = []


class NominatedPods:
    """Nominated pods that count for one priority.

    Attributes:
        pods: row to its nominated pods that count, oldest nomination first; there are no empty lists.
        row_of: UID to row of these pods.
        log: rows whose nominations changed.
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
                    self.pods[row] = counting  # newer versions of these pods, which count equally
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
        """Return the sums that the counting pods request, int64[R, capacity], by resource index and row."""
        table, amounts = self._table, self._amounts
        changed = self._unsummed.read()
        if amounts.shape != table.requested.shape or changed is None:
            amounts = self._amounts = np.zeros(table.requested.shape, np.int64)
            changed = list(self.pods)
        for row in changed:
            amounts[:, row] = requested_by(self.pods.get(row, ()), table)
        return amounts


def _is_counted_like(one: PodInfo, other: PodInfo) -> bool:
    """Return True if both are versions of one nominated pod that count equally for other pods."""
    return one is other or (one.uid == other.uid and one.counts_like(other))


def requested_by(pods: Iterable[PodInfo], table: NodeTable) -> list[int]:
    """Return the sums that pods request, by resource index of the node table; limited to int64."""
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
    """Nominated pods that count, by priority; made at first use. They follow ``nominations``."""

    def __init__(self, table: NodeTable, nominations: Nominations) -> None:
        self._table = table
        self.nominations = nominations
        self._kept: OrderedDict[int, NominatedPods] = OrderedDict()

    def of(self, priority: int) -> NominatedPods:
        """Return the nominated pods that count for pods of this priority, up to date."""
        view = self._kept.get(priority)
        if view is None:
            view = self._kept[priority] = NominatedPods(self._table, self.nominations, priority)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(priority)
        view.refresh()
        return view
