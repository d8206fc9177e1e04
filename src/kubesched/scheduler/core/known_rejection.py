"""Why a layer rejects every row, remembered until one of them is rejected for another reason.

Of a thousand pods alike that wait for capacity, one is scanned for; the others compare the rows that changed since.
Used by :mod:`.layers` and :mod:`.search`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..framework.status import Status
from ..nodes import NodeTable
from .changed_rows import Rows
from .diagnosis import Diagnosis

__all__ = ["KnownRejection"]

#: Up to so many rows evaluated again are compared with what was found out about all; a full scan takes as long.
_COMPARED: Final = 64


class KnownRejection:
    """What a full scan found out about pods that are alike, and the rows evaluated since."""

    __slots__ = ("_diagnosis", "_evaluated", "_membership", "_table")

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._diagnosis: Diagnosis | None = None
        #: Which nodes there were then.
        self._membership = -1
        self._evaluated: set[int] = set()

    def learn(self, diagnosis: Diagnosis) -> None:
        """The search found out why every row is rejected."""
        self._diagnosis, self._membership = diagnosis, self._table.membership_version
        self._evaluated.clear()

    def evaluated(self, rows: Rows) -> None:
        """Filters were called again for these rows."""
        if self._diagnosis is None:
            return
        if rows is not None:
            self._evaluated.update(rows if isinstance(rows, dict) else rows.rows.tolist())
        if rows is None or len(self._evaluated) > _COMPARED:
            self._diagnosis = None

    def current(self, why: Callable[[int], Status | None]) -> Diagnosis | None:
        """The diagnosis, if the nodes are the same and rows evaluated since are rejected as they were then.

        ``why`` gives a row's status now, None where it passes.
        """
        known = self._diagnosis
        if known is None:
            return None
        same = self._membership == self._table.membership_version
        if not same or any(known.statuses.at(row) != why(row) for row in self._evaluated):
            self._diagnosis = None
            return None
        self._evaluated.clear()
        return known
