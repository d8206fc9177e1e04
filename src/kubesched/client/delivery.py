"""Delivery of changes to the handlers of an informer. An object that a handler failed on is delivered again.

A handler that raises has not taken the object, or only in part. From then on the handler is *behind* with that
object. It receives the object's current state at the next change or after a backoff, whichever is first, until a call
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

#: Objects delivered again before other tasks get a turn.
_YIELD_INTERVAL = 64


class ResourceEventHandler(Protocol):
    """Receiver of changes, in order, after the store has them. Objects are shared: never change one.

    An error that a handler raises is logged, and the object is delivered to it again. So each method must work even if
    an earlier call did all or part of its work: a known object may be added, or an unknown object deleted.

    A handler may have ``on_delete_all(objs)`` as well. While all handlers have it, deletions that come together reach
    each of them in one call. If that call raises, each deletion is delivered by itself.
    """

    def on_add(self, obj: Any, is_initial: bool) -> None:
        """Take a new object. ``is_initial`` is true if it was part of the first list."""
        ...

    def on_update(self, old: Any, new: Any) -> None:
        """Take another version of a known object. The UIDs differ if a deletion in between was not seen."""
        ...

    def on_delete(self, obj: Any) -> None:
        """Take the deletion of an object: its final state, or a :class:`DeletedFinalStateUnknown`."""
        ...


class _Behind:
    """Record of an object that a handler is behind with."""

    __slots__ = ("attempts", "backoff", "due", "error", "taken", "tried")

    def __init__(self, taken: Any, backoff: Backoff) -> None:
        #: The last state that the handler took completely; None if there is none.
        self.taken = taken
        #: The state of the last call that failed.
        self.tried: Any = None
        self.attempts = 0
        self.backoff = backoff
        self.due = 0.0
        self.error = ""


class _Listener:
    """Handler, and its records of objects that it is behind with, by key.

    ``delete_all`` is the handler's ``on_delete_all``, or None.
    """

    __slots__ = ("behind", "delete_all", "handler")

    def __init__(self, handler: ResourceEventHandler) -> None:
        self.handler = handler
        self.delete_all: Callable[[Sequence[Any]], None] | None = getattr(handler, "on_delete_all", None)
        self.behind: dict[str, _Behind] = {}


class Deliveries:
    """All handlers of one informer.

    ``current(key)`` returns the object as the store has it, or None. Counters are plain attributes.
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
        #: Calls that raised, and objects taken after such a call.
        self.errors = self.recovered = 0

    @property
    def behind(self) -> int:
        """Number of objects that wait to be delivered again, counted once for each handler."""
        # Every such object has an entry in _due, which is nearly always empty.
        return sum(len(listener.behind) for listener in self._listeners) if self._due else 0

    def register(self, handler: ResourceEventHandler, objects: dict[str, Any]) -> None:
        """Add a handler. It receives all ``objects`` at once, as initial additions."""
        listener = _Listener(handler)
        self._listeners = (*self._listeners, listener)
        for key, obj in objects.items():
            self._add_to(listener, key, obj, True)

    def unregister(self, handler: ResourceEventHandler) -> None:
        self._listeners = tuple(known for known in self._listeners if known.handler is not handler)

    def close(self) -> None:
        """Remove all handlers, and forget the objects that were to be delivered again."""
        self._listeners = ()
        self._due.clear()

    def audience(self) -> tuple[_Listener, ...]:
        """Return the present handlers. A list is delivered only to handlers that were present when it came."""
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
        """Deliver a deletion. ``obj`` is the final state or a :class:`DeletedFinalStateUnknown`."""
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
        """Deliver deletions that came together. ``gone`` maps keys to final states, in order."""
        together = [listener for listener in self._listeners if listener.delete_all is not None and not listener.behind]
        if len(gone) < 2 or len(together) < len(self._listeners):
            together = []
        failed: list[_Listener] = []
        for listener in together:
            assert listener.delete_all is not None
            try:
                listener.delete_all(list(gone.values()))
            except Exception:
                self.errors += 1
                name = type(listener.handler).__name__
                logger.exception("handler %s failed on %d deletions, each is delivered by itself", name, len(gone))
                failed.append(listener)
        if together and not failed:
            self.deletes += len(gone)
            return
        for key, obj in gone.items():
            self.delete(key, obj, tuple(failed) if together else None)

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
        """Deliver objects again when they are due, until cancelled. No timer is set while no handler is behind."""
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
            # Meanwhile a change may have been delivered or have failed, or the handler may have been removed.
            if known is not None and known.due <= due and listener in self._listeners:
                self._again(listener, key)
                count += 1
                if count % _YIELD_INTERVAL == 0:
                    await asyncio.sleep(0)

    def _again(self, listener: _Listener, key: str) -> None:
        """Bring a handler in step with the current state of an object that it is behind with."""
        known = listener.behind[key]
        obj, handler, taken = self._current(key), listener.handler, known.taken
        if taken is None and obj is not None and uid_of(obj) != uid_of(known.tried):
            taken = known.tried  # the handler may hold a part of the object's predecessor, and has to release it
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
        """Plan the next call. Repetitions of the same error for one object are not logged."""
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
    """Return the UID of an object. Kinds without a class of their own are plain data."""
    return str(obj["metadata"].get("uid", "")) if isinstance(obj, dict) else str(obj.metadata.uid)
