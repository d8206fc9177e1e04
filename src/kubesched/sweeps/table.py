"""The results of a sweep as one tidy table: a row for each run, its parameters, its figures, and its error if it failed.

:meth:`SweepTable.summary` has the figures of runs that differ in their seed only, with a confidence interval of the mean.
Callers: :mod:`.running`, ``kubesched sweep``, and programs.
"""

from __future__ import annotations

import csv
import html
import io
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import msgspec

from .functions import Outcome
from .plan import Run, Scalar, SweepError

__all__ = ["ERROR", "SEED", "Summary", "SweepTable", "mean_interval"]

#: The column with what a failed run raised.
ERROR: Final = "error"
#: The parameter that runs of one group differ in.
SEED: Final = "seed"

#: Quantiles of Student's t distribution for a two-sided interval of 95 %, by degrees of freedom from 1. Between the last ones
#: that of fewer degrees is used, so that an interval is rather too wide.
_T95: Final = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
_T95_BEYOND: Final = ((120, 1.9799), (60, 2.0003), (40, 2.0211), (30, 2.0423))


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the runs of a group. ``low`` to ``high`` is the mean's confidence interval of 95 %; None for one run."""

    group: dict[str, Scalar]
    figure: str
    #: How many runs have the figure.
    runs: int
    mean: float
    low: float | None
    high: float | None
    median: float
    least: float
    most: float


@dataclass(frozen=True)
class SweepTable:
    """``parameters`` and ``figures`` are names of columns; ``rows`` are in the order of the sweep's plan.

    A row has a value for every column, None where its run has none, and for ``error``.
    """

    parameters: tuple[str, ...]
    figures: tuple[str, ...]
    rows: tuple[dict[str, Scalar], ...]

    @classmethod
    def of(cls, results: Sequence[tuple[Run, Outcome]]) -> SweepTable:
        """Raises:
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
        """Figures that are numbers wherever they are given."""
        found = []
        for name in self.figures:
            values = [row[name] for row in self.rows if row[name] is not None]
            if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
                found.append(name)
        return found

    def summary(self, by: Iterable[str] | None = None, figures: Iterable[str] | None = None) -> list[Summary]:
        """Figures by group: of runs that are equal in the parameters ``by`` (default: all but the seed).

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
                    low, high = mean_interval(values)
                    found.append(
                        Summary(
                            group=dict(zip(keys, group, strict=True)),
                            figure=figure,
                            runs=len(values),
                            mean=statistics.fmean(values),
                            low=low,
                            high=high,
                            median=statistics.median(values),
                            least=min(values),
                            most=max(values),
                        )
                    )
        return found

    # -- other forms -----------------------------------------------------------------------------------

    def to_dicts(self) -> list[dict[str, Scalar]]:
        return [dict(row) for row in self.rows]

    def to_json(self) -> str:
        """A list of objects."""
        return msgspec.json.format(msgspec.json.encode(self.rows)).decode() + "\n"

    def to_csv(self) -> str:
        """Missing values are empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def to_pandas(self) -> Any:
        """A pandas.DataFrame; pandas must be installed."""
        return import_module("pandas").DataFrame(self.to_dicts(), columns=list(self.columns))

    def to_polars(self) -> Any:
        """A polars.DataFrame; polars must be installed."""
        return import_module("polars").DataFrame(self.to_dicts(), schema=list(self.columns), infer_schema_length=None)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_cell(row[name]))}</td>" for name in self.columns) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def mean_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The confidence interval of 95 % of the mean, by Student's t; (None, None) for fewer than two values."""
    if len(values) < 2:
        return None, None
    degrees = len(values) - 1
    factor = _T95[degrees - 1] if degrees <= len(_T95) else next(t for least, t in _T95_BEYOND if degrees >= least)
    mean = statistics.fmean(values)
    half = factor * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def _known(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise SweepError(f"there is no {what} {name}; expected one of {', '.join(known) or 'none'}")


def _cell(value: Scalar) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
