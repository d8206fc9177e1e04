"""``kubesched explain``: why pods are pending and what would help; see :func:`.arguments.simulations.explain`."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext, redirect_stdout

import msgspec

from kubesched.api.yamltext import to_yaml
from kubesched.base.collector import collector_off
from kubesched.base.large_json import large_json
from kubesched.base.lines import Line
from kubesched.cluster.files import Manifests, load_manifests
from kubesched.explain.text import pending_lines
from kubesched.lab.simulate.inputs.given import cluster_of
from kubesched.lab.simulate.run.standing import Standing, explain_standing

from .console import print_lines, progress_bar, warn, write
from .errors import CliError
from .import_command import from_server
from .interrupts import run_loop
from .loading import load_gates, load_setup

__all__ = ["run"]

#: Groups of pending pods that are shown in full; ``--wide`` shows all.
_MOST_GROUPS = 8


def run(options: argparse.Namespace) -> int:
    gates = load_gates(options)
    registry, config, remarks = load_setup(options, options.config, gates=gates)
    manifests = _cluster(options)
    names = [name if "/" in name else f"{options.namespace}/{name}" for name in options.pod]
    # Output of plugins must not be part of a document.
    aside = nullcontext() if options.output == "table" else redirect_stdout(sys.stderr)
    with progress_bar("pods explained", quiet=options.quiet) as bar, aside:
        found = explain_standing(
            manifests,
            names,
            registry=registry,
            config=config,
            gates=gates,
            on_progress=lambda done: bar.update(done, 0),
        )
    for remark in [*remarks, *found.warnings]:
        warn(remark)
    if found.absent:
        known = "there is no such pod" if len(found.absent) == 1 else "there are no such pods"
        raise CliError(f"{', '.join(found.absent)}: {known} in the cluster")
    _show(found, options)
    return 0


def _cluster(options: argparse.Namespace) -> Manifests:
    """Objects of the cluster: from files, a saved cluster or dump, or an API server."""
    if options.start is not None and options.kubeconfig is not None:
        raise CliError("--from and --kubeconfig: give one of them", code=2)
    if not options.filename and options.start is None and options.kubeconfig is None:
        text = "--kubeconfig FILE, --from FILE (a dump or saved cluster), or -f MANIFESTS"
        raise CliError(f"give the cluster: {text}", code=2)
    if options.context is not None and options.kubeconfig is None:
        raise CliError("--context NAME needs --kubeconfig FILE", code=2)
    with collector_off():
        manifests = load_manifests([path for group in options.filename for path in group])
        if options.start is not None:
            manifests.extend(cluster_of(options.start))
        if options.kubeconfig is not None:
            live = run_loop(from_server(options.kubeconfig, options.context, quiet=options.quiet))
            manifests.extend(Manifests(live.objects, live.warnings))
    if not manifests.objects and not manifests.problems:
        raise CliError("the cluster has no objects that can be read")
    return manifests


def _show(found: Standing, options: argparse.Namespace) -> None:
    if options.output != "table":
        head = {"apiVersion": "kubesched.io/v1alpha1", "kind": "Explanation"}
        document = {**head, "pending": found.pending, "placed": found.placed}
        if options.output == "json":
            write(large_json(document, indent=2).decode() + "\n")
        else:
            write(to_yaml(msgspec.to_builtins(document), sort_keys=False))
        return
    shown = found.pending if options.wide else found.pending[:_MOST_GROUPS]
    lines = pending_lines(shown)
    if len(shown) < len(found.pending):
        pods = sum(group.count for group in found.pending[len(shown) :])
        groups = len(found.pending) - len(shown)
        text = f"{groups} more groups with {pods:,} pods: --wide shows all"
        lines += [Line(""), Line(text, "dim")]
    for key, node in found.placed.items():
        lines.append(Line(f"{key} has a node: {node}"))
    print_lines(lines or [Line("no pod is pending", "good")])
