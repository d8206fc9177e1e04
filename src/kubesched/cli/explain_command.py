"""``kubesched explain``: why pods are pending, or where they are; see :func:`.arguments.simulations.explain`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout

import msgspec

from kubesched.api.yamltext import to_yaml
from kubesched.base.collector import collector_off
from kubesched.base.large_json import large_json
from kubesched.base.lines import Line
from kubesched.cluster.files import Manifests, load_manifests
from kubesched.explain import Explanation
from kubesched.explain.text import explanation_lines
from kubesched.lab.simulate.inputs.given import cluster_of
from kubesched.lab.simulate.run.standing import explain_standing

from .console import print_lines, progress_bar, warn, write
from .errors import CliError
from .explain_server import explanation_from_server
from .import_command import from_server, preemptions_of
from .interrupts import run_loop
from .loading import load_gates, load_setup

__all__ = ["run", "show"]


def run(options: argparse.Namespace) -> int:
    names = [name if "/" in name else f"{options.namespace or 'default'}/{name}" for name in options.pod]
    if options.server is not None:
        if options.filename or options.start is not None or options.kubeconfig is not None:
            raise CliError("--server reads a live scheduler: give no --kubeconfig, --from or -f with it", code=2)
        show(explanation_from_server(options, names), options)
        return 0
    gates = load_gates(options)
    registry, config, remarks = load_setup(options, options.config, gates=gates)
    manifests = _cluster(options)
    # Output of plugins must not be part of a document.
    aside = redirect_stdout(sys.stderr) if options.output in ("json", "yaml") else nullcontext()
    with progress_bar("pods explained", quiet=options.quiet) as bar, aside:
        found = explain_standing(
            manifests,
            names,
            namespace=options.namespace,
            against=options.node,
            registry=registry,
            config=config,
            gates=gates,
            on_progress=lambda done: bar.update(done, 0),
        )
    for remark in [*remarks, *found.warnings]:
        warn(remark)
    document = found.document
    if document.absent and options.kubeconfig is not None:
        notes = run_loop(preemptions_of(options.kubeconfig, options.context, document.absent))
        gone = [name for name in document.absent if any(note.startswith(f"{name} ") for note in notes)]
        absent = [name for name in document.absent if name not in gone]
        document = msgspec.structs.replace(document, notes=notes, absent=absent)
    if document.absent:
        raise CliError(_unknown(document.absent, "pod"))
    if found.unknown_nodes:
        raise CliError(f"--node {_unknown(found.unknown_nodes, 'node')}")
    show(document, options)
    return 0


def _unknown(names: Sequence[str], kind: str) -> str:
    known = f"there is no such {kind}" if len(names) == 1 else f"there are no such {kind}s"
    return f"{', '.join(names)}: {known} in the cluster"


def _cluster(options: argparse.Namespace) -> Manifests:
    """Objects of the cluster: from files, a saved cluster or dump, or an API server."""
    if options.start is not None and options.kubeconfig is not None:
        raise CliError("--from and --kubeconfig: give one of them", code=2)
    if not options.filename and options.start is None and options.kubeconfig is None:
        text = "--kubeconfig FILE, --from FILE (a dump or saved cluster), -f MANIFESTS, or --server URL"
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


def show(document: Explanation, options: argparse.Namespace) -> None:
    """Write an explanation in the form that was asked for."""
    if options.output == "json":
        write(large_json(document, indent=2).decode() + "\n")
    elif options.output == "yaml":
        write(to_yaml(msgspec.to_builtins(document), sort_keys=False))
    else:
        lines = explanation_lines(document, wide=options.wide or options.output == "wide")
        print_lines(lines or [Line("no pod is pending", "good")])
