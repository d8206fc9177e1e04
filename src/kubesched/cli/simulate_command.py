"""``kubesched simulate``: see :func:`.arguments.simulate`."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext, redirect_stdout

from kubesched.cluster.files import load_manifests
from kubesched.cluster.kubelets import load_stages, node_template
from kubesched.simulate.loading import load_node_template
from kubesched.simulate.report import error_text, render_json, render_table, render_yaml
from kubesched.simulate.simulation import run_simulation

from .console import print_lines, progress_bar, warn, write
from .errors import CliError
from .loading import load_setup

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    registry, config, remarks = load_setup(options, options.config)
    paths = [path for group in options.filename for path in group]
    manifests = load_manifests(paths)
    if not manifests.objects:
        nothing = f"{', '.join(paths)}: there are no manifests (YAML or JSON files with Kubernetes objects)"
        raise CliError("\n".join((nothing, *manifests.warnings)))
    if options.node_template:
        template = load_node_template(options.node_template)
    else:
        template = node_template(cpu=options.node_cpu, memory=options.node_memory)
    # What plugins print must not be part of a document.
    aside = nullcontext() if options.output == "table" else redirect_stdout(sys.stderr)
    with progress_bar("pods bound", quiet=options.quiet) as bar, aside:
        result = run_simulation(
            manifests,
            registry=registry,
            nodes=options.nodes,
            node_template=template,
            zones=[f"zone-{number}" for number in range(1, options.zones + 1)],
            config=config,
            seed=options.seed,
            stages=load_stages(options.stages),
            until=options.until,
            remarks=remarks,
            on_progress=bar.update,
            on_slow_plugin=warn,
        )
    for remark in result.warnings:
        warn(remark)
    if options.output == "table":
        print_lines(render_table(result, wide=options.wide))
    else:
        write(render_json(result) if options.output == "json" else render_yaml(result))
    if result.errors:
        count = sum(item.count for item in result.errors)
        what = "an exception was" if count == 1 else f"{count:,} exceptions were"
        texts = [error_text(item) for item in result.errors]
        raise CliError("\n".join((f"{what} raised during the run, so its result may be wrong:", *texts)))
    if result.refused:
        first = result.refused[0]
        pods = "1 pod was" if result.totals.refused == 1 else f"{result.totals.refused:,} pods were"
        raise CliError(f"{pods} refused; the first: {first.source}: {first.message}")
    return 0
