"""The tables and the last steps of every write: a version, the history, the followers of changes, and background work.

What follows changes (deletion, quotas, expiry of events) and what writes besides the verbs is built on this; the verbs
themselves are in :mod:`.store`.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from ...api.kinds import Kind
from ...api.times import Clock, timestamp
from ..schema import Document, Stored, encode_clean, stored
from .reading import Reading
from .table import Follower, Table

__all__ = ["Records"]

#: Objects that background work handles before other tasks get a turn.
STEPS_PER_TURN: Final = 256


class Records(Reading):
    """Tables that can be written to, and who is notified of changes."""

    def __init__(self, clock: Clock, history: int, backlog: int) -> None:
        #: With the kinds that they follow.
        self._followers: list[tuple[Follower, Callable[[Kind], bool]]] = []
        super().__init__(history, backlog)
        self.clock = clock
        self._second, self._timestamp = -1, ""
        self._background: deque[Iterator[None]] = deque()
        self._settling = False
        self._turn_is_due = False

    def register(self, kind: Kind) -> None:
        if kind in self._tables:
            return
        super().register(kind)
        self._tables[kind].followers = [follower for follower, of in self._followers if of(kind)]

    def follow(self, follower: Follower, of: Callable[[Kind], bool] = lambda kind: True) -> None:
        """Notify ``follower`` of every change of the kinds that ``of`` accepts, after those who follow already."""
        self._followers.append((follower, of))
        for kind, table in self._tables.items():
            if kind == table.kind and of(kind):
                table.followers.append(follower)

    def forget_followers(self) -> None:
        """Drop all followers."""
        self._followers.clear()
        for table in self._tables.values():
            table.followers.clear()

    def now(self) -> str:
        """The clock as a timestamp."""
        second = int(self.clock.now())
        if second != self._second:
            self._second, self._timestamp = second, timestamp(second)
        return self._timestamp

    # -- the last steps of every write -------------------------------------------------------------------

    def commit(
        self,
        kind: Kind,
        document: Document,
        old: Stored | None = None,
        *,
        dry_run: bool = False,
        same_metadata: bool = False,
    ) -> Stored:
        """Give a document the next version, store it and notify watches and followers. For this package.

        ``same_metadata``: it was not changed, which saves some work.
        """
        metadata = document["metadata"]
        if dry_run:
            version = 0 if old is None else old.resource_version
            metadata["resourceVersion"] = str(version)
            if old is None:
                del metadata["resourceVersion"]  # what was never stored has none
            return Stored(kind, encode_clean(document), metadata, version)
        version = self._version + 1
        metadata["resourceVersion"] = str(version)
        return self.adopt(self._tables[kind], stored(kind, document, version, old, same_metadata=same_metadata), old)

    def adopt(self, table: Table, item: Stored, old: Stored | None = None) -> Stored:
        """Store an object that is made already, with the next version; ``old`` is the one before. For this package."""
        self._version = item.resource_version
        table.record("ADDED" if old is None else "MODIFIED", item, old)
        for follow in table.followers:
            follow(item, old)
        return item

    def remove(self, document: Document, old: Stored) -> Stored:
        """Remove an object for good; ``document`` is its last state. For this package."""
        version = self._version + 1
        document["metadata"]["resourceVersion"] = str(version)
        return self.removed(stored(old.kind, document, version, old), old)

    def removed(self, item: Stored, old: Stored) -> Stored:
        """Remove an object whose last state is made already, with the next version. For this package."""
        self._version, table = item.resource_version, self._tables[old.kind]
        table.record("DELETED", item, old)
        for follow in table.followers:
            follow(None, old)
        return item

    # -- background work -----------------------------------------------------------------------------------

    def defer(self, work: Iterator[None]) -> None:
        """Queue background work: garbage collection, namespace removal.

        It yields after each object, so that much of it does not hold up the event loop. Objects may change between its
        steps: it has to look again at what it handles.
        """
        self._background.append(work)

    def settle(self) -> None:
        """Do all background work now. In an event loop this happens by itself on its next turns."""
        self._advance(math.inf)

    def settle_later(self) -> None:
        """Let background work begin on the event loop's next turn; without a loop, do it now."""
        if self._turn_is_due or self._settling or not self._background:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.settle()
        else:
            self._turn_is_due = True
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        try:
            self._advance(STEPS_PER_TURN)
        finally:
            self.settle_later()

    def _advance(self, steps: float) -> None:
        """Do background work: all of it, or about as many steps as given."""
        if self._settling:
            return
        self._settling = True
        try:
            while self._background:
                for _ in self._background[0]:
                    steps -= 1
                    if steps <= 0:
                        return
                self._background.popleft()
        finally:
            self._settling = False
