"""``kubesched capacity``: how many more pods fit; see :func:`.arguments.planning.capacity`."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext, redirect_stdout

from kubesched.cluster.files import ManifestError, load_manifests
from kubesched.lab.simulate.planning.capacity import Counting, capacity_of
from kubesched.lab.simulate.planning.capacity_text import capacity_lines
from kubesched.lab.simulate.planning.question import pod_like, question_of

from .console import progress_bar, terminal_width, warn, write_document
from .errors import CliError
from .planning_input import arguments_of

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    if options.until_full and options.mix:
        raise CliError("--until-full asks about each kind of pod alone, --mix about all together: give one", code=2)
    if not options.filename and not options.like:
        raise CliError("give the pods: -f FILE, or --like POD, a pod of the cluster", code=2)
    given = load_manifests([path for group in options.filename for path in group])
    arguments = arguments_of(options)
    for name in options.like:
        with given.collecting():
            model = pod_like(name, arguments["manifests"].objects)
            if any(one is model for one in given.objects):
                raise ManifestError(f"--like {name}: is given twice; give it once, with --mix for its number")
            given.objects.append(model)
    question = question_of(given, dict(options.mix))
    counting = Counting(together=not options.until_full, preemption=options.preemption, most=options.most)
    is_document = options.output in ("json", "yaml")
    # Output of plugins must not be part of a document.
    aside = redirect_stdout(sys.stderr) if is_document else nullcontext()
    with progress_bar("pods placed", quiet=options.quiet) as bar, aside:
        found = capacity_of(arguments, question, counting, lambda done: bar.update(done, 0))
    for remark in [*given.warnings, *found.warnings]:
        if remark not in arguments["registry"].problems:  # printed when plugins were loaded
            warn(remark)
    write_document(
        found,
        options.output,
        lambda: capacity_lines(found, wide=options.wide or options.output == "wide", width=terminal_width()),
    )
    return 0
