"""``kubesched sweep``: see :func:`.arguments.simulations.sweep`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

from kubesched.lab.simulate.results.plots import new_figure
from kubesched.lab.sweeps import SweepTable, execute
from kubesched.lab.sweeps.plan import Scalar
from kubesched.lab.sweeps.sweep_file import Description, read_sweep, read_value
from kubesched.lab.sweeps.table import ERROR
from kubesched.lab.sweeps.text import summary_lines

from .console import progress_bar, warn, write
from .errors import CliError
from .saved_file import output_file, refuse_inputs

__all__ = ["run"]

#: Most different errors of failed runs that are shown.
_MOST_ERRORS: Final = 5


def run(options: argparse.Namespace) -> int:
    given = [name for name, _ in (*options.grid, *options.settings)]
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise CliError(
            f"{twice[0]} is given twice by --grid or --set; give all its values at once: --grid {twice[0]}=a,b", 2
        )
    description = read_sweep(
        options.file,
        function=options.function,
        grid={name: _axis(name, text) for name, text in options.grid},
        arguments={name: read_value(text, f"--set {name}") for name, text in options.settings},
    )
    by = options.by or description.by
    known = {name for run in description.runs for name in run.names}
    asked = [("by", name) for name in by or ()] + ([("x", options.x)] if options.x else [])
    for option, name in asked:
        if name not in known:
            raise CliError(f"--{option} {name}: no run has such a parameter")
    with ExitStack() as outputs:
        # The file is opened before the runs, so that an error is reported before them.
        plot = None
        if options.plot is not None:
            _check_plot(options.plot)
            refuse_inputs([("--plot", options.plot)], [options.file] if options.file else [])
            plot = outputs.enter_context(output_file(options.plot, "--plot"))
        return _run(options, description, plot)


def _run(options: argparse.Namespace, description: Description, plot: BinaryIO | None) -> int:
    by = options.by or description.by
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
    if plot is not None and len(table.failed) < len(table.rows):
        _plot(table, options, plot, options.figure or description.figures, by)
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
    """Return the values of ``--grid``: a list, a mapping of labels, or several separated by commas."""
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


def _check_plot(file: str) -> None:
    """Check, before the runs are made, that a plot can be written.

    Raises:
        CliError: if matplotlib is missing, or does not write files of this format.
    """
    try:
        known = new_figure(1).canvas.get_supported_filetypes()
    except ImportError as error:
        raise CliError(f"--plot {file}: {error}") from error
    suffix = Path(file).suffix.removeprefix(".")
    if suffix not in known:
        raise CliError(f"--plot {file}: files are named by their format: .{', .'.join(sorted(known))}")


def _plot(
    table: SweepTable, options: argparse.Namespace, file: BinaryIO, figures: list[str] | None, by: list[str] | None
) -> None:
    try:
        drawn = table.plot(figures[0] if figures else None, options.x, by)
        drawn.savefig(file, format=Path(options.plot).suffix.removeprefix("."))
    except (ImportError, ValueError) as error:
        raise CliError(f"--plot {options.plot}: {error}") from error
