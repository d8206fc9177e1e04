"""Arguments of the commands that simulate: ``simulate``, ``explain``, ``audit`` and ``sweep``, and ``trace`` for their input."""

from __future__ import annotations

import argparse
from typing import Final

from .options import (
    decisions as decisions_file,
)
from .options import (
    manifests,
    node_groups,
    node_resources,
    quiet,
    real_cluster,
    scheduler_setup,
    settings,
    stages,
    start_from,
)
from .values import TABLES, count, duration, factor, moment, node_count, positive, saved_table, seconds, setting

__all__ = ["TRACE_FORMATS", "audit", "decisions", "diff", "explain", "simulate", "sweep", "trace"]


def _result_files(parser: argparse.ArgumentParser) -> None:
    """Add options for showing the result and saving it."""
    parser.add_argument(
        "-o", "--output", choices=("table", "json", "yaml"), default="table", help="form of the result (default: table)"
    )
    parser.add_argument("--wide", action="store_true", help="list every pod and node, however many there are")
    parser.add_argument(
        "--report", metavar="FILE.html", help="write the result as one self-contained page with plots and tables"
    )
    parser.add_argument(
        "--save",
        metavar="TABLE=FILE",
        type=saved_table,
        action="append",
        default=[],
        help=f"write a table to a .csv, .json or .parquet file: {', '.join(TABLES)}; may be given again",
    )
    parser.add_argument(
        "--save-cluster",
        metavar="FILE",
        help="save the cluster at the end to this file, for kubesched up --snapshot, explain --from and others",
    )
    parser.add_argument(
        "--annotate-simulator-results",
        action="store_true",
        help="write the verdicts and scores of each attempt as annotations of its pod in the saved cluster, with the keys "
        "of kube-scheduler-simulator; for debugging: each attempt evaluates all nodes once more",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="measure each call of a plugin, and show the time by plugin and extension point; real time, so that it "
        "differs from run to run",
    )


def _node_groups(parser: argparse.ArgumentParser) -> None:
    """Add options for nodes that come and go."""
    node_groups(parser)
    parser.add_argument(
        "--autoscaler",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=setting,
        help="set a flag of cluster-autoscaler for --node-groups, such as expander=least-waste or "
        "scale-down-unneeded-time=5m; may be given again",
    )


def _hollow_nodes(parser: argparse.ArgumentParser) -> None:
    """Add options for nodes in addition to those of the input."""
    parser.add_argument("--nodes", metavar="N", type=node_count, default=0, help="add N hollow nodes")
    parser.add_argument("--node-cpu", metavar="QUANTITY", default="8", help="cpu of a hollow node (default: 8)")
    parser.add_argument(
        "--node-memory", metavar="QUANTITY", default="32Gi", help="memory of a hollow node (default: 32Gi)"
    )
    parser.add_argument("--node-template", metavar="FILE", help="make the hollow nodes from this Node manifest instead")
    node_resources(parser)
    parser.add_argument("--zones", metavar="N", type=count, default=0, help="distribute the hollow nodes over N zones")


def simulate(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Schedule manifests on a simulated cluster. Deployments, StatefulSets, Jobs, DaemonSets, … are expanded to pods. The
whole scheduler runs in virtual time until nothing changes any more. A pod with the annotation kubesched.io/duration
(30s, 2h) ends after that time and frees its resources; an object with kubesched.io/arrival is created that long after
the start. Jobs run to completion, and CronJobs make Jobs. The same input and seed give the same output, byte for
byte."""
    parser.epilog = """\
examples: kubesched simulate -f examples/web-shop --nodes 3
          kubesched simulate --trace pods.csv --nodes 100 --until 72h --report out.html --save pods=pods.csv
JSON and YAML follow the schema of kubesched.lab.simulate.results.result (apiVersion kubesched.io/v1alpha1).
Exit code: 0 even if pods are pending; 1 if the input cannot be used, pods were refused, or an exception was raised
during the run. Parts of the input that have no effect are named on stderr, even with --quiet, and in the result's
warnings."""
    manifests(parser)
    start_from(parser)
    parser.add_argument(
        "--trace",
        metavar="FILE",
        action="append",
        default=[],
        help="a table of pods that arrive over time (CSV, .jsonl, .parquet), with columns such as arrival, name, count, "
        "duration, cpu, memory; or arrivals to generate (YAML of kind Arrivals); may be given again",
    )
    parser.add_argument(
        "--events",
        metavar="FILE",
        action="append",
        default=[],
        help="drains, failures and other changes of nodes by time (YAML of kind Events); may be given again",
    )
    _node_groups(parser)
    parser.add_argument(
        "--controllers",
        action="store_true",
        help="run all controllers: they make the pods of all workloads, and react to what happens",
    )
    _hollow_nodes(parser)
    stages(parser)
    scheduler_setup(parser)
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed that breaks ties (default: 0)")
    parser.add_argument(
        "--until",
        metavar="DURATION",
        type=duration,
        help="end at this virtual time: seconds, or 90m, 72h (default: a day after the last arrival)",
    )
    parser.add_argument(
        "--explain",
        metavar="POD",
        action="append",
        default=[],
        help="say why this pod, NAME or NAMESPACE/NAME, is where it is, or was evicted, at the end (--until sets the "
        "moment); may be given again",
    )
    _result_files(parser)
    decisions_file(parser)
    quiet(parser, "no progress bar")


def explain(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Say why pods are pending: everything that stands in the way, with its numbers and nodes, and the smallest changes after
which the pod fits, each tried by the scheduler's own filters. Say why a pod is on its node: the scores of the best
nodes, what decided, and what would have turned it. Nothing is scheduled, and a cluster is only read."""
    parser.epilog = """\
examples: kubesched explain --kubeconfig ~/.kube/config
          kubesched explain web-7d4b9-x2x5k -n shop --from dump.yaml
          kubesched explain web-7d4b9-x2x5k -n shop --node node-7 --from dump.yaml
          kubesched explain -f examples/web-shop examples/nodes
          kubesched explain --message '0/3 nodes are available: 3 Insufficient cpu.'
Exit code: 0 even if pods are pending; 1 if the input cannot be used, or a named pod or node does not exist."""
    parser.add_argument(
        "pod",
        metavar="POD",
        nargs="*",
        help="a pod or a pod group, as NAME or NAMESPACE/NAME (default: all pending pods)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="of pods named without one (default: default); without a pod: pending pods of this namespace only",
    )
    where.add_argument(
        "-A",
        "--all-namespaces",
        "--all-pending",
        action="store_true",
        help="all pending pods of all namespaces, which is the default without a pod",
    )
    parser.add_argument(
        "--node",
        metavar="NODE",
        action="append",
        default=[],
        help="say why not on this node: what keeps pods off it, or by how much it loses; may be given again",
    )
    parser.add_argument(
        "--message",
        metavar="TEXT",
        help="explain this message of a scheduler, from an event or a condition, instead of pods; -: standard input",
    )
    _live_scheduler(parser)
    _looked_at(parser)
    parser.add_argument("-o", "--output", choices=("text", "wide", "json", "yaml"), default="text")
    parser.add_argument("--wide", action="store_true", help="like -o wide: show everything, however much it is")
    quiet(parser, "no progress bar")


def _looked_at(parser: argparse.ArgumentParser) -> None:
    """Add the cluster that a command looks at, and the scheduler that decides about it."""
    real_cluster(parser, "read this cluster")
    start_from(parser)
    manifests(parser)
    scheduler_setup(parser)


def _live_scheduler(parser: argparse.ArgumentParser) -> None:
    server = parser.add_argument_group("a live scheduler")
    server.add_argument(
        "--server",
        metavar="URL",
        help="ask a running scheduler, kubesched run or up, what it decided and what it waits for",
    )
    server.add_argument("--token-file", metavar="FILE", help="bearer token for it")
    server.add_argument("--certificate-authority", metavar="FILE", help="certificate that its server's is checked with")
    server.add_argument("--client-certificate", metavar="FILE", help="certificate to present to it")
    server.add_argument("--client-key", metavar="FILE", help="key of that certificate")
    server.add_argument("--insecure-skip-tls-verify", action="store_true", help="do not check its certificate")
    server.add_argument(
        "--request-timeout",
        metavar="DURATION",
        type=duration,
        default=300.0,
        help="give up when the whole answer takes longer (default: 5m)",
    )


def decisions(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Show the decisions in a file that kubesched run, up or simulate wrote with --decisions: where each pod went or why it
did not, with the best nodes and their scores. "replay" makes the decisions again by another configuration, each in the
state in which it was made, and shows which would differ and why. A recorded node that would be among the best again is
no difference, as chance decides among those. Nothing but the file is read."""
    parser.epilog = """\
examples: kubesched decisions decisions.gz --outcome unschedulable --since 10m
          kubesched decisions decisions.gz --pod shop/web-7d4b9-x2x5k -o wide
          kubesched decisions replay decisions.gz --config new.yaml
Exit code: 0 even if decisions differ; 1 if the file cannot be used."""
    parser.add_argument("words", metavar="[replay] FILE", nargs="+", help="the file; its predecessor is FILE.1")
    parser.add_argument("--pod", metavar="POD", default="", help="only of this pod: NAME, NAMESPACE/NAME or UID")
    parser.add_argument("--node", metavar="NODE", default="", help="only with this node chosen or near the top")
    parser.add_argument(
        "--plugin",
        metavar="NAME",
        default="",
        help="only those in which this plugin rejected nodes, or scored the best nodes differently",
    )
    parser.add_argument("--outcome", choices=("bound", "unschedulable", "rejected", "error"), default="")
    parser.add_argument("--since", metavar="TIME", type=moment, help="from this time, or this long ago: 10m, 2h")
    parser.add_argument("--until", metavar="TIME", type=moment, help="before this time, or this long ago")
    parser.add_argument("--last", metavar="N", type=positive, help="only the last N")
    parser.add_argument("-F", "--follow", action="store_true", help="go on with new decisions, until Ctrl-C")
    scheduler_setup(parser)
    parser.add_argument("-o", "--output", choices=("table", "wide", "json", "yaml"), default="table")
    quiet(parser, "no progress bar")


def audit(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Check a cluster as it stands, and name what is wrong: pods that their own node would reject today, over-committed nodes,
pods that can never be scheduled, budgets that block drains, priorities that starve, and what makes the scheduler slow.
Each finding has its rule, the objects, numbers and what to do. A cluster is only read."""
    parser.epilog = """\
examples: kubesched audit --kubeconfig ~/.kube/config
          kubesched audit --from dump.yaml -o json --fail-on warning
          kubesched audit -f examples/audit
JSON and YAML have kind Audit, see docs/audit.md. Ages refer to now with --kubeconfig, else to the newest timestamp of a
pod in the input.
Exit code: 0 whatever is found; with --fail-on 1 if there is a finding of that level or above; 1 if the input cannot be
used."""
    _looked_at(parser)
    parser.add_argument("-o", "--output", choices=("table", "wide", "json", "yaml"), default="table")
    parser.add_argument("--wide", action="store_true", help="every finding and every object; also in JSON and YAML")
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning", "info", "never"),
        default="never",
        help="exit with 1 if there are findings of this level or above (default: never)",
    )
    parser.add_argument(
        "--older-than",
        metavar="DURATION",
        type=duration,
        default=600.0,
        help="time after which pods that wait or are being deleted have taken too long (default: 10m)",
    )
    quiet(parser, "no progress bar")


def diff(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Compare two results of kubesched simulate (-o json or yaml), two clusters (dumps, saved clusters, manifests), or two
recorded runs (--decisions): their figures side by side, and the pods that have a node in one only, moved, ended in
another way or waited longer, with why as far as the sides tell. The two may be of different forms."""
    parser.epilog = """\
examples: kubesched diff before.json after.json
          kubesched diff monday.yaml tuesday.yaml --report diff.html
Exit code: 0 even if they differ; with --exit-code 1 if they do; 1 if a side cannot be used."""
    parser.add_argument("a", metavar="A", help="a result, a file of decisions, a dump, a saved cluster, or manifests")
    parser.add_argument("b", metavar="B", help="the other side")
    parser.add_argument("-o", "--output", choices=("table", "wide", "json", "yaml"), default="table")
    parser.add_argument("--report", metavar="FILE", help="also write a page of HTML to this file")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if the sides differ")


def sweep(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Make many runs with different parameters, on several processes or a Ray cluster, and summarise them in one table. The
runs are every combination of a grid of values, and single runs. A run is a simulation, or a call of your own function
that returns figures. With --results an interrupted sweep continues where it stopped; runs that failed, or whose input
changed, are made again."""
    parser.epilog = """\
examples: kubesched sweep --set manifests=examples/web-shop --grid nodes=2,3,4 --grid seed=0-9
          kubesched sweep examples/policies/config/openb.yaml --set trace=openb --results openb.jsonl
          kubesched sweep sweep.yaml -o csv >runs.csv
Exit code: 0 if every run succeeded; 1 if the sweep cannot be run as given, or if runs failed. The other runs are
shown in any case."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="a file of kind Sweep; see docs/sweeps.md")
    parser.add_argument(
        "--grid",
        metavar="NAME=VALUES",
        type=setting,
        action="append",
        default=[],
        help="a parameter and its values: a,b,c, a YAML list, or {label: value}; ranges for seed=0-9; may be repeated",
    )
    settings(parser, "a parameter with one value for all runs, in YAML; may be repeated")
    parser.add_argument(
        "--function",
        metavar="MODULE:NAME",
        help="function to call for each run, also FILE.py:NAME (default: a simulation)",
    )
    parser.add_argument(
        "--results",
        metavar="FILE",
        help="append each result to this file (JSON lines), and continue from the results in it",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=count,
        help="number of runs at a time (default: one per CPU); 0: in this process, one after the other",
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, help="end a run that takes longer, and count it as failed"
    )
    parser.add_argument("--ray", metavar="ADDRESS", help="run on this Ray cluster; 'local' starts one on this machine")
    parser.add_argument(
        "--figure", metavar="NAME", action="append", default=[], help="summarise only this figure; may be repeated"
    )
    parser.add_argument(
        "--by", metavar="NAME", action="append", default=[], help="group by this parameter (default: all but the seed)"
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="plot the first figure, mean and confidence interval, to this file (svg, png, pdf)",
    )
    parser.add_argument("--x", metavar="NAME", help="parameter on the plot's x axis (default: the first that varies)")
    parser.add_argument(
        "-o", "--output", choices=("table", "csv", "json"), default="table", help="a summary (default), or every run"
    )
    quiet(parser, "no progress bar")


#: Trace formats that can be read.
TRACE_FORMATS: Final = ("alibaba-2018", "alibaba-2020", "alibaba-2023", "google-2019", "philly")


def trace(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Read a published batch trace and write its tasks as pods that arrive over time: as a table for kubesched simulate
--trace, or as manifests. All bad values of a trace are reported with file, line and column, and then nothing is
written. docs/traces.md describes the formats. The data is not part of kubesched."""
    parser.epilog = """\
examples: kubesched trace alibaba-2020 pai_task_table.csv --limit 10000 >pods.csv
          kubesched trace google-2019 instance_events-*.json.gz --set cpu_milli=96000 --inflate 1.3 >pods.csv
          kubesched trace philly cluster_job_log --gang >jobs.csv"""
    parser.add_argument("format", metavar="FORMAT", choices=TRACE_FORMATS, help=", ".join(TRACE_FORMATS))
    parser.add_argument("files", metavar="FILE", nargs="+", help="the trace, also gzipped; several for google-2019")
    parser.add_argument("--limit", metavar="N", type=positive, help="read only the first N lines")
    settings(parser, "a value that the trace lacks, such as memory_mib of the largest machine; may be repeated")
    parser.add_argument(
        "--inflate", metavar="FACTOR", type=factor, help="multiply the number of tasks, by drawing tasks at random"
    )
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of the random draw (default: 0)")
    parser.add_argument(
        "-o", "--output", choices=("csv", "yaml"), default="csv", help="a table (default), or manifests"
    )
    parser.add_argument(
        "--shared-gpus",
        action="store_true",
        help="with -o yaml: request parts of GPUs as the example policies read them",
    )
    gang = parser.add_mutually_exclusive_group()
    gang.add_argument(
        "--gang",
        action="store_const",
        const="PodGroup",
        default="",
        help="make the pods of a job a PodGroup, of which all run or none",
    )
    gang.add_argument(
        "--gang-labels",
        action="store_const",
        dest="gang",
        const="labels",
        help="with -o yaml: make them a group by labels, for the example policy for coscheduling",
    )
