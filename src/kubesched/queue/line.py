"""A line: waiting pods that are tried again together, as one entry in the sub-queues. See :mod:`.lines`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter
from typing import Any

from kubesched.framework.interface import Repeated
from kubesched.framework.queued import QueuedPodInfo

__all__ = ["Group", "Line", "Member"]

_by_position = attrgetter("position")


class Member:
    """A pod of a line. Its record is as after ``since`` rounds of the line."""

    __slots__ = ("event", "group", "line", "position", "record", "since")

    def __init__(self, record: QueuedPodInfo, line: Line, group: Group, position: int, event: Repeated) -> None:
        self.record = record
        self.line = line
        self.group = group
        self.position = position
        self.event = event
        self.since = line.rounds


class Group:
    """The pods of a line that fail alike. ``known`` is what the scheduler knows of them."""

    __slots__ = ("known", "members")

    def __init__(self, known: Any) -> None:
        self.known = known
        #: By position.
        self.members: list[Member] = []

    def after(self, position: int) -> Member | None:
        """The first member beyond a position."""
        members = self.members
        if not members or members[-1].position <= position:
            return None
        return members[bisect_right(members, position, key=_by_position)]

    def count_between(self, first: int, last: int | None) -> int:
        """How many members there are beyond ``first`` and before ``last``, or to the end."""
        end = len(self.members) if last is None else bisect_right(self.members, last - 1, key=_by_position)
        return end - bisect_right(self.members, first, key=_by_position)

    def remove(self, member: Member) -> None:
        del self.members[bisect_right(self.members, member.position, key=_by_position) - 1]


@dataclass(slots=True, eq=False)
class Line(QueuedPodInfo):
    """Stands in the sub-queues with its pods. Timestamp, backoff and rejectors are theirs; ``pod_info`` is one's.

    Attributes:
        number: makes its key in the sub-queues.
        groups: by what makes pods alike.
        pods: how many pods there are.
        rounds: how often all of them have been tried together.
        seen: the loop's time of the last round.
    """

    number: int = 0
    groups: dict[Hashable, Group] = field(default_factory=dict)
    pods: int = 0
    rounds: int = 0
    seen: float = 0.0

    @property
    def key(self) -> str:
        return f"\0line {self.number}"

    @property
    def size(self) -> int:
        return self.pods

    def members(self) -> Iterator[Member]:
        """In order."""
        return merge(*(group.members for group in self.groups.values()), key=_by_position)

    def is_like(self, record: QueuedPodInfo) -> bool:
        """Whether a parked pod, or line, may be part of this one: it takes the same ways through the queue."""
        mine, its = self.pod_info.spec, record.pod_info.spec
        return (
            self.timestamp == record.timestamp
            and (mine.priority or 0) == (its.priority or 0)
            and mine.scheduler_name == its.scheduler_name
            and self.unschedulable_plugins == record.unschedulable_plugins
        )
