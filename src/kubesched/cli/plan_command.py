"""``kubesched plan``: which nodes to buy, and which can go; see :func:`.arguments.planning.plan`."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext, redirect_stdout

from kubesched.cluster.files import ManifestError, Manifests, load_manifests
from kubesched.lab.node_groups import NodeGroup
from kubesched.lab.simulate.inputs.workload_table import read_table
from kubesched.lab.simulate.planning.plan import demanded, plan_of
from kubesched.lab.simulate.planning.plan_text import plan_lines
from kubesched.lab.simulate.planning.removing import removal_of

from .console import progress_bar, terminal_width, warn, write_document
from .errors import CliError
from .planning_input import arguments_of, node_groups_of

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    groups = _groups(options)
    demand = _demand(options)
    arguments = demanded(arguments_of(options, hollow=bool(demand.objects)), demand)
    is_document = options.output in ("json", "yaml")
    # Output of plugins must not be part of a document.
    aside = redirect_stdout(sys.stderr) if is_document else nullcontext()
    find = removal_of if options.remove else plan_of
    with progress_bar("choices simulated", quiet=options.quiet) as bar, aside:
        found = find(arguments, groups, options.effort, lambda done: bar.update(done, 0))
    for remark in found.warnings:
        if remark not in arguments["registry"].problems:  # printed when plugins were loaded
            warn(remark)
    write_document(
        found,
        options.output,
        lambda: plan_lines(found, wide=options.wide or options.output == "wide", width=terminal_width()),
    )
    return 0


def _groups(options: argparse.Namespace) -> list[NodeGroup]:
    """Return the node groups of the options.

    Raises:
        CliError: when there are none, although nodes are to be added.
        ManifestError: for files that cannot be used.
    """
    groups = node_groups_of(options)
    if not groups and not options.remove:
        text = "--node-groups FILE, or --group MIN:MAX:NAME with --catalogue FILE"
        raise CliError(f"give the kinds of nodes that can be added: {text}", code=2)
    return groups


def _demand(options: argparse.Namespace) -> Manifests:
    demand = load_manifests([path for group in options.filename for path in group], lenient=True)
    for path in options.demand:
        with demand.collecting():
            demand.objects += read_table(path)
    if demand.problems and not demand.objects:
        raise ManifestError(*demand.problems)
    return demand
