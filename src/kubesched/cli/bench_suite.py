"""``kubesched bench DIR --labels performance``: run every workload with these labels, and show one table at the end.

Each workload runs in a process of its own, as upstream runs each on a cluster of its own. So each memory figure belongs
to one workload, and a failure does not end the other workloads. Caller: :mod:`.bench_command`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from kubesched.base.data import data_folder
from kubesched.base.lines import Line, columns
from kubesched.base.whole_file import write_file
from kubesched.lab.bench import Run, Section, Workload, WorkloadError, load_workloads
from kubesched.lab.bench.items import DataItem, items_file
from kubesched.lab.bench.workloads import ThresholdSelector, labels_match, topic_of

from .console import print_lines, write_json
from .errors import CliError

__all__ = ["run"]

_FILE: Final = "performance-config.yaml"
_LIMIT_SECONDS: Final = 30 * 60.0
#: Upstream's throughput item. A run of less than two seconds has no such item; ``pods_per_second`` is shown instead.
_THROUGHPUT: Final = "SchedulingThroughput"


class Row(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One workload, or one section of it. Figures are medians of its runs. A failed workload has only ``error``."""

    topic: str
    workload: str
    section: str = ""
    error: str | None = None
    nodes: int = 0
    pods: int = 0
    bound: int = 0
    #: Measured from the start of the section to its last binding.
    pods_per_second: float = 0
    #: Upstream's average of samples of one second each; None if the section was too short for a sample.
    throughput: float | None = None
    #: Upstream's threshold (0: none), the value compared with it, and the result of the comparison.
    threshold: float = 0
    compared: float | None = None
    passed: bool = True
    cpu_us_per_pod: float = 0
    decision_p50_us: float = 0
    peak_rss_mib: float = 0


class _Result(msgspec.Struct, rename="camel", kw_only=True):
    """Fields of a child's output that are used here."""

    nodes: int
    runs: list[Run]


def run(options: argparse.Namespace, machine: Mapping[str, Any]) -> int:
    """Run the workloads, print the table, write result files. Return 1 if a workload failed or missed its threshold."""
    _refuse(options)
    chosen = _chosen(options)
    if options.results:
        Path(options.results).mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    items: dict[str, list[DataItem]] = defaultdict(list)
    for number, (file, workload) in enumerate(chosen, 1):
        topic = topic_of(file.parent)
        try:
            result = _measure(file, workload, options)
        except WorkloadError as error:
            fresh = [Row(topic=topic, workload=workload.title, error=str(error), passed=False)]
        else:
            fresh = _rows(topic, workload, result)
            for section in result.runs[-1].sections:
                items[topic] += section.items
        rows += fresh
        if not options.quiet:
            for row in fresh:
                figures = row.error or f"{row.pods_per_second:,.0f} pods/s, {row.cpu_us_per_pod:,.0f} µs CPU per pod"
                print(f"[{number}/{len(chosen)}] {row.workload}: {figures}", file=sys.stderr, flush=True)
    if options.results:
        _write_results(Path(options.results), items)
    if options.output == "json":
        data = {
            "apiVersion": "kubesched.io/v1alpha1",
            "kind": "BenchmarkTable",
            "labels": options.labels,
            "machine": dict(machine),
            "rows": rows,
        }
        write_json(data)
    else:
        print_lines(_table(rows, options, machine))
    return 0 if all(row.passed for row in rows) else 1


def _refuse(options: argparse.Namespace) -> None:
    others = {
        "--set": options.settings,
        "--nodes": options.nodes,
        "--pods": options.pods,
        "--decisions": options.decisions,
        "--profile-to": options.profile_to,
        "--http": options.http,
        "--run": options.run,
        "--kubeconfig": options.kubeconfig,
    }
    for name, given in others.items():
        if given:
            raise CliError(f"{name} does not go with --labels, which runs workloads as their files say", code=2)


def _files(path: Path) -> list[Path]:
    """Return the workload files of a folder: upstream's layout at any depth, otherwise every YAML file in it."""
    if not path.is_dir():
        return [path]
    return sorted(path.rglob(_FILE)) or sorted(path.glob("*.yaml"))


def _chosen(options: argparse.Namespace) -> list[tuple[Path, Workload]]:
    path = Path(options.file) if options.file else data_folder("bench")
    found = [
        (file, workload)
        for file in _files(path)
        for workload in load_workloads(file)
        if options.case in (None, workload.case) and options.workload in (None, workload.name)
    ]
    chosen = [(file, workload) for file, workload in found if labels_match(workload.labels, options.labels)]
    if not chosen:
        known = ", ".join(sorted({label for _, workload in found for label in workload.labels})) or "none"
        raise CliError(f"{path}: no workload has the labels {options.labels!r} (labels there: {known})")
    return chosen


def _measure(file: Path, workload: Workload, options: argparse.Namespace) -> _Result:
    """Run one workload in a process of its own.

    Raises:
        WorkloadError: if it fails, with the text it printed.
    """
    workload.operations()  # refuses a wrong workload without starting a process
    command = [sys.executable, "-m", "kubesched.cli", "bench", str(file), "--json", "--quiet"]
    command += ["--case", workload.case, "--workload", workload.name]
    command += ["--runs", str(options.runs), "--seed", str(options.seed)]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_SECONDS * options.runs, check=False
        )
    except subprocess.TimeoutExpired:
        raise WorkloadError(f"not over after {_LIMIT_SECONDS * options.runs / 60:.0f} minutes") from None
    if ended.returncode:
        text = ended.stderr.strip().removeprefix("kubesched: ").removeprefix(f"{workload.title}: ")
        raise WorkloadError(text or f"its process ended with exit code {ended.returncode}")
    return msgspec.json.decode(ended.stdout, type=_Result)


def _rows(topic: str, workload: Workload, result: _Result) -> list[Row]:
    rows = []
    for sections in zip(*(one.sections for one in result.runs), strict=True):
        rates = [
            item.data["Average"]
            for section in sections
            for item in section.items
            if item.labels.get("Metric") == _THROUGHPUT and item.data
        ]
        throughput = median(rates) if rates else None
        pods_per_second = median(section.pods_per_second for section in sections)
        compared = _compared(workload.selector, sections, throughput or pods_per_second) if workload.threshold else None
        passed = compared is None or (
            compared < workload.threshold if workload.selector.expect_lower else compared > workload.threshold
        )
        rows.append(
            Row(
                topic=topic,
                workload=workload.title,
                section=sections[0].name,
                nodes=result.nodes,
                pods=sections[0].pods,
                bound=sections[0].bound,
                pods_per_second=pods_per_second,
                throughput=throughput,
                threshold=workload.threshold,
                compared=compared,
                passed=passed,
                cpu_us_per_pod=median(section.cpu_us_per_pod for section in sections),
                decision_p50_us=median(section.decision_us.p50 for section in sections),
                peak_rss_mib=max(one.peak_rss_mib for one in result.runs),
            )
        )
    return rows


def _compared(selector: ThresholdSelector, sections: Sequence[Section], throughput: float) -> float | None:
    """Return the value to compare with the threshold; None if the section has no item that the selector matches."""
    if selector.name == _THROUGHPUT and selector.data_bucket == "Average":
        return throughput
    values = [
        item.data[selector.data_bucket]
        for section in sections
        for item in section.items
        if item.labels.get("Metric", "").removeprefix("scheduler_") == selector.name.removeprefix("scheduler_")
        and selector.labels.items() <= item.labels.items()
        and item.data
        and selector.data_bucket in item.data
    ]
    return median(values) if values else None


def _write_results(folder: Path, items: Mapping[str, Iterable[DataItem]]) -> None:
    stamp = datetime.now().astimezone().strftime("%Y-%m-%dT%H:%M:%SZ")  # local time with a literal Z, as upstream
    for topic, listed in items.items():
        write_file(folder / f"BenchmarkPerfScheduling_benchmark_{topic}_{stamp}.json", items_file(listed))


def _table(rows: Sequence[Row], options: argparse.Namespace, machine: Mapping[str, Any]) -> list[Line]:
    lines = [
        Line(f"{len(rows)} workloads with the labels {options.labels or '(any)'}", "title"),
        Line(
            f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, NumPy {machine['numpy']}; "
            f"medians of {options.runs} run{'s' if options.runs > 1 else ''}",
            "dim",
        ),
        Line(""),
    ]
    head = ("WORKLOAD", "NODES", "PODS", "PODS/S", "UPSTREAM'S FLOOR", "TIMES", "CPU/POD µs", "DECISION µs", "MiB")
    table = columns(
        head,
        [
            (
                f"{row.workload} {row.section}".rstrip() if _repeated(rows, row) else row.workload,
                f"{row.nodes:,}",
                f"{row.bound:,}",
                f"{row.pods_per_second:,.0f}",
                f"{row.threshold:,.0f}" if row.threshold else "",
                f"{row.compared / row.threshold:.1f}" if row.threshold and row.compared is not None else "",
                f"{row.cpu_us_per_pod:,.0f}",
                f"{row.decision_p50_us:,.0f}",
                f"{row.peak_rss_mib:,.0f}",
            )
            for row in rows
            if row.error is None
        ],
        right=range(1, len(head)),
    )
    lines += [Line(table[0], "dim"), *(Line(text) for text in table[1:])]
    failed = [row for row in rows if row.error is not None]
    missed = [row for row in rows if row.error is None and not row.passed]
    if failed:
        lines += [Line(""), Line(f"{len(failed)} failed:"), *(Line(f"  {row.workload}: {row.error}") for row in failed)]
    if missed:
        lines += [Line(""), Line(f"{len(missed)} did not pass upstream's threshold:")]
        lines += [Line(f"  {row.workload}: {row.compared:,.1f}, threshold {row.threshold:,.0f}") for row in missed]
    return lines


def _repeated(rows: Sequence[Row], row: Row) -> bool:
    return sum(other.workload == row.workload and other.topic == row.topic for other in rows) > 1
