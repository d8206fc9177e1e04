"""Python interface of the simulator: ``kubesched.simulate(...)``, which takes inputs in any common form.

    path, text, objects ──inputs──▶ simulation.simulate ──▶ Result

It works inside a running event loop too, as in notebooks: the simulation then runs in a thread with its own virtual
time. :class:`~.stepping.Simulation` takes the same arguments; ``docs/python.md`` has examples.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Never, TypedDict, Unpack

from kubesched.api.kinds import NODES
from kubesched.base.times import parse_duration
from kubesched.cluster.kubelets import Stage, load_stages, zone_names
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration, parse_feature_gates
from kubesched.scheduler.extenders.interface import Extender
from kubesched.scheduler.framework.registry import PluginError
from kubesched.scheduler.loading import load_configuration, load_registry

from ..node_groups import NodeGroup, read_node_groups
from ..node_groups.file import parse_node_groups
from .inputs.events import EventList, PlannedEvent, planned_events, with_configurations
from .inputs.given import Objects, manifests_of, node_template_of
from .inputs.trace_files import TraceInput, trace_pods
from .results.views import SimulationResult
from .run.own_thread import outside_any_loop
from .run.simulation import Progress, run_simulation
from .scaling.settings import AutoscalerSettings, settings_of

__all__ = [
    "MOST_NODES",
    "Options",
    "arguments_text",
    "options_of",
    "seconds_of",
    "shown_signature",
    "simulate",
    "unknown_argument",
]

#: Most hollow nodes: more do not fit into the memory of a machine.
MOST_NODES: Final = 1_000_000

Path = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """Options of :func:`simulate`, which describes them."""

    nodes: int | Objects
    node_template: Path | Mapping[str, Any] | None
    node_resources: Mapping[str, str | int] | None
    zones: int | Sequence[str]
    config: Path | Mapping[str, Any] | KubeSchedulerConfiguration | None
    plugins: Sequence[Path | type]
    gates: str | Mapping[str, bool] | FeatureGates | None
    seed: int
    until: str | float | None
    stages: Path | Sequence[Stage]
    trace: TraceInput
    events: EventList
    node_groups: Path | Sequence[Path | NodeGroup | Mapping[str, Any]]
    autoscaler: Mapping[str, Any] | None
    controllers: bool
    extenders: Sequence[Extender]
    on_progress: Progress | None


def simulate(
    manifests: Objects = (),
    *,
    nodes: int | Objects = 0,
    node_template: Path | Mapping[str, Any] | None = None,
    node_resources: Mapping[str, str | int] | None = None,
    zones: int | Sequence[str] = 0,
    config: Path | Mapping[str, Any] | KubeSchedulerConfiguration | None = None,
    plugins: Sequence[Path | type] = (),
    gates: str | Mapping[str, bool] | FeatureGates | None = None,
    seed: int = 0,
    until: str | float | None = None,
    stages: Path | Sequence[Stage] = (),
    trace: TraceInput = (),
    events: EventList = (),
    node_groups: Path | Sequence[Path | NodeGroup | Mapping[str, Any]] = (),
    autoscaler: Mapping[str, Any] | None = None,
    controllers: bool = False,
    extenders: Sequence[Extender] = (),
    on_progress: Progress | None = None,
    **unknown: Never,
) -> SimulationResult:
    """Schedule objects on a simulated cluster, until nothing moves any more or the time is over.

    Args:
        manifests: the cluster's objects: a path or several, YAML or JSON text, plain data (one object or a list), or
            objects of a Kubernetes client library. Workloads become pods.
        nodes: a number of hollow nodes to add, or Node objects in any of these forms.
        node_template: a Node that hollow nodes are made from, as plain data or a path; by default 8 cpu and 32Gi.
        node_resources: amounts of a hollow node other than the template's, such as
            ``{"cpu": 64, "nvidia.com/gpu": 8}``.
        zones: number or names of the zones that the hollow nodes are dealt over.
        config: a KubeSchedulerConfiguration: a path, plain data, or an object of :mod:`kubesched.scheduler.config`.
        plugins: plugin classes, which are enabled in every profile that does not mention them; and module names and
            ``.py`` files, whose plugins are enabled when there is no ``config``.
        gates: feature gates, as ``"A=true,B=false"`` or a dict.
        seed: decides ties. Equal input and seed give equal results.
        until: most virtual time, in seconds or as ``"90m"``; by default a day after the last arrival.
        stages: rules for times and failures of hollow pods, volumes and devices: a path, or loaded ones.
        trace: pods that arrive over time: a path (CSV, JSON lines, Parquet, or YAML of kind Arrivals), a data frame, a
            dict of columns, generated arrivals, or a list of these; see ``docs/arrivals.md``.
        events: drains, failures and other changes by time: a path, or a list such as
            ``[{"at": "9h", "do": "fail", "nodes": {"zone": "zone-b"}, "for": "2h"}]``; see ``docs/events.md``.
        node_groups: kinds of nodes that come and go with the pods: a path or several, documents of kind NodeGroup, or
            groups from :mod:`kubesched.lab.node_groups`; see ``docs/autoscaling.md``.
        autoscaler: settings for them, with the names of cluster-autoscaler's flags, such as
            ``{"expander": "least-waste", "scale-down-unneeded-time": "5m"}``.
        controllers: True runs all controllers: they make the pods of workloads, and replace pods that are gone.
        extenders: in-process objects in place of the extenders that ``config`` names.
        on_progress: function called with (pods bound, pods to be bound).

    A plugin that blocks the run for a second is named on stderr.

    Raises:
        ManifestError: for objects that cannot be used; all of them are named.
        ConfigError, PluginError: for a configuration or a plugin that cannot be used.
        ValueError: for another argument that cannot be used, naming it.
        TypeError: for an argument that does not exist.
    """
    options = options_of(
        manifests,
        nodes=nodes,
        node_template=node_template,
        node_resources=node_resources,
        zones=zones,
        config=config,
        plugins=plugins,
        gates=gates,
        seed=seed,
        until=until,
        stages=stages,
        trace=trace,
        events=events,
        node_groups=node_groups,
        autoscaler=autoscaler,
        controllers=controllers,
        extenders=extenders,
        on_progress=on_progress,
        **unknown,
    )
    return SimulationResult.of(outside_any_loop(lambda: run_simulation(**options)))


#: Python's own messages about a call show this name.
simulate.__qualname__ = "kubesched.simulate"


def shown_signature(*, returns: Any) -> inspect.Signature:
    """Return the arguments of :func:`simulate` as help shows them, for it and for what takes the same arguments."""
    signature = inspect.signature(simulate)
    known = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    return signature.replace(parameters=known, return_annotation=returns)


def arguments_text() -> str:
    """Return the part of the docstring of :func:`simulate` that describes the arguments."""
    text = simulate.__doc__ or ""
    return text[text.index("    Args:") : text.index("    A plugin that blocks")]


simulate.__signature__ = shown_signature(returns="SimulationResult")  # type: ignore[attr-defined]


def unknown_argument(name: str, *more: str) -> str:
    """Return the message about an unknown argument; ``more`` are further names that the caller knows."""
    known = [*more, "manifests", *Options.__annotations__]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"kubesched.simulate has no argument {name}; {hint}"


def options_of(manifests: Objects, **given: Unpack[Options]) -> dict[str, Any]:
    """Return the arguments of :func:`.run.simulation.simulate` for those of :func:`simulate`.

    Raises:
        ManifestError, ConfigError, PluginError, ValueError, TypeError: see :func:`simulate`.
    """
    for name in given:
        if name not in Options.__annotations__:
            raise TypeError(unknown_argument(name))
    objects = manifests_of(manifests, "manifests")
    nodes = given.get("nodes", 0)
    if not isinstance(nodes, int):
        if isinstance(nodes, str) and nodes.strip().isdecimal():
            raise ValueError(f"nodes={nodes!r}: a number of nodes is written without quotes")
        given_nodes = manifests_of(nodes, "nodes")
        others = [item for item in given_nodes.objects if item.kind != NODES]
        given_nodes.problems += [
            f"{item.source}: is a {item.kind.kind}; nodes are Node objects, others belong into manifests"
            for item in others
        ]
        objects.extend(given_nodes)
    trace = given.get("trace", ())
    if not isinstance(trace, Sequence) or isinstance(trace, str) or trace:
        with objects.collecting():
            objects.objects += trace_pods(trace, _whole("seed", given.get("seed", 0), least=None))
    plugins = given.get("plugins", ())
    if isinstance(plugins, str | os.PathLike | type) or not isinstance(plugins, Iterable):
        raise PluginError(f"plugins={plugins!r}: give a list of plugin classes, module names or paths")
    plugins = list(plugins)
    gates = _gates(given.get("gates"))
    registry, own = load_registry(plugins)
    classes: list[str] = [one.name for one in plugins if isinstance(one, type)]  # type: ignore[attr-defined]
    config, remarks = load_configuration(given.get("config"), registry, own, enable=classes, gates=gates)
    until = given.get("until")
    if not callable(given.get("on_progress") or print):
        raise ValueError(f"on_progress={given['on_progress']!r}: expected a function of two numbers")
    return {
        "manifests": objects,
        "registry": registry,
        "nodes": _whole("nodes", nodes, most=MOST_NODES) if isinstance(nodes, int) else 0,
        "node_template": node_template_of(given.get("node_template"), given.get("node_resources")),
        "zones": _zone_names(given.get("zones", 0)),
        "config": config,
        "gates": gates,
        "seed": _whole("seed", given.get("seed", 0), least=None),
        "until": None if until is None else seconds_of("until", until),
        "stages": _stages(given.get("stages", ())),
        "events": _events(
            given.get("events", ()), lambda one: load_configuration(one, registry, own, enable=classes, gates=gates)[0]
        ),
        "node_groups": _node_groups(given.get("node_groups", ())),
        "autoscaler": _autoscaler(given.get("autoscaler"), given.get("node_groups", ())),
        "controllers": _truth("controllers", given.get("controllers", False)),
        "extenders": _extenders(given.get("extenders", ())),
        "remarks": [*registry.problems, *remarks],
        "on_progress": given.get("on_progress") or (lambda done, total: None),
        "on_slow_plugin": _say,
    }


def _extenders(given: Iterable[Extender]) -> tuple[Extender, ...]:
    if not isinstance(given, Iterable):
        raise ValueError(f"extenders={given!r}: expected a list of objects such as InProcessExtender")
    extenders = tuple(given)
    if wrong := [one for one in extenders if not hasattr(one, "name")]:
        raise ValueError(f"extenders: expected objects such as InProcessExtender, found {wrong[0]!r}")
    return extenders


def _stages(given: Path | Iterable[Stage]) -> tuple[Stage, ...]:
    if isinstance(given, str | os.PathLike):
        return load_stages([os.fspath(given)])
    if not isinstance(given, Iterable):
        raise ValueError(f"stages={given!r}: expected a path, or stages from load_stages")
    stages = tuple(given)
    if wrong := [one for one in stages if not isinstance(one, Stage)]:
        raise ValueError(f"stages: expected a path, or stages from load_stages, found {wrong[0]!r}")
    return stages


def _events(given: EventList, load: Callable[[Any], KubeSchedulerConfiguration]) -> list[PlannedEvent]:
    return with_configurations(planned_events(given), load)


def _node_groups(given: Any) -> list[NodeGroup]:
    """Return groups from paths, documents and groups, in their order.

    Raises:
        ManifestError: for documents that cannot be used.
        ValueError: for another kind of value.
    """
    listed = [given] if isinstance(given, str | os.PathLike | Mapping | NodeGroup) else given
    if not isinstance(listed, Iterable):
        raise ValueError(
            f"node_groups={given!r}: expected a path, or a list of paths and of documents of kind NodeGroup"
        )
    found: list[NodeGroup] = []
    for index, one in enumerate(listed):
        if isinstance(one, NodeGroup):
            found.append(one)
        elif isinstance(one, str | os.PathLike):
            found += read_node_groups([os.fspath(one)])
        elif isinstance(one, Mapping):
            found += parse_node_groups(json.dumps(one), f"node_groups[{index}]")
        else:
            text = "expected a path, a document of kind NodeGroup, or a NodeGroup"
            raise ValueError(f"node_groups[{index}]={one!r}: {text}")
    names = [group.name for group in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"node_groups: {twice[0]!r} is the name of several groups; give each its own")
    return found


def _autoscaler(given: Any, groups: Any) -> AutoscalerSettings | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ValueError(f'autoscaler={given!r}: expected a dict such as {{"expander": "price"}}')
    if not groups:
        raise ValueError("autoscaler: its settings are about node_groups, and there are none; give node_groups")
    return settings_of(given, "autoscaler")


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r}: must be True or False")
    return value


def _zone_names(zones: int | Iterable[str]) -> list[str]:
    if isinstance(zones, int):
        return zone_names(_whole("zones", zones))
    if isinstance(zones, str):
        raise ValueError(f"zones={zones!r}: must be a number of zones, or a list of names")
    names = list(zones) if isinstance(zones, Iterable) else [zones]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"zones={names!r}: must be a number of zones, or a list of names")
    return names


def _say(text: str) -> None:
    sys.stderr.write(f"kubesched: {text}\n")


def seconds_of(name: str, value: str | float) -> float:
    """Return seconds from a number, or from a duration such as ``90m``; ``name`` is the name of the argument in
    messages.

    Raises:
        ValueError: when it is neither, is negative or has no end.
    """
    try:
        seconds = parse_duration(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}={value!r}: {error}") from None
    if not 0 <= seconds < float("inf"):
        raise ValueError(f'{name}={value!r}: must be a number of seconds, 0 or more, or a text such as "90m"')
    return seconds


def _gates(given: str | Mapping[str, bool] | FeatureGates | None) -> FeatureGates:
    if not isinstance(given, str | Mapping | FeatureGates | None):
        raise ValueError(f'gates={given!r}: expected a text such as "A=true,B=false", or a dict')
    if given is None:
        return DEFAULT_GATES
    if isinstance(given, FeatureGates):
        return given
    if isinstance(given, str):
        return FeatureGates.of(parse_feature_gates([given]))
    for name, value in given.items():
        if not isinstance(value, bool):
            raise ValueError(f"gates: {name}={value!r}: must be True or False")
    return FeatureGates.of(given)


def _whole(name: str, value: Any, *, least: int | None = 0, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        raise ValueError(f"{name}={value!r}: must be a whole number{'' if least is None else f', {least} or more'}")
    if most is not None and value > most:
        raise ValueError(f"{name}={value!r}: must be at most {most}")
    return value
