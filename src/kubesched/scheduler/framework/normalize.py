"""Arithmetic of normalisation that all Score plugins share: bounds of raw scores, and ready-made scaling.

Used by :mod:`.entries`, and by the scheduler's score columns.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .interface import MAX_NODE_SCORE, NOT_SCORED, IntArray, Normalize

__all__ = ["bounds", "scaled"]

#: Raw scores above this do not fit into int64 when multiplied by 100.
_MOST_SCALED: Final = ((1 << 63) - 1) // MAX_NODE_SCORE


#: Integer that represents NOT_SCORED, by the item size in bytes.
_ABSENT: Final = {8: NOT_SCORED, 4: -(1 << 31)}


def bounds(raw: npt.NDArray[np.signedinteger]) -> tuple[int, int]:
    """Return the least and the greatest raw score, without NOT_SCORED; (0, -1) without any score.

    ``raw`` is int64 or int32; in int32, the least integer represents NOT_SCORED.
    """
    if not len(raw):
        return 0, -1
    low, high = int(np.minimum.reduce(raw)), int(np.maximum.reduce(raw))
    if low == (absent := _ABSENT[raw.itemsize]):
        if high == absent:
            return 0, -1
        low = int((raw - 1).min()) + 1  # the least integer minus 1 wraps around to the greatest
    return low, high


def scaled(how: Normalize, raw: IntArray, greatest: int) -> IntArray:
    """Scale raw scores, none below 0, to 0…100 by the greatest of them: int64[len(raw)], exact for any int64."""
    if greatest == 0:
        return np.full_like(raw, MAX_NODE_SCORE) if how is Normalize.REVERSE else raw
    result: IntArray
    if greatest <= _MOST_SCALED:
        result = raw * MAX_NODE_SCORE // greatest
    else:
        result = np.array([score * MAX_NODE_SCORE // greatest for score in raw.tolist()], np.int64)
    return MAX_NODE_SCORE - result if how is Normalize.REVERSE else result
