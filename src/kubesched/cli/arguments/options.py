"""Options that several commands have."""

from __future__ import annotations

import argparse

from .values import setting, ui_address

__all__ = [
    "decisions",
    "enable_plugin",
    "feature_gates",
    "json_output",
    "manifests",
    "node_groups",
    "node_resources",
    "plugin_modules",
    "quiet",
    "real_cluster",
    "scheduler_setup",
    "settings",
    "stages",
    "start_from",
    "ui",
]


def settings(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``--set NAME=VALUE``, collected in ``settings``. ``text`` is its help."""
    parser.add_argument(
        "--set", metavar="NAME=VALUE", dest="settings", type=setting, action="append", default=[], help=text
    )


def plugin_modules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plugin-module",
        metavar="MODULE",
        action="append",
        default=[],
        help="load plugins from a module name or a .py file; may be given again. Without --config they are enabled "
        "in the default profile; with --config the configuration decides",
    )


def enable_plugin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--enable-plugin",
        metavar="NAME",
        action="append",
        default=[],
        help="enable this plugin in every profile that does not mention it; may be given again",
    )


def manifests(
    parser: argparse.ArgumentParser,
    text: str = "manifests: YAML or JSON files, or directories of them, also gzipped; - is standard input",
) -> None:
    """Add ``-f``. ``text`` is its help."""
    parser.add_argument("-f", "--filename", metavar="FILE|DIR", action="append", nargs="+", default=[], help=text)


def real_cluster(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``--kubeconfig`` and ``--context``. ``text`` is the help of the first."""
    parser.add_argument("--kubeconfig", metavar="FILE", help=text)
    parser.add_argument("--context", metavar="NAME", help="the context of the kubeconfig (default: its current one)")


def scheduler_setup(parser: argparse.ArgumentParser) -> None:
    """Add the configuration, the plugins and the feature gates of the scheduler."""
    parser.add_argument("--config", metavar="FILE", help="a KubeSchedulerConfiguration")
    plugin_modules(parser)
    enable_plugin(parser)
    feature_gates(parser)


def feature_gates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--feature-gates",
        metavar="NAME=BOOL,...",
        action="append",
        default=[],
        help="feature gates of kube-scheduler, such as DRADeviceTaintRules=true, or AllPodGroups=true for all about pod "
        "groups; may be given again",
    )


def decisions(parser: argparse.ArgumentParser) -> None:
    """Add ``--decisions``."""
    parser.add_argument(
        "--decisions",
        metavar="FILE",
        help="write every decision of the scheduler and its reasons to this file, compressed; see kubesched decisions",
    )


def stages(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stages",
        metavar="FILE",
        action="append",
        default=[],
        help="rules for the stages of hollow pods, volumes and devices",
    )


def json_output(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``-o json``, and ``--json`` as a short form."""
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help=f"{text} (default: table)")
    parser.add_argument("--json", action="store_const", dest="output", const="json", help="short for -o json")


def node_resources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node-resource",
        metavar="NAME=QUANTITY",
        dest="node_resources",
        type=setting,
        action="append",
        default=[],
        help="a resource of a hollow node, such as nvidia.com/gpu=8 or cpu=64; may be given again",
    )


def start_from(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        metavar="FILE",
        dest="start",
        help="start from this saved cluster, or dump of a real one (kubectl get … -o yaml); the file is only read",
    )


def quiet(parser: argparse.ArgumentParser, text: str = "no progress bar and no remarks on stderr") -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help=text)


def node_groups(parser: argparse.ArgumentParser) -> None:
    """Add options for kinds of nodes that can be had."""
    parser.add_argument(
        "--node-groups",
        metavar="FILE",
        action="append",
        default=[],
        help="kinds of nodes that can be had: NodeGroups, or Karpenter's NodePools; may be given again",
    )
    parser.add_argument(
        "--group",
        metavar="MIN:MAX:NAME",
        action="append",
        default=[],
        help="a group as cluster-autoscaler's --nodes has it, with its price in the catalogue; may be given again",
    )
    parser.add_argument(
        "--catalogue", metavar="FILE", help="a table (CSV or YAML) of instance types: name, price, cpu, memory, …"
    )


def ui(parser: argparse.ArgumentParser) -> None:
    """Add ``--ui``."""
    parser.add_argument(
        "--ui",
        metavar="PORT|ADDRESS:PORT",
        nargs="?",
        type=ui_address,
        const=ui_address(""),
        help="serve the dashboard on this port of loopback, and print a link that opens it (default: 10260; 0: a free one)",
    )
