"""Plots of a sweep with matplotlib: the mean of a figure by one parameter, with its confidence interval.

Caller: :mod:`.table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..simulate.results.plots import new_figure
from .plan import Scalar
from .summary import Summary

__all__ = ["plot_summaries"]


def plot_summaries(summaries: Sequence[Summary], x: str, axes: Any = None) -> Any:
    """Return a figure, or the axes if some are given. ``summaries`` are of one figure.

    There is a line for each group of equal parameters besides ``x``. Numbers are drawn at their values on the axis,
    other values side by side.

    Raises:
        ImportError: when matplotlib is not installed.
    """
    figure = new_figure(1) if axes is None else None
    place = figure.axes[0] if figure is not None else axes
    lines: dict[tuple[tuple[str, Scalar], ...], list[Summary]] = {}
    for one in summaries:
        lines.setdefault(tuple((name, value) for name, value in one.group.items() if name != x), []).append(one)
    values = list(dict.fromkeys(one.group[x] for one in summaries))
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    for number, (others, points) in enumerate(lines.items()):
        if numeric:
            points.sort(key=lambda one: float(one.group[x] or 0))
        # Each line is shifted sideways, so that intervals of several lines do not overlap.
        shift = 0.0 if numeric else 0.4 * ((number + 0.5) / len(lines) - 0.5)
        at = [one.group[x] if numeric else values.index(one.group[x]) + shift for one in points]
        margins = [
            [one.mean - (one.mean if one.low is None else one.low) for one in points],
            [(one.mean if one.high is None else one.high) - one.mean for one in points],
        ]
        label = ", ".join(f"{name} {value}" for name, value in others) or None
        style = "o-" if numeric else "o"
        place.errorbar(at, [one.mean for one in points], yerr=margins, fmt=style, capsize=4, label=label)
    if not numeric:
        place.set_xticks(range(len(values)), ["-" if value is None else str(value) for value in values])
    place.set(xlabel=x, ylabel=summaries[0].figure, title="Mean and its confidence interval of 95 %")
    place.grid(visible=True, alpha=0.3)
    if len(lines) > 1:
        place.legend(loc="best")
    return axes if figure is None else figure
