"""``kubesched bench --run`` and ``--kubeconfig``: a scheduler in a process of its own, measured from outside.

    --run         kubesched up --no-scheduler ◀─ pods, pending ─ this process; then `kubesched run` starts
    --run --rate  kubesched up --no-scheduler, then `kubesched run` starts ◀─ pods, R a second ─ this process
    --kubeconfig  any cluster, whose scheduler runs already    ◀─ pods ─ this process

A watch sees the bindings; CPU and memory are read from /proc. Nothing here depends on the scheduler that is measured,
so figures of two schedulers can be compared. Caller: :mod:`.bench_command`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from kubesched.api.kinds import EVENTS, PODS
from kubesched.api.wire import ApiError, Item, Transport, WatchEvent
from kubesched.base.lines import Line, columns
from kubesched.base.tasks import Supervisor, TaskCrashedError
from kubesched.client.access import AccessError, load_kubeconfig
from kubesched.client.http import HttpTransport

from .bench_processes import child, cluster, cpu_seconds, memory_mib, refuse_others
from .console import ProgressBar, print_lines, progress_bar, write_json
from .errors import CliError
from .http_bench import PLAIN_POD, create_pods, numbered
from .interrupts import run_loop

__all__ = ["LiveRun", "run"]

NODES: Final = 1_000
PODS_CREATED: Final = 5_000
_DEFAULT_NAME: Final = "default-scheduler"
_QPS: Final = 5_000
_LABEL: Final = "kubesched.io/bench"
#: Seconds without a change after which pending pods are taken to stay pending.
_PATIENCE_SECONDS: Final = 60.0
#: Seconds without a new event after which no further event is expected. Events may still come after the last binding.
_EVENTS_SECONDS: Final = 1.0

_SPEC: Final[Mapping[str, Any]] = PLAIN_POD["spec"]

_CONFIG: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {kubeconfig}, qps: {qps}, burst: {qps}}}
"""


class LiveRun(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One run. Times are in seconds. Figures that the system does not report are None."""

    pods: int
    #: Pods with an event about their binding. Events are part of the scheduler's work.
    events: int
    #: Measured from the start of the scheduler's process to the first binding; None if the process ran already.
    first_binding_seconds: float | None
    bound_per_second: float
    #: Measured from the first binding to the last event.
    cpu_us_per_pod: float | None
    #: Measured from the start of the process to the first binding.
    startup_cpu_seconds: float | None
    memory_mib: float | None
    peak_memory_mib: float | None
    #: With a rate: milliseconds from the request that creates a pod to its binding, as a watch sees it.
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    #: Load of the machine at the start: processes that wanted to run, averaged over the last minute.
    load: float


def run(options: argparse.Namespace, machine: Mapping[str, Any]) -> int:
    """Measure and print. ``machine`` describes where the figures come from."""
    mode = "--run" if options.run else "--kubeconfig"
    refuse_others(options, mode, profile=options.run)
    if options.tls and not options.run:
        raise CliError("--tls goes with --run only: a kubeconfig has its own address", code=2)
    others = {"--kubeconfig": options.kubeconfig, "--pid": options.pid, "--scheduler-name": options.scheduler_name}
    for name, given in others.items():
        if options.run and given:
            raise CliError(f"--run starts a scheduler of its own: it does not go with {name}", code=2)
    if options.kubeconfig and options.nodes:
        raise CliError("--nodes does not go with --kubeconfig: the nodes are those of that cluster", code=2)
    nodes, pods = options.nodes or NODES, options.pods or PODS_CREATED
    runs = []
    for number in range(1, options.runs + 1):
        with progress_bar(f"run {number} of {options.runs}: pods", quiet=options.quiet) as bar:
            runs.append(_started(options, nodes, pods, bar) if options.run else _running(options, pods, bar))
    title = f"kubesched run: {nodes:,} nodes" if options.run else f"scheduler {options.scheduler_name or _DEFAULT_NAME}"
    if options.output == "json":
        write_json(_document(mode, nodes if options.run else None, machine, runs))
    else:
        print_lines(_as_table(title, machine, runs))
    return 0


def _started(options: argparse.Namespace, nodes: int, pods: int, bar: ProgressBar) -> LiveRun:
    """Make one run: a fresh cluster with pending pods, then the start of the scheduler."""
    with tempfile.TemporaryDirectory(prefix="kubesched-") as scratch:
        kubeconfig, config = Path(scratch) / "kubeconfig", Path(scratch) / "config.yaml"
        config.write_text(_CONFIG.format(kubeconfig=msgspec.json.encode(str(kubeconfig)).decode(), qps=_QPS))
        tls = ("--tls", "--token") if options.tls else ()
        with cluster(kubeconfig, nodes, options.seed, "--no-scheduler", *tls):
            profiler = ["-m", "cProfile", "-o", options.profile_to] if options.profile_to else []
            command = [sys.executable, *profiler, "-m", "kubesched.cli", "run"]
            command += ["--config", str(config), "--secure-port", "0"]

            async def measure() -> LiveRun:
                async with HttpTransport.connect(await load_kubeconfig(kubeconfig)) as transport:
                    watch = _Bindings(transport, _DEFAULT_NAME, pods)
                    if options.rate:
                        first = _Bindings(transport, _DEFAULT_NAME, 1)
                        with child(command, "kubesched run") as (_, process):
                            await first.create(1, bar)
                            await first.measure(process, None, bar)  # now the scheduler is ready
                            return await watch.measure_at(options.rate, process, options.connections, bar)
                    await watch.create(options.connections, bar)
                    with child(command, "kubesched run") as (_, process):
                        return await watch.measure(process, time.perf_counter(), bar)

            return _answered(measure)


def _running(options: argparse.Namespace, pods: int, bar: ProgressBar) -> LiveRun:
    """Make one run on a cluster with a scheduler. The pods are deleted afterwards."""

    async def measure() -> LiveRun:
        try:
            access = await load_kubeconfig(options.kubeconfig)
        except AccessError as error:
            raise CliError(str(error)) from None
        async with HttpTransport.connect(access) as transport:
            watch = _Bindings(transport, options.scheduler_name or _DEFAULT_NAME, pods)
            await transport.list(
                PODS, limit=1
            )  # so that a cluster that does not answer causes one error, not one for each connection
            try:
                return await watch.measure_at(options.rate, options.pid, options.connections, bar)
            finally:
                await watch.delete()

    return _answered(measure)


def _answered(measure: Callable[[], Coroutine[Any, Any, LiveRun]]) -> LiveRun:
    try:
        return run_loop(measure())
    except (ApiError, OSError, TaskCrashedError) as error:
        cause = error.__cause__ if isinstance(error, TaskCrashedError) else error
        if isinstance(cause, CliError):
            raise cause from None
        if not isinstance(cause, ApiError | OSError):
            raise
        raise CliError(f"the cluster did not answer as it should: {cause}") from None


class _Bindings:
    """Pods of one run, and the times of their bindings."""

    def __init__(self, transport: Transport, scheduler_name: str, pods: int) -> None:
        self._transport = transport
        self._pods = pods
        self._label = secrets.token_hex(4)
        spec = {**_SPEC, "schedulerName": scheduler_name}
        self._pod = {**PLAIN_POD, "metadata": {"generateName": "bench-", "labels": {_LABEL: self._label}}, "spec": spec}
        self._load = os.getloadavg()[0]
        #: By UID, on the performance counter: when its creation was requested at a rate, and when it was seen on a node.
        self._created: dict[str, float] = {}
        self._seen: dict[str, float] = {}

    async def create(self, connections: int, bar: ProgressBar) -> None:
        await create_pods(self._transport, self._pod, self._pods, connections, bar)

    async def measure_at(self, rate: int | None, process: int | None, connections: int, bar: ProgressBar) -> LiveRun:
        """Create the pods, ``rate`` a second or as fast as possible, and measure meanwhile."""
        creating = self._create_at(rate, connections) if rate else self.create(connections, bar)
        # The watch is open while pods are created: the first are bound before the last exist.
        async with Supervisor("bench") as tasks:
            measuring = tasks.spawn(self.measure(process, None, bar), "measure", lasting=False)
            tasks.spawn(creating, "create", lasting=False)
            await tasks.ended()
        return measuring.result()

    async def _create_at(self, rate: int, connections: int) -> None:
        begun, left = time.perf_counter(), iter(range(self._pods))

        async def requests() -> None:
            for number in left:  # the tasks share it: each takes the next number
                await asyncio.sleep(begun + number / rate - time.perf_counter())
                sent = time.perf_counter()
                self._created[(await self._transport.create(PODS, "default", numbered(self._pod, number))).uid] = sent

        async with Supervisor("requests") as tasks:
            for number in range(connections):
                tasks.spawn(requests(), f"requests-{number}", lasting=False)
            await tasks.ended()

    def _latency(self, share: float) -> float | None:
        """Return the latency, in milliseconds, that this share of the pods does not exceed."""
        each = sorted(self._seen[uid] - sent for uid, sent in self._created.items())
        return round(each[min(int(share * len(each)), len(each) - 1)] * 1e3, 2) if each else None

    async def delete(self) -> None:
        for item in await self._of_run():
            with contextlib.suppress(ApiError):
                await self._transport.delete(PODS, "default", item.name, grace_period_seconds=0)

    async def measure(self, process: int | None, started: float | None, bar: ProgressBar) -> LiveRun:
        """Wait for all bindings and their events. ``started``: when the process started, by the performance counter."""
        before = cpu_seconds(process) if process is not None else None
        first, last, at_first = await self._bound(process, bar)
        events = await self._events()
        after = cpu_seconds(process) if process is not None else None
        memory = memory_mib(process) if process is not None else None
        begun = at_first if started is not None else before
        return LiveRun(
            pods=self._pods,
            events=events,
            first_binding_seconds=None if started is None else round(first - started, 2),
            bound_per_second=round(self._pods / max(last - first, 1e-3), 1),
            cpu_us_per_pod=None if begun is None or after is None else round((after - begun) / self._pods * 1e6, 1),
            startup_cpu_seconds=round(at_first, 2) if started is not None and at_first is not None else None,
            memory_mib=None if memory is None else round(memory[0], 1),
            peak_memory_mib=None if memory is None else round(memory[1], 1),
            latency_p50_ms=self._latency(0.5),
            latency_p99_ms=self._latency(0.99),
            load=round(self._load, 1),
        )

    async def _bound(self, process: int | None, bar: ProgressBar) -> tuple[float, float, float | None]:
        """Return the times of the first and the last binding seen, and the process's CPU time at the first."""
        selector = f"{_LABEL}={self._label}"
        page = await self._transport.list(PODS, label_selector=selector)
        bound = {item.uid for item in page.items if item.typed.spec.node_name}
        first, cpu = time.perf_counter(), None
        stream = self._transport.watch(PODS, resource_version=page.resource_version, label_selector=selector)
        try:
            async for batch in _patiently(stream):
                now = time.perf_counter()
                new = {item.uid for kind, item in batch if kind != "BOOKMARK" and item.typed.spec.node_name} - bound
                if not new:
                    continue
                if not bound:
                    first, cpu = now, cpu_seconds(process) if process is not None else None
                bound |= new
                self._seen.update(dict.fromkeys(new, now))
                bar.update(len(bound), self._pods)
                if len(bound) >= self._pods:
                    return first, now, cpu
        except TimeoutError:
            raise CliError(
                f"{self._pods - len(bound)} of {self._pods} pods were not bound, and for {_PATIENCE_SECONDS:.0f} s nothing "
                "changed: no node has enough free resources, or no scheduler of that name runs"
            ) from None
        raise CliError(f"the watch of the pods ended with {self._pods - len(bound)} pods unbound")

    async def _events(self) -> int:
        """Wait until no more events come. Return the number of pods that have a Scheduled event."""
        uids = {item.uid for item in await self._of_run()}
        found, since = 0, time.perf_counter()
        while found < self._pods and time.perf_counter() - since < _EVENTS_SECONDS:
            await asyncio.sleep(_EVENTS_SECONDS / 4)
            page = await self._transport.list(EVENTS, "default", field_selector="reason=Scheduled")
            now = sum(1 for item in page.items if item.data().get("regarding", {}).get("uid") in uids)
            if now > found:
                found, since = now, time.perf_counter()
        return found

    async def _of_run(self) -> Sequence[Item]:
        return (await self._transport.list(PODS, "default", label_selector=f"{_LABEL}={self._label}")).items


async def _patiently(stream: AsyncIterator[Sequence[WatchEvent]]) -> AsyncIterator[Sequence[WatchEvent]]:
    """Yield the batches of a watch. Raise TimeoutError if none comes for _PATIENCE_SECONDS."""
    try:
        while True:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                try:
                    batch = await anext(stream)
                except StopAsyncIteration:
                    return
            yield batch
    finally:
        aclose = getattr(stream, "aclose", None)
        if aclose is not None:
            await aclose()


# -- showing -----------------------------------------------------------------------------------------------

#: Label, unit and decimals of each figure.
_FIGURES: Final = {
    "cpuUsPerPod": ("CPU of the scheduler per pod", "µs", 0),
    "boundPerSecond": ("pods bound", "/s", 0),
    "firstBindingSeconds": ("start to first binding", "s", 2),
    "startupCpuSeconds": ("CPU until then", "s", 2),
    "memoryMib": ("memory at the end", "MiB", 0),
    "peakMemoryMib": ("memory at its peak", "MiB", 0),
    "latencyP50Ms": ("creation to binding, p50", "ms", 1),
    "latencyP99Ms": ("creation to binding, p99", "ms", 1),
    "events": ("pods with an event", "", 0),
    "load": ("load of the machine before", "", 1),
}
_MORE_IS_BETTER: Final = ("boundPerSecond", "events")


def _summary(runs: Sequence[LiveRun]) -> dict[str, dict[str, float]]:
    """Return the worst, the median and the best of each figure."""
    summary = {}
    for name in _FIGURES:
        each = [value for item in runs if (value := msgspec.to_builtins(item)[name]) is not None]
        if each:
            low, high = min(each), max(each)
            worst, best = (low, high) if name in _MORE_IS_BETTER else (high, low)
            summary[name] = {"worst": worst, "median": round(median(each), 3), "best": best}
    return summary


def _document(mode: str, nodes: int | None, machine: Mapping[str, Any], runs: Sequence[LiveRun]) -> dict[str, Any]:
    return {
        "apiVersion": "kubesched.io/v1alpha1",
        "kind": "LiveBenchmarkResult",
        "mode": mode.lstrip("-"),
        "nodes": nodes,
        "machine": machine,
        "summary": _summary(runs),
        "runs": runs,
    }


def _as_table(title: str, machine: Mapping[str, Any], runs: Sequence[LiveRun]) -> list[Line]:
    rows = []
    for name, figures in _summary(runs).items():
        label, unit, digits = _FIGURES[name]
        rows.append((label, *(f"{figures[column]:,.{digits}f}" for column in ("worst", "median", "best")), unit))
    table = columns(("", "WORST", "MEDIAN", "BEST", ""), rows, right=(1, 2, 3))
    many = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    return [
        Line(f"{title}, {runs[0].pods:,} pods, {many}", "title"),
        Line(f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}", "dim"),
        Line("the scheduler is a process of its own; events are part of its work", "dim"),
        Line(""),
        Line(table[0], "dim"),
        *(Line(text) for text in table[1:]),
    ]
