"""What every controller is: a queue of keys, handlers that fill it, and one level-triggered ``reconcile``.

A reconcile reads the current state and moves it one step towards what is wanted; it never relies on having seen
an event. When it raises, the key is tried again later. Caller: :mod:`.manager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final

from kubesched.api.kinds import PODS, Kind
from kubesched.api.wire import ApiError, Item
from kubesched.client.event_writer import NORMAL, WARNING

from ..kubelets import WatchCache
from .context import Context, differ, owner_key, spec_of
from .pods import is_ready, ready_since
from .work_queue import WorkQueue

__all__ = ["MOST_PODS", "Controller", "ObjectController", "WorkloadController"]

#: Brings an object a step further.
Step = Callable[[Item], Awaitable[object]]

_log = logging.getLogger("kubesched.cluster.controllers")

#: Pods that one workload gets, whatever its specification asks for: they are held in memory.
MOST_PODS: Final = 250_000
#: Reconciles before other tasks get a turn.
_LOOKS_PER_TURN: Final = 32


class Controller:
    """One control loop; one key at a time, in the order in which they came."""

    name: ClassVar[str] = ""
    #: The component that its events name; ``<name>-controller`` unless it is given.
    component: ClassVar[str] = ""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.queue = WorkQueue()
        #: How often a key was reconciled.
        self.reconciles = 0
        self._defects: dict[str, str] = {}
        self._steps: dict[str, tuple[WatchCache, Step]] = {}

    def each(self, cache: WatchCache, step: Step, prefix: str = "") -> None:
        """Reconcile the objects of a cache by a step; their keys get a prefix, which is not the beginning of another."""
        self._steps[prefix] = cache, step

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        """The handler of the kind that is reconciled."""
        self.queue.add(item.key)

    async def record(self, about: Item, type_: str, reason: str, message: str) -> None:
        """Record an event about an object; it does no harm when that fails."""
        component = self.component or f"{self.name}-controller"
        await self.context.events.record(about, component, type_, reason, message)

    async def reconcile(self, key: str) -> None:
        """Bring one object a step further, if it exists. Raises what the transport raises: the key is then tried again."""
        prefix = next(filter(key.startswith, self._steps))
        cache, step = self._steps[prefix]
        item = cache.get(key.removeprefix(prefix))
        if item is None:
            self.queue.forget_timers(key)  # such as that of its deadline
        else:
            await step(item)

    async def run(self) -> None:
        """Work until cancelled. A defect of ours is logged and the key tried again, as a refused request would be."""
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
                await asyncio.sleep(0)  # in process, nothing that a reconcile awaits need ever wait

    def _note_failure(self, key: str, error: Exception) -> None:
        text = f"{self.name} {key}: "
        if isinstance(error, ApiError | OSError):
            if getattr(error, "code", 0) != 409:  # a conflict is normal: another client wrote first
                self.context.problems.note(f"{text}{error}")
        elif self._defects.get(key) != repr(error):  # the same failure at every retry is reported once
            self._defects[key] = repr(error)
            _log.exception("controller %s: %s", self.name, key)
            self.context.problems.note(f"{text}defect: {error!r}")


class ObjectController(Controller):
    """A controller of the objects of one kind, whose keys are theirs."""

    kind: ClassVar[Kind]
    #: What events say of something that was created for an object, was refused, and was deleted.
    created: ClassVar[str] = "Created pod: {name}"
    refused: ClassVar[str] = "Error creating: {error}"
    deleted: ClassVar[str] = "Deleted pod: {name}"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.cache = context.watch(self.kind, self.enqueue)
        self.each(self.cache, self.reconcile_object)

    def enqueue_owner(self, item: Item, old: Item | None, new: Item | None) -> None:
        """A handler of what objects of the kind control."""
        if key := owner_key(item, self.kind):
            self.queue.add(key)

    async def reconcile_object(self, item: Item) -> None:
        """The step of the kind."""
        raise AssertionError("every controller says what it does")

    def current(self, item: Item) -> Item | None:
        """The newest version of an object; None when it is gone."""
        fresh = self.cache.get(item.key)
        return fresh if fresh is not None and fresh.uid == item.uid else None

    async def create_owned(self, owner: Item, kind: Kind, body: Mapping[str, Any], *, tolerated: int = 0) -> Item:
        """Create something for an object and record an event, also for a refusal unless its code is ``tolerated``.

        Raises what the transport raises.
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
        """Delete what was made for an object, unless it is going already, and record an event for each.

        Raises what the transport raises.
        """
        for item in items:
            if not self.context.is_going(item):
                await self.context.delete(item)
                text = self.deleted.format(name=item.name, owner=owner.name)
                await self.record(owner, NORMAL, "SuccessfulDelete", text)

    async def act_and_report(
        self, item: Item, action: Awaitable[object], report: Callable[[Item, ApiError | None], Awaitable[object]]
    ) -> None:
        """Act, then report the state of the object as it is now, also when the action was refused; that is raised then."""
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
    """A controller of objects that own pods."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: UIDs of objects that want more pods than they get.
        self._bounded: set[str] = set()
        context.owned_cache(self.kind)  # their own owners matter, too
        context.watch(PODS, self._pod_changed)

    async def bounded(self, owner: Item, wanted: int) -> int:
        """How many pods an object gets of those that it asks for. An event says once that it gets no more."""
        if wanted <= MOST_PODS:
            self._bounded.discard(owner.uid)
        elif owner.uid not in self._bounded:
            self._bounded.add(owner.uid)
            text = f"{wanted} pods are wanted, and one workload gets {MOST_PODS} at most here"
            await self.record(owner, WARNING, "TooManyPods", text)
        return min(wanted, MOST_PODS)

    def is_available(self, owner: Item, pod: Item) -> bool:
        """Whether a pod has been ready for ``minReadySeconds``; when it will have been, its owner is reconciled again."""
        since = ready_since(pod.typed)
        if since is None:
            return False
        least = float(spec_of(owner).get("minReadySeconds") or 0)
        left = since + least - self.context.now() if least else 0.0
        if left > 0:
            self.queue.add_after(owner.key, left)
        return left <= 0

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Enqueue the owner: at once when a pod is removed, a little later when its status changed or it is new."""
        key = owner_key(item, self.kind)
        if not key:
            return
        if new is None or (old is not None and differ(old, new, lambda pod: pod.typed.metadata.deletion_timestamp)):
            self.queue.add(key)
        elif differ(old, new, lambda pod: (pod.typed.status.phase, is_ready(pod.typed))):
            self.queue.add_after(key, self.context.settings.batch_seconds)
