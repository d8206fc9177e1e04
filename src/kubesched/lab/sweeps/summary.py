"""Summary of one figure over equal runs: mean with its confidence interval, median, least and most.

Callers: :mod:`.table`, reports.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

from .plan import Scalar

__all__ = ["Summary", "mean_interval", "summary_of"]

#: Quantiles of Student's t distribution for a two-sided interval of 95 %, by degrees of freedom from 1. Between the
#: last entries the next smaller number of degrees is used, so an interval is never too narrow.
_T95: Final = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
_T95_BEYOND: Final = ((120, 1.9799), (60, 2.0003), (40, 2.0211), (30, 2.0423))


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Figure of the runs of a group.

    ``low`` to ``high`` is the 95 % confidence interval of the mean; None for one run.
    """

    group: dict[str, Scalar]
    figure: str
    #: Number of runs that have the figure.
    runs: int
    mean: float
    low: float | None
    high: float | None
    median: float
    least: float
    most: float


def summary_of(group: dict[str, Scalar], figure: str, values: Sequence[float]) -> Summary:
    """Return the summary of a figure; ``values`` has at least one."""
    low, high = mean_interval(values)
    return Summary(
        group=group,
        figure=figure,
        runs=len(values),
        mean=statistics.fmean(values),
        low=low,
        high=high,
        median=statistics.median(values),
        least=min(values),
        most=max(values),
    )


def mean_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % confidence interval of the mean, by Student's t; (None, None) for fewer than two values."""
    if len(values) < 2:
        return None, None
    degrees = len(values) - 1
    factor = _T95[degrees - 1] if degrees <= len(_T95) else next(t for least, t in _T95_BEYOND if degrees >= least)
    mean = statistics.fmean(values)
    half = factor * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half
