"""Charts as SVG text, without any library: steps over time, and histograms. Caller: :mod:`.html_report`."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["histogram", "step_chart", "tick_step", "time_unit"]

_WIDTH: Final = 640
#: Height of the plot itself; title and legend are above it, the time axis below.
_PLOT: Final = 165
_LEFT: Final = 60
_RIGHT: Final = 14
_BOTTOM: Final = 34
_LINE: Final = 16
#: Approximate width of a character of the legend.
_LETTER: Final = 6.2
_LONGEST_LABEL: Final = 40
#: Colours that the colour-blind can distinguish (Okabe and Ito).
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
_UNITS: Final = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_TICKS: Final = 5
#: Most points of one line; more cannot be distinguished on a screen.
_MOST_POINTS: Final = 1_500


def tick_step(most: float, *, whole: bool = False) -> float:
    """Return a round distance of ticks on an axis from 0 to ``most``; at least 1 for counts (``whole``)."""
    if most <= 0:
        return 1.0
    raw = most / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return max(1.0, float(math.ceil(step))) if whole else step


def _marks(most: float, *, whole: bool = False) -> list[float]:
    """Return round numbers from 0 to at least ``most``."""
    step = tick_step(most, whole=whole)
    return [step * number for number in range(max(1, math.ceil(most / step - 1e-9)) + 1)]


def _number(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value:,g}"


def time_unit(end: float) -> tuple[float, str]:
    """Return seconds per unit, and its name, for an axis from 0 to ``end`` seconds."""
    return next(((size, name) for size, name in _UNITS if end >= 2 * size), _UNITS[-1])


class _Chart:
    """Chart under construction. Places in the plot are shares of its width and height."""

    def __init__(self, title: str, below: str, marks: Sequence[tuple[float, str]], labels: Sequence[str] = ()) -> None:
        """``marks`` are the marks of the vertical axis. ``labels`` that are not empty make a legend."""
        self._parts: list[str] = []
        self._top = _LINE + 12
        if any(labels):
            self._legend(labels)
        height = self._top + _PLOT + _BOTTOM
        self._head = (
            f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{html.escape(title)}">'
            f'<text x="{_LEFT}" y="{_LINE}" class="t">{html.escape(title)}</text>'
        )
        for share, text in marks:
            y = self.y(share)
            self._parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="g"/>')
            self._text(_LEFT - 6, y + 4, text, "y")
        self._text((_LEFT + _WIDTH - _RIGHT) / 2, height - 4, below, "x")

    def _text(self, x: float, y: float, text: str, kind: str) -> None:
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{html.escape(text)}</text>')

    def _legend(self, labels: Sequence[str]) -> None:
        """Draw a line of the colour in front of each label, in as many rows as needed."""
        x: float = _LEFT
        self._top += _LINE
        for number, label in enumerate(labels):
            cut = label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"
            width = 22 + _LETTER * len(cut) + 14
            if x + width > _WIDTH and x > _LEFT:
                x, self._top = _LEFT, self._top + _LINE
            y = self._top - 12
            self._parts.append(f'<path d="M{x:.1f} {y - 4}h16" {_stroke(number, 1)}/>')
            self._text(x + 22, y, cut, "l")
            x += width

    def x(self, share: float) -> float:
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, share: float) -> float:
        return self._top + _PLOT * (1 - share)

    def tick(self, share: float, text: str) -> None:
        """Draw a number below the plot."""
        self._text(self.x(share), self.y(0) + 14, text, "x")

    def add(self, part: str) -> None:
        self._parts.append(part)

    def text(self) -> str:
        return "".join((self._head, *self._parts, "</svg>"))


def _stroke(number: int, lines: int) -> str:
    """Return the style of a line. Earlier lines are wider, so that they show behind others with equal values."""
    dashes = ' stroke-dasharray="5 3"' if number >= len(_COLOURS) else ""
    width = 1.3 + min(2.0, 0.9 * max(0, lines - 1 - number))
    return f'fill="none" stroke="{_COLOURS[number % len(_COLOURS)]}" stroke-width="{width:.1f}"{dashes}'


def step_chart(
    title: str, times: Sequence[float], lines: Mapping[str, Sequence[float]], *, percent: bool = False
) -> str:
    """Return a chart of lines over time in seconds; each value holds until the next.

    ``percent``: values are shares from 0 to 1; otherwise they are counts. Values of a run that lasts a single moment
    are drawn over the whole width.
    """
    end = times[-1] if times else 0.0
    unit, name = time_unit(end)
    most = 1.0 if percent else max((max(values, default=0.0) for values in lines.values()), default=0.0)
    marks = _marks(most, whole=not percent)
    top = marks[-1]
    texts = [(mark / top, f"{mark:.0%}" if percent else _number(mark)) for mark in marks]
    below = f"virtual {name}" if end else "at the start, after which nothing changed"
    chart = _Chart(title, below, texts, [*lines])
    step = tick_step(end / unit)
    for number in range(int(end / unit / step + 1e-9) + 1 if end else 0):
        chart.tick(number * step * unit / end, f"{number * step:g}")
    for number, values in enumerate(lines.values()):
        every = max(1, len(times) // _MOST_POINTS)
        path: list[str] = []
        last = ""
        for time, value in zip(times[::every], values[::every], strict=True):
            x, y = f"{chart.x(time / end if end else 0.0):.1f}", f"{chart.y(value / top):.1f}"
            path.append(f"M{x} {y}" if not path else f"H{x}" + (f"V{y}" if y != last else ""))
            last = y
        if times:
            path.append(f"H{chart.x(1.0):.1f}")
        chart.add(f'<path d="{"".join(path)}" {_stroke(number, len(lines))}/>')
    return chart.text()


def histogram(title: str, seconds: Sequence[float], bins: int = 30) -> str:
    """Return a histogram of durations in seconds."""
    most = max(seconds, default=0.0)
    unit, name = time_unit(most)
    ticks = _marks(most / unit)
    span = ticks[-1] * unit
    counts = [0] * bins
    for one in seconds:
        counts[min(bins - 1, int(bins * one / span))] += 1
    marks = _marks(max(counts), whole=True)
    top = marks[-1]
    chart = _Chart(title, name, [(mark / top, _number(mark)) for mark in marks])
    for tick in ticks:
        chart.tick(tick / ticks[-1], f"{tick:g}")
    width = (chart.x(1.0) - chart.x(0.0)) / bins
    for number, count in enumerate(counts):
        if count:
            height = max(1.0, chart.y(0) - chart.y(count / top))  # a single one among many must be visible, too
            chart.add(
                f'<rect x="{chart.x(number / bins):.1f}" y="{chart.y(0) - height:.1f}" width="{width - 1:.1f}" '
                f'height="{height:.1f}" fill="{_COLOURS[0]}"/>'
            )
    return chart.text()
