"""Faults on purpose: what an API server and the network between do to a client on a bad day.

A test or a simulation registers rules; :class:`.inprocess.InProcessClient` asks before and after each call and
for each batch of a watch. Everything random is drawn from the seeded generator given here, so a seed repeats a
failure. Anchors for each fault: field notes, section 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from ...api.kinds import Kind
from ...api.wire import ApiError, Item, WatchEvent
from .table import Watch

__all__ = ["CallFault", "Faults", "Verb", "WatchFault", "connection_lost", "server_error"]

Verb = Literal["list", "watch", "get", "create", "update", "patch", "delete", "bind", "evict", "*"]
When = Literal["before", "after"]
WatchTrouble = Literal["lose", "duplicate", "stale", "reorder"]


def server_error() -> ApiError:
    """500, as a server in trouble answers."""
    return ApiError(500, "InternalError", "Internal error occurred: injected fault")


def connection_lost() -> ConnectionResetError:
    """The connection broke: the client cannot know whether the request took effect."""
    return ConnectionResetError("connection reset by peer (injected fault)")


@dataclass(slots=True)
class _Fault:
    """One rule. Take it back with :meth:`Faults.remove`; ``hits`` counts what it did."""

    kind: Kind | None
    fraction: float
    times: int | None
    hits: int = field(default=0, init=False)

    def _hits(self, random: Random) -> bool:
        if self.times is not None and self.hits >= self.times:
            return False
        if self.fraction < 1.0 and random.random() >= self.fraction:
            return False
        self.hits += 1
        return True


@dataclass(slots=True)
class CallFault(_Fault):
    """One rule about calls."""

    verb: Verb
    error: Callable[[], Exception] | None
    when: When
    nth: int | None
    delay: float
    name: str = ""
    calls: int = 0

    def strikes(self, verb: str, kind: Kind | None, name: str, random: Random) -> bool:
        """Whether this call is hit; counts it either way."""
        if self.verb not in ("*", verb) or (self.kind is not None and self.kind != kind):
            return False
        if self.name and self.name != name:
            return False
        self.calls += 1
        return (self.nth is None or self.calls == self.nth) and self._hits(random)


@dataclass(slots=True)
class WatchFault(_Fault):
    """One rule about watch events."""

    trouble: WatchTrouble

    def strikes(self, kind: Kind, random: Random) -> bool:
        return self.kind in (None, kind) and self._hits(random)


class Faults:
    """The rules in force, and the live watches they may strike."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._calls: list[CallFault] = []
        self._events: list[WatchFault] = []
        self._watches: dict[Watch, Kind] = {}
        self._stalled: dict[Kind | None, float] = {}

    # -- rules -----------------------------------------------------------------------------------------

    def fail(
        self,
        verb: Verb,
        *,
        kind: Kind | None = None,
        name: str = "",
        error: Callable[[], Exception] = server_error,
        when: When = "before",
        nth: int | None = None,
        fraction: float = 1.0,
        times: int | None = None,
    ) -> CallFault:
        """Make calls of a verb fail.

        ``when="after"`` applies the write and loses the answer. ``nth`` hits only the n-th call from now on
        (1 is the next), ``fraction`` a random part of them, ``times`` at most so many. ``name`` narrows it to one
        object; a bind counts as kind pods.
        """
        return self._add(CallFault(kind, fraction, times, verb, error, when, nth, 0.0, name))

    def delay(
        self,
        verb: Verb,
        seconds: float,
        *,
        kind: Kind | None = None,
        name: str = "",
        when: When = "before",
        nth: int | None = None,
        fraction: float = 1.0,
        times: int | None = None,
    ) -> CallFault:
        """Make calls of a verb slow, before the server sees them or after it has done them."""
        return self._add(CallFault(kind, fraction, times, verb, None, when, nth, seconds, name))

    def disturb(
        self, trouble: WatchTrouble, *, kind: Kind | None = None, fraction: float = 1.0, times: int | None = None
    ) -> WatchFault:
        """Spoil watch events: ``lose`` one, deliver it twice (``duplicate``), deliver an older version of the object
        after it (``stale``), or swap it with the one before it in the same batch (``reorder``)."""
        rule = WatchFault(kind, fraction, times, trouble)
        self._events.append(rule)
        return rule

    def stall(self, seconds: float, *, kind: Kind | None = None) -> None:
        """Hold back the next batch of every watch (of a kind) for so long."""
        for watch, watched in self._watches.items():
            if kind in (None, watched):
                self._stalled[watched] = seconds
                watch.wake()

    def remove(self, rule: CallFault | WatchFault) -> None:
        """Take a rule back."""
        if isinstance(rule, CallFault):
            self._calls = [item for item in self._calls if item is not rule]
        else:
            self._events = [item for item in self._events if item is not rule]

    def clear(self) -> None:
        """Take every rule back."""
        self._calls.clear()
        self._events.clear()
        self._stalled.clear()

    def drop_watches(self, kind: Kind | None = None) -> int:
        """Close the live watches (of a kind) as a server that restarts; how many there were."""
        struck = self._live(kind)
        for watch in struck:
            watch.close()
        return len(struck)

    def expire_watches(self, kind: Kind | None = None) -> int:
        """Make the live watches (of a kind) fail with 410; how many there were."""
        struck = self._live(kind)
        for watch in struck:
            watch.expire()
        return len(struck)

    def _live(self, kind: Kind | None) -> list[Watch]:
        return [watch for watch, watched in self._watches.items() if kind in (None, watched)]

    def _add(self, rule: CallFault) -> CallFault:
        self._calls.append(rule)
        return rule

    # -- for the client --------------------------------------------------------------------------------

    @property
    def strikes_calls(self) -> bool:
        """Whether there is any rule about calls."""
        return bool(self._calls)

    async def strike(self, when: When, verb: Verb, kind: Kind | None, name: str) -> None:
        """Delay or fail a call as the rules say; the first failing rule wins."""
        for rule in list(self._calls):
            if rule.when == when and rule.strikes(verb, kind, name, self._random):
                if rule.delay:
                    await asyncio.sleep(rule.delay)
                if rule.error is not None:
                    raise rule.error()

    def opened(self, watch: Watch, kind: Kind) -> None:
        self._watches[watch] = kind

    def closed(self, watch: Watch) -> None:
        self._watches.pop(watch, None)

    async def spoil(self, kind: Kind, batch: Sequence[WatchEvent], seen: dict[str, Item]) -> list[WatchEvent]:
        """A batch as it arrives; ``seen`` is this watch's memory of earlier versions by key."""
        stall = self._stalled.pop(kind, 0.0)
        if stall:
            await asyncio.sleep(stall)
        rules = [rule for rule in self._events if rule.kind in (None, kind)]
        if not rules:
            for type_, item in batch:
                if type_ == "DELETED":
                    seen.pop(item.key, None)  # or a long life would be cached whole
                else:
                    seen[item.key] = item
            return list(batch)
        result: list[WatchEvent] = []
        for event in batch:
            struck = {rule.trouble for rule in rules if event.type != "BOOKMARK" and rule.strikes(kind, self._random)}
            if "lose" not in struck:
                result.append(event)
                if "reorder" in struck and len(result) > 1:
                    result[-1], result[-2] = result[-2], result[-1]
                if "duplicate" in struck:
                    result.append(event)
                older = seen.get(event.item.key)
                if "stale" in struck and older is not None:
                    result.append(WatchEvent("MODIFIED", older))
            seen[event.item.key] = event.item
        return result
