"""Faults for tests: failures of an API server and of the network, as a client meets them on a bad day.

A test or a simulation registers rules. :class:`.inprocess.InProcessClient` asks before and after each call and for each
batch of a watch. Everything random is drawn from the seeded generator given here, so a seed repeats a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypedDict, Unpack

from kubesched.api.kinds import Kind
from kubesched.api.wire import ApiError, Item, WatchEvent

from .table import Watch

__all__ = ["Fault", "Faults", "Verb", "connection_lost", "server_error"]

Verb = Literal["list", "watch", "get", "create", "update", "patch", "delete", "bind", "evict", "*"]
When = Literal["before", "after"]
WatchTrouble = Literal["lose", "duplicate", "stale", "reorder"]


def server_error() -> ApiError:
    """Return 500, as from a server in trouble."""
    return ApiError(500, "InternalError", "Internal error occurred: injected fault")


def connection_lost() -> ConnectionResetError:
    """Return the error of a broken connection: the client cannot know if the request took effect."""
    return ConnectionResetError("connection reset by peer (injected fault)")


class Which(TypedDict, total=False):
    """Options of a rule that select calls. ``name`` selects one object; a bind counts as kind pods.

    ``when="after"`` applies a write first. ``nth`` hits only the n-th call from now on (1 is the next), ``fraction`` a
    random part of the calls, ``times`` bounds the number of hits.
    """

    kind: Kind | None
    name: str
    when: When
    nth: int | None
    fraction: float
    times: int | None


@dataclass(slots=True, eq=False, kw_only=True)
class Fault:
    """Rule about calls of a ``verb`` or about watch events; see :class:`Which`.

    :meth:`Faults.remove` removes it. ``calls`` counts matching calls or events, ``hits`` those that were disturbed.
    """

    verb: Verb | None = None
    error: Callable[[], Exception] | None = None
    delay: float = 0.0
    trouble: WatchTrouble | None = None
    kind: Kind | None = None
    name: str = ""
    when: When = "before"
    nth: int | None = None
    fraction: float = 1.0
    times: int | None = None
    calls: int = field(default=0, init=False)
    hits: int = field(default=0, init=False)

    def strikes(self, kind: Kind | None, name: str, random: Random) -> bool:
        """True if the rule disturbs this call or event. The call or event is counted in any case."""
        if self.kind not in (None, kind) or self.name not in ("", name):
            return False
        self.calls += 1
        if self.nth not in (None, self.calls) or self.hits == self.times:
            return False
        if self.fraction < 1.0 and random.random() >= self.fraction:
            return False
        self.hits += 1
        return True


class Faults:
    """Rules in force, and the live watches that they may disturb."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._rules: list[Fault] = []
        self._watches: dict[Watch, Kind] = {}
        self._stalled: dict[Kind | None, float] = {}

    # -- rules -----------------------------------------------------------------------------------------

    def fail(self, verb: Verb, *, error: Callable[[], Exception] = server_error, **which: Unpack[Which]) -> Fault:
        """Make calls of a verb fail; with ``when="after"`` the answer is lost."""
        return self._add(Fault(verb=verb, error=error, **which))

    def delay(self, verb: Verb, seconds: float, **which: Unpack[Which]) -> Fault:
        """Make calls of a verb slow, before the server sees them or after it has done them."""
        return self._add(Fault(verb=verb, delay=seconds, **which))

    def disturb(self, trouble: WatchTrouble, **which: Unpack[Which]) -> Fault:
        """Disturb watch events by one of four troubles.

        ``lose`` one, deliver it twice (``duplicate``), deliver an older version of the object after it (``stale``), or
        swap it with the event before it in the same batch (``reorder``).
        """
        return self._add(Fault(trouble=trouble, **which))

    def _add(self, rule: Fault) -> Fault:
        self._rules.append(rule)
        return rule

    def stall(self, seconds: float, *, kind: Kind | None = None) -> None:
        """Delay the next batch of every watch (of a kind) by some seconds."""
        for watch in self._live(kind):
            self._stalled[self._watches[watch]] = seconds
            watch.wake()

    def remove(self, rule: Fault) -> None:
        """Remove a rule."""
        self._rules = [item for item in self._rules if item is not rule]

    def clear(self) -> None:
        """Remove every rule."""
        self._rules.clear()
        self._stalled.clear()

    def drop_watches(self, kind: Kind | None = None) -> int:
        """Close the live watches (of a kind), as a server does when it restarts. Returns their number."""
        struck = self._live(kind)
        for watch in struck:
            watch.close()
        return len(struck)

    def expire_watches(self, kind: Kind | None = None) -> int:
        """Make the live watches (of a kind) fail with 410. Returns their number."""
        struck = self._live(kind)
        for watch in struck:
            watch.expire()
        return len(struck)

    def _live(self, kind: Kind | None) -> list[Watch]:
        return [watch for watch, watched in self._watches.items() if kind in (None, watched)]

    # -- for the client --------------------------------------------------------------------------------

    @property
    def strikes_calls(self) -> bool:
        """True if there is a rule about calls."""
        return any(rule.verb for rule in self._rules)

    async def strike(self, when: When, verb: Verb, kind: Kind | None, name: str) -> None:
        """Delay or fail a call by the rules. The first rule that fails it wins."""
        for rule in list(self._rules):
            if rule.verb in ("*", verb) and rule.when == when and rule.strikes(kind, name, self._random):
                if rule.delay:
                    await asyncio.sleep(rule.delay)
                if rule.error is not None:
                    raise rule.error()

    def opened(self, watch: Watch, kind: Kind) -> None:
        self._watches[watch] = kind

    def closed(self, watch: Watch) -> None:
        self._watches.pop(watch, None)

    async def spoil(self, kind: Kind, batch: Sequence[WatchEvent], seen: dict[str, Item]) -> list[WatchEvent]:
        """Return a batch as it arrives. ``seen`` is this watch's memory of earlier versions by key."""
        stall = self._stalled.pop(kind, 0.0)
        if stall:
            await asyncio.sleep(stall)
        rules = [rule for rule in self._rules if rule.trouble and rule.kind in (None, kind)]
        result: list[WatchEvent] = []
        for event in batch:
            type_, item = event
            hit = [rule for rule in rules if type_ != "BOOKMARK" and rule.strikes(kind, item.name, self._random)]
            struck = {rule.trouble for rule in hit}
            if "lose" not in struck:
                result.append(event)
                if "reorder" in struck and len(result) > 1:
                    result[-1], result[-2] = result[-2], result[-1]
                if "duplicate" in struck:
                    result.append(event)
                older = seen.get(item.key)
                if "stale" in struck and older is not None:
                    result.append(WatchEvent("MODIFIED", older))
            seen[item.key] = item
            if not rules and type_ == "DELETED":
                del seen[item.key]  # otherwise every object would be kept for the life of the watch
        return result
