"""Arguments of the commands of planners: ``capacity`` and ``plan``."""

from __future__ import annotations

import argparse

from .options import manifests, node_groups, node_resources, quiet, real_cluster, scheduler_setup, start_from
from .values import count, node_count, positive, share

__all__ = ["capacity", "plan"]


def _cluster(parser: argparse.ArgumentParser) -> None:
    """Add the sources of the cluster, and hollow nodes in addition."""
    real_cluster(parser, "read this cluster; it is only read")
    start_from(parser)
    parser.add_argument(
        "--cluster",
        metavar="FILE|DIR",
        action="append",
        nargs="+",
        default=[],
        help="manifests of the cluster: nodes, and what runs on them",
    )
    parser.add_argument("--nodes", metavar="N", type=node_count, default=0, help="add N hollow nodes")
    parser.add_argument("--node-template", metavar="FILE", help="make the hollow nodes from this Node manifest")
    node_resources(parser)
    parser.add_argument("--zones", metavar="N", type=count, default=0, help="distribute the hollow nodes over N zones")


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("text", "wide", "json", "yaml"), default="text")
    parser.add_argument("--wide", action="store_true", help="like -o wide: list everything, however much it is")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed that breaks ties (default: 0)")
    quiet(parser, "no progress bar")


def capacity(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Count how many more pods of a kind fit on a cluster, or how many copies of a mix. The scheduler places them one after
another, with all its plugins, until one has no node; that one is explained. Nothing is changed in a cluster that is
read."""
    parser.epilog = """\
examples: kubesched capacity -f pod.yaml --kubeconfig ~/.kube/config
          kubesched capacity --like shop/web-7f4 --from dump.yaml
          kubesched capacity -f web.yaml db.yaml --mix web=3 --mix db=1 --from dump.yaml
          kubesched capacity -f sizes/ --until-full --nodes 100 --node-resource cpu=16 --node-resource memory=64Gi
JSON and YAML follow the schema of kubesched.lab.simulate.planning.capacity_report (apiVersion kubesched.io/v1alpha1).
Exit code: 0 even if nothing fits; 1 if the input cannot be used."""
    manifests(parser, "the pods: Pods, or workloads, which count with their replicas; - is standard input")
    parser.add_argument(
        "--like",
        metavar="POD",
        action="append",
        default=[],
        help="a pod of the cluster as the model, by name or namespace/name, alone or beside -f; may be given again",
    )
    parser.add_argument(
        "--mix",
        metavar="NAME=N",
        type=share,
        action="append",
        default=[],
        help="N pods of this name in each copy of the mix; pods that are not named are left out; may be given again",
    )
    parser.add_argument(
        "--until-full", action="store_true", help="ask about each kind of pod alone, and show a table of them"
    )
    parser.add_argument("--preemption", action="store_true", help="count with evictions of pods of lower priority, too")
    parser.add_argument(
        "--most", metavar="N", type=positive, default=1_000_000, help="count N copies at most (default: 1000000)"
    )
    _cluster(parser)
    scheduler_setup(parser)
    _output(parser)


def plan(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Find the cheapest nodes for the pods that have none, in a cluster or a demand, from groups of nodes with prices; or, with
--remove, the nodes that can go. What is told was simulated: the scheduler placed every pod. Nothing is changed in a
cluster that is read."""
    parser.epilog = """\
examples: kubesched plan --node-groups groups.yaml --from dump.yaml
          kubesched plan --node-groups groups.yaml -f shop/ --demand jobs.csv
          kubesched plan --group 0:20:m5.large --group 0:10:m5.xlarge --catalogue prices.csv --kubeconfig ~/.kube/config
          kubesched plan --remove --from dump.yaml
JSON and YAML follow the schema of kubesched.lab.simulate.planning.plan_report (apiVersion kubesched.io/v1alpha1).
Exit code: 0 even if some pods have no node; 1 if the input cannot be used."""
    node_groups(parser)
    manifests(parser, "manifests of pods and workloads to place, in addition to those of the cluster")
    parser.add_argument(
        "--demand",
        metavar="FILE",
        action="append",
        default=[],
        help="a table (CSV) of pods to place, with columns such as name, count, cpu, memory; may be given again",
    )
    parser.add_argument(
        "--remove", action="store_true", help="find nodes that can go, and the sequence of their drains"
    )
    parser.add_argument(
        "--effort",
        metavar="N",
        type=positive,
        default=100_000,
        help="end the search after trying to place N pods (default: 100000)",
    )
    _cluster(parser)
    scheduler_setup(parser)
    _output(parser)
