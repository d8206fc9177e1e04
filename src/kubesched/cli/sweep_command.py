"""``kubesched sweep``: see :func:`.arguments.sweep`."""

from __future__ import annotations

import argparse
import signal
from types import FrameType
from typing import Final

from kubesched.sweeps import SweepTable, execute
from kubesched.sweeps.plan import Scalar
from kubesched.sweeps.sweep_file import read_sweep, read_value
from kubesched.sweeps.table import ERROR
from kubesched.sweeps.text import summary_lines

from .console import progress_bar, warn, write
from .errors import CliError

__all__ = ["run"]

#: So many different errors of failed runs are shown.
_MOST_ERRORS: Final = 5


def run(options: argparse.Namespace) -> int:
    description = read_sweep(
        options.file,
        function=options.function,
        grid={name: _axis(name, text) for name, text in options.grid},
        arguments={name: read_value(text, f"--set {name}") for name, text in options.settings},
    )
    by = options.by or description.by
    unknown = set(by or ()) - {name for run in description.runs for name in run.names}
    if unknown:
        raise CliError(f"--by {min(unknown)}: no run has such a parameter")
    signal.signal(signal.SIGTERM, _interrupt)
    with progress_bar("runs", quiet=options.quiet) as bar:
        table = execute(
            description.runs,
            description.function,
            results=options.results,
            processes=options.processes,
            timeout=options.timeout,
            ray=options.ray,
            on_progress=lambda done, total, failed: bar.update(done, total),
        )
    _show(table, options, options.figure or description.figures, by)
    failed = table.failed
    alike: dict[Scalar, list[dict[str, Scalar]]] = {}
    for row in failed:
        alike.setdefault(row[ERROR], []).append(row)
    for error, rows in list(alike.items())[:_MOST_ERRORS]:
        names = ", ".join(f"{name}={rows[0][name]}" for name in table.parameters)
        warn(f"run {names}{f' and {len(rows) - 1:,} more' if len(rows) > 1 else ''}: {error}")
    if failed:
        raise CliError(f"{len(failed):,} of {len(table.rows):,} runs failed")
    return 0


def _axis(name: str, text: str) -> object:
    """Values of ``--grid``: a list, a mapping of labels, or several separated by commas."""
    value = read_value(text, f"--grid {name}")
    if isinstance(value, str) and name != "seed" and "," in value:
        return [read_value(part, f"--grid {name}") for part in value.split(",")]
    return value


def _show(table: SweepTable, options: argparse.Namespace, figures: list[str] | None, by: list[str] | None) -> None:
    if options.output == "csv":
        write(table.to_csv())
    elif options.output == "json":
        write(table.to_json())
    elif len(table.failed) < len(table.rows):
        write("".join(f"{line}\n" for line in summary_lines(table.summary(by, figures))))


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends a sweep as Ctrl-C does: workers are ended, and what was recorded stays."""
    raise KeyboardInterrupt
