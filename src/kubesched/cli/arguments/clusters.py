"""Arguments of the commands for a lasting cluster: ``up``, ``kubelets``, ``import``, ``run`` and ``view``."""

from __future__ import annotations

import argparse

from .options import (
    decisions,
    enable_plugin,
    feature_gates,
    node_resources,
    plugin_modules,
    quiet,
    real_cluster,
    scheduler_setup,
    stages,
    start_from,
    ui,
)
from .values import duration, label, node_count, port, speed, ui_address, zones

__all__ = ["import_", "kubelets", "run", "up", "view"]


def _listening(parser: argparse.ArgumentParser) -> None:
    """Add options for the address of the API server and the permissions of its clients."""
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="address to listen on; one that other machines can reach needs --token (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a further host name that clients may use for this server if it asks for no token; may be repeated",
    )
    parser.add_argument(
        "--insecure-without-token",
        action="store_true",
        help="listen on an address that other machines can reach, although every client then has all permissions",
    )
    parser.add_argument("--port", metavar="P", type=port, default=0, help="port to listen on (default: 0, a free one)")
    parser.add_argument(
        "--kubeconfig-out",
        metavar="F",
        default="kubesched.kubeconfig",
        help="write the kubeconfig to this file (default: %(default)s)",
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        nargs="?",
        const="",
        help="require a bearer token; without TOKEN a random one (kubectl sends tokens over HTTPS only: add --tls)",
    )
    parser.add_argument(
        "--authorization-mode",
        choices=("AlwaysAllow", "RBAC"),
        default="AlwaysAllow",
        help="RBAC: stored roles decide for service accounts and impersonated users; the administrator may do everything "
        "(default: AlwaysAllow)",
    )
    parser.add_argument(
        "--tls", action="store_true", help="HTTPS, with certificates made on the spot if none are given"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="server certificate (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="key of the certificate (PEM)")
    parser.add_argument("--tls-ca", metavar="FILE", help="authority of the certificate, for the kubeconfig (PEM)")


def _hollow_nodes(parser: argparse.ArgumentParser) -> None:
    """Add options for the number and the form of hollow nodes."""
    parser.add_argument("--nodes", metavar="N", type=node_count, default=0, help="create N hollow nodes")
    parser.add_argument("--node-template", metavar="FILE", help="make the hollow nodes from this Node manifest")
    node_resources(parser)
    parser.add_argument("--zones", metavar="N", type=zones, default=0, help="distribute the hollow nodes over N zones")


def _pod_life(parser: argparse.ArgumentParser) -> None:
    """Add options for the life of hollow pods."""
    parser.add_argument(
        "--complete-jobs",
        metavar="DURATION",
        type=duration,
        help="let pods of Jobs, and those that are hooks or tests of Helm, succeed after this time, such as 5s, unless "
        "kubesched.io/duration says otherwise",
    )
    parser.add_argument(
        "--stop-pods-after",
        metavar="DURATION",
        type=duration,
        help="remove deleted pods after this time, or after their grace period if that is shorter (default: 1s)",
    )


def up(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Run an embedded cluster in one process: API server, scheduler, controllers and hollow nodes. kubectl works against it.
It listens on loopback by default, writes a kubeconfig, and runs until Ctrl-C."""
    parser.epilog = """\
examples: kubesched up --nodes 1000 --zones 3 -f examples/web-shop
          kubesched up --snapshot cluster.jsonl.gz --speed 60"""
    _hollow_nodes(parser)
    parser.add_argument(
        "-f", "--filename", metavar="FILE|DIR", action="append", nargs="+", default=[], help="manifests to create"
    )
    parser.add_argument("--config", metavar="FILE", help="a KubeSchedulerConfiguration")
    plugin_modules(parser)
    enable_plugin(parser)
    feature_gates(parser)
    stages(parser)
    _listening(parser)
    parser.add_argument("--no-scheduler", action="store_true", help="leave pods to another scheduler")
    parser.add_argument(
        "--no-controllers", action="store_true", help="run no controllers: objects stay as they are written"
    )
    _pod_life(parser)
    parser.add_argument(
        "--speed", metavar="X", type=speed, default=1.0, help="let time pass X times as fast (default: 1)"
    )
    start_from(parser)
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="save to this file at the end. Without --from, start from the file if it exists, at its time if that is later",
    )
    decisions(parser)
    parser.add_argument(
        "--annotate-why-pending",
        action="store_true",
        help="write an annotation on pending pods, kubesched.io/why-pending: why, and what would help",
    )
    parser.add_argument(
        "--event-why-pending",
        action="store_true",
        help="write an event of pending pods, WhyPending: why, and what would help",
    )
    parser.add_argument(
        "--annotate-simulator-results",
        action="store_true",
        help="write the verdicts and scores of each attempt as annotations of its pod, with the keys of "
        "kube-scheduler-simulator; for debugging: each attempt evaluates all nodes once more",
    )
    ui(parser)
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of ties and names (default: 0)")
    quiet(parser)


def kubelets(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Hollow nodes on the API server of a kubeconfig, real or embedded. Makes Node objects with the label
kubesched.io/kubelets, renews their Leases, and runs the pods that are bound to them as kubesched up does: they get
addresses and a status, end by stage rules, and are removed when they are deleted. No containers run. Nodes without the
label are left alone. Runs until Ctrl-C."""
    parser.epilog = """\
examples: kubesched kubelets --kubeconfig ~/.kube/config --nodes 100 --zones 3 --delete-nodes
          kubesched kubelets --kubeconfig test.kubeconfig --name hollow --complete-jobs 5s    # nodes of an earlier run"""
    real_cluster(parser, "the cluster to add nodes to; required")
    _hollow_nodes(parser)
    parser.add_argument(
        "--name",
        metavar="NAME",
        type=label,
        default="hollow",
        help="value of the nodes' label, and beginning of their names; one process for each (default: %(default)s)",
    )
    parser.add_argument("--delete-nodes", action="store_true", help="delete the nodes and their Leases at the end")
    stages(parser)
    _pod_life(parser)
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of jitter and failures (default: 0)")
    quiet(parser, "print nothing but problems")


def import_(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Copy a real cluster into a file for kubesched up --snapshot: nodes, pods and the objects they refer to, from dumps
(kubectl get … -o yaml or json) or from an API server. Left out are Secrets; parts of containers that may hold secrets
(environment, command, arguments, probes); messages in status; parameters of volume drivers and storage classes; and
annotations other than kubernetes.io's, k8s.io's, kubesched.io's and those of pod groups. Names, labels and names
of Secrets are kept."""
    parser.epilog = """\
examples: kubectl get nodes,pods,pvc,pv,deployments,replicasets -A -o yaml >dump.yaml; kubesched import dump.yaml -o c.jsonl.gz
          kubesched import --kubeconfig ~/.kube/config -o cluster.jsonl.gz"""
    parser.add_argument("paths", metavar="FILE|DIR", nargs="*", help="dumps, also gzipped")
    real_cluster(parser, "read from this cluster instead")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="file to write; .gz compresses it")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of identifiers that are made up")
    quiet(parser)


def run(parser: argparse.ArgumentParser) -> None:
    """Add no flags: argparse does not parse them, see :mod:`kubesched.cli.run.flags`."""
    parser.epilog = "kubesched run --help lists the flags"


def view(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Show a file on the dashboard: the result of a simulation or recorded decisions, with a slider through time; or a cluster
that stands still. Two files are two runs side by side. The page is served on loopback until Ctrl-C; files are only read."""
    parser.epilog = """\
examples: kubesched simulate -f examples/web-shop --nodes 20 -o json >run.json; kubesched view run.json
          kubesched view before.json after.json
          kubesched view decisions.gz --config scheduler.yaml"""
    text = "a result (simulate -o json or yaml), decisions (--decisions), a saved cluster or a dump"
    parser.add_argument("file", metavar="FILE", help=text)
    parser.add_argument("second", metavar="FILE2", nargs="?", help="another one, to be shown beside it")
    parser.add_argument(
        "--port",
        metavar="PORT|ADDRESS:PORT",
        type=ui_address,
        default=ui_address(""),
        help="port of loopback to listen on (default: 10260; 0: a free one)",
    )
    scheduler_setup(parser)
    quiet(parser, "print the link and nothing else")
