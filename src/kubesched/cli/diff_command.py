"""``kubesched diff``: two results, clusters or recorded runs side by side; see :func:`.arguments.simulations.diff`."""

from __future__ import annotations

import argparse

from kubesched.base.collector import collector_off
from kubesched.lab.comparisons import diff
from kubesched.lab.comparisons.text import comparison_lines

from .console import terminal_width, warn, write_document
from .saved_file import output_file, refuse_inputs

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    paths = [options.a, options.b]
    if options.report is not None:
        refuse_inputs([("--report", options.report)], paths)
    with collector_off():
        comparison = diff(*paths)
    if options.report is not None:
        with output_file(options.report, "--report") as file:
            file.write(comparison.to_html().encode(errors="backslashreplace"))
    for text in comparison.warnings:
        warn(text)
    write_document(
        comparison,
        options.output,
        lambda: comparison_lines(comparison, wide=options.output == "wide", width=terminal_width()),
    )
    return int(options.exit_code and comparison.differs)
