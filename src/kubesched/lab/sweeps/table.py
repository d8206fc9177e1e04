"""Table of a sweep's results: a row for each run, its parameters, its figures, and its error if it failed.

:meth:`SweepTable.summary` combines runs that differ in their seed only, with a confidence interval of the mean.
Callers: :mod:`.running`, ``kubesched sweep``, and programs.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubesched.base.large_json import large_json

from .functions import Outcome
from .plan import Run, Scalar, SweepError
from .summary import Summary, summary_of

__all__ = ["ERROR", "SEED", "SweepTable"]

#: Column with the exceptions of failed runs.
ERROR: Final = "error"
#: Parameter in which runs of one group differ.
SEED: Final = "seed"


@dataclass(frozen=True)
class SweepTable:
    """Table of results. ``parameters`` and ``figures`` are names of columns; ``rows`` are in the order of the plan.

    A row has an entry for every column, and for ``error``. The entry is None if the run has no value.
    """

    parameters: tuple[str, ...]
    figures: tuple[str, ...]
    rows: tuple[dict[str, Scalar], ...]

    @classmethod
    def of(cls, results: Sequence[tuple[Run, Outcome]]) -> SweepTable:
        """Make the table of the results.

        Raises:
            SweepError: when a figure has the name of a parameter.
        """
        parameters = tuple(dict.fromkeys(name for run, _ in results for name in run.names))
        figures = tuple(dict.fromkeys(name for _, outcome in results for name in outcome.figures))
        clash = [name for name in figures if name in parameters or name == ERROR]
        if clash:
            raise SweepError(f"the function returned a figure named {clash[0]}, which is a column already")
        rows = tuple(
            {
                **{name: run.names.get(name) for name in parameters},
                **{name: outcome.figures.get(name) for name in figures},
                ERROR: outcome.error,
            }
            for run, outcome in results
        )
        return cls(parameters, figures, rows)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.parameters, *self.figures, ERROR)

    @property
    def failed(self) -> tuple[dict[str, Scalar], ...]:
        """Rows of runs that failed."""
        return tuple(row for row in self.rows if row[ERROR] is not None)

    def numeric_figures(self) -> list[str]:
        """Names of figures whose values are all numbers."""
        found = []
        for name in self.figures:
            values = [row[name] for row in self.rows if row[name] is not None]
            if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
                found.append(name)
        return found

    def summary(self, by: Iterable[str] | None = None, figures: Iterable[str] | None = None) -> list[Summary]:
        """Return a summary of each figure for each group of runs.

        The runs of a group have equal values of the parameters ``by``, by default of all parameters but the seed.

        Raises:
            SweepError: when there is no such parameter, or no such figure that is a number.
        """
        keys = [name for name in self.parameters if name != SEED] if by is None else list(by)
        numeric = self.numeric_figures()
        chosen = numeric if figures is None else list(figures)
        _known("parameter", keys, self.parameters)
        _known("figure", chosen, numeric)
        groups: dict[tuple[Scalar, ...], list[dict[str, Scalar]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row[key] for key in keys), []).append(row)
        found = []
        for group, rows in groups.items():
            for figure in chosen:
                values = [float(value) for row in rows if isinstance(value := row[figure], int | float)]
                if values:
                    found.append(summary_of(dict(zip(keys, group, strict=True)), figure, values))
        return found

    # -- other forms -----------------------------------------------------------------------------------

    def to_dicts(self) -> list[dict[str, Scalar]]:
        return [dict(row) for row in self.rows]

    def to_json(self) -> str:
        """Return a list of objects, as JSON."""
        return large_json(self.rows, indent=2).decode() + "\n"

    def to_csv(self) -> str:
        """Return CSV. Missing values are empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def to_frame(self, library: str | None = None) -> Any:
        """Return a data frame of ``pandas`` or ``polars``; by default of the one that is installed.

        Raises:
            ValueError, ImportError: see :func:`~kubesched.lab.simulate.results.frames.frame_of`.
        """
        from ..simulate.results.frames import frame_of  # noqa: PLC0415 - only needed here

        return frame_of({name: [row[name] for row in self.rows] for name in self.columns}, library)

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame."""
        return self.to_frame("pandas")

    def to_polars(self) -> Any:
        """Return a polars.DataFrame."""
        return self.to_frame("polars")

    def plot(
        self, figure: str | None = None, x: str | None = None, by: Iterable[str] | None = None, axes: Any = None
    ) -> Any:
        """Plot the mean of a figure by the parameter ``x``, with its confidence interval.

        There is a line for each combination of the other parameters.

        The defaults are the first figure that is a number, and the first parameter that has several values. For ``by``
        see :meth:`summary`. Returns a matplotlib figure, or the ``axes`` if some are given.

        Raises:
            SweepError: when there is no such figure or parameter.
            ImportError: when matplotlib is not installed.
        """
        from .plots import plot_summaries  # noqa: PLC0415 - only needed here

        keys = [name for name in self.parameters if name != SEED] if by is None else list(by)
        if x is None:
            varied = [name for name in keys if len({row[name] for row in self.rows}) > 1]
            x = (varied or keys or [SEED])[0]
        chosen = figure if figure is not None else (self.numeric_figures() or [""])[0]
        summaries = self.summary(keys if x in keys else [*keys, x], [chosen])
        return plot_summaries(summaries, x, axes)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_cell(row[name]))}</td>" for name in self.columns) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _known(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise SweepError(f"there is no {what} {name}; expected one of {', '.join(known) or 'none'}")


def _cell(value: Scalar) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
