"""``kubesched simulate``: see :func:`.arguments.simulations.simulate`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

from kubesched.base.collector import collector_off, settle_collector
from kubesched.cluster.files import Manifests, load_manifests, save
from kubesched.cluster.kubelets import load_stages, node_template, zone_names
from kubesched.cluster.store import Store
from kubesched.explain.annotations import CollectedAnnotations, SimulatorResults
from kubesched.explain.records import Recorder
from kubesched.lab.node_groups import NodeGroup
from kubesched.lab.simulate.inputs.events import PlannedEvent, planned_events, with_configurations
from kubesched.lab.simulate.inputs.given import check_amounts, cluster_of, node_template_of
from kubesched.lab.simulate.inputs.table_files import TableFileError, check_file, write_table
from kubesched.lab.simulate.inputs.trace_files import trace_pods
from kubesched.lab.simulate.results.html_report import render_html
from kubesched.lab.simulate.results.report import error_text, render_json, render_table, render_yaml
from kubesched.lab.simulate.results.result import Result
from kubesched.lab.simulate.results.tables import table
from kubesched.lab.simulate.run.simulation import run_simulation
from kubesched.lab.simulate.scaling.settings import AutoscalerSettings, settings_of
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.queued import QueuedPodInfo

from .console import ProgressBar, print_lines, progress_bar, terminal_width, warn, write
from .errors import CliError
from .loading import load_setup
from .planning_input import node_groups_of
from .saved_file import claimed, decision_file, output_file, refuse_inputs, refuse_other_file

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    _check_outputs(options)
    registry, config, gates, remarks = load_setup(options, options.config)
    groups, settings = _node_groups(options)
    manifests, template, title = _input(options)
    # Output of plugins must not become part of a document.
    aside = nullcontext() if options.output == "table" else redirect_stdout(sys.stderr)
    with progress_bar("pods bound", quiet=options.quiet) as bar, aside, ExitStack() as outputs:
        progress = _Progress(bar)
        # The files are opened before the run, so that an error is reported before it.
        page = outputs.enter_context(output_file(options.report, "--report")) if options.report is not None else None
        tables = [(name, path, outputs.enter_context(output_file(path, "--save"))) for name, path in options.save]
        outputs.enter_context(
            claimed(options.save_cluster, "--save-cluster") if options.save_cluster else nullcontext()
        )
        results, collected = SimulatorResults(), CollectedAnnotations()
        results.collect(collected)
        recorder = None
        if options.decisions is not None:
            recorder = Recorder(kept=0, file=decision_file(options.decisions))
        outputs.callback(settle_collector())
        result = run_simulation(
            manifests,
            registry=registry,
            nodes=options.nodes,
            node_template=template,
            zones=zone_names(options.zones),
            config=config,
            gates=gates,
            seed=options.seed,
            stages=load_stages(options.stages),
            controllers=options.controllers,
            until=options.until,
            events=_events(options),
            node_groups=groups,
            autoscaler=settings,
            remarks=[*registry.problems, *remarks],
            on_progress=progress.bound,
            on_slow_plugin=warn,
            recorder=recorder,
            timer=perf_counter if options.profile else None,
            observers=[progress, *([results] if options.annotate_simulator_results else [])],
            at_end=lambda store: _save_cluster(store, collected, options),
            explain=[name if "/" in name else f"default/{name}" for name in options.explain],
        )
        if page is not None:
            page.write(render_html(result, title).encode(errors="backslashreplace"))
        for name, path, file in tables:
            write_table(table(result, name), path, file)
    _show(result, registry.problems, options)
    _check_result(result)
    if result.explanation is not None and result.explanation.absent:
        absent = ", ".join(result.explanation.absent)
        raise CliError(
            f"--explain {absent}: no such pod is in the cluster at the end, nor a pod group, and none was evicted"
        )
    return 0


def _show(result: Result, said: Sequence[str], options: argparse.Namespace) -> None:
    """Print the result and its remarks, without those that were ``said`` when plugins were loaded."""
    for remark in result.warnings:
        if remark not in said:
            warn(remark)
    if options.output == "table":
        print_lines(render_table(result, wide=options.wide, width=terminal_width()))
    else:
        write(render_json(result) if options.output == "json" else render_yaml(result))


def _save_cluster(store: Store, collected: CollectedAnnotations, options: argparse.Namespace) -> list[str]:
    """Save the cluster with the annotations of its pods, if that is wanted. Return remarks about annotations."""
    if not options.save_cluster:
        return []
    remarks = collected.write(store)
    try:
        save(store, options.save_cluster)
    except OSError as error:
        raise CliError(f"--save-cluster {options.save_cluster}: cannot be written: {error.strerror or error}") from None
    return remarks


class _Progress(AttemptObserver):
    """Progress of a run: a bar that goes on while pods are tried in vain, too."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self._last = (0, 0)

    def bound(self, done: int, total: int) -> None:
        self._last = (done, total)
        self._bar.update(done, total)

    def attempted(self, queued: QueuedPodInfo) -> None:
        self._bar.update(*self._last)


def _node_groups(options: argparse.Namespace) -> tuple[list[NodeGroup], AutoscalerSettings | None]:
    """Return the node groups, and the settings of the autoscaler."""
    groups = node_groups_of(options)
    if not options.autoscaler:
        return groups, None
    if not groups:
        raise CliError("--autoscaler: its settings are about node groups; give --node-groups FILE, too", code=2)
    try:
        return groups, settings_of(dict(options.autoscaler), "--autoscaler")
    except ValueError as error:
        raise CliError(str(error), code=2) from None


def _events(options: argparse.Namespace) -> list[PlannedEvent]:
    """Return the events of all files, with their configurations loaded."""
    found = [one for path in options.events for one in planned_events(path)]
    if (options.decisions is not None or options.profile) and (
        one := next((e for e in found if e.action == "configure"), None)
    ):
        option = "--profile" if options.profile else "--decisions"
        raise CliError(
            f"{option}: cannot follow the change of the configuration in {one.where}; leave out one of them", code=2
        )
    return with_configurations(sorted(found, key=lambda one: one.at), lambda path: load_setup(options, path).config)


def _input(options: argparse.Namespace) -> tuple[Manifests, dict[str, Any], str]:
    """Return the manifests, the template of hollow nodes, and a title."""
    paths = [path for group in options.filename for path in group]
    if not paths and not options.trace and options.start is None:
        text = "give manifests with -f, a cluster with --from, or a table of pods with --trace"
        raise CliError(f"there is nothing to simulate: {text}", code=2)
    with collector_off():
        manifests = load_manifests(paths, lenient=True)
        if options.start is not None:
            cluster = cluster_of(options.start)
            cluster.extend(manifests)
            manifests = cluster
            paths.append(options.start)
        template: dict[str, Any] = {}
        with manifests.collecting():
            given = {"cpu": options.node_cpu, "memory": options.node_memory}
            check_amounts({f"--node-{name} {amount}": (name, amount) for name, amount in given.items()})
            template = node_template_of(
                options.node_template or node_template(cpu=options.node_cpu, memory=options.node_memory),
                dict(options.node_resources),
            )
        for path in options.trace:
            with manifests.collecting():
                manifests.objects += trace_pods(path, options.seed)
    if not manifests.objects and not manifests.problems:
        nothing = f"{', '.join(paths)}: there are no manifests (YAML or JSON files with Kubernetes objects)"
        raise CliError("\n".join((nothing, *manifests.warnings)))
    return manifests, template, _title(paths, options.trace)


def _check_result(result: Result) -> None:
    """Fail if pods were refused or an exception was raised, so that the command does not seem to have succeeded."""
    if result.errors:
        count = sum(item.count for item in result.errors)
        what = "an exception was" if count == 1 else f"{count:,} exceptions were"
        texts = [error_text(item) for item in result.errors]
        raise CliError("\n".join((f"{what} raised during the run, so its result may be wrong:", *texts)))
    if result.refused:
        first = result.refused[0]
        pods = "1 pod was" if result.totals.refused == 1 else f"{result.totals.refused:,} pods were"
        raise CliError(f"{pods} refused; the first: {first.source}: {first.message}")


def _check_outputs(options: argparse.Namespace) -> None:
    """Refuse names of outputs that cannot be written, before a long run and not after it."""
    given = [*([options.report] if options.report is not None else []), *(path for _, path in options.save)]
    read = (
        [path for group in options.filename for path in group]
        + options.trace
        + options.events
        + options.node_groups
        + options.stages
        + options.plugin_module
    )
    read += [path for path in (options.start, options.config, options.node_template, options.catalogue) if path]
    names = [("--report" if path == options.report else "--save", path) for path in given]
    for option, name in (("--decisions", options.decisions), ("--save-cluster", options.save_cluster)):
        if name:
            given.append(name)
            names.append((option, name))
    refuse_inputs(names, read)
    if options.save_cluster == "":
        raise CliError("--save-cluster: the name of the file is empty", code=2)
    if options.save_cluster:
        refuse_other_file(options.save_cluster, "--save-cluster")
    elif options.annotate_simulator_results:
        text = "--annotate-simulator-results: annotations are part of the saved cluster; give --save-cluster FILE, too"
        raise CliError(text, code=2)
    places = [os.path.realpath(path) for path in given]
    for path, place in zip(given, places, strict=True):
        if places.count(place) > 1:
            raise CliError(f"{path}: two outputs would be written to it; give another name", code=2)
    try:
        for _, path in options.save:
            check_file(path)
    except TableFileError as error:
        raise CliError(f"--save {error}") from None


def _title(paths: Sequence[str], traces: Sequence[str]) -> str:
    return "Simulation of " + ", ".join(Path(path).name or path for path in (*paths, *traces))
