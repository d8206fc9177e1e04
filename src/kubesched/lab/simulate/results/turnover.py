"""Turnover: pods that are created and deleted in one moment, by workload.

A controller may replace a pod that is evicted at once without end. In a real cluster each turn of that takes some time,
and everything else goes on meanwhile. Virtual time stands still while anything happens, so a simulation would never
end. Caller: :class:`..run.simulation.Session`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["Turnover"]

#: Most pods of a workload that may come and go in one moment: this many, or :data:`_EACH` for each pod that it had at a
#: time if that is more.
_MOST: Final = 1_000
_EACH: Final = 10


@dataclass(slots=True)
class _Count:
    alive: int = 0
    most: int = 0
    gone: int = 0


class Turnover:
    """Counts of the present moment. ``on_endless`` receives the workload whose pods are replaced without end."""

    def __init__(self, on_endless: Callable[[str], None]) -> None:
        self._on_endless = on_endless
        self._at = -1.0
        self._counts: dict[str, _Count] = {}

    def created(self, workload: str, now: float) -> None:
        """Note the creation of a pod. "" is no workload: such a pod replaces none."""
        if now != self._at:
            self._at = now
            self._counts.clear()
        if workload:
            count = self._counts.setdefault(workload, _Count())
            count.alive += 1
            count.most = max(count.most, count.alive)

    def deleted(self, workload: str, created: float, now: float) -> None:
        """Note that a pod, created at some time, was deleted or begins to end."""
        if created != now or not workload:
            return
        count = self._counts[workload]
        count.alive -= 1
        count.gone += 1
        if count.gone > max(_MOST, _EACH * count.most):
            count.gone = 0
            self._on_endless(workload)
