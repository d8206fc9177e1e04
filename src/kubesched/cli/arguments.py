"""The arguments of each command, apart from the commands so that help needs nothing heavy."""

from __future__ import annotations

import argparse
import math
from typing import Final

from kubesched.base.times import parse_duration

__all__ = [
    "SHAPES",
    "bench",
    "completion",
    "config",
    "conformance",
    "demo",
    "examples",
    "import_",
    "plugins",
    "run",
    "simulate",
    "up",
    "version",
]

#: Workloads that come with kubesched, each a file in ``bench/``.
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


def _count(text: str) -> int:
    """A whole number, 0 or more."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be negative: {value}")
    return value


#: More hollow nodes than this do not fit into the memory of a machine.
_MOST_NODES: Final = 1_000_000


def _nodes(text: str) -> int:
    """A number of nodes that a machine can hold."""
    value = _count(text)
    if value > _MOST_NODES:
        raise argparse.ArgumentTypeError(f"must be at most {_MOST_NODES}: {value}")
    return value


def _positive(text: str) -> int:
    """A whole number, 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1: {value}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"must be a number of seconds that is not negative: {text}")
    return value


def _duration(text: str) -> float:
    """Seconds, as a number or as a duration."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = parse_duration(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"must be a duration that is not negative, such as 90m: {text}")
    return value


#: Tables of a result that can be saved.
_TABLES: Final = ("pods", "nodes", "resources", "series", "pending", "preemptions")


def _saved_table(text: str) -> tuple[str, str]:
    """TABLE=FILE."""
    name, equals, file = text.partition("=")
    if not equals or not file or name not in _TABLES:
        raise argparse.ArgumentTypeError(f"must be TABLE=FILE, where TABLE is one of {', '.join(_TABLES)}: {text!r}")
    return name, file


def _zones(text: str) -> int:
    """Zones are named by a letter."""
    value = _count(text)
    if value > 26:
        raise argparse.ArgumentTypeError(f"must be at most 26: {value}")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"must be between 0 and 65535: {value}")
    return value


def _speed(text: str) -> float:
    """Faster than the bound, and a day would take the clock beyond the year 9999."""
    value = float(text)
    if not 0.001 <= value <= 1_000_000:
        raise argparse.ArgumentTypeError(f"must be a number from 0.001 to 1000000: {text}")
    return value


def _setting(text: str) -> tuple[str, str]:
    """NAME=VALUE; the user of the name checks the value."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE: {text!r}")
    return name, value


def _settings(parser: argparse.ArgumentParser, text: str) -> None:
    """``--set NAME=VALUE``, collected in ``settings``; ``text`` is its help."""
    parser.add_argument(
        "--set", metavar="NAME=VALUE", dest="settings", type=_setting, action="append", default=[], help=text
    )


_zones.__name__ = _port.__name__ = "whole number"
_speed.__name__ = "number"
_count.__name__ = _nodes.__name__ = _positive.__name__ = "whole number"
_seconds.__name__ = "number"
_duration.__name__ = "duration"


def _plugin_modules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plugin-module",
        metavar="MODULE",
        action="append",
        default=[],
        help="load plugins from a module name or a .py file; may be given again. Without --config they are enabled "
        "in the default profile, with --config the configuration decides",
    )


def _enable_plugin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--enable-plugin",
        metavar="NAME",
        action="append",
        default=[],
        help="enable this plugin in every profile that does not mention it; may be given again",
    )


def _stages(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stages", metavar="FILE", action="append", default=[], help="stage rules for hollow pods, volumes and devices"
    )


def _json(parser: argparse.ArgumentParser, text: str) -> None:
    """``-o json``, and ``--json`` for the same."""
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help=f"{text} (default: table)")
    parser.add_argument("--json", action="store_const", dest="output", const="json", help="short for -o json")


def _node_resources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node-resource",
        metavar="NAME=QUANTITY",
        dest="node_resources",
        type=_setting,
        action="append",
        default=[],
        help="an amount of a hollow node, such as nvidia.com/gpu=8 or cpu=64; may be given again",
    )


def _start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        metavar="FILE",
        dest="start",
        help="start from this saved cluster, or dump of a real one (kubectl get … -o yaml), which is only read",
    )


def _quiet(parser: argparse.ArgumentParser, text: str = "no progress bar and no remarks on stderr") -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help=text)


def _result_files(parser: argparse.ArgumentParser) -> None:
    """How the result is shown, and where it is saved."""
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    parser.add_argument("--wide", action="store_true", help="list every pod and node, however many")
    parser.add_argument(
        "--report", metavar="FILE.html", help="write the result as one self-contained page with plots and tables"
    )
    parser.add_argument(
        "--save",
        metavar="TABLE=FILE",
        type=_saved_table,
        action="append",
        default=[],
        help=f"write a table to a .csv, .json or .parquet file: {', '.join(_TABLES)}; may be given again",
    )


def _hollow_nodes(parser: argparse.ArgumentParser) -> None:
    """The nodes besides those of the input."""
    parser.add_argument("--nodes", metavar="N", type=_nodes, default=0, help="add so many hollow nodes")
    parser.add_argument("--node-cpu", metavar="QUANTITY", default="8", help="cpu of a hollow node (default: 8)")
    parser.add_argument(
        "--node-memory", metavar="QUANTITY", default="32Gi", help="memory of a hollow node (default: 32Gi)"
    )
    parser.add_argument(
        "--node-template", metavar="FILE", help="a Node manifest the hollow nodes are made from instead"
    )
    _node_resources(parser)
    parser.add_argument("--zones", metavar="N", type=_count, default=0, help="deal the hollow nodes over so many zones")


def simulate(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Schedule manifests on a simulated cluster. Deployments, StatefulSets, Jobs, DaemonSets, … are expanded to pods. The
whole scheduler runs in virtual time until nothing moves; pods with the annotation kubesched.io/duration (30s, 2h)
end after that time and free their place, objects with kubesched.io/arrival are created that long after the start. Jobs run
to completion and CronJobs make Jobs. The same input and seed give the same output, byte for byte."""
    parser.epilog = """\
examples: kubesched simulate -f examples/web-shop --nodes 3
          kubesched simulate --trace pods.csv --nodes 100 --until 72h --report out.html --save pods=pods.csv
JSON and YAML follow the schema of kubesched.lab.simulate.results.result (apiVersion kubesched.io/v1alpha1).
Exit code: 0 even when pods are pending; 1 when the input cannot be used, pods were refused or an exception was raised
during the run. What of the input is not honoured is said on stderr, also with --quiet, and in the result's warnings."""
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE|DIR",
        action="append",
        nargs="+",
        default=[],
        help="manifests: YAML or JSON files, or directories of them, also gzipped; - is standard input",
    )
    _start(parser)
    parser.add_argument(
        "--trace",
        metavar="FILE",
        action="append",
        default=[],
        help="a table (CSV) of pods that arrive over time, with columns such as arrival, name, count, duration, cpu, "
        "memory; may be given again",
    )
    parser.add_argument(
        "--controllers",
        action="store_true",
        help="run all controllers: they make the pods of all workloads, and react to what happens",
    )
    _hollow_nodes(parser)
    _stages(parser)
    parser.add_argument("--config", metavar="FILE", help="a KubeSchedulerConfiguration")
    _plugin_modules(parser)
    _enable_plugin(parser)
    parser.add_argument(
        "--feature-gates",
        metavar="NAME=BOOL,...",
        action="append",
        default=[],
        help="feature gates of kube-scheduler, such as DRADeviceTaintRules=true; may be given again",
    )
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="decides ties (default: 0)")
    parser.add_argument(
        "--until",
        metavar="DURATION",
        type=_duration,
        help="virtual time at most: seconds, or 90m, 72h (default: a day after the last arrival)",
    )
    _result_files(parser)
    _quiet(parser, "no progress bar")


def sweep(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Make many runs with different parameters, on several processes or a Ray cluster, and summarise them in one table: every
combination of a grid of values, and single runs. Runs are simulations, or calls of a function of yours that returns figures.
With --results an interrupted sweep is continued where it stopped; runs that failed, or whose input changed, are made again."""
    parser.epilog = """\
examples: kubesched sweep --set manifests=examples/web-shop --grid nodes=2,3,4 --grid seed=0-9
          kubesched sweep examples/policies/config/openb.yaml --set trace=openb --results openb.jsonl
          kubesched sweep sweep.yaml -o csv >runs.csv
Exit code: 0 when every run was made, 1 when the sweep cannot be run as given, or runs failed; the others are still shown."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="a file of kind Sweep; see docs/sweeps.md")
    parser.add_argument(
        "--grid",
        metavar="NAME=VALUES",
        type=_setting,
        action="append",
        default=[],
        help="a parameter and its values: a,b,c, a YAML list, or {label: value}; ranges for seed=0-9; may be repeated",
    )
    _settings(parser, "a parameter that is the same for all runs, in YAML; may be repeated")
    parser.add_argument(
        "--function", metavar="MODULE:NAME", help="what to call for each run, also FILE.py:NAME (default: a simulation)"
    )
    parser.add_argument(
        "--results",
        metavar="FILE",
        help="append each result to this file (JSON lines), and continue from what is there",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=_count,
        help="how many runs at a time (default: one per CPU); 0: in this process, one after the other",
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=_seconds, help="end a run that takes longer; it has failed"
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
        help="draw the first figure, mean and confidence interval, into this file (svg, png, pdf)",
    )
    parser.add_argument("--x", metavar="NAME", help="draw it by this parameter (default: the first that varies)")
    parser.add_argument(
        "-o", "--output", choices=("table", "csv", "json"), default="table", help="a summary (default), or every run"
    )
    _quiet(parser, "no progress bar")


#: Formats of traces that can be read.
TRACE_FORMATS: Final = ("alibaba-2018", "alibaba-2020", "alibaba-2023", "google-2019", "philly")


def _factor(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1_000:
        raise argparse.ArgumentTypeError(f"must be a number above 0, and at most 1000: {text}")
    return value


_factor.__name__ = "number"


def trace(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Read a published batch trace and write its tasks as pods that arrive over time: as a table for kubesched simulate --trace, or as
manifests. All bad values of a trace are reported with file, line and column, and nothing is written then. The formats are described
in docs/traces.md; the data is not part of kubesched."""
    parser.epilog = """\
examples: kubesched trace alibaba-2020 pai_task_table.csv --limit 10000 >pods.csv
          kubesched trace google-2019 instance_events-*.json.gz --set cpu_milli=96000 --inflate 1.3 >pods.csv
          kubesched trace philly cluster_job_log -o yaml --gang >jobs.yaml"""
    parser.add_argument("format", metavar="FORMAT", choices=TRACE_FORMATS, help=", ".join(TRACE_FORMATS))
    parser.add_argument("files", metavar="FILE", nargs="+", help="the trace, also gzipped; several for google-2019")
    parser.add_argument("--limit", metavar="N", type=_positive, help="read the first lines only")
    _settings(parser, "what the trace does not say, such as memory_mib of the largest machine; may be repeated")
    parser.add_argument(
        "--inflate", metavar="FACTOR", type=_factor, help="so many times as many tasks, drawn at random from them"
    )
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="decides what is drawn (default: 0)")
    parser.add_argument(
        "-o", "--output", choices=("csv", "yaml"), default="csv", help="a table (default), or manifests"
    )
    parser.add_argument(
        "--shared-gpus", action="store_true", help="yaml: parts of GPUs, as the example policies read them"
    )
    parser.add_argument(
        "--gang", action="store_true", help="yaml: the pods of a task run together, by coscheduling's labels"
    )


def conformance(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit code: 0 when nothing differs, 1 on any difference or when nothing was compared."
    parser.add_argument("paths", metavar="PATH", nargs="+", help="golden files (*.jsonl.gz), or directories of them")
    parser.add_argument("--area", default="", help="only this area, such as fit or taints")
    parser.add_argument("--coverage", action="store_true", help="also show which code paths the decisions took")
    parser.add_argument(
        "--gates",
        metavar="FILE",
        help="feature gates of single vectors, one a line: the vector's name and A=true,B=false",
    )
    _json(parser, "the result as JSON")
    _quiet(parser)


def _other_clusters(parser: argparse.ArgumentParser) -> None:
    """Options that measure something else than one process with everything."""
    parser.add_argument(
        "--http",
        action="store_true",
        help="instead: create pods over HTTP in a cluster of its own process (`kubesched up`), 6000 on 5000 nodes",
    )
    parser.add_argument(
        "--run",
        action="store_true",
        help="instead: start `kubesched run` against a cluster with pending pods, 5000 on 1000 nodes; measure its process",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="instead: create pods in this cluster and measure the scheduler that runs there, of any make",
    )
    parser.add_argument(
        "--scheduler-name", metavar="NAME", help="whose pods, with --kubeconfig (default: default-scheduler)"
    )
    parser.add_argument(
        "--pid", metavar="PID", type=_positive, help="that scheduler's process on this machine, for CPU and memory"
    )
    parser.add_argument(
        "--connections",
        metavar="C",
        type=_positive,
        default=16,
        help="pods created at a time with --http, --run, --kubeconfig (default: 16)",
    )


def bench(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Run a workload through the whole path in one process, in real time: create through the store, watch, queue, decide,
bind, watch back, with events recorded. Python's garbage collector leaves out what was set up before the measurement, and
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
    parser.add_argument("--case", metavar="NAME", help="the test case, when the file or shape has several")
    parser.add_argument("--workload", metavar="NAME", help="the workload of the case, when it has several")
    parser.add_argument("--nodes", metavar="N", type=_positive, help="nodes (parameter initNodes; shapes: 5000)")
    parser.add_argument("--pods", metavar="P", type=_positive, help="pods measured (measurePods; shapes: 10000)")
    _settings(parser, "set one parameter of the workload, such as initPods=50000; may be repeated")
    parser.add_argument("--decisions", action="store_true", help="also measure decisions alone: pop, decide, assume")
    _other_clusters(parser)
    parser.add_argument("--runs", metavar="R", type=_positive, default=3, help="how often (default: 3)")
    parser.add_argument("--seed", metavar="S", type=int, default=0)
    parser.add_argument(
        "--profile-to",
        metavar="FILE",
        help="write a cProfile of the last run's measured part, with --run of the scheduler's whole process",
    )
    _json(parser, "the result as JSON")
    _quiet(parser)


def demo(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Show what kubesched does, in under a minute: a cluster of hollow nodes, workloads from ordinary manifests being
placed in real time, a summary, a pending pod explained, and a ten-line plugin that changes the outcome."""
    parser.add_argument("--nodes", metavar="N", type=_positive, default=1000, help="(default: 1000)")
    parser.add_argument("--seed", metavar="S", type=int, default=1)
    parser.add_argument("--fast", action="store_true", help="no pauses for reading")


def examples(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Copy the examples, which are part of every installation, to a folder: manifests, configurations, plugins, policies and
notebooks. The documentation names them as examples/..."""
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default="examples", help="a new one (default: examples)")


def _listening(parser: argparse.ArgumentParser) -> None:
    """Where clients reach the API server, and what they may do there."""
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="where to listen; an address that other machines can reach needs --token (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a further name clients may address this server by when it asks for no token; may be repeated",
    )
    parser.add_argument(
        "--insecure-without-token",
        action="store_true",
        help="listen on an address that other machines can reach although every client then has all permissions",
    )
    parser.add_argument("--port", metavar="P", type=_port, default=0, help="0 takes a free one (default)")
    parser.add_argument("--kubeconfig-out", metavar="F", default="kubesched.kubeconfig", help="(default: %(default)s)")
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        nargs="?",
        const="",
        help="ask for a bearer token; a random one when none is given (kubectl sends tokens over HTTPS only: add --tls)",
    )
    parser.add_argument(
        "--authorization-mode",
        choices=("AlwaysAllow", "RBAC"),
        default="AlwaysAllow",
        help="RBAC: service accounts and impersonated users may do what stored roles allow; the administrator, everything "
        "(default: AlwaysAllow)",
    )
    parser.add_argument(
        "--tls", action="store_true", help="HTTPS, with certificates made on the spot if none are given"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="server certificate (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="its key (PEM)")
    parser.add_argument("--tls-ca", metavar="FILE", help="the authority to put into the kubeconfig (PEM)")


def up(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
An embedded cluster in one process: API server, scheduler, controllers and hollow nodes; kubectl works against it.
It listens on loopback by default, writes a kubeconfig, and runs until Ctrl-C."""
    parser.epilog = """\
examples: kubesched up --nodes 1000 --zones 3 -f examples/web-shop
          kubesched up --snapshot cluster.jsonl.gz --speed 60"""
    parser.add_argument("--nodes", metavar="N", type=_nodes, default=0, help="create so many hollow nodes")
    parser.add_argument("--node-template", metavar="FILE", help="a Node manifest the hollow nodes are made from")
    _node_resources(parser)
    parser.add_argument("--zones", metavar="N", type=_zones, default=0, help="deal the hollow nodes over so many zones")
    parser.add_argument(
        "-f", "--filename", metavar="FILE|DIR", action="append", nargs="+", default=[], help="manifests to create"
    )
    parser.add_argument("--config", metavar="FILE", help="a KubeSchedulerConfiguration")
    _plugin_modules(parser)
    _enable_plugin(parser)
    _stages(parser)
    _listening(parser)
    parser.add_argument("--no-scheduler", action="store_true", help="leave pods to another scheduler")
    parser.add_argument(
        "--no-controllers", action="store_true", help="no controllers: objects stay as they are written"
    )
    parser.add_argument(
        "--complete-jobs",
        metavar="DURATION",
        type=_duration,
        help="let pods of Jobs succeed after so long, such as 5s, unless kubesched.io/duration says otherwise",
    )
    parser.add_argument(
        "--stop-pods-after",
        metavar="DURATION",
        type=_duration,
        help="let deleted pods be gone after so long, or their grace period if that is shorter (default: 1s)",
    )
    parser.add_argument(
        "--speed", metavar="X", type=_speed, default=1.0, help="let time pass X times as fast (default: 1)"
    )
    _start(parser)
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="save to this file at the end; without --from, start from it if it exists, at its time if that is later",
    )
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="decides ties and names (default: 0)")
    _quiet(parser)


def import_(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Copy a real cluster into a file for kubesched up --snapshot: nodes, pods and what they refer to, from dumps
(kubectl get … -o yaml or json) or from an API server. Left behind are Secrets, what containers may hold secrets in
(environment, command, arguments, probes), messages in status (what containers wrote as they ended, why a condition is as it is),
parameters of volume drivers and storage classes, and annotations other than kubernetes.io's, k8s.io's and kubesched.io's. Names, labels and names of Secrets are kept."""
    parser.epilog = """\
examples: kubectl get nodes,pods,pvc,pv,deployments,replicasets -A -o yaml >dump.yaml; kubesched import dump.yaml -o c.jsonl.gz
          kubesched import --kubeconfig ~/.kube/config -o cluster.jsonl.gz"""
    parser.add_argument("paths", metavar="FILE|DIR", nargs="*", help="dumps, also gzipped")
    parser.add_argument("--kubeconfig", metavar="FILE", help="ask this cluster instead")
    parser.add_argument("--context", metavar="NAME", help="the context of the kubeconfig (default: its current one)")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to; .gz compresses")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="decides the identifiers that are made up")
    _quiet(parser)


def config(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="load and validate a file, and print the plugins in effect per profile",
        description="Load and validate a KubeSchedulerConfiguration (of any version, or a Policy), and print the plugins "
        "in effect per profile.",
    )
    check.add_argument("file", metavar="FILE")
    _json(check, "the plugins in effect as JSON")
    _plugin_modules(check)
    _enable_plugin(check)
    convert = actions.add_parser(
        "convert",
        help="write a file of any version, or a Policy, as today's v1",
        description="Write a KubeSchedulerConfiguration of any version, or a Policy, as YAML of version v1 with every "
        "default filled in. What is replaced or ignored is printed as warnings on stderr.",
    )
    convert.add_argument("file", metavar="FILE")
    convert.add_argument("-o", "--output", metavar="FILE", help="where to, a new file (default: standard output)")
    convert.add_argument("--overwrite", action="store_true", help="write over a file that is there, also FILE itself")


def plugins(parser: argparse.ArgumentParser) -> None:
    _plugin_modules(parser)
    _json(parser, "the list as JSON")


def completion(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print a script that completes commands and options in a shell."
    parser.epilog = """\
examples: source <(kubesched completion bash)
          source <(kubesched completion zsh)
          kubesched completion fish >~/.config/fish/completions/kubesched.fish"""
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def run(parser: argparse.ArgumentParser) -> None:
    """The flags are not argparse's: see :mod:`kubesched.cli.run.flags`."""
    parser.epilog = "kubesched run --help lists the flags"


def version(parser: argparse.ArgumentParser) -> None:
    _json(parser, "as JSON")
