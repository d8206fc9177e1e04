"""Delivery of changes to the handlers of an informer; objects that a handler failed on are delivered again.

A handler that raises has not taken the object, or only in part. From then on the handler is *behind* with that
object: it receives its current state again, at its next change or after a backoff, whichever is first, until a call
succeeds. Other handlers and other objects are not affected. Owner: :class:`~.informer.Informer`.

    last call that failed    object now      next call
    add                      exists          on_add(current)
    update, delete           exists          on_update(last state taken, current)
    any                      gone            on_delete(DeletedFinalStateUnknown)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol

from kubesched.api.kinds import Kind
from kubesched.api.tombstone import DeletedFinalStateUnknown, final_state

from .backoff import Backoff

__all__ = ["Deliveries", "ResourceEventHandler", "uid_of"]

logger = logging.getLogger("kubesched.client")

#: Objects delivered again in one batch before other tasks run.
_YIELD_INTERVAL = 64


class ResourceEventHandler(Protocol):
    """Receives changes, in order, after the store has them. Objects are shared: never change one.

    What a handler raises is logged, and the object is delivered to it again. Each method must therefore bear
    that an earlier call did all or part of its work: an addition of an object that is known, a deletion of one that
    is not.

    A handler may have ``on_delete_all(objs)`` as well. While it is the only one, it receives deletions that come together
    in one call. If that raises, each of them is delivered by itself.
    """

    def on_add(self, obj: Any, is_initial: bool) -> None:
        """A new object; ``is_initial`` when it was part of the first list."""
        ...

    def on_update(self, old: Any, new: Any) -> None:
        """Another version of a known object. The UID may differ when a deletion was never seen."""
        ...

    def on_delete(self, obj: Any) -> None:
        """The final state of a deleted object, or a :class:`DeletedFinalStateUnknown`."""
        ...


class _Behind:
    """An object that a handler could not take."""

    __slots__ = ("attempts", "backoff", "due", "error", "taken", "tried")

    def __init__(self, taken: Any, backoff: Backoff) -> None:
        #: The last state that the handler took completely, None when there is none.
        self.taken = taken
        #: The state of the last call that failed.
        self.tried: Any = None
        self.attempts = 0
        self.backoff = backoff
        self.due = 0.0
        self.error = ""


class _Listener:
    """A handler and the objects, by key, that it is behind with.

    ``delete_all`` is the handler's ``on_delete_all``, None when it has none.
    """

    __slots__ = ("behind", "delete_all", "handler")

    def __init__(self, handler: ResourceEventHandler) -> None:
        self.handler = handler
        self.delete_all: Callable[[Sequence[Any]], None] | None = getattr(handler, "on_delete_all", None)
        self.behind: dict[str, _Behind] = {}


class Deliveries:
    """All handlers of one informer.

    ``current`` gives the object of a key as the store has it, or None. Counters are plain attributes.
    """

    def __init__(self, kind: Kind, rng: Random, current: Callable[[str], Any]) -> None:
        self._kind = kind
        self._rng = rng
        self._current = current
        self._listeners: tuple[_Listener, ...] = ()
        self._due: list[tuple[float, int, _Listener, str]] = []
        self._order = 0
        self._wake = asyncio.Event()
        self.adds = self.updates = self.deletes = 0
        #: Calls that raised, and objects that were taken after that.
        self.errors = self.recovered = 0

    @property
    def behind(self) -> int:
        """How many objects wait to be delivered again, counted once for each handler."""
        # Each of them is due at some time; nearly always there is none.
        return sum(len(listener.behind) for listener in self._listeners) if self._due else 0

    def register(self, handler: ResourceEventHandler, objects: dict[str, Any]) -> None:
        """Add a handler; it receives all ``objects`` at once, as initial additions."""
        listener = _Listener(handler)
        self._listeners = (*self._listeners, listener)
        for key, obj in objects.items():
            self._add_to(listener, key, obj, True)

    def unregister(self, handler: ResourceEventHandler) -> None:
        self._listeners = tuple(known for known in self._listeners if known.handler is not handler)

    def close(self) -> None:
        """From now on no listener receives anything."""
        self._listeners = ()
        self._due.clear()

    def audience(self) -> tuple[_Listener, ...]:
        """The handlers of this moment: a list is delivered to those that were there when it came."""
        return self._listeners

    # -- changes, after the store has them -------------------------------------------------------------

    def add(self, key: str, obj: Any, is_initial: bool, audience: tuple[_Listener, ...] | None = None) -> None:
        self.adds += 1
        for listener in self._listeners if audience is None else audience:
            self._add_to(listener, key, obj, is_initial)

    def update(self, key: str, old: Any, new: Any, audience: tuple[_Listener, ...] | None = None) -> None:
        self.updates += 1
        for listener in self._listeners if audience is None else audience:
            if listener.behind and key in listener.behind:
                self._again(listener, key)
                continue
            try:
                listener.handler.on_update(old, new)
            except Exception as error:
                self._failed(listener, key, old, new, error)

    def delete(self, key: str, obj: Any, audience: tuple[_Listener, ...] | None = None) -> None:
        """``obj`` is the final state or a :class:`DeletedFinalStateUnknown`."""
        self.deletes += 1
        for listener in self._listeners if audience is None else audience:
            if listener.behind and key in listener.behind:
                self._again(listener, key)
                continue
            try:
                listener.handler.on_delete(obj)
            except Exception as error:
                last = final_state(obj)
                self._failed(listener, key, last, last, error)

    def delete_all(self, gone: Mapping[str, Any]) -> None:
        """Deletions that came together, in order: key to final state."""
        only = self._listeners[0] if len(self._listeners) == 1 and len(gone) > 1 else None
        if only is not None and only.delete_all is not None and not only.behind:
            try:
                only.delete_all(list(gone.values()))
            except Exception:
                self.errors += 1
                name = type(only.handler).__name__
                logger.exception("handler %s failed on %d deletions, each is delivered by itself", name, len(gone))
            else:
                self.deletes += len(gone)
                return
        for key, obj in gone.items():
            self.delete(key, obj)

    def _add_to(self, listener: _Listener, key: str, obj: Any, is_initial: bool) -> None:
        if listener.behind and key in listener.behind:
            self._again(listener, key)
            return
        try:
            listener.handler.on_add(obj, is_initial)
        except Exception as error:
            self._failed(listener, key, None, obj, error)

    # -- once more -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Deliver again what is due, until cancelled. No timer is set while no listener is behind."""
        loop = asyncio.get_running_loop()
        count = 0
        while True:
            self._wake.clear()
            if not self._due:
                await self._wake.wait()
                continue
            due, _, listener, key = self._due[0]
            if due > loop.time():
                timer = loop.call_at(due, self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    timer.cancel()
                continue
            heappop(self._due)
            known = listener.behind.get(key)
            # A change may have been delivered, or have failed, meanwhile; and the handler may have been removed.
            if known is not None and known.due <= due and listener in self._listeners:
                self._again(listener, key)
                count += 1
                if count % _YIELD_INTERVAL == 0:
                    await asyncio.sleep(0)

    def _again(self, listener: _Listener, key: str) -> None:
        """Bring a handler in step with the current state of an object it is behind with."""
        known = listener.behind[key]
        obj, handler, taken = self._current(key), listener.handler, known.taken
        if taken is None and obj is not None and uid_of(obj) != uid_of(known.tried):
            taken = known.tried  # the handler may have taken part of the predecessor, and has to release it
        try:
            if obj is None:
                handler.on_delete(DeletedFinalStateUnknown(key, known.tried if taken is None else taken))
            elif taken is None:
                handler.on_add(obj, False)
            else:
                handler.on_update(taken, obj)
        except Exception as error:
            self._failed(listener, key, None, known.tried if obj is None else obj, error)
            return
        del listener.behind[key]
        self.recovered += 1
        name = type(handler).__name__
        logger.info("handler %s took %s %s after %d failures", name, self._kind, key, known.attempts)

    def _failed(self, listener: _Listener, key: str, taken: Any, tried: Any, error: Exception) -> None:
        """Plan the next call. The same error of the same object is logged once."""
        self.errors += 1
        loop = asyncio.get_running_loop()
        known = listener.behind.get(key)
        if known is None:
            known = listener.behind[key] = _Behind(taken, Backoff(self._rng))
        known.tried = tried
        known.attempts += 1
        delay = known.backoff.next_delay(loop.time())
        known.due = loop.time() + delay
        self._order += 1
        heappush(self._due, (known.due, self._order, listener, key))
        self._wake.set()
        text = repr(error)
        if text != known.error:
            known.error = text
            name = type(listener.handler).__name__
            logger.error(
                "handler %s failed on %s %s, which is delivered again in %.1f s, then with backoff",
                *(name, self._kind, key, delay),
                exc_info=error,
            )


def uid_of(obj: Any) -> str:
    """The UID of an object; kinds without a type of ours are plain data."""
    return str(obj["metadata"].get("uid", "")) if isinstance(obj, dict) else str(obj.metadata.uid)
