"""``kubesched demo``: a guided tour in under a minute, for new users.

The work is in :mod:`kubesched.lab.simulate.run.showcase`. Every number that is printed was measured in this run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kubesched.base.data import data_folder
from kubesched.base.lines import Line, columns
from kubesched.cluster.files import Manifest
from kubesched.explain.text import pending_lines
from kubesched.lab.simulate.results.report import usage_histogram
from kubesched.lab.simulate.run.showcase import ZONES, Outcome, cluster_nodes, demo_workloads, schedule
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.loading import with_plugins

from .console import print_lines, progress_bar
from .interrupts import run_loop
from .loading import load_registry

__all__ = ["run"]

_READING_SECONDS: Final = 1.5
_PLUGIN: Final = "zone_maintenance.py"


def run(options: argparse.Namespace) -> int:
    pause: Callable[[], None] = (
        (lambda: None) if options.fast or not sys.stdout.isatty() else (lambda: time.sleep(_READING_SECONDS))
    )
    nodes = cluster_nodes(options.nodes)
    objects = demo_workloads(options.nodes)
    _introduce(len(nodes), nodes)
    pause()
    registry, _ = load_registry()
    before = _schedule("1. The scheduler starts", objects, nodes, options.seed, registry, [])
    pause()
    _summary(before)
    pause()
    print_lines([Line(""), Line("3. Why are some pods pending?", "title"), *pending_lines(before.pending)[2:]])
    pause()
    path = data_folder("examples") / "plugins" / _PLUGIN
    _show_plugin(path.read_text(encoding="utf-8"))
    registry, own = load_registry([str(path)])
    after = _schedule("   The same pods again, with the plugin", objects, nodes, options.seed, registry, own)
    _compare(before, after)
    print_lines(
        [
            Line(""),
            Line("Next", "title"),
            Line("  kubesched simulate -f YOUR-MANIFESTS --nodes 20    your own pods, and why some do not fit"),
            Line("  kubesched bench                                    throughput and latencies on this machine"),
            Line("  kubesched --help                                   everything else"),
        ]
    )
    return 0


def _introduce(count: int, nodes: Sequence[dict[str, Any]]) -> None:
    pools: dict[str, int] = {}
    for node in nodes:
        pool = node["metadata"]["labels"]["pool"]
        pools[pool] = pools.get(pool, 0) + 1
    print_lines(
        [
            Line("kubesched: the Kubernetes scheduler in Python", "title"),
            Line("An embedded cluster, no etcd and no containers: an API store with watches, hollow nodes, and the"),
            Line("whole scheduler - informers, queue, plugins, bindings, events - in this one process."),
            Line(""),
            Line(f"{count:,} nodes in {len(ZONES)} zones: {pools['general']:,} general (4 cpu, 16Gi),"),
            Line(f"  {pools['gpu']:,} with 8 GPUs each, tainted nvidia.com/gpu=present:NoSchedule,"),
            Line(f"  {pools['spot']:,} spot nodes, tainted spot=true:NoSchedule."),
            Line("Workloads from ordinary manifests: a web shop, GPU jobs of two priorities, a log agent on every"),
            Line("node, a gated pod, and pods that cannot fit."),
        ]
    )


def _schedule(
    title: str,
    objects: Sequence[Manifest],
    nodes: Sequence[dict[str, Any]],
    seed: int,
    registry: Registry,
    plugins: Sequence[str],
) -> Outcome:
    """Make one run and show its progress: a bar on a terminal, elsewhere a line for each quarter."""
    print_lines([Line(""), Line(title, "title")])
    quarters = 0
    live = sys.stderr.isatty()
    with progress_bar("   pods bound") as bar:

        def advance(done: int, total: int) -> None:
            nonlocal quarters
            bar.update(done, total)
            if not live and done * 4 // max(1, total) > quarters:
                quarters = done * 4 // total
                print_lines([Line(f"   {done:>6,} of {total:,} pods bound")])

        outcome = run_loop(
            schedule(objects, nodes, config=with_plugins(plugins), registry=registry, seed=seed, on_progress=advance)
        )
    rate = outcome.bound / outcome.seconds if outcome.seconds else 0.0
    cpu = 1e6 * outcome.cpu_seconds / max(1, outcome.bound)
    text = (
        f"   {outcome.bound:,} pods bound in {outcome.seconds:.2f} s: {rate:,.0f} pods/s, {cpu:,.0f} µs of CPU per pod"
    )
    print_lines(
        [
            Line(text, "good"),
            Line("   (list, queue, decide over every node, bind, watch back, events; one process)", "dim"),
        ]
    )
    return outcome


def _summary(outcome: Outcome) -> None:
    rows = [
        (name, *(f"{counts[zone]:,}" for zone in ZONES), f"{sum(counts.values()):,}")
        for name, counts in outcome.per_zone.items()
    ]
    table = columns(("WORKLOAD", *(zone.upper() for zone in ZONES), "PODS"), rows, right=(1, 2, 3, 4))
    print_lines(
        [
            Line(""),
            Line("2. Where the pods went", "title"),
            *(Line(f"   {text}") for text in table),
            Line(""),
            Line("   nodes by how full they are (the scarcer of cpu and memory)", "dim"),
            *(Line(f"   {line.text}") for line in usage_histogram(outcome.nodes)),
        ]
    )


def _show_plugin(text: str) -> None:
    code = text[text.index("class ") :].rstrip()
    print_lines(
        [
            Line(""),
            Line("4. A scheduling rule of your own, in Python", "title"),
            Line("   Tonight zone-c is switched off. This plugin keeps new pods out of it:"),
            Line(""),
            *(Line(f"       {line}".rstrip()) for line in code.splitlines()),
        ]
    )


def _compare(before: Outcome, after: Outcome) -> None:
    def counts(outcome: Outcome) -> list[int]:
        per_zone = [sum(zones[zone] for zones in outcome.per_zone.values()) for zone in ZONES]
        return [*per_zone, sum(group.count for group in outcome.pending)]

    rows = [
        (name, *(f"{count:,}" for count in counts(outcome)))
        for name, outcome in (("without plugin", before), ("with plugin", after))
    ]
    table = columns(("PODS", *(zone.upper() for zone in ZONES), "PENDING"), rows, right=(1, 2, 3, 4))
    print_lines([Line(f"   {text}") for text in table])
    reasons = [why for group in after.pending for why in group.reasons if why.plugin == "ZoneMaintenance"]
    reason = max(reasons, key=lambda why: why.nodes, default=None)
    if reason is not None:
        print_lines(
            [
                Line(
                    f'   The rule shows up where people look: "{reason.nodes} {reason.text}" in each pending pod\'s condition.'
                )
            ]
        )
