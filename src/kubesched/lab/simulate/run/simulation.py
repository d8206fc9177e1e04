"""Run of the whole scheduler over the embedded cluster in virtual time, until nothing moves any more.

    manifests ──intake──▶ store ──▶ scheduler + hollow kubelets, virtual time ──▶ Result (──pending──▶ why not)

Callers: ``kubesched simulate``, and programs by :func:`simulate`. Rendering is in :mod:`..results.report`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Final

import msgspec

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.groups import GATES
from kubesched.api.kinds import CRON_JOBS, PODS
from kubesched.api.quantity import QuantityError
from kubesched.api.requests import pod_requests
from kubesched.api.types import Pod
from kubesched.base.collector import collector_off
from kubesched.cluster.controllers import ALL, BATCH, DEVICES, STORAGE, Controller
from kubesched.cluster.files import Manifest, ManifestError
from kubesched.cluster.kubelets import Stage
from kubesched.explain import Explainer, Explanation
from kubesched.explain.preemptions import preemption_report
from kubesched.explain.records import Recorder
from kubesched.explain.report import PreemptionReport
from kubesched.explain.workloads import Workloads
from kubesched.scheduler.config import (
    DEFAULT_GATES,
    ConfigError,
    FeatureGates,
    KubeSchedulerConfiguration,
    default_config,
)
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.extenders.interface import Extender
from kubesched.scheduler.framework.plugin_times import PluginTimes
from kubesched.scheduler.framework.preemption import Preemption
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.slow_calls import plugins_of, watching_plugins, work_of

from ..embedded import Embedded
from ..inputs.arrivals import ARRIVAL, Arrivals
from ..inputs.intake import Controllers, Intake, Source, gather, in_order, is_unplaced, with_default_class
from ..inputs.storing import RefusedError, check_objects, refusals, store_objects
from ..results.course import Course, Shapes
from ..results.outcome import outcome
from ..results.plugin_times import plugin_times_report
from ..results.pod_times import PodBook, amounts
from ..results.problems import ProblemLog
from ..results.result import Refusal, Result, Stopped
from ..results.turnover import Turnover
from .settings_remarks import settings_without_effect
from .virtual_time import VirtualClock, VirtualTimeError, VirtualTimeLoop, run_virtual

__all__ = ["DEFAULT_UNTIL", "Drive", "Progress", "Session", "run_simulation", "simulate"]

#: Virtual seconds after the last arrival at which a run ends by default.
DEFAULT_UNTIL: Final = 86_400.0
#: Virtual seconds of fruitless attempts, with no pod about to end, after which a run has "no progress".
_FRUITLESS: Final = 120.0
#: Virtual seconds with storage at work and no binding, after which a run has "no progress".
_STORAGE_FRUITLESS: Final = 3_600.0
#: Events that the recorder remembers to count repetitions. Enough for all pods that wait: the store keeps each event to
#: the end, and counts are written only there.
_EVENTS: Final = 1 << 20
#: Most pods, evenly spaced, from which the requests of a run's pods are sampled.
_SAMPLE: Final = 2_000

#: Function called with (pods bound so far, pods to be bound).
Progress = Callable[[int, int], None]


async def simulate(
    manifests: Source,
    *,
    registry: Registry,
    nodes: int = 0,
    node_template: Mapping[str, Any] | None = None,
    zones: Sequence[str] = (),
    config: KubeSchedulerConfiguration | None = None,
    gates: FeatureGates = DEFAULT_GATES,
    seed: int = 0,
    extenders: Sequence[Extender] = (),
    stages: Sequence[Stage] = (),
    controllers: bool = False,
    until: float | None = None,
    remarks: Sequence[str] = (),
    on_progress: Progress = lambda done, total: None,
    drive: Drive | None = None,
    on_slow_plugin: Callable[[str], None] | None = None,
    recorder: Recorder | None = None,
    explain: Sequence[str] = (),
    timer: Callable[[], float] | None = None,
) -> Result:
    """Simulate a cluster.

    Await it on a :class:`~.virtual_time.VirtualTimeLoop` (``run_virtual(simulate(…))``); it also works on an ordinary
    event loop, where an hour of a pod takes an hour.

    ``manifests`` are paths, plain objects or loaded manifests; workloads are expanded, Jobs run to completion, and
    CronJobs make Jobs. With ``controllers`` all controllers run, and make the pods of all workloads. ``registry`` holds
    the plugins (``kubesched.scheduler.plugins.in_tree_registry()`` and whatever was added). ``nodes`` hollow nodes of
    ``node_template`` (8 cpu, 32Gi unless given) are added, dealt over ``zones``. ``stages`` are rules for what pods and
    volumes do. ``until`` bounds the virtual time in seconds; None is :data:`DEFAULT_UNTIL` after the last arrival
    (annotation ``kubesched.io/arrival``). ``remarks`` are the first warnings of the result: what the caller's
    configuration asks for and does not get. ``drive`` decides the end of the run instead. ``on_slow_plugin`` receives,
    in another thread, a text about each plugin that holds the run up for a second. ``recorder`` records the decisions,
    and is closed at the end. ``explain`` are pods, as ``namespace/name``, that are explained at the end. ``timer``
    returns real seconds: each call of a plugin is measured with it, for the result's ``plugin_times``.

    Where there are storage objects or pods with claims, the storage controllers run too; without any StorageClass
    there is the default one, ``standard``. Where there are claims of devices, slices or nodes annotated with devices,
    the claim controller and the hollow DRA driver run.

    ``extenders`` are in-process objects. Extenders that ``config`` names are not called over HTTP, because virtual time
    does not pass while a network answers. Objects of the same names must take their places.

    Raises:
        ManifestError: when a manifest cannot be used, or an object other than a pod is refused.
        ConfigError: when a profile cannot be built, or an extender of ``config`` has no object in its place.
        TaskCrashedError: when a part of the simulated cluster crashed.
    """
    running: Controllers = "all" if controllers else "batch"
    with collector_off():
        pods_end = any(stage.kind == PODS.kind for stage in stages)
        intake = gather(
            manifests,
            nodes=nodes,
            node_template=node_template,
            zones=zones,
            controllers=running,
            pods_end=pods_end,
            features=gates.among(GATES),
        )
    if intake.uses_storage:
        intake.objects = in_order(with_default_class(intake.objects))
    config = config if config is not None else default_config(gates=gates)
    _check_extenders(config, extenders)
    said = [*remarks, *settings_without_effect(config, gates), *intake.warnings]
    session = Session(intake, running, until, seed, said, on_progress)
    embedded = Embedded(
        config,
        registry,
        clock=VirtualClock(session.loop),
        seed=seed,
        gates=gates,
        event_cache_size=_EVENTS,
        event_refresh_seconds=math.inf,
        on_bind=session.bound,
        controllers=ALL if controllers else _controllers(intake, steered=drive is not None),
        stages=stages,
        extenders=extenders,
        observers=(session,) if recorder is None else (session, recorder),
        with_faults=drive is not None,
    )
    if recorder is not None:
        recorder.attach(embedded.scheduler)
    times = PluginTimes()
    if timer is not None:
        times.attach(embedded.scheduler.frameworks.values(), now=timer)
    session.follow(embedded, Shapes(*_requests(intake)))
    # Running objects exist when the scheduler starts. Pods to be placed follow in the order of the manifests.
    before, new = intake.split()
    session.refused += _stored(embedded, before, intake)
    closing_records = nullcontext() if recorder is None else closing(recorder)
    with session.problems, _watching(embedded, session.loop, on_slow_plugin), closing_records:
        async with embedded.running():
            session.refused += _stored(embedded, new, intake)
            session.total = _pods_to_come(intake)
            found = session.look(await (drive(session) if drive is not None else session.until_settled(session.until)))
            found = msgspec.structs.replace(found, plugin_times=plugin_times_report(times.rows()))
            if explain:
                found = msgspec.structs.replace(found, explanation=session.explain(explain))
    if session.progress_error is not None:
        raise session.progress_error
    return session.complete(found)


def _stored(embedded: Embedded, objects: Sequence[Manifest], intake: Intake) -> list[Refusal]:
    """Create some of an input's objects. An error lists the problems of the whole input."""
    try:
        return store_objects(embedded.store, objects, intake.driven_uids)
    except RefusedError as error:
        raise ManifestError(*refusals(intake.everything(), intake.driven_uids) or error.problems) from None


def run_simulation(manifests: Source, *, registry: Registry, **options: Any) -> Result:
    """Simulate as :func:`simulate`, in virtual time, to the end. Must not be called inside a running event loop."""
    return run_virtual(simulate(manifests, registry=registry, **options))


def _check_extenders(config: KubeSchedulerConfiguration, given: Sequence[Extender]) -> None:
    names = {extender.name for extender in given}
    missing = [extender.url_prefix for extender in config.extenders if extender.url_prefix not in names]
    if missing:
        text = (
            f"couldn't build extenders: a simulation does not call HTTP extenders ({', '.join(missing)}): virtual time "
            "does not pass while a network answers; remove them from the configuration, or pass objects of the same "
            "names as simulate(extenders=...)"
        )
        raise ConfigError("framework", [text])


def _watching(
    embedded: Embedded, loop: asyncio.AbstractEventLoop, report: Callable[[str], None] | None
) -> AbstractContextManager[None]:
    if report is None:
        return nullcontext()
    profiles = embedded.scheduler.frameworks.values()
    plugins, work = plugins_of(profiles), work_of(profiles)
    if isinstance(loop, VirtualTimeLoop):
        return watching_plugins(plugins, report, thread=lambda: loop.thread, progress=lambda: loop.rounds, work=work)
    return watching_plugins(plugins, report, work=work)


def _controllers(intake: Intake, *, steered: bool) -> list[type[Controller]]:
    """Return the controllers that the input needs. In a run that is ``steered``, Jobs may still be created."""
    return [
        *(BATCH if intake.driven or steered else ()),
        *(STORAGE if intake.uses_storage else ()),
        *(DEVICES if intake.uses_devices else ()),
    ]


def _spec(item: Manifest) -> dict[str, Any]:
    """Return the spec of a workload; for a CronJob, the spec of its jobs."""
    spec: dict[str, Any] = item.data.get("spec") or {}
    if item.kind == CRON_JOBS:
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    return spec


def _count(item: Manifest) -> int:
    """Return the number of pods that a workload's spec asks for. The actual number may differ."""
    counts = [
        value for name in ("completions", "replicas", "parallelism") if (value := _spec(item).get(name)) is not None
    ]
    return int(counts[0]) if counts else 1


def _pods_to_come(intake: Intake) -> int:
    """Return the approximate number of pods that will be bound."""
    driven = {item.data["metadata"].get("uid") for item in intake.driven}
    owners = (
        (item.data["metadata"].get("ownerReferences") or [{}]) for item in intake.everything() if is_unplaced(item)
    )
    bare = sum(owner[0].get("uid") not in driven for owner in owners)
    return bare + sum(_count(item) for item in intake.driven if item.kind != CRON_JOBS)


def _requests(intake: Intake) -> tuple[list[dict[str, int]], list[int]]:
    """Return the requests of the run's pods, and the number of pods with each.

    All pods count, or a sample if there are many.
    """
    pods = [item for item in intake.everything() if item.kind == PODS]
    step = max(1, len(pods) // _SAMPLE)
    bodies = [(item.data, step) for item in pods[::step]]
    bodies += [(_spec(item).get("template") or {}, _count(item)) for item in intake.driven]
    found, counts = [], []
    for body, count in bodies:
        try:
            found.append(amounts(pod_requests(from_builtins(body, Pod))))
            counts.append(count)
        except (DecodeError, QuantityError):
            continue  # the store refuses such a pod
    return found, counts


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
    _course: Course

    def __init__(
        self,
        intake: Intake,
        controllers: Controllers,
        until: float | None,
        seed: int,
        remarks: Sequence[str],
        on_progress: Progress,
    ) -> None:
        """``remarks`` are the first warnings of the result. For other arguments see :func:`simulate`."""
        self.loop = asyncio.get_running_loop()
        self._start = self.loop.time()
        self._arrivals = Arrivals(intake.later, self._start)
        self.controllers = controllers
        self._by_default = until is None
        self.until = DEFAULT_UNTIL + max((at for at, _ in intake.later), default=0.0) if until is None else until
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

    def follow(self, embedded: Embedded, shapes: Shapes) -> None:
        """Begin to record the course of a cluster; before anything is stored there."""
        self.embedded = embedded
        store, scheduler = embedded.store, embedded.scheduler
        self._book = PodBook(
            lambda: self.now, embedded.clock.now(), Workloads(embedded.objects).of, Turnover(self._replaced_forever)
        )
        store.follow(self._book.changed)
        self._course = Course(scheduler.cache.table, scheduler.metrics.pending_pods, shapes)

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
        """Explain pods as they are now, as ``namespace/name``, also evicted ones; without names those that are pending.

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
        gone = {name for one in evicted for name in one.victims} | {one.name for one in lacking}
        return msgspec.structs.replace(
            explainer.explain(chosen, against),
            evicted=evicted,
            not_created=lacking,
            absent=[name for name in names if name not in pods and name not in gone],
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
        return outcome(
            self.embedded, self._book, self._course, self.now, seed=self._seed, stopped=stopped, refused=[*self.refused]
        )

    def complete(self, found: Result) -> Result:
        """Return the result with its warnings and errors."""
        warnings = [*self._remarks, *self._said_at_the_end(), *found.warnings, *self.problems.remarks()]
        if self._by_default and found.stopped == "until" and found.totals.pending:
            text = "the run ended a day after the last arrival, which is the default, while pods were pending"
            warnings.append(f"{text} ({found.totals.pending}); --until gives it more time")
        preemptions = list(self._preemptions)
        return msgspec.structs.replace(found, warnings=warnings, errors=self.problems.errors(), preemptions=preemptions)

    def _said_at_the_end(self) -> list[str]:
        """Return remarks about unfinished things at the end of the run, and about objects created during the run."""
        left, following = len(self._arrivals), self._arrivals.next
        said = list(dict.fromkeys(filter(None, (*self._later_remarks, self._endless))))
        if following is None:
            return said
        objects = "1 object was" if left == 1 else f"{left:,} objects were"
        return [*said, f"{objects} still to arrive when the run ended, the next after {following - self._start:g} s"]

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
            if not arrived:
                self._course.observe(self.now, len(self.embedded.scheduler.cache.pods))
                return
            self._last_bound = self._last_quiet = now
            self.refused += store_objects(self.embedded.store, arrived, self._driven)

    def _is_settled(self) -> bool:
        return not len(self._arrivals) and self.embedded.is_settled

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
        arrival = self._arrivals.next
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

    def _is_fruitless(self, now: float) -> bool:
        """True if pods alternate between backoff and failure, and no arrival or end of a pod will change that.

        Storage at work gets an hour: it may be slow, or fail again and again.
        """
        kubelets, controllers = self.embedded.kubelets, self.embedded.controllers
        if (
            len(self._arrivals)
            or (kubelets is not None and kubelets.next_timer() is not None)
            or (controllers is not None and controllers.next_timer(besides=(*STORAGE, *DEVICES)) is not None)
        ):
            self._last_bound = self._last_quiet = now
        storage = controllers is not None and controllers.next_timer() is not None
        waiting = any(True for _ in self.embedded.scheduler.waiting_pods)
        if waiting or storage or self.embedded.scheduler.busy:
            self._last_quiet = now
        return now - max(self._last_bound, self._last_quiet) > _FRUITLESS or now - self._last_bound > _STORAGE_FRUITLESS


#: Function that drives a run. It is awaited while the cluster runs; the run ends when it returns the reason.
Drive = Callable[[Session], Awaitable[Stopped]]
