"""Arguments of the commands that measure and compare: ``bench`` and ``conformance``."""

from __future__ import annotations

import argparse
from typing import Final

from .options import json_output, quiet, settings
from .values import positive

__all__ = ["SHAPES", "bench", "conformance"]


def conformance(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit code: 0 if nothing differs; 1 on any difference, or if nothing was compared."
    parser.add_argument("paths", metavar="PATH", nargs="+", help="golden files (*.jsonl.gz), or directories of them")
    parser.add_argument("--area", default="", help="only this area, such as fit or taints")
    parser.add_argument("--coverage", action="store_true", help="also show which code paths the decisions took")
    parser.add_argument(
        "--gates",
        metavar="FILE",
        help="feature gates of single vectors, one a line: the vector's name and A=true,B=false",
    )
    json_output(parser, "the result as JSON")
    quiet(parser)


#: Workloads that come with kubesched; each is a file in ``bench/``.
SHAPES: Final = (
    "basic",
    "mixed",
    "node-affinity",
    "taints",
    "churn",
    "unschedulable",
    "affinity",
    "topology",
    "topology-default",
    "crowded",
    "steady",
    "templates",
    "million",
)


def _other_clusters(parser: argparse.ArgumentParser) -> None:
    """Add options for measuring clusters and schedulers in processes of their own."""
    parser.add_argument(
        "--http",
        action="store_true",
        help="measure another run: create 6000 pods on 5000 nodes over HTTP; `kubesched up` runs in its own process",
    )
    parser.add_argument(
        "--run",
        action="store_true",
        help="measure another run: start `kubesched run` with 5000 pods pending on 1000 nodes; measure its process",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="measure another run: create pods in this cluster, and measure whatever scheduler runs there",
    )
    parser.add_argument(
        "--scheduler-name",
        metavar="NAME",
        help="with --kubeconfig: the scheduler of the pods (default: default-scheduler)",
    )
    parser.add_argument(
        "--pid",
        metavar="PID",
        type=positive,
        help="that scheduler's process on this machine, to measure CPU and memory",
    )
    parser.add_argument(
        "--connections",
        metavar="C",
        type=positive,
        default=16,
        help="number of pods created at a time with --http, --run, --kubeconfig (default: 16)",
    )


def bench(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Run a workload through the whole path in one process, in real time: create through the store, watch, queue, decide,
bind, watch back, with events recorded. Python's garbage collector skips objects made before the measurement, and
runs as rarely as in `kubesched run` and `kubesched up`."""
    parser.epilog = """\
examples: kubesched bench --shape mixed --nodes 1000 --pods 5000
          kubesched bench --shape topology --case TopologySpreading --set initPods=50000
          kubesched bench --http --connections 32
          kubesched bench --run --nodes 5000
          kubesched bench --kubeconfig FILE --pid $(pidof kube-scheduler)
          kubesched bench performance-config.yaml --case SchedulingBasic --workload 500Nodes
          kubesched bench scheduler_perf --labels performance --results results"""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="a workload file in scheduler_perf's format, or a folder of topics"
    )
    parser.add_argument(
        "--labels",
        metavar="LABELS",
        help="run every workload with these labels, each in a process of its own, and show one table; "
        'such as performance,-short ("": all)',
    )
    parser.add_argument(
        "--results", metavar="DIR", help="with --labels: write upstream's result files, one per topic, into this folder"
    )
    parser.add_argument("--shape", choices=SHAPES, default="basic", help="a built-in workload (default: basic)")
    parser.add_argument("--case", metavar="NAME", help="the test case, if the file or shape has several")
    parser.add_argument("--workload", metavar="NAME", help="the workload of the case, if it has several")
    parser.add_argument("--nodes", metavar="N", type=positive, help="nodes (parameter initNodes; shapes: 5000)")
    parser.add_argument("--pods", metavar="P", type=positive, help="pods measured (measurePods; shapes: 10000)")
    settings(parser, "set one parameter of the workload, such as initPods=50000; may be repeated")
    parser.add_argument("--decisions", action="store_true", help="also measure decisions alone: pop, decide, assume")
    _other_clusters(parser)
    parser.add_argument("--runs", metavar="R", type=positive, default=3, help="number of runs (default: 3)")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of random choices (default: 0)")
    parser.add_argument(
        "--profile-to",
        metavar="FILE",
        help="write a cProfile of the last run's measured part, or with --run of the scheduler's whole process",
    )
    json_output(parser, "the result as JSON")
    quiet(parser)
