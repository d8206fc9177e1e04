"""Meter of one evaluation: its cost, the work it has done, and the time to end it.

Upstream's cost leaves out some work that is free or lazy in its runtime: comparing nested values, concatenating lists,
the text that a format produces. This work is counted as *steps*, apart from the cost, so that the cost equals
upstream's. Everything is charged before it is done, so that nothing larger or longer than the limits is begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .values import EvaluationError

__all__ = [
    "COST_LIMIT",
    "ELEMENT",
    "STEPS_PER_COST",
    "EvaluationCancelledError",
    "EvaluationInterruptedError",
    "Meter",
]

#: Most cost of one evaluation.
COST_LIMIT: Final = 1_000_000
#: Steps that are allowed for each unit of cost. Making a character is one step, as it costs a tenth upstream.
STEPS_PER_COST: Final = 10
#: Steps for walking over an element of a list or map: the work of one unit of cost.
ELEMENT: Final = STEPS_PER_COST
#: Cost between two checks whether the evaluation has to end. For steps the interval is this times STEPS_PER_COST.
_INTERVAL: Final = 1_000


class EvaluationCancelledError(EvaluationError):
    """The evaluation was ended because of its cost. Logic operators do not absorb this error."""


class EvaluationInterruptedError(Exception):
    """The evaluation was ended by its caller. It has no result, not even an error."""


class Meter:
    """Cost and steps of one evaluation, with their limits.

    ``interrupted`` is called now and then. If it returns True, the evaluation ends.
    """

    __slots__ = ("cost", "interrupted", "limit", "next_cost", "next_steps", "steps")

    def __init__(self, limit: int = COST_LIMIT, interrupted: Callable[[], bool] | None = None) -> None:
        self.limit = limit
        self.interrupted = interrupted
        self.cost = self.steps = 0
        self.next_cost = limit if interrupted is None else min(limit, _INTERVAL)
        self.next_steps = self.next_cost * STEPS_PER_COST

    @property
    def total(self) -> int:
        """The greater of the cost counted so far and the cost that the steps amount to."""
        return max(self.cost, self.steps // STEPS_PER_COST)

    def charge(self, amount: int) -> None:
        """Add to the cost.

        Raises:
            EvaluationCancelledError: if the cost is above the limit.
            EvaluationInterruptedError: if the caller wants the evaluation to end.
        """
        self.cost += amount
        if self.cost > self.next_cost:
            self._check()

    def step(self, amount: int) -> None:
        """Add to the steps. Raises the errors of :meth:`charge`."""
        self.steps += amount
        if self.steps > self.next_steps:
            self._check()

    def _check(self) -> None:
        if self.cost > self.limit or self.steps > self.limit * STEPS_PER_COST:
            raise EvaluationCancelledError("operation cancelled: actual cost limit exceeded")
        if self.interrupted is not None and self.interrupted():
            raise EvaluationInterruptedError
        self.next_cost = min(self.limit, self.cost + _INTERVAL)
        self.next_steps = min(self.limit, self.steps // STEPS_PER_COST + _INTERVAL) * STEPS_PER_COST
