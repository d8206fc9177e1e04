"""``kubesched bench --http``: pods created over HTTP by one client, while the cluster schedules and runs them.

    kubesched up, a process of its own ◀── pods, ``connections`` requests at a time ── this process

Every run has a fresh cluster, as a user of ``kubesched up`` has it: API server, scheduler, controllers, kubelets and
events in one event loop. Caller: :mod:`.bench_command`, which itself measures everything inside one process.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from kubesched.api.kinds import PODS
from kubesched.api.wire import ApiError, Transport
from kubesched.base.lines import Line, columns
from kubesched.base.tasks import Supervisor, TaskCrashedError
from kubesched.client.http import HttpTransport
from kubesched.lab.bench.measure import Percentiles

from .bench_processes import cluster, cpu_seconds, refuse_others
from .console import ProgressBar, print_lines, progress_bar, write_json
from .errors import CliError
from .interrupts import run_loop

__all__ = ["PLAIN_POD", "HttpRun", "create_pods", "numbered", "run"]

NODES: Final = 5_000
PODS_CREATED: Final = 6_000
#: Seconds between two polls of the pods, once the last one has been created.
_LOOK_SECONDS: Final = 0.05
#: Seconds without a change after which pending pods are taken to stay pending.
_PATIENCE_SECONDS: Final = 60.0
_REQUESTS: Final = {"cpu": "10m", "memory": "50Mi"}
PLAIN_POD: Final[Mapping[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "pod-"},
    "spec": {"containers": [{"name": "app", "image": "pause", "resources": {"requests": _REQUESTS}}]},
}


class HttpRun(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One run. Times are in seconds. ``cpu_us_per_pod`` is the CPU time of the cluster's process; None if the system
    does not report it.
    """

    #: Measured from the start of the process to its first answer.
    startup_seconds: float
    created: int
    creations_per_second: float
    #: Time of one creation, from request to answer.
    latency_ms: Percentiles
    #: Pods that were on a node when the last creation was answered.
    bound_by_then: int
    #: Measured from the last creation's answer until all pods are on a node, and until all run.
    bound_after_seconds: float
    running_after_seconds: float
    cpu_us_per_pod: float | None


def run(options: argparse.Namespace, machine: Mapping[str, Any]) -> int:
    """Measure and print. ``machine`` describes where the figures come from."""
    refuse_others(options, "--http")
    nodes, pods = options.nodes or NODES, options.pods or PODS_CREATED
    runs = []
    for number in range(1, options.runs + 1):
        with progress_bar(f"run {number} of {options.runs}: pods created", quiet=options.quiet) as bar:
            before = time.monotonic()
            with (
                tempfile.TemporaryDirectory(prefix="kubesched-") as scratch,
                cluster(Path(scratch) / "kubeconfig", nodes, options.seed) as (url, process),
            ):
                startup = time.monotonic() - before
                runs.append(run_loop(_measure(url, process, pods, options.connections, startup, bar)))
    if options.output == "json":
        write_json(_document(nodes, options.connections, machine, runs))
    else:
        print_lines(_as_table(nodes, options.connections, machine, runs))
    return 0


async def _measure(url: str, process: int, pods: int, connections: int, startup: float, bar: ProgressBar) -> HttpRun:
    transport = HttpTransport(url)
    try:
        cpu = cpu_seconds(process)
        begun = time.perf_counter()
        latencies = await create_pods(transport, PLAIN_POD, pods, connections, bar)
        done = time.perf_counter()
        unbound = await _count(transport, "spec.nodeName=")
        bound_after, running_after = await _settled(transport, done)
        used = cpu_seconds(process)
    except (ApiError, OSError, TaskCrashedError) as error:
        cause = error.__cause__ if isinstance(error, TaskCrashedError) else error
        if not isinstance(cause, ApiError | OSError):
            raise
        raise CliError(f"the cluster did not answer as it should: {cause}") from None
    finally:
        await transport.close()
    return HttpRun(
        startup_seconds=round(startup, 2),
        created=pods,
        creations_per_second=round(pods / (done - begun), 1),
        latency_ms=Percentiles.of(latencies, 1e3),
        bound_by_then=pods - unbound,
        bound_after_seconds=round(bound_after, 2),
        running_after_seconds=round(running_after, 2),
        cpu_us_per_pod=round((used - cpu) / pods * 1e6, 1) if cpu is not None and used is not None else None,
    )


def numbered(pod: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return the pod with its number in the generated name.

    Five random letters alone meet twice among 5,000 pods, and API servers before Kubernetes 1.31 then refuse the pod.
    """
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "generateName": f"{metadata['generateName']}{number}-"}}


async def create_pods(
    transport: Transport, pod: Mapping[str, Any], pods: int, connections: int, bar: ProgressBar
) -> list[float]:
    """Create ``pods`` copies of ``pod``, ``connections`` at a time. Return the seconds that each creation took."""
    latencies: list[float] = []
    left = iter(range(pods))

    async def requests() -> None:
        for number in left:  # the tasks share it: each takes the next number
            sent = time.perf_counter()
            await transport.create(PODS, "default", numbered(pod, number))
            latencies.append(time.perf_counter() - sent)
            bar.update(len(latencies), pods)

    async with Supervisor("requests") as tasks:
        for number in range(connections):
            tasks.spawn(requests(), f"requests-{number}", lasting=False)
        await tasks.ended()
    return latencies


async def _settled(transport: Transport, since: float) -> tuple[float, float]:
    """Wait until every pod runs. Return the seconds until all were on a node, and until all ran."""
    bound: float | None = None
    fewest, changed = sys.maxsize, since
    while True:
        if bound is None and not await _count(transport, "spec.nodeName="):
            bound = time.perf_counter() - since
        pending = await _count(transport, "status.phase=Pending")
        now = time.perf_counter()
        if not pending:
            return (bound if bound is not None else now - since), now - since
        if pending < fewest:
            fewest, changed = pending, now
        elif now - changed > _PATIENCE_SECONDS:
            raise CliError(f"{pending} pods stay pending: no node has enough free resources; give more --nodes")
        await asyncio.sleep(_LOOK_SECONDS)


async def _count(transport: Transport, field_selector: str) -> int:
    return len((await transport.list(PODS, field_selector=field_selector)).items)


# -- showing -----------------------------------------------------------------------------------------------

#: Label, unit and decimals of each figure.
_FIGURES: Final = {
    "creationsPerSecond": ("pods created", "/s", 0),
    "boundByThenPercent": ("bound by the last creation", "%", 0),
    "boundAfterSeconds": ("all bound after it", "s", 2),
    "runningAfterSeconds": ("all running after it", "s", 2),
    "latencyP50Ms": ("one creation, p50", "ms", 1),
    "latencyP99Ms": ("one creation, p99", "ms", 1),
    "cpuUsPerPod": ("CPU of the cluster per pod", "µs", 0),
    "startupSeconds": ("start-up", "s", 2),
}
_MORE_IS_BETTER: Final = ("creationsPerSecond", "boundByThenPercent")


def _summary(runs: Sequence[HttpRun]) -> dict[str, dict[str, float]]:
    """Return the worst, the median and the best of each figure."""
    values: dict[str, list[float]] = {
        "creationsPerSecond": [item.creations_per_second for item in runs],
        "boundByThenPercent": [100.0 * item.bound_by_then / item.created for item in runs],
        "boundAfterSeconds": [item.bound_after_seconds for item in runs],
        "runningAfterSeconds": [item.running_after_seconds for item in runs],
        "latencyP50Ms": [item.latency_ms.p50 for item in runs],
        "latencyP99Ms": [item.latency_ms.p99 for item in runs],
        "cpuUsPerPod": [item.cpu_us_per_pod for item in runs if item.cpu_us_per_pod is not None],
        "startupSeconds": [item.startup_seconds for item in runs],
    }
    summary = {}
    for name, each in values.items():
        if each:
            low, high = min(each), max(each)
            worst, best = (low, high) if name in _MORE_IS_BETTER else (high, low)
            summary[name] = {"worst": round(worst, 3), "median": round(median(each), 3), "best": round(best, 3)}
    return summary


def _document(nodes: int, connections: int, machine: Mapping[str, Any], runs: Sequence[HttpRun]) -> dict[str, Any]:
    return {
        "apiVersion": "kubesched.io/v1alpha1",
        "kind": "HttpBenchmarkResult",
        "nodes": nodes,
        "connections": connections,
        "machine": machine,
        "summary": _summary(runs),
        "runs": runs,
    }


def _as_table(nodes: int, connections: int, machine: Mapping[str, Any], runs: Sequence[HttpRun]) -> list[Line]:
    many = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    rows = []
    for name, figures in _summary(runs).items():
        label, unit, digits = _FIGURES[name]
        rows.append((label, *(f"{figures[column]:,.{digits}f}" for column in ("worst", "median", "best")), unit))
    table = columns(("", "WORST", "MEDIAN", "BEST", ""), rows, right=(1, 2, 3))
    return [
        Line(f"pods over HTTP: {nodes:,} nodes, {runs[0].created:,} pods, {many}", "title"),
        Line(f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}", "dim"),
        Line(f"one client, {connections} requests at a time; the cluster in one process of its own", "dim"),
        Line(""),
        Line(table[0], "dim"),
        *(Line(text) for text in table[1:]),
    ]
