"""``kubesched conformance``: see :func:`.arguments.measurements.conformance`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubesched.lab.conformance import AreaResult, Coverage, Report, golden_files, read_gates, replay_file
from kubesched.scheduler.plugins import in_tree_registry

from .console import print_lines, progress_bar, write
from .errors import CliError

__all__ = ["run"]


@contextmanager
def _without_log() -> Iterator[None]:
    """Silence the log. Failing plugins are part of many records, and the report shows every difference."""
    log = logging.getLogger("kubesched")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def run(options: argparse.Namespace) -> int:
    try:
        files = golden_files([Path(path) for path in options.paths], options.area)
    except FileNotFoundError as error:
        raise CliError(str(error)) from None
    if not files:
        what = f"no golden file of area {options.area}" if options.area else "no golden files (*.jsonl.gz)"
        raise CliError(f"{', '.join(options.paths)}: {what}")
    try:
        gates = read_gates(Path(options.gates)) if options.gates else {}
    except ValueError as error:
        raise CliError(f"--gates: {error}") from None
    registry = in_tree_registry()
    coverage = Coverage() if options.coverage else None
    results: list[AreaResult] = []
    done = 0
    for path in files:
        with progress_bar(path.name, quiet=options.quiet) as bar:

            def advance(show: object = bar.update) -> None:
                nonlocal done
                done += 1
                assert callable(show)
                show(done, 0)

            try:
                with _without_log():
                    results.append(replay_file(path, registry, advance, coverage, gates))
            except ValueError as error:
                raise CliError(str(error)) from error
    report = Report(results, coverage)
    if options.output == "json":
        write(report.as_json())
    else:
        print_lines(report.as_lines())
    return 0 if report.agrees else 1
