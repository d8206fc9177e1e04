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

from kubesched.api.groups import GATES
from kubesched.api.kinds import NODES, PODS
from kubesched.base.collector import collector_off
from kubesched.cluster.controllers import ALL, BATCH, DEVICES, NODE_LIFE, STORAGE, Controller
from kubesched.cluster.files import Manifest, ManifestError
from kubesched.cluster.kubelets import Stage
from kubesched.cluster.store import Store
from kubesched.explain.fragmentation import Shapes
from kubesched.explain.records import Recorder
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
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.slow_calls import plugins_of, watching_plugins, work_of

from ...node_groups import NodeGroup, members, with_models
from ..embedded import Embedded
from ..inputs.events import PlannedEvent
from ..inputs.intake import Controllers, Intake, Source, gather, in_order, unread_groups, with_default_class
from ..inputs.storing import RefusedError, refusals, store_objects
from ..results.plugin_times import plugin_times_report
from ..results.result import Refusal, Result, Stopped
from ..scaling.autoscaler import Autoscaler, Groups
from ..scaling.settings import AutoscalerSettings
from .forecast import pods_to_come, requests_of
from .session import DEFAULT_UNTIL, Progress, Session
from .settings_remarks import settings_without_effect
from .virtual_time import VirtualClock, VirtualTimeLoop, run_virtual

__all__ = ["DEFAULT_UNTIL", "Drive", "Progress", "Session", "run_simulation", "simulate"]

#: Events that the recorder remembers to count repetitions. Enough for all pods that wait: the store keeps each event to
#: the end, and counts are written only there.
_EVENTS: Final = 1 << 20
#: Function that drives a run. It is awaited while the cluster runs; the run ends when it returns the reason.
Drive = Callable[[Session], Awaitable[Stopped]]


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
    events: Sequence[PlannedEvent] = (),
    node_groups: Sequence[NodeGroup] = (),
    autoscaler: AutoscalerSettings | None = None,
    remarks: Sequence[str] = (),
    on_progress: Progress = lambda done, total: None,
    drive: Drive | None = None,
    on_slow_plugin: Callable[[str], None] | None = None,
    recorder: Recorder | None = None,
    explain: Sequence[str] = (),
    expecting: Sequence[Manifest] = (),
    more_controllers: Sequence[type[Controller]] = (),
    timer: Callable[[], float] | None = None,
    observers: Sequence[AttemptObserver] = (),
    at_end: Callable[[Store], Sequence[str]] = lambda store: (),
) -> Result:
    """Simulate a cluster.

    Await it on a :class:`~.virtual_time.VirtualTimeLoop` (``run_virtual(simulate(…))``); it also works on an ordinary
    event loop, where an hour of a pod takes an hour.

    ``manifests`` are paths, plain objects or loaded manifests; workloads are expanded, Jobs run to completion, and
    CronJobs make Jobs. With ``controllers`` all controllers run, and make the pods of all workloads. ``registry`` holds
    the plugins (``kubesched.scheduler.plugins.in_tree_registry()`` and whatever was added). ``nodes`` hollow nodes of
    ``node_template`` (8 cpu, 32Gi unless given) are added, dealt over ``zones``. ``stages`` are rules for what pods and
    volumes do. ``until`` bounds the virtual time in seconds; None is :data:`DEFAULT_UNTIL` after the last arrival
    (annotation ``kubesched.io/arrival``) or event. ``events`` happen at their times; where there are any, the
    controllers of nodes run. ``node_groups`` are kinds of nodes that come and go, as ``autoscaler`` says; with them all
    controllers run, and a given ``until`` is the end also if nothing moves any more. ``remarks`` are the first warnings of the result: what the caller's configuration asks for
    and does not get. ``drive`` decides the end of the run instead. ``on_slow_plugin`` receives, in another thread, a
    text about each plugin that holds the run up for a second. ``recorder`` records the decisions, and is closed at the
        end. ``explain`` are pods, as ``namespace/name``, that are explained at the end. ``expecting`` are objects that
    ``drive`` will create: the controllers that they need run from the start, and ``more_controllers`` too. ``timer``
    returns real seconds: each call of a plugin is measured with it, for the result's ``plugin_times``. ``observers``
    watch the attempts. ``at_end`` is called with the store when the run has ended, and returns further warnings.

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
    running: Controllers = "all" if controllers or node_groups else "batch"
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
    groups = _with_least_nodes(node_groups, intake)
    needs = Intake(objects=[*intake.everything(), *expecting], driven=intake.driven)
    if needs.uses_storage:
        intake.objects = in_order(with_default_class(intake.objects))
    steered = drive is not None
    chosen = (
        ALL if running == "all" else (*_controllers(needs, steered=steered, events=bool(events)), *more_controllers)
    )
    config = config if config is not None else default_config(gates=gates)
    _check_extenders(config, extenders)
    unread = unread_groups(intake.everything(), config, gates.among(GATES))
    said = [*remarks, *settings_without_effect(config, gates), *unread, *intake.warnings]
    session = Session(intake, running, until, seed, said, on_progress, events)
    given = Groups(groups, autoscaler or AutoscalerSettings(), until)
    scaler = Autoscaler(given, seed, gates, lambda: session.now) if groups else None
    embedded = Embedded(
        config,
        registry,
        clock=VirtualClock(session.loop),
        seed=seed,
        gates=gates,
        event_cache_size=_EVENTS,
        event_refresh_seconds=math.inf,
        on_bind=session.bound,
        controllers=chosen,
        stages=stages,
        extenders=extenders,
        observers=[one for one in (session, scaler, *observers, recorder) if one is not None],
        keep_finished=bool(groups) and not controllers,
        with_faults=steered,
    )
    if recorder is not None:
        recorder.attach(embedded.scheduler)
    times = PluginTimes()
    if timer is not None:
        times.attach(embedded.scheduler.frameworks.values(), now=timer)
    session.follow(embedded, Shapes(*requests_of(intake)), scaler)
    closing_records = nullcontext() if recorder is None else closing(recorder)
    with session.problems, _watching(embedded, session.loop, on_slow_plugin), closing_records:
        found = await _played(session, embedded, intake, drive, times, explain, at_end)
    if session.progress_error is not None:
        raise session.progress_error
    return session.complete(found)


async def _played(
    session: Session,
    embedded: Embedded,
    intake: Intake,
    drive: Drive | None,
    times: PluginTimes,
    explain: Sequence[str],
    at_end: Callable[[Store], Sequence[str]],
) -> Result:
    """Run the cluster to its end, and return what is to be seen then."""
    # Running objects exist when the scheduler starts. Pods to be placed follow in the order of the manifests.
    before, new = intake.split()
    session.refused += _stored(embedded, before, intake)
    async with embedded.running():
        session.refused += _stored(embedded, new, intake)
        session.total = pods_to_come(intake)
        found = session.look(await (drive(session) if drive is not None else session.until_settled(session.until)))
        found = msgspec.structs.replace(found, plugin_times=plugin_times_report(times.rows()))
        if explain:
            found = msgspec.structs.replace(found, explanation=session.explain(explain))
        return msgspec.structs.replace(found, warnings=[*found.warnings, *at_end(embedded.store)])


def _with_least_nodes(given: Sequence[NodeGroup], intake: Intake) -> list[NodeGroup]:
    """Return the groups with templates, and add to the input the nodes that their minimums lack.

    Raises:
        ManifestError: for a group whose model is not among the nodes.
    """
    nodes = [item for item in intake.objects if item.kind == NODES]
    groups = with_models(given, [item.data for item in nodes])
    existing = members(groups, [item.data for item in nodes])
    taken = {item.name for item in nodes}
    more = [
        item for group in groups for item in group.nodes(max(0, group.minimum - len(existing[group.name])), taken=taken)
    ]
    if more:
        intake.objects = in_order([*intake.objects, *more])
    return groups


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


def _controllers(intake: Intake, *, steered: bool, events: bool) -> list[type[Controller]]:
    """Return the controllers that the input needs. In a run that is ``steered``, Jobs may still be created, and nodes fail."""
    return [
        *(BATCH if intake.driven or steered else ()),
        *(NODE_LIFE if steered or events or intake.has_failed_nodes else ()),
        *(STORAGE if intake.uses_storage else ()),
        *(DEVICES if intake.uses_devices else ()),
    ]
