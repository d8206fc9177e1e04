"""Explanations of a file of decisions: a scheduler over the objects as they were at a moment, which decides nothing.

The lines of the file up to the moment are given to the scheduler's handlers. A later moment goes on from there; for an
earlier one another scheduler begins anew. Some schedulers are kept at their moments. All work is done in one thread, with an
event loop of its own.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec

from kubesched.api.types import Pod
from kubesched.base.pages import Answer
from kubesched.base.turns import finish
from kubesched.explain.live import LivePages
from kubesched.explain.records.lines import key_of
from kubesched.explain.records.reading import AnyLine, DecisionsError, read_lines
from kubesched.explain.records.schema import Change, Decided, Gone, Header, Nominated, Put, Record
from kubesched.lab.decisions.objects import BadLineError, Objects
from kubesched.lab.decisions.port import ReplayPort
from kubesched.scheduler.config import FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.nodes.nominating import NominatingInfo
from kubesched.scheduler.scheduler import Scheduler

from ..live import profiles_of
from ..schema import Profile, ScoreColumn, VerdictReason, Verdicts
from ..source import Refused
from ..verdicts import finding_verdicts
from .of_decisions import Stamped, created_at
from .timeline import Timeline

__all__ = ["ReplayedReasons"]

T = TypeVar("T")

#: Schedulers that are kept at their moments.
_MOST_KEPT: Final = 3
#: Real seconds for which one question may read the file. A further question goes on from there.
_SECONDS: Final = 30.0
#: Most questions that wait.
_MOST_WAITING: Final = 8
#: Lines between two looks at the clock.
_LOOK: Final = 256


class _Clock:
    """Clock that shows the moment."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


class _Standing:
    """Scheduler over the objects of the file up to a moment."""

    def __init__(
        self,
        path: Path,
        config: KubeSchedulerConfiguration,
        registry: Registry,
        gates: FeatureGates,
        stop: threading.Event,
    ) -> None:
        """Work ends soon after ``stop`` is set."""
        self._path = path
        self._stop = stop
        self.clock = _Clock()
        self._port = ReplayPort()
        self.scheduler = Scheduler(
            config, registry, self._port, clock=self.clock, rng=random.Random(0), gates=gates, extenders=()
        )
        self._objects = Objects(self._port)
        self._lines: Iterator[tuple[int, AnyLine]] = read_lines(path)
        self._stamped = Stamped(0.0)
        #: Decision that has been read and is later than the moment.
        self._next: Decided | None = None
        self._is_over = False
        self.pages = LivePages(self.scheduler, time=lambda: 0.0, live=False)

    @property
    def at(self) -> float:
        """Time of the last decision that was carried out."""
        return self._stamped.now

    def advance(self, at: float, deadline: float) -> None:
        """Move to a moment.

        Raises:
            Refused: if there is no time left. The scheduler stays where it is then.
            DecisionsError: if the file is damaged.
        """
        while not self._is_over and (self._next is None or self._next.at <= at):
            if self._next is not None:
                decided, self._next = self._next, None
                self._carry_out(decided.at)
            self._read(at, deadline)
        if not self._is_over:
            self._created(at)
        self.clock.seconds = max(at, 0.0)

    def _read(self, at: float, deadline: float) -> None:
        """Read up to the next decision."""
        for count, (number, line) in enumerate(self._lines):
            match line:
                case Header():
                    self._stamped = Stamped(line.at)
                case Put() | Change() | Gone():
                    if self._stamped.add(line, number):
                        self._carry_out(self._stamped.now)
                case Decided():
                    self._next = line
                    self._check_time(at, deadline)
                    return
                case Record():
                    self._nominate(line.pod.key, line.nominated_node, line.pod.uid)
                case Nominated():
                    self._nominate(line.key, line.node)
            if count % _LOOK == _LOOK - 1:
                self._check_time(at, deadline)
        self._carry_out(None)
        self._is_over = True

    def _check_time(self, at: float, deadline: float) -> None:
        if self._stop.is_set():
            raise Refused(503, "the program is being stopped")
        if monotonic() > deadline:
            text = f"the replay of {self._path} to this moment takes more than {_SECONDS:g} s; {at - self.at:,.0f} s of it are left"
            raise Refused(503, f"{text}. Ask again: it goes on from here")

    def _carry_out(self, at: float | None) -> None:
        for line, number in self._stamped.take(at):
            self._apply(line, number)

    def _apply(self, line: Put | Change | Gone, number: int) -> None:
        try:
            self._objects.take(line)
        except BadLineError as error:
            raise DecisionsError(f"{self._path}: line {number}: {error}") from None

    def _created(self, at: float) -> None:
        """Take objects that were created up to the moment, after the last decision. They are taken once more later."""
        seen: set[tuple[str, str]] = set()
        for line, number in self._stamped.waiting:
            if not isinstance(line, Put):
                continue
            obj = msgspec.json.decode(line.object)
            key = (line.kind, key_of(obj))
            informer = self._port.informers.get(line.kind)
            if informer is None or key in seen or informer.get_by_key(key[1]) is not None:
                continue
            seen.add(key)
            stamp = created_at(obj)
            if stamp is not None and stamp <= at:
                self._apply(line, number)

    def _nominate(self, key: str, node: str, uid: str = "") -> None:
        pod = self.pod(key)
        if pod is not None and uid in ("", pod.uid) and (node or not uid):
            self.scheduler.queue.nominator.add(pod, NominatingInfo.override(node))

    def pod(self, key: str) -> Pod | None:
        found: Pod | None = self._port.informers["pods"].get_by_key(key)
        return found


class ReplayedReasons:
    """Explanations and verdicts at any moment of a file of decisions, by a configuration."""

    def __init__(self, path: Path, config: KubeSchedulerConfiguration, registry: Registry, gates: FeatureGates) -> None:
        """Extenders of the configuration are not asked."""
        alone = msgspec.structs.replace(config, extenders=())
        self._stop = threading.Event()
        self._make = partial(_Standing, path, alone, registry, gates, self._stop)
        self._kept: list[_Standing] = []
        self._thread = ThreadPoolExecutor(1, "kubesched-replay")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = 0

    def profiles(self) -> list[Profile]:
        """Return the profiles of the configuration.

        Raises:
            ConfigError: when one cannot be built.
        """

        async def built() -> list[Profile]:
            return profiles_of(self._make().scheduler)

        return self._thread.submit(self._run, built).result()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.shutdown(cancel_futures=True)
        if self._loop is not None:
            self._loop.close()

    async def explain(self, path: str, query: Mapping[str, Sequence[str]], at: float) -> Answer:
        async def ask(standing: _Standing) -> Answer:
            return await standing.pages.answer(path, query, "application/json")

        return await self._asked(at, ask)

    async def verdicts(self, namespace: str, name: str, at: float, line: Timeline) -> Verdicts:
        async def find(standing: _Standing) -> Verdicts:
            pod = standing.pod(f"{namespace}/{name}")
            if pod is None:
                raise Refused(404, f"the scheduler has no pod {namespace}/{name} at this moment")
            found = finish(finding_verdicts(standing.scheduler, pod))
            return _by_row(found, standing.scheduler, line, at)

        return await self._asked(at, find)

    async def _asked(self, at: float, find: Callable[[_Standing], Awaitable[T]]) -> T:
        """Answer a question about a moment, in the thread."""
        if self._waiting >= _MOST_WAITING:
            raise Refused(429, f"{_MOST_WAITING} answers are waited for already")

        async def answer() -> T:
            try:
                return await find(self._at(at))
            except (DecisionsError, OSError) as error:
                raise Refused(500, str(error)) from None

        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, answer)
        finally:
            self._waiting -= 1

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do some work on the loop of the thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work())

    def _at(self, at: float) -> _Standing:
        """Return a scheduler at a moment: the nearest earlier one goes on, or another one begins."""
        earlier = [one for one in self._kept if one.at <= at]
        if earlier:
            standing = max(earlier, key=lambda one: one.at)
            self._kept.remove(standing)
        else:
            standing = self._make()
        self._kept.append(standing)  # the last one was used last
        del self._kept[:-_MOST_KEPT]
        standing.advance(at, monotonic() + _SECONDS)
        return standing


def _by_row(found: Verdicts, scheduler: Scheduler, line: Timeline, at: float) -> Verdicts:
    """Return verdicts by the rows of the time line instead of the scheduler's."""
    width = len(line.names)
    verdict = [-2] * width
    scores = [ScoreColumn(plugin=one.plugin, weight=one.weight, scores=[0] * width) for one in found.scores]
    own = None
    for row, info in enumerate(scheduler.cache.table.infos):
        if info is None or row >= len(found.verdict):
            continue
        place = line.rows.get(info.name)
        if place is None:
            continue
        verdict[place] = found.verdict[row]
        own = place if found.own == row else own
        for column, one in zip(scores, found.scores, strict=True):
            column.scores[place] = one.scores[row]
    reasons = [VerdictReason(plugin=one.plugin, text=one.text, nodes=one.nodes) for one in found.reasons]
    return Verdicts(pod=found.pod, at=at, reasons=reasons, verdict=verdict, own=own, scores=scores)
