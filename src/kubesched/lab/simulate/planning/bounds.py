"""Lower bound of the price of nodes: what no choice of nodes can go below, by amounts alone.

A choice has ``x[g]`` nodes of each group ``g``. Each row of the problem is a condition that every choice must meet which
holds all pods: ``sum(room[row, g] * x[g]) >= need[row]``. The least price over fractions of nodes is a linear program.
Its dual has a solution at once (all zero), so the simplex method needs no first phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Problem", "lower_bound"]

Floats = npt.NDArray[np.float64]
_EPSILON: Final = 1e-9
#: Most steps of the simplex method. The bound holds after any number of steps.
_MOST_STEPS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Problem:
    """Conditions on a choice of nodes.

    Attributes:
        prices: float[groups], price of a node per hour.
        room: float[rows, groups], what a node adds.
        need: float[rows], what is needed.
        most: float[groups], most nodes of each group.
    """

    prices: Floats
    room: Floats
    need: Floats
    most: Floats

    def is_met(self, counts: Floats) -> bool:
        """Return True if a choice meets all conditions."""
        return bool((self.room @ counts >= self.need * (1 - _EPSILON) - _EPSILON).all())


def lower_bound(problem: Problem) -> tuple[float, Floats]:
    """Return a price that no choice of nodes is below, and fractions of nodes that come near it.

    Where even all nodes do not meet the conditions, the price is that of all nodes.
    """
    needed = problem.need > 0
    if not needed.any() or not len(problem.prices):
        return 0.0, np.zeros(len(problem.prices))
    # Each row is scaled to a need of 1, so that tolerances mean the same for bytes and for millicores.
    room = problem.room[needed] / problem.need[needed][:, None]
    duals, fractions = _simplex(room, problem.prices, problem.most)
    # By weak duality this is a bound for any duals that are not negative, however exact they are.
    duals = np.maximum(duals, 0.0)
    bound = duals.sum() + (np.minimum(problem.prices - duals @ room, 0.0) * problem.most).sum()
    return max(0.0, float(bound) * (1 - _EPSILON)), fractions


def _simplex(room: Floats, prices: Floats, most: Floats) -> tuple[Floats, Floats]:
    """Maximise ``sum(y) - most·z`` where ``room.T @ y - z <= prices``, and both are not negative.

    Return ``y``, and the duals of the conditions, which are the fractions of nodes.
    """
    rows, groups = room.shape
    table = np.hstack([room.T, -np.eye(groups), np.eye(groups), prices[:, None]])
    gain = np.concatenate([np.ones(rows), -most, np.zeros(groups + 1)])
    basis = np.arange(rows + groups, rows + 2 * groups)
    for step in range(_MOST_STEPS):
        # The greatest gain first; later the first one (Bland's rule), which cannot cycle.
        better = np.flatnonzero(gain[:-1] > _EPSILON)
        if not len(better):
            break
        column = int(better[0] if step > _MOST_STEPS // 2 else better[gain[better].argmax()])
        rising = table[:, column] > _EPSILON
        if not rising.any():
            break
        ratios = np.full(groups, np.inf)
        ratios[rising] = table[rising, -1] / table[rising, column]
        least = np.flatnonzero(ratios <= ratios.min() + 1e-12)
        row = int(least[basis[least].argmin()])
        table[row] /= table[row, column]
        others = np.arange(groups) != row
        table[others] -= np.outer(table[others, column], table[row])
        gain -= gain[column] * table[row]
        basis[row] = column
    values = np.zeros(rows + 2 * groups)
    values[basis] = table[:, -1]
    return values[:rows], np.maximum(-gain[rows + groups : -1], 0.0)
