"""``kubesched explain``: why pods are pending, or where they are; see :func:`.arguments.simulations.explain`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout

import msgspec

from kubesched.base.collector import collector_off
from kubesched.base.lines import Line
from kubesched.explain.report import Explanation
from kubesched.explain.text import explanation_lines
from kubesched.lab.simulate.run.standing import explain_standing

from .cluster_source import given_cluster
from .console import progress_bar, warn, write_document
from .errors import CliError
from .explain_message import explain_message
from .explain_server import explanation_from_server
from .import_command import preemptions_of
from .interrupts import run_loop
from .loading import load_setup

__all__ = ["run", "show"]


def run(options: argparse.Namespace) -> int:
    if options.message is not None:
        return explain_message(options)
    names = [name if "/" in name else f"{options.namespace or 'default'}/{name}" for name in options.pod]
    if options.server is not None:
        if options.filename or options.start is not None or options.kubeconfig is not None:
            raise CliError("--server reads a live scheduler: give no --kubeconfig, --from or -f with it", code=2)
        show(explanation_from_server(options, names), options)
        return 0
    with collector_off():
        return _explain_cluster(options, names)


def _explain_cluster(options: argparse.Namespace, names: Sequence[str]) -> int:
    registry, config, gates, remarks = load_setup(options, options.config)
    manifests = given_cluster(options)
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
        raise CliError(_unknown(document.absent, "pod or pod group" if gates.enabled("GenericWorkload") else "pod"))
    if found.unknown_nodes:
        raise CliError(f"--node {_unknown(found.unknown_nodes, 'node')}")
    show(document, options)
    return 0


def _unknown(names: Sequence[str], kind: str) -> str:
    known = f"there is no such {kind}" if len(names) == 1 else f"there are no such {kind}s"
    return f"{', '.join(names)}: {known} in the cluster"


def show(document: Explanation, options: argparse.Namespace) -> None:
    """Write an explanation in the form that was asked for."""
    wide = options.wide or options.output == "wide"
    nothing = [Line("no pod is pending", "good")]
    write_document(document, options.output, lambda: explanation_lines(document, wide=wide) or nothing)
