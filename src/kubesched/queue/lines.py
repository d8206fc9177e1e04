"""Waiting pods that are tried again together.

A batch queue has thousands of pods waiting for capacity. Each pod that ends has all of them tried again, and nearly all fail
exactly as before. Pods that differ in nothing but their names form a **line**: one entry in the sub-queues, with as many
pods as there are. When a line is popped, the scheduler is asked per *group* of pods alike whether an attempt would fail as the
last one did. Those pods are counted as tried, and nothing is run; the first pod for which that is not so leaves the line and
is tried. What a pod of a line has missed (attempts, timestamps, repetitions of its event) is written down when it leaves, or
when its record is read.

A line is what its pods would be one by one: neighbours in every sub-queue, with the same sort key and backoff. Anything
unusual (an update of a pod, another event, a plugin that activates pods) dissolves the line where it stands.

Used by :class:`.scheduling_queue.SchedulingQueue`; what the scheduler knows beforehand is in ``scheduler/foresight.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, KeysView
from typing import Any, Protocol

from kubesched.api.times import Clock
from kubesched.framework.interface import Repeated
from kubesched.framework.queued import QueuedPodInfo

from .line import Group, Line, Member
from .moves import Moves
from .sub_queues import SubQueues

__all__ = ["Foresight", "Lines"]


class Foresight(Protocol):
    """What the scheduler knows of attempts before they are made."""

    def still_fails(self, record: QueuedPodInfo, known: Any) -> bool:
        """Whether an attempt for this pod would now fail as ``known`` says, in every respect."""
        ...

    def failed(self, scheduler_name: str, times: int, seconds: float) -> None:
        """So many attempts failed as was known, in so much time together."""
        ...


class Lines:
    """All lines of a queue."""

    def __init__(self, queues: SubQueues, moves: Moves, clock: Clock) -> None:
        self._queues = queues
        self._moves = moves
        self._clock = clock
        self.foresight: Foresight | None = None
        #: The members by pod key.
        self._members: dict[str, Member] = {}
        self._made = 0
        #: All lines, by number.
        self._lines: dict[int, Line] = {}
        #: The line that was parked last.
        self._last: Line | None = None
        #: The line that was popped, while its pods are tried: up to which position, since when, the one that is tried by
        #: itself, and whether it came from backoff.
        self._open: Line | None = None
        self._cursor = 0
        self._since = 0.0
        self._tried: Member | None = None
        self._early = False
        #: How many attempts were counted that did not take place.
        self.counted = 0
        #: The numbers by which its pods would be in order among the unschedulable ones, and its own among the active ones.
        self._block = self._place = 0
        #: The last number that was given to an unschedulable pod, if it was given to a pod of the open line.
        self._numbered = 0

    def __len__(self) -> int:
        """How many pods are in lines."""
        return len(self._members)

    @property
    def is_open(self) -> bool:
        """Whether a line was popped and has pods left to try."""
        return self._open is not None

    # -- joining ---------------------------------------------------------------------------------------

    def join(self, record: QueuedPodInfo, kind: Hashable, known: Any, event: Repeated) -> None:
        """A pod that was just parked may be tried together with others from now on.

        ``kind``: equal for pods that differ in nothing but their names; ``known``: what its next attempt will end with, as long as
        :meth:`Foresight.still_fails`.
        """
        parked, key = self._queues.unschedulable, record.key
        if parked.get(key) is not record or not self._queues.backoff.is_longest(record):
            return
        member = self._tried
        if member is not None and member.record is record:
            line = member.line
            if line.groups.get(kind) is member.group and line.unschedulable_plugins == record.unschedulable_plugins:
                # It has failed as the pods before it did; its place is where it was.
                parked.remove(key)
                self._numbered += 1
                member.event.release()
                event.hold()
                member.group.known, member.event, member.since = known, event, line.rounds + 1
                self._tried = None
                return
            self._settle_tried()
        self._made += 1
        line = self._lines[self._made] = Line(record.pod_info, record.timestamp, number=self._made)
        line.unschedulable_plugins = set(record.unschedulable_plugins)
        line.unschedulable_count = record.unschedulable_count
        group = line.groups[kind] = Group(known)
        member = Member(record, line, group, 0, event)
        group.members.append(member)
        event.hold()
        line.pods = 1
        line.seen = asyncio.get_running_loop().time()
        self._members[key] = member
        parked.exchange(key, [(line.key, line)])
        self._merge(line)

    def _merge(self, line: Line) -> None:
        """Make one line of the one that was parked last and the one before, if they are neighbours."""
        before, self._last = self._last, line
        parked = self._queues.unschedulable
        if before is None or not before.is_like(line) or not parked.are_neighbours(before.key, line.key):
            return
        small, big = (line, before) if line.pods <= before.pods else (before, line)
        moved = list(small.members())
        positions = [group.members[0 if small is before else -1].position for group in big.groups.values()]
        start = min(positions) - len(moved) if small is before else max(positions) + 1
        fresh: dict[Hashable, list[Member]] = {}
        kinds = {id(group): kind for kind, group in small.groups.items()}
        for place, member in enumerate(moved, start):
            fresh.setdefault(kinds[id(member.group)], []).append(member)
            member.position, member.since = place, big.rounds - (small.rounds - member.since)
            member.line = big
        for kind, members in fresh.items():
            group = big.groups.get(kind)
            if group is None:
                group = big.groups[kind] = Group(small.groups[kind].known)
            elif small is line:
                group.known = small.groups[kind].known
            group.members = members + group.members if small is before else group.members + members
            for member in members:
                member.group = group
        parked.join(before.key, line.key, big)
        del self._lines[small.number]
        big.pods += len(moved)
        self._last = big

    # -- being tried -----------------------------------------------------------------------------------

    def open(self, line: Line, *, early: bool, place: int) -> None:
        """A line was popped; ``early`` from backoff. ``place`` was its number in the heap."""
        self._open, self._early, self._place = line, early, place
        self._cursor = min(group.members[0].position for group in line.groups.values()) - 1
        self._since = self._clock.now()
        self._block = self._queues.unschedulable.reserve(line.pods)
        self._numbered = self._block + line.pods - 1

    def next(self) -> QueuedPodInfo | None:
        """The next pod of the open line to try by itself; None when all have been tried: the line is parked again."""
        self._settle_tried()
        line, foresight = self._open, self.foresight
        if line is None or foresight is None:
            return None
        found: Member | None = None
        for group in line.groups.values():
            member = group.after(self._cursor)
            if member is None or (found is not None and found.position < member.position):
                continue
            if not foresight.still_fails(member.record, group.known):
                found = member
        if found is None:
            self._finish(line)
            return None
        self._count(line, found.position)
        self._catch_up(found, line.rounds)
        self._tried = found
        if self._early:
            self._moves.popped_early(1)
        return found.record

    def _settle_tried(self) -> None:
        """The pod that was tried by itself has left its line, unless it has joined again."""
        member, self._tried = self._tried, None
        if member is None:
            return
        self._drop(member)
        if self._queues.get(member.record.key) is member.record:
            self._dissolve_open()

    def _drop(self, member: Member) -> None:
        line, group = member.line, member.group
        del self._members[member.record.key]
        member.event.release()
        group.remove(member)
        if not group.members:
            line.groups = {kind: one for kind, one in line.groups.items() if one is not group}
        line.pods -= 1

    def _finish(self, line: Line) -> None:
        """All pods of the open line have been tried."""
        self._count(line, None)
        self._open = None
        self._advance(line)
        # Without a gap in the numbers it is the neighbour of the line before, and they become one.
        self._queues.unschedulable.give_back(self._block, self._numbered)
        if line.pods:
            line.pod_info = next(iter(line.groups.values())).members[0].record.pod_info
            self._moves.park_line(line)
            self._merge(line)
        else:
            del self._lines[line.number]

    def _advance(self, line: Line) -> None:
        line.rounds += 1
        line.unschedulable_count += 1
        line.timestamp = self._clock.now()
        line.seen = asyncio.get_running_loop().time()
        line.backoff_expiration = None
        line.was_flushed_from_unschedulable = False

    def _count(self, line: Line, until: int | None) -> None:
        """The pods up to the one at ``until``, or all that are left, failed as was known."""
        times = sum(group.count_between(self._cursor, until) for group in line.groups.values())
        self._cursor = until if until is not None else self._cursor
        if times and self.foresight is not None:
            self.counted += times
            self.foresight.failed(line.pod_info.spec.scheduler_name, times, self._clock.now() - self._since)
            self._since = self._clock.now()
            self._moves.incoming_unschedulable(times)
            if self._early:
                self._moves.popped_early(times)

    # -- leaving ---------------------------------------------------------------------------------------

    def release(self, key: str) -> None:
        """Something is to be done with this very pod: its line, if it is in one, is dissolved."""
        member = self._members.get(key)
        if member is None:
            return
        if member is self._tried:
            self._tried = None
            self._drop(member)
        else:
            self.dissolve(member.line)

    def close(self) -> None:
        """What follows may change the queue: the open line, if there is one, is dissolved."""
        if self._open is not None:
            self._settle_tried()
            self._dissolve_open()

    def dissolve_all(self) -> None:
        for line in list(self._lines.values()):
            self.dissolve(line)

    def dissolve_still(self, seen: float) -> None:
        """Dissolve the lines that were last tried at this time of the loop or before: the series of their events end."""
        for line in [line for line in self._lines.values() if line.seen <= seen]:
            self.dissolve(line)

    def dissolve(self, line: Line) -> None:
        """Its pods are in the sub-queues one by one, where the line was."""
        if line is self._open:
            self.close()
            return
        del self._lines[line.number]
        entries = self._leave(line, line.members(), line.rounds)
        queues = self._queues
        for queue in (queues.unschedulable, queues.active, queues.backoff.pods):
            if line.key in queue:
                queue.exchange(line.key, entries)
        if self._last is line:
            self._last = None

    def _dissolve_open(self) -> None:
        line, self._open = self._open, None
        if line is None:
            return
        del self._lines[line.number]
        members = list(line.members())
        tried = [member for member in members if member.position <= self._cursor]
        queues = self._queues
        left = self._leave(line, members[len(tried) :], line.rounds)
        queue = queues.backoff.pods if self._early else queues.active
        queue.restore(self._place + len(tried), left)
        self._advance(line)
        entries = self._leave(line, tried, line.rounds)
        queues.unschedulable.restore(self._block, entries)

    def _leave(self, line: Line, members: Iterable[Member], rounds: int) -> list[tuple[str, QueuedPodInfo]]:
        entries = []
        for member in members:
            self._catch_up(member, rounds)
            member.event.release()
            del self._members[member.record.key]
            entries.append((member.record.key, member.record))
        return entries

    # -- catching up -----------------------------------------------------------------------------------

    @staticmethod
    def _catch_up(member: Member, rounds: int) -> None:
        """Write down what a pod has missed."""
        line, record, missed = member.line, member.record, rounds - member.since
        if missed:
            member.since = rounds
            record.attempts += missed
            record.unschedulable_count += missed
            record.timestamp = line.timestamp
            member.event.repeat(missed, line.timestamp, line.seen)
        record.backoff_expiration = line.backoff_expiration
        record.was_flushed_from_unschedulable = line.was_flushed_from_unschedulable

    def catch_up(self) -> None:
        """Write down what all pods of all lines have missed."""
        for member in self._members.values():
            if member.since <= member.line.rounds:
                self._catch_up(member, member.line.rounds)

    def get(self, key: str) -> QueuedPodInfo | None:
        """The pod of that key, if it is in a line."""
        member = self._members.get(key)
        if member is None or member is self._tried:
            return None
        if member.since <= member.line.rounds:
            self._catch_up(member, member.line.rounds)
        return member.record

    def line_of(self, key: str) -> str:
        """The key of the line that a pod is in, or the pod's own. The open line, which is in no sub-queue, is dissolved for it."""
        member = self._members.get(key)
        if member is None or member is self._tried:
            return key
        if member.line is self._open:
            self.close()
            return key
        return member.line.key

    def keys(self) -> KeysView[str]:
        """The pods in lines."""
        return self._members.keys()

    def records(self, items: Iterable[QueuedPodInfo]) -> list[QueuedPodInfo]:
        """Pods one by one."""
        self.catch_up()
        found: list[QueuedPodInfo] = []
        for item in items:
            found += [member.record for member in item.members()] if isinstance(item, Line) else (item,)
        return found
