"""Generators of arrival times: Poisson, shaped by the hour and the day of the week, and bursts.

All randomness comes from a generator of numpy that the caller seeds. Times are seconds after the start of a simulation,
which is midnight of a Wednesday. Caller: :mod:`kubesched.lab.simulate.inputs.streams`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["DAYS", "HOURS", "Times", "burst_times", "daily_shape", "fitted_shape", "shaped_times"]

#: Ascending seconds after the start, float64[n].
Times: TypeAlias = NDArray[np.float64]

HOURS: Final = 24
DAYS: Final = 7
_HOUR: Final = 3600.0
_DAY: Final = 86_400.0
#: Day of the week at the start; 0 is Monday.
_FIRST_DAY: Final = 2


def daily_shape(peak_hour: float, swing: float) -> list[float]:
    """Return 24 weights with the mean 1: a cosine with its peak at an hour, 0 to 24.

    ``swing`` is its height above the mean, 0 (flat) to 1 (nothing at the lowest hour).
    """
    return [1.0 + swing * math.cos(2 * math.pi * (hour + 0.5 - peak_hour) / HOURS) for hour in range(HOURS)]


def shaped_times(
    rng: np.random.Generator,
    rate: float,
    begin: float,
    end: float,
    hours: Sequence[float] = (),
    days: Sequence[float] = (),
) -> Times:
    """Draw the arrivals of a Poisson process whose rate is constant within each hour.

    ``rate`` is the mean, in arrivals per second. ``hours`` are 24 weights of the hours of a day, ``days`` 7 weights from
    Monday; each is scaled to the mean 1. Without them the rate is constant.
    """
    if not hours and not days:
        return np.sort(rng.uniform(begin, end, rng.poisson(rate * (end - begin))))
    by_hour, by_day = _scaled(hours, HOURS), _scaled(days, DAYS)
    edges = np.append(np.arange(math.floor(begin / _HOUR), math.ceil(end / _HOUR)) * _HOUR, end)
    edges[0] = begin
    numbers = np.floor(edges[:-1] / _HOUR).astype(np.int64)
    weights = by_hour[numbers % HOURS] * by_day[(_FIRST_DAY + numbers // HOURS) % DAYS]
    spans = np.diff(edges)
    counts = rng.poisson(rate * weights * spans)
    starts, widths = np.repeat(edges[:-1], counts), np.repeat(spans, counts)
    return np.sort(starts + widths * rng.random(len(starts)))


def _scaled(weights: Sequence[float], count: int) -> NDArray[np.float64]:
    found = np.array(weights if len(weights) else [1.0] * count, np.float64)
    scaled: NDArray[np.float64] = found / found.mean()
    return scaled


def burst_times(
    rng: np.random.Generator,
    every: float,
    begin: float,
    end: float,
    size: Callable[[int], NDArray[np.int64]],
    within: float,
    *,
    regular: bool = False,
    most: float = math.inf,
) -> Times:
    """Draw the arrivals of bursts.

    Bursts begin ``every`` so many seconds on average, or exactly if ``regular``. ``size`` draws their sizes; the
    arrivals of one are spread evenly at random over ``within`` seconds. Those at or after ``end`` are left out.

    Raises:
        ValueError: when more than ``most`` arrivals were drawn.
    """
    if regular:
        starts = np.arange(begin, end, every, dtype=np.float64)
    else:
        starts = np.sort(rng.uniform(begin, end, rng.poisson((end - begin) / every)))
    sizes = np.maximum(size(len(starts)), 0)
    if sizes.sum(dtype=np.float64) > most:
        raise ValueError(f"{sizes.sum(dtype=np.float64):,.0f} arrivals were drawn; expected at most {most:,}")
    times = np.repeat(starts, sizes) + within * rng.random(int(sizes.sum()))
    return np.sort(times[times < end])


def fitted_shape(arrivals: Sequence[float]) -> tuple[float, list[float], list[float]]:
    """Return the rate, the weights of the hours and of the days of given arrivals.

    Days have equal weights unless the arrivals span a week, hours unless they span a day. The rate is per second, over
    the whole days that the arrivals span if they span one.
    """
    times = np.sort(np.asarray(arrivals, np.float64))
    span = max(float(times[-1] - times[0]), 1.0) if len(times) else 1.0
    if span < _DAY / 2:
        return len(times) / span, [], []
    whole = math.ceil((float(times[-1]) + 1e-9) / _DAY) * _DAY
    numbers = np.floor(times / _HOUR).astype(np.int64)
    hours = np.bincount(numbers % HOURS, minlength=HOURS).astype(np.float64)
    days: list[float] = []
    if whole >= DAYS * _DAY:
        found = np.bincount((_FIRST_DAY + numbers // HOURS) % DAYS, minlength=DAYS).astype(np.float64)
        seen = np.bincount((_FIRST_DAY + np.arange(round(whole / _DAY))) % DAYS, minlength=DAYS)
        days = (found / np.maximum(seen, 1)).tolist()
    return len(times) / whole, hours.tolist(), days
