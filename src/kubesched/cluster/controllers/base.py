"""Base of all controllers: a queue of keys, handlers that fill it, and one level-triggered ``reconcile``.

A reconcile reads the current state and moves it one step towards the wanted state; it never relies on having seen an
event. When it raises, the key is tried again later. Caller: :mod:`.manager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final

from kubesched.api.kinds import PODS, Kind
from kubesched.api.wire import ApiError, Item
from kubesched.base.times import timestamp
from kubesched.client.event_writer import NORMAL, WARNING

from ..kubelets import WatchCache
from .context import Context, differ, owner_key, spec_of
from .pods import is_ready, ready_since
from .work_queue import WorkQueue

__all__ = ["MOST_PODS", "Controller", "ObjectController", "WorkloadController"]

#: Step of a reconcile, for one object.
Step = Callable[[Item], Awaitable[object]]

_log = logging.getLogger("kubesched.cluster.controllers")

#: Most pods that one workload gets, even if its spec asks for more, because pods are held in memory.
MOST_PODS: Final = 250_000
#: Reconciles before other tasks get a turn.
_LOOKS_PER_TURN: Final = 32


class Controller:
    """Control loop that reconciles one key at a time, in the order in which the keys were added."""

    name: ClassVar[str] = ""
    #: Component named in the controller's events; empty stands for ``<name>-controller``.
    component: ClassVar[str] = ""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.queue = WorkQueue()
        #: Number of reconciles so far.
        self.reconciles = 0
        self._defects: dict[str, str] = {}
        self._steps: dict[str, tuple[WatchCache, Step]] = {}

    def each(self, cache: WatchCache, step: Step, prefix: str = "") -> None:
        """Reconcile the objects of a cache by a step.

        Their keys get the prefix. No prefix may be the beginning of another prefix.
        """
        self._steps[prefix] = cache, step

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Add an object of the reconciled kind to the queue. Handler for the watch cache."""
        self.queue.add(item.key)

    async def record(self, about: Item, type_: str, reason: str, message: str) -> None:
        """Record an event about an object. A failure to record is ignored."""
        component = self.component or f"{self.name}-controller"
        await self.context.events.record(about, component, type_, reason, message)

    async def reconcile(self, key: str) -> None:
        """Move one object one step, if it exists. Errors of the transport are raised; the key is then tried again."""
        prefix = next(filter(key.startswith, self._steps))
        cache, step = self._steps[prefix]
        item = cache.get(key.removeprefix(prefix))
        if item is None:
            self.queue.forget_timers(key)  # such as the timer of its deadline
        else:
            await step(item)

    async def run(self) -> None:
        """Work until cancelled.

        A defect in a controller is logged and the key tried again, as after a refused request.
        """
        queue = self.queue
        while True:
            key = await queue.get()
            try:
                self.reconciles += 1
                await self.reconcile(key)
            except Exception as error:
                self._note_failure(key, error)
                queue.failed(key)
            else:
                queue.succeeded(key)
                self._defects.pop(key, None)
            finally:
                queue.done()
            if self.reconciles % _LOOKS_PER_TURN == 0:
                await asyncio.sleep(0)  # in one process, a reconcile may never really wait

    def _note_failure(self, key: str, error: Exception) -> None:
        text = f"{self.name} {key}: "
        if isinstance(error, ApiError | OSError):
            if getattr(error, "code", 0) != 409:  # a conflict is normal: another client wrote first
                self.context.problems.note(f"{text}{error}")
        elif self._defects.get(key) != repr(error):  # a failure that repeats at every retry is reported once
            self._defects[key] = repr(error)
            _log.exception("controller %s: %s", self.name, key)
            self.context.problems.note(f"{text}defect: {error!r}")


class ObjectController(Controller):
    """Controller of the objects of one kind; its keys are the objects' keys."""

    kind: ClassVar[Kind]
    #: Texts of events: an object was created for the owner, its creation was refused, it was deleted.
    created: ClassVar[str] = "Created pod: {name}"
    refused: ClassVar[str] = "Error creating: {error}"
    deleted: ClassVar[str] = "Deleted pod: {name}"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.cache = context.watch(self.kind, self.enqueue)
        self.each(self.cache, self.reconcile_object)

    def enqueue_owner(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Add the owner of a changed object to the queue. Handler for objects that the kind controls."""
        if key := owner_key(item, self.kind):
            self.queue.add(key)

    async def reconcile_object(self, item: Item) -> None:
        """Move one object one step. Each controller defines it."""
        raise AssertionError("every controller says what it does")

    def current(self, item: Item) -> Item | None:
        """Return the newest version of an object; None when it is gone."""
        fresh = self.cache.get(item.key)
        return fresh if fresh is not None and fresh.uid == item.uid else None

    async def create_owned(self, owner: Item, kind: Kind, body: Mapping[str, Any], *, tolerated: int = 0) -> Item:
        """Create an object for its owner and record an event.

        A refusal is recorded too, unless its code is ``tolerated``. Errors of the transport are raised.
        """
        try:
            made = await self.context.create(kind, owner.namespace, body)
        except ApiError as error:
            name = body["metadata"].get("name", "")
            text = self.refused.format(name=name, owner=owner.name, error=error.message)
            if error.code != tolerated:
                await self.record(owner, WARNING, "FailedCreate", text)
            raise
        await self.record(owner, NORMAL, "SuccessfulCreate", self.created.format(name=made.name, owner=owner.name))
        return made

    async def delete_owned(self, owner: Item, *items: Item) -> None:
        """Delete objects that were made for an owner, and record an event for each. Objects being deleted are left out.

        Errors of the transport are raised.
        """
        for item in items:
            if not self.context.is_going(item):
                await self.context.delete(item)
                text = self.deleted.format(name=item.name, owner=owner.name)
                await self.record(owner, NORMAL, "SuccessfulDelete", text)

    async def act_and_report(
        self, item: Item, action: Awaitable[object], report: Callable[[Item, ApiError | None], Awaitable[object]]
    ) -> None:
        """Await an action, then report the object's current state. A refusal is reported as well, then raised."""
        failure: ApiError | None = None
        try:
            await action
        except ApiError as error:
            failure = error
        if (fresh := self.current(item)) is not None:
            await report(fresh, failure)
        if failure is not None:
            raise failure


class WorkloadController(ObjectController):
    """Controller of objects that own pods."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: UIDs of objects that want more pods than the limit allows.
        self._bounded: set[str] = set()
        context.owned_cache(self.kind)  # the owners of these objects matter, too
        context.watch(PODS, self._pod_changed)

    async def bounded(self, owner: Item, wanted: int) -> int:
        """Return the number of pods that an object gets of those it wants. If the number is cut, one event says so."""
        if wanted <= MOST_PODS:
            self._bounded.discard(owner.uid)
        elif owner.uid not in self._bounded:
            self._bounded.add(owner.uid)
            text = f"{wanted} pods are wanted, and one workload gets {MOST_PODS} at most here"
            await self.record(owner, WARNING, "TooManyPods", text)
        return min(wanted, MOST_PODS)

    def is_available(self, owner: Item, pod: Item) -> bool:
        """True if a pod has been ready for ``minReadySeconds``.

        If not yet, its owner is reconciled again at that time.
        """
        if not is_ready(pod.typed):
            return False
        least = float(spec_of(owner).get("minReadySeconds") or 0)
        left = (ready_since(pod.typed) or 0.0) + least - self.context.now() if least else 0.0
        if left > 0:
            self.queue.add_after(owner.key, left)
        return left <= 0

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Enqueue the owner of a pod that came, changed its status, is being deleted or went, a little later.

        A reconcile reads all pods of its owner. Changes that come together, such as the evictions of a failed zone,
        therefore share one. A pod that ends in the second in which it came is replaced at once: if that has no end, virtual
        time stands still, by which a simulation notices it.
        """
        key = owner_key(item, self.kind)
        if key and differ(old, new, _seen_by_owner):
            metadata = item.typed.metadata
            ends = new is None or metadata.deletion_timestamp is not None
            at_once = ends and metadata.creation_timestamp == timestamp(self.context.now())
            self.queue.add_after(key, 0.0 if at_once else self.context.settings.batch_seconds)


def _seen_by_owner(pod: Item) -> object:
    return pod.typed.status.phase, is_ready(pod.typed), pod.typed.metadata.deletion_timestamp
