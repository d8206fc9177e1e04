"""Meter of one evaluation: what it has cost, the work it has done, and when it has to end.

Upstream's cost leaves out work that is free, or lazy, in its runtime: nested values that are compared, lists that are put
together, the text that a format results in. That is counted as steps, apart from the cost, so that the cost is upstream's.
Everything is charged before it is done: nothing large is made and nothing long is begun that the limits do not allow.
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

#: The cost that one evaluation may have at most.
COST_LIMIT: Final = 1_000_000
#: The steps that are allowed per unit of cost. A character that is made is a step, as upstream's cost of one is a tenth.
STEPS_PER_COST: Final = 10
#: An element of a list or map that is walked over: as long as a unit of cost takes.
ELEMENT: Final = STEPS_PER_COST
#: An evaluation checks whether it is to end whenever it has cost so much more, or has done so many more steps.
_INTERVAL: Final = 1_000


class EvaluationCancelledError(EvaluationError):
    """The evaluation was ended because of its cost. Logic operators do not absorb this error."""


class EvaluationInterruptedError(Exception):
    """The evaluation was ended by its caller. It has no result, not even an error."""


class Meter:
    """Cost and steps of one evaluation, with their limits.

    ``interrupted`` is called now and then, and ends the evaluation by True.
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
        """The cost of the evaluation, by cost or by steps, whichever is more."""
        return max(self.cost, self.steps // STEPS_PER_COST)

    def charge(self, amount: int) -> None:
        """Add to the cost.

        Raises:
            EvaluationCancelledError: it is above the limit.
            EvaluationInterruptedError: the caller wants the evaluation to end.
        """
        self.cost += amount
        if self.cost > self.next_cost:
            self._check()

    def step(self, amount: int) -> None:
        """Add to the steps; raises as :meth:`charge`."""
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
