"""Rows that a layer has to evaluate again: from the node table's journal, and named by plugins.

Used by :mod:`.layers`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ..nodes.columns import IntpArray, RowArray
from ..nodes.node_table import NODE_CHANGED

__all__ = ["FEW", "Many", "Rows", "greatest", "merged", "rows_of"]

#: Most rows for which plain Python is quicker than NumPy.
FEW: Final = 8
#: Most journal entries that are searched for repeated rows. With more entries, evaluating rows twice is quicker.
_LONG: Final = 64
#: If more than one row in this number of rows has changed, evaluating all rows is quicker.
_ALL: Final = 4


class Many(NamedTuple):
    """Array of rows, in which rows may repeat.

    ``whole``: for some rows, more than the node's pods may have changed.
    """

    rows: IntpArray
    whole: bool


#: Rows to evaluate again: a dict of a few rows, with True if more than the node's pods may have changed; an array of
#: many; or None for all rows.
Rows = dict[int, bool] | Many | None


def rows_of(entries: list[int] | None, most: int) -> Rows:
    """Return the rows that journal entries name; None if the entries are not known, or more than ``most``."""
    if entries is None or len(entries) > most:
        return None
    if not entries:
        return {}
    if len(entries) == 1:
        return {entries[0] >> 1: entries[0] & 1 == NODE_CHANGED}
    if len(entries) > _LONG:
        found = np.array(entries, np.intp)
        return Many(found >> 1, bool(np.bitwise_or.reduce(found) & NODE_CHANGED))
    rows: dict[int, bool] = {}
    # The last entry of a row does not show whether an earlier one was about its node object.
    for entry in entries:
        row = entry >> 1
        rows[row] = rows.get(row, False) or entry & 1 == NODE_CHANGED
    return rows if len(rows) <= FEW else Many(np.fromiter(rows, np.intp, len(rows)), True in rows.values())


def greatest(rows: dict[int, bool] | Many) -> int:
    """Return the greatest of these rows; -1 without rows."""
    if isinstance(rows, dict):
        return max(rows) if rows else -1
    return int(rows.rows.max())


def merged(rows: Rows, named: list[RowArray], size: int) -> Rows:
    """Return the union of ``rows`` and the rows that plugins ``named``; ``size`` is the number of all rows."""
    if rows is None or not named:
        return rows
    count = (len(rows) if isinstance(rows, dict) else len(rows.rows)) + sum(map(len, named))
    if isinstance(rows, dict) and count <= FEW:
        return rows | {row: True for part in named for row in part.tolist()}
    if count * _ALL > size:
        return None
    many = rows.rows if isinstance(rows, Many) else np.fromiter(rows, np.intp, len(rows))
    return Many(np.concatenate((many, *named)), True)
