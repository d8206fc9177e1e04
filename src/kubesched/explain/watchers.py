"""Watchers of one live scheduler: recorded decisions, preemptions, annotations and events of pods, and the pages about them.

    Watchers() ──▶ Scheduler(observers=watchers.observers) ──▶ watchers.attach(scheduler, port) ──▶ watchers.tasks()

What a process does not use is not imported: the pages with the first request, annotations where they are asked for.
Callers: ``kubesched run`` and ``kubesched up``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kubesched.base.pages import Answer, Page
from kubesched.client.port import ApiPort
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.scheduler import Scheduler

from .preemptions import PreemptionMemory

if TYPE_CHECKING:
    from .annotations.simulator import SimulatorResults
    from .annotations.why import WhyPending
    from .live import LivePages
    from .objects import Objects
    from .records.recorder import Recorder

__all__ = ["Watchers"]

_PAGES: Final = f"{__package__}.live"


class Watchers:
    """Watchers of one scheduler.

    Attributes:
        observers: observers of attempts, for the scheduler.
        pages: pages by the first segment of their paths; before :meth:`attach` they answer 503.
    """

    def __init__(
        self, recorder: Recorder | None, *, annotate_why: bool, event_why: bool, simulator_results: bool
    ) -> None:
        """``annotate_why`` and ``event_why`` have pending pods explained by an annotation and by an event.

        ``simulator_results`` turns the annotations of kube-scheduler-simulator on.
        """
        self._recorder = recorder
        self._memory = PreemptionMemory()
        self._why = _why_pending(annotate_why, event_why) if annotate_why or event_why else None
        self._results = _simulator_results() if simulator_results else None
        self._live: Callable[[], LivePages] | None = None
        self._imported = False
        every = (self._memory, recorder, self._why, self._results)
        self.observers: list[AttemptObserver] = [one for one in every if one is not None]
        self.pages: dict[str, Page] = dict.fromkeys(("explain", "decisions"), self._page)

    def attach(
        self,
        scheduler: Scheduler,
        port: ApiPort,
        ready: Callable[[], bool] = lambda: True,
        objects: Objects | None = None,
    ) -> None:
        """Begin to watch. Call it before the scheduler starts.

        ``ready`` returns True once the scheduler's caches are filled. ``objects`` are those that the scheduler watches
        by default.
        """
        ring = self._recorder.ring if self._recorder is not None else None

        @cache
        def live() -> LivePages:
            from .live import LivePages  # noqa: PLC0415 - 10,000 lines that a scheduler runs without

            return LivePages(scheduler, ready=ready, preemptions=self._memory, decisions=ring, objects=objects)

        self._live = live
        self._memory.attach(scheduler)
        if self._recorder is not None:
            self._recorder.attach(scheduler)
        for writer in (self._why, self._results):
            if writer is not None:
                writer.attach(scheduler, port)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that do the writing, with their names. Call it after :meth:`attach`."""
        if self._recorder is not None and self._recorder.file is not None:
            yield "decisions", self._recorder.run()
        if self._why is not None and self._live is not None:
            yield "why-pending", self._why.run(self._live().explain)
            yield "why-pending-writes", self._why.write()
        if self._results is not None:
            yield "simulator-results", self._results.run()

    @property
    def preemptions(self) -> PreemptionMemory:
        """Memory of the last preemptions."""
        return self._memory

    def live_pages(self) -> LivePages:
        """Return the pages about the scheduler. Call it after :meth:`attach`."""
        assert self._live is not None
        return self._live()

    async def _page(self, path: str, query: Mapping[str, Sequence[str]], accept: str) -> Answer:
        if self._live is None:
            return Answer(503, b"the scheduler is not built yet\n", "text/plain", 1)
        if not self._imported:  # by a thread, since 0.06 s are long for an event loop that schedules
            await asyncio.to_thread(import_module, _PAGES)
            self._imported = True
        return await self._live().answer(path, query, accept)


def _why_pending(annotate: bool, event: bool) -> WhyPending:
    from .annotations.why import WhyPending  # noqa: PLC0415

    return WhyPending(annotate=annotate, event=event)


def _simulator_results() -> SimulatorResults:
    from .annotations.simulator import SimulatorResults  # noqa: PLC0415

    return SimulatorResults()
