"""``kubesched diff``: two results, clusters or recorded runs side by side; see :func:`.arguments.simulations.diff`."""

from __future__ import annotations

import argparse

import msgspec

from kubesched.api.yamltext import to_yaml
from kubesched.base.collector import collector_off
from kubesched.base.large_json import as_text, large_json
from kubesched.lab.comparisons import diff
from kubesched.lab.comparisons.text import comparison_lines

from .console import print_lines, terminal_width, warn, write
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
    if options.output == "json":
        write(large_json(comparison, indent=2).decode() + "\n")
    elif options.output == "yaml":
        write(to_yaml(as_text(msgspec.to_builtins(comparison)), sort_keys=False))
    else:
        print_lines(comparison_lines(comparison, wide=options.output == "wide", width=terminal_width()))
    return int(options.exit_code and comparison.differs)
