"""``kubesched audit``: findings about a cluster as it stands; see :func:`.arguments.simulations.audit`."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext, redirect_stdout

from kubesched.base.collector import collector_off
from kubesched.base.times import RealClock
from kubesched.explain.audit import LEVELS, Audit, Limits, audit_lines
from kubesched.lab.simulate.run.standing import audit_standing

from .cluster_source import given_cluster
from .console import progress_bar, warn, write_document
from .loading import load_setup

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    registry, config, gates, remarks = load_setup(options, options.config)
    manifests = given_cluster(options)
    is_document = options.output in ("json", "yaml")
    # Output of plugins must not be part of a document.
    aside = redirect_stdout(sys.stderr) if is_document else nullcontext()
    with progress_bar("pods checked", quiet=options.quiet) as bar, aside, collector_off():
        audit, warnings = audit_standing(
            manifests,
            registry=registry,
            config=config,
            gates=gates,
            # A dump is audited as of its making, which the newest timestamp in it tells.
            now=RealClock().now() if options.kubeconfig is not None else None,
            limits=Limits(is_wide=options.output == "wide" or options.wide, older_than=options.older_than),
            on_progress=lambda done: bar.update(done, 0),
        )
    for remark in [*remarks, *warnings]:
        warn(remark)
    write_document(audit, options.output, lambda: audit_lines(audit, is_wide=options.output == "wide" or options.wide))
    return int(_fails(audit, options.fail_on))


def _fails(audit: Audit, level: str) -> bool:
    """Return True if there is a finding of this level or a graver one."""
    if level == "never":
        return False
    return any(getattr(audit.totals, graver) for graver in LEVELS[: LEVELS.index(level) + 1])
