"""Arithmetic of normalisation that all Score plugins share: bounds of raw scores, and ready-made scaling.

Used by :mod:`.entries`, and by the scheduler's score columns.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .interface import MAX_NODE_SCORE, NOT_SCORED, IntArray, Normalize

__all__ = ["bounds", "scaled"]

#: Raw scores above this do not fit into int64 when multiplied by 100.
_MOST_SCALED: Final = ((1 << 63) - 1) // MAX_NODE_SCORE


def bounds(raw: IntArray) -> tuple[int, int]:
    """The least and the greatest raw score, NOT_SCORED left out; (0, -1) without any."""
    if not len(raw):
        return 0, -1
    low, high = int(np.minimum.reduce(raw)), int(np.maximum.reduce(raw))
    if low == NOT_SCORED:
        if high == NOT_SCORED:
            return 0, -1
        low = int((raw - 1).min()) + 1  # NOT_SCORED - 1 wraps around to the greatest integer
    return low, high


def scaled(how: Normalize, raw: IntArray, greatest: int) -> IntArray:
    """int64[len(raw)]: raw scores of at least 0 scaled to 0…100 by the greatest of them; exact for any int64."""
    if greatest == 0:
        return np.full_like(raw, MAX_NODE_SCORE) if how is Normalize.REVERSE else raw
    result: IntArray
    if greatest <= _MOST_SCALED:
        result = raw * MAX_NODE_SCORE // greatest
    else:
        result = np.array([score * MAX_NODE_SCORE // greatest for score in raw.tolist()], np.int64)
    return MAX_NODE_SCORE - result if how is Normalize.REVERSE else result
