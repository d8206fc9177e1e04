"""Table of one kind: its objects, the recent history of their changes, and the watches on them.

A change is appended once. Every watch has a position in the history and filters when it reads. So the cost of a write
does not depend on the number of watches, and a watch that wakes finds all changes since its last read.

Caller: ``store``, which owns one table per kind and hands watches to the transports.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from kubesched.api.kinds import EVENTS, Kind
from kubesched.api.wire import ApiError, Item, WatchEvent

from ..schema import Stored
from .events import new_item
from .fields import Filter
from .key_order import Key, KeyOrder, Moment

__all__ = ["Change", "Follower", "Table", "Watch"]

#: Receiver of a change: the version after it (None after a removal) and before it (None before a creation).
Follower = Callable[[Stored | None, Stored | None], None]

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
#: Most objects of a long initial state in one batch of a watch.
INITIAL_BATCH: Final = 1024
#: Divisor of the history's length: old changes are trimmed each time that the history grows by an eighth of it.
_STEP: Final = 8
#: Calls of slim after which a change is dropped.
_MARKS: Final = 5


class Change(msgspec.Struct, gc=False, eq=False):
    """Entry of the history: the change of an object, and the version before."""

    type: str
    item: Stored
    previous: Stored | None

    def seen_through(self, filter_: Filter) -> WatchEvent | None:
        """Return the event for a filtered watch. An object that enters gives ADDED, one that leaves DELETED.

        Returns None if the filter matches neither version. An object that leaves is shown in its last matching state,
        with the version of the change by which it left (upstream's rule).
        """
        before = self.previous
        if before is not None and not filter_.matches(before):
            before = None
        if self.type == DELETED:
            return None if before is None else WatchEvent(DELETED, self.item)
        if filter_.matches(self.item):
            return WatchEvent(ADDED if before is None else MODIFIED, self.item)
        return None if before is None else WatchEvent(DELETED, before.seen_at(self.item.resource_version))


class Table:
    """Objects of one kind, by (namespace, name), with their history.

    ``history`` is the number of past changes at which a new watch, a continued list or an exact list may begin.
    ``backlog`` is the number of changes by which a live watch may lag before its version counts as expired.
    """

    def __init__(self, kind: Kind, history: int, backlog: int) -> None:
        self.kind = kind
        self.objects: dict[Key, Stored] = {}
        #: Notified of every change, in order; see :meth:`.records.Records.follow`.
        self.followers: list[Follower] = []
        self._history = history
        self._backlog = max(backlog, history)
        self._log: list[Change] = []
        self._base = 0  # sequence number of self._log[0]
        self._step = max(256, history // _STEP)
        self._step_at = self._step
        self._floor = 0  # versions below this one have lost history
        self._order = KeyOrder()
        # The dicts serve as ordered sets, because the order of waking must be reproducible.
        self._watches: dict[Watch, None] = {}
        self._waiting: dict[Watch, None] = {}
        self._past: dict[int, Moment] = {}
        #: Sequence numbers at the last calls of slim, the oldest first.
        self._marks: deque[int] = deque(maxlen=_MARKS)

    # -- objects ---------------------------------------------------------------------------------------

    def items(self, namespace: str = "") -> list[Stored]:
        """Return all objects in key order, or only the objects of one namespace."""
        return self.present().within(namespace).items()

    def present(self) -> Moment:
        """Return the objects as they are now. Read it before anything changes."""
        return Moment(self._order.read(), self.objects)

    def load(self, item: Stored) -> None:
        """Add a saved object, without history."""
        key = (item.namespace, item.name)
        self.objects[key] = item
        self._order.add(key)

    def record(self, type_: str, item: Stored, previous: Stored | None) -> None:
        """Apply one change, append it to the history and wake the watches that wait."""
        key = (item.namespace, item.name)
        if type_ == DELETED:
            del self.objects[key]
            self._order.remove(key)
        else:
            self.objects[key] = item
            if previous is None:
                self._order.add(key)
        self._log.append(Change(type_, item, previous))
        if len(self._log) >= self._step_at:
            self._slim(len(self._log) - 2 * self._step, len(self._log) - self._step)
            self._trim()
            self._step_at = len(self._log) + self._step
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for watch in waiting:
                watch.wake()

    # -- history ---------------------------------------------------------------------------------------

    @property
    def floor(self) -> int:
        """Oldest version from which every later change is still known."""
        index = len(self._log) - self._history
        return max(self._floor, self._log[index - 1].item.resource_version) if index > 0 else self._floor

    @property
    def end(self) -> int:
        """Sequence number that the next change will have."""
        return self._base + len(self._log)

    def since(self, sequence: int, count: int | None = None) -> list[Change] | None:
        """Return the changes from a sequence number on, at most ``count``; None when some of them are gone."""
        index = sequence - self._base
        return None if index < 0 else self._log[index : None if count is None else index + count]

    def position_after(self, resource_version: int) -> int:
        """Return the sequence number of the first change newer than a version.

        Raises:
            ApiError: 410, when changes after that version are no longer known.
        """
        floor = self.floor
        if resource_version < floor:
            raise ApiError.expired(f"too old resource version: {resource_version} ({floor})")
        return self._base + bisect_right(self._log, resource_version, key=lambda change: change.item.resource_version)

    def at(self, resource_version: int) -> Moment:
        """Return all objects as they were at a version. Read it before anything changes.

        Raises:
            ApiError: 410, when that version is older than the history.
        """
        newer = self._log[self.position_after(resource_version) - self._base :]
        if not newer:
            return self.present()
        known = self._past.get(resource_version)
        if known is None:
            objects = dict(self.objects)
            order = KeyOrder(self._order.read())
            for change in reversed(newer):
                key = (change.item.namespace, change.item.name)
                if change.previous is None:
                    del objects[key]
                    order.remove(key)
                else:
                    if change.type == DELETED:
                        order.add(key)
                    objects[key] = change.previous
            known = Moment(order.read(), objects)
            while len(self._past) >= 4:
                del self._past[next(iter(self._past))]
            self._past[resource_version] = known
        return known

    def reset(self, resource_version: int) -> None:
        """Empty the table. Objects that are loaded next count as no newer than a version."""
        self.objects.clear()
        self._order = KeyOrder()
        self._drop_history(resource_version)
        self._base += 1

    def compact(self) -> None:
        """Forget the history, as a server does in time: older versions answer 410 from now on.

        Live watches that have not read everything are expired too.
        """
        self._drop_history(self._log[-1].item.resource_version if self._log else self._floor)
        for watch in self.watches:
            watch.wake()

    def _drop_history(self, floor: int) -> None:
        self._floor = floor
        self._base += len(self._log)
        self._log.clear()
        self._step_at = self._step
        self._past.clear()

    def slim(self) -> None:
        """Drop the decoded data of versions that are not current; it can be decoded again.

        Old versions are rarely read, because informers have read them by then. As the history grows, it does this by
        itself for its older part.

        Changes that were known at the fifth call before this one are dropped, unless a live watch has not read them. With
        a call each minute, that is upstream's compaction, five minutes apart: it bounds the history of kinds that seldom
        change, whose 5,000 changes would fill in days.
        """
        self._past.clear()
        self._order.trim()
        if len(self._marks) == _MARKS:
            self._trim(self._marks[0])
        self._marks.append(self.end)
        self._slim(0, len(self._log))

    def _slim(self, start: int, end: int) -> None:
        for change in self._log[max(start, 0) : end]:
            if change.previous is not None:
                change.previous.forget()
            if change.type == DELETED:
                change.item.forget()

    def _trim(self, until: int = 0) -> None:
        """Drop changes that neither new watches nor live ones may still ask for.

        Those before the sequence number ``until`` are too old for new watches, however few they are.
        """
        keep = max(len(self._log) - self._history, until - self._base)
        for watch in self._watches:
            keep = min(keep, watch.position - self._base)
        keep = max(keep, len(self._log) - self._backlog, 0)
        if keep:
            self._floor = self._log[keep - 1].item.resource_version
            self._base += keep
            del self._log[:keep]
            self._step_at = len(self._log) + self._step
            self._past.clear()

    # -- watches ---------------------------------------------------------------------------------------

    @property
    def watches(self) -> list[Watch]:
        """Live watches, oldest first."""
        return list(self._watches)

    def attach(self, watch: Watch) -> None:
        self._watches[watch] = None

    def detach(self, watch: Watch) -> None:
        self._watches.pop(watch, None)
        self._waiting.pop(watch, None)

    def wait_for_change(self, watch: Watch) -> None:
        self._waiting[watch] = None


class Watch:
    """Reader of a table's changes.

    ``drain`` returns the events that are available now (of a long initial state, a part); ``wait`` sleeps until there
    may be more. One consumer per watch. Close it when done, or the history it has not read is kept for it.
    """

    def __init__(
        self,
        table: Table,
        filter_: Filter,
        position: int,
        initial: Iterator[WatchEvent] | None,
        current_version: Callable[[], int],
    ) -> None:
        self._table = table
        self._filter = filter_
        self._initial = initial
        self._current_version = current_version
        self._waiter: asyncio.Future[None] | None = None
        self._is_expired = False
        self.position = position
        self.closed = False
        table.attach(self)

    def drain(self, most: int | None = None) -> list[WatchEvent]:
        """Return the events since the last call, oldest first; often empty for a filtered watch.

        With ``most``, at most that many changes are read; the rest stays for the next call.

        Raises:
            ApiError: 410, when this watch lagged beyond the backlog or was expired.
        """
        if self._is_expired:
            self._is_expired = False
            self.close()
            raise ApiError.expired("The resourceVersion for the provided watch is too old.")
        if self.closed:
            return []
        events: list[WatchEvent] = []
        if self._initial is not None:
            batch = INITIAL_BATCH if most is None else most
            events += islice(self._initial, batch)
            if len(events) == batch:
                return events
            self._initial = None
        changes = self._table.since(self.position, most)
        if changes is None:
            self.close()
            raise ApiError.expired(f"too old resource version: history before {self._table.floor} is gone")
        self.position += len(changes)
        filter_ = self._filter
        if filter_.is_trivial:
            found = [WatchEvent(change.type, change.item) for change in changes]
        else:
            found = [event for change in changes if (event := change.seen_through(filter_)) is not None]
        if filter_.kind.group == EVENTS.group:
            found = [WatchEvent(event.type, new_item(event.item)) for event in found]
        return events + found if events else found

    @property
    def begins(self) -> bool:
        """True if more of the initial state is to come."""
        return self._initial is not None

    @property
    def pending(self) -> bool:
        """True if ``drain`` may return events or raise."""
        return self.closed or self.begins or self._is_expired or self.position != self._table.end

    async def wait(self, timeout: float = math.inf) -> bool:  # noqa: ASYNC109 - a stream's own time limit
        """Sleep until something may have happened; False when ``timeout`` seconds passed first."""
        if self.pending:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        handle = None if timeout == math.inf else loop.call_later(max(0.0, timeout), self.wake)
        self._table.wait_for_change(self)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if handle is not None:
                handle.cancel()
        return self.pending

    def wake(self) -> None:
        """Let ``wait`` return."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def bookmark(self) -> WatchEvent:
        """Return a BOOKMARK at the current version. Only valid when everything up to now has been drained."""
        return _bookmark(self._filter.kind, self._current_version())

    def expire(self) -> None:
        """Make the next ``drain`` raise 410 Expired."""
        self._is_expired = True
        self.wake()

    def close(self) -> None:
        """End the watch. Events that it has not read are dropped."""
        self.closed = True
        self._table.detach(self)
        self.wake()


def _bookmark(kind: Kind, resource_version: int, **more: object) -> WatchEvent:
    metadata = {"resourceVersion": str(resource_version), **more}
    raw = msgspec.json.encode({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
    return WatchEvent(BOOKMARK, Item(kind, raw, "", "", "", resource_version))


def initial_events(kind: Kind, items: Iterable[Item], resource_version: int, *, marker: bool) -> Iterator[WatchEvent]:
    """Yield the state of a table as synthetic ADDED events, closed by the end marker when asked for."""
    for item in items:
        yield WatchEvent(ADDED, item)
    if marker:
        yield _bookmark(kind, resource_version, annotations={INITIAL_EVENTS_END: "true"})
