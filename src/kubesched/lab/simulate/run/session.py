"""Session: a simulation under way, from moment to moment. Caller: :mod:`.simulation` and :mod:`..stepping`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kubesched.cluster.controllers import DEVICES, STORAGE
from kubesched.cluster.files import ManifestError
from kubesched.explain.explainer import Explainer
from kubesched.explain.fragmentation import Shapes
from kubesched.explain.preemptions import preemption_report
from kubesched.explain.report import Explanation, PreemptionReport
from kubesched.explain.workloads import Workloads
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.preemption import Preemption
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.scheduler import Scheduler

from ..embedded import Embedded
from ..inputs.arrivals import ARRIVAL, Arrivals
from ..inputs.events import PlannedEvent
from ..inputs.intake import Controllers, Intake
from ..inputs.storing import check_objects, store_objects
from ..results.course import Course
from ..results.node_times import NodeBook
from ..results.outcome import outcome
from ..results.pod_times import SERVING, PodBook
from ..results.problems import ProblemLog
from ..results.result import EventReport, Refusal, Result, Stopped
from ..results.turnover import Turnover
from ..scaling.autoscaler import Autoscaler
from .happenings import Happenings
from .virtual_time import VirtualTimeError, VirtualTimeLoop

__all__ = ["DEFAULT_UNTIL", "Progress", "Session"]

#: Virtual seconds after the last arrival at which a run ends by default.
DEFAULT_UNTIL: Final = 86_400.0
#: Virtual seconds of fruitless attempts, with no pod about to end, after which a run has "no progress".
_FRUITLESS: Final = 120.0
#: Virtual seconds with storage at work and no binding, after which a run has "no progress".
_STORAGE_FRUITLESS: Final = 3_600.0

#: Function called with (pods bound so far, pods to be bound).
Progress = Callable[[int, int], None]


class Session(AttemptObserver):
    """Simulation under way: arrivals, bindings, and the test if anything still moves.

    Attributes:
        embedded: the cluster; writing to its store has the effect of API requests.
        until: the end, in virtual seconds since the start.
        controllers: the controllers of workloads that run.
        problems: collects problems, while it is entered.
        refused: pods that were refused.
        total: approximate number of pods to be bound.
        progress_error: the exception of ``on_progress``, after which it is not called again.
    """

    embedded: Embedded
    _book: PodBook
    _nodes: NodeBook
    _course: Course
    _scaler: Autoscaler | None

    def __init__(
        self,
        intake: Intake,
        controllers: Controllers,
        until: float | None,
        seed: int,
        remarks: Sequence[str],
        on_progress: Progress,
        events: Sequence[PlannedEvent] = (),
    ) -> None:
        """``remarks`` are the first warnings of the result. For other arguments see :func:`simulate`."""
        self.loop = asyncio.get_running_loop()
        self._start = self.loop.time()
        self._arrivals = Arrivals(intake.later, self._start)
        self.controllers = controllers
        self._happenings = Happenings(events, seed)
        self._by_default = until is None
        last = max((at for at, _ in intake.later), default=0.0)
        self.until = DEFAULT_UNTIL + max(last, self._happenings.last) if until is None else until
        self._seed = seed
        self._remarks = remarks
        self._on_progress = on_progress
        self.problems = ProblemLog()
        self.progress_error: BaseException | None = None
        self._last_bound = self._last_quiet = self._start
        self._bound = 0
        self.total = 0
        #: UIDs of workloads whose pods are made by controllers.
        self._driven = intake.driven_uids
        self._preemptions: list[PreemptionReport] = []
        self.refused: list[Refusal] = []
        #: Remarks about objects that were created during the run.
        self._later_remarks: list[str] = []
        #: Reason why virtual time could not pass at the last attempt; "" if it passed.
        self._endless = ""

    def follow(self, embedded: Embedded, shapes: Shapes, scaler: Autoscaler | None = None) -> None:
        """Begin to record the course of a cluster; before anything is stored there."""
        self.embedded, self._scaler = embedded, scaler
        store, scheduler = embedded.store, embedded.scheduler
        self._book = PodBook(
            lambda: self.now, embedded.clock.now(), Workloads(embedded.objects).of, Turnover(self._replaced_forever)
        )
        store.follow(self._book.changed)
        self._nodes = NodeBook(lambda: self.now)
        store.follow(self._nodes.changed)
        self._course = Course(scheduler.cache.table, scheduler.metrics.pending_pods, shapes)
        if scaler is not None:
            scaler.follow(embedded)

    def _replaced_forever(self, workload: str) -> None:
        """Stop the wait for a quiet moment, because it would never end; see :class:`..results.turnover.Turnover`."""
        self._endless = (
            f"virtual time stands still {self.now:g} s after the start: each new pod of {workload} is deleted in the moment in "
            "which it is created, and replaced; its events say why"
        )
        if isinstance(self.loop, VirtualTimeLoop):
            self.loop.end_idle()

    def preempted(self, preemption: Preemption) -> None:
        self._preemptions.append(preemption_report(preemption, self.now, self.embedded.clock.now()))
        self._book.preempted(preemption.chosen.victims.pods)

    def explain(self, names: Sequence[str] = (), against: Sequence[str] = ()) -> Explanation:
        """Explain pods and pod groups as they are now, as ``namespace/name``, also evicted pods; without names those
        that wait.

        ``against`` are names of nodes to compare with.
        """
        pods = {pod.key: pod for pod in self.embedded.pods()}
        chosen = (
            [pods[name] for name in dict.fromkeys(names) if name in pods]
            if names
            else [pod for pod in pods.values() if not pod.spec.node_name]
        )
        explainer = Explainer(self.embedded.scheduler, self.embedded.objects, live=True)
        evicted = [one for one in self._preemptions if not set(names).isdisjoint(one.victims)]
        lacking = explainer.not_created(pods.values(), names=names)
        groups = {name for name in names if explainer.groups.knows(name)}
        known = {*pods, *groups, *(name for one in evicted for name in one.victims), *(one.name for one in lacking)}
        return msgspec.structs.replace(
            explainer.explain(chosen, against, groups=groups, as_groups=not names),
            evicted=evicted,
            not_created=lacking,
            absent=[name for name in names if name not in known],
        )

    def attempted(self, record: QueuedPodInfo) -> None:
        self._book.attempted(record)

    def bound(self, namespace: str, name: str, node: str) -> None:
        self._last_bound = self.loop.time()
        self._bound += 1
        if self.progress_error is None:
            try:
                self._on_progress(self._bound, max(self._bound, self.total))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # raised at the end: this code runs within a binding
                self.progress_error = error

    def create(self, intake: Intake) -> list[Refusal]:
        """Create objects now. Pods that are refused are returned, and are part of the result.

        Raises:
            ManifestError: when anything but a pod is refused, or an object has a later arrival; then nothing is
                created.
        """
        if intake.later:
            later = intake.later[0][1][0]
            text = f"{later.source}: {later.kind.kind} {later.name}: annotation {ARRIVAL}: objects are created at once here"
            raise ManifestError(f"{text}; leave it out, and let the time pass first")
        check_objects(self.embedded.store, intake.objects)
        running = set(self.embedded.controllers.controllers) if self.embedded.controllers is not None else set()
        for used, needed, what in (
            (intake.uses_storage, STORAGE, "volumes"),
            (intake.uses_devices, DEVICES, "devices"),
        ):
            if used and not running.issuperset(one.name for one in needed):
                self._later_remarks.append(
                    f"objects created during the run use {what}, but the controllers for them run only if objects at the start use them"
                )
        self._later_remarks += intake.warnings
        self._driven |= intake.driven_uids
        refused = store_objects(self.embedded.store, intake.objects, self._driven)
        self.refused += refused
        return refused

    def look(self, stopped: Stopped) -> Result:
        """Return the result if the run ended now, without the remarks about the run as a whole."""
        found = outcome(
            self.embedded,
            self._book,
            self._course,
            self.now,
            seed=self._seed,
            stopped=stopped,
            refused=[*self.refused],
            nodes=self._nodes,
        )
        if self._scaler is None:
            return found
        nodes, cost = self._scaler.over(found.series)
        return msgspec.structs.replace(
            found,
            series=msgspec.structs.replace(found.series, nodes=nodes, cost=cost),
            scaling=self._scaler.scaling(self.now, self._book.waits(self._scaler.waited)),
        )

    def complete(self, found: Result) -> Result:
        """Return the result with its warnings and errors."""
        warnings = [*self._remarks, *self._said_at_the_end(), *found.warnings, *self.problems.remarks()]
        if self._by_default and found.stopped == "until" and found.totals.pending:
            text = "the run ended a day after the last arrival, which is the default, while pods were pending"
            warnings.append(f"{text} ({found.totals.pending}); --until gives it more time")
        return msgspec.structs.replace(
            found,
            warnings=warnings,
            errors=self.problems.errors(),
            preemptions=list(self._preemptions),
            events=self.events(),
        )

    def _said_at_the_end(self) -> list[str]:
        """Return remarks about unfinished things at the end of the run, and about objects created during the run."""
        left, following = len(self._arrivals), self._arrivals.next
        said = list(
            dict.fromkeys(
                filter(
                    None,
                    (
                        *self._later_remarks,
                        self._endless,
                        self._not_replaced(),
                        self._bare_gone(),
                        *self._happenings.remarks(),
                    ),
                )
            )
        )
        if following is None:
            return said
        objects = "1 object was" if left == 1 else f"{left:,} objects were"
        return [*said, f"{objects} still to arrive when the run ended, the next after {following - self._start:g} s"]

    def _not_replaced(self) -> str:
        """Return a remark about evicted pods that only controllers that do not run would replace; "" for none."""
        gone = self._book.evicted() if self.controllers != "all" else {}
        lost = {name: count for name, count in gone.items() if name.partition("/")[0] in SERVING}
        if not lost:
            return ""
        names = [*lost]
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        text = f"{sum(lost.values()):,} evicted or deleted pods of {names[0]}{more} are not replaced"
        return f"{text}: the controllers of workloads do not run without --controllers (in Python controllers=True)"

    def _bare_gone(self) -> str:
        """Return a remark about evicted pods that have no controller, in a run with events; "" for none."""
        gone = self._book.evicted() if self._happenings.reports() else {}
        count = sum(number for name, number in gone.items() if not name or name.startswith("Trace/"))
        if not count:
            return ""
        return f"{count:,} evicted or deleted pods have no controller, such as pods of a table: nothing replaces them"

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return round(self.loop.time() - self._start, 6)

    async def until_settled(self, until: float) -> Stopped:
        """Run until nothing moves any more, but not beyond ``until`` seconds from the start."""
        end = self._start + until
        when = self.loop.time()
        while True:
            await self.quiet(end, when)
            now = self.loop.time()
            if self._endless:
                return "noProgress"
            if self._is_settled():
                return "settled"
            if now >= end:
                return "until"
            if self._is_fruitless(now):
                return "noProgress"
            when = min(end, max(self._next(), now))

    async def step(self) -> bool:
        """Move to the next moment at which something happens, and do all of it.

        False when nothing will move any more.
        """
        await self.quiet()
        if self._endless or self._is_settled():
            return False
        await self.quiet(when=self._next())
        return True

    async def advance(self, seconds: float) -> None:
        """Let some seconds pass, and do everything that happens meanwhile.

        Raises:
            VirtualTimeError: when time cannot pass, since a workload's pods are replaced without end in one moment.
        """
        end = self.loop.time() + seconds
        await self.quiet()
        while (now := self.loop.time()) < end:
            if self._endless:
                raise VirtualTimeError(self._endless)
            when = end if self._is_settled() else min(end, max(self._next(), now))
            await self.quiet(when=when)

    async def quiet(self, end: float = math.inf, when: float = -math.inf) -> None:
        """Do everything that can happen now, or up to ``when``.

        Objects that arrive at ``end`` or later are left out.
        """
        self._endless = ""
        while True:
            await self._quiet(when)
            now = self.loop.time()
            if self._endless:
                return
            arrived = self._arrivals.due(now) if now < end else []
            self.refused += store_objects(self.embedded.store, arrived, self._driven)
            happened = now < end and await self._happen()
            if not arrived and not happened:
                self._course.observe(self.now, len(self.embedded.scheduler.cache.pods))
                return
            self._last_bound = self._last_quiet = now

    def _is_settled(self) -> bool:
        at_rest = self.embedded.is_settled
        return at_rest and not len(self._arrivals) and self._next_deed(at_rest=True) is None

    def _next_deed(self, *, at_rest: bool) -> float | None:
        """Return the time of the next event, or of the next deed of the autoscaler; None when there is none."""
        event = self._happenings.next(at_rest=at_rest)
        if self._scaler is None:
            return event
        deed = self._scaler.next(at_rest=at_rest)
        return min((one for one in (event, deed) if one is not None), default=None)

    async def _happen(self) -> bool:
        """Do the events that are due. True if anything may have changed."""
        embedded = self.embedded
        scheduler = embedded.scheduler
        at_rest = embedded.is_settled
        did = await self._happenings.carry_out(embedded, self.now, at_rest=at_rest)
        self._follow_anew(scheduler)
        if self._scaler is not None:
            did |= self._scaler.carry_out(embedded, self.now, at_rest=at_rest and not did)
        return did

    def _follow_anew(self, before: Scheduler) -> None:
        """Follow the scheduler that has taken the place of the one before, if one has."""
        if self.embedded.scheduler is before:
            return
        self._course.follow(self.embedded.scheduler.cache.table)
        if self._scaler is not None:
            self._scaler.follow(self.embedded)

    def events(self) -> list[EventReport]:
        """Return the events that have happened, and what the autoscaler did, in the order of time."""
        scaled = self._scaler.reports() if self._scaler is not None else []
        return sorted([*self._happenings.reports(), *scaled], key=lambda one: one.at)

    async def act(self, event: PlannedEvent) -> list[str]:
        """Carry out an event now. Returns the nodes or the object that it changed, by name."""
        scheduler = self.embedded.scheduler
        targets = await self._happenings.do(self.embedded, event, self.now)
        self._follow_anew(scheduler)
        await self.quiet()
        return targets

    async def _quiet(self, when: float) -> None:
        """Let time pass up to ``when``, and do everything that can happen then."""
        if isinstance(self.loop, VirtualTimeLoop):
            await self.loop.idle(when)
        else:
            await asyncio.sleep(max(when - self.loop.time(), 0.0))
            await asyncio.sleep(0.01)

    def _next(self) -> float:
        """Return the time of the next event. Ticks of the queue count only while the scheduler has work."""
        if not isinstance(self.loop, VirtualTimeLoop):
            return self.loop.time() + 0.01
        now = self.loop.time()
        arrival = self._next_given()
        if self.embedded.scheduler.is_idle:
            retry = self.embedded.scheduler.queue.next_timer()
            if retry is not None:
                retry += now - self.embedded.clock.now()
            due = [one.next_timer() for one in self.embedded.movers]
            soonest = min((when for when in (*due, retry, arrival) if when is not None), default=now)
            if soonest > now:
                return soonest
        when = min((when for when in (self.loop.next_timer(), arrival) if when is not None), default=None)
        return when if when is not None else now + 0.01

    def _next_given(self) -> float | None:
        """Return the time of the next arrival or event; None when nothing is left to come."""
        event = self._next_deed(at_rest=self.embedded.is_settled)
        times = (self._arrivals.next, None if event is None else self._start + event)
        return min((time for time in times if time is not None), default=None)

    def _is_fruitless(self, now: float) -> bool:
        """True if pods alternate between backoff and failure, and no arrival or end of a pod will change that.

        Storage at work gets an hour: it may be slow, or fail again and again.
        """
        kubelets, controllers = self.embedded.kubelets, self.embedded.controllers
        if (
            len(self._arrivals)
            or len(self._happenings)
            or (self._scaler is not None and self._scaler.next(at_rest=True) is not None)
            or (kubelets is not None and kubelets.next_timer() is not None)
            or (controllers is not None and controllers.next_timer(besides=(*STORAGE, *DEVICES)) is not None)
        ):
            self._last_bound = self._last_quiet = now
        storage = controllers is not None and controllers.next_timer() is not None
        waiting = any(True for _ in self.embedded.scheduler.waiting_pods)
        if waiting or storage or self.embedded.scheduler.busy:
            self._last_quiet = now
        return now - max(self._last_bound, self._last_quiet) > _FRUITLESS or now - self._last_bound > _STORAGE_FRUITLESS
