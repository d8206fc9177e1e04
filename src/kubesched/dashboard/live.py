"""Source over a live scheduler, for ``kubesched up`` and ``kubesched run``.

    Live(...) ──▶ Scheduler(observers=[live.observer, …]) ──▶ live.attach(...) ──▶ live.tasks() ──▶ Site([live])

Work for pages goes in steps that take a small share of the event loop while the scheduler has work (see
:meth:`kubesched.explain.live.LivePages.paced`). Changes are read from the journal of the node table four times a second while a
page listens; samples are taken always, so that a page has a past when it is opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kubesched.base.pages import Answer
from kubesched.base.turns import Pace, Steps
from kubesched.explain.live import LivePages
from kubesched.explain.objects import Objects
from kubesched.explain.records.ring import RecordFilter
from kubesched.explain.watchers import Watchers
from kubesched.scheduler.scheduler import Scheduler

from .devices import DeviceCounts
from .life import is_whole, life_of
from .node_map import NodeMap
from .observed import Observed
from .pods import finding_pods, node_page, pod_of, pod_page
from .queue_groups import finding_places
from .samples import Samples
from .schema import (
    Binding,
    Change,
    Eviction,
    Mode,
    NodePage,
    Played,
    PluginWeight,
    PodList,
    PodPage,
    Profile,
    Queues,
    RunInfo,
    Sample,
    Series,
    State,
    Verdicts,
)
from .schema_what_if import Applied, Choices, Outcome, WhatIf
from .shared import SharedAnswers
from .source import PodQuery, Refused, Trials
from .streams import Streams
from .verdicts import finding_verdicts

__all__ = ["Live"]

_log = logging.getLogger("kubesched.dashboard")

T = TypeVar("T")

#: Real seconds between two changes, and between two samples.
_CHANGE_SECONDS: Final = 0.25
_SAMPLE_SECONDS: Final = 1.0
#: Real seconds after a defect.
_PAUSE_SECONDS: Final = 5.0
#: Most recorded decisions of a pod that its life lists.
_MOST_RECORDS: Final = 100
#: Share of the event loop that states may take while the scheduler has work: the first thing that a page asks for.
_STATE_SHARE: Final = 0.2


class Live:
    """Live scheduler as a source.

    Attributes:
        observer: observer of attempts, for the scheduler.
    """

    def __init__(
        self,
        name: str,
        mode: Mode,
        *,
        trials: Trials | None = None,
        speed: float = 1.0,
        remarks: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """``remarks`` returns sentences about what should be known of this scheduler now. ``speed`` is the number of seconds that the event loop counts in a real one.

        ``trials`` answers what would happen if something changed, and changes it; None refuses such questions.
        """
        self._name, self._mode, self._remarks_now = name, mode, remarks
        self.trials = trials
        self._speed = speed
        self.observer = Observed()
        self._samples = Samples(self.observer)
        self._current: Callable[[], Scheduler] | None = None
        self._ready: Callable[[], bool] = lambda: True
        self._watchers: Watchers | None = None
        self._replaced: Callable[[Scheduler], None] = lambda scheduler: None
        #: Scheduler that is followed, and the last one that was.
        self._scheduler: Scheduler | None = None
        self._known: Scheduler | None = None
        self._answers = SharedAnswers()
        self._defects: set[type[Exception]] = set()
        self._map: NodeMap | None = None
        self._devices: DeviceCounts | None = None
        self._streams = Streams(0, self._watched, speed=speed)
        self._start = 0.0
        self._state: State | None = None
        self._unsent: Sample | None = None
        self._listening = asyncio.Event()

    def attach(
        self,
        scheduler: Callable[[], Scheduler],
        watchers: Watchers,
        ready: Callable[[], bool] = lambda: True,
        replaced: Callable[[Scheduler], None] = lambda scheduler: None,
    ) -> None:
        """Follow the scheduler that ``scheduler`` returns. When it returns another one later, ``replaced`` is called with it,
        to attach the watchers.

        Call it before the scheduler starts, after ``watchers`` were attached. ``ready`` returns True once the caches are filled.
        """
        self._current, self._watchers, self._ready, self._replaced = scheduler, watchers, ready, replaced
        clock = scheduler().clock
        self.observer.attach(clock.now)
        self._start = clock.now()
        # Versions go on after those of an earlier run of the program, which a page may still have.
        self._streams.version = int(self._start) * 1000

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that a process has to run, with their names."""
        yield "dashboard-samples", self._sample()
        yield "dashboard-changes", self._change()

    def close(self) -> None:
        """Give up the answers under way."""
        self._answers.close()

    # -- the overview --------------------------------------------------------------------------------------

    @property
    def info(self) -> RunInfo:
        can_try = self.trials is not None
        start = self._samples.start
        return RunInfo(
            id=0,
            name=self._name,
            mode=self._mode,
            start=start if start is not None else self._start,
            what_if=can_try,
            writable=can_try,
            remarks=list(self._remarks_now()),
        )

    def _now_only(self, at: float | None) -> Scheduler:
        """Return the scheduler. A live one has no past.

        Raises:
            Refused: for a time, and while the cluster has not been read.
        """
        if at is not None:
            raise Refused(400, "at: this is a live cluster, which shows the present only")
        if self._current is None or not self._ready():
            raise Refused(503, "the scheduler has not read the cluster yet")
        scheduler = self._current()
        if scheduler is not self._scheduler:
            if self._known is not None:
                self._streams.reset()
                if self._known is not scheduler:
                    self._replaced(scheduler)
            if self._devices is None or self._known is not scheduler:
                self._devices = DeviceCounts(scheduler.informers)
            self._scheduler, self._known, self._state = scheduler, scheduler, None
            self._map = NodeMap(scheduler.cache.table, self._devices)
            self._pace = Pace(_STATE_SHARE, lambda: scheduler.is_idle, asyncio.get_running_loop().time)
        return scheduler

    @property
    def _pages(self) -> LivePages:
        assert self._watchers is not None
        return self._watchers.live_pages()

    @property
    def _objects(self) -> Objects:
        return self._pages.objects

    async def _paced(self, steps: Steps[T]) -> T:
        return await self._pages.paced(steps)

    async def _shared(self, question: Hashable, steps: Callable[[], Steps[T]]) -> T:
        return await self._answers.of(question, lambda: self._paced(steps()))

    # -- the map -------------------------------------------------------------------------------------------

    async def state(self, at: float | None) -> State:
        scheduler = self._now_only(at)
        return await self._answers.of("state", lambda: self._current_state(scheduler))

    async def _current_state(self, scheduler: Scheduler) -> State:
        self._flush(scheduler)
        if self._state is None or self._state.version != self._streams.version:
            assert self._map is not None
            version, now = self._streams.version, scheduler.clock.now()
            sample = self._samples.last or self._samples.take(scheduler)
            # The columns are those of this version, although they are made in steps.
            nodes = await self._pace.run(self._map.columns())
            self._state = State(version=version, at=now, nodes=nodes, sample=sample, profiles=profiles_of(scheduler))
        return self._state

    def changes(self, since: int | None) -> AsyncIterator[bytes]:
        return self._streams.events(since)

    def _watched(self, is_watched: bool) -> None:
        self.observer.listed = is_watched
        if is_watched:
            self._listening.set()
        else:
            self._listening.clear()
            self.observer.take_listed()

    async def _sample(self) -> None:
        """Take samples."""
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS * self._speed)
            if self._current is not None and self._ready():
                await self._try(self._take_sample)

    def _take_sample(self) -> None:
        assert self._current is not None
        self._unsent = self._samples.take(self._current())

    async def _change(self) -> None:
        """Publish changes while a page listens."""
        while True:
            await self._listening.wait()
            await self._try(lambda: self._flush(self._now_only(None)))
            await asyncio.sleep(_CHANGE_SECONDS * self._speed)

    async def _try(self, work: Callable[[], None]) -> None:
        """Do work. A defect in it is logged, once for each kind, and followed by a pause: the scheduler goes on without it."""
        try:
            work()
        except Refused:
            pass  # not ready yet
        except Exception as error:
            if type(error) not in self._defects:
                self._defects.add(type(error))
                _log.exception("the dashboard failed, and starts anew")
            self._scheduler = None
            await asyncio.sleep(_PAUSE_SECONDS * self._speed)

    def _flush(self, scheduler: Scheduler) -> None:
        """Publish what changed since the last time, if anything did."""
        assert self._map is not None
        delta = self._map.changes()
        if delta is None:
            self._streams.reset()
            return
        bindings, bound, preemptions, preempted = self.observer.take_listed()
        if not (delta or bound or preempted or self._unsent is not None):
            return
        row_of = scheduler.cache.table.row_of
        sample, self._unsent = self._unsent, None
        change = Change(
            version=self._streams.version + 1,
            at=scheduler.clock.now(),
            rows=delta.rows,
            requested=delta.requested,
            nodes=delta.nodes,
            bound=[Binding(pod=pod, row=row) for pod, node in bindings if (row := row_of(node)) is not None],
            bound_count=bound,
            preempted=[
                Eviction(pod=pod, row=row, victims=victims)
                for pod, node, victims in preemptions
                if (row := row_of(node)) is not None
            ],
            preempted_count=preempted,
            sample=sample,
        )
        self._streams.publish(change)

    # -- time ----------------------------------------------------------------------------------------------

    async def played(self, start: float, end: float, most: int) -> Played:
        """Return bindings and preemptions that are remembered, for lists: amounts and nodes of the past are not."""
        row_of = self._now_only(None).cache.table.row_of
        changes: list[Change] = []
        for event in self.observer.between(start, end, most):
            row, version = row_of(event.node), len(changes) + 1
            if row is None:
                continue  # the node has gone
            if event.what == "bound":
                binding = Binding(pod=event.pod, row=row)
                changes.append(Change(version=version, at=event.at, bound=[binding], bound_count=1))
            else:
                eviction = Eviction(pod=event.pod, row=row, victims=list(event.by))
                changes.append(Change(version=version, at=event.at, preempted=[eviction], preempted_count=1))
        return Played(changes=changes)

    async def series(self) -> Series:
        self._now_only(None)
        return Series(samples=await self._paced(self._samples.series()))

    # -- pods and nodes ------------------------------------------------------------------------------------

    async def queues(self, at: float | None) -> Queues:
        scheduler = self._now_only(at)
        places = await self._shared("queues", lambda: finding_places(scheduler, self._objects))
        return Queues(at=scheduler.clock.now(), places=places, rates=self._samples.rates())

    async def pods(self, query: PodQuery, at: float | None) -> PodList:
        scheduler = self._now_only(at)
        return await self._shared(query, lambda: finding_pods(scheduler, self._objects, query))

    async def pod(self, namespace: str, name: str, at: float | None) -> PodPage:
        scheduler, pages = self._now_only(at), self._pages
        pod = pod_of(scheduler, pages.objects, namespace, name)
        page = pod_page(scheduler, pages.objects, pod)
        records = []
        if pages.decisions is not None:
            records = await self._paced(pages.decisions.finding(RecordFilter(pod=pod.uid), most=_MOST_RECORDS))
        memory = self._watchers.preemptions if self._watchers is not None else ()
        events = self.observer.events_of(pod.uid)
        life = life_of(scheduler, pod, events, records, memory)
        return replace(page, life=life, complete=is_whole(scheduler, pod, events, self._start))

    async def node(self, name: str, at: float | None) -> NodePage:
        scheduler = self._now_only(at)
        return await self._shared(("node", name), lambda: node_page(scheduler, self._objects, self._devices, name))

    async def verdicts(self, namespace: str, name: str, at: float | None) -> Verdicts:
        scheduler = self._now_only(at)
        pod = pod_of(scheduler, self._objects, namespace, name)
        return await self._shared(("verdicts", pod.uid), lambda: finding_verdicts(scheduler, pod))

    async def explain(self, path: str, query: Mapping[str, Sequence[str]], at: float | None) -> Answer:
        self._now_only(at)
        return await self._pages.answer(path, query, "application/json")

    # -- what if -------------------------------------------------------------------------------------------

    def _trials(self) -> Trials:
        if self.trials is None:
            what = "a real cluster is never changed from here" if self._mode == "live" else "nothing can be tried here"
            raise Refused(
                403, f"this dashboard is read-only: {what}; kubesched import and kubesched up make a copy to try it on"
            )
        return self.trials

    async def choices(self) -> Choices:
        return await self._trials().choices()

    async def what_if(self, question: WhatIf) -> Outcome:
        return await self._trials().what_if(question)

    async def apply(self, question: WhatIf) -> Applied:
        return await self._trials().apply(question)


def profiles_of(scheduler: Scheduler) -> list[Profile]:
    """Return the profiles with their score plugins."""
    return [
        Profile(
            name=name,
            scores=[PluginWeight(plugin=entry.name, weight=entry.weight) for entry in framework.scores],
        )
        for name, framework in scheduler.frameworks.items()
    ]
