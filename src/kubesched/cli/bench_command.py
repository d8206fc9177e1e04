"""``kubesched bench``: see :func:`.arguments.measurements.bench`. :mod:`kubesched.lab.bench` does the measuring."""

from __future__ import annotations

import argparse
import cProfile
import marshal
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

from kubesched import __version__
from kubesched.base.data import data_folder
from kubesched.base.lines import Line, columns
from kubesched.lab.bench import Decisions, Param, Run, Workload, load_workloads, measure_decisions, run_workload
from kubesched.scheduler.framework.registry import Registry

from .console import print_lines, progress_bar, warn, write_json
from .errors import CliError
from .interrupts import run_loop
from .loading import load_registry
from .saved_file import output_file, refuse_inputs

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    if options.results and options.labels is None:
        raise CliError("--results needs --labels", code=2)
    live = options.run or options.kubeconfig
    for name, given, needed in (("--rate", options.rate, "--run or --kubeconfig"), ("--tls", options.tls, "--run")):
        if given and not live:
            raise CliError(f"{name} needs {needed}", code=2)
    if options.labels is not None:
        from .bench_suite import run as run_suite  # noqa: PLC0415 - the other modes do without

        return run_suite(options, _machine())
    if options.http:
        from .http_bench import run as run_http  # noqa: PLC0415 - needs aiohttp, which the others do without

        return run_http(options, _machine())
    if live:
        from .live_bench import run as run_live  # noqa: PLC0415 - as above

        return run_live(options, _machine())
    for name, given in (("--pid", options.pid), ("--scheduler-name", options.scheduler_name)):
        if given:
            raise CliError(f"{name} needs --kubeconfig", code=2)
    workload = _chosen(options)
    operations = workload.operations()  # refuses a wrong workload before anything runs
    registry, _ = load_registry()
    if not options.quiet:
        for remark in _remarks(workload):
            warn(remark)
    if options.profile_to is not None and options.file:
        refuse_inputs([("--profile-to", options.profile_to)], [options.file])
    # The file is opened before the runs, so that an error is reported before them.
    with (
        output_file(options.profile_to, "--profile-to") if options.profile_to is not None else nullcontext() as profile
    ):
        runs, decisions = _measured(options, workload, registry, profile)
    nodes = sum(getattr(op, "count", 0) for op in operations if op.opcode == "createNodes")
    if options.output == "json":
        write_json(_document(workload, nodes, runs, decisions))
    else:
        print_lines(_as_table(workload, nodes, runs, decisions))
    if profile is not None and not options.quiet:
        warn(f"profile of the last run's measured part: {options.profile_to} (python -m pstats {options.profile_to})")
    return 0


def _measured(
    options: argparse.Namespace, workload: Workload, registry: Registry, profile: BinaryIO | None
) -> tuple[list[Run], list[Decisions]]:
    """Make all runs, and measure decisions alone if asked to. The profile of the last run goes to ``profile``."""
    runs: list[Run] = []
    decisions: list[Decisions] = []
    profiler = cProfile.Profile() if profile is not None else None
    for number in range(1, options.runs + 1):
        with progress_bar(f"run {number} of {options.runs}: pods bound", quiet=options.quiet) as bar:
            runs.append(
                run_loop(
                    run_workload(
                        workload,
                        registry,
                        seed=options.seed,
                        profiler=profiler if number == options.runs else None,
                        on_progress=bar.update,
                    )
                )
            )
        if options.decisions:
            decisions.append(run_loop(measure_decisions(workload, registry, seed=options.seed)))
    if profiler is not None and profile is not None:
        profiler.create_stats()
        marshal.dump(profiler.stats, profile)
    return runs, decisions


def _chosen(options: argparse.Namespace) -> Workload:
    """Return the one workload that was asked for."""
    path = Path(options.file) if options.file else data_folder("bench") / f"{options.shape}.yaml"
    workloads = load_workloads(path)
    wanted = options.workload or (None if options.file else "default")
    found = [item for item in workloads if options.case in (None, item.case) and wanted in (None, item.name)]
    if len(found) != 1:
        names = "\n  ".join(f"--case {item.case} --workload {item.name}" for item in found or workloads)
        problem = f"{len(found)} workloads match" if found else "no such workload"
        raise CliError(f"{path}: {problem}; choose one of\n  {names}")
    workload = found[0]
    params: dict[str, Param] = {
        name: value
        for name, value in (("initNodes", options.nodes), ("measurePods", options.pods))
        if value is not None
    }
    settings = _settings(workload, options.settings, given=params)
    if not options.file:
        params = {**_in_proportion(workload, params), **params}
    params.update(settings)
    return workload.with_params(**params) if params else workload


def _settings(workload: Workload, listed: Sequence[tuple[str, str]], given: Mapping[str, Param]) -> dict[str, Param]:
    """Return the parameters of ``--set``, each parsed to the type that the workload's parameter has."""
    settings: dict[str, Param] = {}
    for name, text in listed:
        if name not in workload.params:
            known = ", ".join(sorted(workload.params)) or "none"
            raise CliError(f"--set {name}={text}: {workload.title} has no parameter {name} (there are: {known})")
        if name in settings:
            raise CliError(f"--set {name}={text}: {name} is set twice")
        if name in given:
            flag = "--nodes" if name == "initNodes" else "--pods"
            raise CliError(f"--set {name}={text}: {flag} sets {name}, too; give one of them")
        settings[name] = _value(workload.params[name], name, text)
    return settings


def _value(old: Param, name: str, text: str) -> Param:
    if isinstance(old, str):
        return text
    if isinstance(old, bool):
        if text not in ("true", "false"):
            raise CliError(f"--set {name}={text}: must be true or false")
        return text == "true"
    if not (text.isascii() and text.isdigit()):
        raise CliError(f"--set {name}={text}: must be a whole number, 0 or more")
    return int(text)


def _in_proportion(workload: Workload, params: Mapping[str, Param]) -> dict[str, Param]:
    """Return the other counts of a shape, scaled with the count that was given."""
    scaled: dict[str, Param] = {}
    for given, ending in (("initNodes", "Nodes"), ("measurePods", "Pods")):
        if given in params:
            share = int(params[given]) / int(workload.params[given])
            names = [name for name in workload.params if name.endswith(ending) and name != given]
            scaled.update({name: round(int(workload.params[name]) * share) for name in names})
    return scaled


def _remarks(workload: Workload) -> list[str]:
    """Return remarks about settings of the file that are not applied."""
    values = workload.gates.values
    ignored = [name for name, value in workload.feature_gates.items() if values.get(name, value) != value]
    return [f"the feature gate {name} of {workload.title} is not applied" for name in ignored]


def _machine() -> dict[str, Any]:
    """Describe this machine: figures mean nothing without it."""
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    except OSError:
        pass  # not Linux: the architecture is shown instead
    return {
        "cpu": cpu,
        "cores": os.cpu_count() or 0,
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "kubesched": __version__,
    }


def _summary(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the best and the median over the runs, for each section."""
    result = []
    for sections in zip(*(item.sections for item in runs), strict=True):
        values = {
            "podsPerSecond": [item.pods_per_second for item in sections],
            "latencyP50Ms": [item.latency_ms.p50 for item in sections],
            "latencyP90Ms": [item.latency_ms.p90 for item in sections],
            "latencyP99Ms": [item.latency_ms.p99 for item in sections],
            "decisionP50Us": [item.decision_us.p50 for item in sections],
            "decisionP99Us": [item.decision_us.p99 for item in sections],
            "cpuUsPerPod": [item.cpu_us_per_pod for item in sections],
        }
        summary: dict[str, Any] = {"name": sections[0].name, "pods": sections[0].pods, "bound": sections[0].bound}
        for name, each in values.items():
            best = max(each) if name == "podsPerSecond" else min(each)
            summary[name] = {"best": best, "median": round(median(each), 3)}
        result.append(summary)
    return result


def _document(workload: Workload, nodes: int, runs: Sequence[Run], decisions: Sequence[Decisions]) -> dict[str, Any]:
    return {
        "apiVersion": "kubesched.io/v1alpha1",
        "kind": "BenchmarkResult",
        "case": workload.case,
        "workload": workload.name,
        "params": workload.params,
        "nodes": nodes,
        "machine": _machine(),
        "summary": _summary(runs),
        "runs": runs,
        "decisions": decisions,
    }


def _as_table(workload: Workload, nodes: int, runs: Sequence[Run], decisions: Sequence[Decisions]) -> list[Line]:
    machine = _machine()
    lines = [
        Line(f"{workload.title}: {nodes:,} nodes, {len(runs)} run{'s' if len(runs) > 1 else ''}", "title"),
        Line(
            f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, NumPy {machine['numpy']}", "dim"
        ),
        Line(", ".join(f"{name}={value}" for name, value in sorted(workload.params.items())), "dim"),
        Line("create, watch, queue, decide, bind, watch back, events; collector as in kubesched run", "dim"),
    ]
    units = {
        "podsPerSecond": ("throughput", "pods/s", 0),
        "latencyP50Ms": ("create to bound, p50", "ms", 1),
        "latencyP90Ms": ("create to bound, p90", "ms", 1),
        "latencyP99Ms": ("create to bound, p99", "ms", 1),
        "decisionP50Us": ("decision, p50", "µs", 1),
        "decisionP99Us": ("decision, p99", "µs", 1),
        "cpuUsPerPod": ("CPU per pod", "µs", 0),
    }
    for summary in _summary(runs):
        lines += [
            Line(""),
            Line(f"{summary['name'] or 'measured'}: {summary['bound']:,} of {summary['pods']:,} pods bound"),
        ]
        rows = [
            (label, f"{summary[name]['best']:,.{digits}f}", f"{summary[name]['median']:,.{digits}f}", unit)
            for name, (label, unit, digits) in units.items()
        ]
        table = columns(("", "BEST", "MEDIAN", ""), rows, right=(1, 2))
        lines += [Line(table[0], "dim"), *(Line(text) for text in table[1:])]
    holds = [hold for one in runs for section in one.sections for hold in section.longest_holds]
    if holds:
        count = sum(section.loop_holds for one in runs for section in one.sections)
        lines += [Line(""), Line(f"the event loop was held for more than 50 ms {count} times, the longest:")]
        longest = sorted(holds, key=lambda hold: -hold.ms)[:5]
        lines += [
            Line(f"  {hold.ms:,.0f} ms ({hold.cpu_ms:,.0f} ms of CPU)  {hold.where or '(the machine was late)'}")
            for hold in longest
        ]
    lines += [Line(""), Line(f"peak memory of the process: {max(item.peak_rss_mib for item in runs):,.0f} MiB")]
    dropped = sum(item.events_dropped for item in runs)
    recorded = sum(item.events_recorded for item in runs)
    lines.append(Line(f"events recorded: {recorded:,}, dropped: {dropped:,}"))
    if decisions:
        rate, p50, p99 = (
            median([item.per_second for item in decisions]),
            median([item.decision_us.p50 for item in decisions]),
            median([item.decision_us.p99 for item in decisions]),
        )
        lines.append(
            Line(f"decisions alone (pop, decide, assume): {rate:,.0f}/s, p50 {p50:.1f} µs, p99 {p99:.1f} µs (medians)")
        )
    return lines
