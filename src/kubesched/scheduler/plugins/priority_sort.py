"""PrioritySort: higher priority first, then the longer wait (QueueSort)."""

from __future__ import annotations

from ..framework.interface import Plugin
from ..framework.queued import QueuedPodInfo, by_priority

__all__ = ["PrioritySort"]


class PrioritySort(Plugin):
    """Order of the active queue. A pod without a priority counts as 0."""

    name = "PrioritySort"
    sort_key = staticmethod(by_priority)

    def less(self, first: QueuedPodInfo, second: QueuedPodInfo) -> bool:
        return by_priority(first) < by_priority(second)
