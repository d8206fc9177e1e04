"""Answers that are made once for all who ask for the same at the same time.

Ten pages that ask for the queue of 100,000 pods cost as much as one. A caller that goes leaves the answer to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, TypeVar

from kubesched.base.tasks import child

from .source import Refused

__all__ = ["SharedAnswers"]

T = TypeVar("T")

#: Most different answers that are made at a time; more are refused.
MOST_ANSWERS: Final = 16


class SharedAnswers:
    """Answers under way, by what was asked."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}

    async def of(self, question: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the answer to a question: of those who asked before, if it is under way.

        Raises:
            Refused: 503 if too many answers are under way.
        """
        task = self._under_way.get(question)
        if task is None:
            if len(self._under_way) >= MOST_ANSWERS:
                raise Refused(503, f"{MOST_ANSWERS} answers are under way already; ask again later")
            task = child(make(), "dashboard-answer")
            self._under_way[question] = task
            task.add_done_callback(lambda done: self._end(question, done))
        return await asyncio.shield(task)

    def _end(self, question: Hashable, task: asyncio.Task[Any]) -> None:
        del self._under_way[question]
        if not task.cancelled():
            task.exception()  # nobody may be left to take it

    def close(self) -> None:
        """Give up what is under way."""
        for task in self._under_way.values():
            task.cancel()
