"""Reasons why a layer rejects every row, remembered until a row is rejected for another reason.

When a thousand identical pods wait for capacity, only one of them needs a full scan. For the others, only the rows that
changed since that scan are compared.

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

#: Most rows that are compared with the remembered reasons; for more rows a full scan is as quick.
_COMPARED: Final = 64


class KnownRejection:
    """Diagnosis of a full scan, for pods that are alike, and the rows evaluated since."""

    __slots__ = ("_diagnosis", "_evaluated", "_membership", "_table")

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._diagnosis: Diagnosis | None = None
        #: The node table's membership version at the time of the diagnosis.
        self._membership = -1
        self._evaluated: set[int] = set()

    def learn(self, diagnosis: Diagnosis) -> None:
        """Remember why every row is rejected."""
        self._diagnosis, self._membership = diagnosis, self._table.membership_version
        self._evaluated.clear()

    def evaluated(self, rows: Rows) -> None:
        """Note that filters were called again for these rows."""
        if self._diagnosis is None:
            return
        if rows is not None:
            self._evaluated.update(rows if isinstance(rows, dict) else rows.rows.tolist())
        if rows is None or len(self._evaluated) > _COMPARED:
            self._diagnosis = None

    def current(self, why: Callable[[int], Status | None]) -> Diagnosis | None:
        """Return the diagnosis if it still holds, else None.

        It holds if the nodes are the same, and every row evaluated since has the same status as then. ``why`` returns a
        row's status now, or None if the row passes.
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
